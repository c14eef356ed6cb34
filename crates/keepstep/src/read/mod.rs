//! Reads a store while processes write to it: lists of attempts, their records and steps, and new records as they
//! arrive.
//!
//! Damage is reported with its place. It is never left out and never guessed.

mod attempt;
mod catalog;
mod events;
mod fold;
mod follow;
mod lineage;
mod notes;
mod outcomes;
mod places;
mod records;
mod sizes;
mod step;
mod streams;
#[cfg(test)]
mod tests;
mod under_way;

pub use crate::segment::chain::Span;
pub use attempt::{Attempt, AttemptReader};
pub use catalog::{AttemptInfo, AttemptKey, Catalog, Trouble};
pub use events::Events;
pub use fold::EpisodeEvent;
pub(crate) use follow::Unsettled;
pub use follow::{Follow, FollowFrom, Followed, Origin, Position, Stopper};
pub use lineage::LineagePart;
pub(crate) use lineage::{Lineage, LineageCursor};
pub use notes::{LostNotes, NoteIndex, NoteKey, NoteSaid, NoteTarget, Notes, SealHint};
pub(crate) use outcomes::Outcomes;
pub use places::RecordPlace;
pub use records::{DamagedRecord, Gap, Item, Record, Records};
pub use sizes::Sizes;
pub use step::{Begin, Call, Discarded, End, Note, RecordedStep, StepKind, is_final};
pub(crate) use streams::{EntrySet, stream_bind, stream_entries};
pub use streams::{LostEntry, StreamEntry};
