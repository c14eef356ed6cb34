//! A log that others have closed: nothing more is written or acknowledged in it, and whoever records goes on elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keepstep_format::Id;

use super::event::Stage;
use super::log::LogWriter;
use super::moved::Moves;

impl LogWriter {
    /// Says to this one when others have closed the log.
    pub(crate) fn with_closed_flag(mut self, is_closed: Arc<AtomicBool>) -> Self {
        self.is_closed = is_closed;
        self
    }

    /// Whose log it is.
    pub(super) fn writer(&self) -> Id {
        self.identity.writer
    }

    /// True once others have closed the log.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Looks for mail although there is nothing to write: whoever asks whether this writer lives is answered. What fails is
    /// tried again with the next batch.
    pub(crate) fn answer(&mut self) {
        if !self.is_closed() && self.look_for_mail().is_ok() && self.is_closed() {
            self.leave();
        }
    }

    /// Others have closed the log: what it holds belongs to them, and not a byte more is written to it.
    pub(super) fn leave(&mut self) {
        let is_synced = !self.rewrite && self.segment.as_mut().is_some_and(|segment| segment.sync().is_ok());
        for (_, event) in self.unsynced.drain(..) {
            // Acknowledged at `kill` before the log was closed, so whoever closed it has it, whatever our sync says.
            if is_synced { event.raise(Stage::Power) } else { event.close() }
        }
        self.wake_the_rest();
        self.segment = None;
        self.identity.lock = None;
        self.rewrite = false;
        self.subjects.clear();
        self.moves = Moves::default();
    }
}
