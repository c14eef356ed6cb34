//! Wakers: whoever cannot wait for a receipt is told when to look.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keepstep::{Entry, EpisodeName, Level, Options, Receipt, Step, Value, Waker};

use scratch::Scratch;

/// Looks at the receipts it knows of whenever it is rung, and never otherwise.
#[derive(Default)]
struct Looker {
    waiting: Mutex<Vec<Receipt>>,
    come: Mutex<usize>,
    changed: Condvar,
}

impl Waker for Looker {
    fn ring(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        let before = waiting.len();
        waiting.retain(|receipt| match receipt.poll() {
            None => true,
            Some(outcome) => {
                outcome.unwrap();
                assert!(receipt.level() >= Some(receipt.wanted()), "rung before it was true: {receipt:?}");
                false
            }
        });
        *self.come.lock().unwrap() += before - waiting.len();
        self.changed.notify_all();
    }
}

impl Looker {
    fn wait_for(&self, count: usize) {
        let come = self.come.lock().unwrap();
        let waited = self.changed.wait_timeout_while(come, Duration::from_secs(60), |come| *come < count);
        assert_eq!(*waited.unwrap().0, count, "a receipt came and nobody rang");
    }
}

/// Every receipt that somebody waits for is rung for, at whatever level, and not before it has come.
#[test]
fn a_bell_is_rung_for_every_receipt_that_comes() {
    let scratch = Scratch::new("wakers");
    let store = scratch.open(Options::default());
    let looker = Arc::new(Looker::default());
    let waker: Arc<dyn Waker> = Arc::clone(&looker) as Arc<dyn Waker>;
    store.add_waker(&waker);
    // Adding it again must not ring it twice for ever.
    store.add_waker(&waker);
    let run = store.run("run", Value::Null).unwrap();
    let episode = run.episode(EpisodeName::task("task")).unwrap();
    for number in 0..300usize {
        let level = if number % 3 == 0 { Level::Kill } else { Level::Power };
        // Known to the waker before it can come: the lock is held until it is in the list.
        let mut waiting = looker.waiting.lock().unwrap();
        waiting.push(episode.record(Entry::step(Step::new().action(number as i64)).at(level)).unwrap());
        drop(waiting);
        looker.wait_for(number + 1);
    }
}

/// A waker that nobody keeps is not rung, and is in nobody's way.
#[test]
fn a_bell_that_is_gone_is_forgotten() {
    let scratch = Scratch::new("wakers-gone");
    let store = scratch.open(Options::default());
    let gone = Arc::new(Looker::default());
    let waker: Arc<dyn Waker> = Arc::clone(&gone) as Arc<dyn Waker>;
    store.add_waker(&waker);
    drop(waker);
    let weak = Arc::downgrade(&gone);
    drop(gone);
    assert!(weak.upgrade().is_none(), "the store keeps it alive");
    let run = store.run("run", Value::Null).unwrap();
    let episode = run.episode(EpisodeName::task("task")).unwrap();
    episode.step(Step::new().action(1i64)).unwrap();
}
