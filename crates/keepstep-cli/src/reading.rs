//! What a store holds, as the verbs show it: runs, and episodes with their names.

use std::ops::Deref;
use std::path::Path;

use keepstep::read::Catalog;
use keepstep::refs::{self, MAY_BE_LOST, Meant, Ref, SHAPE, encode};
use keepstep::{Error, Id, Listed, RunInfo, Store};

use crate::failure::{Exit, Failure, Outcome};
use crate::filter::each_once;
use crate::json::Json;
use crate::place::{is_store, only_a_store};
use crate::screen::{Screen, shown};

/// The hint about a name that is not there.
pub(crate) const LOOK: &str = "`keepstep ls` shows what is there";
/// How many errors are shown: more would hide what was asked for.
const TROUBLES_SHOWN: usize = 10;

/// One attempt at an episode, by name.
#[derive(Debug, Clone)]
pub(crate) struct Episode {
    listed: Listed,
    pub(crate) run: String,
    pub(crate) generation_id: Id,
    pub(crate) task: String,
    pub(crate) iteration: i64,
    pub(crate) sample: i64,
}

impl AsRef<Listed> for Episode {
    fn as_ref(&self) -> &Listed {
        &self.listed
    }
}

impl Deref for Episode {
    type Target = Listed;

    fn deref(&self) -> &Listed {
        &self.listed
    }
}

impl Episode {
    pub(crate) fn of(listed: Listed) -> Self {
        let summary = &listed.summary;
        Self {
            run: summary.run.clone().unwrap_or_default(),
            generation_id: summary.generation_id.unwrap_or_default(),
            task: summary.task.clone().unwrap_or_default(),
            iteration: summary.iteration.unwrap_or(0),
            sample: summary.sample.unwrap_or(0),
            listed,
        }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Json {
        Json::map([
            ("ref", Json::from(self.reference().to_string())),
            ("id", self.key.episode.to_string().into()),
            ("attempt", self.key.attempt.into()),
            ("attempts", self.attempts.into()),
            ("in_force", self.is_in_force.into()),
            ("run", Json::from(&*self.run)),
            ("generation", self.generation.number.into()),
            ("task", Json::from(&*self.task)),
            ("iteration", self.iteration.into()),
            ("sample", self.sample.into()),
            ("state", Json::from(self.state())),
            ("why", Json::from(self.summary.why.clone())),
            ("steps", self.summary.steps.into()),
            ("return", self.summary.total_reward.into()),
            ("first_time_us", self.summary.first_time.into()),
            ("last_time_us", self.summary.last_time.into()),
            ("writer", self.key.writer.to_string().into()),
            ("trouble", Json::from(self.trouble.as_ref().map(ToString::to_string))),
        ])
    }

    /// Notes an error that the list could not see.
    pub(crate) fn find_wrong(&mut self, error: Error) {
        self.listed.trouble.get_or_insert(error);
    }

    /// Its reference on the command line: with the attempt, unless it is the one that counts.
    pub(crate) fn reference(&self) -> Ref {
        refs::attempt_of(&self.listed)
    }

    /// The name of the episode, without the attempt.
    pub(crate) fn name(&self) -> Ref {
        refs::name_of(&self.listed)
    }
}

/// All attempts in a catalog, sorted by name.
pub(crate) fn episodes(store: &Store, catalog: &mut Catalog) -> Outcome<Vec<Episode>> {
    let mut episodes: Vec<Episode> = store.list(catalog)?.into_iter().map(Episode::of).collect();
    episodes.sort_by(|a, b| {
        let name = |it: &Episode| (it.iteration, it.sample, it.key.attempt, it.key.writer);
        let (of_a, of_b) = ((&a.run, a.generation.number), (&b.run, b.generation.number));
        (of_a, natural(&a.task), name(a)).cmp(&(of_b, natural(&b.task), name(b)))
    });
    Ok(episodes)
}

/// Texts and numbers apart, so that task-9 comes before task-10.
fn natural(text: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0u64)];
    let mut was_digit = false;
    for c in text.chars() {
        let digit = c.to_digit(10);
        if was_digit && digit.is_none() {
            parts.push((String::new(), 0));
        }
        if let Some((letters, number)) = parts.last_mut() {
            match digit {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(digit.into()),
                None => letters.push(c),
            }
        }
        was_digit = digit.is_some();
    }
    parts
}

/// The runs of a store, by name and generation. A card that cannot be read is reported by [`tell_all_wrong`].
pub(crate) fn runs(store: &Store) -> Outcome<Vec<RunInfo>> {
    let is_told = |run: &keepstep::Result<RunInfo>| run.as_ref().is_err_and(Error::is_of_one_file);
    Ok(store.runs()?.into_iter().filter(|run| !is_told(run)).collect::<keepstep::Result<_>>()?)
}

/// True if a reference names this attempt.
pub(crate) fn fits_attempt(episode: &Episode, wanted: &Ref) -> bool {
    wanted.attempt == Some(episode.key.attempt)
}

/// The one attempt that is meant: the one that counts, if none is named.
pub(crate) fn one<'e>(
    store: &Store,
    episodes: &'e [Episode],
    text: &str,
    wanted: &Ref,
) -> Outcome<&'e Episode> {
    match refs::meant(episodes, wanted) {
        Meant::One(episode) => Ok(episode),
        Meant::Nothing => Err(not_there(store, text, wanted, "episode")),
        Meant::Several(names) => {
            let failure = Failure::new(format!("{text:?} may mean any of {} episodes", names.len()));
            Err(failure.hint(refs::name_one(&names)))
        }
    }
}

