//! What comes round again neither goes round in circles nor in haste: what errored rests, what this process leaves without an
//! end stops coming back, and so does what it scores without the note that is needed.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::{
    Ending, Job, Jobs, Next, NoteTarget, Opening, Options, PlanOptions, Remaining, RemainingOptions, Run,
    Step, Store, Value,
};

fn run_on(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn plan(run: &Run, tasks: &[&str]) {
    run.plan(tasks.iter().map(|task| (*task).to_owned()), PlanOptions::default()).expect("plans");
}

fn end(job: Job, why: &str, steps: u64) {
    let episode = job.episode(Opening::default()).expect("opens");
    for index in 0..steps {
        episode.step(Step::new().action(index as i64)).expect("records");
    }
    episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
}

fn job(remaining: &mut Remaining) -> Job {
    match remaining.try_next().expect("looks") {
        Next::Job(job) => *job,
        next => panic!("a job, not {next:?}"),
    }
}

fn rest(remaining: &mut Remaining) -> Duration {
    match remaining.try_next().expect("looks") {
        Next::Rest(time) => time,
        next => panic!("a rest, not {next:?}"),
    }
}

/// A service that is down for a moment must not use up all tries of all episodes: each error in a row doubles the rest.
#[test]
fn what_errored_rests_before_it_comes_back() {
    let sim = SimDisk::new(1);
    let run = run_on(sim.process());
    plan(&run, &["bad"]);
    let mut remaining = run.remaining(RemainingOptions::default()).expect("looks");
    for seconds in [1, 2] {
        end(job(&mut remaining), "errored", 0);
        let time = rest(&mut remaining);
        let whole = Duration::from_secs(seconds);
        assert!(time <= whole && time > whole - Duration::from_millis(500), "{time:?} of {whole:?}");
        if seconds == 1 {
            sim.advance(time);
        }
    }
    // What failed before a process looked need not rest for it.
    let other = run_on(sim.process());
    assert_eq!(job(&mut other.remaining(RemainingOptions::default()).expect("looks")).attempts, 2);
    drop(other);
}

/// Other work is not held up by what rests, and the clocks of others do not matter.
#[test]
fn a_rest_holds_nothing_else_up() {
    let sim = SimDisk::new(2);
    let run = run_on(sim.process());
    plan(&run, &["bad", "worse", "good"]);
    let mut remaining = run.remaining(RemainingOptions::default()).expect("looks");
    let mut given = Vec::new();
    for _ in 0..3 {
        let job = job(&mut remaining);
        given.push(job.name.task.clone());
        let why = if job.name.task == "good" { "finished" } else { "errored" };
        end(job, why, 0);
    }
    given.sort();
    assert_eq!(given, ["bad", "good", "worse"]);
    rest(&mut remaining);
    sim.set_clock_by(-3600);
    assert!(rest(&mut remaining) <= Duration::from_secs(1));
    // Who iterates waits for it.
    let again = remaining.next().expect("waits").expect("looks");
    assert_eq!((&*again.why, again.attempts), ("errored", 1));
    let none = RemainingOptions::default().pause(Duration::ZERO);
    drop(again);
    assert!(run.claim(none).expect("looks").is_some(), "without a pause it comes at once");
}

/// Whoever forgets to end an episode gets it back, but not for ever; what is new in between counts as getting on.
#[test]
fn what_is_left_without_an_end_again_and_again_stops_coming_back() {
    let sim = SimDisk::new(3);
    let process = sim.process();
    let run = run_on(process.clone());
    plan(&run, &["idle", "slow"]);
    let mut given = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..8 {
        for job in run.remaining(RemainingOptions::default()).expect("looks") {
            let job = job.expect("is given");
            let task = job.name.task.clone();
            *given.entry(task.clone()).or_default() += 1;
            end(job, "aborted", u64::from(task == "slow"));
        }
    }
    assert_eq!((given["idle"], given["slow"]), (3, 8));
    let remaining = run.remaining(RemainingOptions::default()).expect("looks");
    let left: Vec<(String, u32)> =
        remaining.left().into_iter().map(|(name, times)| (name.task, times)).collect();
    assert_eq!(left, [("idle".to_owned(), 3)]);
    // It is not over: whoever comes when this process is gone gets it.
    assert_eq!(run.progress(&RemainingOptions::default()).expect("looks").interrupted, 2);
    process.kill();
    let jobs = run_on(sim.process()).remaining(RemainingOptions::default()).expect("looks");
    let mut tasks: Vec<String> = jobs.map(|job| job.expect("is given").name.task.clone()).collect();
    tasks.sort();
    assert_eq!(tasks, ["idle", "slow"]);
}

/// A judge that writes another note than the plan needs stops; one whose model is down goes on trying.
#[test]
fn what_is_scored_in_vain_stops_coming_back() {
    let sim = SimDisk::new(4);
    let run = run_on(sim.process());
    let needs = PlanOptions::default().needs(["score"]);
    run.plan(["misspelt", "down", "right"].map(str::to_owned), needs).expect("plans");
    for job in run.remaining(RemainingOptions::default().jobs(Jobs::ToRun)).expect("looks") {
        end(job.expect("is given"), "finished", 1);
    }
    let to_score = RemainingOptions::default().jobs(Jobs::ToScore);
    let mut given = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..8 {
        for job in run.remaining(to_score.clone()).expect("looks") {
            let job = job.expect("is given");
            *given.entry(job.name.task.clone()).or_default() += 1;
            let note = match &*job.name.task {
                "misspelt" => "scores",
                "right" => "score",
                _ => continue,
            };
            for _ in 0..2 {
                let note = run.annotate(NoteTarget::episode(job.id()), note, Value::Float(1.0), "judge");
                note.expect("notes").wait().expect("is durable");
            }
        }
    }
    assert_eq!((given["misspelt"], given["down"], given["right"]), (3, 8, 1));
    let in_vain = run.remaining(to_score).expect("looks").scored_in_vain();
    let in_vain: Vec<(&str, &[String])> =
        in_vain.iter().map(|(name, needs)| (&*name.task, &**needs)).collect();
    assert_eq!(in_vain, [("misspelt", &["score".to_owned()][..])]);
}

/// What a process tried was known to the handle of the run: with a new handle for each round, the rest after an error was
/// skipped, and what was scored in vain came back for ever.
#[test]
fn a_new_handle_of_the_run_does_not_begin_anew() {
    let sim = SimDisk::new(6);
    let store = run_on(sim.process()).store().clone();
    let run = || store.run("run", Value::Null).expect("opens");
    run().plan(["misspelt"], PlanOptions::default().needs(["score"])).expect("plans");
    plan(&run(), &["bad"]);
    let mut given = Vec::new();
    for _ in 0..8 {
        let run = run();
        let mut remaining = run.remaining(RemainingOptions::default()).expect("looks");
        while let Next::Job(job) = remaining.try_next().expect("looks") {
            given.push((job.name.task.clone(), job.why.to_string()));
            if &*job.why == "unscored" {
                let note = run.annotate(NoteTarget::episode(job.id()), "scores", Value::Float(1.0), "judge");
                note.expect("notes").wait().expect("is durable");
            } else {
                let why = if job.name.task == "bad" { "errored" } else { "finished" };
                end(*job, why, 1);
            }
        }
    }
    let count = |task: &str, why: &str| given.iter().filter(|it| (&*it.0, &*it.1) == (task, why)).count();
    assert_eq!(count("misspelt", "unscored"), 3, "{given:?}");
    assert_eq!(count("bad", "errored"), 0, "it rests: {given:?}");
}
