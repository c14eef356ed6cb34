//! Which episodes are meant, where there are too many to name: by run, task, ending and age.

use crate::failure::Outcome;
use crate::numbers::{moment, now_us};
use crate::reading::Episode;

/// How an episode can stand: as it ended, or as it was found.
const STATES: [&str; 11] = [
    "finished",
    "truncated",
    "abandoned",
    "aborted",
    "errored",
    "cancelled",
    "crashed",
    "superseded",
    "running",
    "silent",
    "interrupted",
];

/// Options that choose episodes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Filter {
    /// Only episodes of this run
    #[arg(long)]
    run: Option<String>,
    /// Only episodes of this task
    #[arg(long)]
    task: Option<String>,
    /// Only episodes that ended so, or stand so; several with commas
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    ending: Vec<String>,
    /// Only episodes with a step since then: 90s, 5min, 2h, 3d, 1w, or a date (UTC)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

/// A filter whose words were understood.
#[derive(Debug)]
pub(crate) struct Chooser<'f> {
    filter: &'f Filter,
    since_us: Option<i64>,
}

impl Filter {
    /// True if endings were asked for.
    pub(crate) fn names_endings(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Understands what was said, or says what was not.
    pub(crate) fn chooser(&self) -> Outcome<Chooser<'_>> {
        if let Some(wrong) = self.ending.iter().find(|state| !STATES.contains(&state.as_str())) {
            let states = format!("--ending takes {}", STATES.join(", "));
            return Err(crate::usage(format!("no episode ends as {wrong:?}"), states));
        }
        let since_us = match &self.since {
            None => None,
            Some(text) => Some(moment(text, now_us()).ok_or_else(|| {
                let hint =
                    "--since takes 90s, 5min, 2h, 3d, 1w, or a date such as 2026-11-15 or 2026-11-15T10:33";
                crate::usage(format!("{text:?} is no time"), hint)
            })?),
        };
        Ok(Chooser { filter: self, since_us })
    }
}

impl Chooser<'_> {
    /// True if anything was asked for.
    pub(crate) fn chooses(&self) -> bool {
        let Filter { run, task, ending, since } = self.filter;
        run.is_some() || task.is_some() || !ending.is_empty() || since.is_some()
    }

    /// True if an episode is meant.
    pub(crate) fn takes(&self, episode: &Episode) -> bool {
        let Filter { run, task, ending, .. } = self.filter;
        let time = episode.summary.last_time;
        run.as_ref().is_none_or(|run| *run == episode.run)
            && task.as_ref().is_none_or(|task| *task == episode.task)
            && (ending.is_empty() || ending.iter().any(|state| state == episode.state()))
            && self.since_us.is_none_or(|since| time.is_some_and(|time| time >= since))
    }
}
