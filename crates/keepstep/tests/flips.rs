//! Each byte of a small store flipped, one at a time, and each file cut at each length: found and placed, or harmless.
//!
//! Never wrong data, never a panic. What is read back is what was said, or is marked as lost, or verify tells why not.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

use keepstep::disk::Files;
use keepstep::disk::sim::{SimDisk, Trace};
use keepstep::format::value::{Array, Dtype};
use keepstep::format::{fields, step_fields};
use keepstep::read::{Item, RecordedStep};
use keepstep::tend::CompactOptions;
use keepstep::{EpisodeName, Options, Step, Store, Value};
use std::sync::Arc;
use std::time::Duration;

const STEPS: u64 = 4;

fn options() -> Options {
    Options::default().background(false).dictionary(false).segment_bytes_max(4000)
}

fn name(episode: i64) -> EpisodeName {
    EpisodeName::task("flips").sample(episode)
}

fn said(episode: i64, step: u64) -> Step {
    let text = |seed: u64| -> String {
        (0..300u64).map(|i| char::from(b'a' + (i.wrapping_mul(seed * 2 + 7) % 23) as u8)).collect()
    };
    let ids: Vec<u8> = (0..200i32).flat_map(|i| (i * 7 + step as i32).to_le_bytes()).collect();
    let ids = Array::new(Dtype::I32, vec![200], ids).expect("fits");
    Step::new()
        .prompt(Value::list((0..=step).map(|turn| Value::from(text(episode as u64 * 50 + turn)))))
        .action(Value::Int(step as i64))
        .reward(0.5)
        .observation(Value::Array(Arc::new(ids)))
}

/// A store with two episodes; closed in good order, or left as a killed process leaves it.
fn recorded(seed: u64, is_closed: bool) -> Trace {
    let sim = SimDisk::new(seed);
    let store = Store::on_files(sim.process(), options()).expect("opens");
    let run = store.run("flips", Value::Null).expect("opens");
    let recorders = [run.episode(name(0)).expect("begins"), run.episode(name(1)).expect("begins")];
    for step in 0..STEPS {
        for (episode, recorder) in recorders.iter().enumerate() {
            recorder.step(said(episode as i64, step)).expect("records");
        }
    }
    if is_closed {
        store.close();
    }
    sim.trace()
}

/// The same, compacted, and what that replaced deleted.
fn compacted(seed: u64) -> Trace {
    let trace = recorded(seed, true);
    let sim = trace.killed(trace.cuts() - 1);
    for _ in 0..2 {
        let store = Store::on_files(sim.process(), options()).expect("opens");
        let options = CompactOptions::default().grace(Duration::ZERO).block_bytes_max(1500);
        let report = store.compact(options, &mut |_| {}).expect("compacts");
        assert!(report.left_alone.is_empty(), "{report:?}");
    }
    sim.trace()
}

/// What was found out about a store with one wound.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// All is as it was.
    Harmless,
    /// Something is lost, and that was said.
    Found,
    /// Something is lost, and nobody said so.
    Silent,
}

/// Reads everything; panics if anything is returned that was never said.
fn look(state: &SimDisk, wound: &str) -> Outcome {
    let Ok(store) = Store::on_files(state.process(), options()) else { return Outcome::Found };
    let Ok(run) = store.run("flips", Value::Null) else { return Outcome::Found };
    let Ok(catalog) = store.catalog() else { return Outcome::Found };
    let mut whole = 0;
    for episode in 0..2 {
        let Ok(key) = catalog.find(&run.episode_id(&name(episode)), 0) else { continue };
        let Ok(mut reader) = catalog.reader(&key) else { continue };
        for item in reader.records() {
            let Ok(Item::Record(record)) = item else { continue };
            let Some(index) = record.get(fields::INDEX).and_then(Value::as_int) else { continue };
            let expected = said(episode, index as u64);
            for (number, value) in expected.fields() {
                let found = record.get(*number);
                let is_marked = record.lost.contains(number);
                assert!(
                    is_marked || found == Some(value),
                    "{wound}: step {index} of {episode}: field {number} is wrong"
                );
            }
            whole += u64::from(record.lost.is_empty());
        }
    }
    if whole == 2 * STEPS {
        return Outcome::Harmless;
    }
    let report = store.verify(&mut |_| {});
    if report.is_ok_and(|report| report.is_whole()) { Outcome::Silent } else { Outcome::Found }
}

fn files(trace: &Trace, cut: usize) -> Vec<(String, Vec<u8>)> {
    trace.killed(cut).files().into_iter().filter(|(path, _)| !path.ends_with("/beat")).collect()
}

/// Flips every byte of every file; says how many flips were harmless, found, and silent.
fn flip_all(trace: &Trace) -> (u64, u64, Vec<String>) {
    flip_all_at(trace, trace.cuts() - 1)
}

/// As [`flip_all`], in what a kill at that cut left.
fn flip_all_at(trace: &Trace, cut: usize) -> (u64, u64, Vec<String>) {
    let (mut harmless, mut found, mut silent) = (0, 0, Vec::new());
    for (path, content) in files(trace, cut) {
        for (at, byte) in content.iter().enumerate() {
            let state = trace.killed(cut);
            let wound = format!("{path}, byte {at} flipped");
            let file = state.process().open_rw(&path).expect("opens");
            file.write_at(&[byte ^ (1 << (at % 8))], at as u64).expect("writes");
            match look(&state, &wound) {
                Outcome::Harmless => harmless += 1,
                Outcome::Found => found += 1,
                Outcome::Silent => silent.push(wound),
            }
        }
    }
    (harmless, found, silent)
}

