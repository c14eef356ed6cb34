//! Small takeovers on a simulated disk, two or three processes on it, told to the oracle as they go.

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::sim::{SimDisk, SimProcess};
use keepstep::{
    Broken, Ending, Entry, Episode, EpisodeName, Error, Level, Opening, Options, Resume, Run, Step, Store,
    Value, WhenBusy,
};

/// A takeover, by name.
#[derive(Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub record: fn(&SimDisk, Option<Broken>),
    /// How many promises are told if nothing fails.
    pub promises: usize,
}

pub const WORKLOADS: &[Workload] = &[
    Workload { name: "all is synced", record: all_is_synced, promises: 4 },
    Workload { name: "some is not synced", record: some_is_not_synced, promises: 4 },
    Workload { name: "a chain, none of it synced", record: a_chain, promises: 7 },
    Workload { name: "an end that was not synced", record: an_end, promises: 3 },
    Workload { name: "the owner is dead", record: dead_owner, promises: 4 },
    Workload { name: "a turn is pending", record: pending_turn, promises: 3 },
    Workload { name: "small segments", record: small_segments, promises: 8 },
    Workload { name: "by its own process", record: own_process, promises: 6 },
];

/// Something that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledged {
    /// A step: its number, what it says, what it survives.
    Step { index: u64, content: i64, level: Level },
    /// The episode is over, whatever happens.
    End,
    /// An attempt begins here: nothing before is left, or only so many steps.
    Cut { steps: u64 },
}

impl Acknowledged {
    fn to_event(self) -> u64 {
        match self {
            Self::Step { index, content, level } => {
                u64::from(level >= Level::Power) << 63 | index << 32 | content as u64
            }
            Self::End => 1 << 62,
            Self::Cut { steps } => 1 << 61 | steps,
        }
    }

    pub fn from_event(event: u64) -> Self {
        let level = if event >> 63 == 1 { Level::Power } else { Level::Kill };
        match event {
            event if event >> 62 & 1 == 1 => Self::End,
            event if event >> 61 & 1 == 1 => Self::Cut { steps: event & 0xffff },
            event => Self::Step { index: event >> 32 & 0xffff, content: (event & 0xffff_ffff) as i64, level },
        }
    }
}

pub fn name() -> EpisodeName {
    EpisodeName::task("task")
}

pub fn taking() -> Opening {
    Opening::default().busy(WhenBusy::Take)
}

/// No threads, so that a trace is the same every time.
pub fn options(broken: Option<Broken>) -> Options {
    let stall = Duration::from_millis(500);
    Options::default().background(false).dictionary(false).stall(stall).broken(broken)
}

pub fn open_run(process: Arc<SimProcess>, options: Options) -> keepstep::Result<Run> {
    Store::on_files(process, options)?.run("run", Value::Null)
}

/// What an attempt says in a step: the number of both, and a history that grows.
pub fn content(attempt: u32, index: u64) -> i64 {
    i64::from(attempt) * 100 + index as i64
}

pub fn step_of(content: i64) -> Step {
    let message = |turn: i64| Value::from(format!("message {turn} ").repeat(30));
    let messages: Vec<Value> = (0..=content % 100).map(message).collect();
    Step::new().action(content).prompt(Value::list(messages))
}

/// One process, telling the trace what it was promised.
struct Process<'s> {
    sim: &'s SimDisk,
    run: Run,
}

impl<'s> Process<'s> {
    fn new(sim: &'s SimDisk, options: Options) -> Option<Self> {
        Some(Self { sim, run: open_run(sim.process(), options).ok()? })
    }

    fn tell(&self, what: Acknowledged) {
        self.sim.event(what.to_event());
    }

    /// Takes the episode, whoever has it.
    fn open(&self) -> Option<Episode> {
        match self.run.open(name(), taking()) {
            Ok(episode) => Some(episode),
            Err(Error::Ended { .. }) => {
                self.tell(Acknowledged::End);
                None
            }
            Err(_) => None,
        }
    }

    fn steps(&self, episode: &Episode, count: u64, level: Level) {
        for _ in 0..count {
            let index = episode.steps();
            let content = content(episode.attempt(), index);
            let receipt = episode.record(Entry::step(step_of(content)).at(level));
            if receipt.is_ok_and(|receipt| receipt.wait_for(level, None).is_ok_and(|reached| reached)) {
                self.tell(Acknowledged::Step { index, content, level });
            }
        }
    }
}

