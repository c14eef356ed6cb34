//! Deletes episodes because somebody asked for it, and leaves a note that says when and why.
//!
//! An episode goes as a whole or not at all. It is gone for readers with the manifest that has the note; its bytes go
//! when the logs that hold them were regrouped without it and the grace period is over.

mod size;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;

use super::compact::{CompactReport, How, Wanted, rewrite};
use super::report::Progress;
use crate::error::{Error, Result};
use crate::segment::{Pruned, ScanUnsealed, Storage};

/// Which episodes are to go: those that fit all that is said. What is not said fits all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneFilter {
    /// Of this run, by name.
    pub run: Option<String>,
    /// One of these; none are all.
    pub episodes: Vec<Id>,
    /// Whose newest attempt ended in one of these ways; none are all, also those that did not end.
    pub endings: Vec<String>,
    /// Whose newest record is older than this.
    pub older_than: Option<Duration>,
    /// Why, for whoever looks for them later.
    pub reason: String,
    /// How long their bytes stay, for readers that opened them before. None: as long as `compact` keeps what it replaced.
    pub grace: Option<Duration>,
}

impl PruneFilter {
    /// An error if it says nothing: then everything would go.
    pub(crate) fn check(&self) -> Result<()> {
        let says_something = self.run.is_some()
            || !self.episodes.is_empty()
            || !self.endings.is_empty()
            || self.older_than.is_some();
        if says_something {
            return Ok(());
        }
        Err(Error::BadInput {
            field: "filter".to_owned(),
            value: "names nothing".to_owned(),
            fix: "say which episodes go, by run, episode, ending or age".to_owned(),
        })
    }

    /// True if an episode fits.
    fn fits(&self, episode: &Candidate, now: i64) -> bool {
        let age = episode.last_time.map(|time| now.saturating_sub(time));
        let is_old = |least: Duration| age.is_some_and(|age| age >= least.as_micros() as i64);
        self.run.as_ref().is_none_or(|run| episode.run.as_ref() == Some(run))
            && (self.episodes.is_empty() || self.episodes.contains(&episode.episode))
            && (self.endings.is_empty() || episode.why.as_ref().is_some_and(|why| self.endings.contains(why)))
            && self.older_than.is_none_or(is_old)
    }
}

/// An episode, as far as it matters to pruning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub episode: Id,
    /// The name of its run.
    pub run: Option<String>,
    /// Its task.
    pub task: Option<String>,
    /// The iteration.
    pub iteration: Option<i64>,
    /// The sample.
    pub sample: Option<i64>,
    /// Its attempts.
    pub attempts: Vec<u32>,
    /// How the newest of them ended.
    pub why: Option<String>,
    /// When something was recorded in it last, in microseconds since 1970.
    pub last_time: Option<i64>,
    /// How many records it has.
    pub records: u64,
    /// Why it cannot go: somebody may still be recording it.
    pub running: Option<String>,
}

/// What pruning did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Nothing was done.
    pub is_dry_run: bool,
    /// The episodes that go.
    pub episodes: Vec<Candidate>,
    /// Those that fit the filter and stay, since they are still running.
    pub refused: Vec<Candidate>,
    /// How many bytes the records of those that go take now.
    pub bytes: u64,
    /// What regrouping the rest did.
    pub compacted: CompactReport,
}

/// Prunes those of `candidates` that fit. With `is_dry_run` nothing is changed.
pub(crate) fn prune(
    storage: &Arc<Storage>,
    scan: &dyn ScanUnsealed,
    how: &How,
    filter: &PruneFilter,
    candidates: Vec<Candidate>,
    is_dry_run: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<PruneReport> {
    filter.check()?;
    let now = storage.disk().now_us();
    let fitting = candidates.into_iter().filter(|episode| filter.fits(episode, now));
    let (refused, episodes): (Vec<_>, Vec<_>) = fitting.partition(|episode| episode.running.is_some());
    let ids: BTreeSet<Id> = episodes.iter().map(|episode| episode.episode).collect();
    let bytes = size::bytes_of(storage, scan, &ids)?;
    let compacted = CompactReport::default();
    let mut report = PruneReport { is_dry_run, episodes, refused, bytes, compacted };
    if is_dry_run {
        return Ok(report);
    }
    let note = |episode: &Candidate, attempt: u32| Pruned {
        episode: episode.episode,
        attempt,
        reason: filter.reason.clone(),
        time: now,
    };
    let pruned: Vec<Pruned> = report
        .episodes
        .iter()
        .flat_map(|episode| episode.attempts.iter().map(move |attempt| note(episode, *attempt)))
        .collect();
    rewrite(storage, scan, how, &Wanted::Episodes(ids), &pruned, &mut report.compacted, progress)?;
    Ok(report)
}
