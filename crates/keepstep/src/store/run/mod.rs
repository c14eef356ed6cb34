//! A run: a named set of episodes with one config and a random generation id.

pub(in crate::store) mod config;
mod later;

use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields, ids};

use crate::counts::numbered;
use crate::disk;
use crate::error::{Doing, Error, Result, or_told};
use crate::segment::cards::{Fields, Published, publish_card};
use crate::segment::names::{RUNS, parse_number, run_folder, run_path};
use crate::store::Store;
use crate::store::name::EpisodeName;
use crate::store::planned::PlanCache;
use crate::store::run::config::differences;

/// How many processes may begin the same run, or generation, at the same moment.
const RACES_MAX: u64 = 100_000;

/// How a run is opened.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct RunOptions {
    /// What its episodes have in common. If the run exists with another config, opening it is refused; if it exists
    /// without a config and links, and has no episode, it takes the ones given here.
    pub config: Value,
    /// What it refers to: a name and a reference each. An empty map leaves the links of an existing run as they are.
    pub links: BTreeMap<String, String>,
    /// Begins the next generation of the name. Two processes that do so at the same time get one generation each.
    pub new: bool,
    /// Opens this generation, which must exist. Without it, the newest one is opened.
    pub generation: Option<u64>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { config: Value::Null, links: BTreeMap::new(), new: false, generation: None }
    }
}

impl RunOptions {
    /// Sets the config that the episodes of the run have in common.
    pub fn config(mut self, config: impl Into<Value>) -> Self {
        self.config = config.into();
        self
    }

    /// Sets what the run refers to: a name and a reference each.
    pub fn links<N, R>(mut self, links: impl IntoIterator<Item = (N, R)>) -> Self
    where
        N: Into<String>,
        R: Into<String>,
    {
        self.links = links.into_iter().map(|(name, reference)| (name.into(), reference.into())).collect();
        self
    }

    /// Sets whether to begin the next generation of the name.
    pub fn new(mut self, new: bool) -> Self {
        self.new = new;
        self
    }

    /// Sets which generation to open; `None` is the newest.
    pub fn generation(mut self, generation: impl Into<Option<u64>>) -> Self {
        self.generation = generation.into();
        self
    }
}

/// Which of several runs of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Generation {
    /// Its number, from 0.
    pub number: u64,
    /// True if there was no newer one; then the name alone means this one.
    pub is_newest: bool,
}

impl Default for Generation {
    fn default() -> Self {
        Self { number: 0, is_newest: true }
    }
}

impl Generation {
    /// Its number, if it is not the newest; the name alone then means another one.
    pub fn said(self) -> Option<u64> {
        (!self.is_newest).then_some(self.number)
    }
}

impl From<&RunInfo> for Generation {
    fn from(run: &RunInfo) -> Self {
        Self { number: run.generation, is_newest: run.is_newest }
    }
}

/// What a run's card says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its name.
    pub name: String,
    /// The random id of this generation.
    pub generation_id: Id,
    /// Which generation of its name it is, from 0.
    pub generation: u64,
    /// True if there was no newer generation of the name when this was read.
    pub is_newest: bool,
    /// What its episodes have in common.
    pub config: Value,
    /// What it refers to.
    pub links: BTreeMap<String, String>,
    /// When it was made, in microseconds since 1970.
    pub time: i64,
}

/// A run that is open.
#[derive(Debug, Clone)]
pub struct Run {
    pub(in crate::store) store: Store,
    info: Arc<RunInfo>,
    plan_cache: Arc<PlanCache>,
}

