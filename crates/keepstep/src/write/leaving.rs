//! A log that another process has closed: nothing more is written or acknowledged in it; recording continues in a new
//! log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keepstep_format::Id;

use super::event::Stage;
use super::log::LogWriter;
use super::moved::Moves;
use crate::error::Error;

impl LogWriter {
    /// Sets the flag to raise when another process closes the log.
    pub(crate) fn with_closed_flag(mut self, is_closed: Arc<AtomicBool>) -> Self {
        self.is_closed = is_closed;
        self
    }

    /// The writer of the log.
    pub(super) fn writer(&self) -> Id {
        self.identity.writer
    }

    /// True once another process has closed the log.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Looks for mail although there is nothing to write, so that a question whether this writer lives is answered.
    /// If it fails, it is tried again with the next batch.
    pub(crate) fn answer(&mut self) {
        if !self.is_closed() {
            let _ = self.look_for_mail();
        }
    }

    /// Another process has closed the log: its content belongs to that process, and no byte more is written. Called by
    /// the look that finds it: whoever knows that the log is closed has left it.
    pub(super) fn leave(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        let is_synced = !self.rewrite && self.segment.as_mut().is_some_and(|segment| segment.sync().is_ok());
        for (_, event) in self.unsynced.drain(..) {
            // It was acknowledged at `kill` before the log was closed, so the closing process has it, even if our
            // sync failed.
            if is_synced { event.raise(Stage::Power) } else { event.close() }
        }
        if let Some(round) = self.held.take() {
            self.withdraw(&round, &Error::LogClosed { writer: self.writer() });
        }
        self.wake_the_rest();
        self.segment = None;
        self.identity.lock = None;
        self.rewrite = false;
        self.subjects.clear();
        self.moves = Moves::default();
        // Event loops wait for the receipts that were decided here, whoever looked.
        self.wakers.ring();
    }
}
