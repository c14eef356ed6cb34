//! What `doctor` tries on a disk. A probe that fails is a finding, reported in words; it never stops the others.
//!
//! They use the same interface as the engine, so what holds here holds there.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, path::Path};

use keepstep::disk::{Files, LockState, RealDisk};

/// What a probe found, or why there is no good answer.
pub(crate) type Finding<T> = Result<T, Trouble>;

/// Why a probe gave no good answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Trouble {
    /// The disk does not do what is needed.
    Fails(String),
    /// The probe itself went wrong, which says nothing about the disk.
    Unknown(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Fails(why)
    }
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Self::Fails(why.to_owned())
    }
}

impl Trouble {
    /// The same, with what was probed: what the disk fails at is named.
    pub(crate) fn of(self, what: &str) -> Self {
        match self {
            Self::Fails(why) => Self::Fails(format!("{what}: {why}")),
            Self::Unknown(why) => Self::Unknown(format!("{what} are not known: {why}")),
        }
    }
}

const SYNCS: usize = 200;
const SYNC_BYTES: usize = 4096;
pub(crate) const RACES: u64 = 100;
pub(crate) const RACERS: usize = 8;

/// How long syncs take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    pub(crate) tries: usize,
    pub(crate) p50_us: i64,
    pub(crate) p99_us: i64,
}

fn told(error: &io::Error) -> String {
    error.to_string()
}

/// Appends 4 KiB and syncs, again and again.
pub(crate) fn sync_latency(disk: &dyn Files) -> Finding<Latency> {
    let file = disk.create_new("sync").map_err(|error| told(&error))?;
    let data = [0x6b; SYNC_BYTES];
    let mut took_us = Vec::with_capacity(SYNCS);
    for append in 0..SYNCS {
        let began = Instant::now();
        let written = file.write_at(&data, (append * SYNC_BYTES) as u64).and_then(|()| file.sync());
        written.map_err(|error| told(&error))?;
        took_us.push(began.elapsed().as_micros() as i64);
    }
    took_us.sort_unstable();
    let at = |percent: usize| took_us[(SYNCS - 1) * percent / 100];
    Ok(Latency { tries: SYNCS, p50_us: at(50), p99_us: at(99) })
}

/// Syncs a directory after a file was made in it; how long that takes.
pub(crate) fn sync_directory(disk: &dyn Files) -> Finding<i64> {
    disk.create_new("in-directory").map_err(|error| told(&error))?;
    let began = Instant::now();
    disk.sync_dir("").map_err(|error| told(&error))?;
    Ok(began.elapsed().as_micros() as i64)
}

/// Threads try to give a file the same name by `link(2)`; in each race exactly one must win.
pub(crate) fn race_links(disk: &dyn Files) -> Finding<()> {
    for racer in 0..RACERS {
        disk.create_new(&format!("racer-{racer}")).map_err(|error| told(&error))?;
    }
    race(|race, racer| disk.link(&format!("racer-{racer}"), &format!("link-{race}")))
}

/// Threads try to create the same file with `O_EXCL`; in each race exactly one must win.
pub(crate) fn race_creates(disk: &dyn Files) -> Finding<()> {
    race(|race, _| disk.create_new(&format!("create-{race}")).map(|_| ()))
}

fn race(attempt: impl Fn(u64, usize) -> io::Result<()> + Sync) -> Finding<()> {
    let start = Barrier::new(RACERS);
    let winners: Vec<AtomicU64> = (0..RACES).map(|_| AtomicU64::new(0)).collect();
    let run = |racer: usize| -> Finding<()> {
        let mut result = Ok(());
        for (race, winners) in (0..RACES).zip(&winners) {
            // Also after an error: the others wait at the start.
            start.wait();
            match attempt(race, racer) {
                Ok(()) => _ = winners.fetch_add(1, Ordering::Relaxed),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => result = Err(told(&error).into()),
            }
        }
        result
    };
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS).map(|racer| scope.spawn(move || run_one(run, racer))).collect();
        racers.into_iter().try_for_each(|racer| racer.join().unwrap_or_else(|_| Err(panicked())))
    })?;
    let wrong = winners.iter().filter(|winners| winners.load(Ordering::Relaxed) != 1).count();
    if wrong == 0 {
        Ok(())
    } else {
        Err(format!("{wrong} of {RACES} races had no winner, or several").into())
    }
}

fn panicked() -> Trouble {
    Trouble::Unknown("the probe crashed: a thread of it panicked".to_owned())
}

fn run_one(run: impl Fn(usize) -> Finding<()>, racer: usize) -> Finding<()> {
    run(racer)
}

/// Locks a file, asks another process whether it sees that, frees it, and asks again.
pub(crate) fn lock(disk: &dyn Files, ask: impl Fn(&str) -> Finding<LockState>) -> Finding<()> {
    let file = disk.create_new("lock").map_err(|error| told(&error))?;
    if !file.try_lock().map_err(|error| told(&error))? {
        return Err("a file that no other process has could not be locked".into());
    }
    if ask("lock")? != LockState::Held {
        return Err("another process does not see it".into());
    }
    drop(file);
    if ask("lock")? != LockState::Free {
        return Err("another process still sees it after it is gone".into());
    }
    Ok(())
}

/// The other process's half of [`lock`].
pub(crate) fn lock_state(dir: &Path, name: &str) -> io::Result<LockState> {
    RealDisk::open(dir)?.lock_state(name)
}

/// Whether a change in a directory is noticed, so that `tail -f` can sleep.
pub(crate) fn notice(disk: &dyn Files) -> Finding<()> {
    let mut watch = disk.watch(&[String::new()]).map_err(|error| told(&error))?;
    disk.create_new("noticed").map_err(|error| told(&error))?;
    match watch.wait(Duration::from_secs(2)) {
        Ok(true) => Ok(()),
        Ok(false) => Err("a new file was not noticed; followers will look now and then".into()),
        Err(error) => Err(told(&error).into()),
    }
}
