//! How far a store was told, by the names that records keep wherever they are moved.
//!
//! A record's name is its origin: whose log it was recorded in, and where it stood there. The records of a writer are told
//! in the order of their origins, so one origin a writer says which of them were told.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::commit::Bind;

/// Where a record stood in the log of its writer: segment and offset there. `compact` keeps it.
pub type Origin = (u64, u64);

/// Behind everything that a writer ever recorded: for logs that are no more.
pub(super) const ALL: Origin = (u64::MAX, u64::MAX);

/// Origins that nobody kept are told behind all that somebody did.
const UNKNOWN_SEGMENT: u64 = 1 << 63;

/// How far a store was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// Everything was told of the logs that were replaced by manifests up to this one; so nothing has to be known of each.
    pub(crate) replaced_by: Option<u64>,
    /// For each other writer the lowest origin that was not told.
    pub(crate) writers: BTreeMap<Id, Origin>,
    /// What was told although its writer could still give it up and write it again, elsewhere.
    pub(crate) unsettled: Vec<Unsettled>,
}

/// A record that was told before it was known to stay where it is: its writer seemed to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsettled {
    pub(crate) writer: Id,
    pub(crate) origin: Origin,
    pub(crate) bind: Bind,
    pub(crate) seq: u32,
}

impl Position {
    /// True if a record was told, as its origin says.
    pub(super) fn is_told(&self, writer: &Id, origin: Origin) -> bool {
        self.writers.get(writer).is_some_and(|next| origin < *next)
    }

    /// True if all was told that a writer recorded whose log that manifest replaced.
    pub(super) fn is_behind(&self, writer: &Id, moved_by: Option<u64>) -> bool {
        let is_replaced = moved_by.is_some() && moved_by <= self.replaced_by;
        is_replaced || self.writers.get(writer) == Some(&ALL)
    }

    /// Notes that all up to a record was told.
    pub(super) fn pass(&mut self, writer: Id, (segment, offset): Origin) {
        self.writers.insert(writer, (segment, offset.saturating_add(1)));
    }

    /// Takes note that a record, told before, stands elsewhere now. False if it was not told.
    pub(super) fn settle(&mut self, writer: &Id, bind: &Bind, seq: u32) -> bool {
        let count = self.unsettled.len();
        self.unsettled.retain(|it| (&it.writer, &it.bind, it.seq) != (writer, bind, seq));
        self.unsettled.len() < count
    }
}

/// The origin of a record whose place nobody kept: 0.1 compacted its log, or the index that had it is damaged.
///
/// The same wherever the record is moved, so that going on is exact as long as it stays unknown. It is part of the cursors
/// that were given, and must not be computed otherwise.
pub(super) fn unknown_origin(bind: &Bind, seq: u32) -> Origin {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bind.encode() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // One attempt behind the other, each in the order of its records.
    (UNKNOWN_SEGMENT | hash >> 2, u64::from(seq))
}
