//! How far a plan is: where each of its episodes stands, counted. It is looked at as by those who ask for what remains, and
//! nothing is claimed or written.

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

/// How far a plan is. Each planned episode is one of: not begun, running, interrupted, ended, pruned, damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many episodes the plan has.
    pub planned: u64,
    /// Nobody ever had them.
    pub not_begun: u64,
    /// Somebody has them now, or is not proven gone.
    pub running: u64,
    /// They were left, and are gone on with by whoever asks.
    pub interrupted: u64,
    /// How the others ended: `finished`, `truncated`, `errored`.
    pub ended: BTreeMap<Arc<str>, u64>,
    /// Those of them that are over, and lack a note that the plan needs.
    pub unscored: u64,
    /// Those of them that errored as often as they may.
    pub given_up: Vec<GivenUp>,
    /// They were pruned.
    pub pruned: u64,
    /// What is known of them cannot be read.
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
    /// How often in a row it errored, without getting on.
    pub errors: u32,
}

impl Progress {
    /// How many are over and have their notes. What was given up or pruned is not called done.
    pub fn done(&self) -> u64 {
        let over: u64 =
            self.ended.iter().filter(|(why, _)| &***why != Why::Errored.name()).map(|(_, count)| count).sum();
        over.saturating_sub(self.unscored)
    }

    /// Of how many something remains.
    pub fn left(&self) -> u64 {
        self.planned.saturating_sub(self.done() + self.given_up.len() as u64 + self.pruned)
    }
}

/// An error is told up to here.
const ERROR_CHARS: usize = 1000;

impl Run {
    /// How far the plan is, now. What is claimed and not begun counts as running.
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

    /// What an episode failed with last, for people: type and message in a line, or nothing if it did not fail.
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
    /// What is given up by those who ask for what remains, each told once by this process: to be asked for when nothing
    /// more is given.
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
