//! References: how people name a run, an episode, an attempt or a step, and how these are found.
//!
//! The command, Python and Rust share one grammar, one way to find what is meant, and one way to explain what is not
//! found.

mod find;
mod grammar;
mod nearest;

pub use find::{
    Found, MAY_BE_LOST, Meant, address, explain, find, is_incomplete, matching, meant, name_one, names_run,
    no_attempt, not_there,
};
pub use grammar::{BadRef, Name, Ref, SHAPE, encode, run_reference};

use crate::store::{EpisodeName, Listed, Run};

/// The reference of an episode: `run/task#iteration.sample`, odd characters percent-encoded. It includes the
/// generation of the run if that is not the newest.
pub fn reference(run: &Run, name: &EpisodeName) -> Ref {
    Ref::episode(run.name(), &name.task, name.iteration, name.sample).generation(run.old_generation())
}

/// The reference of all samples of a task and iteration: `run/task#iteration`.
pub fn group_reference(run: &Run, task: &str, iteration: i64) -> Ref {
    let (name, task) = (run.name().to_owned(), task.to_owned());
    let name = Name::Episode { run: name, task, iteration: Some(iteration), sample: None };
    Ref { name, generation: run.old_generation(), attempt: None, step: None }
}

/// The reference of the episode of an attempt, without the attempt. An episode without a name is referred to by its
/// id.
pub fn name_of(listed: &Listed) -> Ref {
    let Some(name) = listed.name() else {
        let name = Name::Bare(listed.key.episode.to_string());
        return Ref { name, generation: None, attempt: None, step: None };
    };
    let run = listed.summary.run.as_deref().unwrap_or_default();
    Ref::episode(run, &name.task, name.iteration, name.sample).generation(listed.generation.said())
}

/// The reference of an attempt: its episode, and its number unless it is the one that counts.
pub fn attempt_of(listed: &Listed) -> Ref {
    let attempt = (!listed.is_in_force).then_some(listed.key.attempt);
    Ref { attempt, ..name_of(listed) }
}

/// The reference of an attempt, always with its number. An episode without a name is referred to by its id alone.
pub fn reference_of(listed: &Listed) -> Ref {
    let name = name_of(listed);
    match name.name {
        Name::Bare(_) => name,
        Name::Episode { .. } => Ref { attempt: Some(listed.key.attempt), ..name },
    }
}
