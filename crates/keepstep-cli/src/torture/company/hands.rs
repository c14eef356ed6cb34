//! The processes of the company: each does one thing to the store again and again, until it is killed.
//!
//! What it has done is said on stdout right afterwards, in one write.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Options, RunEvent, Store, Value};

use super::super::content::Key;
use super::oracle::{FoundStep, line, word, wrong_steps};
use super::reading::{damage, read_all, run_name};
use super::recorder;
use crate::chance::Chance;
use crate::child;
use crate::failure::{Exit, Failure, Outcome};
use crate::place::open_with;

/// What a process of the company is told. Hidden: only `torture --company` starts it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    pub(super) role: Role,
    /// The store's directory
    #[arg(long)]
    pub(super) store: PathBuf,
    /// What the names of the runs begin with
    #[arg(long)]
    pub(super) run: String,
    #[arg(long)]
    pub(super) seed: u64,
    /// No two processes have the same
    #[arg(long)]
    pub(super) life: u32,
    #[arg(long, default_value_t = 1)]
    pub(super) threads: u32,
    #[arg(long)]
    lease_ms: u64,
    /// Which run to follow
    #[arg(long, default_value_t = 0)]
    follows: usize,
    /// Go on behind this cursor
    #[arg(long)]
    after: Option<String>,
    /// Say that a step was acknowledged before it was: the negative control
    #[arg(long)]
    pub(super) early: bool,
}

/// What somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    Record,
    Follow,
    Compact,
    CompactAtOnce,
    Prune,
    Reap,
    Read,
    Copy,
}

impl Role {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Follow => "follow",
            Self::Compact => "compact",
            Self::CompactAtOnce => "compact-at-once",
            Self::Prune => "prune",
            Self::Reap => "reap",
            Self::Read => "read",
            Self::Copy => "copy",
        }
    }
}

/// What all who work at the store share.
pub(super) struct Hands<'a> {
    pub(super) args: &'a Args,
    pub(super) stop: &'a AtomicBool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let stop = child::live_with_parent();
    let hands = Hands { args, stop: &stop };
    match args.role {
        Role::Record => recorder::record(&hands)?,
        Role::Follow => hands.follow()?,
        _ => hands.tend()?,
    }
    Ok(Exit::Done)
}

impl Hands<'_> {
    /// Tells the oracle, in one write. Whoever cannot be heard must not go on.
    pub(super) fn say(&self, line: &str) {
        if io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush()).is_err() {
            std::process::exit(1);
        }
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.args.lease_ms)
    }

    /// Where this process may put something for a while.
    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        self.args.store.with_file_name(format!("{name}-{}", self.args.life))
    }

    fn open(&self) -> Outcome<Store> {
        open_with(&self.args.store, Options::default().lease(self.lease()))
    }

    /// Tells of what happens in a run. A line is the point at which an event counts as told.
    fn follow(&self) -> Outcome<()> {
        let run = self.open()?.run(&run_name(&self.args.run, self.args.follows), Value::Null)?;
        let mut follow = run.follow(self.args.after.as_deref())?;
        while !self.stop.load(Ordering::Acquire) {
            if let Some((RunEvent::Ended { episode, attempt, why }, cursor)) =
                follow.next(Duration::from_millis(200))?
            {
                self.say(&word("told", format!("{episode} {attempt} {why} {cursor}")));
            }
        }
        Ok(())
    }

    /// Does the same thing again and again.
    fn tend(&self) -> Outcome<()> {
        let mut chance = Chance::new(&[self.args.seed, self.args.life.into()]);
        let mut store = self.open()?;
        while !self.stop.load(Ordering::Acquire) {
            self.tend_once(&store)?;
            self.say(&word("did", self.args.role.word()));
            std::thread::sleep(Duration::from_millis(chance.below(150)));
            // Some know what they saw before, some know nothing.
            if chance.one_in(2) {
                store = self.open()?;
            }
        }
        Ok(())
    }

    fn tend_once(&self, store: &Store) -> Outcome<()> {
        let at_once = CompactOptions::default().grace(Duration::ZERO);
        match self.args.role {
            Role::Compact => _ = store.compact(CompactOptions::default(), &mut |_| {})?,
            Role::CompactAtOnce => _ = store.compact(at_once, &mut |_| {})?,
            Role::Prune => self.prune(store, at_once)?,
            Role::Reap => _ = store.reap()?,
            Role::Read => self.read(store)?,
            Role::Copy => self.copy()?,
            Role::Record | Role::Follow => {}
        }
        Ok(())
    }

    fn prune(&self, store: &Store, how: CompactOptions) -> Outcome<()> {
        let filter = PruneFilter::default()
            .run(run_name(&self.args.run, 1))
            .endings(["finished"])
            .reason("it is waste");
        let report = store.prune_with(&filter, how, false, &mut |_| {})?;
        for it in &report.episodes {
            let name = (it.task.as_deref(), it.iteration, it.sample);
            let (Some(task), Some(iteration), Some(sample)) = name else { continue };
            if let Some(key) = Key::from_name(task, iteration, sample) {
                self.say(&line("pruned", key, ""));
            }
        }
        Ok(())
    }

    /// Reads all that is there while others work: it must be right, and the store whole.
    fn read(&self, store: &Store) -> Outcome<()> {
        self.read_right(&self.args.store, false)?;
        for what in damage(store)? {
            self.say(&word("wrong", format!("damaged {what}, seen by process {}", self.args.life)));
        }
        Ok(())
    }

    fn read_right(&self, store: &Path, may_lack: bool) -> Outcome<()> {
        for (key, mut found) in read_all(store, &self.args.run, self.args.seed)? {
            let lacks = |(place, step): (usize, &FoundStep)| step.is_damaged || step.index > place as u64;
            if let Some(place) = found.steps.iter().enumerate().position(lacks).filter(|_| may_lack) {
                found.steps.truncate(place);
            }
            for (kind, what) in wrong_steps(key, &found) {
                self.say(&word("wrong", format!("{kind} {what} in {}", store.display())));
            }
        }
        Ok(())
    }

    /// A copy of a store at work may lack something, and then says so; but nothing in it is wrong.
    fn copy(&self) -> Outcome<()> {
        let copy = self.scratch("copy");
        let copied = copy_dir(&self.args.store, &copy);
        let read = if copied.is_ok() { self.read_right(&copy, true) } else { Ok(()) };
        // One that vanished while it was copied leaves a copy that nobody can use.
        let _ = (read, std::fs::remove_dir_all(&copy));
        Ok(())
    }
}

/// Copies a folder, as `cp -r` would: what vanishes meanwhile is left out.
pub(super) fn copy_dir(from: &Path, to: &Path) -> Outcome<()> {
    let failed = |error: &io::Error| Failure::io("copy", from.display(), error);
    std::fs::create_dir_all(to).map_err(|error| failed(&error))?;
    for entry in std::fs::read_dir(from).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        let target = to.join(entry.file_name());
        let copied = match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                copy_dir(&entry.path(), &target)?;
                continue;
            }
            _ => std::fs::copy(entry.path(), target).map(|_| ()),
        };
        match copied {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
            _ => {}
        }
    }
    Ok(())
}
