//! The hand-off under every interleaving that loom can find: nothing is acknowledged before its sync, no wake-up is
//! lost, nothing is acknowledged out of order.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

use super::event::{Event, Stage};
use super::handoff::{Batch, Handoff, WhenFull};
use super::role::{Commit, Role};

/// A log that only counts: what was written, what was synced, and in which order batches came.
struct CountingLog {
    synced: Arc<AtomicUsize>,
    last: Option<usize>,
    /// The broken variant: acknowledges first.
    acknowledges_first: bool,
}

impl Commit<usize> for CountingLog {
    fn commit(&mut self, batch: Batch<usize>) {
        for item in &batch.items {
            assert!(self.last.is_none_or(|last| last < *item) || *item >= 100, "out of order");
            if *item < 100 {
                self.last = Some(*item);
            }
        }
        if self.acknowledges_first {
            batch.event.raise(Stage::Power);
        }
        self.synced.fetch_add(batch.items.len(), Ordering::SeqCst);
        // The hardest way: one is woken, and nobody but that one wakes the other.
        batch.event.raise_by_relay(Stage::Power);
    }

    fn idle(&mut self) {}

    fn sync(&mut self) {}

    fn has_unsynced(&self) -> bool {
        false
    }
}

fn role(acknowledges_first: bool) -> (Arc<Role<usize, CountingLog>>, Arc<AtomicUsize>) {
    let synced = Arc::new(AtomicUsize::new(0));
    let log = CountingLog { synced: Arc::clone(&synced), last: None, acknowledges_first };
    (Arc::new(Role::new(Handoff::new(1 << 20), log)), synced)
}

/// A caller that waits: `step()`.
fn step(role: &Role<usize, CountingLog>, item: usize) -> Arc<super::event::Event> {
    let ticket = role.handoff.push(item, 1, WhenFull::Wait, false).expect("taken");
    role.commit_if_idle();
    ticket.event.wait(Stage::Power, None);
    ticket.event
}

/// Two callers, and the committer's thread: whoever is acknowledged was synced, and everybody is acknowledged.
#[test]
fn loom_every_step_is_synced_before_it_is_acknowledged() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (role, synced) = role(false);
        let committer = {
            let role = Arc::clone(&role);
            thread::spawn(move || while role.work(Duration::MAX, Duration::MAX) {})
        };
        let other = {
            let (role, synced) = (Arc::clone(&role), Arc::clone(&synced));
            thread::spawn(move || {
                step(&role, 100);
                assert!(synced.load(Ordering::SeqCst) >= 1, "acknowledged before the sync");
            })
        };
        step(&role, 101);
        assert!(synced.load(Ordering::SeqCst) >= 1, "acknowledged before the sync");
        other.join().expect("no panic");
        assert_eq!(synced.load(Ordering::SeqCst), 2);
        role.handoff.close();
        committer.join().expect("no panic");
    });
}

/// A caller beside somebody who only uses the log for a moment, as a reader does: whoever has the role looks at the queue when it
/// gives the role up. (A step waited for the next heartbeat.)
fn beside_a_reader(read: fn(&Role<usize, CountingLog>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let (role, synced) = role(false);
        let committer = {
            let role = Arc::clone(&role);
            thread::spawn(move || while role.work(Duration::MAX, Duration::MAX) {})
        };
        let reader = {
            let role = Arc::clone(&role);
            thread::spawn(move || read(&role))
        };
        step(&role, 100);
        assert_eq!(synced.load(Ordering::SeqCst), 1);
        reader.join().expect("no panic");
        role.handoff.close();
        committer.join().expect("no panic");
    });
}

/// Something to do with the log: loom lets others run at it.
fn look(log: &CountingLog) -> usize {
    log.synced.load(Ordering::SeqCst)
}

#[test]
fn loom_no_step_waits_for_a_reader() {
    beside_a_reader(|role| assert!(role.try_with(|log| look(log)).unwrap_or(0) <= 1));
    beside_a_reader(|role| assert!(role.with(|log| look(log)) <= 1));
}

/// The negative control: a reader that gives the role up and looks no more.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_reader_that_looks_no_more() {
    beside_a_reader(|role| assert!(look(&role.take()) <= 1));
}

/// Steps that are submitted one after the other are committed in that order, also when a caller takes the role between.
#[test]
fn loom_steps_keep_their_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (role, synced) = role(false);
        let committer = {
            let role = Arc::clone(&role);
            thread::spawn(move || while role.work(Duration::MAX, Duration::MAX) {})
        };
        let first = role.handoff.push(1, 1, WhenFull::Wait, true).expect("taken");
        let second = step(&role, 2);
        // An acknowledgement covers everything before it.
        assert_eq!(first.event.stage(), Stage::Power, "acknowledged out of order");
        assert_eq!(second.stage(), Stage::Power);
        assert_eq!(synced.load(Ordering::SeqCst), 2);
        role.handoff.close();
        committer.join().expect("no panic");
    });
}

/// Two wait for one batch, and one of them is woken by a committer that does nothing more: both go on.
#[test]
fn loom_whoever_is_woken_wakes_the_others() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| two_wait_for_one_event(|event| assert!(event.wait(Stage::Power, None))));
}

/// The negative control: one who goes on without waking the others leaves them asleep for ever.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_relay_that_is_dropped() {
    loom::model(|| two_wait_for_one_event(|event| event.wait_and_tell_nobody(Stage::Power)));
}

fn two_wait_for_one_event(wait: fn(&Event)) {
    let event = Arc::new(Event::new());
    let waiters = [(); 2].map(|()| {
        let event = Arc::clone(&event);
        thread::spawn(move || wait(&event))
    });
    event.raise_by_relay(Stage::Power);
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
}

/// The negative control: a log that acknowledges before it syncs is caught.
#[test]
#[should_panic(expected = "acknowledged before the sync")]
fn loom_catches_an_acknowledgement_before_the_sync() {
    loom::model(|| {
        let (role, synced) = role(true);
        let committer = {
            let role = Arc::clone(&role);
            thread::spawn(move || while role.work(Duration::MAX, Duration::MAX) {})
        };
        let ticket = role.handoff.push(1, 1, WhenFull::Wait, true).expect("taken");
        ticket.event.wait(Stage::Power, None);
        let seen = synced.load(Ordering::SeqCst);
        role.handoff.close();
        committer.join().expect("no panic");
        assert!(seen >= 1, "acknowledged before the sync");
    });
}

/// The negative control: if nobody looks at the queue after giving the role up, a step waits for ever.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_lost_wake_up() {
    loom::model(|| {
        let (role, _) = role(false);
        let other = {
            let role = Arc::clone(&role);
            thread::spawn(move || {
                let ticket = role.handoff.push(100, 1, WhenFull::Wait, false).expect("taken");
                role.commit_if_idle_and_never_look_again();
                ticket.event.wait(Stage::Power, None);
            })
        };
        let ticket = role.handoff.push(101, 1, WhenFull::Wait, false).expect("taken");
        role.commit_if_idle_and_never_look_again();
        ticket.event.wait(Stage::Power, None);
        other.join().expect("no panic");
    });
}
