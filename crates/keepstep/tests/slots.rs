//! The slots of a group: each is worked on by one at a time, what was interrupted first, until all have ended for good.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

mod scratch;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::sim::SimDisk;
use keepstep::{
    Ending, Episode, EpisodeName, Error, Group, Opening, Options, Resume, Run, Step, Store, Value, WhenBusy,
};

use scratch::{Scratch, run_in};

fn name(sample: i64) -> EpisodeName {
    EpisodeName::task("task").iteration(1).sample(sample)
}

fn group(run: &Run, size: usize) -> Group {
    run.group("task", 1, size)
}

fn claim(group: &Group) -> Option<Episode> {
    group.claim(&Opening::default()).expect("looks")
}

fn end(episode: &Episode, why: &str) {
    episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
}

fn left(run: &Run, sample: i64, why: &str) {
    let episode = run.episode(name(sample)).expect("begins");
    episode.step(Step::new().action(sample)).expect("records");
    end(&episode, why);
}

/// Which sample of a group an episode is, and which attempt.
fn slot(run: &Run, episode: &Episode) -> (i64, u32) {
    let sample = (0..100).find(|sample| run.episode_id(&name(*sample)) == episode.id());
    (sample.expect("is of the group"), episode.attempt())
}

/// How many attempts really began at each slot, if each has finished.
fn finished(run: &Run, size: usize) -> Vec<usize> {
    let view = |sample| run.view(&name(sample)).expect("was begun");
    let check = |sample| {
        let why = view(sample).ending().expect("reads").expect("has ended").why;
        assert_eq!(why.as_deref(), Some("finished"), "sample {sample}");
        view(sample).attempts().len()
    };
    (0..size as i64).map(check).collect()
}

/// What was interrupted comes before what is new; what is over, or recorded elsewhere, does not come at all.
#[test]
fn interrupted_slots_come_before_new_ones() {
    let scratch = Scratch::new("order");
    let (run, other) = (scratch.run(), scratch.run());
    left(&other, 1, "finished");
    left(&other, 2, "aborted");
    left(&other, 3, "truncated");
    left(&other, 5, "errored");
    let elsewhere = other.episode(name(4)).expect("begins");
    let group = group(&run, 7);
    let mut open = Vec::new();
    while let Some(episode) = claim(&group) {
        open.push(episode);
    }
    let slots: Vec<_> = open.iter().map(|episode| slot(&run, episode)).collect();
    assert_eq!(slots, [(2, 1), (5, 1), (0, 0), (6, 0)]);
    assert_eq!(open[0].inherited(), 1);
    // Its owner is done with it.
    end(&elsewhere, "aborted");
    let episode = claim(&group).expect("is free now");
    assert_eq!(slot(&run, &episode), (4, 1));
}

/// A slot that was left without a final end does not come again from the same handle, or a loop would never end; whoever
/// asks anew gets it.
#[test]
fn a_handle_gives_no_slot_twice() {
    let scratch = Scratch::new("twice");
    let run = scratch.run();
    let first = group(&run, 2);
    let mut given = Vec::new();
    while let Some(episode) = claim(&first) {
        given.push(slot(&run, &episode));
        assert!(given.len() < 9, "it goes round in circles: {given:?}");
        end(&episode, if given.len() == 1 { "errored" } else { "aborted" });
    }
    assert_eq!(given, [(0, 0), (1, 0)]);
    assert!(claim(&first.clone()).is_none(), "a clone is the same handle");
    let anew = group(&run, 2);
    let episode = claim(&anew).expect("asks anew");
    assert_eq!(slot(&run, &episode), (0, 1));
}

/// How it is opened is heeded: interrupted slots are left alone if that is wanted, nobody is robbed, and a sealed group has
/// no work.
#[test]
fn claiming_heeds_how_slots_are_opened() {
    let scratch = Scratch::new("how");
    let (run, other) = (scratch.run(), scratch.run());
    left(&other, 0, "aborted");
    let group = group(&run, 2);
    let error = group.claim(&Opening::default().busy(WhenBusy::Take)).expect_err("refuses");
    assert!(matches!(error, Error::BadInput { .. }), "{error}");
    let refuse = Opening::default().resume(Resume::Refuse);
    let new = group.claim(&refuse).expect("looks").expect("has a new one");
    assert_eq!(slot(&run, &new), (1, 0));
    end(&new, "finished");
    assert!(group.claim(&refuse).expect("looks").is_none());
    group.seal(None, "test", Some(1)).expect("seals");
    assert!(claim(&group).is_none(), "nobody would train on it");
}

