//! What must be true after any crash: DESIGN §1, asked of a store that was opened again.

use keepstep::disk::sim::SimDisk;
use keepstep::format::fields;
use keepstep::read::Item;
use keepstep::{EpisodeName, Level, Step, Store, Value};

use super::workload::{Acknowledged, RUN, Workload, options, step_of};

/// Why a state breaks a promise.
pub type Broke = String;

/// Opens what a crash left, and compares it with what was acknowledged and what was ever said.
pub fn check(
    workload: &Workload,
    state: &SimDisk,
    acknowledged: &[Acknowledged],
    survived: Level,
) -> Result<u64, Broke> {
    let acknowledged: Vec<_> = acknowledged.iter().filter(|step| step.level >= survived).collect();
    let store = match Store::on_files(state.process(), options(None)) {
        Ok(store) => store,
        Err(error) if acknowledged.is_empty() => {
            return Err(format!("the store cannot be opened again: {error}"));
        }
        Err(error) => {
            return Err(format!(
                "{} acknowledged steps, and the store cannot be opened: {error}",
                acknowledged.len()
            ));
        }
    };
    let mut catalog = store.catalog().map_err(|error| format!("the store cannot be read: {error}"))?;
    let run = store.run(RUN, Value::Null).map_err(|error| format!("the run cannot be opened: {error}"))?;
    let mut found = 0;
    for episode in 0..2 {
        let name = EpisodeName::task(workload.name).sample(episode as i64);
        let steps = steps_of(&catalog, &run.episode_id(&name))?;
        found += steps.len() as u64;
        for (index, step) in steps.iter().enumerate() {
            compare(workload, episode, index as u64, step)?;
        }
        let lost =
            acknowledged.iter().find(|step| step.episode == episode && step.step >= steps.len() as u64);
        if let Some(lost) = lost {
            return Err(format!("{lost:?} is lost: {} steps are left", steps.len()));
        }
    }
    let _ = catalog.attempts().map_err(|error| format!("the attempts cannot be listed: {error}"))?;
    match catalog.troubles().first() {
        Some(trouble) => Err(format!("a power cut looks like damage: {trouble:?}")),
        None => Ok(found),
    }
}

/// The fields of an episode's steps, all whole and without gaps, or why not.
fn steps_of(
    catalog: &keepstep::read::Catalog,
    episode: &keepstep::Id,
) -> Result<Vec<Vec<(u8, Value)>>, Broke> {
    let mut steps: Vec<Vec<(u8, Value)>> = Vec::new();
    let Ok(key) = catalog.find(episode, 0) else { return Ok(steps) };
    let mut reader = catalog.reader(&key).map_err(|error| format!("an episode cannot be read: {error}"))?;
    if let Some((segment, offset)) = reader.nameless_damage().first() {
        return Err(format!("a power cut looks like damage in segment {segment} at {offset}"));
    }
    for item in reader.records() {
        match item.map_err(|error| format!("a record cannot be read: {error}"))? {
            Item::Record(record) if !record.lost.is_empty() => {
                return Err(format!(
                    "record {} at {:?} refers to what is not there",
                    record.seq, record.place
                ));
            }
            Item::Record(record) if record.get(fields::INDEX).is_some() => steps.push(record.fields),
            Item::Record(_) => {}
            other => return Err(format!("a power cut looks like damage: {other:?}")),
        }
    }
    Ok(steps)
}

/// A step that is there says what was said.
fn compare(workload: &Workload, episode: u64, index: u64, found: &[(u8, Value)]) -> Result<(), Broke> {
    let expected = step_of(workload.name, episode, index);
    let said = expected.fields();
    let found: Vec<&(u8, Value)> = found.iter().filter(|(number, _)| *number != fields::TIME).collect();
    let number =
        found.iter().find(|(number, _)| *number == fields::INDEX).and_then(|(_, value)| value.as_int());
    if number != Some(index as i64) {
        return Err(format!("step {index} of episode {episode} says that it is step {number:?}"));
    }
    let rest: Vec<&(u8, Value)> = found.into_iter().filter(|(number, _)| *number != fields::INDEX).collect();
    if rest.iter().map(|(number, _)| *number).ne(said.iter().map(|(number, _)| *number)) {
        return Err(format!("step {index} of episode {episode} has other fields than were said"));
    }
    for ((number, found), (_, said)) in rest.into_iter().zip(said) {
        if found != said {
            return Err(format!("step {index} of episode {episode}: field {number} is not what was said"));
        }
    }
    Ok(())
}

/// After a crash recording goes on: a new process opens the store and keeps a step in it.
pub fn goes_on(state: &SimDisk) -> Result<(), Broke> {
    let go = || -> keepstep::Result<()> {
        let store = Store::on_files(state.process(), options(None))?;
        let run = store.run("after the crash", Value::Null)?;
        let recorder = run.episode(EpisodeName::task("more"))?;
        recorder.step(Step::new().observation("still here"))?;
        let key = store.catalog()?.find(&recorder.id(), 0)?;
        let read = store.catalog()?.reader(&key)?.read()?;
        assert_eq!(read.steps.len(), 1, "{read:?}");
        Ok(())
    };
    go().map_err(|error| format!("recording does not go on: {error}"))
}
