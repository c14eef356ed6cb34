//! Makes rows ahead on a second thread, so that both processors read: whoever reads the table makes one share, and this
//! thread the next ones meanwhile.
//!
//! Batches come in the order of the table, and not many bytes of them wait. The thread ends with the reading of the table,
//! at the latest when that is let go. A forked child has no such thread, and touches nothing of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::batch::BYTES_MAX;
use super::maker::{Look, Maker};
use super::shares::{Plan, Share};

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

/// Makes the shares of a table with two threads.
pub(super) struct Ahead {
    desk: Arc<Desk>,
    helper: Option<JoinHandle<()>>,
    /// How many shares are over, whoever made them, and the one that whoever asks makes.
    passed: u64,
}

/// What both threads have in their hands.
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
    made: VecDeque<Next>,
    /// How much memory the batches among them take.
    bytes: usize,
    /// True if the helper ended.
    is_alone: bool,
}

impl Ahead {
    pub(super) fn new(look: &Arc<Look>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let desk = Desk { look: Arc::clone(look), state, changed, is_stopped: AtomicBool::new(false) };
        Self { desk: Arc::new(desk), helper: None, passed: 0 }
    }

    /// What comes next. The share that was given out before is over.
    pub(super) fn next(&mut self) -> Next {
        let desk = Arc::clone(&self.desk);
        let mut state = desk.state();
        loop {
            if state.begun == self.passed {
                let Some(share) = desk.look.share(&mut state.plan) else { return Next::Over };
                state.begun += 1;
                self.passed += 1;
                if self.helper.is_none() && !state.plan.is_over(&desk.look.listed) {
                    self.helper = help(&desk);
                }
                return Next::Yours(share);
            }
            let Some(next) = state.made.pop_front() else {
                if state.is_alone {
                    let error = "the thread that reads a table ahead ended early; read the table again";
                    return Next::Failed(ArrowError::ComputeError(error.to_owned()));
                }
                state = desk.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            match &next {
                Next::Batch(batch) => state.bytes -= batch.get_array_memory_size(),
                Next::Told(_) => self.passed += 1,
                Next::Failed(_) | Next::Yours(_) | Next::Over => {}
            }
            desk.changed.notify_all();
            return next;
        }
    }

    /// Lets go of what a forked child has a copy of: the thread is not there, and may have held the lock.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.desk.is_stopped.store(true, Ordering::Relaxed);
        // Under the lock, so that the helper does not begin to wait just now.
        drop(self.desk.state());
        self.desk.changed.notify_all();
        // It stops behind the row that it reads, so that the store can be closed right afterwards.
        drop(self.helper.take().map(JoinHandle::join));
    }
}

/// A second thread, if there is a processor for it.
fn help(desk: &Arc<Desk>) -> Option<JoinHandle<()>> {
    if thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return None;
    }
    let desk = Arc::clone(desk);
    // Without it, the rows come all the same.
    thread::Builder::new().name("keepstep-table".to_owned()).spawn(move || desk.make_ahead()).ok()
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_ahead(&self) {
        let _alone = Alone(self);
        let mut maker = Maker::new(&self.look);
        while let Some(share) = self.begin() {
            maker.begin(share);
            loop {
                match maker.batch(&self.is_stopped) {
                    Ok(Some(batch)) => {
                        if !self.put(batch) {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return self.state().made.push_back(Next::Failed(error)),
                }
            }
            self.state().made.push_back(Next::Told(maker.take_troubles()));
            self.changed.notify_all();
        }
    }

    /// The next share that nobody has begun.
    fn begin(&self) -> Option<Share> {
        let mut state = self.state();
        let share = self.look.share(&mut state.plan).filter(|_| !self.is_stopped.load(Ordering::Relaxed))?;
        state.begun += 1;
        Some(share)
    }

    /// Puts a batch down, and waits until there is room for the next one. False if nobody wants it.
    fn put(&self, batch: RecordBatch) -> bool {
        let mut state = self.state();
        state.bytes += batch.get_array_memory_size();
        state.made.push_back(Next::Batch(batch));
        self.changed.notify_all();
        while state.bytes >= BYTES_MAX && !self.is_stopped.load(Ordering::Relaxed) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Says that the helper ended, however it did: nobody waits for what does not come.
struct Alone<'d>(&'d Desk);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().is_alone = true;
        self.0.changed.notify_all();
    }
}
