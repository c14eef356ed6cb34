//! One event for each batch: all its steps wait for it, and one call wakes them all.
//!
//! The stage only rises, and is raised only after what it promises is true. Waking many threads takes longer than
//! syncing few steps. So the committer may wake one thread, which wakes the others, and continue with the next batch
//! meanwhile.

use std::time::{Duration, Instant};

use super::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::error::Error;

/// How far a batch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Stage {
    /// Not written yet.
    Queued = 0,
    /// Written: it survives a kill of the process.
    Kill = 1,
    /// Synced: it survives a power cut.
    Power = 2,
}

/// A thread sleeps on this event.
const SLEEPERS: u32 = 1 << 31;
/// Nothing more will happen to the batch.
const OVER: u32 = 1 << 30;
/// Some step of the batch was not recorded.
const FAILURES: u32 = 1 << 29;
/// One sleeper was woken, and the others must be: the first thread that sees this does it.
const RELAY: u32 = 1 << 28;
const STAGE: u32 = 0xff;

/// What a batch's steps wait for.
#[derive(Debug)]
pub(crate) struct Event {
    word: AtomicU32,
    /// Steps of the batch that were not recorded, by their number in it.
    failures: Mutex<Vec<(u32, Error)>>,
    #[cfg(any(loom, not(target_os = "linux")))]
    sleep: (Mutex<()>, super::sync::Condvar),
}

impl Event {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            failures: Mutex::new(Vec::new()),
            #[cfg(any(loom, not(target_os = "linux")))]
            sleep: (Mutex::new(()), super::sync::Condvar::new()),
        }
    }

    /// The stage that was reached.
    pub(crate) fn stage(&self) -> Stage {
        match self.word.load(Ordering::Acquire) & STAGE {
            0 => Stage::Queued,
            1 => Stage::Kill,
            _ => Stage::Power,
        }
    }

    /// True if there is nothing left to wait for: the stage was reached, or nothing more will happen.
    pub(crate) fn has_come(&self, stage: Stage) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & STAGE >= stage as u32 || word & OVER != 0
    }

    /// True if some step of the batch was not recorded.
    pub(crate) fn has_failures(&self) -> bool {
        self.word.load(Ordering::Acquire) & FAILURES != 0
    }

    /// Why this step of the batch was not recorded, if it was not.
    pub(crate) fn failure(&self, index: u32) -> Option<Error> {
        // All threads of a batch wake at once: they must not queue for a lock that none of them needs.
        if !self.has_failures() {
            return None;
        }
        lock(&self.failures).iter().find(|(failed, _)| *failed == index).map(|(_, error)| error.clone())
    }

    /// Notes that a step failed. Call this before the stage is raised that would acknowledge it.
    pub(crate) fn fail(&self, index: u32, error: Error) {
        lock(&self.failures).push((index, error));
        self.word.fetch_or(FAILURES, Ordering::AcqRel);
    }

    /// Raises the stage and wakes everybody.
    pub(crate) fn raise(&self, stage: Stage) {
        if self.update(|word| raised(word, stage)) {
            self.wake_all();
        }
    }

    /// Raises the stage and wakes one thread, which wakes the others. [`Event::wake_the_rest`] must follow later:
    /// that thread may not get a processor for long.
    pub(crate) fn raise_by_relay(&self, stage: Stage) {
        let relay = |word| raised(word, stage) | if word & SLEEPERS != 0 { RELAY } else { 0 };
        if self.update(relay) {
            self.wake_one();
        }
    }

    /// Wakes the threads that nobody has woken yet.
    pub(crate) fn wake_the_rest(&self) {
        // Checked before it is changed: all threads of a batch pass here.
        if self.word.load(Ordering::Acquire) & RELAY != 0
            && self.word.fetch_and(!RELAY, Ordering::AcqRel) & RELAY != 0
        {
            self.wake_all();
        }
    }

    /// Nothing more will happen: waiting threads look for a failure.
    pub(crate) fn close(&self) {
        if self.update(|word| word | OVER) {
            self.wake_all();
        }
    }

    /// Changes the word. True if a thread sleeps that must be woken.
    fn update(&self, change: impl Fn(u32) -> u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let changed = change(word) & !SLEEPERS;
            match self.word.compare_exchange_weak(word, changed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return word & SLEEPERS != 0,
                Err(now) => word = now,
            }
        }
    }

    /// Waits until the stage is reached, the event is over, or the time is over. True if there is nothing left to
    /// wait for.
    pub(crate) fn wait(&self, stage: Stage, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            self.wake_the_rest();
            let word = self.word.load(Ordering::Acquire);
            if word & STAGE >= stage as u32 || word & OVER != 0 {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let asleep = word | SLEEPERS;
            if word == asleep
                || self.word.compare_exchange(word, asleep, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                self.sleep(asleep, left);
            }
        }
    }

    /// The broken variant that the model must catch: a thread that is woken wakes nobody.
    #[cfg(all(test, loom))]
    pub(crate) fn wait_and_tell_nobody(&self, stage: Stage) {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & STAGE >= stage as u32 {
                return;
            }
            let asleep = word | SLEEPERS;
            if word == asleep
                || self.word.compare_exchange(word, asleep, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                self.sleep(asleep, None);
            }
        }
    }

    #[cfg(all(target_os = "linux", not(loom)))]
    fn sleep(&self, word: u32, left: Option<Duration>) {
        use rustix::thread::futex;
        let timeout = left.map(|left| futex::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        // After any return the word is checked again.
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, word, timeout.as_ref());
    }

    #[cfg(all(target_os = "linux", not(loom)))]
    fn wake_one(&self) {
        let _ = rustix::thread::futex::wake(&self.word, rustix::thread::futex::Flags::PRIVATE, 1);
    }

    #[cfg(all(target_os = "linux", not(loom)))]
    fn wake_all(&self) {
        let _ =
            rustix::thread::futex::wake(&self.word, rustix::thread::futex::Flags::PRIVATE, i32::MAX as u32);
    }

    #[cfg(any(loom, not(target_os = "linux")))]
    fn sleep(&self, word: u32, left: Option<Duration>) {
        let guard = lock(&self.sleep.0);
        // The word is checked under the lock, so a wake-up between the two cannot be missed.
        if self.word.load(Ordering::Acquire) != word {
            return;
        }
        let _ = left;
        #[cfg(loom)]
        drop(self.sleep.1.wait(guard));
        #[cfg(not(loom))]
        drop(self.sleep.1.wait_timeout(guard, left.unwrap_or(Duration::from_secs(3600))));
    }

    #[cfg(any(loom, not(target_os = "linux")))]
    fn wake_one(&self) {
        drop(lock(&self.sleep.0));
        self.sleep.1.notify_one();
    }

    #[cfg(any(loom, not(target_os = "linux")))]
    fn wake_all(&self) {
        drop(lock(&self.sleep.0));
        self.sleep.1.notify_all();
    }
}

fn raised(word: u32, stage: Stage) -> u32 {
    (word & !STAGE) | (word & STAGE).max(stage as u32)
}
