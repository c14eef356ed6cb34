//! Episodes that are over and lack a note: each is scored by one process at a time.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use keepstep::{Ending, Job, NoteTarget, Opening, PlanOptions, RemainingOptions, Run, Value};

use scratch::{Scratch, run_in};

/// So many planned episodes, all finished and none scored.
fn with_unscored(scratch: Scratch, count: usize) -> Scratch {
    let run = scratch.run();
    let needs = PlanOptions::default().needs(["score"]);
    run.plan((0..count).map(|number| format!("task {number}")), needs).expect("plans");
    for job in run.remaining(RemainingOptions::default()).expect("looks").take(count) {
        let episode = job.expect("is given").episode(Opening::default()).expect("opens");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    run.store().close();
    scratch
}

fn jobs(run: &Run, most: usize) -> Vec<Job> {
    let remaining = run.remaining(RemainingOptions::default()).expect("looks");
    let jobs: Vec<Job> = remaining.take(most).map(|job| job.expect("is given")).collect();
    assert!(jobs.iter().all(|job| &*job.why == "unscored"), "{jobs:?}");
    jobs
}

fn tasks(jobs: &[Job]) -> BTreeSet<String> {
    jobs.iter().map(|job| job.name.task.clone()).collect()
}

fn score(run: &Run, job: &Job) {
    let said = run.annotate(NoteTarget::episode(job.id()), "score", Value::Float(0.5), "judge");
    said.expect("notes").wait().expect("is durable");
}

/// Two processes that ask at once share what lacks a note; what one has and does not score comes again to itself, and to
/// the other when it is gone.
#[test]
fn two_processes_share_what_is_to_be_scored() {
    let scratch = with_unscored(Scratch::new("share"), 6);
    let (one, two) = (scratch.run(), scratch.run());
    let first = jobs(&one, 4);
    let second = jobs(&two, 9);
    assert_eq!((first.len(), second.len()), (4, 2));
    assert!(tasks(&first).is_disjoint(&tasks(&second)));
    assert_eq!(two.remaining_list(&RemainingOptions::default()).expect("lists").len(), 2);
    second.iter().for_each(|job| score(&two, job));
    score(&one, &first[0]);
    let left: BTreeSet<String> = tasks(&first[1..]);
    drop((first, second));
    assert_eq!(jobs(&two, 9).len(), 0, "the other is still there");
    assert_eq!(tasks(&jobs(&one, 9)), left);
    one.store().close();
    drop(one);
    assert_eq!(tasks(&jobs(&two, 9)), left, "it is gone");
}

/// One looked at what is to be scored; then another claimed it: what was seen before the claim does not count.
#[test]
fn what_was_claimed_since_is_not_handed_out() {
    let scratch = with_unscored(Scratch::new("claimed"), 4);
    let (one, two) = (scratch.run(), scratch.run());
    let mut looked = one.remaining(RemainingOptions::default()).expect("looks");
    let first = looked.next().expect("has a job").expect("is given");
    let others = jobs(&two, 9);
    assert_eq!(others.len(), 3);
    let more: Vec<Job> = looked.map(|job| job.expect("is given")).collect();
    assert_eq!(tasks(&more), BTreeSet::new());
    drop((first, others));
}

/// One looked at what is to be scored; then another scored some of it and went. What was scored is not scored again.
#[test]
fn what_was_scored_since_is_not_scored_again() {
    let scratch = with_unscored(Scratch::new("since"), 4);
    let (one, two) = (scratch.run(), scratch.run());
    let mut looked = one.remaining(RemainingOptions::default()).expect("looks");
    let first = looked.next().expect("has a job").expect("is given");
    let others = jobs(&two, 9);
    assert_eq!(others.len(), 3);
    others[..2].iter().for_each(|job| score(&two, job));
    let left = others[2].name.task.clone();
    drop(others);
    two.store().close();
    drop(two);
    let rest: Vec<Job> = looked.map(|job| job.expect("is given")).collect();
    assert_eq!(tasks(&rest), BTreeSet::from([left]));
    drop(first);
}

/// Set in a process that this test started: the directory that it is to look into.
const SCORER_IN: &str = "KEEPSTEP_TEST_SCORER_IN";

fn hold_some(dir: &Path) {
    let run = run_in(dir);
    let held = jobs(&run, 3);
    for job in &held {
        let mut out = std::io::stdout();
        writeln!(out, "\nholds {}", job.name.task).and_then(|()| out.flush()).expect("somebody listens");
    }
    // Until it is killed.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A real process holds some and is killed: while it lives nobody else gets them, and afterwards all of them.
#[test]
fn what_a_killed_process_was_scoring_comes_again() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    if let Some(dir) = std::env::var_os(SCORER_IN) {
        return hold_some(Path::new(&dir));
    }
    let scratch = with_unscored(Scratch::new("killed"), 5);
    let mut child = Command::new(std::env::current_exe().expect("is known"))
        .args(["--exact", "what_a_killed_process_was_scoring_comes_again", "--nocapture"])
        .env(SCORER_IN, &scratch.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("is piped")).lines().map_while(Result::ok);
    let held = lines.filter_map(|line| line.strip_prefix("holds ").map(str::to_owned)).take(3);
    let held: BTreeSet<String> = held.collect();
    let run = scratch.run();
    let mine = jobs(&run, 9);
    assert_eq!((held.len(), mine.len()), (3, 2));
    assert!(tasks(&mine).is_disjoint(&held));
    mine.iter().for_each(|job| score(&run, job));
    drop(mine);
    child.kill().expect("is killed");
    child.wait().expect("ends");
    assert_eq!(tasks(&jobs(&run, 9)), held);
}
