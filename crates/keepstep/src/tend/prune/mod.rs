//! Deletes episodes on request, and leaves a note that says when and why.
//!
//! An episode is deleted as a whole or not at all. It disappears for readers with the manifest that has the note. Its
//! bytes are deleted after its logs were rewritten without it and the grace period is over. An episode that is opened
//! meanwhile stays: pruning is announced first, then writers that seem gone are stopped, then the owners are checked
//! again.

mod announce;
mod size;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;

use super::closing::CloseLogs;
use super::compact::{CompactReport, CompactSetup, Wanted, rewrite};
use super::report::Progress;
use crate::error::{Doing, Error, Result};
use crate::segment::{Pruned, Storage};

pub(crate) use announce::keep_from_pruning;

/// Which episodes to delete: those that match every field that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct PruneFilter {
    /// Of this run, by name: all its generations.
    pub run: Option<String>,
    /// Of this run, by its generation id.
    pub generation_id: Option<Id>,
    /// One of these; empty means all.
    pub episodes: Vec<Id>,
    /// Whose newest attempt has one of these endings; empty means all, also those without an end.
    pub endings: Vec<String>,
    /// Whose newest record is older than this.
    pub older_than: Option<Duration>,
    /// The reason, shown when a pruned episode is opened later.
    pub reason: String,
    /// How long their bytes stay, for readers that opened them before. `None` is the grace period of `compact`.
    pub grace: Option<Duration>,
}

impl PruneFilter {
    /// Only episodes of this run, by name: all its generations.
    pub fn run(mut self, run: impl Into<String>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Only episodes of this run, by its generation id.
    pub fn generation_id(mut self, generation_id: impl Into<Option<Id>>) -> Self {
        self.generation_id = generation_id.into();
        self
    }

    /// Only these episodes.
    pub fn episodes(mut self, episodes: impl IntoIterator<Item = Id>) -> Self {
        self.episodes = episodes.into_iter().collect();
        self
    }

    /// Only episodes whose newest attempt has one of these endings.
    pub fn endings(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.endings = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Only episodes whose newest record is older than this.
    pub fn older_than(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.older_than = age.into();
        self
    }

    /// Sets the reason, shown when a pruned episode is opened later.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets how long their bytes stay; `None` is the grace period of `compact`.
    pub fn grace(mut self, grace: impl Into<Option<Duration>>) -> Self {
        self.grace = grace.into();
        self
    }

    /// An error if no field is set: otherwise everything would be deleted.
    pub(crate) fn check(&self) -> Result<()> {
        let says_something = self.run.is_some()
            || self.generation_id.is_some()
            || !self.episodes.is_empty()
            || !self.endings.is_empty()
            || self.older_than.is_some();
        if says_something {
            return Ok(());
        }
        Err(Error::BadInput {
            field: "filter".to_owned(),
            value: "names nothing".to_owned(),
            fix: "say which episodes to delete, by run, episode, ending or age".to_owned(),
        })
    }

    /// True if an episode matches.
    fn fits(&self, episode: &Candidate, now: i64) -> bool {
        let age = episode.last_time.map(|time| now.saturating_sub(time));
        let is_old = |least: Duration| age.is_some_and(|age| age >= least.as_micros() as i64);
        self.run.as_ref().is_none_or(|run| episode.run.as_ref() == Some(run))
            && self.generation_id.is_none_or(|generation_id| episode.generation_id == Some(generation_id))
            && (self.episodes.is_empty() || self.episodes.contains(&episode.episode))
            && (self.endings.is_empty() || episode.why.as_ref().is_some_and(|why| self.endings.contains(why)))
            && self.older_than.is_none_or(is_old)
    }
}

/// An episode that may be pruned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its id.
    pub episode: Id,
    /// The name of its run.
    pub run: Option<String>,
    /// The id of its run's generation.
    pub generation_id: Option<Id>,
    /// Its task.
    pub task: Option<String>,
    /// The iteration.
    pub iteration: Option<i64>,
    /// The sample.
    pub sample: Option<i64>,
    /// Its attempts.
    pub attempts: Vec<u32>,
    /// How the newest attempt ended.
    pub why: Option<String>,
    /// The time of its last record, in microseconds since 1970.
    pub last_time: Option<i64>,
    /// How many records it has.
    pub records: u64,
    /// Why it cannot be deleted: it may still be recorded.
    pub running: Option<String>,
    /// True if it cannot be deleted because a card of it cannot be read: `running` says which.
    pub is_damaged: bool,
    /// Writers that seem gone and did not end the newest attempt. Their logs have to be closed first.
    pub left_by: Vec<Id>,
    /// Later attempts that were claimed by a writer that seems gone and never began. They must be kept from
    /// beginning.
    pub claimed: Vec<u32>,
}

impl Candidate {
    /// True if nothing was recorded in it since.
    fn is_as(&self, before: &Self) -> bool {
        let same = |it: &Self| (it.attempts.clone(), it.why.clone(), it.last_time, it.records);
        self.running.is_none() && same(self) == same(before)
    }
}

/// What `prune` did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// True if nothing was changed.
    pub is_dry_run: bool,
    /// The episodes that are deleted.
    pub episodes: Vec<Candidate>,
    /// Episodes that match the filter and stay, since they may be running.
    pub refused: Vec<Candidate>,
    /// How many bytes the records of the deleted episodes take now.
    pub bytes: u64,
    /// What rewriting the logs did.
    pub compacted: CompactReport,
}

