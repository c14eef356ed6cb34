//! The committer's role: held by one thread at a time, an idle caller or the committer's own thread.
//!
//! A caller pushes first, and then tries to take the role. A thread that gives the role up looks at the queue once
//! more. So every queued record has a thread that will write it.

use std::time::Duration;

use super::handoff::{Batch, Handoff, Woken};
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock, try_lock};

/// What the holder of the role does.
pub(crate) trait Commit<T> {
    /// Makes a batch durable, and tells its callers.
    fn commit(&mut self, batch: Batch<T>);
    /// As [`Commit::commit`], for a caller's thread: tried once. False if the batch is kept, and the committer's
    /// thread has to finish it: a waiting caller can be interrupted, a writing one cannot.
    fn try_commit(&mut self, batch: Batch<T>) -> bool {
        self.commit(batch);
        true
    }
    /// True while a batch is kept: no other batch may overtake it.
    fn is_held(&self) -> bool {
        false
    }
    /// Called when there is nothing to do.
    fn idle(&mut self);
    /// Syncs what was only written.
    fn sync(&mut self);
    /// True if something was only written.
    fn has_unsynced(&self) -> bool;
}

/// The queue, and the log that the holder of the role writes to.
pub(crate) struct Role<T, L> {
    pub(crate) handoff: Handoff<T>,
    log: Mutex<L>,
    /// True if something waits for a sync in the background.
    has_unsynced: AtomicBool,
}

impl<T, L: Commit<T>> Role<T, L> {
    pub(crate) fn new(handoff: Handoff<T>, log: L) -> Self {
        Self { handoff, log: Mutex::new(log), has_unsynced: AtomicBool::new(false) }
    }

    /// Waits for the role, and takes it.
    pub(crate) fn take(&self) -> MutexGuard<'_, L> {
        lock(&self.log)
    }

    /// Uses the log, if the role is free now.
    pub(crate) fn try_with<R>(&self, act: impl FnOnce(&mut L) -> R) -> Option<R> {
        let mut log = try_lock(&self.log)?;
        let done = act(&mut log);
        drop(log);
        // A caller that came meanwhile has left its record to whoever had the role.
        self.handoff.wake_if_work();
        Some(done)
    }

    /// Waits for the role, and uses the log.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut L) -> R) -> R {
        let done = act(&mut self.take());
        self.handoff.wake_if_work();
        done
    }

    /// Called after a push that woke no thread: if the role is free, commits what waits, once.
    pub(crate) fn commit_if_idle(&self) {
        // The holder of the role looks at the queue again when it gives the role up.
        let Some(mut log) = try_lock(&self.log) else { return };
        if !log.is_held()
            && let Some(batch) = self.handoff.take()
        {
            log.try_commit(batch);
        }
        if log.is_held() {
            drop(log);
            return self.handoff.want_sync();
        }
        // More work is left to the committer's thread: the caller has its own work to do.
        if !self.handoff.has_work() {
            log.idle();
        }
        let has_unsynced = log.has_unsynced();
        drop(log);
        self.handoff.wake_if_work();
        if has_unsynced && !self.has_unsynced.swap(true, Ordering::AcqRel) {
            self.handoff.nudge();
        }
    }

    /// The broken variant that the model must catch: no thread looks at the queue after it gave the role up.
    #[cfg(all(test, loom))]
    pub(crate) fn commit_if_idle_and_never_look_again(&self) {
        let Some(mut log) = try_lock(&self.log) else { return };
        if let Some(batch) = self.handoff.take() {
            log.commit(batch);
        }
    }

    /// Commits until nothing waits.
    pub(crate) fn commit_all(&self) {
        let mut log = self.take();
        while let Some(batch) = self.handoff.take() {
            log.commit(batch);
        }
        log.idle();
        self.has_unsynced.store(log.has_unsynced(), Ordering::Release);
    }

    /// Syncs what was only written.
    pub(crate) fn sync(&self) {
        let mut log = self.take();
        log.sync();
        log.idle();
        self.has_unsynced.store(log.has_unsynced(), Ordering::Release);
    }

    /// One turn of the committer's thread: sleeps until there is work, and does it. False when everything is over.
    pub(crate) fn work(&self, background_sync: Duration, idle: Duration) -> bool {
        let is_waiting = self.has_unsynced.load(Ordering::Acquire);
        match self.handoff.wait_for_work(if is_waiting { background_sync } else { idle }) {
            Woken::Work => self.commit_all(),
            Woken::Sync => self.sync(),
            Woken::Idle if is_waiting => self.sync(),
            Woken::Idle | Woken::Nudged => {}
            Woken::Closed => return false,
        }
        true
    }
}
