//! An attempt's own state: the newest value of a name, whoever recorded it, and never one that was not recorded.

#![allow(clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::time::Duration;

use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::{
    CallKey, CallMade, Ending, Entry, Episode, EpisodeName, Error, Known, Opening, Options, Receipt, Result,
    Run, Step, Store, Value, WhenBusy,
};

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

/// What an episode says about itself.
#[derive(Debug, PartialEq)]
struct Facts {
    counts: (u64, u64, u64),
    has_first: bool,
    ended: Option<String>,
    is_pending: bool,
    said: Option<Value>,
    total: Option<Value>,
    /// Whether its call is recorded; `None` if nobody may ask any more.
    called: Option<Known>,
}

fn facts(episode: &Episode) -> Facts {
    Facts {
        counts: (episode.steps(), episode.turns(), episode.failed()),
        has_first: episode.has_first(),
        ended: episode.ended(),
        is_pending: episode.is_pending(),
        said: episode.pending().or(episode.said()).and_then(|said| said.action),
        total: episode.state("total").expect("reads"),
        called: episode.known("tool", Some("key"), &Value::Null).ok(),
    }
}

/// An episode with something of everything: a first observation, a failed step, and perhaps a turn that has begun.
fn begun(run: &Run, in_turn: bool) -> Episode {
    let episode = run.episode(name()).expect("begins");
    episode.record(Entry::first(Step::new().state([("total", Value::Int(1))]))).expect("records");
    episode.turn(Step::new().action("fails")).expect("says").fail(Value::from("broken")).expect("records");
    if in_turn {
        episode.turn(Step::new().action("ask")).expect("says");
    }
    episode
}

fn the_call() -> CallMade {
    CallMade::new("tool", CallKey::Key("key".to_owned()), Value::Null)
}

/// An entry that changes what an episode says about itself: its name, whether it comes in a turn, and itself.
type Changing = (&'static str, bool, fn(&Episode) -> Result<Receipt>);

/// Every one of them.
fn changes() -> Vec<Changing> {
    vec![
        ("step", false, |it| it.record(total(7))),
        ("turn", false, |it| it.record(Entry::turn(Step::new().action("ask")))),
        ("call", false, |it| it.record(Entry::call(&the_call(), Ok(Value::Int(7))))),
        ("result", true, |it| it.record(Entry::result(Step::new().state([("total", Value::Int(7))])))),
        ("failed result", true, |it| it.record(Entry::result(Step::new().error(Value::from("broken"))))),
        ("discard", true, |it| it.record(Entry::discard("again"))),
        ("call in a turn", true, |it| it.record(Entry::call(&the_call(), Ok(Value::Int(7))))),
        ("end", false, |it| it.end("finished", Ending::default())),
        ("end in a turn", true, |it| it.end("aborted", Ending::default())),
    ]
}

/// An end that was refused stayed, and so did a call; a turn whose result was refused was pending, and nobody could adopt it.
#[test]
fn what_was_refused_is_no_fact_whoever_refused_it() {
    for (what, in_turn, change) in changes() {
        let sim = SimDisk::new(8);
        let run = run_on(&sim);
        let episode = begun(&run, in_turn);
        let before = facts(&episode);
        sim.faults().plan(Fault::new(On::Sync, Errno::Eio).until_cleared());
        change(&episode).and_then(|receipt| receipt.wait()).expect_err("the disk fails");
        sim.faults().clear();
        assert_eq!(facts(&episode), before, "{what}, after the disk failed");
        change(&episode).and_then(|receipt| receipt.wait()).expect("records");
        assert_ne!(facts(&episode), before, "{what}: what was recorded is seen");
    }
    for (what, in_turn, change) in changes() {
        let sim = SimDisk::new(9);
        let run = run_on(&sim);
        let episode = begun(&run, in_turn);
        let before = facts(&episode);
        let taker =
            run_on(&sim).open(name(), Opening::default().busy(WhenBusy::Take)).expect("takes it over");
        let error = change(&episode).and_then(|receipt| receipt.wait()).expect_err("it was taken over");
        assert!(matches!(error, Error::Fenced { .. }), "{what}: {error}");
        assert_eq!(facts(&episode), before, "{what}, after it was taken over");
        let again = episode.note("score", Value::Int(1), "judge", None).and_then(|note| note.wait());
        assert!(matches!(again, Err(Error::Fenced { .. })), "{what}, then a note: {again:?}");
        drop(taker);
    }
}

/// The turn whose result was refused is adopted by the next one, with its intent, as after a crash.
#[test]
fn a_turn_whose_result_was_refused_can_be_made_again() {
    let sim = SimDisk::new(10);
    let run = run_on(&sim);
    let episode = begun(&run, true);
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).until_cleared());
    let refused = episode.record(Entry::result(Step::new().reward(1.0))).expect("is handed over");
    refused.wait().expect_err("the disk fails");
    sim.faults().clear();
    let turn = episode.turn(Step::new().action("ask")).expect("says");
    assert_eq!(turn.adopted().and_then(|said| said.action.clone()), Some(Value::from("ask")));
    turn.result(Step::new().reward(1.0)).expect("records");
    assert_eq!((episode.turns(), episode.is_pending()), (1, false));
}

/// A discard that is refused is no fact: the calls of the turn keep their numbers and their results, as a resumed attempt
/// finds them. They were made anew under new numbers.
#[test]
fn a_discard_that_is_refused_leaves_the_calls_of_the_turn() {
    let sim = SimDisk::new(9);
    let run = run_on(&sim);
    let episode = run.episode(name()).expect("begins");
    let call = |of: &Episode, now: i64| of.call_once("tool", None, Value::Null, || Ok(Value::Int(now)));
    let turn = episode.turn(Step::new().action("ask")).expect("says");
    assert_eq!(call(&episode, 1).expect("calls"), Ok(Value::Int(1)));
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).until_cleared());
    turn.discard("another").expect_err("the disk fails");
    sim.faults().clear();
    assert!(episode.turn(Step::new().action("ask")).expect("adopts").adopted().is_some());
    assert_eq!(call(&episode, 2).expect("calls"), Ok(Value::Int(1)));
    drop(episode);
    let resumed = run.episode(name()).expect("goes on");
    assert!(resumed.adopt().expect("adopts").is_some());
    assert_eq!(call(&resumed, 3).expect("calls"), Ok(Value::Int(1)));
}

/// Calls are told apart by their order only while the program goes the same way.
#[test]
fn a_call_that_fails_no_more_may_lead_another_way() {
    let sim = SimDisk::new(11);
    let run = run_on(&sim);
    let episode = run.episode(name()).expect("begins");
    let call = |of: &Episode, came: std::result::Result<i64, &str>| {
        of.call_once("tool", None, Value::Null, || came.map(Value::Int).map_err(Value::from))
    };
    assert!(call(&episode, Err("down")).expect("records").is_err());
    assert_eq!(call(&episode, Ok(1)).expect("calls"), Ok(Value::Int(1)));
    drop(episode);
    let same_way = run.episode(name()).expect("goes on");
    assert!(call(&same_way, Err("down")).expect("records").is_err());
    assert_eq!(call(&same_way, Ok(2)).expect("calls"), Ok(Value::Int(1)));
    drop(same_way);
    for _ in 0..2 {
        let other_way = run.episode(name()).expect("goes on");
        assert_eq!(call(&other_way, Ok(3)).expect("calls"), Ok(Value::Int(3)));
        assert!(matches!(call(&other_way, Ok(4)), Err(Error::Diverged { .. })));
    }
}
