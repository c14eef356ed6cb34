//! What tending needs from `store`: to close the logs of writers before they are replaced.

use std::collections::BTreeMap;

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::segment::ScanUnsealed;

/// Why a log is not closed.
#[derive(Debug)]
pub(crate) enum NotClosed {
    /// Its writer is alive, or it cannot be said where the log ends.
    For(&'static str),
    /// A file of its writer cannot be read or synced.
    Trouble(Error),
}

impl std::fmt::Display for NotClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::For(why) => f.write_str(why),
            Self::Trouble(error) => write!(f, "it cannot be closed: {error}"),
        }
    }
}

/// Closes logs. `store` implements it, by letters.
pub(crate) trait CloseLogs {
    /// Closes the logs of writers that seem gone: nothing is acknowledged in them any more, even if a writer is
    /// alive. Returns those that are not closed, and why: a file of one writer that cannot be read costs the others
    /// nothing.
    fn close(&self, writers: &[Id]) -> Result<BTreeMap<Id, NotClosed>>;

    /// Scans logs, according to whether their writers seem alive.
    fn scan(&self) -> &dyn ScanUnsealed;

    /// Scans logs that are closed.
    fn scan_closed(&self) -> &dyn ScanUnsealed;
}
