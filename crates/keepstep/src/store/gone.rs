//! Whether a writer is gone: for those who go on with what it left, and for those who delete what it left.

use keepstep_format::Id;

use super::Store;
use crate::error::{Doing, Result};
use crate::own::Standing;
use crate::read::Catalog;
use crate::segment::Liveness;
use crate::segment::names::scan_path;

impl Store {
    /// True if a writer counts as gone: its lock is free, or its lease is over. One that was only slow is told by letter.
    pub(super) fn is_gone(&self, writer: &Id) -> bool {
        matches!(self.leases().standing(writer), Standing::Dead(_))
    }

    /// True if a writer is certainly gone: dead, or somebody with proof of it published what is in its last segment.
    pub(super) fn is_certainly_gone(&self, catalog: &Catalog, writer: &Id) -> Result<bool> {
        match self.liveness(writer) {
            Liveness::Dead => return Ok(true),
            Liveness::Live => return Ok(false),
            Liveness::Unknown => {}
        }
        let last = catalog.log(writer).and_then(|log| log.segments().next_back());
        // Only the logs of writers that are gone are ever replaced.
        let Some(last) = last else { return Ok(true) };
        let card = scan_path(writer, last.number);
        self.disk().exists(&card).doing("look for", &card)
    }
}
