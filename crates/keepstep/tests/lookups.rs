//! The look into the mailbox that comes before every acknowledgement, when it fails.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::{Episode, EpisodeName, Error, Level, Opening, Options, Run, Step, Store, Value, WhenBusy};

fn run_on(sim: &SimDisk, level: Level) -> Run {
    run_with(sim, level, false)
}

fn run_with(sim: &SimDisk, level: Level, background: bool) -> Run {
    let stall = Duration::from_secs(8);
    let options = Options::default().background(background).dictionary(false).level(level).stall(stall);
    Store::on_files(sim.process(), options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn begun(run: &Run) -> Episode {
    let episode = run.episode(name()).expect("begins");
    episode.step(Step::new().action(0)).expect("records");
    episode
}

fn unreadable() -> Fault {
    Fault::new(On::Exists, Errno::Eio).at("mail/")
}

fn segments(sim: &SimDisk) -> usize {
    sim.files().iter().filter(|(path, _)| path.ends_with(".seg")).count()
}

fn given_up(run: &Run) -> u64 {
    run.store().writer_stats().segments_given_up
}

/// What another process reads.
fn actions(sim: &SimDisk) -> Vec<Value> {
    let run = run_on(sim, Level::Power);
    let steps = run.view(&name()).expect("reads").read().expect("reads").steps;
    steps.into_iter().filter_map(|step| step.action).collect()
}

/// A mailbox that cannot be read for 8 s had the batch written to 24 segments. What is written stays; only the look is tried
/// again, and if the time is over, the segment is given up, once: what is told as failed never counts.
#[test]
fn a_look_that_fails_is_tried_again_by_itself() {
    let sim = SimDisk::new(1);
    let run = run_on(&sim, Level::Power);
    let episode = begun(&run);
    let before = segments(&sim);
    sim.faults().plan(unreadable().until_cleared());
    let error = episode.step(Step::new().action(1)).expect_err("is never acknowledged");
    assert!(matches!(error, Error::Stalled { waited_s: 8, .. }), "{error}");
    let tries = sim.faults().hits();
    assert!((10..100).contains(&tries), "it was tried again, and not all the time: {tries} times");
    sim.faults().clear();
    episode.step(Step::new().action(2)).expect("records");
    assert_eq!((segments(&sim) - before, given_up(&run)), (1, 1));
    assert_eq!(actions(&sim), [Value::Int(0), Value::Int(2)]);
}

/// A look that works again in time costs nothing but the time; also where a caller's thread tries first, and leaves the batch
/// to the committer's.
#[test]
fn a_look_that_works_again_spoils_nothing() {
    for background in [false, true] {
        let sim = SimDisk::new(2);
        let run = run_with(&sim, Level::Power, background);
        let episode = begun(&run);
        let before = segments(&sim);
        for action in 1..20 {
            sim.faults().plan(unreadable().times(5));
            episode.step(Step::new().action(action)).expect("records");
        }
        assert_eq!((segments(&sim), given_up(&run)), (before, 0), "with a thread: {background}");
        run.store().close();
        assert_eq!(actions(&sim).len(), 20);
    }
}

/// What was acknowledged at `kill` is not written again because nobody could look whether it may be more.
#[test]
fn a_look_that_fails_in_the_background_spoils_nothing() {
    let sim = SimDisk::new(3);
    let run = run_on(&sim, Level::Kill);
    let episode = begun(&run);
    let receipt = episode.record(Step::new().action(1)).expect("is taken");
    let before = segments(&sim);
    sim.faults().plan(unreadable().until_cleared());
    for _ in 0..20 {
        assert!(!receipt.wait_for(Level::Power, Some(Duration::ZERO)).expect("is on its way"));
    }
    assert_eq!(receipt.level(), Some(Level::Kill), "nothing is acknowledged without a look");
    sim.faults().clear();
    assert!(receipt.wait_for(Level::Power, Some(Duration::ZERO)).expect("is synced"));
    assert_eq!((segments(&sim), given_up(&run)), (before, 0));
    assert_eq!(actions(&sim), [Value::Int(0), Value::Int(1)]);
}

/// The look that comes before a full segment is sealed: nothing of the next batch is written before it.
#[test]
fn a_look_that_fails_between_two_segments_spoils_nothing() {
    let sim = SimDisk::new(4);
    let options = Options::default()
        .background(false)
        .dictionary(false)
        .level(Level::Kill)
        .stall(Duration::from_secs(8))
        .segment_bytes_max(4096);
    let run = Store::on_files(sim.process(), options).expect("opens").run("run", Value::Null).expect("opens");
    let episode = begun(&run);
    let mut state = 1_u64;
    // Does not compress: a segment is full after two steps.
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for action in 1..30 {
        sim.faults().plan(unreadable().after(action % 3).times(4));
        let noise = Value::bytes((0..2500).map(|_| byte()).collect::<Vec<u8>>());
        let step = Step::new().action(action as i64).observation(noise);
        episode.step(step).expect("records");
        sim.faults().clear();
    }
    assert!(segments(&sim) > 10, "this is what is tested");
    assert_eq!(given_up(&run), 0);
    run.store().close();
    assert_eq!(actions(&sim).len(), 30);
}

/// A letter that was read was deleted, or a stray file stood among the letters: the next letter got a number that its reader
/// did not look for, and steps were acknowledged of an episode that another process had taken over.
#[test]
fn a_mailbox_that_was_touched_acknowledges_nothing_of_another() {
    for (nth, touch) in ["delete the letter", "a stray letter", "a stray letter far away"].iter().enumerate()
    {
        let sim = SimDisk::new(40 + nth as u64);
        let owner = run_on(&sim, Level::Power);
        let open = |task: &str| owner.episode(EpisodeName::task(task)).expect("begins");
        let (mine, taken) = (open("mine"), open("taken"));
        for episode in [&mine, &taken] {
            episode.step(Step::new().action(0)).expect("records");
        }
        let taking = || Opening::default().busy(WhenBusy::Take);
        let other = run_on(&sim, Level::Power);
        let first = other.open(EpisodeName::task("taken"), taking()).expect("takes");
        assert!(
            matches!(taken.step(Step::new().action(1)), Err(Error::Fenced { .. })),
            "the letter was read"
        );
        let disk = sim.process();
        let boxes = disk.list("mail").expect("lists").into_iter().map(|it| format!("mail/{}", it.name));
        let has_mail = |folder: &String| !disk.list(folder).expect("lists").is_empty();
        let folder = boxes.into_iter().find(has_mail).expect("one letter was posted");
        match *touch {
            "delete the letter" => disk.remove(&format!("{folder}/0")).expect("deletes"),
            "a stray letter" => drop(disk.create_new(&format!("{folder}/5")).expect("makes it")),
            _ => drop(disk.create_new(&format!("{folder}/1000000")).expect("makes it")),
        }
        let early = mine.step(Step::new().action(1)).is_ok();
        let second = run_on(&sim, Level::Power).open(EpisodeName::task("mine"), taking()).expect("takes");
        let late = mine.step(Step::new().action(2));
        assert!(late.is_err(), "{touch}: acknowledged after it was taken over");
        let inherited = 1 + u64::from(early);
        assert!(second.inherited() >= inherited, "{touch}: {} of {inherited} steps", second.inherited());
        drop((first, second));
    }
}
