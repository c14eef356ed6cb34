//! Finds an attempt by its reference, and explains why one is not found.

use std::collections::BTreeSet;

use keepstep_format::{Id, ids};

use super::grammar::{Name, Ref, SHAPE, run_reference};
use super::name_of;
use super::nearest::nearest;
use crate::counts::numbered;
use crate::error::{Error, Result};
use crate::read::{Catalog, NoteTarget};
use crate::store::{Generation, Listed, Run, RunInfo, Store};

/// How many samples and iterations are tried to find a pruned episode of a task: only its id is left.
const TRIED_MAX: i64 = 64;
/// How many names are listed if a reference may mean several.
const TOLD_MAX: usize = 5;

/// The attempt that a reference means, and the catalog that it was found in.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// A catalog with the logs that the attempt is in; of the whole store, if the reference had to be searched for.
    pub catalog: Catalog,
    /// The attempt: the one that counts, if the reference names none.
    pub listed: Listed,
    /// The step that the reference names.
    pub step: Option<u64>,
    /// True if the reference names an attempt.
    pub names_attempt: bool,
}

fn parsed(text: &str) -> Result<Ref> {
    text.parse().map_err(|error| bad(format!("is not valid: {error}"), SHAPE.to_owned()))
}

fn bad(value: String, fix: String) -> Error {
    Error::BadInput { field: "ref".to_owned(), value, fix }
}

/// Finds the attempt that a reference names: `run/task#iteration.sample~attempt`, or the beginning of an id.
///
/// ```
/// use keepstep::refs;
///
/// # let dir = std::env::temp_dir().join(format!("keepstep-doc-find-{}", std::process::id()));
/// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
/// # let episode = run.episode(keepstep::EpisodeName::task("shop-17"))?;
/// # episode.step(keepstep::Step::new().action("buy").reward(1.0))?;
/// # episode.end(keepstep::Why::Finished, keepstep::Ending::default())?.wait()?;
/// let found = refs::find(run.store(), "shop-agent/shop-17")?;
/// assert_eq!(refs::reference_of(&found.listed).to_string(), "shop-agent/shop-17#0.0~0");
/// # drop((episode, run));
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok::<(), keepstep::Error>(())
/// ```
pub fn find(store: &Store, text: &str) -> Result<Found> {
    let wanted = parsed(text)?;
    let (catalog, listed) = match id_of(store, &wanted)? {
        Some(episode) => match store.look_up(&episode) {
            Err(Error::NotFound { .. } | Error::Pruned { .. }) => {
                return Err(not_there(store, text, &wanted)?);
            }
            found => found?,
        },
        None => {
            let mut catalog = store.catalog()?;
            let listed = store.list(&mut catalog)?;
            (catalog, listed)
        }
    };
    let listed = match meant(&listed, &wanted) {
        Meant::One(listed) => listed.clone(),
        Meant::Nothing => return Err(not_there(store, text, &wanted)?),
        Meant::Several(names) => {
            let value = format!("is {text:?}, which may mean any of {} episodes", names.len());
            return Err(bad(value, name_one(&names)));
        }
    };
    Ok(Found { catalog, listed, step: wanted.step, names_attempt: wanted.attempt.is_some() })
}

/// All of these attempts that a reference matches.
pub fn matching<'e, T: AsRef<Listed>>(attempts: &'e [T], wanted: &Ref) -> Vec<&'e T> {
    let fits_attempt = |it: &T| wanted.attempt.is_none_or(|attempt| attempt == it.as_ref().key.attempt);
    // Without a generation, a name means the newest one.
    let fits_generation = |listed: &Listed| {
        let Generation { number, is_newest } = listed.generation;
        wanted.generation.map_or(is_newest, |wanted| wanted == number)
    };
    let fits = |it: &T| {
        let (listed, said) = (it.as_ref(), &it.as_ref().summary);
        let is_of = |run: &str| said.run.as_deref().unwrap_or_default() == run && fits_generation(listed);
        match &wanted.name {
            Name::Bare(text) => is_of(text),
            Name::Episode { run, task, iteration, sample } => {
                is_of(run)
                    && said.task.as_deref().unwrap_or_default() == task
                    && iteration.is_none_or(|iteration| iteration == said.iteration.unwrap_or(0))
                    && sample.is_none_or(|sample| sample == said.sample.unwrap_or(0))
            }
        }
    };
    let named: Vec<&T> = attempts.iter().filter(|it| fits(it) && fits_attempt(it)).collect();
    match &wanted.name {
        // No run has that name, so it may be the beginning of an id.
        Name::Bare(text) if named.is_empty() && wanted.generation.is_none() => attempts
            .iter()
            .filter(|it| it.as_ref().key.episode.to_string().starts_with(text) && fits_attempt(it))
            .collect(),
        _ => named,
    }
}