/// Why a reference matches nothing: it was pruned, or has another name.
pub(crate) fn not_there(store: &Store, text: &str, wanted: &Ref, what: &str) -> Failure {
    let failure = Failure::new(format!("no {what} here is called {text:?}"));
    let known = refs::not_there(store, text, wanted);
    if let Ok(pruned @ Error::Pruned { .. }) = known {
        return Failure::from(pruned);
    }
    if refs::is_incomplete(store) {
        return failure.hint(MAY_BE_LOST).hint(LOOK).with_exit(Exit::Lost);
    }
    if is_store(Path::new(text)) {
        return only_a_store(Path::new(text), what);
    }
    // The episode is there, and the attempt is not.
    let missing = open(store).ok().and_then(|(_, episodes)| refs::no_attempt(&episodes, wanted));
    if let Some(Error::Unknown { what, hint }) = missing {
        return Failure::new(format!("there is no {what}")).hint(hint);
    }
    match (written_otherwise(store, text), known) {
        (Some(hint), _) => failure.hint(hint).hint(LOOK),
        (None, Ok(Error::Unknown { hint, .. })) => failure.hint(hint).hint(LOOK),
        _ => failure.hint(LOOK).hint(SHAPE),
    }
}

/// What is meant by a name that was typed as it was given: with a slash that has to be encoded, or without its run.
fn written_otherwise(store: &Store, text: &str) -> Option<String> {
    for run in store.runs().ok()?.into_iter().flatten().filter(|run| run.is_newest) {
        let (name, rest) = (encode(&run.name), text.strip_prefix(&*run.name));
        let Some(rest) =
            rest.filter(|rest| name != run.name && (rest.is_empty() || rest.starts_with(['/', '#'])))
        else {
            continue;
        };
        let why = "a run's name is written as `keepstep ls` prints it";
        return Some(format!("perhaps {name}{rest} is meant: {why}"));
    }
    // What stands behind the name of a task is no part of it, unless its name has such marks itself.
    let parted = text.find(['#', '~', '@']).map(|at| text.split_at(at));
    let (_, episodes) = open(store).ok()?;
    let mut newest = episodes.iter().filter(|it| it.generation.is_newest);
    let (found, numbers) = newest.find_map(|it| match parted {
        _ if it.task == text => Some((it, "")),
        Some((task, numbers)) if it.task == task => Some((it, numbers)),
        _ => None,
    })?;
    let (run, task) = (encode(&found.run), encode(&found.task));
    Some(format!("perhaps {run}/{task}{numbers} is meant: the run comes first"))
}

/// Reports all that is wrong where a list of episodes was read: with these, with the cards of runs, and with the logs,
/// where others may have been lost. A list is never shorter without a word: each verb that reads one ends with this.
pub(crate) fn tell_all_wrong(
    store: &Store,
    catalog: &Catalog,
    episodes: &[Episode],
    screen: &mut Screen,
) -> Outcome {
    let wrong = tell_wrong(episodes, screen)?.worse(tell_unread_runs(store, episodes, screen)?);
    Ok(wrong.worse(tell_troubles(catalog, screen)?))
}

/// Reports what is wrong with which episodes: something that their records depend on is missing or damaged.
pub(crate) fn tell_wrong(episodes: &[Episode], screen: &mut Screen) -> Outcome {
    let said = |it: &Episode| Some(format!("{}: {}", it.name(), it.trouble.as_ref()?));
    tell_damaged(each_once(episodes.iter().filter_map(said), Clone::clone), screen)
}

/// Reports which cards of runs cannot be read, unless the episodes of the run do so.
fn tell_unread_runs(store: &Store, episodes: &[Episode], screen: &mut Screen) -> Outcome {
    let unread = store.runs()?.into_iter().filter_map(Result::err).map(|error| error.to_string());
    let is_told = |said: &String| {
        episodes.iter().any(|it| it.trouble.as_ref().is_some_and(|trouble| trouble.to_string() == *said))
    };
    tell_damaged(unread.filter(|said| !is_told(said)).collect(), screen)
}

fn tell_damaged(said: Vec<String>, screen: &mut Screen) -> Outcome {
    if said.is_empty() {
        return Ok(Exit::Done);
    }
    screen.flush()?;
    for one in said.iter().take(TROUBLES_SHOWN) {
        screen.say(&format!("{} {}", screen.talk.red("damaged:"), shown(one)));
    }
    if said.len() > TROUBLES_SHOWN {
        screen.say(&format!("… and {} more", said.len() - TROUBLES_SHOWN));
    }
    Ok(Exit::Lost)
}

/// Reports which files could not be read. The exit code says so too.
pub(crate) fn tell_troubles(catalog: &Catalog, screen: &mut Screen) -> Outcome {
    let troubles = catalog.troubles().iter().map(|trouble| trouble.error.to_string()).collect();
    let exit = tell_damaged(troubles, screen)?;
    if exit != Exit::Done {
        screen.say(&format!("{} `keepstep verify` says what it cost", screen.talk.cyan("hint:")));
    }
    Ok(exit)
}

/// The catalog and all attempts in it.
pub(crate) fn open(store: &Store) -> Outcome<(Catalog, Vec<Episode>)> {
    let mut catalog = store.catalog()?;
    let episodes = episodes(store, &mut catalog)?;
    Ok((catalog, episodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_sorted_as_numbers() {
        let mut names = ["t-10", "t-9", "t", "a-2-b", "a-2-a", "t-9b"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["a-2-a", "a-2-b", "t", "t-9", "t-9b", "t-10"]);
    }
}
