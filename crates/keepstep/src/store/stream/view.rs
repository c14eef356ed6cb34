//! What readers of a stream are told.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::value::Value;

use crate::read::{KnownEntries, LostEntry, StreamEntry};

/// The entries of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamView {
    /// Ids and values, ordered by time.
    pub entries: Vec<(String, Value)>,
    /// Ids that were put with several values. They are not among the entries.
    pub conflicts: Vec<Conflict>,
    /// Entries that cannot be read, and places where entries may be lost.
    pub lost: Vec<LostEntry>,
    /// True if the stream is frozen and cannot change any more.
    pub is_frozen: bool,
    /// True if the stream was dropped. It then shows no entries.
    pub is_hidden: bool,
}

/// One id with several values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Conflict {
    /// The entry's id.
    pub id: String,
    /// The values and their writers, ordered by time.
    pub values: Vec<(Id, Value)>,
}

/// All that a look found.
pub(super) struct All {
    /// What was known before.
    pub(super) before: KnownEntries,
    pub(super) entries: Vec<StreamEntry>,
    pub(super) conflicts: Vec<StreamEntry>,
    pub(super) lost: Vec<LostEntry>,
    pub(super) is_frozen: bool,
    pub(super) is_hidden: bool,
}

impl All {
    pub(super) fn of(entries: Vec<StreamEntry>, conflicts: Vec<StreamEntry>, lost: Vec<LostEntry>) -> Self {
        let before = KnownEntries::default();
        Self { before, entries, conflicts, lost, is_frozen: false, is_hidden: false }
    }

    /// As it is told.
    pub(super) fn view(self) -> StreamView {
        let Self { entries, conflicts, lost, is_frozen, is_hidden, .. } = self;
        let entries = entries.into_iter().map(|entry| (entry.id, entry.value)).collect();
        StreamView { entries, conflicts: conflicts_of(conflicts), lost, is_frozen, is_hidden }
    }
}

/// The values of each id that has several.
pub(super) fn conflicts_of(entries: Vec<StreamEntry>) -> Vec<Conflict> {
    let mut by_id: BTreeMap<String, Vec<(Id, Value)>> = BTreeMap::new();
    for entry in entries {
        by_id.entry(entry.id).or_default().push((entry.writer, entry.value));
    }
    by_id.into_iter().map(|(id, values)| Conflict { id, values }).collect()
}
