//! What was done to a disk, and the disks that a power cut or a kill at any point of it leaves.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::chance::Chance;
use super::dir::Change;
use super::model::{Ino, Model, Op};
use super::outcomes::{Detail, Outcomes};
use super::stale::Sources;
use super::{Origin, SimDisk, explain, random_cuts};

/// How long a machine is off after a power cut.
const REBOOT_US: i64 = 30_000_000;
/// How soon after a kill the disk is looked at.
const KILL_US: i64 = 1_000;

/// An operation and when it was done.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) op: Op,
    pub(super) at_us: i64,
}

/// What was done to a disk. Clones share it; threads may use it at once.
///
/// A cut is a number: so many operations had been done. [`Trace::cut`] gives a point of its own to work with; the methods
/// that take a number keep the last point, so they are cheap as long as the number does not jump about.
#[derive(Clone)]
pub struct Trace {
    log: Arc<TraceLog>,
    detail: Detail,
    last: Arc<Mutex<Option<Arc<Cut>>>>,
}

struct TraceLog {
    ops: Vec<Recorded>,
    kept: Vec<(usize, Arc<Model>)>,
    origin: Origin,
    events: Vec<u64>,
    /// For each event, how many operations were done before it.
    events_at: Vec<usize>,
}

/// A point in a trace at which the power may fail.
pub struct Cut {
    number: usize,
    model: Arc<Model>,
    /// What the disk began with, and the time of the cut.
    origin: Origin,
    detail: Detail,
    scene: OnceLock<Scene>,
    outcomes: OnceLock<Outcomes>,
}

/// What is not settled at a cut.
pub(super) struct Scene {
    pub(super) dirs: Vec<Ino>,
    pub(super) files: Vec<(Ino, Sources)>,
}

impl Scene {
    fn of(model: &Model) -> Self {
        let mut dirs = Vec::new();
        // A file without a name gets one back if its removal is lost.
        let mut named_again = BTreeSet::new();
        for (ino, dir) in model.dirs().filter(|(_, dir)| !dir.unsynced.is_empty()) {
            dirs.push(ino);
            named_again.extend(dir.safe.values().flatten());
            named_again.extend(dir.unsynced.iter().filter_map(|change| match change {
                Change::Name { now, .. } => *now,
                Change::Rename { ino, .. } => Some(*ino),
            }));
        }
        let files = model
            .files()
            .filter(|(ino, file)| !file.is_settled() && (model.links[*ino] > 0 || named_again.contains(ino)))
            .map(|(ino, _)| (ino, Sources::of(model, ino)))
            .collect();
        Self { dirs, files }
    }
}

impl Trace {
    pub(super) fn new(ops: Vec<Recorded>, kept: Vec<(usize, Arc<Model>)>, origin: Origin) -> Self {
        let (mut events, mut events_at) = (Vec::new(), Vec::new());
        for (at, recorded) in ops.iter().enumerate() {
            if let Op::Event(payload) = recorded.op {
                events.push(payload);
                events_at.push(at);
            }
        }
        let log = Arc::new(TraceLog { ops, kept, origin, events, events_at });
        Self { log, detail: Detail::default(), last: Arc::default() }
    }

    /// The same trace, with states told apart more or less finely by [`Trace::state_count`] and [`Trace::state`].
    pub fn with_detail(&self, detail: Detail) -> Self {
        Self { log: Arc::clone(&self.log), detail, last: Arc::default() }
    }

    /// How many cuts there are: before the first operation, and after each.
    pub fn cuts(&self) -> usize {
        self.log.ops.len() + 1
    }

    /// The events that were recorded before a cut, oldest first.
    pub fn events_before(&self, cut: usize) -> &[u64] {
        let count = self.log.events_at.partition_point(|&at| at < cut);
        &self.log.events[..count]
    }

    /// All events.
    pub fn events(&self) -> &[u64] {
        &self.log.events
    }

    /// True if the disk can be in other states than at the cut before: the last operation was no event.
    pub fn is_new(&self, cut: usize) -> bool {
        cut == 0 || !matches!(self.log.ops[cut - 1].op, Op::Event(_))
    }