/// In a store that was closed, every flipped byte is found and placed, or harmless.
#[test]
fn every_flipped_byte_of_a_closed_store_is_found_or_harmless() {
    let (harmless, found, silent) = flip_all(&recorded(501, true));
    println!("closed: {harmless} flips harmless, {found} found");
    assert!(silent.is_empty(), "{} of them: {:?}", silent.len(), &silent[..silent.len().min(3)]);
}

/// In a store whose process was killed after its last acknowledgement, too: `synced_to` guards the last step.
#[test]
fn every_flipped_byte_after_a_kill_is_found_or_harmless() {
    let (harmless, found, silent) = flip_all(&recorded(502, false));
    println!("killed: {harmless} flips harmless, {found} found");
    assert!(silent.is_empty(), "{} of them: {:?}", silent.len(), &silent[..silent.len().min(3)]);
}

/// In a store that was compacted, too.
#[test]
fn every_flipped_byte_of_a_compacted_store_is_found_or_harmless() {
    let (harmless, found, silent) = flip_all(&compacted(505));
    println!("compacted: {harmless} flips harmless, {found} found");
    assert!(silent.is_empty(), "{} of them: {:?}", silent.len(), &silent[..silent.len().min(3)]);
}

/// Every file of a compacted store, cut at every length: the rest is right, and the cut is found.
#[test]
fn every_cut_of_a_compacted_store_is_found_or_harmless() {
    cut_all(&compacted(506));
}

/// Reads each step whole, and by each of its fields alone. Says how many parts of a step were lost.
fn look_by_fields(state: &SimDisk, wound: &str) -> u64 {
    let Ok(store) = Store::on_files(state.process(), options()) else { return 0 };
    let Ok(run) = store.run("flips", Value::Null) else { return 0 };
    let mut lost = 0;
    for episode in 0..2 {
        let Ok(view) = run.view(&name(episode)) else { continue };
        let by = |fields: &[u8]| {
            let mut steps = Vec::new();
            let read = view.read_steps(0..u64::MAX, fields.iter().copied(), &mut |step| {
                steps.push(step);
                true
            });
            read.map(|()| steps).expect("reads")
        };
        let every: Vec<u8> = (0..=u8::MAX).collect();
        let whole: Vec<_> = (0..view.steps()).map(|at| view.step(at).expect("reads")).collect();
        assert_eq!(by(&every), whole, "{wound}");
        for field in step_fields::ALL {
            for (part, step) in by(&[field.number]).iter().zip(&whole) {
                let said = |it: &RecordedStep| {
                    let is_lost = it.damaged.contains(&field.name);
                    (it.index, it.kind, it.time, it.places.clone(), it.get(field.number), is_lost)
                };
                assert_eq!(said(part), said(step), "{wound}: {} of {} alone", field.name, step.index);
                assert!(part.damaged.iter().all(|name| step.damaged.contains(name)), "{wound}: {part:?}");
                lost += u64::from(step.damaged.contains(&field.name));
            }
        }
    }
    lost
}

/// A part of a step that is read alone is what the whole step has there, and lost if it is lost there, whatever byte is
/// flipped.
#[test]
fn a_part_of_a_step_is_as_the_whole_step_says() {
    for trace in [recorded(507, true), recorded(508, false), compacted(509)] {
        let (cut, mut lost) = (trace.cuts() - 1, 0);
        for (path, content) in files(&trace, cut).into_iter().filter(|(path, _)| path.ends_with(".seg")) {
            for (at, byte) in content.iter().enumerate().step_by(3) {
                let state = trace.killed(cut);
                let file = state.process().open_rw(&path).expect("opens");
                file.write_at(&[byte ^ (1 << (at % 8))], at as u64).expect("writes");
                lost += look_by_fields(&state, &format!("{path}, byte {at} flipped"));
            }
        }
        assert!(lost > 0, "no flip cost a part of a step");
    }
}

/// The negative control: killed before the last commit said how far the log is synced, a flip in the last acknowledged
/// step looks like a torn end.
#[test]
fn a_log_that_does_not_say_what_is_synced_is_caught() {
    let trace = recorded(503, false);
    let logged = |cut: usize| -> usize {
        let logs = files(&trace, cut).into_iter().filter(|(path, _)| path.ends_with(".seg"));
        logs.map(|(_, content)| content.len()).sum()
    };
    let all = logged(trace.cuts() - 1);
    let before = (0..trace.cuts()).rev().find(|&cut| logged(cut) < all).expect("something was logged");
    let (_, _, silent) = flip_all_at(&trace, before);
    assert!(!silent.is_empty(), "no flip went unnoticed, so synced_to would not be needed");
}

/// Every file of a closed store, cut at every length: the rest is right, and the cut is found.
#[test]
fn every_cut_of_a_closed_store_is_found_or_harmless() {
    cut_all(&recorded(504, true));
}

fn cut_all(trace: &Trace) {
    let (mut harmless, mut found) = (0, 0);
    for (path, content) in files(trace, trace.cuts() - 1) {
        for length in 0..content.len() {
            let state = trace.killed(trace.cuts() - 1);
            let wound = format!("{path}, cut to {length} bytes");
            let process = state.process();
            process.remove(&path).expect("removes");
            process.create_new(&path).expect("creates").write_at(&content[..length], 0).expect("writes");
            match look(&state, &wound) {
                Outcome::Harmless => harmless += 1,
                Outcome::Found => found += 1,
                Outcome::Silent => panic!("{wound}: nobody noticed"),
            }
        }
    }
    println!("cuts: {harmless} harmless, {found} found");
}
