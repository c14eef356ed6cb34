//! A simulator that is too kind proves nothing: these tests look for the harm that it must do, and for none beyond.

mod counting;
mod data;
mod faults;
mod names;
mod processes;
mod toy_log;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Detail, SimDisk, SimProcess, Trace};
use crate::disk::{Clock, File, Files, read_file};

/// Random states are many; this many are enough to see whatever is not rare.
const RANDOM: u64 = 4000;

fn start(seed: u64) -> (SimDisk, Arc<SimProcess>) {
    let sim = SimDisk::new(seed);
    let process = sim.process();
    (sim, process)
}

/// A file whose name is safe.
fn named(disk: &SimProcess, path: &str) -> Arc<dyn File> {
    let file = disk.create_new(path).unwrap();
    disk.sync_dir(crate::disk::parent(path)).unwrap();
    file
}

/// A file that is safe altogether.
fn safe(disk: &SimProcess, path: &str, content: &[u8]) -> Arc<dyn File> {
    let file = named(disk, path);
    file.write_at(content, 0).unwrap();
    file.sync().unwrap();
    file
}

/// What a file holds in a state, if its name is there.
fn content(state: &SimDisk, path: &str) -> Option<Vec<u8>> {
    read_file(&*state.process(), path).ok()
}

fn names(state: &SimDisk) -> String {
    state.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>().join(" ")
}

/// Every counted state at the end of a trace.
fn every_state(trace: &Trace) -> impl Iterator<Item = SimDisk> {
    let cut = trace.cut(trace.cuts() - 1);
    (0..cut.state_count()).map(move |index| cut.state(index))
}

/// Many random states at the end of a trace.
fn random_states(trace: &Trace) -> impl Iterator<Item = SimDisk> {
    let cut = trace.cut(trace.cuts() - 1);
    (0..RANDOM).map(move |seed| cut.random_state(seed))
}

/// What the file may hold at the end, by counting and by chance.
fn contents(sim: &SimDisk, path: &str) -> [BTreeSet<Option<Vec<u8>>>; 2] {
    let trace = sim.trace();
    [
        every_state(&trace).map(|state| content(&state, path)).collect(),
        random_states(&trace).map(|state| content(&state, path)).collect(),
    ]
}

/// All the sets of names that may be left at the end, by counting and by chance.
fn all_names(sim: &SimDisk) -> [BTreeSet<String>; 2] {
    let trace = sim.trace();
    [
        every_state(&trace).map(|state| names(&state)).collect(),
        random_states(&trace).map(|state| names(&state)).collect(),
    ]
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&names| names.to_owned()).collect()
}
