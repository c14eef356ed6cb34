//! Finds an attempt by its reference, for those who are not the command.

use keepstep::format::ids;
use keepstep::read::Catalog;
use keepstep::{Error, Id, Listed, Result, Store};

use crate::reading::{Episode, matching};
use crate::refs::{Name, Ref, SHAPE};

/// What a reference means: the one attempt, and the look at the store that it was found in.
#[derive(Debug)]
pub struct Found {
    /// What the store held at that moment.
    pub catalog: Catalog,
    /// The attempt: the one that counts, where none was named.
    pub listed: Listed,
    /// The step that was named.
    pub step: Option<u64>,
}

/// How an attempt is called: `run/task#iteration.sample~attempt`; one without a name of its own by its id.
pub fn reference_of(listed: &Listed) -> String {
    let summary = &listed.summary;
    let (iteration, sample) = (summary.iteration.unwrap_or(0), summary.sample.unwrap_or(0));
    let (run, task) = (summary.run.as_deref().unwrap_or(""), summary.task.as_deref().unwrap_or(""));
    let birth = summary.birth.unwrap_or_default();
    if ids::episode(&birth, task, iteration, sample) != listed.key.episode {
        return listed.key.episode.to_string();
    }
    Ref { attempt: Some(listed.key.attempt), ..Ref::episode(run, task, iteration, sample) }.to_string()
}

/// Finds the attempt that a reference names: `run/task#iteration.sample~attempt`, or the beginning of an id.
pub fn find(store: &Store, text: &str) -> Result<Found> {
    let bad = |value: String, fix: String| Error::BadInput { field: "ref".to_owned(), value, fix };
    let wanted: Ref = text.parse().map_err(|error| bad(format!("{error}"), SHAPE.to_owned()))?;
    let mut catalog = store.catalog()?;
    let listed = match id_of(store, &wanted)? {
        Some(episode) => match store.list_one(&mut catalog, &episode) {
            Ok(listed) => listed,
            Err(Error::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(error),
        },
        None => store.list(&mut catalog)?,
    };
    let episodes: Vec<Episode> = listed.into_iter().map(Episode::of).collect();
    let mut found = matching(&episodes, &wanted);
    if let Name::Episode { run, .. } = &wanted.name {
        // A name stands for what its newest generation has; the others are found by their ids.
        let birth = newest_birth(store, run)?;
        found.retain(|it| birth.is_none_or(|birth| it.birth == birth));
    }
    let Some(newest) = found.iter().max_by_key(|it| (it.is_in_force, it.key.attempt)) else {
        return Err(Error::NotFound { what: format!("an episode called {text:?}") });
    };
    let mut names: Vec<_> = found.iter().map(|it| (it.name().to_string(), it.key.episode)).collect();
    names.sort();
    names.dedup();
    if names.len() > 1 {
        let more = if names.len() > 5 { ", …" } else { "" };
        let first: Vec<String> = names.iter().take(5).map(|(name, _)| name.clone()).collect();
        let value = format!("is {text:?}, which may mean any of {} episodes", names.len());
        return Err(bad(value, format!("name one: {}{more}", first.join(", "))));
    }
    Ok(Found { catalog, listed: newest.listed().clone(), step: wanted.step })
}

/// The id that a whole name, or a whole id, stands for: then not everything need be looked at.
fn id_of(store: &Store, wanted: &Ref) -> Result<Option<Id>> {
    match &wanted.name {
        Name::Bare(text) => Ok(text.parse().ok()),
        Name::Episode { run, task, iteration: Some(iteration), sample: Some(sample) } => {
            let birth = newest_birth(store, run)?;
            Ok(birth.map(|birth| ids::episode(&birth, task, *iteration, *sample)))
        }
        Name::Episode { .. } => Ok(None),
    }
}

/// The birth of a run's newest generation. A card that is damaged is left to `verify`.
fn newest_birth(store: &Store, name: &str) -> Result<Option<Id>> {
    let runs = store.runs()?.into_iter().filter_map(Result::ok).filter(|run| run.name == name);
    Ok(runs.max_by_key(|run| run.generation).map(|run| run.birth))
}
