//! `compact` with no grace beside readers that keep what they opened: they go on where things were moved to.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::Disk;
use keepstep::disk::sim::SimDisk;
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, EpisodeName, Error, Opening, Options, Run, Step, StepNews, Store, Value};

fn run_of(disk: Arc<dyn Disk>) -> Run {
    let options = Options { background: false, segment_bytes_max: 2500, ..Options::default() };
    Store::on_disk(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

/// Twice: the second call deletes what the first has named.
fn compact_and_delete(sim: &SimDisk) {
    let options = CompactOptions {
        grace: Duration::ZERO,
        segment_bytes_max: 2_000,
        block_bytes_max: 500,
        ..CompactOptions::default()
    };
    for _ in 0..2 {
        run_of(sim.process()).store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
    let is_left = |path: &str| path.starts_with("writers/") && path.ends_with("/1.seg");
    assert!(!sim.files().iter().any(|(path, _)| is_left(path)), "all that can go is gone");
}

fn page(index: u64) -> Value {
    Value::from(format!("page {index} of a long book. ").repeat(40 + index as usize))
}

fn step(index: u64) -> Step {
    let book: Vec<Value> = (0..=index).map(page).collect();
    Step::new().reward(index as f64).prompt(Value::list(book)).state([("at", Value::Int(index as i64))])
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
    killed(&sim, &name, 0, 6);
    killed(&sim, &name, 6, 9);
    let reader = run_of(sim.process());
    let view = reader.view(&name).expect("reads");
    assert_eq!(view.step(0).expect("reads").reward, Some(0.0));
    compact_and_delete(&sim);
    for index in 0..9 {
        let read = view.step(index).expect("reads on");
        assert!(read.damaged.is_empty(), "{read:?}");
        assert_eq!(read.prompt, Some(Value::list((0..=index).map(page).collect::<Vec<_>>())));
    }
    assert!(view.read().expect("reads").is_whole());
}

/// Whoever goes on with an episode reads what it inherited, also when that is moved while it records.
#[test]
fn a_recorder_reads_what_it_inherited_after_it_was_moved() {
    let sim = SimDisk::new(2);
    let name = EpisodeName::task("t");
    killed(&sim, &name, 0, 5);
    let run = run_of(sim.process());
    let episode = run.open(name, Opening::default()).expect("goes on");
    compact_and_delete(&sim);
    assert_eq!(episode.state("at").expect("reads"), Some(Value::Int(4)));
    for index in 0..5 {
        assert_eq!(episode.history(index).expect("reads").reward, Some(index as f64));
    }
    episode.step(step(5)).expect("records");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
}

/// One that follows an attempt step by step hears each once, whatever is moved and deleted in between.
#[test]
fn following_steps_goes_on_across_compacting() {
    for stop in 0..9 {
        let sim = SimDisk::new(3);
        let name = EpisodeName::task("t");
        killed(&sim, &name, 0, 4);
        killed(&sim, &name, 4, 8);
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
        let expected: Vec<_> = (0..8).map(|index| (index, Some(index as f64), 0)).collect();
        assert_eq!(told, expected, "compacted after {stop}");
    }
}

/// What was pruned under a reader is told as pruned.
#[test]
fn a_view_of_what_was_pruned_says_so() {
    let sim = SimDisk::new(4);
    let name = EpisodeName::task("t");
    killed(&sim, &name, 0, 6);
    killed(&sim, &EpisodeName::task("other"), 0, 3);
    let reader = run_of(sim.process());
    let view = reader.view(&name).expect("reads");
    let what =
        PruneFilter { episodes: vec![view.id()], grace: Some(Duration::ZERO), ..PruneFilter::default() };
    run_of(sim.process()).store().prune(&what, false, &mut |_| {}).expect("prunes");
    compact_and_delete(&sim);
    let errors: Vec<Error> = (0..6).filter_map(|index| view.step(index).err()).collect();
    assert!(errors.iter().all(|error| matches!(error, Error::Pruned { .. })), "{errors:?}");
}
