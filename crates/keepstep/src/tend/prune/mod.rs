//! Deletes episodes because somebody asked for it, and leaves a note that says when and why.
//!
//! An episode goes as a whole or not at all. It is gone for readers with the manifest that has the note; its bytes go
//! when the logs that hold them were regrouped without it and the grace period is over. What somebody opens meanwhile
//! stays: pruning is announced first, then whoever seems gone is kept from going on, then it is looked again who has what.

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

/// Which episodes are to go: those that fit all that is said. What is not said fits all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct PruneFilter {
    /// Of this run, by name: all its generations.
    pub run: Option<String>,
    /// Of this run, by its generation id.
    pub generation_id: Option<Id>,
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

    /// Only episodes whose newest attempt ended in one of these ways.
    pub fn endings(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.endings = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Only episodes whose newest record is older than this.
    pub fn older_than(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.older_than = age.into();
        self
    }

    /// Sets why they go, for whoever looks for them later.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets how long their bytes stay; `None` is as long as `compact` keeps what it replaced.
    pub fn grace(mut self, grace: impl Into<Option<Duration>>) -> Self {
        self.grace = grace.into();
        self
    }

    /// An error if it says nothing: then everything would go.
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
            fix: "say which episodes go, by run, episode, ending or age".to_owned(),
        })
    }

    /// True if an episode fits.
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

/// An episode, as far as it matters to pruning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Which.
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
    /// How the newest of them ended.
    pub why: Option<String>,
    /// When something was recorded in it last, in microseconds since 1970.
    pub last_time: Option<i64>,
    /// How many records it has.
    pub records: u64,
    /// Why it cannot go: somebody may still be recording it.
    pub running: Option<String>,
    /// It cannot go since a card of it cannot be read: `running` says which.
    pub is_damaged: bool,
    /// Writers that seem gone, and never said how the newest attempt ended: their logs have to be closed first.
    pub left_by: Vec<Id>,
    /// Attempts behind it that were claimed by somebody who seems gone, and never began: nobody may begin them any more.
    pub claimed: Vec<u32>,
}

impl Candidate {
    /// True if nothing was recorded in it since.
    fn is_as(&self, before: &Self) -> bool {
        let same = |it: &Self| (it.attempts.clone(), it.why.clone(), it.last_time, it.records);
        self.running.is_none() && same(self) == same(before)
    }
}

/// What pruning did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
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

/// Knows the episodes of a store. `store` does.
pub(crate) trait Episodes {
    /// All as they are now.
    fn look(&self) -> Result<Vec<Candidate>>;

    /// Sees to it that nobody who seems gone goes on with these: closes logs, and keeps claims from becoming attempts.
    /// Gives the episodes that somebody goes on with all the same, and why.
    fn stop(&self, episodes: &[Candidate]) -> Result<BTreeMap<Id, String>>;
}

/// Prunes the episodes that fit. With `is_dry_run` nothing is changed.
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
    // Also what an earlier call noted and could not regroup.
    ids.extend(storage.renew_manifest()?.pruned_episodes());
    rewrite(storage, closer, how, &Wanted::Episodes(ids), &mut report.compacted, progress)?;
    Ok(report)
}

/// Notes the episodes as pruned, but for those that somebody opened meanwhile: these are refused.
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
        let changed = || "somebody opened it, or it went on, while it was being pruned".to_owned();
        let running = Some(going_on.get(&it.episode).cloned().unwrap_or_else(changed));
        Candidate { running, ..it }
    }));
    Ok(())
}
