//! What must be true at every moment: whoever comes next finds all that was acknowledged, and nothing that was not said.

use std::sync::Arc;

use keepstep::{Error, Run, Value};

use super::scheduled_disk::ScheduledDisk;
use super::script::{Acknowledged, name, open_run, taking};
use super::shelf::Shelf;
use super::stage::{Rules, Scene, Stage};

/// The number of the process that looks: nobody else has it.
const LOOKER: usize = 7;

/// What counts of the episode: the contents of its steps, in order; and whether it is over.
struct ReadBack {
    contents: Vec<i64>,
    is_over: bool,
}

/// Stops everybody where they are, takes the episode over in a process of its own, and compares. A copy is changed, nothing
/// else. At the end a plain reader must see the same.
pub fn check(scene: &Scene, seed: u64, is_end: bool) -> Result<(), String> {
    if let Some(broke) = &scene.said.broke {
        return Err(broke.clone());
    }
    if scene.said.owners.is_empty() {
        return Ok(());
    }
    if is_end {
        let found = on_a_copy(&scene.shelf, seed, read)?;
        compare(&scene.said, &found).map_err(|why| format!("to a reader, at the end: {why}"))?;
    }
    let found = on_a_copy(&scene.shelf, seed, take_over)?;
    compare(&scene.said, &found)
}

fn on_a_copy(
    shelf: &Shelf,
    seed: u64,
    look: impl FnOnce(&Run) -> keepstep::Result<ReadBack>,
) -> Result<ReadBack, String> {
    let stage = Arc::new(Stage::new(LOOKER + 1, shelf.clone(), Rules::default()));
    let run = open_run(ScheduledDisk::new(&stage, LOOKER, seed), None).map_err(|error| error.to_string())?;
    let found = look(&run).map_err(|error| format!("the next to come is told: {error}"));
    // It need not close in good order.
    stage.end();
    found
}

fn take_over(run: &Run) -> keepstep::Result<ReadBack> {
    let episode = match run.open(name(), taking()) {
        Err(Error::Ended { .. }) => return read(run),
        opened => opened?,
    };
    let content = |index| Ok(episode.history(index)?.action.and_then(|action| action.as_int()).unwrap_or(-1));
    let contents = (0..episode.inherited()).map(content).collect::<keepstep::Result<_>>()?;
    Ok(ReadBack { contents, is_over: false })
}

fn read(run: &Run) -> keepstep::Result<ReadBack> {
    let view = run.view(&name())?;
    let is_over = view.ending()?.is_some_and(|end| end.why.as_deref() == Some("finished"));
    let read = view.read()?;
    if !read.is_whole() {
        let found = "something is missing".to_owned();
        return Err(Error::Damaged { path: format!("attempt {}", view.number()), offset: 0, found });
    }
    let content =
        |step: &keepstep::read::RecordedStep| step.action.as_ref().and_then(Value::as_int).unwrap_or(-1);
    Ok(ReadBack { contents: read.steps.iter().map(content).collect(), is_over })
}

fn compare(said: &Acknowledged, found: &ReadBack) -> Result<(), String> {
    let ReadBack { contents, is_over } = found;
    let mut attempt = 0;
    for (index, content) in contents.iter().enumerate() {
        let told = said.steps.iter().find(|told| told.content == *content && told.index == index as u64);
        let told =
            told.ok_or_else(|| format!("step {index} is {content}, which nobody said: {contents:?}"))?;
        if told.attempt < attempt {
            return Err(format!("{told:?} stands behind what attempt {attempt} recorded: {contents:?}"));
        }
        attempt = told.attempt;
    }
    let is_there = |index: u64, content: i64| contents.get(index as usize) == Some(&content);
    let lost = said.steps.iter().find(|it| it.is_acknowledged && !is_there(it.index, it.content));
    match lost {
        Some(lost) => Err(format!("{lost:?} is lost, of {contents:?}")),
        None if said.is_finished && !is_over => Err("an acknowledged end is lost".to_owned()),
        None => Ok(()),
    }
}
