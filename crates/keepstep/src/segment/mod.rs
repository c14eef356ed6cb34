//! Reads segment files: their names, headers, records and indexes.
//!
//! All reading code builds on this module. Nothing here writes to a segment, and no byte is trusted before its
//! checksum was checked.

pub(crate) mod bodies;
pub(crate) mod cards;
pub(crate) mod catalog_files;
pub(crate) mod chain;
pub(crate) mod closed;
pub(crate) mod counted;
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

/// Whether the process that records to a log is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// It is alive: what is not synced yet may still be completed, or given up.
    Live,
    /// It is gone: nothing will be added.
    Dead,
    /// This cannot be told from here.
    Unknown,
}

/// What is known of an unsealed segment beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsealedFacts {
    /// Whether its writer is alive.
    pub liveness: Liveness,
    /// Its length.
    pub file_bytes: u64,
    /// Its trailer, if it was sealed and its index cannot be read.
    pub trailer: Option<Trailer>,
    /// A later segment of the same writer has a frame, and does not void this one.
    pub complete: bool,
    /// Frames from here on do not count.
    pub voided_from: Option<u64>,
    /// Its length when it was sealed, if it was.
    pub sealed_bytes: Option<u64>,
    /// True if a later segment has a header that cannot be read: it may have voided this one.
    pub void_is_unknown: bool,
}

impl UnsealedFacts {
    /// True if nothing in the segment changes any more, whether or not its writer lives.
    pub(crate) fn is_settled(&self) -> bool {
        let was_closed = self.voided_from.is_some() || self.trailer.is_some() || self.sealed_bytes.is_some();
        self.liveness == Liveness::Dead || self.complete || was_closed || self.void_is_unknown
    }

    /// The same for the scanner.
    pub(crate) fn rules(&self) -> Rules {
        let complete = !self.void_is_unknown && (self.complete || self.sealed_bytes.is_some());
        Rules {
            trailer: self.trailer,
            complete,
            voided_from: self.voided_from,
            sealed_bytes: self.sealed_bytes,
        }
    }

    /// Records above `synced_to` may have been given up and written again with other content: then only their names
    /// are reported.
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

/// Scans segments that were never sealed. `recover` implements it.
pub(crate) trait ScanUnsealed: Send + Sync {
    /// Whether a writer is alive.
    fn liveness(&self, writer: &Id) -> Liveness;

    /// Updates what is known of a segment. `readable` are the readable segments of the same writer.
    fn scan(
        &self,
        storage: &Arc<Storage>,
        head: &SegmentHead,
        readable: &Arc<bodies::ReadableSegments>,
        facts: &UnsealedFacts,
        known: &mut Scanned,
    ) -> Result<()>;
}
