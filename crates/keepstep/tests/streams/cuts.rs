//! A power cut, or a kill, at every point of putting, freezing and dropping.

use std::collections::BTreeSet;

use keepstep::disk::sim::{SimDisk, Trace};
use keepstep::{Broken, Error, Level, Options};

use super::{ids, options, put, seed, stream, stream_on};

/// Entries by number, so that an event of the trace can name them.
const ENTRIES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const FROZEN: u64 = 1 << 40;
const HIDDEN: u64 = 1 << 41;

/// What a trace says before a cut.
#[derive(Debug, Default)]
struct Acknowledged {
    acknowledged: BTreeSet<String>,
    frozen: Option<BTreeSet<String>>,
    hidden: bool,
}

fn level_bit(level: Level) -> u64 {
    u64::from(level >= Level::Power) << 8
}

fn said_before(trace: &Trace, cut: usize, survived: Level) -> Acknowledged {
    let mut said = Acknowledged::default();
    for &event in trace.events_before(cut) {
        if event & HIDDEN != 0 {
            said.hidden = true;
        } else if event & FROZEN != 0 {
            let is_in = |n: &usize| event >> n & 1 == 1;
            said.frozen = Some((0..ENTRIES.len()).filter(is_in).map(|n| ENTRIES[n].to_owned()).collect());
        } else if event & 256 >= level_bit(survived) {
            said.acknowledged.insert(ENTRIES[(event & 255) as usize].to_owned());
        }
    }
    said
}

struct Recording<'s> {
    sim: &'s SimDisk,
    options: Options,
}

impl Recording<'_> {
    fn puts(&self, options: Options, entries: &[usize]) -> Option<keepstep::Stream> {
        let level = options.level.unwrap_or(Level::Power);
        let stream = stream_on(self.sim.process(), options).ok()?;
        for &entry in entries {
            if put(&stream, ENTRIES[entry]).is_ok() {
                self.sim.event(level_bit(level) | entry as u64);
            }
        }
        Some(stream)
    }

    fn freezes(&self) {
        let Ok(stream) = stream_on(self.sim.process(), self.options.clone()) else { return };
        let Ok(view) = stream.freeze() else { return };
        let mask =
            ENTRIES.iter().enumerate().filter(|(_, id)| view.entries.iter().any(|(found, _)| found == *id));
        self.sim.event(FROZEN | mask.map(|(n, _)| 1 << n).sum::<u64>());
    }
}

fn synced_entries(recording: &Recording<'_>) {
    let first = recording.puts(recording.options.clone(), &[0, 1]);
    let _second = recording.puts(recording.options.clone(), &[2]);
    recording.freezes();
    drop(first);
    recording.freezes();
}

/// Nothing says that these are synced: a freeze rests on its own copies.
fn entries_in_memory(recording: &Recording<'_>) {
    let kill = recording.options.clone().level(Level::Kill);
    let _first = recording.puts(kill.clone(), &[0, 1]);
    let _second = recording.puts(kill, &[1, 2]);
    recording.freezes();
}

fn sealed_entries(recording: &Recording<'_>) {
    let small = recording.options.clone().segment_bytes_max(500);
    let _first = recording.puts(small, &[0, 1, 2, 3, 4, 5]);
    recording.freezes();
}

fn dropped(recording: &Recording<'_>) {
    let _first = recording.puts(recording.options.clone(), &[0]);
    let Ok(stream) = stream_on(recording.sim.process(), recording.options.clone()) else { return };
    if stream.hide().is_ok() {
        recording.sim.event(HIDDEN);
    }
}

type Workload = (&'static str, fn(&Recording<'_>));

const WORKLOADS: [Workload; 4] = [
    ("synced entries", synced_entries),
    ("entries in memory", entries_in_memory),
    ("sealed entries", sealed_entries),
    ("a dropped stream", dropped),
];

/// What must be true of a stream after any crash.
fn look(state: &SimDisk, said: &Acknowledged) -> Result<(), String> {
    let stream =
        stream_on(state.process(), options(None)).map_err(|error| format!("cannot be opened: {error}"))?;
    let view = stream.read().map_err(|error| format!("cannot be read: {error}"))?;
    if said.hidden || view.is_hidden {
        let is_well = view.is_hidden && view.entries.is_empty();
        return if is_well { Ok(()) } else { Err(format!("was dropped, and shows {view:?}")) };
    }
    if !view.lost.is_empty() || !view.conflicts.is_empty() {
        return Err(format!("lost {:?}, conflicts {:?}", view.lost, view.conflicts));
    }
    let missing = |found: &BTreeSet<String>| said.acknowledged.difference(found).next().cloned();
    let found = ids(&view);
    if let Some(lost) = missing(&found) {
        return Err(format!("{lost} was acknowledged, and is not in {found:?}"));
    }
    if said.frozen.as_ref().is_some_and(|frozen| !view.is_frozen || found != *frozen) {
        return Err(format!("was frozen as {:?}, and is {found:?}", said.frozen));
    }
    let again = stream.freeze().map_err(|error| format!("cannot be frozen: {error}"))?;
    if view.is_frozen && again != view {
        return Err(format!("frozen twice: {view:?}, then {again:?}"));
    }
    if let Some(lost) = missing(&ids(&again)) {
        return Err(format!("{lost} was acknowledged, and is not frozen"));
    }
    match (put(&stream, "late"), self::stream(state).freeze()) {
        (Err(Error::Fenced { .. }), Ok(third)) if third == again => Ok(()),
        other => Err(format!("frozen, and then {other:?}")),
    }
}

/// Looks at every cut of a workload; at `states` of each if there are more.
fn every_cut(workload: &Workload, broken: Option<Broken>, states: u64) -> Result<u64, String> {
    let seed = seed() + 1_000 * (3 + broken.map_or(0, |broken| broken as u64));
    let sim = SimDisk::new(seed);
    workload.1(&Recording { sim: &sim, options: options(broken) });
    let trace = sim.trace();
    let mut looked = 0;
    let broke = |cut: usize, which: String, why: String| {
        format!(
            "{} (KEEPSTEP_SEED={}), cut {cut} ({}), {which}: {why}",
            workload.0,
            self::seed(),
            trace.operation_before(cut)
        )
    };
    for cut in 0..trace.cuts() {
        look(&trace.killed(cut), &said_before(&trace, cut, Level::Kill))
            .map_err(|why| broke(cut, "killed".to_owned(), why))?;
        looked += 1;
        if !trace.is_new(cut) {
            continue;
        }
        let said = said_before(&trace, cut, Level::Power);
        let count = trace.state_count(cut);
        for nth in 0..count.min(states) {
            let state =
                if count <= states { trace.state(cut, nth) } else { trace.random_state(cut, seed + nth) };
            look(&state, &said).map_err(|why| broke(cut, format!("state {nth} of {count}"), why))?;
            looked += 1;
        }
    }
    Ok(looked)
}

/// Whatever the power takes, and whenever: what was acknowledged is in, and a freeze is for ever. `KEEPSTEP_STATES` says how
/// many states of each cut are looked at.
#[test]
fn no_cut_breaks_a_stream() {
    let states = std::env::var("KEEPSTEP_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for workload in &WORKLOADS {
        let looked = every_cut(workload, None, states).unwrap_or_else(|why| panic!("{why}"));
        println!("{}: {looked} states, no promise broken", workload.0);
    }
}

#[test]
fn a_freeze_that_copies_nothing_is_caught() {
    let why = every_cut(&WORKLOADS[1], Some(Broken::FreezeCopiesNothing), 8).expect_err("is caught");
    println!("caught: {why}");
}
