//! Records whichever episode is free, beside others who do the same; and does to its own locks what programs do by accident.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keepstep::{
    Ending, Entry, Episode, Error, Level, Opening, Options, Receipt, Result, Run, Store, Value, WhenBusy,
};

use super::super::content::{Key, Manner, Story};
use super::hands::{Hands, copy_dir};
use super::oracle::{RUNS, key, line, word};
use super::reading::{marked, run_name};
use crate::chance::Chance;
use crate::failure::{Failure, Outcome};

/// All recorders work at the same tasks, so that they meet.
const TASKS: u32 = 6;

/// Episode after episode in several threads, until told to stop.
pub(super) fn record(hands: &Hands<'_>) -> Outcome<()> {
    let args = hands.args;
    let store = Store::open(&args.store, options(hands))?;
    let runs: Vec<Run> = (0..RUNS.len())
        .map(|run| store.run(&run_name(&args.run, run), Value::Null))
        .collect::<Result<_>>()?;
    let outcome = std::thread::scope(|scope| {
        let (store, runs) = (&store, &runs);
        let start = |thread| scope.spawn(move || Worker::new(hands, store, runs, thread).work());
        let threads: Vec<_> = (0..args.threads).map(start).collect();
        let mut outcome = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(Failure::new("a recording thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    });
    store.close();
    outcome
}

fn options(hands: &Hands<'_>) -> Options {
    let mut chance = Chance::new(&[hands.args.seed, u64::from(hands.args.life)]);
    let segment_bytes_max = [64 << 10, 256 << 10, 4 << 20][chance.below(3) as usize];
    Options::default().segment_bytes_max(segment_bytes_max).lease(hands.lease())
}

/// One thread of a recorder.
struct Worker<'a> {
    hands: &'a Hands<'a>,
    store: &'a Store,
    runs: &'a [Run],
    chance: Chance,
    thread: u32,
    /// How many steps it has tried: each has a mark of its own.
    tried: u64,
    /// Episodes before these are over, by run and task.
    next: [[u32; TASKS as usize]; 2],
}

impl<'a> Worker<'a> {
    fn new(hands: &'a Hands<'a>, store: &'a Store, runs: &'a [Run], thread: u32) -> Self {
        let chance = Chance::new(&[hands.args.seed, hands.args.life.into(), thread.into()]);
        Self { hands, store, runs, chance, thread, tried: 0, next: Default::default() }
    }

    fn work(mut self) -> Outcome<()> {
        while !self.hands.stop.load(Ordering::Acquire) {
            let (run, task) = (u32::from(self.chance.below(10) < 3), self.chance.below(TASKS.into()) as u32);
            let number = self.next[run as usize][task as usize];
            match self.record(key(run, task, number)) {
                Ok(is_over) => self.next[run as usize][task as usize] += u32::from(is_over),
                Err(error) => match cause(&error) {
                    Error::Ended { .. } | Error::Pruned { .. } => {
                        self.next[run as usize][task as usize] += 1;
                    }
                    Error::Busy { .. } => std::thread::sleep(Duration::from_millis(10)),
                    // Taken over, or our log was closed: it can be opened again at once.
                    Error::Fenced { .. } | Error::LogClosed { .. } => self.hands.say(&word("fenced", "")),
                    _ => return Err(error.into()),
                },
            }
            if self.chance.one_in(10) {
                self.slip()?;
            }
        }
        Ok(())
    }

    /// Goes on with an episode where it stands. True if it is over.
    fn record(&mut self, of: Key) -> Result<bool> {
        let busy = if self.chance.one_in(10) { WhenBusy::Take } else { WhenBusy::Raise };
        let episode = self.runs[of.life as usize].open(of.name(), Opening::default().busy(busy))?;
        let mut story = Story::new(self.hands.args.seed, of);
        (0..episode.steps()).for_each(|index| _ = story.next_step(index));
        // Some are left before their end, and gone on with by whoever comes first.
        let leaves_at = episode.steps() + 1 + self.chance.below(40);
        let mut in_flight = VecDeque::new();
        while episode.steps() < story.steps.min(leaves_at) {
            self.hand_over(of, &episode, &mut story, &mut in_flight)?;
            let window = if let Manner::Submit(window) = story.manner { window } else { 1 };
            while in_flight.len() >= window {
                self.hear_of_oldest(of, &mut in_flight)?;
            }
            self.think();
        }
        while !in_flight.is_empty() {
            self.hear_of_oldest(of, &mut in_flight)?;
        }
        let is_over = episode.steps() >= story.steps;
        let why = if is_over { "finished" } else { "aborted" };
        let said = format!("{} {why}", episode.attempt());
        self.hands.say(&line("ends", of, &said));
        episode.end(why, Ending::default())?.wait()?;
        self.hands.say(&line("ended", of, &said));
        Ok(is_over)
    }

    fn hand_over(
        &mut self,
        of: Key,
        episode: &Episode,
        story: &mut Story,
        in_flight: &mut VecDeque<(u64, String, Receipt)>,
    ) -> Result<()> {
        self.tried += 1;
        let mark = format!("{}.{}.{}", self.hands.args.life, self.thread, self.tried);
        let index = episode.steps();
        let step = marked(&story.next_step(index), &mark);
        let receipt = match story.manner {
            _ if index == 0 && story.has_first => episode.first(step)?,
            Manner::Step => episode.step(step)?,
            Manner::Submit(_) => episode.record(Entry::step(step).waiting_for_room())?,
            Manner::Kill => episode.record(Entry::step(step).at(Level::Kill))?,
        };
        if self.hands.args.early {
            self.hands.say(&line("step", of, format!("{index} {mark}")));
        }
        in_flight.push_back((index, mark, receipt));
        Ok(())
    }

    /// Waits for the oldest step in flight, and says that it was acknowledged before anything else happens.
    fn hear_of_oldest(&self, of: Key, in_flight: &mut VecDeque<(u64, String, Receipt)>) -> Result<()> {
        let Some((index, mark, receipt)) = in_flight.pop_front() else { return Ok(()) };
        receipt.wait()?;
        if !self.hands.args.early {
            self.hands.say(&line("step", of, format!("{index} {mark}")));
        }
        Ok(())
    }

    fn think(&mut self) {
        let pause_us = if self.chance.one_in(20) { 150_000 } else { 3_000 };
        std::thread::sleep(Duration::from_micros(self.chance.below(pause_us)));
    }

    /// What frees the locks of a process, or looks as if it did.
    fn slip(&mut self) -> Outcome<()> {
        let store = &self.hands.args.store;
        match self.chance.below(8) {
            0 => self.store.reap().map(|_| ())?,
            1 => self.open_twice(store)?,
            // An upload of the store from the recorder.
            2 => {
                let copy = self.hands.scratch(&format!("upload-{}", self.thread));
                let _ = (copy_dir(store, &copy), std::fs::remove_dir_all(&copy));
            }
            _ => open_and_close_locks(store),
        }
        Ok(())
    }

    /// A second handle of the store meets the episodes of the first.
    fn open_twice(&self, store: &Path) -> Result<()> {
        let second = Store::open(store, options(self.hands))?;
        let run = second.run(&run_name(&self.hands.args.run, 0), Value::Null)?;
        for task in 0..TASKS {
            let of = key(0, task, self.next[0][task as usize]);
            let came = run.episode(of.name()).and_then(|episode| {
                let said = format!("{} aborted", episode.attempt());
                self.hands.say(&line("ends", of, &said));
                episode.end("aborted", Ending::default())?.wait()?;
                self.hands.say(&line("ended", of, &said));
                Ok(())
            });
            match came.as_ref().map_err(cause) {
                Ok(())
                | Err(
                    Error::Busy { .. } | Error::Ended { .. } | Error::Fenced { .. } | Error::LogClosed { .. },
                ) => {}
                Err(_) => return came,
            }
        }
        second.close();
        Ok(())
    }
}

/// What an error comes from.
fn cause(error: &Error) -> &Error {
    match error {
        Error::EarlierFailed(earlier) => cause(earlier),
        error => error,
    }
}

fn open_and_close_locks(store: &Path) {
    let writers = std::fs::read_dir(store.join("writers")).into_iter().flatten().flatten();
    // One that is gone by now was another's.
    writers.for_each(|writer| drop(std::fs::File::open(writer.path().join("lock"))));
}