/// What a reference means among attempts.
#[derive(Debug)]
pub enum Meant<'e, T> {
    /// One episode: this attempt of it, which is the one that counts if the reference names none.
    One(&'e T),
    /// Several episodes, by their names.
    Several(Vec<String>),
    /// None.
    Nothing,
}

/// Which of these attempts a reference means.
pub fn meant<'e, T: AsRef<Listed>>(attempts: &'e [T], wanted: &Ref) -> Meant<'e, T> {
    let found = matching(attempts, wanted);
    let key = |it: &&&T| (it.as_ref().is_in_force, it.as_ref().key.attempt);
    let Some(newest) = found.iter().max_by_key(key) else { return Meant::Nothing };
    let mut names: Vec<(String, Id)> =
        found.iter().map(|it| (name_of(it.as_ref()).to_string(), it.as_ref().key.episode)).collect();
    names.sort();
    names.dedup();
    match names.len() {
        1 => Meant::One(newest),
        _ => Meant::Several(names.into_iter().map(|(name, _)| name).collect()),
    }
}

/// Lists some of several names, so that the caller can choose one.
pub fn name_one(names: &[String]) -> String {
    let more = if names.len() > TOLD_MAX { ", …" } else { "" };
    format!("name one: {}{more}", names[..names.len().min(TOLD_MAX)].join(", "))
}

/// The target of a note on an episode of this run, by its reference. A whole name or id is accepted as it is: whether
/// the episode exists is checked when the note is made. A part of a name or id is searched.
pub fn address(run: &Run, text: &str) -> Result<NoteTarget> {
    let wanted = parsed(text)?;
    let (attempt, step) = (wanted.attempt, wanted.step);
    let elsewhere = |of: String| {
        let hint = format!("it is of {of}; this is {}", called(run.name(), run.info().generation));
        Error::Unknown { what: format!("{text:?}, as an episode of this run,"), hint }
    };
    if let Name::Episode { run: name, task, iteration, sample } = &wanted.name {
        let is_this = wanted.generation.map_or(run.info().is_newest, |it| it == run.info().generation);
        if name != run.name() {
            return Err(elsewhere(format!("run '{name}'")));
        }
        if !is_this {
            let of = wanted.generation.map_or("the newest generation".to_owned(), |it| called(name, it));
            return Err(elsewhere(of));
        }
        if let (Some(iteration), Some(sample)) = (*iteration, *sample) {
            let episode = ids::episode(&run.generation_id(), task, iteration, sample);
            return Ok(NoteTarget { episode, attempt, step });
        }
    }
    if let (Name::Bare(text), None) = (&wanted.name, wanted.generation)
        && let Ok(episode) = text.parse::<Id>()
    {
        return Ok(NoteTarget { episode, attempt, step });
    }
    let found = find(run.store(), text)?.listed;
    if found.summary.generation_id.is_some_and(|generation_id| generation_id != run.generation_id()) {
        let name = found.summary.run.unwrap_or_default();
        return Err(elsewhere(called(&name, found.generation.number)));
    }
    Ok(NoteTarget { episode: found.key.episode, attempt, step })
}

fn called(run: &str, generation: u64) -> String {
    if generation == 0 { format!("run '{run}'") } else { format!("run '{run}', generation {generation}") }
}

/// Adds a hint to an error about something that was not found, for the caller that gave this reference.
pub fn explain(store: &Store, text: &str, error: Error) -> Error {
    if !matches!(error, Error::NotFound { .. }) {
        return error;
    }
    parsed(text).and_then(|wanted| not_there(store, text, &wanted)).unwrap_or(error)
}

