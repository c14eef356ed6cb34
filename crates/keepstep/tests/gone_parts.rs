//! Parts of a store that are gone or damaged where nothing else shows it at once: each is told by whoever would build on it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::fs::{OpenOptions, read, remove_dir_all, remove_file, write};
use std::time::Duration;

use keepstep::{
    CallKey, CallMade, Ending, Entry, EpisodeFilter, EpisodeName, Error, Jobs, Known, Listed, Next,
    NoteTarget, Options, PlanOptions, RemainingOptions, Run, Step, Store, Value, Why,
};

use scratch::{Scratch, copy_all};

fn name(task: &str) -> EpisodeName {
    EpisodeName::task(task)
}

fn finish(run: &Run, task: &str, why: Why) {
    let episode = run.episode(name(task)).expect("opens");
    episode.step(Step::new().reward(1.0)).expect("records");
    let mut ending = Ending::default();
    ending.limit = (why == Why::Truncated).then(|| "steps".to_owned());
    episode.end(why, ending).expect("ends").wait().expect("is durable");
}

/// Whoever still held the job of scoring an episode, and asked for more of it, looked for ever.
#[test]
fn what_this_process_has_in_hand_is_not_looked_for_in_circles() {
    let scratch = Scratch::new("in-hand");
    let run = scratch.run();
    let needs = PlanOptions::default().needs(["score"]);
    run.plan(["a"], needs).expect("plans");
    finish(&run, "a", Why::Truncated);
    let to_score = RemainingOptions::default().jobs(Jobs::ToScore);
    let job = run.claim(to_score).expect("looks").expect("lacks its score");
    let target = NoteTarget::episode(job.id());
    run.annotate(target, "score", Value::Float(1.0), "judge").expect("notes").wait().expect("is durable");
    let more = RemainingOptions::default().retry(["truncated"]);
    let next = run.remaining(more.clone()).expect("looks").try_next().expect("comes back");
    assert!(matches!(next, Next::Nothing), "{next:?}");
    drop(job);
    assert!(run.claim(more).expect("looks").is_some());
}

/// One with calls that were made in a turn that has no result, left by its owner, whose log is sealed.
fn left_in_a_turn(scratch: &Scratch) {
    let run = scratch.run();
    let episode = run.episode(name("t")).expect("begins");
    episode.step(Step::new().action(1)).expect("records");
    let said = "sesame ".repeat(30);
    let turn = episode.say(Step::new().action(said.as_str())).expect("says");
    let made = CallMade::new("llm", CallKey::Key("k".to_owned()), "question");
    episode
        .record_and_wait(Entry::call(&made, Ok(Value::from("answer ".repeat(30).as_str()))))
        .expect("records");
    drop(turn);
    episode.end(Why::Aborted, Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    run.store().close();
}

/// Damage in what was said or answered in the turn under way: the answer was asked for again, or nothing had been said.
#[test]
fn damage_in_the_turn_under_way_is_told_by_whoever_goes_on() {
    let whole = Scratch::new("turn-whole");
    left_in_a_turn(&whole);
    let episode = whole.run().episode(name("t")).expect("goes on");
    assert!(matches!(episode.known("llm", Some("k"), &Value::from("question")), Ok(Known::Result(_))));
    drop(episode);
    for what in ["sesame", "answer"] {
        let scratch = Scratch::new(&format!("turn-{what}"));
        left_in_a_turn(&scratch);
        let segment = scratch.files(".seg").remove(0);
        let mut bytes = read(&segment).unwrap();
        let at = bytes.windows(what.len()).position(|it| it == what.as_bytes()).expect("is there") + 1;
        bytes[at] ^= 1;
        write(&segment, bytes).unwrap();
        let opened = scratch.run().episode(name("t")).map(|episode| episode.steps());
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{what}: {opened:?}");
    }
}

/// A log that its owner closed, cut behind its header: lists were empty, and nobody said why.
#[test]
fn a_closed_log_that_was_cut_short_is_told() {
    let scratch = Scratch::new("cut-closed");
    let run = scratch.run();
    finish(&run, "t", Why::Finished);
    run.store().close();
    drop(run);
    let segment = scratch.files(".seg").remove(0);
    let bytes = read(&segment).unwrap();
    for length in (128..bytes.len() as u64).step_by(7) {
        write(&segment, &bytes).unwrap();
        OpenOptions::new().write(true).open(&segment).unwrap().set_len(length).unwrap();
        let store = scratch.store();
        let told = store.catalog().expect("reads").troubles();
        let listed = scratch.run().episodes(&EpisodeFilter::default()).expect("lists");
        // Behind its last record only the index is lost, which is made again.
        let is_whole = |it: &Listed| it.summary.why.as_deref() == Some("finished") && it.summary.steps == 1;
        let is_told = |it: &Listed| it.trouble.is_some() || is_whole(it);
        let is_known = listed.len() == 1 && listed.iter().all(is_told);
        assert!(!told.is_empty() || is_known, "cut to {length}: {listed:?}");
    }
}

/// Plans and runs are numbered without a gap: one that is there shows that the one before it is gone.
#[test]
fn a_gap_in_plans_and_runs_is_told() {
    let scratch = Scratch::new("plan-gap");
    let run = scratch.run();
    for task in ["a", "b"] {
        run.plan([task.to_owned()], PlanOptions::default()).expect("plans");
    }
    drop(run);
    let plan = scratch.files("0.plan.0").remove(0);
    let kept = read(&plan).unwrap();
    remove_file(&plan).unwrap();
    let progress = scratch.run().progress(&RemainingOptions::default());
    assert!(matches!(progress, Err(Error::Damaged { .. })), "{progress:?}");
    write(&plan, kept).unwrap();
    assert_eq!(scratch.run().progress(&RemainingOptions::default()).expect("looks").planned, 2);
    remove_file(scratch.files("0.run").remove(0)).unwrap();
    let runs = scratch.store().runs().expect("lists");
    assert!(matches!(&runs[..], [Err(Error::Damaged { .. })]), "{runs:?}");
}

/// A writer whose folder is gone cannot go on: nobody waits a lease for it, and each new process another one.
#[test]
fn nobody_waits_for_a_writer_whose_folder_is_gone() {
    let scratch = Scratch::new("no-folder");
    let run = scratch.run();
    let episode = run.episode(name("t")).expect("begins");
    episode.step(Step::new().action(1)).expect("records");
    std::mem::forget((episode, run));
    let copy = Scratch::new("no-folder-copy");
    copy_all(&scratch.0, &copy.0);
    for writer in std::fs::read_dir(copy.0.join("writers")).unwrap().flatten() {
        remove_dir_all(writer.path()).unwrap();
    }
    let options = Options::default().lease(Duration::from_secs(3600));
    let run = Store::open(&copy.0, options).expect("opens").run("run", Value::Null).expect("opens");
    let opened = run.episode(name("t")).map(|episode| episode.steps());
    assert!(matches!(opened, Err(Error::Damaged { .. })), "{opened:?}");
}
