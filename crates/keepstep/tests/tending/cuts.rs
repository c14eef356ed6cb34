//! The power is cut at every point of a tending, in every way: what should stay is there, and running it again finishes.

use keepstep::disk::sim::{SimDisk, Trace};
use keepstep::{Broken, Store};

use super::world::{Everything, at_once, everything, open, open_as};

/// A cut with so few states is looked at in all of them.
const STATES_OF_A_CUT_MAX: u64 = 512;
/// Of every so many states the tending is run again.
const AGAIN_EVERY: u64 = 8;

/// Something that is done to a store, and what must be true at any point of it.
pub struct Tending {
    pub name: &'static str,
    /// Does it.
    pub tend: fn(&Store) -> keepstep::Result<()>,
    /// What a reader may see at any point: one of these.
    pub may_read: Vec<Everything>,
    /// What a reader sees when it was done.
    pub at_last: Everything,
}

/// What looking at many states found.
#[derive(Default)]
pub struct Findings {
    pub states: u64,
    pub cuts: u64,
    pub again: u64,
    pub broke: Vec<String>,
}

/// A disk on which all that was recorded is old.
pub fn aged(sim: &SimDisk) -> SimDisk {
    let trace = sim.trace();
    trace.killed(trace.cuts() - 1)
}

/// Traces a tending that runs to its end, and a second one, which deletes what the first replaced.
pub fn traced(base: &SimDisk, tending: &Tending, broken: Option<Broken>) -> Trace {
    let sim = aged(base);
    for _ in 0..2 {
        let store = open_as(sim.process(), broken);
        (tending.tend)(&store).expect("is done");
    }
    sim.trace()
}

/// Looks at every cut of a trace.
pub fn enumerate(tending: &Tending, trace: &Trace, seed: u64, stop_early: bool) -> Findings {
    let mut findings = Findings::default();
    for cut in 0..trace.cuts() {
        if stop_early && !findings.broke.is_empty() {
            return findings;
        }
        findings.cuts += 1;
        findings.look(tending, trace, cut, "killed", &trace.killed(cut));
        if !trace.is_new(cut) {
            continue;
        }
        let count = trace.state_count(cut);
        if count <= STATES_OF_A_CUT_MAX {
            for index in 0..count {
                findings.look(tending, trace, cut, &format!("state {index}"), &trace.state(cut, index));
            }
        } else {
            for nth in 0..64 {
                let seed = seed.wrapping_mul(1_000_003).wrapping_add(nth);
                findings.look(tending, trace, cut, &format!("seed {seed}"), &trace.random_state(cut, seed));
            }
        }
    }
    findings
}

impl Findings {
    fn look(&mut self, tending: &Tending, trace: &Trace, cut: usize, which: &str, state: &SimDisk) {
        self.states += 1;
        let runs_again = self.states.is_multiple_of(AGAIN_EVERY);
        self.again += u64::from(runs_again);
        if let Err(why) = check(tending, state, runs_again) {
            let after = trace.operation_before(cut);
            self.broke.push(format!("{}: cut {cut} ({after}), {which}: {why}", tending.name));
        }
    }
}

fn check(tending: &Tending, state: &SimDisk, runs_again: bool) -> Result<(), String> {
    let store = open(state);
    let found = everything(&store).map_err(|error| format!("it cannot be read: {error}"))?;
    if !tending.may_read.contains(&found) {
        return Err(differs(&tending.may_read[0], &found));
    }
    if let Some(trouble) = store.catalog().map_err(|error| error.to_string())?.troubles().first() {
        return Err(format!("a power cut looks like damage: {trouble:?}"));
    }
    if !runs_again {
        return Ok(());
    }
    for _ in 0..3 {
        (tending.tend)(&open(state)).map_err(|error| format!("it cannot be run again: {error}"))?;
    }
    let found = everything(&open(state)).map_err(|error| format!("run again, it cannot be read: {error}"))?;
    if found != tending.at_last {
        return Err(format!("run again: {}", differs(&tending.at_last, &found)));
    }
    let report = open(state).verify(&mut |_| {}).map_err(|error| error.to_string())?;
    if !report.is_whole() || !report.leftovers.is_empty() {
        return Err(format!("run again, it is not whole: {report:?}"));
    }
    let held = state.files();
    let left = held.iter().find(|(path, _)| path.starts_with("writers/") && path.ends_with(".seg"));
    left.map_or(Ok(()), |(path, _)| Err(format!("run again, {path} is still there")))
}

fn differs(expected: &Everything, found: &Everything) -> String {
    for (key, records) in expected {
        match found.get(key) {
            None => return format!("{key:?} is gone"),
            Some(it) if it.len() != records.len() => {
                return format!("{key:?} has {} records instead of {}", it.len(), records.len());
            }
            Some(it) if it != records => return format!("{key:?} says something else"),
            Some(_) => {}
        }
    }
    format!("{} attempts instead of {}", found.len(), expected.len())
}

/// Compacting a store.
pub fn compacting(base: &SimDisk) -> Tending {
    let before = everything(&open(&aged(base))).expect("reads");
    Tending {
        name: "compact",
        tend: |store| store.compact(at_once(), &mut |_| {}).map(drop),
        may_read: vec![before.clone()],
        at_last: before,
    }
}

/// Pruning half of a store.
pub fn pruning(base: &SimDisk) -> Tending {
    let store = open(&aged(base));
    let before = everything(&store).expect("reads");
    let mut catalog = store.catalog().expect("reads");
    let finished = catalog.attempts().expect("reads").into_iter();
    let finished = finished.filter(|info| info.summary.why.as_deref() == Some("finished"));
    let gone: Vec<_> = finished.map(|info| info.key.episode).collect();
    assert!(!gone.is_empty());
    let after = super::pruning::without(&before, &gone);
    assert!(!after.is_empty());
    Tending {
        name: "prune",
        tend: super::pruning::finished,
        may_read: vec![before, after.clone()],
        at_last: after,
    }
}
