//! Which episodes are meant, if there are too many to name: by run, task, ending and age.

use std::collections::BTreeSet;

use keepstep::refs::{self, Name, Ref};
use keepstep::{Error, Generation, Id, Store, Why};

use crate::failure::{Exit, Failure, Outcome};
use crate::numbers::{moment, now_us};
use crate::reading::{self, Episode};

/// In how many runs similar names of a task are looked for: each takes a look at the whole store.
const RUNS_ASKED: usize = 8;
/// The states of an episode without an end.
const UNENDED: [&str; 3] = ["running", "silent", "interrupted"];

/// Options that choose episodes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Filter {
    /// Only episodes of this run; an older generation of it is RUN#0, RUN#1, …
    #[arg(long)]
    run: Option<String>,
    /// Only episodes of this task
    #[arg(long)]
    task: Option<String>,
    /// Only episodes in this state, such as errored or running; several with commas
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    ending: Vec<String>,
    /// Only episodes with a step in the last 90s, 5min, 2h, 3d or 1w, or since a date (UTC)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

/// A filter whose arguments were parsed.
#[derive(Debug)]
pub(crate) struct Chooser<'f> {
    filter: &'f Filter,
    since_us: Option<i64>,
}

impl Filter {
    /// True if endings were given.
    pub(crate) fn names_endings(&self) -> bool {
        !self.ending.is_empty()
    }

    /// True if a run was given: then it is clear what is meant, and no reference is needed.
    pub(crate) fn names_a_run(&self) -> bool {
        self.run.is_some()
    }

    /// Parses the arguments, or reports which is wrong.
    pub(crate) fn chooser(&self) -> Outcome<Chooser<'_>> {
        let is_state = |state: &str| Why::named(state).is_some() || UNENDED.contains(&state);
        if let Some(wrong) = self.ending.iter().find(|state| !is_state(state)) {
            let states = format!("--ending takes {}, {}", Why::names(|_| true), UNENDED.join(", "));
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
    /// True if anything was given.
    pub(crate) fn chooses(&self) -> bool {
        let Filter { run, task, ending, since } = self.filter;
        run.is_some() || task.is_some() || !ending.is_empty() || since.is_some()
    }

    /// An error if the given run does not exist.
    pub(crate) fn check(&self, store: &Store) -> Outcome<()> {
        let Some(run) = &self.filter.run else { return Ok(()) };
        find_run(store, run).map(|_| ())
    }

    /// An error if the given task is not among these episodes, which are all of these runs, or all there are.
    pub(crate) fn check_task(&self, store: &Store, episodes: &[Episode], runs: &[&Ref]) -> Outcome<()> {
        let Filter { run, task, .. } = self.filter;
        let Some(task) = task else { return Ok(()) };
        let is_it = |it: &Episode| {
            it.task == *task && run.as_ref().is_none_or(|run| means_run(run, &it.run, it.generation))
        };
        if episodes.iter().any(is_it) {
            return Ok(());
        }
        match runs {
            [] => Err(no_task(store, task, self.runs(store)?)),
            runs => Err(no_task(store, task, runs.iter().copied().cloned())),
        }
    }

    /// The runs that are meant.
    fn runs(&self, store: &Store) -> Outcome<Vec<Ref>> {
        let mut runs = Vec::new();
        for run in store.runs()?.into_iter().flatten() {
            let generation = Generation::from(&run);
            if self.filter.run.as_ref().is_none_or(|text| means_run(text, &run.name, generation)) {
                runs.push(Ref::of(Name::Bare(run.name)).generation(generation.said()));
            }
        }
        Ok(runs)
    }

    /// True if an episode is meant.
    pub(crate) fn takes(&self, episode: &Episode) -> bool {
        let Filter { run, task, ending, .. } = self.filter;
        let time = episode.summary.last_time;
        run.as_ref().is_none_or(|run| means_run(run, &episode.run, episode.generation))
            && task.as_ref().is_none_or(|task| *task == episode.task)
            && (ending.is_empty() || ending.iter().any(|state| state == episode.state()))
            && self.since_us.is_none_or(|since| time.is_some_and(|time| time >= since))
    }
}

/// True if a text means this run: its name, which means the newest generation, or `run#generation` as `ls` prints it.
pub(crate) fn means_run(text: &str, name: &str, generation: Generation) -> bool {
    if text == name && generation.is_newest {
        return true;
    }
    match text.parse::<Ref>() {
        Ok(Ref { name: Name::Bare(run), generation: wanted, attempt: None, step: None, .. }) => {
            run == name && wanted.map_or(generation.is_newest, |wanted| wanted == generation.number)
        }
        _ => false,
    }
}

/// The run that a text means. A damaged card is left to `verify`: such a run is known by its episodes.
pub(crate) fn find_run(store: &Store, text: &str) -> Outcome<(String, Option<Id>)> {
    for run in store.runs()?.into_iter().flatten() {
        let generation = Generation::from(&run);
        if means_run(text, &run.name, generation) {
            return Ok((run.name, Some(run.generation_id)));
        }
    }
    let (_, episodes) = reading::open(store)?;
    if let Some(episode) = episodes.iter().find(|it| means_run(text, &it.run, it.generation)) {
        return Ok((episode.run.clone(), None));
    }
    let wanted = text.parse().unwrap_or_else(|_| Ref::episode(text, "", 0, 0));
    Err(reading::not_there(store, text, &wanted, "run"))
}

/// No episode has the task. Why, or which similar task there is, is found run by run.
fn no_task(store: &Store, task: &str, runs: impl IntoIterator<Item = Ref>) -> Failure {
    let failure = Failure::new(format!("no task here is called {task:?}"));
    if keepstep::refs::is_incomplete(store) {
        return failure.hint(keepstep::refs::MAY_BE_LOST).hint(reading::LOOK).with_exit(Exit::Lost);
    }
    for of in runs.into_iter().take(RUNS_ASKED) {
        let (Name::Bare(run) | Name::Episode { run, .. }) = of.name;
        let name = Name::Episode { run, task: task.to_owned(), iteration: None, sample: None };
        let wanted = Ref::of(name).generation(of.generation);
        match refs::not_there(store, &wanted.to_string(), &wanted) {
            Ok(pruned @ Error::Pruned { .. }) => return Failure::from(pruned),
            Ok(Error::Unknown { hint, .. }) => return failure.hint(hint).hint(reading::LOOK),
            _ => {}
        }
    }
    failure.hint(reading::LOOK)
}

/// Each once, in the order in which they came first. Comparing each with all earlier ones would take an hour in a
/// store with a million episodes.
pub(crate) fn each_once<T, K: Ord>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut had = BTreeSet::new();
    items.into_iter().filter(|item| had.insert(key(item))).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::each_once;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// A key that counts how often it is looked at.
    #[derive(PartialEq, Eq)]
    struct Counted(u64);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    /// `ls STORE RUN` took 1 s for 30,000 episodes and 29 s for 100,000: ten times as many cost ten times as much, and a bit.
    #[test]
    fn choosing_costs_in_proportion_to_what_there_is() {
        let work = |count: u64| {
            COMPARED.set(0);
            // Each twice, in an order that is not that of the keys.
            let keys = (0..2 * count).map(|at| at * 7919 % count);
            let chosen = each_once(keys, |key| Counted(*key));
            assert_eq!((chosen.len() as u64, chosen[1]), (count, 7919 % count));
            COMPARED.get()
        };
        let (few, many) = (work(1_000), work(10_000));
        assert!(many < 20 * few, "{few} looks at 1,000, {many} at 10,000");
    }
}
