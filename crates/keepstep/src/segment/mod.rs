//! Segment files as they are read: their names, headers, records and indexes.
//!
//! Everybody who reads stands on this. Nothing here writes to a segment, and nothing here trusts a byte whose checksum
//! was not looked at.

pub(crate) mod bodies;
pub(crate) mod cards;
pub(crate) mod chain;
pub(crate) mod grouped;
pub(crate) mod head;
mod heals;
pub(crate) mod log;
mod lru;
pub(crate) mod manifest;
pub(crate) mod named;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod scanned;
pub(crate) mod sealed;
pub(crate) mod storage;
pub(crate) mod summary;
pub(crate) mod summing;
pub(crate) mod window;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::scan::{Hole, Rules, SegmentScan};
use keepstep_format::segment::Trailer;

pub(crate) use bodies::LogBodies;
pub(crate) use head::SegmentHead;
pub(crate) use log::{Contents, Log, Segment};
pub use manifest::Pruned;
pub(crate) use manifest::{Announced, Manifest};
pub(crate) use scanned::Scanned;
pub(crate) use sealed::SealedIndex;
pub(crate) use storage::Storage;
pub use summary::Summary;

use crate::error::Result;

/// Whether the process that records to a log is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// It is: what is not yet synced may still come, or go.
    Live,
    /// It is gone: nothing will be added.
    Dead,
    /// Nobody can tell from here.
    Unknown,
}

/// What is known of an unsealed segment from outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsealedFacts {
    /// Whether its writer is still there.
    pub liveness: Liveness,
    /// How long it is.
    pub file_bytes: u64,
    /// It was sealed, but its index cannot be read.
    pub trailer: Option<Trailer>,
    /// A later segment of the same writer has a frame, and does not void this one.
    pub complete: bool,
    /// Frames from here on do not exist.
    pub voided_from: Option<u64>,
    /// It was sealed, and so long then.
    pub sealed_bytes: Option<u64>,
    /// A later segment has a header that cannot be read: it may have voided this one.
    pub void_is_unknown: bool,
}

impl UnsealedFacts {
    /// True if nothing in the segment changes any more, whether or not its writer lives.
    pub(crate) fn is_settled(&self) -> bool {
        let was_closed = self.voided_from.is_some() || self.trailer.is_some() || self.sealed_bytes.is_some();
        self.liveness == Liveness::Dead || self.complete || was_closed || self.void_is_unknown
    }

    /// As the scanner wants it.
    pub(crate) fn rules(&self) -> Rules {
        let complete = !self.void_is_unknown && (self.complete || self.sealed_bytes.is_some());
        Rules {
            trailer: self.trailer,
            complete,
            voided_from: self.voided_from,
            sealed_bytes: self.sealed_bytes,
        }
    }

    /// What stands above `synced_to` may have been given up and written again, otherwise: then only the names are told.
    pub(crate) fn give_up_what_is_uncertain(&self, scan: &mut SegmentScan) {
        let from = scan.synced_to;
        if !self.void_is_unknown || scan.data_end <= from {
            return;
        }
        let certain = scan.frames.partition_point(|frame| frame.end() <= from);
        let mut lost: Vec<_> = scan.frames.drain(certain..).map(|frame| frame.listed()).collect();
        let torn = scan.holes.iter().filter(|hole| !hole.damage);
        lost.extend(torn.flat_map(|hole| hole.lost.iter().copied()));
        lost.sort_by_key(|listed| listed.offset);
        lost.dedup_by_key(|listed| listed.offset);
        scan.holes.retain(|hole| hole.damage);
        scan.holes.push(Hole { offset: from, len: scan.data_end - from, damage: true, lost, certain: false });
        (scan.valid_to, scan.torn) = (from, None);
    }
}

/// Finds out what is in segments that were never sealed; the room `recover` does.
pub(crate) trait ScanUnsealed: Send + Sync {
    /// Whether a writer is still there.
    fn liveness(&self, writer: &Id) -> Liveness;

    /// Brings what is known of a segment up to date. `readable` are the readable segments of the same writer.
    fn scan(
        &self,
        storage: &Arc<Storage>,
        head: &SegmentHead,
        readable: &Arc<bodies::ReadableSegments>,
        facts: &UnsealedFacts,
        known: &mut Scanned,
    ) -> Result<()>;
}
