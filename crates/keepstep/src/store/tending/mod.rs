//! Runs `compact` and `prune` with what the store knows of owners and episodes.

pub(in crate::store) mod closing;
pub(in crate::store) mod gone;

use std::collections::{BTreeMap, BTreeSet};

use keepstep_format::Id;

use crate::error::{Result, or_told};
use crate::own::OwnerState;
use crate::read::{AttemptInfo, Catalog};
use crate::segment::Pruned;
use crate::segment::chain::Chain;
use crate::store::Store;
use crate::tend::{
    self, Candidate, CloseLogs, CompactOptions, CompactReport, CompactSetup, Episodes, Faults, Progress,
    PruneFilter, PruneReport,
};

impl Store {
    /// Rewrites the logs of exited writers, grouped by episode and compressed in blocks. Readers and writers continue
    /// meanwhile.
    ///
    /// The replaced logs are deleted by a later call, after the grace period.
    pub fn compact(
        &self,
        options: CompactOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CompactReport> {
        self.check_open()?;
        tend::compact(&self.storage_as_it_is(), &self.closer(), &self.how(options), progress)
    }

    /// Deletes the episodes that match `what`, each as a whole, and leaves a note that is shown when one is opened.
    /// With `dry_run` it only reports what would be deleted.
    ///
    /// An episode that may still be recorded stays. Pruned episodes disappear for readers at once. Their bytes are
    /// deleted by a later call of this or of [`Store::compact`], after the grace period, when the writers that share
    /// the logs are gone.
    pub fn prune(
        &self,
        what: &PruneFilter,
        dry_run: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PruneReport> {
        let mut options = CompactOptions::default();
        options.grace = what.grace.unwrap_or(options.grace);
        self.prune_with(what, options, dry_run, progress)
    }

    /// As [`Store::prune`], with options for rewriting the logs.
    pub fn prune_with(
        &self,
        what: &PruneFilter,
        options: CompactOptions,
        dry_run: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PruneReport> {
        self.check_open()?;
        let storage = self.storage_as_it_is();
        tend::prune(&storage, &self.closer(), &self.how(options), what, self, dry_run, progress)
    }

    /// When and why an episode was pruned, if it was.
    pub fn pruned(&self, episode: &Id) -> Result<Option<Pruned>> {
        self.check_process()?;
        Ok(self.inner.place.tended.renew_manifest()?.pruned(episode).cloned())
    }

    /// An error if the episode was pruned, checked before it is opened. If nothing was compacted or pruned since the
    /// last check, this is one look-up.
    pub(crate) fn refuse_pruned(&self, episode: &Id) -> Result<()> {
        self.check_process()?;
        self.inner.place.tended.renew_manifest()?.refuse_pruned(episode)
    }

    /// The options, with the rules that tests break on purpose.
    fn how(&self, options: CompactOptions) -> CompactSetup {
        let deletes_first = self.inner.place.options.is_broken_delete_before_manifest();
        let prunes_what_it_saw = self.inner.place.options.is_broken_prune_looks_once();
        let asks_nobody = self.inner.place.options.is_broken_close_by_evidence();
        let faults = Faults { deletes_first, prunes_what_it_saw, asks_nobody };
        CompactSetup { options, faults }
    }

    /// For a process that has claimed an episode that another one recorded: withdraws it from pruning. An error if it
    /// was pruned before.
    pub(in crate::store) fn keep_from_pruning(&self, episode: &Id) -> Result<()> {
        if self.inner.place.options.is_broken_open_looks_once() {
            return Ok(());
        }
        tend::keep_from_pruning(&self.inner.place.tended, episode)
    }

    /// All episodes, and whether each may still be recorded.
    fn candidates(&self, catalog: &mut Catalog) -> Result<Vec<Candidate>> {
        let mut episodes: BTreeMap<Id, Vec<AttemptInfo>> = BTreeMap::new();
        for info in catalog.attempts()? {
            episodes.entry(info.key.episode).or_default().push(info);
        }
        let episodes = episodes.into_iter();
        episodes.map(|(episode, attempts)| self.candidate(episode, &attempts)).collect()
    }

    fn candidate(&self, episode: Id, attempts: &[AttemptInfo]) -> Result<Candidate> {
        let newest = attempts.iter().map(|info| info.key.attempt).max().unwrap_or(0);
        let mut numbers: Vec<u32> = attempts.iter().map(|info| info.key.attempt).collect();
        numbers.dedup();
        let last: Vec<&AttemptInfo> = attempts.iter().filter(|info| info.key.attempt == newest).collect();
        let said = last.iter().find_map(|info| info.summary.why.clone());
        // What its owner recorded after another process had found its end was refused.
        let (found, trouble) = or_told(self.found_end(&episode, newest))?;
        let found = found.flatten().map(|(why, _)| why);
        let is_said = said.is_some() && found.is_none();
        let why = found.or(said);
        let named = attempts.iter().map(|info| &info.summary);
        let mut candidate = Candidate {
            episode,
            run: named.clone().find_map(|it| it.run.clone()),
            generation_id: named.clone().find_map(|it| it.generation_id),
            task: named.clone().find_map(|it| it.task.clone()),
            iteration: named.clone().find_map(|it| it.iteration),
            sample: named.clone().find_map(|it| it.sample),
            attempts: numbers,
            why,
            last_time: named.filter_map(|it| it.last_time).max(),
            records: attempts.iter().map(|info| info.records).sum(),
            running: None,
            is_damaged: false,
            left_by: Vec::new(),
            claimed: Vec::new(),
        };
        let (_, unread) = or_told(self.find_who_may_go_on(&mut candidate, &last, is_said))?;
        // If an episode cannot be read, a process may have it. It stays; the others can be deleted.
        if let Some(error) = trouble.or(unread) {
            candidate.is_damaged = true;
            candidate.running = Some(format!("it is unknown whether a process has it: {error}"));
        }
        Ok(candidate)
    }

    /// Finds the writers that may continue an episode: its newest attempt has not ended, or the next one is claimed.
    /// A live writer keeps the episode from being deleted; a writer that seems gone must be stopped first.
    fn find_who_may_go_on(
        &self,
        candidate: &mut Candidate,
        last: &[&AttemptInfo],
        is_said: bool,
    ) -> Result<()> {
        let newest = last.first().map_or(0, |info| info.key.attempt);
        if !is_said {
            for writer in last.iter().map(|info| info.key.writer) {
                if let Some(here) = self.who_is_there(&writer) {
                    candidate.running = Some(format!("attempt {newest} has no end, and its writer {here}"));
                }
                candidate.left_by.push(writer);
            }
        }
        let chain = Chain::read(&self.inner.place.tended, &candidate.episode)?;
        for link in chain.behind(newest).iter().filter(|link| !link.is_void && !link.is_over()) {
            let attempt = link.claim.attempt;
            if let Some(here) = self.who_is_there(&link.claim.writer) {
                candidate.running = Some(format!("attempt {attempt} is claimed by a writer that {here}"));
            }
            match &link.base {
                // The attempt began, and has recorded nothing. It counts: how an earlier one ended does not.
                Some(_) => {
                    candidate.why = self.found_end(&candidate.episode, attempt)?.map(|(why, _)| why);
                    candidate.left_by.push(link.claim.writer);
                }
                None => candidate.claimed.push(attempt),
            }
        }
        Ok(())
    }
}

impl Store {
    /// Why a writer may be alive. Deleting waits until a writer whose lock is free was silent for a lease: it may
    /// have lost only its lock, and deleted data does not come back.
    fn who_is_there(&self, writer: &Id) -> Option<String> {
        if self.leases().state(writer) == OwnerState::Live {
            return Some("is alive".to_owned());
        }
        let ago = self.leases().heard_lately(writer)?;
        let left = (self.leases().lease() - ago).as_secs() + 1;
        Some(format!("was heard of {} s ago: try again in {left} s", ago.as_secs()))
    }
}

impl Episodes for Store {
    fn look(&self) -> Result<Vec<Candidate>> {
        self.candidates(&mut self.catalog()?)
    }

    fn stop(&self, episodes: &[Candidate]) -> Result<BTreeMap<Id, String>> {
        let mut going_on = BTreeMap::new();
        for it in episodes {
            for &attempt in &it.claimed {
                let why = match or_told(self.pass_over(&it.episode, attempt))? {
                    (Some(true), _) => continue,
                    (_, Some(error)) => error.to_string(),
                    (_, None) => format!("attempt {attempt} has begun"),
                };
                going_on.insert(it.episode, why);
            }
        }
        let writers: BTreeSet<Id> = episodes.iter().flat_map(|it| it.left_by.iter().copied()).collect();
        let not_closed = self.closer().close(&writers.into_iter().collect::<Vec<_>>())?;
        for it in episodes {
            if let Some(why) = it.left_by.iter().find_map(|writer| not_closed.get(writer)) {
                going_on.insert(it.episode, why.to_string());
            }
        }
        Ok(going_on)
    }
}
