//! Whether a writer seems gone: a hint, for those who then tell it before they act.

use keepstep_format::Id;

use super::Store;
use crate::own::Standing;

impl Store {
    /// True if a writer counts as gone: its lock is free, or its lease is over.
    pub(super) fn is_gone(&self, writer: &Id) -> bool {
        matches!(self.leases().standing(writer), Standing::Dead(_))
    }
}