    /// The point after so many operations. Panics if there are fewer.
    pub fn cut(&self, cut: usize) -> Arc<Cut> {
        assert!(cut < self.cuts(), "cut {cut} of a trace that has {}", self.cuts());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.number == cut) {
            return Arc::clone(last);
        }
        let kept = match self.log.kept.partition_point(|(at, _)| *at <= cut) {
            0 => (0, &self.log.origin.model),
            after => (self.log.kept[after - 1].0, &self.log.kept[after - 1].1),
        };
        let nearest = match last.as_ref() {
            Some(last) if last.number < cut && last.number >= kept.0 => (last.number, &last.model),
            _ => kept,
        };
        let mut model = Arc::clone(nearest.1);
        for recorded in &self.log.ops[nearest.0..cut] {
            Arc::make_mut(&mut model).apply(&recorded.op);
        }
        let mut origin = self.log.origin.clone();
        origin.now_us = cut.checked_sub(1).map_or(origin.now_us, |done| self.log.ops[done].at_us);
        let (scene, outcomes) = (OnceLock::new(), OnceLock::new());
        let found = Arc::new(Cut { number: cut, model, origin, detail: self.detail, scene, outcomes });
        *last = Some(Arc::clone(&found));
        found
    }

    /// How many states a power cut there can leave, as finely as [`Detail`] tells them apart; `u64::MAX` if there are more.
    pub fn state_count(&self, cut: usize) -> u64 {
        self.cut(cut).state_count()
    }

    /// One of these states. 0 has lost all that was not synced; numbers past the count start again.
    pub fn state(&self, cut: usize, index: u64) -> SimDisk {
        self.cut(cut).state(index)
    }

    /// A random state, not bound to [`Detail`]: any tear, any length, any mixture. The same seed gives the same state.
    pub fn random_state(&self, cut: usize, seed: u64) -> SimDisk {
        self.cut(cut).random_state(seed)
    }

    /// What a kill of all processes leaves: everything that they wrote, still un-synced.
    pub fn killed(&self, cut: usize) -> SimDisk {
        self.cut(cut).killed()
    }

    /// The operation before a cut, in words. Numbers after `#` name files by the order of their creation.
    pub fn operation_before(&self, cut: usize) -> String {
        cut.checked_sub(1)
            .map_or_else(|| "nothing was done".to_owned(), |done| self.log.ops[done].op.to_string())
    }

    /// What one of its states has lost, for the message of a test that it broke. It may have been written to since.
    pub fn explain(&self, cut: usize, state: &SimDisk) -> String {
        let born = Arc::clone(&state.inner().origin.model);
        let lost = explain::difference(&self.cut(cut).model, &born);
        format!("cut {cut}, after \"{}\":\n{lost}", self.operation_before(cut))
    }
}

impl Cut {
    /// How many operations had been done.
    pub fn number(&self) -> usize {
        self.number
    }

    /// As [`Trace::state_count`].
    pub fn state_count(&self) -> u64 {
        self.outcomes().count()
    }

    /// As [`Trace::state`].
    pub fn state(&self, index: u64) -> SimDisk {
        self.after_power_cut(0, index, |model| self.outcomes().settle(model, index))
    }

    /// As [`Trace::random_state`].
    pub fn random_state(&self, seed: u64) -> SimDisk {
        let mut chance = Chance::of(&[self.number as u64, seed]);
        self.after_power_cut(1, seed, |model| {
            random_cuts::settle(model, &self.model, self.scene(), &mut chance)
        })
    }

    /// As [`Trace::killed`].
    pub fn killed(&self) -> SimDisk {
        let mut origin = self.origin.clone();
        origin.model = Arc::clone(&self.model);
        origin.seed = self.seed(2, 0);
        origin.now_us += KILL_US;
        SimDisk::born(origin)
    }

    fn after_power_cut(&self, kind: u64, choice: u64, settle: impl FnOnce(&mut Model)) -> SimDisk {
        let mut model = Model::clone(&self.model);
        settle(&mut model);
        for &dir in &self.scene().dirs {
            model.settle_dir(dir);
        }
        let mut origin = self.origin.clone();
        origin.model = Arc::new(model);
        origin.seed = self.seed(kind, choice);
        origin.boot += 1;
        origin.now_us += REBOOT_US;
        SimDisk::born(origin)
    }

    /// Randomness must continue, not start again: a salt that comes twice would not be a salt.
    fn seed(&self, kind: u64, choice: u64) -> u64 {
        Chance::of(&[self.origin.seed, self.origin.boot, self.number as u64, kind, choice]).next()
    }

    fn scene(&self) -> &Scene {
        self.scene.get_or_init(|| Scene::of(&self.model))
    }

    fn outcomes(&self) -> &Outcomes {
        self.outcomes.get_or_init(|| Outcomes::of(&self.model, self.scene(), self.detail))
    }
}
