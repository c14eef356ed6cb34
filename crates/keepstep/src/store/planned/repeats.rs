//! Limits repetition: how long a failed episode rests, and how often an episode is scored without success.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keepstep_format::Id;

/// How often a rest is doubled at most.
const DOUBLED_MAX: u32 = 6;

/// How long an episode still rests that failed this often in a row; `None` if it may be tried again now.
pub(in crate::store) fn rests(
    pause: Duration,
    in_a_row: u32,
    seen_us: Option<i64>,
    now_us: i64,
) -> Option<Duration> {
    let whole = pause.saturating_mul(1 << in_a_row.saturating_sub(1).min(DOUBLED_MAX));
    let rested = Duration::from_micros(u64::try_from(now_us - seen_us?).unwrap_or(0));
    whole.checked_sub(rested).filter(|left| !left.is_zero())
}

/// When this process saw that an attempt had failed. The clocks of other processes do not matter.
#[derive(Debug, Default)]
pub(in crate::store) struct Failures {
    seen_us: HashMap<(Id, u32), Option<i64>>,
    has_looked: bool,
}

impl Failures {
    /// Sets when each failure was first seen. Failures from before the first look need no rest.
    pub(in crate::store) fn date<'c>(
        &mut self,
        failed: impl Iterator<Item = (Id, u32, &'c mut Option<i64>)>,
        now_us: i64,
    ) {
        let before = std::mem::take(&mut self.seen_us);
        let new = self.has_looked.then_some(now_us);
        self.has_looked = true;
        for (episode, attempt, seen_us) in failed {
            *seen_us = before.get(&(episode, attempt)).copied().unwrap_or(new);
            self.seen_us.insert((episode, attempt), *seen_us);
        }
    }
}

/// How often an episode is yielded for scoring if it is annotated each time and still lacks a note.
const IN_VAIN_MAX: u32 = 3;

/// The episodes that this process yielded for scoring.
#[derive(Debug, Default)]
pub(in crate::store) struct Scorings {
    given: Mutex<HashMap<Id, Given>>,
}

#[derive(Debug, Default)]
struct Given {
    /// The attempt that would be the next. If it changes, the episode has to be scored again.
    attempt: u32,
    /// True if it was annotated since it was yielded.
    is_annotated: bool,
    in_vain: u32,
}

impl Scorings {
    /// Whether an episode may still be yielded for scoring by this process.
    pub(in crate::store) fn wants(&self, episode: &Id, attempt: u32) -> bool {
        let given = self.lock();
        given.get(episode).is_none_or(|given| given.attempt != attempt || given.in_vain < IN_VAIN_MAX)
    }

    pub(in crate::store) fn give(&self, episode: Id, attempt: u32) {
        let mut all = self.lock();
        let given = all.entry(episode).or_default();
        if given.attempt != attempt {
            *given = Given { attempt, ..Given::default() };
        }
        given.is_annotated = false;
    }

    /// Counts each scoring once, even if it leaves several notes.
    pub(in crate::store) fn annotated(&self, episode: &Id) {
        if let Some(given) = self.lock().get_mut(episode) {
            given.in_vain += u32::from(!given.is_annotated);
            given.is_annotated = true;
        }
    }

    /// Forgets episodes that lack nothing any more.
    pub(in crate::store) fn keep(&self, lacking: impl Iterator<Item = Id>) {
        let mut given = self.lock();
        if !given.is_empty() {
            let lacking: HashSet<Id> = lacking.collect();
            given.retain(|episode, _| lacking.contains(episode));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Given>> {
        // A lost count costs one more try.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
