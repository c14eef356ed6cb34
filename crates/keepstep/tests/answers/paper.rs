//! Episodes on paper: what should be told of them, as simply as it can be kept.

use std::collections::BTreeMap;

use keepstep::EpisodeName;

/// A step that was completed.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub action: i64,
    pub reward: Option<f64>,
}

/// What an attempt noted on itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Note {
    /// The attempt that made it.
    pub attempt: u32,
    /// How many steps there were.
    pub behind: usize,
    pub value: i64,
}

/// An attempt, with what it inherited.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    pub steps: Vec<Step>,
    /// So many of the steps are inherited.
    pub inherited: usize,
    /// A turn that was said and has no result.
    pub pending: Option<i64>,
    pub why: Option<String>,
    /// In order, inherited ones first.
    pub notes: Vec<Note>,
    /// What was noted on this attempt from outside. The next one does not inherit it.
    pub label: Option<i64>,
    /// The sum if no reward was given: nothing, but on paper that lies.
    pub without_reward: Option<f64>,
}

impl Attempt {
    /// The sum of the rewards, if one was given. Those of these tests are halves, so that no order of adding matters.
    pub fn total(&self) -> Option<f64> {
        self.steps
            .iter()
            .filter_map(|step| step.reward)
            .fold(None, |sum, reward| {
                let sum: f64 = sum.unwrap_or(0.0);
                Some(sum + reward)
            })
            .or(self.without_reward)
    }

    /// The newest notes that count for it, as (attempt, name, value).
    pub fn notes(&self, number: u32) -> Vec<(u32, String, i64)> {
        let seen: BTreeMap<u32, i64> = self.notes.iter().map(|note| (note.attempt, note.value)).collect();
        let seen = seen.into_iter().map(|(attempt, value)| (attempt, "seen".to_owned(), value));
        let mut all: Vec<_> = seen.chain(self.label.map(|it| (number, "label".to_owned(), it))).collect();
        all.sort();
        all
    }

    pub fn is_over(&self) -> bool {
        matches!(self.why.as_deref(), Some("finished" | "truncated"))
    }
}

/// An episode, and all attempts at it.
#[derive(Debug, Clone)]
pub struct Episode {
    pub name: EpisodeName,
    pub attempts: Vec<Attempt>,
    /// What was noted on it last.
    pub score: Option<f64>,
}

/// Members of a sealed group, and their rewards.
pub type Members = Vec<(i64, Option<String>)>;

/// All that was recorded.
#[derive(Debug, Clone, Default)]
pub struct Paper {
    pub run: String,
    pub episodes: Vec<Episode>,
    /// By task and iteration.
    pub groups: BTreeMap<(String, i64), Members>,
}

impl Paper {
    /// Says that no reward is 0.0.
    pub fn lie(&mut self) {
        let attempts = self.episodes.iter_mut().flat_map(|episode| &mut episode.attempts);
        attempts.for_each(|attempt| attempt.without_reward = Some(0.0));
    }

    /// Whatever has no end and no owner any more crashed.
    pub fn reap(&mut self) {
        for last in self.episodes.iter_mut().filter_map(|episode| episode.attempts.last_mut()) {
            last.why.get_or_insert_with(|| "crashed".to_owned());
        }
    }
}

/// A number, so that NaN is like itself.
pub fn shown(number: Option<f64>) -> Option<String> {
    number.map(|number| format!("{number:?}"))
}