impl Store {
    /// Opens a run. If it does not exist, it is made. If it exists with another config, opening it is refused.
    ///
    /// A run that was made without a config (often by a reader that came first) takes the first one that is given, as
    /// long as no episode of it began.
    ///
    /// ```
    /// use keepstep::{Error, Options, Store, Value};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-run-{}", std::process::id()));
    /// let store = Store::open(&dir, Options::default())?;
    /// let config = |model| Value::map([("model", Value::from(model))]);
    /// store.run("shop-agent", config("m-7b"))?;
    /// store.run("shop-agent", config("m-7b"))?; // the same run again
    /// assert!(matches!(store.run("shop-agent", config("m-70b")), Err(Error::ConfigChanged { .. })));
    /// # drop(store);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn run(&self, name: &str, config: Value) -> Result<Run> {
        self.open_run(name, RunOptions { config, ..RunOptions::default() })
    }

    /// As [`Store::run`], with options: for example a new generation of the name.
    pub fn open_run(&self, name: &str, options: RunOptions) -> Result<Run> {
        self.check_process()?;
        check_run_name(name)?;
        if let Some(generation) = options.generation {
            return self.open_generation(name, generation, &options);
        }
        let folder = run_folder(name);
        let newest = self.newest_generation(&folder)?;
        let first_free = newest.map_or(0, |newest| newest + 1);
        if let (Some(newest), false) = (newest, options.new) {
            return self.reopen(name, newest, true, &options);
        }
        for generation in first_free..first_free + RACES_MAX {
            if let Some(info) = self.make_run(name, generation, &options)? {
                return Ok(self.run_of(info));
            }
            if !options.new {
                return self.reopen(name, generation, true, &options);
            }
        }
        Err(Error::Busy {
            what: folder,
            why: "other processes begin generations of it faster than this one can".to_owned(),
        })
    }

    /// Opens a generation that exists; makes nothing.
    fn open_generation(&self, name: &str, generation: u64, options: &RunOptions) -> Result<Run> {
        if options.new {
            return Err(Error::BadInput {
                field: "generation".to_owned(),
                value: format!("is {generation}, and a new one is to begin"),
                fix: "give `new` or `generation`, not both".to_owned(),
            });
        }
        let there = self.generations(&run_folder(name))?;
        if there.contains(&generation) {
            return self.reopen(name, generation, there.last() == Some(&generation), options);
        }
        let what = format!("generation {generation} of run {name:?}");
        let hint = match there.is_empty() {
            true => "no run of that name was ever begun".to_owned(),
            false => numbered("generation", &there),
        };
        Err(Error::Unknown { what, hint })
    }

    /// Which generation of a run has this generation id. If its card is missing or cannot be read, this is reported,
    /// and the answer is the only generation there is, or generation 0.
    pub(in crate::store) fn generation_of(
        &self,
        name: &str,
        generation_id: &Id,
    ) -> Result<(Generation, Option<Error>)> {
        let folder = run_folder(name);
        let there = self.generations(&folder)?;
        let mut trouble = None;
        for number in there.iter().rev() {
            let (run, unread) = or_told(self.read_run(&folder, *number))?;
            trouble = trouble.or(unread);
            if run.is_some_and(|run| run.generation_id == *generation_id) {
                let is_newest = there.last() == Some(number);
                return Ok((Generation { number: *number, is_newest }, None));
            }
        }
        let found = format!(
            "the card of run {name:?} with the generation id {generation_id} is gone, and there are records of it"
        );
        let gone = Error::Damaged { path: folder, offset: 0, found };
        let generation = match (&there[..], &trouble) {
            // It can only be this one.
            ([only], Some(_)) => Generation { number: *only, is_newest: true },
            _ => Generation::default(),
        };
        Ok((generation, Some(trouble.unwrap_or(gone))))
    }

    /// All runs of this store: each generation of each name, sorted by name and generation. A card that cannot be
    /// read is an error in the list, and does not hide the others.
    pub fn runs(&self) -> Result<Vec<Result<RunInfo>>> {
        self.check_process()?;
        let mut found = Vec::new();
        for folder in self.disk().list(RUNS).doing("list", RUNS)? {
            if !folder.is_dir || folder.name.parse::<Id>().is_err() {
                continue;
            }
            let folder = disk::join(RUNS, &folder.name);
            let (generations, lost) = self.generations_and_lost(&folder)?;
            found.extend(lost.into_iter().map(Err));
            for generation in &generations {
                let run = self.read_run(&folder, *generation);
                let is_newest = generations.last() == Some(generation);
                found.push(run.map(|run| RunInfo { is_newest, ..run }));
            }
        }
        found.sort_by_cached_key(|run| run.as_ref().ok().map(|run| (run.name.clone(), run.generation)));
        Ok(found)
    }

    /// Opens a run that was listed.
    pub fn run_of(&self, info: RunInfo) -> Run {
        let plan_cache = self.plan_caches().of(&info.generation_id);
        Run { store: self.clone(), info: Arc::new(info), plan_cache }
    }

    fn generations(&self, folder: &str) -> Result<Vec<u64>> {
        Ok(self.generations_and_lost(folder)?.0)
    }

    /// The generations of a run, and an error if a card is missing: generations have no gaps, and every other file of
    /// the folder belongs to one.
    fn generations_and_lost(&self, folder: &str) -> Result<(Vec<u64>, Option<Error>)> {
        let entries = self.disk().list(folder).doing("list", folder)?;
        let of = |name: &str| parse_number(name.split_once('.')?.0);
        let newest = entries.iter().filter_map(|entry| of(&entry.name)).max();
        let mut numbers: Vec<u64> =
            entries.iter().filter_map(|entry| parse_number(entry.name.strip_suffix(".run")?)).collect();
        numbers.sort_unstable();
        let gone = (0..newest.map_or(0, |newest| newest + 1)).find(|number| !numbers.contains(number));
        let lost = |number| {
            let found = "it is gone, and with it the name and the config of the run".to_owned();
            Error::Damaged { path: run_path(folder, number), offset: 0, found }
        };
        Ok((numbers, gone.map(lost)))
    }

    /// The newest generation of a name. An error if its card is missing while other cards of it are there: otherwise
    /// a new run, or the generation before, would be taken for it.
    fn newest_generation(&self, folder: &str) -> Result<Option<u64>> {
        let entries = self.disk().list(folder).doing("list", folder)?;
        let number = |name: &str| parse_number(name.split_once('.')?.0);
        let newest = entries.iter().filter_map(|entry| number(&entry.name)).max();
        let Some(number) = newest else { return Ok(None) };
        let path = run_path(folder, number);
        // Looked for by its name: the listing may be older than the card.
        if !self.disk().exists(&path).doing("look for", &path)? {
            let found = "it is gone, and other cards of the run are there".to_owned();
            return Err(Error::Damaged { path, offset: 0, found });
        }
        Ok(Some(number))
    }

    /// Makes a run; `None` if another process was faster.
    fn make_run(&self, name: &str, generation: u64, options: &RunOptions) -> Result<Option<RunInfo>> {
        self.check_open()?;
        let mut generation_id = [0; 16];
        self.disk().random(&mut generation_id).doing("find a generation id for", name)?;
        let info = RunInfo {
            name: name.to_owned(),
            generation_id: Id(generation_id),
            generation,
            is_newest: true,
            config: options.config.clone(),
            links: options.links.clone(),
            time: self.disk().now_us(),
        };
        let path = run_path(&run_folder(name), generation);
        match publish_card(self.cards(), &path, kind::RUN, &run_fields(&info))? {
            Published::Done => Ok(Some(info)),
            Published::Taken => Ok(None),
            Published::Unfit => Err(config::unfit()),
        }
    }

    fn reopen(&self, name: &str, generation: u64, is_newest: bool, options: &RunOptions) -> Result<Run> {
        let folder = run_folder(name);
        let info = RunInfo { is_newest, ..self.read_run(&folder, generation)? };
        // The process that made the run may not have synced its card yet. Episodes that name its generation id need
        // the card.
        self.disk().settle(&folder).doing("sync", &folder)?;
        let info = self.offer_config(&folder, info, options)?;
        let keys = differences(&info.config, &options.config);
        if !keys.is_empty() {
            return Err(Error::ConfigChanged { run: name.to_owned(), keys: keys.join("; ") });
        }
        if !options.links.is_empty() && options.links != info.links {
            return Err(Error::BadInput {
                field: "links".to_owned(),
                value: format!("are {:?}, and run {name:?} was made with {:?}", options.links, info.links),
                fix: "give the same or none, or start a new generation with `new`".to_owned(),
            });
        }
        Ok(self.run_of(info))
    }
}

