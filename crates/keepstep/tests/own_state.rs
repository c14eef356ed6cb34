//! An attempt's own state: the newest value of a name, whoever recorded it, and never one that was not recorded.

#![allow(clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::time::Duration;

use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::{CallKey, CallMade, Ending, Entry, EpisodeName, Known, Options, Run, Step, Store, Value};

fn run_on(sim: &SimDisk) -> Run {
    let options = Options::default().background(false).stall(Duration::ZERO);
    let store = Store::on_files(sim.process(), options).expect("opens");
    store.run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn total(number: i64) -> Step {
    Step::new().action(number).state([("total", Value::Int(number))])
}

/// Whichever entry said it: a first observation, a step or a turn's result.
#[test]
fn the_newest_value_is_given_whoever_recorded_it() {
    let sim = SimDisk::new(5);
    let run = run_on(&sim);
    let episode = run.episode(name()).expect("begins");
    let newest = |of: &keepstep::Episode| of.state("total").expect("reads");
    assert_eq!(newest(&episode), None);
    episode.record(Entry::first(Step::new().state([("total", Value::Int(0))]))).expect("records");
    assert_eq!(newest(&episode), Some(Value::Int(0)));
    episode.step(total(1)).expect("records");
    assert_eq!(newest(&episode), Some(Value::Int(1)));
    episode.turn(Step::new().action(2)).expect("says");
    episode.record(Entry::result(Step::new().state([("total", Value::Int(2))]))).expect("records");
    assert_eq!(newest(&episode), Some(Value::Int(2)));
    episode.step(Step::new().action(3)).expect("records");
    assert_eq!(newest(&episode), Some(Value::Int(2)), "a step without a state changes none");
    episode.end("aborted", Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    let resumed = run.episode(name()).expect("goes on");
    assert_eq!((resumed.resumed(), newest(&resumed)), (Some(0), Some(Value::Int(2))));
    resumed.step(total(4)).expect("records");
    assert_eq!(newest(&resumed), Some(Value::Int(4)));
}

/// A step that was told as failed took its state with it.
#[test]
fn what_was_not_recorded_is_no_state() {
    let sim = SimDisk::new(6);
    let run = run_on(&sim);
    let episode = run.episode(name()).expect("begins");
    (1..4).for_each(|number| drop(episode.step(total(number)).expect("records")));
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).until_cleared());
    episode.step(total(4)).expect_err("the disk fails");
    sim.faults().clear();
    assert_eq!((episode.steps(), episode.state("total").expect("reads")), (3, Some(Value::Int(3))));
    episode.step(total(5)).expect("records");
    assert_eq!(episode.state("total").expect("reads"), Some(Value::Int(5)));
}

/// However an entry was recorded, the episode knows its turn and the calls in it.
#[test]
fn every_way_of_recording_keeps_the_turn() {
    let sim = SimDisk::new(7);
    let run = run_on(&sim);
    let episode = run.episode(name()).expect("begins");
    for waits in [false, true] {
        let record = |entry: Entry| match waits {
            true => episode.record_and_wait(entry).expect("records"),
            false => episode.record(entry).expect("records"),
        };
        let index = record(Entry::turn(Step::new().action("ask"))).step();
        let said = episode.said().expect("was said");
        assert_eq!((said.index as u64, said.action), (index.expect("is a step"), Some(Value::from("ask"))));
        let Known::New(key) = episode.known("tool", None, &Value::Null).expect("looks") else {
            panic!("it was not made before")
        };
        assert_eq!(key, CallKey::Ordinal(0));
        let made = CallMade::new("tool", key, Value::Null);
        record(Entry::call(&made, Ok(Value::Int(7))));
        // The turn is tried again: its calls are counted from the first.
        record(Entry::discard("again"));
        assert_eq!((episode.said(), episode.is_pending()), (None, false));
        record(Entry::turn(Step::new().action("ask")));
        record(Entry::result(Step::new().reward(1.0)));
        assert_eq!((episode.said(), episode.is_pending()), (None, false));
    }
}
