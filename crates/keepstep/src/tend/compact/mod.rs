//! Rewrites the logs of exited writers, grouped by episode and compressed in blocks, while readers read and writers
//! write.
//!
//! Nothing that counts is ever changed or missing: new segments are whole and synced before a manifest names them,
//! and the old ones are deleted only after that manifest was synced for a while. The log of a writer is taken as a
//! whole or not at all.

mod blocks;
mod catalog;
mod delete;
mod notes;
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
use crate::segment::{Log, Manifest, Storage};

use delete::delete_due;
use publish::Published;
pub(super) use publish::put_in_force;
use sources::Sources;
pub(super) use sources::Wanted;

/// How often a race may be lost before this is an error.
const TRIES_MAX: usize = 16;

/// How a store is compacted.
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct CompactOptions {
    /// How long replaced files stay, for readers that opened them before.
    pub grace: Duration,
    /// About how many bytes a segment has.
    pub segment_bytes_max: u64,
    /// How many episodes (streams, runs) a segment has at most. Whoever looks for one of them reads the index of all.
    pub subjects_max: usize,
    /// About how many bytes of one episode are compressed as one piece.
    pub block_bytes_max: usize,
    /// How many bytes are rewritten before they are published. A larger store takes several rounds.
    pub round_bytes_max: u64,
}

/// The options, and the rules that tests break on purpose.
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

/// Rules that a test can break.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Replaced logs are deleted before the manifest names them.
    pub(crate) deletes_first: bool,
    /// Episodes to prune are not checked again after the announcement.
    pub(crate) prunes_what_it_saw: bool,
    /// Logs of writers that seem gone are replaced without asking them.
    pub(crate) asks_nobody: bool,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(3600),
            segment_bytes_max: 64 << 20,
            subjects_max: 4096,
            block_bytes_max: 2 << 20,
            round_bytes_max: 4 << 30,
        }
    }
}

impl CompactOptions {
    /// Sets how long replaced files stay, for readers that opened them before.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets about how many bytes a segment has.
    pub fn segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Sets how many episodes (streams, runs) a segment has at most.
    pub fn subjects_max(mut self, subjects: usize) -> Self {
        self.subjects_max = subjects;
        self
    }

    /// Sets about how many bytes of one episode are compressed as one piece.
    pub fn block_bytes_max(mut self, bytes: usize) -> Self {
        self.block_bytes_max = bytes;
        self
    }

    /// Sets how many bytes are rewritten before they are published.
    pub fn round_bytes_max(mut self, bytes: u64) -> Self {
        self.round_bytes_max = bytes;
        self
    }
}

/// A log that was left as it is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftAlone {
    /// Its writer; `Id::NONE` for segments that `compact` made earlier.
    pub writer: Id,
    /// Why it was left alone.
    pub why: String,
}

/// What `compact` did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// How many writers' logs were rewritten.
    pub logs: u64,
    /// How many segments were replaced.
    pub segments_replaced: u64,
    /// How many bytes these had.
    pub bytes_before: u64,
    /// How many segments were made.
    pub segments_made: u64,
    /// How many bytes these have.
    pub bytes_after: u64,
    /// How many records were moved.
    pub records: u64,
    /// How many blocks they are in, shared ones included.
    pub blocks: u64,
    /// How many files were deleted that an earlier call had named.
    pub files_deleted: u64,
    /// How many bytes these had.
    pub bytes_deleted: u64,
    /// How many files are named for deletion and still wait.
    pub files_waiting: u64,
    /// Logs that were left alone: their writer is alive, or something in them is damaged.
    pub left_alone: Vec<LeftAlone>,
}

impl CompactReport {
    /// Adds what a call that followed at once did.
    pub fn add(&mut self, next: Self) {
        self.logs += next.logs;
        self.segments_replaced += next.segments_replaced;
        self.bytes_before += next.bytes_before;
        self.segments_made += next.segments_made;
        self.bytes_after += next.bytes_after;
        self.records += next.records;
        self.blocks += next.blocks;
        self.files_deleted += next.files_deleted;
        self.bytes_deleted += next.bytes_deleted;
        (self.files_waiting, self.left_alone) = (next.files_waiting, next.left_alone);
    }
}

/// Rewrites everything that can be.
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

/// Rewrites what is wanted, round by round. Pruned episodes are left out.
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
            Ok(Round::Done { is_last: true }) => {
                // Everything is there without it, so what prevents it is no failure of the whole.
                if let Err(error) = renew_catalog(storage, closer) {
                    let why = format!("what is in it is not in the catalog: {error}");
                    report.left_alone.push(LeftAlone { writer: Id::NONE, why });
                }
                return Ok(());
            }
            Ok(Round::Done { is_last: false }) => {}
            Ok(Round::LostRace) => {
                lost += 1;
                if lost >= TRIES_MAX {
                    let why = format!("{lost} manifests of other processes came first");
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

fn renew_catalog(storage: &Arc<Storage>, closer: &dyn CloseLogs) -> Result<()> {
    storage.renew_manifest()?;
    let mut grouped = Log::of_compact(Arc::clone(storage));
    grouped.refresh(closer.scan())?;
    catalog::renew(storage, &grouped)
}

/// How a round ended.
enum Round {
    Done { is_last: bool },
    LostRace,
}

/// Why a round was given up.
#[derive(Debug)]
pub(super) enum Failed {
    /// Something in this log cannot be read. It is left as it is, so that damaged data can still be restored.
    Damaged(Id),
    /// Something else.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// One round: its sources, and the manifest that it is based on.
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
        // If this fails, it is unknown whether the manifest is in force, so the new segments must stay.
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
