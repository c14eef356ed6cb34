//! How steps get from the threads that make them to the one that writes them, and how the acknowledgement comes back.
//!
//! The thread that holds the committer's role takes everything that waits as one batch. Nothing lingers: the next
//! batch is what arrived during the last sync. Three rules keep a step from being forgotten. A caller pushes before
//! it tries to take the role. A thread that gives the role up looks at the queue afterwards. The committer's thread
//! goes to sleep only under the queue's lock, when the queue is empty.

use std::sync::Arc;
use std::time::Duration;

use super::event::Event;
use super::sync::{Condvar, Mutex, MutexGuard, lock};

/// The queue of records to be written.
pub(crate) struct Handoff<T> {
    queue: Mutex<Queue<T>>,
    work: Condvar,
    room: Condvar,
    bytes_max: usize,
}

struct Queue<T> {
    items: Vec<T>,
    bytes: usize,
    /// The event of the batch that is being collected.
    event: Arc<Event>,
    committer_sleeps: bool,
    sync_wanted: bool,
    nudged: bool,
    closed: bool,
}

/// A batch, with the event of its steps.
pub(crate) struct Batch<T> {
    pub(crate) items: Vec<T>,
    pub(crate) event: Arc<Event>,
}

/// The batch of a step, and its index in it.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) event: Arc<Event>,
    pub(crate) index: u32,
}

/// Why a step was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    Closed,
    Full,
    /// The caller stopped waiting.
    #[cfg_attr(loom, allow(dead_code, reason = "its model has no clock to be asked by"))]
    Interrupted,
}

/// What a pushing thread does while the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Wait,
    Refuse,
    /// Add one more than fits: for entries that must not be refused.
    Pass,
}

/// Why the committer's thread woke up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Work,
    Sync,
    /// The time to sleep may have changed.
    Nudged,
    Idle,
    Closed,
}