fn check_run_name(name: &str) -> Result<()> {
    if !name.is_empty() {
        return Ok(());
    }
    let (field, value) = ("name".to_owned(), "is empty".to_owned());
    Err(Error::BadInput { field, value, fix: "give the run a name".to_owned() })
}

fn run_fields(info: &RunInfo) -> Vec<(u8, Value)> {
    let mut out = vec![
        (fields::TIME, Value::Int(info.time)),
        (fields::RUN, Value::from(info.name.as_str())),
        (fields::GENERATION_ID, Value::bytes(info.generation_id.0)),
        (fields::GENERATION, Value::Int(info.generation as i64)),
        (fields::CONFIG, info.config.clone()),
    ];
    if !info.links.is_empty() {
        let links = info.links.iter().map(|(name, to)| (name.as_str(), Value::from(to.as_str())));
        out.push((fields::LINKS, Value::map(links)));
    }
    out
}

fn run_info(card: &Fields) -> Option<RunInfo> {
    let links = match card.get(fields::LINKS).map(Value::plain) {
        None => BTreeMap::new(),
        Some(Value::Map(entries)) => {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            entries.iter().map(|(name, to)| text(name).zip(text(to))).collect::<Option<_>>()?
        }
        Some(_) => return None,
    };
    Some(RunInfo {
        name: card.text(fields::RUN)?.to_owned(),
        generation_id: card.id(fields::GENERATION_ID)?,
        generation: card.number(fields::GENERATION)?,
        is_newest: true,
        config: card.get(fields::CONFIG).cloned().unwrap_or(Value::Null),
        links,
        time: card.get(fields::TIME).and_then(Value::as_int).unwrap_or(0),
    })
}

