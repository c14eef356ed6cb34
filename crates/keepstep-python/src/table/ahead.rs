//! Makes rows ahead on two threads, so that both processors read.
//!
//! Batches come in the order of the table, and not many bytes of them wait. The first share is made by whoever reads the
//! table: a small one needs no thread. The threads end with the reading of the table, at the latest when that is let go. A
//! forked child has no such threads, and touches nothing of theirs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::batch::BYTES_MAX;
use super::maker::{Look, Maker};
use super::shares::{Plan, Share};

const HELPERS: usize = 2;
/// About so many bytes wait, before those who made them wait too.
const WAITING_BYTES_MAX: usize = 2 * BYTES_MAX;

/// What comes next in a table.
pub(super) enum Next {
    /// A share that whoever asks makes itself.
    Yours(Share),
    /// A batch that was made ahead.
    Batch(RecordBatch),
    /// A share is over that was made ahead. These episodes of it cannot be read.
    Told(Vec<String>),
    Failed(ArrowError),
    Over,
}

/// Makes the shares of a table with some threads.
pub(super) struct Ahead {
    desk: Arc<Desk>,
    helpers: Vec<JoinHandle<()>>,
}

/// What all threads have in their hands.
struct Desk {
    look: Arc<Look>,
    state: Mutex<State>,
    changed: Condvar,
    is_stopped: AtomicBool,
}

#[derive(Default)]
struct State {
    plan: Plan,
    /// How many shares somebody has begun.
    begun: u64,
    /// How many shares were given away, whoever made them: the number of the one that comes next.
    passed: u64,
    /// What was made of each share and was not given away.
    made: BTreeMap<u64, VecDeque<Next>>,
    /// How much memory the batches among that take.
    bytes: usize,
    /// How many helpers have not ended; none if one failed.
    working: usize,
}

impl Ahead {
    pub(super) fn new(look: &Arc<Look>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let desk = Desk { look: Arc::clone(look), state, changed, is_stopped: AtomicBool::new(false) };
        Self { desk: Arc::new(desk), helpers: Vec::new() }
    }

    /// What comes next. The share that was given out before is over.
    pub(super) fn next(&mut self) -> Next {
        let desk = Arc::clone(&self.desk);
        let mut state = desk.state();
        loop {
            if state.begun == state.passed {
                let Some(share) = desk.look.share(&mut state.plan) else { return Next::Over };
                (state.begun, state.passed) = (state.begun + 1, state.passed + 1);
                if self.helpers.is_empty() && !state.plan.is_over(&desk.look.listed) {
                    self.helpers = help(&desk);
                    state.working = self.helpers.len();
                }
                return Next::Yours(share);
            }
            if let Some(next) = state.take() {
                desk.changed.notify_all();
                return next;
            }
            if state.working == 0 {
                let error = "a thread that reads a table ahead ended early; read the table again";
                return Next::Failed(ArrowError::ComputeError(error.to_owned()));
            }
            state = desk.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets go of what a forked child has a copy of: the threads are not there, and may have held the lock.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.desk.is_stopped.store(true, Ordering::Relaxed);
        // Under the lock, so that no helper begins to wait just now.
        drop(self.desk.state());
        self.desk.changed.notify_all();
        // They stop behind the row that they read, so that the store can be closed right afterwards.
        self.helpers.drain(..).for_each(|helper| drop(helper.join()));
    }
}

/// Some threads, if there are processors for them. Without them, the rows come all the same.
fn help(desk: &Arc<Desk>) -> Vec<JoinHandle<()>> {
    if thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return Vec::new();
    }
    let start = |_| {
        let desk = Arc::clone(desk);
        thread::Builder::new().name("keepstep-table".to_owned()).spawn(move || desk.make_ahead()).ok()
    };
    (0..HELPERS).filter_map(start).collect()
}

impl State {
    /// What comes next, if it was made.
    fn take(&mut self) -> Option<Next> {
        let next = self.made.get_mut(&self.passed)?.pop_front()?;
        match &next {
            Next::Batch(batch) => self.bytes -= batch.get_array_memory_size(),
            Next::Told(_) => {
                self.made.remove(&self.passed);
                self.passed += 1;
            }
            Next::Failed(_) | Next::Yours(_) | Next::Over => {}
        }
        Some(next)
    }

    fn put(&mut self, share: u64, next: Next) {
        if let Next::Batch(batch) = &next {
            self.bytes += batch.get_array_memory_size();
        }
        self.made.entry(share).or_default().push_back(next);
    }

    /// True if whoever made a batch of this share may make another one: there is room for it, or it is waited for.
    fn has_room(&self, share: u64) -> bool {
        let is_waited_for = share == self.passed && self.made.get(&share).is_none_or(VecDeque::is_empty);
        self.bytes < WAITING_BYTES_MAX || is_waited_for
    }
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn make_ahead(&self) {
        let _working = Working(self);
        let mut maker = Maker::new(&self.look);
        while let Some((number, share)) = self.begin() {
            maker.begin(share);
            loop {
                match maker.batch(&self.is_stopped) {
                    Ok(Some(batch)) => self.put(number, Next::Batch(batch)),
                    Ok(None) => break,
                    Err(error) => return self.put(number, Next::Failed(error)),
                }
            }
            self.put(number, Next::Told(maker.take_troubles()));
        }
    }

    /// The next share that nobody has begun, and its number.
    fn begin(&self) -> Option<(u64, Share)> {
        let mut state = self.state();
        let share = self.look.share(&mut state.plan).filter(|_| !self.is_stopped())?;
        let number = state.begun;
        state.begun += 1;
        Some((number, share))
    }

    /// Puts something down. Behind a batch it waits until there is room for the next one.
    fn put(&self, share: u64, next: Next) {
        let is_batch = matches!(next, Next::Batch(_));
        let mut state = self.state();
        state.put(share, next);
        self.changed.notify_all();
        while is_batch && !self.is_stopped() && !state.has_room(share) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Says that a helper ended, however it did: nobody waits for what does not come.
struct Working<'d>(&'d Desk);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        // What a panic left undone comes from nobody, and the others may wait for room behind it.
        state.working = if thread::panicking() { 0 } else { state.working.saturating_sub(1) };
        drop(state);
        self.0.changed.notify_all();
    }
}