impl<T> Handoff<T> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let queue = Queue {
            items: Vec::new(),
            bytes: 0,
            event: Arc::new(Event::new()),
            committer_sleeps: false,
            sync_wanted: false,
            nudged: false,
            closed: false,
        };
        Self { queue: Mutex::new(queue), work: Condvar::new(), room: Condvar::new(), bytes_max }
    }

    /// Adds a step. With `wake`, the committer's thread is woken; without it, the caller tries to take the role
    /// itself.
    #[cfg(all(test, loom))]
    pub(crate) fn push(
        &self,
        item: T,
        bytes: usize,
        when_full: WhenFull,
        wake: bool,
    ) -> Result<Ticket, NotTaken> {
        self.push_unless(item, bytes, when_full, wake, None)
    }

    /// As `push`. While the queue is full, the caller is asked now and then whether it still wants to wait.
    pub(crate) fn push_unless(
        &self,
        item: T,
        bytes: usize,
        when_full: WhenFull,
        wake: bool,
        interrupt: Option<(Duration, fn() -> bool)>,
    ) -> Result<Ticket, NotTaken> {
        let mut queue = lock(&self.queue);
        // A single item may pass whatever its size; otherwise it could never be written.
        while queue.bytes > 0
            && queue.bytes + bytes > self.bytes_max
            && when_full != WhenFull::Pass
            && !queue.closed
        {
            if when_full == WhenFull::Refuse {
                return Err(NotTaken::Full);
            }
            queue = self.wait_once(queue, interrupt)?;
        }
        if queue.closed {
            return Err(NotTaken::Closed);
        }
        let ticket = Ticket { event: Arc::clone(&queue.event), index: queue.items.len() as u32 };
        queue.items.push(item);
        queue.bytes += bytes;
        if wake && queue.committer_sleeps {
            queue.committer_sleeps = false;
            drop(queue);
            self.work.notify_one();
        }
        Ok(ticket)
    }

    /// Waits while the queue is full. A caller that holds locks waits here first, and then pushes with
    /// [`WhenFull::Pass`]: the question whether to go on may need a thread that needs those locks. So as many entries
    /// may be in the queue beyond its limit as there are threads that wait.
    pub(crate) fn wait_for_room(&self, interrupt: Option<(Duration, fn() -> bool)>) -> Result<(), NotTaken> {
        let mut queue = lock(&self.queue);
        while queue.bytes >= self.bytes_max && !queue.closed {
            queue = self.wait_once(queue, interrupt)?;
        }
        Ok(())
    }

    fn wait_once<'q>(
        &'q self,
        mut queue: MutexGuard<'q, Queue<T>>,
        interrupt: Option<(Duration, fn() -> bool)>,
    ) -> Result<MutexGuard<'q, Queue<T>>, NotTaken> {
        if queue.committer_sleeps {
            queue.committer_sleeps = false;
            self.work.notify_one();
        }
        #[cfg(not(loom))]
        if let Some((every, is_interrupted)) = interrupt {
            let woken = self.room.wait_timeout(queue, every);
            let (woken, waited) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
            drop(woken);
            // Called without the lock: the callback may have to wait for a thread that needs the lock.
            if waited.timed_out() && is_interrupted() {
                return Err(NotTaken::Interrupted);
            }
            return Ok(lock(&self.queue));
        }
        #[cfg(loom)]
        let _ = interrupt;
        Ok(self.room.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Everything that waits, for the thread that holds the role.
    pub(crate) fn take(&self) -> Option<Batch<T>> {
        let mut queue = lock(&self.queue);
        if queue.items.is_empty() {
            return None;
        }
        // As many will wait next time, so the vector keeps its size.
        let capacity = queue.items.len();
        let items = std::mem::replace(&mut queue.items, Vec::with_capacity(capacity));
        let event = std::mem::replace(&mut queue.event, Arc::new(Event::new()));
        let was_full = queue.bytes >= self.bytes_max / 2;
        queue.bytes = 0;
        drop(queue);
        if was_full {
            self.room.notify_all();
        }
        Some(Batch { items, event })
    }

    /// True if something waits.
    pub(crate) fn has_work(&self) -> bool {
        !lock(&self.queue).items.is_empty()
    }

    /// Called after the role was given up: wakes the committer's thread if something came in meanwhile.
    pub(crate) fn wake_if_work(&self) {
        let mut queue = lock(&self.queue);
        if queue.committer_sleeps && (!queue.items.is_empty() || queue.sync_wanted) {
            queue.committer_sleeps = false;
            drop(queue);
            self.work.notify_one();
        }
    }

    /// Asks for a sync of what was only written so far.
    pub(crate) fn want_sync(&self) {
        self.rouse(|queue| queue.sync_wanted = true);
    }

    /// Makes the committer's thread compute again how long to sleep.
    pub(crate) fn nudge(&self) {
        self.rouse(|queue| queue.nudged = true);
    }

    fn rouse(&self, change: impl FnOnce(&mut Queue<T>)) {
        let mut queue = lock(&self.queue);
        change(&mut queue);
        if queue.committer_sleeps {
            queue.committer_sleeps = false;
            drop(queue);
            self.work.notify_one();
        }
    }

    /// The committer's thread sleeps here until there is work. It must not hold the role.
    pub(crate) fn wait_for_work(&self, timeout: Duration) -> Woken {
        let mut queue = lock(&self.queue);
        if queue.items.is_empty() && !queue.sync_wanted && !queue.nudged && !queue.closed {
            queue.committer_sleeps = true;
            #[cfg(loom)]
            {
                let _ = timeout;
                queue = self.work.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            #[cfg(not(loom))]
            {
                queue = self
                    .work
                    .wait_timeout(queue, timeout)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .0;
            }
            queue.committer_sleeps = false;
        }
        if !queue.items.is_empty() {
            Woken::Work
        } else if std::mem::take(&mut queue.sync_wanted) {
            Woken::Sync
        } else if queue.closed {
            Woken::Closed
        } else if std::mem::take(&mut queue.nudged) {
            Woken::Nudged
        } else {
            Woken::Idle
        }
    }

    /// Accepts nothing more; what is in the queue is still written.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }
}
