//! What an owner wrote after it was told that it is out was refused, and is nowhere: not in a view, a list, a filter, a plan or
//! what a follower hears, whether it was reaped or taken over.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::sim::{SimDisk, SimProcess};
use keepstep::{
    Ending, Episode, EpisodeName, Error, Opening, Options, PlanOptions, RemainingOptions, Run, RunEvent,
    Step, Store, Value, WhenBusy,
};

fn run_on(disk: Arc<SimProcess>) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

/// An owner that recorded two steps with rewards, and whose lock has slipped.
fn owner(sim: &SimDisk) -> (Run, Episode) {
    let process = sim.process();
    let run = run_on(Arc::clone(&process));
    run.plan(["task"], PlanOptions::default()).expect("plans");
    let episode = run.episode(name()).expect("begins");
    for index in 0..2 {
        episode.step(Step::new().action(index).reward(1.0)).expect("records");
    }
    process.lose_locks();
    (run, episode)
}

/// A step, and then the end, neither of which may count.
fn is_refused(episode: &Episode) {
    let stepped = episode.step(Step::new().action(9).reward(100.0)).map(|_| ());
    let ended = episode.end("finished", Ending::default()).and_then(|end| end.wait()).map(|_| ());
    for told in [stepped, ended] {
        let error = told.expect_err("is not its own any more");
        let is_fenced = matches!(&error, Error::Fenced { .. })
            || matches!(&error, Error::EarlierFailed(cause) if matches!(**cause, Error::Fenced { .. }));
        assert!(is_fenced, "{error}");
    }
}

/// How everybody sees an attempt: steps, return, how it ended.
fn seen(sim: &SimDisk, attempt: u32, why: &str) {
    let run = run_on(sim.process());
    let view = run.view(&name()).expect("reads");
    let view = if view.number() == attempt { view } else { view.attempt(attempt).expect("reads") };
    assert_eq!((view.steps(), view.read().expect("reads").steps.len()), (2, 2));
    assert_eq!(view.ending().expect("reads").and_then(|end| end.why).as_deref(), Some(why));
    let mut catalog = run.store().catalog().expect("reads");
    let all = run.store().list(&mut catalog).expect("lists");
    let one = run.store().list_one(&mut catalog, &view.id()).expect("lists");
    for listed in [all, one] {
        let it = listed.iter().find(|it| it.key.attempt == attempt).expect("is listed");
        let found = (it.state(), it.summary.steps, it.summary.total_reward);
        assert_eq!(found, (why, 2, Some(2.0)));
    }
}

fn told(run: &Run) -> Vec<String> {
    let mut follow = run.follow(None).expect("follows");
    let mut told = Vec::new();
    while let Some((event, _)) = follow.next(Duration::ZERO).expect("follows") {
        if let RunEvent::Ended { why, .. } = event {
            told.push(why);
        }
    }
    told
}

/// A refused end was read back, and the episode passed for finished in lists and plans.
#[test]
fn what_a_reaped_owner_writes_is_not_read_back() {
    let sim = SimDisk::new(91);
    let (run, episode) = owner(&sim);
    assert_eq!(run_on(sim.process()).store().reap().expect("reaps").len(), 1);
    is_refused(&episode);
    seen(&sim, 0, "crashed");
    let other = run_on(sim.process());
    assert_eq!(told(&other), Vec::<String>::new());
    let job = other.claim(RemainingOptions::default()).expect("looks").expect("it remains");
    let resumed = job.episode(Opening::default()).expect("goes on");
    assert_eq!((resumed.attempt(), resumed.inherited()), (1, 2));
    drop((run, episode));
}

#[test]
fn what_an_owner_writes_after_a_takeover_is_not_read_back() {
    let sim = SimDisk::new(92);
    let (run, episode) = owner(&sim);
    let other = run_on(sim.process());
    let taken = other.open(name(), Opening::default().busy(WhenBusy::Take)).expect("takes");
    assert_eq!(taken.inherited(), 2);
    is_refused(&episode);
    seen(&sim, 0, "crashed");
    taken.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    assert_eq!(told(&run_on(sim.process())), ["finished"], "once, by the one that counts");
    drop((run, episode));
}
