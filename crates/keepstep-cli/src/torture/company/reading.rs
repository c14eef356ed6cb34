//! Reads every episode of the company's runs, with what each inherited, by a reader that has seen nothing before.

use std::path::Path;

use keepstep::read::RecordedStep;
use keepstep::{Store, Value};
use keepstep_format::fields;

use super::super::content::{Content, Key, Story};
use super::super::digest::Digest;
use super::oracle::{AllFound, FoundStep, RUNS, ReadBack};
use crate::failure::Outcome;
use crate::place::open_to_read;
use crate::reading;

/// The runs of one torture: a store may be tortured again.
pub(super) fn run_name(base: &str, run: usize) -> String {
    format!("{base}-{}", RUNS[run])
}

/// The step to be recorded, with a mark of whoever records it.
pub(super) fn marked(content: &Content, mark: &str) -> keepstep::Step {
    content.step().info(Value::from(mark))
}

/// Reads all that is there.
pub(super) fn read_all(store: &Path, base: &str, seed: u64) -> Outcome<AllFound> {
    let store = open_to_read(store)?;
    let (catalog, episodes) = reading::open(&store)?;
    let mut all = AllFound::new();
    let is_ours = |run: &str| (0..RUNS.len()).any(|it| run == run_name(base, it));
    for episode in episodes.iter().filter(|it| it.is_in_force && is_ours(&it.run)) {
        let Some(key) = Key::from_name(&episode.task, episode.iteration, episode.sample) else { continue };
        let found = match store.view_of(&catalog, &episode.key) {
            Ok(view) => {
                let read = view.read()?;
                let why = view.ending()?.and_then(|end| end.why);
                ReadBack { id: view.id(), steps: check_steps(seed, key, &read.steps), why }
            }
            // Pruned since it was listed.
            Err(keepstep::Error::Pruned { .. } | keepstep::Error::NotFound { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        all.insert(key, found);
    }
    Ok(all)
}

/// What is damaged, lost or missing, in words.
pub(super) fn damage(store: &Store) -> Outcome<Vec<String>> {
    let report = store.verify(&mut |_| {})?;
    let damage = report.damage.iter().map(|it| format!("{it:?}"));
    let lost = report.lost.iter().map(|it| format!("{it:?}"));
    Ok(damage.chain(lost).chain(report.missing.iter().map(|it| format!("{it:?}"))).collect())
}

fn check_steps(seed: u64, key: Key, steps: &[RecordedStep]) -> Vec<FoundStep> {
    let mut story = Story::new(seed, key);
    let mut told = Vec::new();
    for step in steps {
        let index = u64::try_from(step.index).unwrap_or(u64::MAX);
        let mark = step.info.as_ref().and_then(|mark| mark.as_str()).unwrap_or("nobody").to_owned();
        let is_damaged = !step.damaged.is_empty();
        // Stories are told from the beginning: where one stands elsewhere, that is the fault.
        let is_right = index == told.len() as u64
            && index < story.steps
            && digest(&fields_of(step)) == digest(story.next_step(index).fields())
            && !is_damaged;
        told.push(FoundStep { index, mark, is_right, is_damaged });
    }
    told
}

/// What is not there and what is nothing are one and the same to whoever reads a step.
fn digest(fields: &[(u8, Value)]) -> u64 {
    let some = fields.iter().filter(|(_, value)| !matches!(value, Value::Null));
    Digest::of_fields(some.map(|(number, value)| (*number, value)))
}

fn fields_of(step: &RecordedStep) -> Vec<(u8, Value)> {
    let reward = step.reward.map(Value::Float);
    let all = [
        (fields::OBSERVATION, step.observation.clone()),
        (fields::REWARD, reward),
        (fields::PROMPT, step.prompt.clone()),
        (fields::RESPONSE, step.response.clone()),
        (fields::TOKENS, step.tokens.clone()),
    ];
    all.into_iter().filter_map(|(number, value)| Some((number, value?))).collect()
}
