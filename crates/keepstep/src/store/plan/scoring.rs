//! Who scores an episode that is over and lacks a note: claimed on disk, for as long as the claimant is there.
//!
//! These claims are numbered and create-only, and say nothing about the episode itself. The newest counts, while its writer
//! is there; when that is gone, whoever is first has the next number.

use keepstep_format::Id;

use crate::error::{Doing, Result};
use crate::segment::chain::{read_claim_at, scoring_path};
use crate::store::run::Run;

/// What came of wanting to score an episode.
pub(in crate::store) enum Scoring {
    /// It is ours since just now, and nobody had it before.
    New,
    /// It was ours before: it may have been scored since we looked.
    Ours,
    /// It is ours since just now, and somebody who is gone had it before, and may have scored it since we looked.
    Inherited,
    /// Somebody else has it.
    Taken,
}

impl Run {
    /// Claims the scoring of an episode for this process. Durable if it is ours.
    pub(in crate::store) fn claim_scoring(&self, episode: &Id) -> Result<Scoring> {
        let store = self.store();
        let ours = store.writer()?.id();
        let next = self.scorings(episode)?;
        if let Some(owner) = self.scorer(episode, next)? {
            if owner == ours {
                return Ok(Scoring::Ours);
            }
            if !store.is_gone(&owner) {
                return Ok(Scoring::Taken);
            }
        }
        let path = scoring_path(episode, next);
        let is_won = store.claim_batcher().claim_at(&path, episode, next, &ours, &self.generation_id())?;
        Ok(match (is_won, next) {
            (false, _) => Scoring::Taken,
            (true, 0) => Scoring::New,
            (true, _) => Scoring::Inherited,
        })
    }

    /// True if another process that is there has claimed the scoring of an episode; `claims` were made so far.
    pub(in crate::store) fn is_scored_elsewhere(&self, episode: &Id, claims: u32) -> Result<bool> {
        let owner = self.scorer(episode, claims)?;
        let is_elsewhere =
            |owner: &Id| self.store().writer_id() != Some(*owner) && !self.store().is_gone(owner);
        Ok(owner.as_ref().is_some_and(is_elsewhere))
    }

    /// Who made the newest of so many claims.
    fn scorer(&self, episode: &Id, claims: u32) -> Result<Option<Id>> {
        let Some(newest) = claims.checked_sub(1) else { return Ok(None) };
        let claim = read_claim_at(self.store().cards(), &scoring_path(episode, newest), newest)?;
        Ok(claim.map(|claim| claim.writer))
    }

    /// How many claims there are: their numbers are dense.
    fn scorings(&self, episode: &Id) -> Result<u32> {
        let mut number = 0;
        loop {
            let path = scoring_path(episode, number);
            if !self.store().disk().exists(&path).doing("look for", &path)? {
                return Ok(number);
            }
            number += 1;
        }
    }
}
