//! `compact` with no grace beside readers that keep what they opened: they go on where things were moved to.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::read::Item;
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, EpisodeName, Error, Opening, Options, Run, Step, StepNews, Store, Value};

fn run_of(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).segment_bytes_max(2500);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

/// Twice: the second call deletes what the first has named.
fn compact_and_delete(sim: &SimDisk) {
    let options =
        CompactOptions::default().grace(Duration::ZERO).segment_bytes_max(2_000).block_bytes_max(500);
    for _ in 0..2 {
        run_of(sim.process()).store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
    let is_left = |path: &str| path.starts_with("writers/") && path.ends_with("/1.seg");
    assert!(!sim.files().iter().any(|(path, _)| is_left(path)), "all that can go is gone");
}

/// So many steps take more segments than a store keeps open: what is gone can then not be read by whoever had it open.
const MANY: u64 = 140;
/// What one process records: less than that is read from files that are open still.
const SOME: u64 = 4;

fn page(index: u64) -> Value {
    Value::from(format!("page {index} of a long book. ").repeat(40))
}

/// Does not compress, so that a segment is full after each step.
fn noise(index: u64) -> Value {
    let mut state = index;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    Value::bytes((0..2_600).map(|_| byte()).collect::<Vec<u8>>())
}

/// Refers to what the first step stored, which is in another segment.
fn prompt(index: u64) -> Value {
    Value::list(vec![page(0), page(index / 2), page(index)])
}

/// The last two of many are short, and stand in one segment; only the last of them refers to another one.
fn step(index: u64) -> Step {
    let step = Step::new().reward(index as f64).state([("at", Value::Int(index as i64))]);
    match MANY - index % MANY {
        1 => step.prompt(prompt(index)),
        2 => step,
        _ => step.observation(noise(index)).prompt(prompt(index)),
    }
}

/// Records some steps of an episode, and is killed.
fn killed(sim: &SimDisk, name: &EpisodeName, from: u64, to: u64) {
    let process = sim.process();
    let episode = run_of(process.clone()).open(name.clone(), Opening::default()).expect("opens");
    for index in from..to {
        episode.step(step(index)).expect("records");
    }
    process.kill();
}

/// A view reads on in what `compact` made, whenever the log that it was opened on goes; and its values are whole.
#[test]
fn a_view_goes_on_where_its_episode_was_moved_to() {
    let sim = SimDisk::new(1);
    let name = EpisodeName::task("t");
    killed(&sim, &name, 0, MANY);
    killed(&sim, &name, MANY, MANY + SOME);
    let reader = run_of(sim.process());
    let view = reader.view(&name).expect("reads");
    assert_eq!(view.step(MANY - 2).expect("reads").reward, Some(MANY as f64 - 2.0));
    compact_and_delete(&sim);
    // Its file is open still; what it refers to is in one that is gone.
    assert_eq!(view.step(MANY - 1).expect("reads on").prompt, Some(prompt(MANY - 1)));
    for index in 0..MANY + SOME {
        let read = view.step(index).expect("reads on");
        assert!(read.damaged.is_empty(), "{read:?}");
        assert_eq!(read.reward, Some(index as f64));
        assert!(index + 2 == MANY || read.prompt == Some(prompt(index)), "step {index}");
    }
    assert!(view.read().expect("reads").is_whole());
}

/// Opens a view, and reads all of it, with `compact` as a whole before call number `at`. How many calls there were.
fn viewed_at(at: u64) -> u64 {
    let sim = SimDisk::new(5);
    let name = EpisodeName::task("t");
    killed(&sim, &name, 0, MANY);
    killed(&sim, &name, MANY, MANY + SOME);
    let (calls, inside) = (Arc::new(AtomicU64::new(0)), sim.clone());
    let count = Arc::clone(&calls);
    let reader = run_of(HookedDisk::new(sim.process(), move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == at {
            compact_and_delete(&inside);
        }
    }));
    let read = reader.view(&name).and_then(|view| view.read());
    let read = read.unwrap_or_else(|error| panic!("compacted before call {at}: {error}"));
    assert!(read.is_whole(), "compacted before call {at}");
    assert_eq!(read.steps.len() as u64, MANY + SOME, "compacted before call {at}");
    calls.load(Ordering::Relaxed)
}

