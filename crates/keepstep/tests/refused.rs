//! What an owner wrote after it was told that it is out was refused, and is nowhere: not in a view, a list, a filter, a plan or
//! what a follower hears, whether it was reaped or taken over.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::sim::{SimDisk, SimProcess};
use keepstep::export::{Jsonl, JsonlOptions};
use keepstep::tend::CompactOptions;
use keepstep::{
    Ending, Episode, EpisodeName, Error, NoteTarget, Opening, Options, PlanOptions, RemainingOptions, Run,
    RunEvent, Step, Store, Value, WhenBusy,
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
        let cause = if let Error::EarlierFailed(cause) = &error { cause } else { &error };
        assert!(matches!(cause, Error::Fenced { .. } | Error::LogClosed { .. }), "{error}");
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
    assert_eq!(run_on(sim.process()).store().reap().expect("reaps").crashed.len(), 1);
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

/// What the notes on a step say, by every reader of notes: a view of each attempt, the index, and what is exported.
fn notes_of_the_step(sim: &SimDisk) -> Vec<(String, Vec<Value>)> {
    let run = run_on(sim.process());
    let mut catalog = run.store().catalog().expect("reads");
    let index = run.notes().expect("reads");
    let (notes, lost) = index.episode(&run.episode_id(&name())).expect("reads");
    assert!(lost.is_empty(), "{lost:?}");
    let all = notes.iter().flat_map(|(_, said)| said.iter().map(|said| said.value.clone()));
    let mut found = vec![("the index".to_owned(), all.collect())];
    for listed in run.store().list(&mut catalog).expect("lists") {
        let view = run.store().view_of(&catalog, &listed.key).expect("reads");
        let said = view.counting(&notes).into_iter().map(|(_, said)| said.value).collect();
        found.push((format!("attempt {}", view.number()), said));
        let mut jsonl = Jsonl::new(Vec::new(), JsonlOptions::default());
        jsonl.notes(&listed, &view, &index).expect("exports");
        let lines = String::from_utf8(jsonl.finish().expect("exports").0).expect("is text");
        let value = |line: &str| {
            let rest = line.split_once("\"value\":\"").expect("has one").1;
            Value::from(rest.split('"').next().expect("ends"))
        };
        found.push((format!("attempt {}, exported", view.number()), lines.lines().map(value).collect()));
    }
    found
}

/// A note that was refused with `Fenced` took the place of an acknowledged one in tables, exports and views of the old
/// attempt: it is in the log of the old owner, behind what counts.
#[test]
fn a_refused_note_does_not_replace_an_acknowledged_one() {
    let sim = SimDisk::new(93);
    let (run, episode) = owner(&sim);
    let note =
        |value: &str| episode.note("score", Value::from(value), "old", Some(0)).and_then(|it| it.wait());
    note("acked").expect("is durable");
    let other = run_on(sim.process());
    let taken = other.open(name(), Opening::default().busy(WhenBusy::Take)).expect("takes");
    assert!(matches!(note("REFUSED"), Err(Error::Fenced { .. })));
    taken.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    let check = |stage: &str| {
        for (who, said) in notes_of_the_step(&sim) {
            assert_eq!(said, [Value::from("acked")], "{stage}: {who}");
        }
    };
    check("taken over");
    drop((taken, episode));
    run.store().close();
    other.store().close();
    check("closed");
    let at_once = CompactOptions::default().grace(Duration::ZERO);
    run_on(sim.process()).store().compact(at_once, &mut |_| {}).expect("compacts");
    check("compacted");
}

/// The first that it says is its end: that gets into its log, unlike what comes after something was refused.
fn refused_end(episode: &Episode) {
    let ended = episode.end("finished", Ending::default()).and_then(|end| end.wait()).map(|_| ());
    assert!(matches!(ended, Err(Error::Fenced { .. })), "{ended:?}");
}

/// A refused end passed for one that had been scored: a note on the episode from before the takeover did not count, and
/// the episode was to be scored again.
#[test]
fn a_refused_end_does_not_outdate_a_score() {
    let sim = SimDisk::new(95);
    let (run, episode) = owner(&sim);
    run.plan(["task"], PlanOptions::default().needs(["score"])).expect("plans");
    let target = NoteTarget::episode(episode.id());
    let judge = run_on(sim.process());
    judge.annotate(target, "score", Value::Int(1), "judge").and_then(|it| it.wait()).expect("notes");
    let other = run_on(sim.process());
    let taken = other.open(name(), Opening::default().busy(WhenBusy::Take)).expect("takes");
    refused_end(&episode);
    taken.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(taken);
    other.store().close();
    assert_eq!(run_on(sim.process()).progress(&RemainingOptions::default()).expect("looks").unscored, 0);
    drop((run, episode));
}
