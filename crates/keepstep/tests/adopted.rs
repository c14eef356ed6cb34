//! An attempt that was claimed while its owner came to the end: it records nothing, and only adopts that end. Whoever asks about
//! it gets the same answers as of the attempt that ended.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::sync::{Arc, Mutex};

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::read::{EpisodeEvent, StepKind};
use keepstep::{Ending, EpisodeName, Error, NoteTarget, Opening, Options, Run, Step, Store, Value, WhenBusy};

fn run_on(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

#[test]
fn an_end_that_was_adopted_is_an_end_for_all_who_ask() {
    let sim = SimDisk::new(1);
    let owner = run_on(sim.process());
    let episode = owner.group("task", 0, 1).claim(&Opening::default()).expect("looks").expect("begins");
    for _ in 0..2 {
        episode.step(Step::new().action(1).reward(1.0)).expect("records");
    }
    // The owner ends it when the taker has looked, and has not claimed it yet.
    let episode = Mutex::new(Some(episode));
    let taker = run_on(HookedDisk::new(sim.process(), move |call| {
        if call.starts_with("link") && call.ends_with(".1.claim") {
            let episode = episode.lock().expect("no panic").take().expect("once");
            let ending = Ending::default().said_by("the owner");
            episode.end("finished", ending).expect("ends").wait().expect("is durable");
        }
    }));
    let name = EpisodeName::task("task");
    let opened = taker.open(name.clone(), Opening::default().busy(WhenBusy::Take));
    assert!(matches!(opened, Err(Error::Ended { .. })), "{:?}", opened.map(|it| it.steps()));
    taker.group("task", 0, 1).seal(None, "judge", None).expect("seals");

    let reader = run_on(sim.process());
    let view = reader.view(&name).expect("reads");
    assert_eq!((view.number(), view.steps()), (1, 2), "the scene is the one that is meant");
    let one_by_one: Vec<StepKind> = (0..2).map(|index| view.step(index).expect("reads").kind).collect();
    let at_once: Vec<StepKind> = view.read().expect("reads").steps.iter().map(|step| step.kind).collect();
    let told = view.events().filter_map(|it| match it.expect("reads") {
        EpisodeEvent::Step(step) => Some(step.kind),
        _ => None,
    });
    assert_eq!(one_by_one, [StepKind::Mid, StepKind::Last]);
    assert_eq!(at_once, one_by_one);
    assert_eq!(told.collect::<Vec<_>>(), one_by_one);
    let end = view.ending().expect("reads").expect("has ended");
    assert_eq!((end.why.as_deref(), end.said_by.as_deref()), (Some("finished"), Some("the owner")));
    // A judge had seen attempt 0, and annotates it: its note was lost with the attempt that nobody had asked for.
    let target = NoteTarget::episode(view.id()).attempt(0);
    reader
        .annotate(target, "score", Value::from(0.5), "judge")
        .expect("annotates")
        .wait()
        .expect("is durable");
    let (notes, _) =
        reader.store().notes(reader.generation_id()).expect("reads").episode(&view.id()).expect("reads");
    let names: Vec<String> = view.counting(&notes).into_iter().map(|(key, _)| key.name).collect();
    assert_eq!(names, ["score"], "the note counts for the attempt that adopted the end");
    let report = reader.store().verify(&mut |_| {}).expect("verifies");
    assert!(report.is_whole(), "{report:?}");
}
