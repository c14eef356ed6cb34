//! Whoever records and reads sees what was acknowledged, at every level: asked by view, list, filter, group, plan and notes.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::{
    Ending, EpisodeFilter, EpisodeName, Level, NoteTarget, Options, PlanOptions, RemainingOptions, Run, Step,
    Store, Value,
};

fn run_at(level: Level) -> Run {
    let options = Options::default().background(false).dictionary(false).level(level);
    let store = Store::on_files(SimDisk::new(91).process(), options).expect("opens");
    store.run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn states(run: &Run, ends: &str) -> usize {
    let filter = EpisodeFilter::default().ends([ends]);
    run.episodes(&filter).expect("lists").len()
}

/// At `kill`, what was acknowledged could not be read for a tenth of a second, by the process that had recorded it: a group
/// could not be sealed, a plan had nothing to score, and an episode was not found.
#[test]
fn what_is_acknowledged_is_read_at_once_by_whoever_recorded_it() {
    for level in [Level::Kill, Level::Power] {
        let run = run_at(level);
        run.plan(["task"], PlanOptions::default().needs(["score"])).expect("plans");
        let episode = run.episode(name()).expect("begins");
        for index in 0..3 {
            episode.step(Step::new().action(index)).expect("records");
            assert_eq!(run.view(&name()).expect("is there").steps(), index as u64 + 1, "{level:?}");
        }
        assert_eq!(states(&run, "running"), 1, "{level:?}");
        let target = NoteTarget::episode(episode.id());
        run.annotate(target, "seen", Value::Int(1), "test").expect("notes").wait().expect("is durable");
        assert_eq!(run.notes().expect("reads").notes().of(&episode.id()).count(), 1, "{level:?}");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
        assert_eq!(states(&run, "finished"), 1, "{level:?}");
        let left = run.remaining_list(&RemainingOptions::default()).expect("looks");
        assert_eq!(left.iter().map(|(_, why)| &**why).collect::<Vec<_>>(), ["unscored"], "{level:?}");
        run.group("task", 0, 1).seal(None, "test", None).unwrap_or_else(|error| panic!("{level:?}: {error}"));
    }
}

/// A step that was refused for want of room was counted, until the next one took its place.
#[test]
fn what_was_refused_is_counted_nowhere() {
    let sim = SimDisk::new(92);
    let options = Options::default().background(false).stall(Duration::ZERO);
    let store = Store::on_files(sim.process(), options).expect("opens");
    let run = store.run("run", Value::Null).expect("opens");
    let episode = run.episode(name()).expect("begins");
    episode.step(Step::new().action(0)).expect("records");
    sim.faults().plan(Fault::new(On::Write, Errno::Enospc).at("writers/").until_cleared());
    episode.step(Step::new().action(1)).expect_err("there is no room");
    let ended = episode.end("finished", Ending::default()).and_then(|receipt| receipt.wait());
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!((episode.steps(), episode.turns(), episode.ended()), (1, 1, None));
    sim.faults().clear();
    let receipt = episode.step(Step::new().action(2)).expect("there is room again");
    assert_eq!((receipt.step(), episode.steps()), (Some(1), 2));
    assert_eq!(run.view(&name()).expect("reads").steps(), 2);
}
