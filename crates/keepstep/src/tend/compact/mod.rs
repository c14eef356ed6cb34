//! Regroups the logs of writers that are gone by episode, compressed in blocks, while readers read and writers write.
//!
//! Nothing that counts is ever changed or missing: what is made is whole and synced before a manifest names it, and what
//! it replaces is deleted only when that manifest has been safe for a while. Of a writer all or nothing is taken.

mod blocks;
mod delete;
mod output;
mod publish;
mod shared;
mod sources;
#[cfg(test)]
mod tests;
mod units;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;

use super::closing::CloseLogs;
use super::report::Progress;
use crate::error::{Error, Result};
use crate::segment::{Manifest, Storage};

use delete::delete_due;
use publish::Published;
pub(super) use publish::put_in_force;
use sources::Sources;
pub(super) use sources::Wanted;

/// How many times a race is lost before it counts as trouble.
const TRIES_MAX: usize = 16;

/// How a store is compacted.
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct CompactOptions {
    /// How long what was replaced stays, for readers that opened it before.
    pub grace: Duration,
    /// About how long a segment becomes.
    pub segment_bytes_max: u64,
    /// About how much of one episode is compressed as one piece.
    pub block_bytes_max: usize,
    /// So much is regrouped before it is published; a store that is larger takes several rounds.
    pub round_bytes_max: u64,
}

/// The same, and how it is broken on purpose, for tests that must notice.
#[derive(Debug, Clone)]
pub(crate) struct CompactSetup {
    pub(crate) options: CompactOptions,
    pub(crate) faults: Faults,
}

impl Deref for CompactSetup {
    type Target = CompactOptions;

    fn deref(&self) -> &CompactOptions {
        &self.options
    }
}

/// Ways to get it wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// What is replaced is deleted before the manifest says so.
    pub(crate) deletes_first: bool,
    /// What is pruned is not looked at again after that was announced.
    pub(crate) prunes_what_it_saw: bool,
    /// Logs are replaced because their writers seem gone: nobody is asked.
    pub(crate) asks_nobody: bool,
    /// Nobody can tell afterwards where a record stood before, as 0.1 did it.
    pub(crate) forgets_origins: bool,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(3600),
            segment_bytes_max: 64 << 20,
            block_bytes_max: 2 << 20,
            round_bytes_max: 4 << 30,
        }
    }
}

impl CompactOptions {
    /// Sets how long what was replaced stays, for readers that opened it before.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets about how long a segment becomes.
    pub fn segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Sets about how much of one episode is compressed as one piece.
    pub fn block_bytes_max(mut self, bytes: usize) -> Self {
        self.block_bytes_max = bytes;
        self
    }

    /// Sets how much is regrouped before it is published.
    pub fn round_bytes_max(mut self, bytes: u64) -> Self {
        self.round_bytes_max = bytes;
        self
    }
}

/// A log that was not compacted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftAlone {
    /// Whose; nobody's, if it is what `compact` made earlier.
    pub writer: Id,
    /// Why.
    pub why: String,
}

/// What compacting did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// The logs of so many writers were regrouped.
    pub logs: u64,
    /// So many segments were replaced.
    pub segments_replaced: u64,
    /// How many bytes these had.
    pub bytes_before: u64,
    /// So many segments were made.
    pub segments_made: u64,
    /// How many bytes these have.
    pub bytes_after: u64,
    /// So many records were moved.
    pub records: u64,
    /// In so many blocks, the shared ones counted.
    pub blocks: u64,
    /// So many files were deleted, which an earlier call had named.
    pub files_deleted: u64,
    /// How many bytes these had.
    pub bytes_deleted: u64,
    /// So many files are named for deletion, and wait.
    pub files_waiting: u64,
    /// Logs that were not touched: their writer is alive, or something in them is damaged.
    pub left_alone: Vec<LeftAlone>,
}

/// Regroups all that can be.
pub(crate) fn compact(
    storage: &Arc<Storage>,
    closer: &dyn CloseLogs,
    options: &CompactSetup,
    progress: &mut dyn FnMut(Progress),
) -> Result<CompactReport> {
    let mut report = CompactReport::default();
    rewrite(storage, closer, options, &Wanted::All, &mut report, progress)?;
    Ok(report)
}

/// Regroups what is wanted, round by round; what was pruned is left out, for ever.
pub(super) fn rewrite(
    storage: &Arc<Storage>,
    closer: &dyn CloseLogs,
    options: &CompactSetup,
    wanted: &Wanted,
    report: &mut CompactReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let mut damaged = BTreeSet::new();
    let mut lost = 0;
    loop {
        let manifest = storage.renew_manifest()?;
        let gone = delete_due(storage, &manifest, options, report)?;
        let sources = Sources::find(storage, closer, &manifest, wanted, &damaged, options)?;
        report.left_alone.clone_from(&sources.left_alone);
        let plan = Plan { storage, manifest: &manifest, sources, options, gone };
        match plan.carry_out(report, progress) {
            Ok(Round::Done { is_last: true }) => return Ok(()),
            Ok(Round::Done { is_last: false }) => {}
            Ok(Round::LostRace) => {
                lost += 1;
                if lost >= TRIES_MAX {
                    let why = format!("{lost} manifests of others came first");
                    return Err(Error::Busy { what: "compacting".to_owned(), why });
                }
            }
            Err(Failed::Damaged(writer)) => {
                damaged.insert(writer);
            }
            Err(Failed::Error(error)) => return Err(error),
        }
    }
}

/// How a round ended.
enum Round {
    Done { is_last: bool },
    LostRace,
}

/// Why a round was given up.
#[derive(Debug)]
pub(super) enum Failed {
    /// Something in this log cannot be read: it is left as it is, so that what is damaged can still be restored.
    Damaged(Id),
    /// Something else.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// One round: what is read, and what it is based on.
struct Plan<'p> {
    storage: &'p Arc<Storage>,
    manifest: &'p Manifest,
    sources: Sources,
    options: &'p CompactSetup,
    /// Files that were named for deletion and are gone.
    gone: BTreeSet<String>,
}

impl Plan<'_> {
    fn carry_out(
        mut self,
        report: &mut CompactReport,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Round, Failed> {
        let is_last = !self.sources.has_more;
        let is_pruned = |id: &Id| self.manifest.pruned(id).is_some();
        let units = units::Units::of(&self.sources, &is_pruned)?;
        let mut made = output::Made::default();
        let (storage, manifest, options) = (self.storage, self.manifest, self.options);
        let written =
            output::write_all(storage, manifest, &mut self.sources, units, options, &mut made, progress);
        if let Err(failed) = written {
            made.remove(storage);
            return Err(failed);
        }
        // If this fails nobody knows whether the manifest is in force: then what was made has to stay.
        match publish::publish(&self, &made)? {
            Published::Done { files_waiting } => {
                self.sources.tell(report);
                made.tell(report);
                report.files_waiting = files_waiting;
                Ok(Round::Done { is_last })
            }
            Published::Taken => {
                made.remove(storage);
                Ok(Round::LostRace)
            }
        }
    }
}
