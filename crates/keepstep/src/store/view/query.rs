//! The episodes of a run, filtered.

use keepstep_format::value::Value;

use crate::error::{Result, or_told};
use crate::read::Catalog;
use crate::store::run::Run;
use crate::store::view::listing::Listed;

/// Which episodes to list. A field that is not set does not filter.
///
/// ```
/// use keepstep::EpisodeFilter;
///
/// let filter = EpisodeFilter::default().task("shop-17").ends(["finished"]).reward(0.5, 1.0);
/// assert_eq!(filter.reward, Some((0.5, 1.0)));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct EpisodeFilter {
    /// Of this task.
    pub task: Option<String>,
    /// Of this iteration.
    pub iteration: Option<i64>,
    /// In one of these states: an ending, or another state of [`Listed::state`].
    pub ends: Option<Vec<String>>,
    /// Whose rewards add up to a value from the first to the second number. Episodes without a reward are left out.
    pub reward: Option<(f64, f64)>,
    /// With a step of this policy version.
    pub policy: Option<Value>,
    /// Whose newest record is from this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// True to list all attempts, not only the one that counts.
    pub all_attempts: bool,
}

impl EpisodeFilter {
    /// Only episodes of this task.
    pub fn task(mut self, task: impl Into<String>) -> Self {
        self.task = Some(task.into());
        self
    }

    /// Only episodes of this iteration.
    pub fn iteration(mut self, iteration: impl Into<Option<i64>>) -> Self {
        self.iteration = iteration.into();
        self
    }

    /// Only episodes in one of these states.
    pub fn ends(mut self, ends: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.ends = Some(ends.into_iter().map(Into::into).collect());
        self
    }

    /// Only episodes whose rewards add up to a value from `at_least` to `at_most`.
    pub fn reward(mut self, at_least: f64, at_most: f64) -> Self {
        self.reward = Some((at_least, at_most));
        self
    }

    /// Only episodes with a step of this policy version.
    pub fn policy(mut self, policy: impl Into<Value>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Only episodes whose newest record is from this time or later, in microseconds since 1970.
    pub fn since(mut self, time_us: impl Into<Option<i64>>) -> Self {
        self.since = time_us.into();
        self
    }

    /// Sets whether to list all attempts, not only the one that counts.
    pub fn all_attempts(mut self, all_attempts: bool) -> Self {
        self.all_attempts = all_attempts;
        self
    }
}

impl Run {
    /// The episodes of the run that match a filter, sorted by task, iteration, sample and attempt.
    ///
    /// ```
    /// use keepstep::EpisodeFilter;
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-episodes-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// # let episode = run.episode(keepstep::EpisodeName::task("shop-17"))?;
    /// # episode.step(keepstep::Step::new().action("buy").reward(1.0))?;
    /// # episode.end(keepstep::Why::Finished, keepstep::Ending::default())?.wait()?;
    /// for listed in run.episodes(&EpisodeFilter::default().ends(["finished"]))? {
    ///     assert_eq!((listed.state(), listed.summary.steps), ("finished", 1));
    /// }
    /// # drop((episode, run));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn episodes(&self, filter: &EpisodeFilter) -> Result<Vec<Listed>> {
        self.episodes_in(&mut self.store().catalog()?, filter)
    }

    /// As [`Run::episodes`], with a catalog of the caller, which is updated.
    pub fn episodes_in(&self, catalog: &mut Catalog, filter: &EpisodeFilter) -> Result<Vec<Listed>> {
        self.store().check_process()?;
        let mut found = Vec::new();
        for mut listed in self.store().list(catalog)? {
            let (is_wanted, trouble) = or_told(self.wants(catalog, &listed, filter))?;
            // What cannot be read may match, so it is listed, with its error.
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

    /// True if an attempt matches a filter.
    pub fn wants(&self, catalog: &Catalog, listed: &Listed, filter: &EpisodeFilter) -> Result<bool> {
        self.store().check_process()?;
        Ok(self.fits(listed, filter) && self.has_policy(catalog, listed, filter.policy.as_ref())?)
    }

    /// Whether it matches, by what a list knows.
    fn fits(&self, listed: &Listed, filter: &EpisodeFilter) -> bool {
        let summary = &listed.summary;
        let is_in = |(least, most): (f64, f64)| {
            summary.total_reward.is_some_and(|reward| least <= reward && reward <= most)
        };
        summary.generation_id == Some(self.generation_id())
            && (filter.all_attempts || listed.is_in_force)
            && filter.task.as_ref().is_none_or(|task| summary.task.as_ref() == Some(task))
            && filter.iteration.is_none_or(|iteration| summary.iteration == Some(iteration))
            && filter.ends.as_ref().is_none_or(|ends| ends.iter().any(|end| end == listed.state()))
            && filter.since.is_none_or(|since| summary.last_time.is_some_and(|last| last >= since))
            && filter.reward.is_none_or(is_in)
    }

    /// Only this check reads steps.
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
