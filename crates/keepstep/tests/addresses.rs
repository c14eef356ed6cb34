//! A note has an address, whose check costs a look-up; and an episode that was left is free, whatever the disk did.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use keepstep::disk::sim::{Errno, Fault, On, SimDisk, SimProcess};
use keepstep::tend::PruneFilter;
use keepstep::{
    Broken, Ending, EpisodeName, Error, Id, NoteTarget, Opening, Options, Run, Step, Store, Value, WhenBusy,
};

fn options() -> Options {
    let stall = Duration::from_millis(500);
    Options::default().background(false).dictionary(false).stall(stall)
}

fn run_on(process: Arc<SimProcess>) -> Run {
    run_with(process, options())
}

fn run_with(process: Arc<SimProcess>, options: Options) -> Run {
    Store::on_files(process, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name(task: usize) -> EpisodeName {
    EpisodeName::task(format!("task-{task}"))
}

fn ended(run: &Run, task: usize) -> Id {
    let episode = run.episode(name(task)).expect("begins");
    episode.step(Step::new().action("a")).expect("records");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    episode.id()
}

fn note(run: &Run, target: NoteTarget) -> Result<(), Error> {
    run.annotate(target, "score", Value::Float(1.0), "judge")?.wait().map(|_| ())
}

fn at(episode: Id, attempt: Option<u32>, step: Option<u64>) -> NoteTarget {
    NoteTarget::episode(episode).attempt(attempt).step(step)
}

/// What is not there is refused, and nothing of it is written.
#[test]
fn a_note_about_nothing_is_refused() {
    let sim = SimDisk::new(1);
    let episode = ended(&run_on(sim.process()), 0);
    let judge = run_on(sim.process());
    let nobody = judge.episode_id(&name(7));
    for wrong in [
        at(nobody, None, None),
        at(episode, Some(1), None),
        at(episode, None, Some(1)),
        at(episode, Some(0), Some(9)),
    ] {
        let error = note(&judge, wrong).expect_err("is refused");
        assert!(matches!(error, Error::NotFound { .. } | Error::Unknown { .. }), "{error}");
    }
    assert_eq!(judge.notes().expect("reads").notes().iter().count(), 0);
    for right in [at(episode, None, None), at(episode, Some(0), None), at(episode, None, Some(0))] {
        note(&judge, right).expect("is there");
    }
    assert_eq!(judge.store().orphan_notes().expect("reads"), []);
}

/// Half a million episodes must not be looked at for one note: no log is opened, and no folder of claims is listed.
#[test]
fn a_note_on_an_episode_costs_a_look_up() {
    let sim = SimDisk::new(2);
    let recorder = run_on(sim.process());
    let episodes: Vec<Id> = (0..20).map(|task| ended(&recorder, task)).collect();
    let judge = run_on(sim.process());
    note(&judge, at(episodes[0], None, None)).expect("is there");
    sim.faults().plan(Fault::new(On::Open, Errno::Eio).at(".seg").until_cleared());
    sim.faults().plan(Fault::new(On::List, Errno::Eio).at("claims").until_cleared());
    for episode in &episodes {
        note(&judge, at(*episode, None, None)).expect("is there");
        note(&judge, at(*episode, Some(0), None)).expect("is there");
    }
    // The control: a step is in a log.
    assert!(note(&judge, at(episodes[1], None, Some(0))).is_err());
    assert!(sim.faults().hits() > 0);
}

/// What older versions took is told by `verify`, each note once; what was pruned since is no orphan.
#[test]
fn orphans_are_found() {
    let sim = SimDisk::new(3);
    let recorder = run_on(sim.process());
    let (kept, pruned) = (ended(&recorder, 0), ended(&recorder, 1));
    let careless = options().broken(Broken::NoteWithoutLook);
    let old = run_with(sim.process(), careless);
    let nobody = old.episode_id(&name(7));
    let orphans = [
        at(nobody, None, None),
        at(kept, None, Some(1)),
        at(kept, Some(3), None),
        at(kept, Some(0), Some(9)),
    ];
    for target in orphans.iter().copied().chain([at(kept, None, Some(0)), at(pruned, None, None)]) {
        note(&old, target).expect("is taken");
    }
    let filter = PruneFilter::default().episodes([pruned]);
    recorder.store().prune(&filter, false, &mut |_| {}).expect("prunes");
    let store = run_on(sim.process()).store().clone();
    let mut found: Vec<NoteTarget> =
        store.orphan_notes().expect("reads").into_iter().map(|it| it.target).collect();
    let mut wanted = orphans.to_vec();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

/// At each call that may fail, for good until the episode was left: it opens again in the same process, with all that was
/// acknowledged, and the one that was left records nothing more.
#[test]
fn an_episode_that_was_left_is_free() {
    let mut failed = 0;
    for call in [On::Write, On::Sync, On::SyncDir, On::Create, On::Link, On::Exists, On::Open, On::Change] {
        for after in 0..12 {
            for busy in [WhenBusy::Raise, WhenBusy::Take] {
                failed += usize::from(is_free_after(call, after, busy));
            }
        }
    }
    assert!(failed > 40, "only {failed} ends failed");
}

fn is_free_after(call: On, after: u64, busy: WhenBusy) -> bool {
    let sim = SimDisk::new(4);
    let run = run_on(sim.process());
    let left = run.episode(name(0)).expect("begins");
    let mut acknowledged = 0;
    sim.faults().plan(Fault::new(call, Errno::Enospc).after(after).until_cleared());
    while acknowledged < 3 && left.step(Step::new().action(acknowledged)).is_ok() {
        acknowledged += 1;
    }
    let ended = left.end("errored", Ending::default()).and_then(|end| end.wait());
    left.leave().expect("leaves");
    sim.faults().clear();
    let opened = run.open(name(0), Opening::default().busy(busy));
    let next = opened.unwrap_or_else(|error| panic!("{call:?} after {after}: {error}"));
    let kept = next.inherited();
    assert!(
        kept >= acknowledged as u64,
        "{call:?} after {after}: {acknowledged} acknowledged, {kept} inherited"
    );
    let late = left.step(Step::new().action("late"));
    assert!(late.is_err(), "{call:?} after {after}: it was left");
    next.step(Step::new().action("next")).expect("records");
    next.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(left);
    let view = run_on(sim.process()).view(&name(0)).expect("reads");
    let why = view.ending().expect("reads").and_then(|end| end.why);
    assert_eq!((view.steps(), why.as_deref()), (kept + 1, Some("finished")), "{call:?} after {after}");
    ended.is_err()
}
