//! Whether a writer seems gone, or is known to be alive. This is a hint: callers post to the writer before they act.

use keepstep_format::Id;

use crate::own::OwnerState;
use crate::store::Store;

impl Store {
    /// True if a writer counts as gone: its lock is free, or its lease is over.
    pub(in crate::store) fn is_gone(&self, writer: &Id) -> bool {
        matches!(self.leases().state(writer), OwnerState::Dead(_))
    }

    /// True if a writer counts as gone even for a process that may not write here, and so cannot ask it.
    pub(in crate::store) fn is_gone_for_long(&self, writer: &Id) -> bool {
        self.leases().is_gone_for_long(writer)
    }

    /// True if a writer is known to be alive.
    pub(in crate::store) fn is_live(&self, writer: &Id) -> bool {
        self.leases().state(writer) == OwnerState::Live
    }
}
