//! What must be true after a power cut in a takeover: all that was promised is there, and the episode goes on.

use keepstep::disk::sim::SimDisk;
use keepstep::read::Attempt;
use keepstep::{Error, Level, Run, Value};

use super::workload::{Acknowledged, content, name, open_run, options, step_of, taking};

/// Opens what a cut left, reads it, takes it over, and compares. Gives back how many steps were there.
pub fn check(state: &SimDisk, acknowledged: &[Acknowledged], survived: Level) -> Result<u64, String> {
    let run =
        open_run(state.process(), options(None)).map_err(|error| format!("cannot be opened: {error}"))?;
    let before = read(&run)?;
    compare(&before, acknowledged, survived)?;
    let episode = match run.open(name(), taking()) {
        Err(Error::Ended { .. }) => return Ok(before.0.len() as u64),
        opened => opened.map_err(|error| format!("cannot be taken over: {error}"))?,
    };
    if acknowledged.contains(&Acknowledged::End) {
        return Err("an acknowledged end is lost".to_owned());
    }
    let action = |index| Ok(episode.history(index)?.action.and_then(|action| action.as_int()));
    let inherited = (0..episode.inherited()).map(action).collect::<keepstep::Result<Vec<_>>>();
    let inherited = inherited.map_err(|error| format!("what is inherited cannot be read: {error}"))?;
    if inherited.iter().flatten().ne(&before.0) {
        return Err(format!("a reader sees {:?}, and a taker {inherited:?}", before.0));
    }
    if episode.pending().is_some() {
        episode.discard("after the cut").map_err(|error| format!("does not go on: {error}"))?;
    }
    let more = content(episode.attempt(), episode.steps());
    episode.step(step_of(more)).map_err(|error| format!("does not go on: {error}"))?;
    let after = read(&run)?;
    if after.0.split_last() != Some((&more, &before.0)) {
        return Err(format!("{:?} became {:?}", before.0, after.0));
    }
    Ok(after.0.len() as u64)
}

/// What the steps say, and whether it is over.
type ReadBack = (Vec<i64>, bool);

fn read(run: &Run) -> Result<ReadBack, String> {
    let view = match run.view(&name()) {
        Err(Error::NotFound { .. }) => return Ok((Vec::new(), false)),
        view => view.map_err(|error| format!("cannot be read: {error}"))?,
    };
    let attempt = view.read().map_err(|error| format!("cannot be read: {error}"))?;
    if !attempt.is_whole() {
        let Attempt { gaps, damaged, .. } = attempt;
        return Err(format!("attempt {} rests on what is gone: {gaps:?}, {damaged:?}", view.number()));
    }
    let end = view.ending().map_err(|error| format!("its end cannot be read: {error}"))?;
    let is_over = end.is_some_and(|end| end.why.as_deref() == Some("finished"));
    Ok((contents(&attempt)?, is_over))
}

/// Each step says what was said, and whoever came later stands behind.
fn contents(attempt: &Attempt) -> Result<Vec<i64>, String> {
    let mut contents = Vec::new();
    for (index, step) in attempt.steps.iter().enumerate() {
        let content = step.action.as_ref().and_then(Value::as_int).unwrap_or(-1);
        let said = step_of(content);
        let prompt = said.fields().iter().find(|(_, value)| value.as_list().is_some()).map(|(_, it)| it);
        if content % 100 != index as i64 || step.prompt.as_ref() != prompt {
            return Err(format!("step {index} is not what was said: {step:?}"));
        }
        contents.push(content);
    }
    if contents.is_sorted() { Ok(contents) } else { Err(format!("out of order: {contents:?}")) }
}

fn compare(
    (contents, is_over): &ReadBack,
    acknowledged: &[Acknowledged],
    survived: Level,
) -> Result<(), String> {
    let mut may_be_cut = u64::MAX;
    for told in acknowledged.iter().rev() {
        match *told {
            Acknowledged::Cut { steps } => may_be_cut = may_be_cut.min(steps),
            Acknowledged::End if !is_over => return Err("an acknowledged end is lost".to_owned()),
            Acknowledged::Step { index, content, level }
                if level >= survived
                    && index < may_be_cut
                    && contents.get(index as usize) != Some(&content) =>
            {
                return Err(format!("{told:?} is lost: {contents:?} is left"));
            }
            _ => {}
        }
    }
    Ok(())
}