/// So it is with a view that is just being opened: between the look at the logs and the reading of their lists too.
#[test]
fn a_view_can_be_opened_while_its_episode_is_moved() {
    let calls = viewed_at(u64::MAX);
    assert!(calls > 2 * MANY, "only {calls} calls");
    for at in (0..calls).step_by(calls as usize / 30) {
        viewed_at(at);
    }
}

/// Whoever reads the records of an attempt one by one goes on behind the last.
#[test]
fn records_go_on_where_they_were_moved_to() {
    let sim = SimDisk::new(6);
    killed(&sim, &EpisodeName::task("t"), 0, MANY);
    let mut catalog = run_of(sim.process()).store().catalog().expect("reads");
    let key = catalog.attempts().expect("lists").remove(0).key;
    let mut reader = catalog.reader(&key).expect("reads");
    let mut seqs = Vec::new();
    for (at, item) in reader.records().enumerate() {
        match item.expect("reads on") {
            Item::Record(record) => seqs.push(u64::from(record.seq)),
            other => panic!("{other:?}"),
        }
        if at == 3 {
            compact_and_delete(&sim);
        }
    }
    // With its BEGIN.
    assert_eq!(seqs, (0..=MANY).collect::<Vec<_>>());
}

/// Whoever goes on with an episode reads what it inherited, also when that is moved while it records.
#[test]
fn a_recorder_reads_what_it_inherited_after_it_was_moved() {
    let sim = SimDisk::new(2);
    let name = EpisodeName::task("t");
    killed(&sim, &name, 0, MANY);
    let run = run_of(sim.process());
    let episode = run.open(name, Opening::default()).expect("goes on");
    compact_and_delete(&sim);
    assert_eq!(episode.state("at").expect("reads"), Some(Value::Int(MANY as i64 - 1)));
    for index in 0..MANY {
        assert_eq!(episode.history(index).expect("reads").reward, Some(index as f64));
    }
    episode.step(step(MANY)).expect("records");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
}

/// One that follows an attempt step by step hears each once, whatever is moved and deleted in between.
#[test]
fn following_steps_goes_on_across_compacting() {
    let all = MANY * 2;
    for stop in [0, 1, MANY - 1, MANY, MANY + 1, all - SOME, all] {
        let sim = SimDisk::new(3);
        let name = EpisodeName::task("t");
        killed(&sim, &name, 0, MANY);
        killed(&sim, &name, MANY, all);
        let mut follow = run_of(sim.process()).view(&name).expect("reads").follow().expect("follows");
        let mut told = Vec::new();
        for at in 0.. {
            if at == stop {
                compact_and_delete(&sim);
            }
            match follow.next(Duration::from_secs(60)).expect("follows") {
                StepNews::Step(step) => told.push((step.index, step.reward, step.damaged.len())),
                StepNews::Nothing => panic!("its recorder is gone"),
                StepNews::Over => break,
            }
        }
        let expected: Vec<_> = (0..all as i64).map(|index| (index, Some(index as f64), 0)).collect();
        assert_eq!(told, expected, "compacted after {stop}");
    }
}

/// What was pruned under a reader is told as pruned.
#[test]
fn a_view_of_what_was_pruned_says_so() {
    let sim = SimDisk::new(4);
    let name = EpisodeName::task("t");
    killed(&sim, &name, 0, MANY);
    killed(&sim, &EpisodeName::task("other"), 0, SOME);
    let reader = run_of(sim.process());
    let view = reader.view(&name).expect("reads");
    let what = PruneFilter::default().episodes([view.id()]).grace(Duration::ZERO);
    run_of(sim.process()).store().prune(&what, false, &mut |_| {}).expect("prunes");
    compact_and_delete(&sim);
    let errors: Vec<Error> = (0..MANY).filter_map(|index| view.step(index).err()).collect();
    assert!(!errors.is_empty(), "what is gone passes for damaged, or is still there");
    assert!(errors.iter().all(|error| matches!(error, Error::Pruned { .. })), "{errors:?}");
}
