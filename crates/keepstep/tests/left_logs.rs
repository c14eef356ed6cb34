//! An owner whose log another process closed leaves it at the moment it learns of it, however it learns: it has no lock
//! there any more, seals nothing, and promises nothing that only a sync of its own would make true.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::disk::{Files, LockState};
use keepstep::{
    Episode, EpisodeName, Error, Level, Opening, Options, Receipt, Run, Step, Store, Value, WhenBusy,
};

fn run_on(disk: Arc<dyn Files>, level: Level) -> Run {
    let options = Options::default().background(false).dictionary(false).level(level);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

/// The writers whose lock is held.
fn locked(sim: &SimDisk) -> Vec<String> {
    let disk = sim.process();
    let writers = disk.list("writers").expect("lists").into_iter().map(|entry| entry.name);
    let is_held = |writer: &String| {
        disk.lock_state(&format!("writers/{writer}/lock")).is_ok_and(|state| state == LockState::Held)
    };
    writers.filter(is_held).collect()
}

/// An owner that recorded the intent of a turn at `kill`, without a sync, in a log that another process closed since. It
/// learns that by making the turn again, which records nothing.
fn told_by_a_look(sim: &SimDisk) -> (Run, Episode, Receipt) {
    let process = sim.process();
    let run = run_on(process.clone(), Level::Kill);
    let episode = run.episode(name()).expect("begins");
    let said = episode.say(Step::new().action("buy")).expect("is said");
    episode.leave_turn(said.number).expect("is left");
    let lock = format!("writers/{}/lock", locked(sim).remove(0));
    process.lose_locks();
    assert_eq!(run_on(sim.process(), Level::Power).store().reap().expect("reaps").crashed.len(), 1);
    // As its next heartbeat does.
    let renewed = process.open_rw(&lock).expect("opens");
    assert!(renewed.try_lock().expect("locks"));
    std::mem::forget(renewed);
    assert_eq!(locked(sim).len(), 1);
    // No sync of its own can make it any safer.
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).at(".seg").until_cleared());
    let again = episode.turn(Step::new().action("buy")).map(|turn| turn.index());
    assert!(matches!(again, Err(Error::LogClosed { .. })), "{again:?}");
    (run, episode, said.receipt.expect("was recorded"))
}

/// An owner that learned by a look alone that its log is closed kept the lock on it, so others were told that it records
/// there; promised `power` without a sync; and sealed the log when it closed its store.
#[test]
fn a_log_is_left_by_whoever_learns_that_it_is_closed() {
    let sim = SimDisk::new(1);
    let (run, episode, receipt) = told_by_a_look(&sim);
    assert_eq!(locked(&sim), Vec::<String>::new(), "it has left");
    let promised = receipt.wait_for(Level::Power, None);
    assert!(matches!(promised, Err(Error::LogClosed { .. })), "{promised:?}");
    sim.faults().clear();
    let before = sim.files().len();
    run.store().close();
    assert_eq!(sim.files().len(), before, "nothing is sealed there");
    drop((episode, run));
    let other = run_on(sim.process(), Level::Power).open(name(), Opening::default().busy(WhenBusy::Raise));
    assert!(other.expect("is free at once").pending().is_some());
}
