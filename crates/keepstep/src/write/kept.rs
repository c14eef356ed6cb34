//! A batch that could not be made durable at once on a caller's thread. It is kept, and finished by the next
//! committer.
//!
//! A caller must be able to stop waiting, so the committer's thread waits in its place.

use super::handoff::Batch;
use super::log::{LogWriter, QueuedRecord, Trouble};

impl LogWriter {
    /// Commits a batch on the thread of a caller, which must not be blocked if the disk is full: tried once. True if
    /// that succeeded; otherwise the batch is kept for [`LogWriter::finish_held`], before all others.
    pub(crate) fn try_commit(&mut self, batch: Batch<QueuedRecord>) -> bool {
        let mut round = self.decide(batch);
        if round.placed.is_empty() {
            round.event.close();
            return true;
        }
        let trouble = match self.try_persist(&mut round) {
            Ok(()) => {
                self.tell_all(round, Ok(()));
                return true;
            }
            Err(trouble) => trouble,
        };
        self.wake_the_rest();
        if !matches!(trouble, Trouble::LookUp(_)) {
            round.is_written = false;
            self.give_up_segment();
        }
        self.held = Some(round);
        false
    }

    /// Makes the kept batch durable. Tries again for as long as `stall` allows.
    pub(crate) fn finish_held(&mut self) {
        if let Some(mut round) = self.held.take() {
            let outcome = self.persist(&mut round, self.options.stall);
            self.tell_all(round, outcome);
        }
    }

    /// True if there is a committer's thread, which finishes what callers leave.
    pub(crate) fn has_thread(&self) -> bool {
        self.options.background
    }

    /// True while a batch is kept.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }
}
