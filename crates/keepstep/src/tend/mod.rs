//! Tends a whole store: `verify` finds all damage and what it cost, `heal` repairs what it can; `compact` and `prune`
//! make it smaller.
//!
//! Nothing that was written is ever changed: repairs are published beside it.

mod bases;
mod blocks;
mod cards;
mod catalogs;
mod closing;
mod compact;
mod frames;
mod heal;
mod named;
mod prune;
mod report;
mod subjects;
#[cfg(test)]
mod tests;
mod values;
mod verify;

pub(crate) use closing::{CloseLogs, NotClosed};
pub use compact::{CompactOptions, CompactReport, LeftAlone};
pub(crate) use compact::{CompactSetup, Faults, compact};
pub use heal::HealReport;
pub(crate) use heal::heal;
pub use prune::{Candidate, PruneFilter, PruneReport};
pub(crate) use prune::{Episodes, keep_from_pruning, prune};
pub use report::{Counts, Damage, Lost, Missing, Progress, Report, Torn, Wrong};
pub(crate) use verify::verify;
