//! How far the plan of a run is: a line for people, and all of it as JSON.

use keepstep::refs::{self, run_reference};
use keepstep::{Error, GivenUp, Progress, RemainingOptions, RunInfo, Store, Why};

use crate::failure::{Exit, Outcome};
use crate::json::Json;
use crate::numbers::count;
use crate::screen::{Screen, shown};

/// So wide is what people read.
const COLUMNS: usize = 80;

/// How far a run's plan is, with the default options; `None` for a run without a plan.
fn progress_of(store: &Store, run: &RunInfo) -> keepstep::Result<Option<(keepstep::Run, Progress)>> {
    let info = store.runs()?.into_iter().flatten().find(|info| info.generation_id == run.generation_id);
    let Some(run) = info.map(|info| store.run_of(info)) else { return Ok(None) };
    let progress = run.progress(&RemainingOptions::default())?;
    Ok((progress.planned > 0).then_some((run, progress)))
}

/// Prints how far the plans of these runs are.
pub(crate) fn tell<'r>(store: &Store, runs: impl Iterator<Item = &'r RunInfo>, screen: &Screen) -> Outcome {
    let mut exit = Exit::Done;
    for run in runs {
        match progress_of(store, run) {
            Ok(None) => {}
            Ok(Some((_, progress))) => lines(run, &progress).iter().for_each(|line| screen.say(line)),
            Err(error @ Error::Damaged { .. }) => {
                exit = Exit::Lost;
                screen.say(&format!("{} {}", screen.talk.red("damaged:"), shown(&error.to_string())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}

fn lines(run: &RunInfo, progress: &Progress) -> Vec<String> {
    let Progress { planned, not_begun, running, interrupted, unscored, pruned, damaged, .. } = progress;
    let given_up = progress.given_up.len() as u64;
    let errored = progress.ended.get(Why::Errored.name()).copied().unwrap_or(0);
    let parts = [
        (*not_begun, "not begun"),
        (*running, "running"),
        (*interrupted, "interrupted"),
        (*unscored, "unscored"),
        (errored.saturating_sub(given_up), "to be tried again"),
        (given_up, "given up"),
        (progress.absent.len() as u64, "absent from a sealed group"),
        (*pruned, "pruned"),
        (*damaged, "damaged"),
    ];
    let mut lines = vec![format!(
        "plan of {}: {} of {} done",
        run_reference(&run.name, (!run.is_newest).then_some(run.generation)),
        count(progress.done()),
        count(*planned)
    )];
    for (number, what) in parts.into_iter().filter(|(number, _)| *number > 0) {
        let part = format!("{} {what}", count(number));
        if let Some(last) = lines.last_mut() {
            if last.chars().count() + part.len() + 3 <= COLUMNS {
                last.push_str(", ");
                last.push_str(&part);
            } else {
                last.push(',');
                lines.push(format!("  {part}"));
            }
        }
    }
    lines
}

/// As JSON, with the last error of each episode that was given up; null for a run without a plan.
pub(crate) fn json(store: &Store, run: &RunInfo) -> Outcome<Json> {
    let found = match progress_of(store, run) {
        // `verify` reports what is damaged.
        Err(Error::Damaged { .. }) => None,
        found => found?,
    };
    let Some((run, progress)) = found else { return Ok(Json::Null) };
    let given_up = progress.given_up.iter().map(|it| given_up_json(&run, it)).collect::<Outcome<Vec<_>>>()?;
    let absent = progress.absent.iter().map(|name| Json::from(refs::reference(&run, name).to_string()));
    let ended = progress.ended.iter().map(|(why, number)| (why.to_string(), Json::from(*number)));
    Ok(Json::map([
        ("planned", Json::from(progress.planned)),
        ("not_begun", progress.not_begun.into()),
        ("running", progress.running.into()),
        ("interrupted", progress.interrupted.into()),
        ("ended", Json::map(ended)),
        ("unscored", progress.unscored.into()),
        ("given_up", Json::list(given_up)),
        ("absent", Json::list(absent.collect::<Vec<_>>())),
        ("pruned", progress.pruned.into()),
        ("damaged", progress.damaged.into()),
        ("done", progress.done().into()),
        ("left", progress.left().into()),
    ]))
}

fn given_up_json(run: &keepstep::Run, it: &GivenUp) -> Outcome<Json> {
    let name = &it.name;
    let error = match run.last_error(name) {
        Err(Error::Damaged { .. }) => None,
        error => error?,
    };
    Ok(Json::map([
        ("ref", Json::from(refs::reference(run, name).to_string())),
        ("attempts", it.attempts.into()),
        ("errors", it.errors.into()),
        ("error", Json::from(error)),
    ]))
}
