//! A small store with all that makes compacting hard, and everything that can be read from a store, to be compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::format::commit::Bind;
use keepstep::format::value::{Array, Dtype};
use keepstep::read::{FollowFrom, Item};
use keepstep::tend::CompactOptions;
use keepstep::{Broken, Ending, Episode, EpisodeName, Id, Options, Step, Store, Value};

/// Options for the simulated disk: no threads, so that a trace is the same every time.
pub fn options(broken: Option<Broken>) -> Options {
    Options::default()
        .background(false)
        .stall(Duration::from_millis(500))
        .segment_bytes_max(6000)
        .broken(broken)
}

/// Small blocks and segments, so that a small store has several; nothing has to wait.
pub fn at_once() -> CompactOptions {
    CompactOptions::default().grace(Duration::ZERO).segment_bytes_max(20_000).block_bytes_max(4_000)
}

pub fn open(sim: &SimDisk) -> Store {
    open_as(sim.process(), None)
}

pub fn open_as(disk: Arc<dyn Files>, broken: Option<Broken>) -> Store {
    Store::on_files(disk, options(broken)).expect("opens")
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..bytes).map(|_| next()).collect()
}

pub fn page(seed: u64, bytes: usize) -> String {
    noise(seed, bytes).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// A chat that grows by one message a step; siblings of a task share its beginning.
fn chat(task: u64, sample: u64, step: u64) -> Value {
    let message = |turn: u64| {
        let seed = if turn < 2 { task } else { task * 100 + sample };
        Value::map([("role", Value::from("user")), ("content", Value::from(page(seed * 1000 + turn, 400)))])
    };
    Value::list((0..=step + 1).map(message))
}

/// Token ids that grow, so that they refer to their own beginning.
fn tokens(seed: u64, count: u64) -> Value {
    let data: Vec<u8> = (0..count as i32).flat_map(|i| (i * 31 + seed as i32).to_le_bytes()).collect();
    Value::Array(Arc::new(Array::new(Dtype::I32, vec![count], data).expect("fits")))
}

pub fn step(task: u64, sample: u64, index: u64) -> Step {
    let step = Step::new()
        .prompt(chat(task, sample, index))
        .reward(index as f64 + 0.5)
        .action(Value::Int(index as i64))
        .info(Value::from(page(task, 600)));
    match index {
        2 => step.observation(tokens(task, 1500)),
        3 => step.observation(tokens(task, 2500)).state([("log", Value::from(page(7, 9000)))]),
        4 => step.observation(tokens(sample, 40)).state([("log", Value::from(page(7, 13_000)))]),
        _ => step,
    }
}

pub fn name(task: u64, sample: u64) -> EpisodeName {
    EpisodeName::task(format!("task-{task}")).sample(sample as i64)
}

/// Episodes in turns, so that they stand mixed in the log.
pub fn record(store: &Store, tasks: std::ops::Range<u64>, samples: u64, steps: u64) -> Vec<Episode> {
    let run = store.run("run", Value::Null).expect("opens");
    let names: Vec<(u64, u64)> =
        tasks.flat_map(|task| (0..samples).map(move |sample| (task, sample))).collect();
    let recorders: Vec<Episode> =
        names.iter().map(|(task, sample)| run.episode(name(*task, *sample)).expect("begins")).collect();
    for index in 0..steps {
        for ((task, sample), recorder) in names.iter().zip(&recorders) {
            recorder.step(step(*task, *sample, index)).expect("records");
        }
    }
    for ((_, sample), recorder) in names.iter().zip(&recorders) {
        if sample % 2 == 0 {
            recorder.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
        }
    }
    recorders
}

/// Two processes that recorded and are gone: one closed in good order, one was killed.
pub fn recorded(sim: &SimDisk) {
    let first = open(sim);
    let _ = record(&first, 0..2, 3, 5);
    first.close();
    drop(first);
    let process = sim.process();
    let second = open_as(process.clone(), None);
    let recorders = record(&second, 5..6, 2, 4);
    process.kill();
    drop(recorders);
    // Whoever deletes waits until nothing was heard of a writer for a lease.
    sim.advance(Duration::from_secs(60));
}

/// A record without its place, or what is known of a lost one.
pub type RecordSaid = (u32, u8, Vec<(u8, Value)>, Vec<u8>);
/// Everything that can be read.
pub type Everything = BTreeMap<(Id, u32, u8, Id), Vec<RecordSaid>>;

fn said(item: Item) -> RecordSaid {
    match item {
        Item::Record(record) => (record.seq, record.kind, record.fields, record.lost),
        Item::Damaged(lost) => (lost.seq, lost.kind, Vec::new(), vec![255]),
        Item::Gap(gap) => (gap.from, 0, vec![(0, Value::Int(i64::from(gap.to)))], vec![254]),
    }
}

fn key(writer: Id, bind: &Bind) -> (Id, u32, u8, Id) {
    (bind.id, bind.attempt, bind.what.number(), writer)
}

/// Reads all records of all attempts by way of the catalog; also checks that the lists agree with them.
pub fn everything(store: &Store) -> keepstep::Result<Everything> {
    let mut catalog = store.catalog()?;
    let mut all = Everything::new();
    for (writer, bind) in catalog.subjects() {
        let mut records = Vec::new();
        for item in catalog.bind_reader(&writer, &bind)?.records() {
            records.push(said(item?));
        }
        all.insert(key(writer, &bind), records);
    }
    for info in catalog.attempts()? {
        let read = catalog.reader(&info.key)?.read()?;
        let rewards: f64 = read.steps.iter().filter_map(|step| step.reward).sum();
        let found = (read.steps.len() as u64, read.end.and_then(|end| end.why), rewards);
        let summary = info.summary;
        let listed = (summary.steps, summary.why, summary.total_reward.unwrap_or(0.0));
        if found != listed {
            let what = format!("an attempt as it is listed, {listed:?}, since {found:?} is read");
            return Err(keepstep::Error::NotFound { what });
        }
    }
    Ok(all)
}

/// Reads all records by following from the start.
pub fn followed(store: &Store) -> keepstep::Result<Everything> {
    let mut all = Everything::new();
    let mut follow = store.follow(FollowFrom::Start)?;
    while let Some(next) = follow.next(Duration::ZERO)? {
        all.entry(key(next.writer, &next.bind)).or_default().push(said(next.item));
    }
    Ok(all)
}
