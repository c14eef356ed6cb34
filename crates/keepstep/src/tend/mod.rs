//! Looks after a whole store: finds and places all damage, says what it cost, and mends what can be mended.
//!
//! Nothing that was written is ever changed: what is mended is published beside it.

mod bases;
mod blocks;
mod cards;
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

pub(crate) use closing::CloseLogs;
pub use compact::{CompactOptions, CompactReport, LeftAlone};
pub(crate) use compact::{CompactSetup, Faults, compact};
pub use heal::HealReport;
pub(crate) use heal::heal;
pub use prune::{Candidate, PruneFilter, PruneReport};
pub(crate) use prune::{Episodes, keep_from_pruning, prune};
pub use report::{Counts, Damage, Lost, Missing, Progress, Report, Torn, Wrong};
pub(crate) use verify::verify;
