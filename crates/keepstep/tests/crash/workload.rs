//! Small recordings that touch every part of the write path, told step by step to the oracle.

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::disk::{Clock, DirEntry, File, FileSystem, Files, LockState};
use keepstep::format::value::{Array, Dtype};
use keepstep::{Broken, Ending, Entry, Episode, EpisodeName, Level, Options, Run, Step, Store, Value};

/// Something that was acknowledged: which step of which episode, and what it survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    pub episode: u64,
    pub step: u64,
    pub level: Level,
}

impl Acknowledged {
    pub fn to_event(self) -> u64 {
        u64::from(self.level >= Level::Power) << 63 | self.episode << 32 | self.step
    }

    pub fn from_event(event: u64) -> Self {
        let level = if event >> 63 == 1 { Level::Power } else { Level::Kill };
        Self { episode: event >> 32 & 0x7fff_ffff, step: event & 0xffff_ffff, level }
    }
}

/// A recording, by name.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub record: fn(&SimDisk, Options),
    /// Enumerated state by state; else only chosen at random.
    pub is_small: bool,
}

pub const WORKLOADS: &[Workload] = &[
    Workload { name: "one episode", record: one_episode, is_small: true },
    Workload { name: "two episodes share a page", record: shared_page, is_small: false },
    Workload { name: "segments rotate", record: rotation, is_small: false },
    Workload { name: "kill and power mixed", record: mixed_levels, is_small: true },
    Workload { name: "a sync fails", record: failed_sync, is_small: false },
    Workload { name: "the disk is full for a while", record: full_disk, is_small: false },
    Workload { name: "a step in chunks", record: chunks, is_small: false },
    Workload { name: "two steps cross", record: crossing, is_small: false },
    Workload { name: "a store is opened twice at once", record: opened_twice, is_small: false },
];

pub const RUN: &str = "crash";

