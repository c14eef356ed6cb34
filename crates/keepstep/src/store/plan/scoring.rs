//! Decides which process scores an episode that is over and lacks a note: by a claim on disk, valid while the
//! claimant lives.
//!
//! These claims are numbered and create-only, and say nothing about the episode itself. The newest counts while its
//! writer lives. When that writer is gone, the first process to make the next number has it.

use keepstep_format::Id;

use crate::error::{Doing, Result};
use crate::own::NewClaim;
use crate::segment::chain::{read_claim_at, scoring_path};
use crate::store::run::Run;

/// The result of a claim to score an episode.
pub(in crate::store) enum Scoring {
    /// It is ours now, and no process had it before.
    New,
    /// It was ours before. The episode may have been scored since the survey.
    Ours,
    /// It is ours now. A process that is gone had it before, and may have scored the episode since the survey.
    Inherited,
    /// Another process has it.
    Taken,
}

impl Run {
    /// Claims the scoring of an episode for this process. Durable if it succeeds.
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
        let (writer, generation_id, group_size) = (&ours, &self.generation_id(), None);
        let new = NewClaim { episode, attempt: next, writer, generation_id, group_size };
        let is_won = store.claim_batcher().claim_at(&path, &new)?;
        Ok(match (is_won, next) {
            (false, _) => Scoring::Taken,
            (true, 0) => Scoring::New,
            (true, _) => Scoring::Inherited,
        })
    }

    /// True if another live process has claimed the scoring of an episode. `claims` is the number of claims so far.
    pub(in crate::store) fn is_scored_elsewhere(&self, episode: &Id, claims: u32) -> Result<bool> {
        let owner = self.scorer(episode, claims)?;
        let is_elsewhere =
            |owner: &Id| self.store().writer_id() != Some(*owner) && !self.store().is_gone(owner);
        Ok(owner.as_ref().is_some_and(is_elsewhere))
    }

    /// The writer of the newest of these claims.
    fn scorer(&self, episode: &Id, claims: u32) -> Result<Option<Id>> {
        let Some(newest) = claims.checked_sub(1) else { return Ok(None) };
        let claim = read_claim_at(self.store().cards(), &scoring_path(episode, newest), newest)?;
        Ok(claim.map(|claim| claim.writer))
    }

    /// How many claims there are: they are numbered without gaps.
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