/// What is added if a name is not found and logs are missing.
pub const MAY_BE_LOST: &str =
    "part of this store is gone or damaged, and it may have been there: `keepstep verify` says more";

/// True if logs are missing or cannot be read. Then it is unknown whether something was recorded.
pub fn is_incomplete(store: &Store) -> bool {
    store.catalog().is_ok_and(|catalog| !catalog.troubles().is_empty())
}

/// Why a reference matches nothing: the episode was pruned, has not begun, or has another name. Reads the whole
/// store.
pub fn not_there(store: &Store, text: &str, wanted: &Ref) -> Result<Error> {
    let mut catalog = store.catalog()?;
    let runs: Vec<RunInfo> = store.runs()?.into_iter().filter_map(Result::ok).collect();
    if let Some(pruned) = pruned(&catalog, &runs, text, wanted) {
        return Ok(pruned);
    }
    let what = format!("an episode called {text:?}");
    if let Some(hint) = no_generation(&runs, wanted) {
        return Ok(Error::Unknown { what, hint });
    }
    let episodes = store.list(&mut catalog)?;
    let whole = Ref { attempt: None, step: None, ..wanted.clone() };
    if let Some(missing) = no_attempt(&episodes, wanted) {
        return Ok(missing);
    }
    // If logs are missing, it is unknown what has not begun or has another name.
    if !catalog.troubles().is_empty() {
        return Ok(Error::Unknown { what, hint: MAY_BE_LOST.to_owned() });
    }
    if is_planned(store, &runs, wanted)? {
        let hint = "it is planned and has not begun".to_owned();
        return Ok(Error::Unknown { what, hint });
    }
    if let Some(hint) = empty_run(&episodes, &runs, &whole).or_else(|| same_task(&episodes, wanted)) {
        return Ok(Error::Unknown { what, hint });
    }
    let is_part = matches!(&wanted.name, Name::Episode { iteration: None, .. });
    let names = episodes.iter().filter(|it| it.is_in_force).map(|it| match name_of(it) {
        Ref { name: Name::Episode { run, task, .. }, generation, .. } if is_part => {
            let name = Name::Episode { run, task, iteration: None, sample: None };
            Ref { name, generation, attempt: None, step: None }.to_string()
        }
        whole => whole.to_string(),
    });
    let names = names
        .chain(runs.iter().map(|run| run_reference(&run.name, (!run.is_newest).then_some(run.generation))));
    let near = nearest(&whole.to_string(), names);
    Ok(match near.is_empty() {
        true => Error::NotFound { what },
        false => Error::Unknown { what, hint: format!("perhaps {} is meant", near.join(" or ")) },
    })
}

/// For a run without episodes: its name is right, and there is nothing to show.
fn empty_run(episodes: &[Listed], runs: &[RunInfo], wanted: &Ref) -> Option<String> {
    let is_there = runs.iter().any(|run| names_run(wanted, run)) && matching(episodes, wanted).is_empty();
    is_there.then(|| format!("run '{wanted}' is there, and has no episodes"))
}

/// True if a reference is the name of a run, and of nothing in it.
pub fn names_run(wanted: &Ref, run: &RunInfo) -> bool {
    let is_meant = wanted.generation.map_or(run.is_newest, |generation| generation == run.generation);
    is_meant && wanted.attempt.is_none() && matches!(&wanted.name, Name::Bare(name) if *name == run.name)
}

/// For a task that was named without its run: with it.
fn same_task(episodes: &[Listed], wanted: &Ref) -> Option<String> {
    let Name::Bare(task) = &wanted.name else { return None };
    let of_task = episodes.iter().filter_map(|it| match name_of(it).name {
        Name::Episode { run, task: found, .. } if found == *task => {
            let name = Name::Episode { run, task: found, iteration: None, sample: None };
            Some(Ref { name, generation: None, attempt: None, step: None }.to_string())
        }
        _ => None,
    });
    let names: BTreeSet<String> = of_task.collect();
    let shown: Vec<String> = names.into_iter().take(3).collect();
    (!shown.is_empty()).then(|| format!("perhaps {} is meant", shown.join(" or ")))
}

