//! A process that records until it is killed, and tells the witness before and after each step.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepstep::{Level, Options, Receipt, Recorder, Remedy, Run, Step, Store, Value};

use super::content::{Content, Key, Manner, Story};
use super::witness::Line;
use crate::child;
use crate::failure::{Exit, Failure, Outcome, hint_for};
use crate::screen::Screen;

/// What a recorder of `torture` is told. Hidden: only `torture` and the tests start it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    run: String,
    #[arg(long)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    worker: u32,
    #[arg(long, default_value_t = 0)]
    life: u32,
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// How many episodes each thread records; without it, it goes on until it is stopped
    #[arg(long)]
    episodes: Option<u32>,
    #[arg(long, value_enum, default_value = "power")]
    level: LevelArg,
    #[arg(long, default_value_t = 1 << 20)]
    segment_bytes: u64,
    /// How long a step waits for a disk that fails
    #[arg(long, default_value_t = 60.0)]
    stall_s: f64,
    /// Record a step again when it failed and may be tried again
    #[arg(long)]
    retry: bool,
}

/// What a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LevelArg {
    /// the process dies
    Kill,
    /// the machine loses power
    Power,
}

impl LevelArg {
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Kill => Level::Kill,
            Self::Power => Level::Power,
        }
    }
}

/// What all threads of a recorder share.
struct Shared<'a> {
    args: &'a Args,
    run: Run,
    pipe: File,
    stop: &'a AtomicBool,
}

pub(crate) fn run(args: &Args, screen: &Screen) -> Outcome {
    let stop = child::live_with_parent();
    let options = Options {
        level: Some(args.level.level()),
        segment_bytes_max: args.segment_bytes,
        stall: Duration::try_from_secs_f64(args.stall_s).unwrap_or(Duration::MAX),
        ..Options::default()
    };
    let store = Store::open(&args.store, options)?;
    let run = store.run(&args.run, Value::map([("seed", Value::from(args.seed.to_string()))]))?;
    let pipe = io::stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::io("open", "stdout", &error))?;
    let shared = Shared { args, run, pipe: File::from(pipe), stop: &stop };
    let outcome = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads).map(|thread| scope.spawn(|| record(&shared, thread, screen))).collect();
        let mut outcome = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(Failure::new("a recording thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    });
    store.close();
    outcome.map(|()| Exit::Done)
}

/// Episode after episode, until told to stop.
fn record(shared: &Shared<'_>, thread: u32, screen: &Screen) -> Outcome<()> {
    let args = shared.args;
    for number in 0..args.episodes.unwrap_or(u32::MAX) {
        let key = Key { worker: args.worker, life: args.life, thread, number };
        let mut story = Story::new(args.seed, key);
        let episode = shared.run.episode(key.name())?;
        let mut taken: Vec<Content> = Vec::new();
        loop {
            let acknowledged = taken.len();
            match shared.record_episode(&episode, &mut story, &mut taken, key) {
                Ok(true) => break,
                Ok(false) => return Ok(()),
                // What was acknowledged stays; the rest is recorded again.
                Err(Trouble::Store(error)) if args.retry && error.remedy() == Remedy::Retry => {
                    screen.say(&format!("trying again: {error}; {}", hint_for(&error)));
                    story = Story::new(args.seed, key);
                    let _ = acknowledged;
                }
                Err(Trouble::Store(error)) => return Err(error.into()),
                // The witness is gone: nobody listens any more.
                Err(Trouble::Witness(_)) => return Ok(()),
            }
        }
    }
    Ok(())
}
