//! What tending needs of those who know the writers: to close their logs before anything is replaced.

use std::collections::BTreeMap;

use keepstep_format::Id;

use crate::error::Result;
use crate::segment::ScanUnsealed;

/// Closes logs. `store` does it, by letters: the rooms do not know one another.
pub(crate) trait CloseLogs {
    /// Closes the logs of writers that seem gone: nothing is acknowledged in them any more, whoever lives. Gives those
    /// that are not closed, and why.
    fn close(&self, writers: &[Id]) -> Result<BTreeMap<Id, String>>;

    /// Finds out what is in logs, by what seems to be of their writers.
    fn scan(&self) -> &dyn ScanUnsealed;

    /// Finds out what is in logs that are closed.
    fn scan_closed(&self) -> &dyn ScanUnsealed;
}