/// Knows the episodes of a store. `store` implements it.
pub(crate) trait Episodes {
    /// All episodes as they are now.
    fn look(&self) -> Result<Vec<Candidate>>;

    /// Stops writers that seem gone from continuing these episodes: closes logs, and keeps claims from becoming
    /// attempts. Returns the episodes that a process continues all the same, and why.
    fn stop(&self, episodes: &[Candidate]) -> Result<BTreeMap<Id, String>>;
}

/// Prunes the episodes that match. With `is_dry_run`, nothing is changed.
pub(crate) fn prune(
    storage: &Arc<Storage>,
    closer: &dyn CloseLogs,
    how: &CompactSetup,
    filter: &PruneFilter,
    all: &dyn Episodes,
    is_dry_run: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<PruneReport> {
    filter.check()?;
    let now = storage.disk().now_us();
    let fitting = all.look()?.into_iter().filter(|episode| filter.fits(episode, now));
    let (refused, episodes): (Vec<_>, Vec<_>) = fitting.partition(|episode| episode.running.is_some());
    let mut report = PruneReport { is_dry_run, episodes, refused, ..PruneReport::default() };
    if !is_dry_run && !report.episodes.is_empty() {
        note(storage, how, filter, all, &mut report)?;
    }
    let mut ids: BTreeSet<Id> = report.episodes.iter().map(|episode| episode.episode).collect();
    report.bytes = size::bytes_of(storage, closer.scan(), &ids)?;
    if is_dry_run {
        return Ok(report);
    }
    // Also episodes that an earlier call noted and could not rewrite.
    ids.extend(storage.renew_manifest()?.pruned_episodes());
    rewrite(storage, closer, how, &Wanted::Episodes(ids), &mut report.compacted, progress)?;
    Ok(report)
}

/// Notes the episodes as pruned. Those that were opened meanwhile are refused.
fn note(
    storage: &Storage,
    how: &CompactSetup,
    filter: &PruneFilter,
    all: &dyn Episodes,
    report: &mut PruneReport,
) -> Result<()> {
    let mut by = Id::NONE;
    storage.disk().random(&mut by.0).doing("find an id for", "pruning")?;
    let ids = report.episodes.iter().map(|episode| episode.episode).collect();
    announce::announce(storage, &ids, by)?;
    let going_on = if how.faults.asks_nobody { BTreeMap::new() } else { all.stop(&report.episodes)? };
    let again = if how.faults.prunes_what_it_saw { report.episodes.clone() } else { all.look()? };
    let again: BTreeMap<Id, Candidate> = again.into_iter().map(|it| (it.episode, it)).collect();
    let is_same = |it: &Candidate| {
        !going_on.contains_key(&it.episode) && again.get(&it.episode).is_some_and(|again| again.is_as(it))
    };
    let time = storage.disk().now_us();
    let note = |it: &Candidate, attempt: u32| {
        let (episode, reason) = (it.episode, filter.reason.clone());
        Pruned { episode, attempt, reason, time }
    };
    let same = report.episodes.iter().filter(|it| is_same(it));
    let notes: Vec<Pruned> =
        same.flat_map(|it| it.attempts.iter().map(move |attempt| note(it, *attempt))).collect();
    announce::note(storage, &by, &notes)?;
    let manifest = storage.renew_manifest()?;
    let noted = |it: &Candidate| manifest.pruned(&it.episode).is_some();
    let (episodes, changed) = std::mem::take(&mut report.episodes).into_iter().partition(noted);
    report.episodes = episodes;
    let changed: Vec<Candidate> = changed;
    report.refused.extend(changed.into_iter().map(|it| {
        let changed = || "it was opened, or recorded to, while it was being pruned".to_owned();
        let running = Some(going_on.get(&it.episode).cloned().unwrap_or_else(changed));
        Candidate { running, ..it }
    }));
    Ok(())
}
