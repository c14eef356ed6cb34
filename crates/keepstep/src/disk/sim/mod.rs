//! A disk in memory that can lose power: after any operation, in every way that a real disk could.
//!
//! It records what was done to it. From that [`Trace`] comes, for each point in it, every state that a power cut there
//! could leave: un-synced sectors kept, lost or torn, names kept or lost, bytes of recycled blocks where none were
//! written. What was synced never changes. Where real disks are kinder, this one is not.
//!
//! ```
//! use keepstep::disk::{Files, sim::SimDisk};
//!
//! let sim = SimDisk::new(7);
//! let disk = sim.process();
//! let file = disk.create_new("log")?;
//! disk.sync_dir("")?;
//! file.write_at(b"step", 0)?;
//! file.sync()?;
//! sim.event(1); // acknowledged
//! let trace = sim.trace();
//! for cut in 0..trace.cuts() {
//!     for index in 0..trace.state_count(cut) {
//!         let disk = trace.state(cut, index).process();
//!         if trace.events_before(cut).contains(&1) {
//!             assert_eq!(keepstep::disk::read_file(&*disk, "log")?, b"step");
//!         }
//!     }
//! }
//! # std::io::Result::Ok(())
//! ```

mod chance;
mod content;
mod dir;
mod explain;
mod faults;
mod file;
pub(crate) mod lies;
mod model;
mod outcomes;
mod process;
mod random_cuts;
mod stale;
#[cfg(test)]
mod tests;
mod trace;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use faults::{Errno, Fault, Faults, On};
pub use outcomes::Detail;
pub use process::SimProcess;
pub use trace::{Cut, Trace};

use super::FileSystem;
use chance::Chance;
use faults::Plan;
use model::{Model, Op};
use process::Processes;
use trace::Recorded;

/// When the simulated time begins, in microseconds since 1970.
const START_US: i64 = 1_700_000_000_000_000;
/// How often the whole disk is kept beside the operations, so that no cut is far from one.
const KEPT_EVERY_OPERATIONS: usize = 64;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Mutex<Inner>>,
}

/// What a disk starts with.
#[derive(Clone)]
struct Origin {
    model: Arc<Model>,
    seed: u64,
    boot: u64,
    now_us: i64,
    /// How far the wall clock is set wrong.
    skew_us: i64,
    file_system: FileSystem,
}

struct Inner {
    origin: Origin,
    model: Arc<Model>,
    ops: Vec<Recorded>,
    /// The disk as it was after so many operations.
    kept: Vec<(usize, Arc<Model>)>,
    chance: Chance,
    now_us: i64,
    processes: Processes,
    plan: Plan,
}

impl SimDisk {
    /// An empty disk. The same seed gives the same randomness, clock and boot id.
    pub fn new(seed: u64) -> Self {
        let file_system = FileSystem::Local("simulated");
        Self::born(Origin {
            model: Arc::new(Model::empty()),
            seed,
            boot: 1,
            now_us: START_US,
            skew_us: 0,
            file_system,
        })
    }

    fn born(origin: Origin) -> Self {
        let inner = Inner {
            model: Arc::clone(&origin.model),
            ops: Vec::new(),
            kept: Vec::new(),
            chance: Chance::new(origin.seed),
            now_us: origin.now_us,
            processes: Processes::default(),
            plan: Plan::default(),
            origin,
        };
        Self { shared: Arc::new(Mutex::new(inner)) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A test that panicked elsewhere leaves the disk as whole as any other moment does.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process on this disk.
    pub fn process(&self) -> Arc<SimProcess> {
        Arc::new(SimProcess::start(self))
    }

    /// Puts an event of the application into the trace, such as "step 7 is acknowledged".
    pub fn event(&self, payload: u64) {
        self.inner().record(Op::Event(payload));
    }

    /// How many operations and events were recorded since the disk was made, or came out of a cut.
    pub fn operations(&self) -> usize {
        self.inner().ops.len()
    }

    /// What was done so far; later operations do not enter it.
    pub fn trace(&self) -> Trace {
        let inner = self.inner();
        Trace::new(inner.ops.clone(), inner.kept.clone(), inner.origin.clone())
    }

    /// Failures to come, and the size of the disk.
    pub fn faults(&self) -> Faults {
        Faults { disk: self.clone() }
    }

    /// What the disk says that it is; at first a local one.
    pub fn set_file_system(&self, file_system: FileSystem) {
        self.inner().origin.file_system = file_system;
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.inner().pass(time);
    }

    /// Sets the wall clock forward, or back. No time passes by that.
    pub fn set_clock_by(&self, seconds: i64) {
        self.inner().origin.skew_us += seconds * 1_000_000;
    }

    /// The paths and contents of all files, for comparisons and reports.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let model = Arc::clone(&self.inner().model);
        let mut files = Vec::new();
        for (path, ino) in model.paths() {
            if let Some(file) = model.file(ino) {
                let mut bytes = vec![0; file.content.bytes() as usize];
                file.content.read(&mut bytes, 0);
                files.push((path, bytes));
            }
        }
        files
    }
}

impl Inner {
    fn record(&mut self, op: Op) {
        Arc::make_mut(&mut self.model).apply(&op);
        let at_us = self.tick();
        self.ops.push(Recorded { op, at_us });
        if self.ops.len().is_multiple_of(KEPT_EVERY_OPERATIONS) {
            self.kept.push((self.ops.len(), Arc::clone(&self.model)));
        }
    }

    /// Every look at the clock is later than the one before.
    fn tick(&mut self) -> i64 {
        self.now_us += 1;
        self.now_us
    }

    fn pass(&mut self, time: Duration) {
        self.now_us = self.now_us.saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    }

    fn boot_id(&self) -> String {
        format!("simulated-boot-{:04}", self.origin.boot)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_map();
        for (path, bytes) in self.files() {
            list.entry(&path, &format_args!("{} bytes", bytes.len()));
        }
        list.finish()
    }
}
