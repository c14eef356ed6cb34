//! Reads a store while processes write to it: lists of attempts, their records and steps, and new records as they
//! arrive.
//!
//! Damage is reported with its place. It is never left out and never guessed.

mod attempt;
mod catalog;
mod events;
mod fold;
mod follow;
mod item;
mod kinds;
mod known_entries;
mod lineage;
mod notes;
mod outcomes;
mod places;
mod records;
mod sizes;
mod step;
mod steps;
mod streams;
#[cfg(test)]
mod tests;
mod under_way;

pub use crate::segment::chain::Span;
pub use attempt::AttemptReader;
pub use catalog::{AttemptInfo, AttemptKey, Catalog, Trouble};
pub use events::Events;
pub(crate) use follow::Follow;
pub use follow::{FollowFrom, Followed, Origin, Position, Stopper};
pub(crate) use follow::{Kept, Unsettled};
pub use item::{DamagedRecord, Gap, Item, Record, RecordPlace};
// All of them: a new kind of record is named in that file alone.
pub use kinds::*;
pub(crate) use known_entries::KnownEntries;
pub use lineage::LineagePart;
pub(crate) use lineage::{Lineage, LineageCursor};
pub use notes::{LostNotes, NoteIndex, NoteKey, NoteSaid, NoteTarget, Notes, SealHint};
pub(crate) use outcomes::Outcomes;
pub use records::Records;
pub use sizes::Sizes;
pub use step::{Held, RecordedStep, StepKind};
pub(crate) use streams::{EntrySet, WriterEntries, stream_bind, stream_entries};
pub use streams::{LostEntry, StreamEntry};