impl Run {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The random id of this generation.
    pub fn generation_id(&self) -> Id {
        self.info.generation_id
    }

    /// The id of an episode. Every machine computes the same one.
    pub fn episode_id(&self, name: &EpisodeName) -> Id {
        ids::episode(&self.generation_id(), &name.task, name.iteration, name.sample)
    }

    /// Which generation of its name it is.
    pub fn generation(&self) -> i64 {
        self.info.generation as i64
    }

    /// Its generation, if it is not the newest.
    ///
    /// A newer generation may have begun since this run was opened. So a name that is printed must include the
    /// generation.
    pub(crate) fn old_generation(&self) -> Option<u64> {
        let newer = run_path(&run_folder(&self.info.name), self.info.generation + 1);
        let is_old = || self.store.disk().exists(&newer).unwrap_or(false);
        (!self.info.is_newest || is_old()).then_some(self.info.generation)
    }

    /// What was known when it was opened: config, links, when it was made.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// What is known now. A run that was opened before anybody gave a config takes the first one that is given.
    pub fn look_again(&self) -> Result<RunInfo> {
        self.store.check_process()?;
        let now = self.store.read_run(&run_folder(self.name()), self.info.generation)?;
        Ok(RunInfo { is_newest: self.old_generation().is_none(), ..now })
    }

    /// The store that it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What this process knows of the run's plan.
    pub(in crate::store) fn plan_cache(&self) -> &Arc<PlanCache> {
        &self.plan_cache
    }

    /// The path of a file of this generation; `rest` tells its files apart.
    pub(in crate::store) fn path(&self, rest: &str) -> String {
        format!("{}/{}.{rest}", run_folder(self.name()), self.info.generation)
    }
}