/// Whoever waits gets a slot when somebody leaves one; when all have finished there is none.
#[test]
fn claiming_can_wait_for_a_slot() {
    for (why, expected) in [("aborted", Some((0, 1))), ("finished", None)] {
        let sim = SimDisk::new(51);
        let quiet = || Options::default().background(false);
        let on =
            |disk| Store::on_files(disk, quiet()).expect("opens").run("run", Value::Null).expect("opens");
        let owner = on(sim.process());
        let episode = owner.episode(name(0)).expect("begins");
        let (episode, sleeps) = (Mutex::new(Some(episode)), AtomicU64::new(0));
        let waiter = on(HookedDisk::new(sim.process(), move |call| {
            if call.starts_with("sleep") && sleeps.fetch_add(1, Ordering::Relaxed) == 3 {
                end(&episode.lock().expect("no panic").take().expect("ends once"), why);
            }
        }));
        let wait = Opening::default().busy(WhenBusy::Wait(Duration::from_secs(60)));
        let claimed = group(&waiter, 1).claim(&wait).expect("looks");
        assert_eq!(claimed.map(|episode| slot(&waiter, &episode)), expected, "{why}");
    }
}

/// Many threads of two stores share a group: each slot is done once.
#[test]
fn threads_share_a_group() {
    const SIZE: usize = 48;
    let scratch = Scratch::new("threads");
    let runs = [scratch.run(), scratch.run()];
    let given = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for run in &runs {
            let shared = group(run, SIZE);
            for _ in 0..6 {
                let (mine, given) = (shared.clone(), &given);
                scope.spawn(move || {
                    while let Some(episode) = claim(&mine) {
                        episode.step(Step::new().action(1)).expect("records");
                        given.lock().expect("no panic").push(slot(run, &episode));
                        end(&episode, "finished");
                    }
                });
            }
        }
    });
    let mut given = given.into_inner().expect("no panic");
    given.sort_unstable();
    assert_eq!(given, (0..SIZE as i64).map(|sample| (sample, 0)).collect::<Vec<_>>());
    assert_eq!(finished(&runs[0], SIZE), vec![1; SIZE]);
}

/// Set in a process that this test started: the directory that it is to record to, and after how many slots it is to die.
const WORKER_IN: &str = "KEEPSTEP_TEST_WORKER_IN";
const DIES_AFTER: &str = "KEEPSTEP_TEST_DIES_AFTER";

const SLOTS: usize = 24;

fn work(dir: &Path) {
    let dies_after: usize = std::env::var(DIES_AFTER).expect("is said").parse().expect("is a number");
    let run = run_in(dir);
    let group = group(&run, SLOTS);
    for done in 0.. {
        let Some(episode) = claim(&group) else { return };
        episode.step(Step::new().action(done as i64)).expect("records");
        if done == dies_after {
            std::process::abort();
        }
        end(&episode, "finished");
    }
}

/// Processes share a group, and some die in the middle of a slot: the others do what those left, and nothing is done twice.
#[test]
fn processes_share_a_group_and_do_what_the_dead_left() {
    if let Some(dir) = std::env::var_os(WORKER_IN) {
        return work(Path::new(&dir));
    }
    let scratch = Scratch::new("processes");
    let start = |dies_after: usize| {
        Command::new(std::env::current_exe().expect("is known"))
            .args(["--exact", "processes_share_a_group_and_do_what_the_dead_left", "--test-threads", "1"])
            .env(WORKER_IN, &scratch.0)
            .env(DIES_AFTER, dies_after.to_string())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts")
    };
    let mut workers: Vec<_> = [0, 1, usize::MAX, usize::MAX].into_iter().map(start).collect();
    let ended: Vec<bool> = workers.iter_mut().map(|it| it.wait().expect("ends").success()).collect();
    assert!(ended[2] && ended[3], "{ended:?}");
    // One that died last may have left something behind all others.
    let run = scratch.run();
    let last = group(&run, SLOTS);
    while let Some(episode) = claim(&last) {
        end(&episode, "finished");
    }
    let attempts = finished(&run, SLOTS);
    let died = ended.iter().filter(|is_fine| !**is_fine).count();
    assert_eq!(attempts.iter().sum::<usize>(), SLOTS + died, "{attempts:?}, {ended:?}");
}