/// What step `step` of episode `episode` says: the oracle makes it again.
pub fn step_of(workload: &str, episode: u64, step: u64) -> Step {
    let base = Step::new().reward(step as f64 + 0.25).action(Value::Int(step as i64));
    match workload {
        "one episode" | "kill and power mixed" => {
            base.observation(Value::from(format!("saw {episode}.{step}")))
        }
        "two episodes share a page" | "two steps cross" => {
            base.observation(Value::from(page(7, 9000))).prompt(history(episode, step, 300))
        }
        "segments rotate" => {
            base.prompt(history(episode, step, 400)).observation(tokens(episode, 600 + 300 * step))
        }
        "a step in chunks" if step == 1 => base.observation(Value::bytes(noise(episode, (1 << 20) + 70_000))),
        _ => base.prompt(history(episode, step, 300)),
    }
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

fn page(seed: u64, bytes: usize) -> String {
    noise(seed, bytes).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// A chat that grows by one message a step.
fn history(episode: u64, step: u64, bytes: usize) -> Value {
    let message = |turn: u64| {
        Value::map([
            ("role", Value::from("user")),
            ("content", Value::from(page(episode * 1000 + turn, bytes))),
        ])
    };
    Value::list((0..=step).map(message))
}

fn tokens(episode: u64, count: u64) -> Value {
    let data: Vec<u8> = (0..count as i32).flat_map(|i| (i * 31 + episode as i32).to_le_bytes()).collect();
    Value::Array(Arc::new(Array::new(Dtype::I32, vec![count], data).expect("fits")))
}

/// One process that records, telling the trace what was acknowledged.
struct Recording<'s> {
    sim: &'s SimDisk,
    name: &'static str,
    run: Run,
}

impl<'s> Recording<'s> {
    fn open(sim: &'s SimDisk, name: &'static str, options: Options) -> Option<Self> {
        let store = Store::on_files(sim.process(), options).ok()?;
        let run = store.run(RUN, Value::Null).ok()?;
        Some(Self { sim, name, run })
    }

    fn begin(&self, episode: u64) -> Option<Episode> {
        self.run.episode(EpisodeName::task(self.name).sample(episode as i64)).ok()
    }

    fn step(&self, recorder: &Episode, episode: u64, step: u64) {
        if recorder.step(step_of(self.name, episode, step)).is_ok() {
            self.acknowledged(episode, step, Level::Power);
        }
    }

    fn acknowledged(&self, episode: u64, step: u64, level: Level) {
        self.sim.event(Acknowledged { episode, step, level }.to_event());
    }
}

fn one_episode(sim: &SimDisk, options: Options) {
    let Some(recording) = Recording::open(sim, "one episode", options) else { return };
    let Some(recorder) = recording.begin(0) else { return };
    for step in 0..4 {
        recording.step(&recorder, 0, step);
    }
}

fn shared_page(sim: &SimDisk, options: Options) {
    let Some(recording) = Recording::open(sim, "two episodes share a page", options) else { return };
    let (Some(first), Some(second)) = (recording.begin(0), recording.begin(1)) else { return };
    for step in 0..4 {
        recording.step(&first, 0, step);
        recording.step(&second, 1, step);
    }
}

fn rotation(sim: &SimDisk, options: Options) {
    let options = options.segment_bytes_max(3000);
    let Some(recording) = Recording::open(sim, "segments rotate", options) else { return };
    let (Some(first), Some(second)) = (recording.begin(0), recording.begin(1)) else { return };
    for step in 0..6 {
        recording.step(&first, 0, step);
        recording.step(&second, 1, step);
    }
    let _ = first.end("finished", Ending::default());
}

fn mixed_levels(sim: &SimDisk, options: Options) {
    let Some(recording) = Recording::open(sim, "kill and power mixed", options) else { return };
    let (Some(first), Some(second)) = (recording.begin(0), recording.begin(1)) else { return };
    for step in 0..3 {
        let receipt = first.record(Entry::step(step_of(recording.name, 0, step)).at(Level::Kill));
        if let Some(receipt) = receipt.ok().filter(|receipt| receipt.level().is_some()) {
            recording.acknowledged(0, step, Level::Kill);
            if step == 2 && receipt.wait_for(Level::Power, None).is_ok_and(|reached| reached) {
                recording.acknowledged(0, step, Level::Power);
            }
        }
        if step == 1 {
            recording.step(&second, 1, 0);
        }
    }
}

fn failed_sync(sim: &SimDisk, options: Options) {
    let Some(recording) = Recording::open(sim, "a sync fails", options) else { return };
    let (Some(first), Some(second)) = (recording.begin(0), recording.begin(1)) else { return };
    recording.step(&first, 0, 0);
    if second
        .record(Entry::step(step_of(recording.name, 1, 0)).at(Level::Kill))
        .is_ok_and(|receipt| receipt.level().is_some())
    {
        recording.acknowledged(1, 0, Level::Kill);
    }
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).at(".seg").times(1));
    recording.step(&first, 0, 1);
    recording.step(&second, 1, 1);
    sim.faults().plan(Fault::new(On::Write, Errno::Eio).at(".seg").short(700).times(1));
    recording.step(&first, 0, 2);
    recording.step(&second, 1, 2);
}

fn full_disk(sim: &SimDisk, options: Options) {
    let options = options.stall(Duration::from_millis(20));
    let Some(recording) = Recording::open(sim, "the disk is full for a while", options) else { return };
    let (Some(first), Some(second)) = (recording.begin(0), recording.begin(1)) else { return };
    recording.step(&first, 0, 0);
    recording.step(&second, 1, 0);
    sim.faults().set_capacity(Some(sim.faults().used_bytes() + 300));
    // Refused, and asked again when there is room: the same step, not a second one.
    recording.step(&first, 0, 1);
    recording.step(&second, 1, 1);
    sim.faults().set_capacity(None);
    let next = |recorder: &Episode| recorder.durable_steps();
    for step in next(&first)..3 {
        recording.step(&first, 0, step);
    }
    for step in next(&second)..3 {
        recording.step(&second, 1, step);
    }
}

fn chunks(sim: &SimDisk, options: Options) {
    let Some(recording) = Recording::open(sim, "a step in chunks", options) else { return };
    let Some(recorder) = recording.begin(0) else { return };
    for step in 0..3 {
        recording.step(&recorder, 0, step);
    }
}

