//! How far a store was reported, by names that records keep when they are moved.
//!
//! The name of a record is its origin: the log that it was recorded in, and its place there. The records of a writer
//! are reported in the order of their origins, so one origin for each writer says which were reported.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::commit::Bind;

/// Where a record stood in the log of its writer: segment and offset there. `compact` keeps it.
pub type Origin = (u64, u64);

/// After everything that a writer ever recorded: for logs that are gone.
pub(super) const ALL: Origin = (u64::MAX, u64::MAX);

/// Records with an unknown origin come after all others.
const UNKNOWN_SEGMENT: u64 = 1 << 63;

/// How far a store was reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// All logs that manifests up to this one replaced were reported, so they need no entry of their own.
    pub(crate) replaced_by: Option<u64>,
    /// For each other writer, the lowest origin that was not reported.
    pub(crate) writers: BTreeMap<Id, Origin>,
    /// Records that were reported although their writer could still give them up and write them again elsewhere.
    pub(crate) unsettled: Vec<Unsettled>,
}

/// A record that was reported before it was known to stay in its place: its writer seemed gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsettled {
    pub(crate) writer: Id,
    pub(crate) origin: Origin,
    pub(crate) bind: Bind,
    pub(crate) seq: u32,
}

impl Position {
    /// True if a record was reported, by its origin.
    pub(super) fn is_told(&self, writer: &Id, origin: Origin) -> bool {
        self.writers.get(writer).is_some_and(|next| origin < *next)
    }

    /// True if all records of a writer were reported whose log this manifest replaced.
    pub(super) fn is_behind(&self, writer: &Id, moved_by: Option<u64>) -> bool {
        let is_replaced = moved_by.is_some() && moved_by <= self.replaced_by;
        is_replaced || self.writers.get(writer) == Some(&ALL)
    }

    /// Notes that everything up to a record was reported.
    pub(super) fn pass(&mut self, writer: Id, (segment, offset): Origin) {
        self.writers.insert(writer, (segment, offset.saturating_add(1)));
    }

    /// Notes that a reported record is in another place now. False if it was not reported.
    pub(super) fn settle(&mut self, writer: &Id, bind: &Bind, seq: u32) -> bool {
        let count = self.unsettled.len();
        self.unsettled.retain(|it| (&it.writer, &it.bind, it.seq) != (writer, bind, seq));
        self.unsettled.len() < count
    }
}

/// The origin of a record whose place is unknown: 0.1 compacted its log, or the index that had it is damaged.
///
/// It stays the same when the record is moved, so that following stays exact. It is part of cursors that were given
/// out, and must not be computed in another way.
pub(super) fn unknown_origin(bind: &Bind, seq: u32) -> Origin {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bind.encode() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // One attempt after the other, each in the order of its records.
    (UNKNOWN_SEGMENT | hash >> 2, u64::from(seq))
}
