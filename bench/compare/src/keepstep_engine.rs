//! keepstep itself, behind the bars' interface.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keepstep::read::Catalog;
use keepstep::tend::CompactOptions;
use keepstep::{Ending, Entry, EpisodeName, Options, Receipt, Run, Step, Store, Value};

use crate::engine::{Engine, EngineFactory, Episode, Item, OpenOptions, Reader, Stats};
use crate::watched_disk::WatchedDisk;

pub struct KeepstepFactory;

const RUN: &str = "bench";

impl EngineFactory for KeepstepFactory {
    fn name(&self) -> &'static str {
        "keepstep"
    }

    fn open(&self, dir: &Path, options: OpenOptions) -> Box<dyn Engine> {
        let mut chosen = Options::default();
        if let Some(bytes) = options.segment_bytes {
            chosen.segment_bytes_max = bytes;
        }
        let store = Store::open(dir, chosen).expect("could not open the store");
        let run = store.run(RUN, Value::Null).expect("could not open the run");
        Box::new(Keepstep { store, run })
    }

    fn read(&self, dir: &Path) -> Box<dyn Reader> {
        let store = Store::open_existing(dir, Options::default()).expect("could not open the store");
        let catalog = RefCell::new(store.catalog().expect("could not read the store"));
        let run = store.run(RUN, Value::Null).expect("could not open the run");
        Box::new(KeepstepReader { catalog, run })
    }

    fn compact(&self, dir: &Path) -> bool {
        let options = CompactOptions::default().grace(Duration::ZERO);
        let store = Store::open_existing(dir, Options::default()).expect("could not open the store");
        let report = store.compact(options.clone(), &mut |_| {}).expect("could not compact the store");
        assert_eq!(report.left_alone, [], "a log was left alone");
        store.compact(options, &mut |_| {}).expect("could not delete what was replaced");
        true
    }

    fn places(&self, dir: &Path, task: u64) -> Option<u64> {
        let disk = Arc::new(WatchedDisk::open(dir));
        let store = Store::on_files(disk.clone(), Options::default()).expect("could not open the store");
        let run = store.run(RUN, Value::Null).expect("could not open the run");
        let catalog = store.catalog().expect("could not read the store");
        let key = catalog.find(&run.episode_id(&name(task)), 0).expect("the episode is there");
        disk.begin();
        let episode = catalog.reader(&key).and_then(|mut reader| reader.read());
        assert!(episode.expect("could not read an episode").is_whole(), "an episode is damaged");
        Some(disk.places())
    }
}

struct Keepstep {
    store: Store,
    run: Run,
}

fn name(task: u64) -> EpisodeName {
    EpisodeName::task(task.to_string())
}

impl Engine for Keepstep {
    fn begin(&self, task: u64) -> Box<dyn Episode> {
        let recorder = self.run.episode(name(task)).expect("could not begin an episode");
        Box::new(KeepstepEpisode { recorder, history: Vec::new(), last: None })
    }

    fn stats(&self) -> Stats {
        let stats = self.store.writer_stats();
        Stats {
            payload_bytes: stats.stored_bytes,
            open_segment_bytes: stats.segment_bytes,
            batches: stats.batches,
        }
    }

    fn close(self: Box<Self>) {
        self.store.close();
    }
}

struct KeepstepEpisode {
    recorder: keepstep::Episode,
    history: Vec<Value>,
    last: Option<Receipt>,
}

impl KeepstepEpisode {
    /// Waits while the queue is full, as a recorder does that must not drop a step.
    fn send(&mut self, step: Step) {
        let receipt = self.recorder.record(Entry::step(step).waiting_for_room()).expect("could not submit");
        self.last = Some(receipt);
    }
}

impl Episode for KeepstepEpisode {
    fn append(&mut self, record: &[u8]) {
        self.recorder.step(Step::new().observation(Value::bytes(record))).expect("could not record");
    }

    fn submit(&mut self, record: &[u8]) {
        self.send(Step::new().observation(Value::bytes(record)));
    }

    fn wait(&mut self) {
        if let Some(receipt) = self.last.take() {
            receipt.wait().expect("could not make it durable");
        }
    }

    fn hear(&mut self, item: Item<'_>) {
        self.history.push(to_value(item).shared());
    }

    fn forget(&mut self, oldest: usize) {
        self.history.drain(..oldest);
    }

    fn turn(&mut self, response: &[Item<'_>]) {
        let prompt = Value::List(Arc::new(self.history.clone()));
        let response = Value::list(response.iter().map(|item| to_value(*item)));
        self.send(Step::new().prompt(prompt).response(response));
    }

    fn end(self: Box<Self>) {
        let ended = self.recorder.end("finished", Ending::default()).expect("could not end");
        ended.wait().expect("could not make the end durable");
    }
}

struct KeepstepReader {
    catalog: RefCell<Catalog>,
    run: Run,
}

impl Reader for KeepstepReader {
    fn list(&self) -> usize {
        self.catalog.borrow_mut().attempts().expect("could not list the episodes").len()
    }

    fn read(&self, task: u64) -> Vec<Vec<u8>> {
        let catalog = self.catalog.borrow();
        let Ok(key) = catalog.find(&self.run.episode_id(&name(task)), 0) else { return Vec::new() };
        let mut reader = catalog.reader(&key).expect("could not read an episode");
        let episode = reader.read().expect("could not read an episode");
        assert!(episode.is_whole(), "an episode is damaged");
        let observed = |step: &keepstep::read::RecordedStep| {
            step.observation.as_ref().and_then(|value| value.as_bytes().map(<[u8]>::to_vec))
        };
        episode.steps.iter().map(|step| observed(step).unwrap_or_default()).collect()
    }
}

fn to_value(item: Item<'_>) -> Value {
    match item {
        Item::Json(json) => from_json(json),
        Item::Chat { role, content } => {
            Value::map([("role", Value::from(role)), ("content", Value::bytes(content))])
        }
    }
}

fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::list(items.iter().map(from_json)),
        Json::Object(entries) => {
            Value::map(entries.iter().map(|(key, value)| (key.as_str(), from_json(value))))
        }
    }
}
