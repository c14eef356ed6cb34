//! References: how people name a run, an episode, an attempt or a step, and how what they name is found.
//!
//! One grammar, one way to find what is meant, and one way to say what is known of what is not there: for the command, for
//! Python and for Rust.

mod find;
mod grammar;
mod nearest;

pub use find::{
    Found, MAY_BE_LOST, Meant, address, explain, find, is_incomplete, matching, meant, name_one, not_there,
};
pub use grammar::{BadRef, Name, Ref, SHAPE, encode, run_reference};

use crate::format::ids;
use crate::store::{EpisodeName, Listed, Run};

/// How an episode of a run is called: `run/task#iteration.sample`, odd characters percent-encoded; the generation of the run
/// stands there if it is not the newest.
pub fn reference(run: &Run, name: &EpisodeName) -> Ref {
    Ref::episode(run.name(), &name.task, name.iteration, name.sample).generation(run.old_generation())
}

/// How all samples of a task and iteration are called: `run/task#iteration`.
pub fn group_reference(run: &Run, task: &str, iteration: i64) -> Ref {
    let (name, task) = (run.name().to_owned(), task.to_owned());
    let name = Name::Episode { run: name, task, iteration: Some(iteration), sample: None };
    Ref { name, generation: run.old_generation(), attempt: None, step: None }
}

/// How the episode of an attempt is called, whichever attempt it is; one without a name of its own by its id.
pub fn name_of(listed: &Listed) -> Ref {
    let said = &listed.summary;
    let (generation_id, iteration, sample) =
        (said.generation_id.unwrap_or_default(), said.iteration.unwrap_or(0), said.sample.unwrap_or(0));
    let (run, task) = (said.run.as_deref().unwrap_or_default(), said.task.as_deref().unwrap_or_default());
    if ids::episode(&generation_id, task, iteration, sample) != listed.key.episode {
        let name = Name::Bare(listed.key.episode.to_string());
        return Ref { name, generation: None, attempt: None, step: None };
    }
    Ref::episode(run, task, iteration, sample).generation(listed.generation.said())
}

/// How an attempt is called: its episode, and its number unless it is the one that counts.
pub fn attempt_of(listed: &Listed) -> Ref {
    let attempt = (!listed.is_in_force).then_some(listed.key.attempt);
    Ref { attempt, ..name_of(listed) }
}

/// How an attempt is called with its number, also if it is the one that counts; one without a name of its own by its id alone.
pub fn reference_of(listed: &Listed) -> Ref {
    let name = name_of(listed);
    match name.name {
        Name::Bare(_) => name,
        Name::Episode { .. } => Ref { attempt: Some(listed.key.attempt), ..name },
    }
}
