//! The episodes of a run, filtered: what a reader, a trainer or a list wants to see.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::value::Value;

use super::run::Run;
use super::view::View;
use crate::error::Result;
use crate::own::Standing;
use crate::read::AttemptInfo;
use crate::segment::Summary;
use crate::segment::chain::Chain;

/// Which episodes are wanted; what is not said does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeFilter {
    /// Of this task.
    pub task: Option<String>,
    /// Of this iteration.
    pub iteration: Option<i64>,
    /// That ended in one of these ways; `running` and `silent` are ways too.
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

/// An episode, as a list shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeInfo {
    /// Its id.
    pub episode: Id,
    /// The attempt that counts, or one of several if all were wanted.
    pub attempt: u32,
    /// How many attempts really began.
    pub attempts: u32,
    /// Whose log it is in.
    pub writer: Id,
    /// Its name, steps, rewards and times. Steps and rewards count what was inherited.
    pub summary: Summary,
    /// How it ended; `running` or `silent` if it did not.
    pub why: String,
}

impl Run {
    /// The episodes of the run that a filter wants, sorted by task, iteration, sample and attempt.
    pub fn episodes(&self, filter: &EpisodeFilter) -> Result<Vec<EpisodeInfo>> {
        let mut catalog = self.store().catalog()?;
        let mut by_episode: BTreeMap<Id, Vec<AttemptInfo>> = BTreeMap::new();
        for info in catalog.attempts()? {
            if self.may_want(&info, filter) {
                by_episode.entry(info.key.episode).or_default().push(info);
            }
        }
        let mut found = Vec::new();
        for (episode, attempts) in by_episode {
            for info in self.in_force(&episode, attempts, filter.all_attempts)? {
                found.extend(self.wanted(info, filter)?);
            }
        }
        let name =
            |it: &EpisodeInfo| (it.summary.task.clone(), it.summary.iteration, it.summary.sample, it.attempt);
        found.sort_by_cached_key(name);
        Ok(found)
    }

    /// What a summary alone can rule out.
    fn may_want(&self, info: &AttemptInfo, filter: &EpisodeFilter) -> bool {
        let summary = &info.summary;
        summary.birth == Some(self.birth())
            && filter.task.as_ref().is_none_or(|task| summary.task.as_ref() == Some(task))
            && filter.iteration.is_none_or(|iteration| summary.iteration == Some(iteration))
    }

    /// The attempts that count, with how they ended.
    fn in_force(&self, episode: &Id, attempts: Vec<AttemptInfo>, all: bool) -> Result<Vec<EpisodeInfo>> {
        let chain = Chain::read(self.store().cards(), episode)?;
        let begun = chain.links.iter().filter(|link| link.is_in_force()).count().max(1) as u32;
        let newest = chain.in_force().map(|link| link.claim.attempt);
        let mut found = Vec::new();
        for AttemptInfo { key, summary, .. } in attempts {
            let link = chain.link(key.attempt);
            let is_real = link.is_none_or(|link| link.is_in_force() && link.claim.writer == key.writer);
            let is_wanted = all || newest.is_none_or(|newest| newest == key.attempt);
            if !is_real || !is_wanted {
                continue;
            }
            let adopted = link.and_then(|link| link.base.as_ref()?.adopted.clone());
            let why = match summary.why.clone().or(adopted) {
                Some(why) => why,
                None => self.how_it_stands(episode, key.attempt, &key.writer)?,
            };
            let (attempt, writer) = (key.attempt, key.writer);
            found.push(EpisodeInfo { episode: *episode, attempt, attempts: begun, writer, summary, why });
        }
        Ok(found)
    }

    fn how_it_stands(&self, episode: &Id, attempt: u32, writer: &Id) -> Result<String> {
        if let Some((why, _)) = self.store().found_end(episode, attempt)? {
            return Ok(why);
        }
        Ok(match self.store().leases().standing(writer) {
            Standing::Live => "running".to_owned(),
            Standing::Silent { .. } => "silent".to_owned(),
            // Nobody has recorded it yet; it is what whoever looks would find.
            Standing::Dead(_) => "crashed".to_owned(),
        })
    }

    fn wanted(&self, mut info: EpisodeInfo, filter: &EpisodeFilter) -> Result<Option<EpisodeInfo>> {
        if filter.ends.as_ref().is_some_and(|ends| !ends.contains(&info.why))
            || filter.since.is_some_and(|since| info.summary.last_time.is_none_or(|last| last < since))
        {
            return Ok(None);
        }
        let needs_steps = info.attempt > 0 || filter.policy.is_some();
        if needs_steps {
            let view = self.store().view(&info.episode)?;
            let view = if view.number() == info.attempt { view } else { view.attempt(info.attempt)? };
            let (reward, has_policy) = sum_up(&view, filter.policy.as_ref())?;
            info.summary.total_reward = reward;
            info.summary.steps = view.steps();
            if !has_policy {
                return Ok(None);
            }
        }
        let is_in = |(least, most): (f64, f64)| {
            info.summary.total_reward.is_some_and(|reward| least <= reward && reward <= most)
        };
        Ok(filter.reward.is_none_or(is_in).then_some(info))
    }
}

/// The rewards of all steps together, and whether a policy acted in one of them.
fn sum_up(view: &View, policy: Option<&Value>) -> Result<(Option<f64>, bool)> {
    let (mut total, mut has_policy) = (None, policy.is_none());
    for index in 0..view.steps() {
        let step = view.step(index)?;
        if let Some(reward) = step.reward {
            total = Some(total.unwrap_or(0.0) + reward);
        }
        has_policy |= policy.is_some() && step.policy.as_ref() == policy;
    }
    Ok((total, has_policy))
}
