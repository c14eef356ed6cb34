//! What tending needs from `store`: to close the logs of writers before they are replaced.

use std::collections::BTreeMap;

use keepstep_format::Id;

use crate::error::Result;
use crate::segment::ScanUnsealed;

/// Closes logs. `store` implements it, by letters.
pub(crate) trait CloseLogs {
    /// Closes the logs of writers that seem gone: nothing is acknowledged in them any more, even if a writer is
    /// alive. Returns those that are not closed, and why.
    fn close(&self, writers: &[Id]) -> Result<BTreeMap<Id, String>>;

    /// Scans logs, according to whether their writers seem alive.
    fn scan(&self) -> &dyn ScanUnsealed;

    /// Scans logs that are closed.
    fn scan_closed(&self) -> &dyn ScanUnsealed;
}
