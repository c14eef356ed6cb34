//! Clocks that are set while a process records: order within it is that of its calls, and waiting is measured by a clock that
//! nobody sets.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::sim::SimDisk;
use keepstep::disk::{Clock, Files, RealDisk};
use keepstep::{EpisodeName, Error, NoteTarget, Opening, Options, Run, Step, Store, Value, WhenBusy};

const HOUR_S: i64 = 3600;

fn run_on(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).dictionary(false).stall(Duration::from_secs(3));
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

/// The value of the newest note on an episode, for somebody who reads.
fn newest(sim: &SimDisk, name: &EpisodeName) -> Value {
    let run = run_on(sim.process());
    let (id, index) = (run.episode_id(name), run.notes().expect("reads"));
    let (notes, _) = index.episode(&id).expect("reads");
    let view = run.view(name).expect("reads");
    let counting = view.counting(&notes);
    assert_eq!(counting.len(), 1, "one thing is noted: {counting:?}");
    counting[0].1.value.clone()
}

/// With the clock set back 60 s, the older of two notes of one process won.
#[test]
fn the_later_of_two_notes_of_a_process_counts_wherever_the_clock_goes() {
    for by_s in [-60, -HOUR_S, HOUR_S, -30 * 24 * HOUR_S] {
        for ways in 0..4 {
            let sim = SimDisk::new(7);
            let process = sim.process();
            let (one, two) = (run_on(process.clone()), run_on(process));
            let name = EpisodeName::task("noted");
            let episode = one.episode(name.clone()).expect("begins");
            episode.step(Step::new().action(1)).expect("records");
            let target = NoteTarget::episode(episode.id()).attempt(0);
            let annotate = |run: &Run, value: i64| {
                let receipt = run.annotate(target, "score", Value::Int(value), "judge");
                receipt.expect("is taken").wait().expect("is durable");
            };
            let say = |way: i64, value: i64| match way {
                0 => annotate(&one, value),
                _ => annotate(&two, value),
            };
            for value in 0..4 {
                say(ways >> (value % 2) & 1, value);
                sim.set_clock_by(by_s);
            }
            assert_eq!(newest(&sim, &name), Value::Int(3), "the clock was set by {by_s} s, way {ways}");
        }
    }
}

/// Times that a process records never go back, whatever the clock does.
#[test]
fn what_is_recorded_later_has_a_later_time() {
    let sim = SimDisk::new(8);
    let run = run_on(sim.process());
    let name = EpisodeName::task("timed");
    let episode = run.episode(name.clone()).expect("begins");
    for by_s in [0, -60, HOUR_S, -2 * HOUR_S, 1] {
        sim.set_clock_by(by_s);
        episode.step(Step::new().action(by_s)).expect("records");
    }
    let steps = run.view(&name).expect("reads").read().expect("reads").steps;
    let times: Vec<i64> = steps.iter().filter_map(|step| step.time).collect();
    assert!(times.len() == 5 && times.is_sorted_by(|one, two| one < two), "{times:?}");
    // Through whichever handle of the process.
    let open = || RealDisk::open(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("opens");
    let disks = [open(), open()];
    let looks: Vec<i64> = (0..1000).map(|look| disks[look % 2].now_us()).collect();
    assert!(looks.is_sorted_by(|one, two| one < two), "the real clock too");
}

/// Does something that waits for 3 s at most, and sets the clock when it begins to wait. How long it took.
fn waited_s<T>(
    by_s: i64,
    prepare: impl FnOnce(&SimDisk, &Run) -> T,
    wait: impl FnOnce(&SimDisk, &Run, T),
) -> i64 {
    let sim = SimDisk::new(9);
    let (jumps, was_set) = (sim.clone(), Arc::new(AtomicBool::new(true)));
    let is_due = Arc::clone(&was_set);
    let disk = HookedDisk::new(sim.process(), move |call| {
        if call.starts_with("sleep") && !is_due.swap(true, Ordering::AcqRel) {
            jumps.set_clock_by(by_s);
        }
    });
    let run = run_on(disk.clone());
    let prepared = prepare(&sim, &run);
    was_set.store(false, Ordering::Release);
    let started_us = disk.uptime_us();
    wait(&sim, &run, prepared);
    assert!(was_set.load(Ordering::Acquire), "it waited");
    (disk.uptime_us() - started_us) / 1_000_000
}

fn fill(sim: &SimDisk) {
    sim.faults().set_capacity(Some(sim.faults().used_bytes()));
}

/// Set back an hour on a full disk, a step that may wait 3 s waited for an hour and 3 s.
#[test]
fn a_step_waits_as_long_as_it_may_wherever_the_clock_goes() {
    for by_s in [-HOUR_S, HOUR_S] {
        let prepare = |sim: &SimDisk, run: &Run| {
            let episode = run.episode(EpisodeName::task("stalled")).expect("begins");
            episode.step(Step::new().action(1)).expect("records");
            fill(sim);
            episode
        };
        let waited_s = waited_s(by_s, prepare, |sim, _, episode| {
            let error = episode.step(Step::new().action(2)).expect_err("finds no room");
            assert!(matches!(error, Error::DiskFull { waited_s: 3, .. }), "set by {by_s} s: {error}");
            sim.faults().set_capacity(None);
            episode.step(Step::new().action(2)).expect("records when there is room");
        });
        assert_eq!(waited_s, 3, "set by {by_s} s");
    }
}

/// So does a claim on a full disk.
#[test]
fn a_claim_waits_as_long_as_it_may_wherever_the_clock_goes() {
    for by_s in [-HOUR_S, HOUR_S] {
        let prepare = |sim: &SimDisk, run: &Run| {
            // There is a writer, and no room for a claim.
            let episode = run.episode(EpisodeName::task("first")).expect("begins");
            fill(sim);
            episode
        };
        let waited_s = waited_s(by_s, prepare, |sim, run, _episode| {
            let error = run.episode(EpisodeName::task("stalled")).expect_err("finds no room");
            assert!(matches!(error, Error::DiskFull { waited_s: 3, .. }), "set by {by_s} s: {error}");
            sim.faults().set_capacity(None);
        });
        assert_eq!(waited_s, 3, "set by {by_s} s");
    }
}

/// And whoever waits for an episode, or for a slot of a group, that another process has.
#[test]
fn others_are_waited_for_as_long_as_one_may_wherever_the_clock_goes() {
    let name = || EpisodeName::task("busy");
    let how = Opening::default().busy(WhenBusy::Wait(Duration::from_secs(3)));
    for by_s in [-HOUR_S, HOUR_S] {
        let prepare = |sim: &SimDisk, _: &Run| run_on(sim.process()).episode(name()).expect("begins");
        let for_an_episode = waited_s(by_s, prepare, |_, run, _owned| {
            let error = run.open(name(), how.clone()).expect_err("another has it");
            assert!(matches!(error, Error::Busy { .. }), "set by {by_s} s: {error}");
        });
        let for_a_slot = waited_s(by_s, prepare, |_, run, _owned| {
            let claimed = run.group("busy", 0, 1).claim(&how);
            assert!(!matches!(claimed, Ok(Some(_))), "another has it");
        });
        assert_eq!((for_an_episode, for_a_slot), (3, 3), "set by {by_s} s");
    }
}