/// When and why it was pruned: found by its id, or by its name as far as ids allow.
fn pruned(catalog: &Catalog, runs: &[RunInfo], text: &str, wanted: &Ref) -> Option<Error> {
    let manifest = catalog.manifest();
    let error = |id: &Id| manifest.refuse_pruned(id).err().map(|error| error.of(&format!("{text:?}")));
    let (run, task, iteration, sample) = match &wanted.name {
        Name::Bare(start) => {
            let id = manifest.pruned_episodes().find(|id| id.to_string().starts_with(start.as_str()))?;
            return error(id);
        }
        Name::Episode { run, task, iteration, sample } => (run, task, *iteration, *sample),
    };
    let generation_id = generation(runs, run, wanted.generation)?.generation_id;
    let numbers = |given: Option<i64>| given.map_or(0..TRIED_MAX, |it| it..it.saturating_add(1));
    let tried =
        numbers(iteration).flat_map(|iteration| numbers(sample).map(move |sample| (iteration, sample)));
    tried
        .map(|(iteration, sample)| ids::episode(&generation_id, task, iteration, sample))
        .find_map(|id| error(&id))
}

/// Which attempts an episode has, if the episode exists and the named attempt does not.
pub fn no_attempt<T: AsRef<Listed>>(attempts: &[T], wanted: &Ref) -> Option<Error> {
    let number = wanted.attempt?;
    let whole = Ref { attempt: None, step: None, ..wanted.clone() };
    let there = matching(attempts, &whole);
    let first = there.first()?.as_ref().key.episode;
    let hint = if there.iter().all(|it| it.as_ref().key.episode == first) {
        let mut numbers: Vec<u64> = there.iter().map(|it| it.as_ref().key.attempt.into()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbered("attempt", &numbers)
    } else {
        "none of the episodes of that name has it".to_owned()
    };
    Some(Error::Unknown { what: format!("attempt {number} of {whole}"), hint })
}

/// Which generations of a run there are, if the named one does not exist.
fn no_generation(runs: &[RunInfo], wanted: &Ref) -> Option<String> {
    let (Name::Bare(run) | Name::Episode { run, .. }) = &wanted.name;
    let number = wanted.generation?;
    if generation(runs, run, Some(number)).is_some() {
        return None;
    }
    let mut there: Vec<u64> = runs.iter().filter(|it| it.name == *run).map(|it| it.generation).collect();
    there.sort_unstable();
    (!there.is_empty())
        .then(|| format!("run '{run}' has no generation {number}: {}", numbered("generation", &there)))
}

fn is_planned(store: &Store, runs: &[RunInfo], wanted: &Ref) -> Result<bool> {
    let Name::Episode { run, task, iteration, sample } = &wanted.name else { return Ok(false) };
    let Some(info) = generation(runs, run, wanted.generation) else { return Ok(false) };
    let planned = store.run_of(info.clone()).planned()?;
    Ok(planned.iter().any(|(name, visit, samples)| {
        name == task
            && iteration.is_none_or(|iteration| iteration == *visit)
            && sample.is_none_or(|sample| (0..i64::from(*samples)).contains(&sample))
    }))
}

/// A run by its name and generation; without one, the newest.
fn generation<'r>(runs: &'r [RunInfo], name: &str, number: Option<u64>) -> Option<&'r RunInfo> {
    let mut of_name = runs.iter().filter(|run| run.name == name);
    of_name.find(|run| number.map_or(run.is_newest, |number| run.generation == number))
}

/// The id of a whole name or a whole id. With it, not everything has to be read.
fn id_of(store: &Store, wanted: &Ref) -> Result<Option<Id>> {
    match &wanted.name {
        Name::Bare(text) => Ok(text.parse().ok().filter(|_| wanted.generation.is_none())),
        Name::Episode { run, task, iteration: Some(iteration), sample: Some(sample) } => {
            // A damaged card is reported by `verify`.
            let runs: Vec<RunInfo> = store.runs()?.into_iter().filter_map(Result::ok).collect();
            let generation_id = generation(&runs, run, wanted.generation).map(|run| run.generation_id);
            Ok(generation_id.map(|generation_id| ids::episode(&generation_id, task, *iteration, *sample)))
        }
        Name::Episode { .. } => Ok(None),
    }
}
