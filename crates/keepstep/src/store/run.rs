//! A run: a named set of episodes with one config and a random birth id.

use keepstep_format::value::Value;
use keepstep_format::{Id, card, fields, ids};

use super::Store;
use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::own::{decode_fields, encode_fields};

/// The name of an episode within its run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EpisodeName {
    /// What was to be done.
    pub task: String,
    /// Which visit of the task.
    pub iteration: i64,
    /// Which of several tries at once.
    pub sample: i64,
}

impl EpisodeName {
    /// The first sample of the first iteration.
    pub fn task(task: impl Into<String>) -> Self {
        Self { task: task.into(), iteration: 0, sample: 0 }
    }
}

/// A run that is open.
#[derive(Debug, Clone)]
pub struct Run {
    pub(super) store: Store,
    name: String,
    birth: Id,
    generation: i64,
}

impl Store {
    /// Opens a run, making it if it is not there. Another config than the one it was made with is refused.
    pub fn run(&self, name: &str, config: Value) -> Result<Run> {
        let folder = format!("runs/{}", ids::run_folder(name));
        disk::ensure_dir(&**self.disk(), "runs").doing("create", "runs")?;
        disk::ensure_dir(&**self.disk(), &folder).doing("create", &folder)?;
        let path = format!("{folder}/0.run");
        for _ in 0..2 {
            if let Some(run) = self.read_run(name, &path, &config)? {
                return Ok(run);
            }
            let mut birth = [0; 16];
            self.disk().random(&mut birth).doing("find a birth id for", name)?;
            let body = encode_fields(
                self.key(),
                &[
                    (fields::TIME, Value::Int(self.disk().now_us())),
                    (fields::RUN, Value::from(name)),
                    (fields::BIRTH, Value::bytes(birth)),
                    (fields::GENERATION, Value::Int(0)),
                    (fields::CONFIG, config.clone()),
                ],
            );
            let content = card::Card::encode(&self.id(), &path, card::kind::RUN, &body);
            disk::publish(&**self.disk(), &path, &content).doing("create", &path)?;
        }
        Err(Error::NotFound { what: format!("run {name:?}") })
    }

    fn read_run(&self, name: &str, path: &str, config: &Value) -> Result<Option<Run>> {
        let disk = &**self.disk();
        if !disk.exists(path).doing("look for", path)? {
            return Ok(None);
        }
        let data = disk::read_file(disk, path).doing("read", path)?;
        let damaged = |found: String| Error::Damaged { path: path.to_owned(), offset: 0, found };
        let card = card::Card::decode(&data, &self.id(), path).map_err(|error| damaged(error.to_string()))?;
        let found =
            decode_fields(card.body).ok_or_else(|| damaged("its fields cannot be read".to_owned()))?;
        let get = |number: u8| found.iter().find(|(field, _)| *field == number).map(|(_, value)| value);
        let birth = get(fields::BIRTH).and_then(|value| value.as_bytes()?.try_into().ok().map(Id));
        let birth = birth.ok_or_else(|| damaged("it has no birth id".to_owned()))?;
        let before = get(fields::CONFIG).cloned().unwrap_or(Value::Null);
        if before != *config {
            return Err(Error::ConfigChanged { run: name.to_owned(), keys: differing_keys(&before, config) });
        }
        let generation = get(fields::GENERATION).and_then(Value::as_int).unwrap_or(0);
        Ok(Some(Run { store: self.clone(), name: name.to_owned(), birth, generation }))
    }
}

/// Which keys of two configs differ, with both values.
fn differing_keys(before: &Value, now: &Value) -> String {
    let entries = |value: &Value| match value.plain() {
        Value::Map(entries) => entries.to_vec(),
        other => vec![(Value::from("config"), other.clone())],
    };
    let (before, now) = (entries(before), entries(now));
    let find = |in_map: &[(Value, Value)], key: &Value| {
        in_map.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
    };
    let show = |value: Option<Value>| value.map_or("nothing".to_owned(), |value| format!("{value:?}"));
    let mut keys: Vec<Value> = before.iter().chain(&now).map(|(key, _)| key.clone()).collect();
    keys.dedup();
    let mut said: Vec<String> = Vec::new();
    for key in keys {
        let (was, is) = (find(&before, &key), find(&now, &key));
        let line = format!("{key:?} was {}, is {}", show(was.clone()), show(is.clone()));
        if was != is && !said.contains(&line) {
            said.push(line);
        }
    }
    said.join("; ")
}

impl Run {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The random id it was born with.
    pub fn birth(&self) -> Id {
        self.birth
    }

    /// The id of an episode: the same on every machine.
    pub fn episode_id(&self, name: &EpisodeName) -> Id {
        ids::episode(&self.birth, &name.task, name.iteration, name.sample)
    }

    /// Which generation of its name it is.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// The store that it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
