//! Clocks that are set while a process records: order within it is that of its calls, and waiting is measured by a clock that
//! nobody sets.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/door.rs"]
mod door;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use door::Door;
use keepstep::disk::sim::SimDisk;
use keepstep::disk::{Disk, RealDisk};
use keepstep::{EpisodeName, Error, NoteTarget, Options, Run, Step, Store, Value};

const HOUR_S: i64 = 3600;

fn run_on(disk: Arc<dyn Disk>) -> Run {
    let options =
        Options { background: false, dictionary: false, stall: Duration::from_secs(3), ..Options::default() };
    Store::on_disk(disk, options).expect("opens").run("run", Value::Null).expect("opens")
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
            let target = NoteTarget { episode: episode.id(), attempt: Some(0), step: None };
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
    let disk = RealDisk::open(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("opens");
    let looks: Vec<i64> = (0..1000).map(|_| disk.now_us()).collect();
    assert!(looks.is_sorted_by(|one, two| one < two), "the real clock too");
}

/// Set back an hour on a full disk, a step that may wait 3 s waited for an hour and 3 s.
#[test]
fn a_step_waits_as_long_as_it_may_wherever_the_clock_goes() {
    for by_s in [-HOUR_S, HOUR_S] {
        let sim = SimDisk::new(9);
        let (jumps, was_set) = (sim.clone(), AtomicBool::new(true));
        let was_set = Arc::new(was_set);
        let is_due = Arc::clone(&was_set);
        let disk = Door::new(sim.process(), move |call| {
            if call.starts_with("sleep") && !is_due.swap(true, Ordering::AcqRel) {
                jumps.set_clock_by(by_s);
            }
        });
        let run = run_on(disk.clone());
        let episode = run.episode(EpisodeName::task("stalled")).expect("begins");
        episode.step(Step::new().action(1)).expect("records");
        sim.faults().set_capacity(Some(sim.faults().used_bytes()));
        was_set.store(false, Ordering::Release);
        let started_us = disk.uptime_us();
        let error = episode.step(Step::new().action(2)).expect_err("finds no room");
        assert!(matches!(error, Error::DiskFull { waited_s: 3, .. }), "set by {by_s} s: {error}");
        let waited_s = (disk.uptime_us() - started_us) / 1_000_000;
        assert_eq!(waited_s, 3, "set by {by_s} s");
        sim.faults().set_capacity(None);
        episode.step(Step::new().action(2)).expect("records when there is room");
    }
}
