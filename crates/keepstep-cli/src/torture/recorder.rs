//! A process that records until it is killed, and tells the witness before and after each step.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepstep::{Ending, Entry, Error, Level, Options, Receipt, Remedy, Result, Run, Step, Store, Value};

use super::content::{Content, Key, Manner, Story};
use super::witness::Line;
use crate::chance::Chance;
use crate::child;
use crate::failure::{Exit, Failure, Outcome};
use crate::screen::Screen;

/// How long to wait before a step that failed is recorded again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// An episode that needs more tries than these will never be recorded.
const TRIES_MAX: u32 = 200;

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
    /// How long a thread thinks before a step, on average
    #[arg(long, default_value_t = 0)]
    pause_us: u64,
}

// What a step waits for. No doc comments here: they would make a short help long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LevelArg {
    Kill,
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
    let options = Options::default()
        .level(args.level.level())
        .segment_bytes_max(args.segment_bytes)
        .stall(Duration::try_from_secs_f64(args.stall_s).unwrap_or(Duration::MAX));
    let store = Store::open(&args.store, options)?;
    let run = store.run(&args.run, Value::map([("seed", Value::from(args.seed.to_string()))]))?;
    let pipe =
        io::stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::io("open", "stdout", &error))?;
    let shared = Shared { args, run, pipe: File::from(pipe), stop: &stop };
    let outcome = std::thread::scope(|scope| {
        let shared = &shared;
        let threads: Vec<_> =
            (0..args.threads).map(|thread| scope.spawn(move || record(shared, thread, screen))).collect();
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
        let mut tries = 0;
        let mut episode = None;
        loop {
            match open_and_go_on(shared, key, &mut episode) {
                Ok(Gone::On) => break,
                Ok(Gone::Stopped) => return Ok(()),
                Err(error) if args.retry && error.remedy() == Remedy::Retry && tries < TRIES_MAX => {
                    tries += 1;
                    screen.say(&format!("trying again: {error}"));
                    if let Some(episode) = &mut episode
                        && !episode.hear_of_all()
                    {
                        return Ok(());
                    }
                    std::thread::sleep(RETRY_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Opens the episode, unless an earlier try did, and records what is left of it.
fn open_and_go_on<'a>(shared: &'a Shared<'a>, key: Key, episode: &mut Option<Episode<'a>>) -> Result<Gone> {
    match episode {
        Some(episode) => episode.go_on(),
        None => episode.insert(Episode::new(shared, key)?).go_on(),
    }
}

/// How an episode was left.
enum Gone {
    /// Recorded: on to the next.
    On,
    /// Somebody wants us to stop, or nobody listens any more.
    Stopped,
}

/// One episode while it is recorded.
struct Episode<'a> {
    shared: &'a Shared<'a>,
    key: Key,
    story: Story,
    recorder: keepstep::Episode,
    chance: Chance,
    /// The index of the next step to be made.
    next: u64,
    /// Made and not acknowledged yet, the oldest first.
    waiting: VecDeque<(u64, Content)>,
    /// Handed over: the receipts of the first of those.
    in_flight: VecDeque<Receipt>,
    last: Option<Receipt>,
}

impl<'a> Episode<'a> {
    fn new(shared: &'a Shared<'a>, key: Key) -> Result<Self> {
        Ok(Self {
            shared,
            key,
            story: Story::new(shared.args.seed, key),
            recorder: shared.run.episode(key.name())?,
            chance: Chance::new(&[shared.args.seed, key.worker.into(), key.life.into(), key.thread.into()]),
            next: 0,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            last: None,
        })
    }

    /// Records what is left of it.
    fn go_on(&mut self) -> Result<Gone> {
        while self.next < self.story.steps || !self.waiting.is_empty() {
            if self.shared.stop.load(Ordering::Acquire) {
                return Ok(Gone::Stopped);
            }
            self.hand_over()?;
            if !self.hear_of_oldest()? {
                return Ok(Gone::Stopped);
            }
        }
        if let Some(last) = &self.last {
            // What was only written so far is raised to what the others have.
            last.wait_for(self.shared.args.level.level(), None)?;
        }
        let Some(why) = self.story.ending else { return Ok(Gone::On) };
        if !self.shared.tell(Line::Ends(self.key)) {
            return Ok(Gone::Stopped);
        }
        self.recorder.end(why, Ending::default())?.wait()?;
        Ok(if self.shared.tell(Line::Ended(self.key)) { Gone::On } else { Gone::Stopped })
    }

    /// Hands steps over, as many as may be in flight.
    fn hand_over(&mut self) -> Result<()> {
        let window = if let Manner::Submit(window) = self.story.manner { window } else { 1 };
        while self.in_flight.len() < window {
            if self.in_flight.len() == self.waiting.len() {
                if self.next == self.story.steps {
                    break;
                }
                self.think();
                let content = self.story.next_step(self.next);
                self.waiting.push_back((self.next, content));
                self.next += 1;
            }
            let (index, content) = &self.waiting[self.in_flight.len()];
            // Should nobody hear it, nobody hears of the acknowledgement either.
            self.shared.tell(Line::Submits(self.key, *index));
            match self.submit(*index, content.step()) {
                Ok(receipt) => self.in_flight.push_back(receipt),
                // The queue is full: first wait for what is on its way.
                Err(Error::Busy { .. }) if !self.in_flight.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn submit(&self, index: u64, step: Step) -> Result<Receipt> {
        if index == 0 && self.story.has_first {
            return self.recorder.first(step);
        }
        match self.story.manner {
            Manner::Step => self.recorder.step(step),
            Manner::Submit(_) => self.recorder.record(step),
            Manner::Kill => self.recorder.record(Entry::step(step).at(Level::Kill)),
        }
    }

    /// Waits for the oldest step in flight, and tells the witness. False if nobody listens.
    fn hear_of_oldest(&mut self) -> Result<bool> {
        let Some(receipt) = self.in_flight.front() else { return Ok(true) };
        receipt.wait()?;
        let wanted =
            if self.story.manner == Manner::Kill { Level::Kill } else { self.shared.args.level.level() };
        let is_kept = receipt.level().is_some_and(|level| level >= wanted);
        self.last = self.in_flight.pop_front();
        let Some((index, content)) = self.waiting.pop_front() else { return Ok(true) };
        // Two promises of the receipt: its level, and the number of the step.
        let step = self.last.as_ref().and_then(Receipt::step);
        assert!(
            is_kept && step == Some(index),
            "step {index} of {:?} was acknowledged as {:?}",
            self.key,
            self.last
        );
        Ok(self.shared.tell(Line::Acknowledged(self.key, index, content.digest())))
    }

    /// After a failure: waits for what is in flight, tells the witness of what was recorded before it, and forgets the
    /// rest. False if nobody listens.
    fn hear_of_all(&mut self) -> bool {
        loop {
            match self.hear_of_oldest() {
                Ok(_) if self.in_flight.is_empty() => return true,
                Ok(true) => {}
                Ok(false) => return false,
                // All that came behind it failed too.
                Err(_) => {
                    self.in_flight.drain(..).for_each(|receipt| drop(receipt.wait()));
                    return true;
                }
            }
        }
    }

    fn think(&mut self) {
        let pause_us = self.shared.args.pause_us;
        if pause_us > 0 {
            std::thread::sleep(Duration::from_micros(self.chance.below(2 * pause_us)));
        }
    }
}

impl Shared<'_> {
    /// Tells the witness, in one write. False if nobody listens any more.
    fn tell(&self, line: Line) -> bool {
        (&self.pipe).write_all(format!("{line}\n").as_bytes()).is_ok()
    }
}
