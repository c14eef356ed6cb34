//! How far a plan is: counts the states of its episodes. It looks at the same things as `remaining`, and claims and
//! writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::value::Value;
use keepstep_format::{Id, Why};

use crate::error::{Error, Result};
use crate::store::name::EpisodeName;
use crate::store::plan::remaining::{Remaining, RemainingOptions};
use crate::store::planned::queue::Candidate;
use crate::store::run::Run;
use crate::store::run::config::short;

/// How far a plan is. Each planned episode is one of: not begun, running, interrupted, ended, absent, pruned, damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many episodes the plan has.
    pub planned: u64,
    /// No process has opened them.
    pub not_begun: u64,
    /// A process has them now, or had them and may still be alive.
    pub running: u64,
    /// They were interrupted; `remaining` yields them.
    pub interrupted: u64,
    /// How the others ended, each with its number: `finished`, `truncated`, `errored`.
    pub ended: BTreeMap<Arc<str>, u64>,
    /// How many of these are over and lack a note that the plan needs.
    pub unscored: u64,
    /// Those of these that errored as often as they may, and are given up.
    pub given_up: Vec<GivenUp>,
    /// Their groups were sealed without them, so they could not join any more. `remaining` does not yield them.
    pub absent: Vec<EpisodeName>,
    /// How many were pruned.
    pub pruned: u64,
    /// How many cannot be read.
    pub damaged: u64,
}

/// An episode that errored as often as it may.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUp {
    /// Which.
    pub name: EpisodeName,
    /// How many attempts at it really began.
    pub attempts: u32,
    /// How often in a row it errored, without progress.
    pub errors: u32,
}

impl Progress {
    /// How many are over and have their notes. Those that were given up, are absent or were pruned do not count.
    pub fn done(&self) -> u64 {
        let over: u64 =
            self.ended.iter().filter(|(why, _)| &***why != Why::Errored.name()).map(|(_, count)| count).sum();
        over.saturating_sub(self.unscored)
    }

    /// How many still need work.
    pub fn left(&self) -> u64 {
        let without_work = (self.given_up.len() + self.absent.len()) as u64 + self.pruned;
        self.planned.saturating_sub(self.done() + without_work)
    }
}

/// How many characters of an error are shown.
const ERROR_CHARS: usize = 1000;

impl Run {
    /// How far the plan is now. An episode that is claimed and not begun counts as running.
    pub fn progress(&self, options: &RemainingOptions) -> Result<Progress> {
        self.store().check_process()?;
        options.check()?;
        let mut queue = self.plan_cache().queue();
        let found = queue.look(self, false)?;
        let plan = self.plan_cache().plan();
        let mut progress = Progress {
            planned: queue.planned() as u64,
            not_begun: found.new.len() as u64,
            running: found.running,
            interrupted: (found.interrupted.len() + found.own.len()) as u64,
            ended: found.ended,
            unscored: found.lacking,
            given_up: Vec::new(),
            absent: found.absent.iter().map(|&index| queue.name(&plan, index)).collect(),
            pruned: found.pruned,
            damaged: found.troubles.len() as u64,
        };
        if !found.errored.is_empty() {
            progress.ended.insert(Arc::from(Why::Errored.name()), found.errored.len() as u64);
        }
        let given_up = found.errored.iter().filter(|it| !options.wants(it));
        progress.given_up = given_up.map(|it| GivenUp::of(it, queue.name(&plan, it.index))).collect();
        Ok(progress)
    }

    /// The last error of an episode as one line of text: type and message. `None` if it did not fail.
    pub fn last_error(&self, name: &EpisodeName) -> Result<Option<String>> {
        let ending = match self.view(name) {
            Ok(view) => view.ending()?,
            Err(Error::NotFound { .. } | Error::Pruned { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(ending.and_then(|end| end.error).map(|error| told(&error)))
    }
}

fn told(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let told = match (error.as_str(), text("type"), text("message")) {
        (Some(error), _, _) => error.to_owned(),
        (_, Some(kind), Some(message)) => format!("{kind}: {message}"),
        _ => short(error, ERROR_CHARS),
    };
    if told.chars().count() <= ERROR_CHARS {
        return told;
    }
    told.chars().take(ERROR_CHARS).chain("…".chars()).collect()
}

impl GivenUp {
    fn of(it: &Candidate, name: EpisodeName) -> Self {
        Self { name, attempts: it.attempts, errors: it.in_a_row }
    }
}

impl Remaining {
    /// The episodes that `remaining` has given up, each once per process. Call this when nothing remains.
    pub fn given_up(&self) -> Result<Vec<GivenUp>> {
        let run = self.run();
        run.store().check_process()?;
        let mut queue = run.plan_cache().queue();
        let plan = run.plan_cache().plan();
        let given_up: Vec<(Id, GivenUp)> = queue
            .errored
            .iter()
            .filter(|it| !self.options().wants(it))
            .map(|it| (it.episode, GivenUp::of(it, queue.name(&plan, it.index))))
            .collect();
        let mut new = Vec::new();
        for (episode, it) in given_up {
            if queue.told.insert((episode, it.errors)) {
                new.push(it);
            }
        }
        Ok(new)
    }
}
