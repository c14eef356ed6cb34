//! Tending a store, from here: regrouping what writers left, and deleting what nobody wants any more.

use std::collections::BTreeMap;

use keepstep_format::Id;

use super::Store;
use crate::error::Result;
use crate::read::{AttemptInfo, Catalog};
use crate::segment::Pruned;
use crate::segment::chain::Chain;
use crate::tend::{
    self, Candidate, CompactOptions, CompactReport, Faults, How, Progress, PruneFilter, PruneReport,
};

impl Store {
    /// Regroups the logs of writers that are gone by episode, compressed in blocks. Readers and writers go on meanwhile.
    ///
    /// What was replaced is deleted by a later call, when the grace period is over.
    pub fn compact(
        &self,
        options: CompactOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CompactReport> {
        tend::compact(&self.storage(), &*self.recovery(), &self.how(options), progress)
    }

    /// Deletes the episodes that fit `what`, each as a whole, and leaves a note that opening one shows. With `dry_run` it
    /// only says what would go.
    ///
    /// An episode that somebody may still be recording stays. Its bytes go at once for readers; on disk they go with a later
    /// call of this or of [`Store::compact`], when the grace period is over and the writers that share the logs are gone.
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

    /// As [`Store::prune`], with options for the regrouping.
    pub fn prune_with(
        &self,
        what: &PruneFilter,
        options: CompactOptions,
        dry_run: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PruneReport> {
        let mut look = || self.candidates(&mut self.catalog()?);
        let (storage, recovery) = (self.storage(), self.recovery());
        tend::prune(&storage, &*recovery, &self.how(options), what, &mut look, dry_run, progress)
    }

    /// That an episode was pruned, if it was: when, and why.
    pub fn pruned(&self, episode: &Id) -> Result<Option<Pruned>> {
        Ok(self.inner.tended.renew_manifest()?.pruned(episode).cloned())
    }

    /// Before an episode is opened: an error if it was pruned, or if its folders cannot be written to. One look-up that finds
    /// nothing, if nothing was tended since the last.
    pub(crate) fn refuse_pruned(&self, episode: &Id) -> Result<()> {
        self.check_writable(episode)?;
        self.inner.tended.renew_manifest()?.refuse_pruned(episode)
    }

    /// As this store is broken on purpose, so is its tending.
    fn how(&self, options: CompactOptions) -> How {
        let deletes_first = self.inner.options.is_broken_delete_before_manifest();
        let skips_directory_sync = self.inner.options.is_broken_manifest_without_sync();
        let prunes_what_it_saw = self.inner.options.is_broken_prune_looks_once();
        How { options, faults: Faults { deletes_first, skips_directory_sync, prunes_what_it_saw } }
    }

    /// For whoever has claimed an episode that others recorded: it is not pruned from here on. An error if it was before.
    pub(super) fn keep_from_pruning(&self, episode: &Id) -> Result<()> {
        if self.inner.options.is_broken_open_looks_once() {
            return Ok(());
        }
        tend::keep_from_pruning(&self.inner.tended, episode)
    }

    /// All episodes, and whether somebody may still be recording them.
    fn candidates(&self, catalog: &mut Catalog) -> Result<Vec<Candidate>> {
        let mut episodes: BTreeMap<Id, Vec<AttemptInfo>> = BTreeMap::new();
        for info in catalog.attempts()? {
            episodes.entry(info.key.episode).or_default().push(info);
        }
        let episodes = episodes.into_iter();
        episodes.map(|(episode, attempts)| self.candidate(catalog, episode, &attempts)).collect()
    }

    fn candidate(&self, catalog: &Catalog, episode: Id, attempts: &[AttemptInfo]) -> Result<Candidate> {
        let newest = attempts.iter().map(|info| info.key.attempt).max().unwrap_or(0);
        let mut numbers: Vec<u32> = attempts.iter().map(|info| info.key.attempt).collect();
        numbers.dedup();
        let last: Vec<&AttemptInfo> = attempts.iter().filter(|info| info.key.attempt == newest).collect();
        let why = last.iter().find_map(|info| info.summary.why.clone());
        let named = attempts.iter().map(|info| &info.summary);
        let running = self.running(catalog, &episode, &last, why.is_some())?;
        Ok(Candidate {
            episode,
            run: named.clone().find_map(|it| it.run.clone()),
            task: named.clone().find_map(|it| it.task.clone()),
            iteration: named.clone().find_map(|it| it.iteration),
            sample: named.clone().find_map(|it| it.sample),
            attempts: numbers,
            why,
            last_time: named.filter_map(|it| it.last_time).max(),
            records: attempts.iter().map(|info| info.records).sum(),
            running,
        })
    }

    /// Why an episode counts as running, if it does: its newest attempt has not ended, and its writer may be there; or
    /// somebody who may be there has claimed the next.
    fn running(
        &self,
        catalog: &Catalog,
        episode: &Id,
        last: &[&AttemptInfo],
        has_ended: bool,
    ) -> Result<Option<String>> {
        let newest = last.first().map_or(0, |info| info.key.attempt);
        for info in last.iter().filter(|_| !has_ended) {
            if !self.is_certainly_gone(catalog, &info.key.writer)? {
                return Ok(Some(format!("attempt {newest} has no end, and its writer may still be there")));
            }
        }
        let chain = Chain::read(&self.inner.tended, episode)?;
        match chain.newest().map(|link| link.claim) {
            Some(claim) if claim.attempt > newest && !self.is_certainly_gone(catalog, &claim.writer)? => {
                let attempt = claim.attempt;
                Ok(Some(format!("attempt {attempt} is claimed by a writer that may still be there")))
            }
            _ => Ok(None),
        }
    }
}
