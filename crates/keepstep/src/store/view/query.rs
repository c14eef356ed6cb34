//! The episodes of a run, filtered: what a reader, a trainer or a list wants to see.

use keepstep_format::value::Value;

use crate::error::{Result, or_told};
use crate::read::Catalog;
use crate::store::run::Run;
use crate::store::view::listing::Listed;

/// Which episodes are wanted; what is not said does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeFilter {
    /// Of this task.
    pub task: Option<String>,
    /// Of this iteration.
    pub iteration: Option<i64>,
    /// That stand in one of these ways: how they ended, or what [`Listed::state`] calls them if they did not.
    pub ends: Option<Vec<String>>,
    /// Whose rewards add up to at least and at most so much. One without a reward is not wanted then.
    pub reward: Option<(f64, f64)>,
    /// Of which a step was acted by this policy version.
    pub policy: Option<Value>,
    /// Whose newest record is from this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// All attempts, not only the one that counts.
    pub all_attempts: bool,
}

impl Run {
    /// The episodes of the run that a filter wants, sorted by task, iteration, sample and attempt.
    pub fn episodes(&self, filter: &EpisodeFilter) -> Result<Vec<Listed>> {
        self.episodes_in(&mut self.store().catalog()?, filter)
    }

    /// As [`Run::episodes`], with a catalog of the caller's: it is brought up to date, and has what was found.
    pub fn episodes_in(&self, catalog: &mut Catalog, filter: &EpisodeFilter) -> Result<Vec<Listed>> {
        self.store().check_process()?;
        let mut found = Vec::new();
        for mut listed in self.store().list(catalog)? {
            let (is_wanted, trouble) = or_told(self.wants(catalog, &listed, filter))?;
            // What cannot be read may be what is wanted: it is listed, with what is wrong.
            if is_wanted.unwrap_or(true) {
                listed.trouble = listed.trouble.or(trouble);
                found.push(listed);
            }
        }
        found.sort_by_cached_key(|it| {
            let name = &it.summary;
            (name.task.clone(), name.iteration, name.sample, it.key.attempt)
        });
        Ok(found)
    }

    /// True if a filter wants an attempt.
    pub fn wants(&self, catalog: &Catalog, listed: &Listed, filter: &EpisodeFilter) -> Result<bool> {
        self.store().check_process()?;
        Ok(self.fits(listed, filter) && self.has_policy(catalog, listed, filter.policy.as_ref())?)
    }

    /// What a list knows is enough to tell.
    fn fits(&self, listed: &Listed, filter: &EpisodeFilter) -> bool {
        let summary = &listed.summary;
        let is_in = |(least, most): (f64, f64)| {
            summary.total_reward.is_some_and(|reward| least <= reward && reward <= most)
        };
        summary.birth == Some(self.birth())
            && (filter.all_attempts || listed.is_in_force)
            && filter.task.as_ref().is_none_or(|task| summary.task.as_ref() == Some(task))
            && filter.iteration.is_none_or(|iteration| summary.iteration == Some(iteration))
            && filter.ends.as_ref().is_none_or(|ends| ends.iter().any(|end| end == listed.state()))
            && filter.since.is_none_or(|since| summary.last_time.is_some_and(|last| last >= since))
            && filter.reward.is_none_or(is_in)
    }

    /// Steps are read only for this.
    fn has_policy(&self, catalog: &Catalog, listed: &Listed, policy: Option<&Value>) -> Result<bool> {
        let Some(policy) = policy else { return Ok(true) };
        let view = self.store().view_of(catalog, &listed.key)?;
        for index in 0..view.steps() {
            if view.step(index)?.policy.as_ref() == Some(policy) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