/// Two callers have the same page; the one that was encoded last reaches the log first, and the other never does.
fn crossing(sim: &SimDisk, options: Options) {
    let Some(recording) = Recording::open(sim, "two steps cross", options) else { return };
    let (Some(first), Some(second)) = (recording.begin(0), recording.begin(1)) else { return };
    for step in 0..2 {
        let (Ok(early), Ok(late)) = (
            first.encode_only(step_of(recording.name, 0, step)),
            second.encode_only(step_of(recording.name, 1, step)),
        ) else {
            return;
        };
        let submit = |recorder: &Episode, prepared, episode| {
            if recorder.submit_encoded(prepared).is_ok_and(|receipt| receipt.wait().is_ok()) {
                recording.acknowledged(episode, step, Level::Power);
            }
        };
        submit(&second, late, 1);
        submit(&first, early, 0);
    }
}

/// Two processes find an empty directory and make it a store, neither seeing the other in time.
fn opened_twice(sim: &SimDisk, options: Options) {
    let blind: Arc<dyn Files> =
        Arc::new(Blind { disk: sim.process(), looks: Default::default(), has_made: Default::default() });
    let Some(first) = Recording::open(sim, "a store is opened twice at once", options.clone()) else {
        return;
    };
    let Some(recorder) = first.begin(0) else { return };
    first.step(&recorder, 0, 0);
    let Ok(store) = Store::on_files(blind, options) else { return };
    let Ok(run) = store.run(RUN, Value::Null) else { return };
    let second = Recording { sim, name: first.name, run };
    let Some(other) = second.begin(1) else { return };
    second.step(&other, 1, 0);
    first.step(&recorder, 0, 1);
}

/// Looks for the store's file, and for recordings, a moment before the other process makes them.
struct Blind {
    disk: Arc<dyn Files>,
    looks: std::sync::atomic::AtomicU32,
    has_made: std::sync::atomic::AtomicBool,
}

impl Clock for Blind {
    fn now_us(&self) -> i64 {
        self.disk.now_us()
    }

    fn uptime_us(&self) -> i64 {
        self.disk.uptime_us()
    }

    fn random(&self, out: &mut [u8]) -> std::io::Result<()> {
        self.disk.random(out)
    }

    fn sleep(&self, time: Duration) {
        self.disk.sleep(time);
    }
}

impl Files for Blind {
    fn lock_state(&self, path: &str) -> std::io::Result<LockState> {
        self.disk.lock_state(path)
    }

    fn exists(&self, path: &str) -> std::io::Result<bool> {
        let is_first = self.looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        if path == "keepstep.json" && is_first { Ok(false) } else { self.disk.exists(path) }
    }

    fn create_dir(&self, path: &str) -> std::io::Result<()> {
        self.disk.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> std::io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn create_new(&self, path: &str) -> std::io::Result<Arc<dyn File>> {
        self.has_made.store(true, std::sync::atomic::Ordering::Relaxed);
        self.disk.create_new(path)
    }

    fn open(&self, path: &str) -> std::io::Result<Arc<dyn File>> {
        self.disk.open(path)
    }

    fn open_rw(&self, path: &str) -> std::io::Result<Arc<dyn File>> {
        self.disk.open_rw(path)
    }

    fn link(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.link(from, to)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> std::io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, path: &str) -> std::io::Result<Vec<DirEntry>> {
        if !self.has_made.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        self.disk.list(path)
    }

    fn file_system(&self) -> std::io::Result<FileSystem> {
        self.disk.file_system()
    }

    fn watch(&self, dirs: &[String]) -> std::io::Result<Box<dyn keepstep::disk::Watch>> {
        self.disk.watch(dirs)
    }

    fn boot_id(&self) -> String {
        self.disk.boot_id()
    }
}

/// Options for the simulated disk: no threads, so that a trace is the same every time.
pub fn options(broken: Option<Broken>) -> Options {
    Options::default().background(false).dictionary(false).stall(Duration::from_millis(500)).broken(broken)
}