fn all_is_synced(sim: &SimDisk, broken: Option<Broken>) {
    let (Some(one), Some(two)) = (Process::new(sim, options(broken)), Process::new(sim, options(broken)))
    else {
        return;
    };
    let Some(old) = one.open() else { return };
    one.steps(&old, 2, Level::Power);
    let Some(new) = two.open() else { return };
    one.steps(&old, 1, Level::Power);
    two.steps(&new, 1, Level::Power);
    if new.end("finished", Ending::default()).is_ok_and(|receipt| receipt.wait().is_ok()) {
        two.tell(Acknowledged::End);
    }
}

fn some_is_not_synced(sim: &SimDisk, broken: Option<Broken>) {
    let (Some(one), Some(two)) = (Process::new(sim, options(broken)), Process::new(sim, options(broken)))
    else {
        return;
    };
    let Some(old) = one.open() else { return };
    one.steps(&old, 1, Level::Power);
    one.steps(&old, 2, Level::Kill);
    let Some(new) = two.open() else { return };
    two.steps(&new, 1, Level::Power);
    one.steps(&old, 1, Level::Power);
}

fn a_chain(sim: &SimDisk, broken: Option<Broken>) {
    let processes: Vec<Process<'_>> = (0..3).filter_map(|_| Process::new(sim, options(broken))).collect();
    let mut episodes = Vec::new();
    for process in &processes {
        let Some(episode) = process.open() else { return };
        process.steps(&episode, 2, Level::Kill);
        episodes.push(episode);
    }
    if let (Some(process), Some(episode)) = (processes.last(), episodes.last()) {
        process.steps(episode, 1, Level::Power);
    }
}

/// At level `kill` an END is no more synced than anything else: whoever adopts it makes it safe.
fn an_end(sim: &SimDisk, broken: Option<Broken>) {
    let at_kill = options(broken).level(Level::Kill);
    let (Some(one), Some(two)) = (Process::new(sim, at_kill), Process::new(sim, options(broken))) else {
        return;
    };
    let Some(old) = one.open() else { return };
    one.steps(&old, 2, Level::Kill);
    let _ = old.end("finished", Ending::default());
    assert!(two.open().is_none(), "it is over");
}

fn dead_owner(sim: &SimDisk, broken: Option<Broken>) {
    let process = sim.process();
    let Ok(run) = open_run(process.clone(), options(broken)) else { return };
    let (Some(two), one) = (Process::new(sim, options(broken)), Process { sim, run }) else { return };
    let Some(old) = one.open() else { return };
    one.steps(&old, 1, Level::Power);
    one.steps(&old, 1, Level::Kill);
    process.kill();
    drop((old, one));
    let Some(new) = two.open() else { return };
    two.steps(&new, 1, Level::Kill);
    two.steps(&new, 1, Level::Power);
}

fn pending_turn(sim: &SimDisk, broken: Option<Broken>) {
    let at_kill = options(broken).level(Level::Kill);
    let (Some(one), Some(two)) = (Process::new(sim, at_kill), Process::new(sim, options(broken))) else {
        return;
    };
    let Some(old) = one.open() else { return };
    one.steps(&old, 1, Level::Kill);
    let Ok(turn) = old.turn(step_of(content(0, 1))) else { return };
    let Some(new) = two.open() else { return };
    drop(turn);
    // Adopted: what was said is the other's, the result is ours.
    let Ok(turn) = new.turn(step_of(content(0, 1))) else { return };
    if turn.result(Step::new().reward(1.0)).is_ok() {
        two.tell(Acknowledged::Step { index: 1, content: content(0, 1), level: Level::Power });
    }
    two.steps(&new, 1, Level::Power);
}

fn small_segments(sim: &SimDisk, broken: Option<Broken>) {
    let small = || options(broken).segment_bytes_max(700);
    let (Some(one), Some(two)) = (Process::new(sim, small()), Process::new(sim, small())) else { return };
    let Some(old) = one.open() else { return };
    one.steps(&old, 5, Level::Kill);
    let Some(new) = two.open() else { return };
    two.steps(&new, 3, Level::Power);
}

/// A process goes on with what it has left itself, and rewinds it; nothing of it was synced.
fn own_process(sim: &SimDisk, broken: Option<Broken>) {
    let at_kill = options(broken).level(Level::Kill);
    let Some(one) = Process::new(sim, at_kill) else { return };
    let Some(first) = one.open() else { return };
    one.steps(&first, 2, Level::Kill);
    drop(first);
    let Some(second) = one.open() else { return };
    one.steps(&second, 2, Level::Power);
    drop(second);
    // From here on less may be there: told before, since it may have happened when the power fails.
    one.tell(Acknowledged::Cut { steps: 1 });
    let rewind = taking().at(1).resume(Resume::Continue);
    let Ok(third) = one.run.open(name(), rewind) else { return };
    one.steps(&third, 1, Level::Power);
}
