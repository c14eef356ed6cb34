//! Checks, for lists, whether the records of an episode belong to a claim.

use keepstep_format::{Id, ids};

use crate::error::{Error, Result, or_told};
use crate::read::AttemptInfo;
use crate::segment::Summary;
use crate::segment::chain::{claim_path, read_claim};
use crate::segment::named::NamedClaims;
use crate::store::Store;

/// True if an episode has a name: then its id is made of the name, and it was claimed before anything was recorded.
fn has_name(episode: &Id, said: &Summary) -> bool {
    let (Some(generation_id), Some(task)) = (&said.generation_id, &said.task) else { return false };
    ids::episode(generation_id, task, said.iteration.unwrap_or(0), said.sample.unwrap_or(0)) == *episode
}

impl Store {
    /// What is wrong with the claims of an episode that has these attempts, sorted by attempt.
    pub(in crate::store) fn lost_claim_of(
        &self,
        named: &NamedClaims,
        episode: &Id,
        infos: &[AttemptInfo],
    ) -> Result<Option<Error>> {
        if !infos.iter().any(|info| has_name(episode, &info.summary)) {
            return Ok(None);
        }
        for (at, info) in infos.iter().enumerate() {
            let (attempt, writer) = (info.key.attempt, info.key.writer);
            let lost = named.lost_claim(self.cards(), episode, attempt, &writer)?;
            if lost.is_some() {
                return Ok(lost);
            }
            let is_same = |other: Option<&AttemptInfo>| other.is_some_and(|it| it.key.attempt == attempt);
            let has_company =
                is_same(infos.get(at + 1)) || is_same(at.checked_sub(1).and_then(|it| infos.get(it)));
            // An attempt that its owner ended was its own, so the card need not be read.
            if !has_company && info.summary.why.is_some() {
                continue;
            }
            let (claim, trouble) = or_told(read_claim(self.cards(), episode, attempt))?;
            if trouble.is_some() {
                return Ok(trouble);
            }
            if claim.flatten().is_some_and(|claim| claim.writer != writer) {
                let found = format!("it is not the claim of writer {writer}, which has recorded");
                return Ok(Some(Error::Damaged { path: claim_path(episode, attempt), offset: 0, found }));
            }
        }
        Ok(None)
    }

    /// Finds the run of attempts whose beginning cannot be read: from other attempts, or from the claim.
    pub(in crate::store) fn find_generation(&self, episode: &Id, infos: &mut [AttemptInfo]) -> Result<()> {
        let known = infos.iter().find_map(|info| info.summary.generation_id);
        for info in infos.iter_mut().filter(|info| info.summary.generation_id.is_none()) {
            let claim = || or_told(read_claim(self.cards(), episode, info.key.attempt));
            info.summary.generation_id = match known {
                Some(known) => Some(known),
                None => claim()?.0.flatten().and_then(|claim| claim.generation_id),
            };
        }
        Ok(())
    }

    /// Which writer's records of an attempt count, if several writers have some: the claim names it.
    pub(in crate::store) fn who_counts(
        &self,
        episode: &Id,
        attempt: u32,
        found: &[AttemptInfo],
    ) -> Result<Option<Id>> {
        let first = found.first().map(|info| info.key.writer);
        if found.len() < 2 {
            return Ok(first);
        }
        let (claim, _) = or_told(read_claim(self.cards(), episode, attempt))?;
        Ok(claim.flatten().map(|claim| claim.writer).or(first))
    }
}
