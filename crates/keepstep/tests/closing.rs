//! Closing a store while others open episodes and record: whatever was acknowledged has an end, and nothing opens afterwards.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;
mod scratch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hooked_disk::HookedDisk;
use keepstep::disk::sim::SimDisk;
use keepstep::{
    Episode, EpisodeName, Error, NoteTarget, Opening, Options, PlanOptions, RemainingOptions, Run, Step,
    Store, Value, WhenBusy,
};
use scratch::Scratch;

const THREADS: usize = 6;
const ROUNDS: usize = 12;

/// Opens the next episode in one of the ways there are.
fn open(run: &Run, number: u64) -> keepstep::Result<Option<Episode>> {
    match number % 4 {
        0 => run.unnamed(Opening::default()).map(Some),
        1 => run.claim(RemainingOptions::default())?.map(|job| job.episode(Opening::default())).transpose(),
        2 => run.group(&format!("group {number}"), 0, 1).claim(&Opening::default()),
        _ => run.episode(EpisodeName::task(format!("task {number}"))).map(Some),
    }
}

/// Of 292 episodes that were opened while their store was closed, 12 had an acknowledged step and no end: they were opened
/// after `close` had looked which ones are open, and before it closed the log.
#[test]
fn whatever_was_acknowledged_while_the_store_closes_has_an_end() {
    let scratch = Scratch::new("closing");
    for round in 0..ROUNDS {
        let store = scratch.store();
        let run = store.run("run", Value::Null).expect("opens");
        run.plan((0..100).map(|task| format!("planned {round} {task}")), PlanOptions::default())
            .expect("plans");
        let open_before: Vec<Episode> = (0..40)
            .map(|number| run.episode(EpisodeName::task(format!("before {round} {number}"))).expect("begins"))
            .collect();
        let (acknowledged, numbers) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    loop {
                        let number = numbers.fetch_add(1, Ordering::Relaxed) + 10_000 * round as u64;
                        match open(&run, number) {
                            Ok(Some(episode)) => {
                                if episode.step(Step::new().action("x")).is_ok() {
                                    acknowledged.lock().unwrap().push(episode.id());
                                }
                                // It is never said how it ended: that is for the store to do.
                                std::mem::forget(episode);
                            }
                            Ok(None) => {}
                            Err(Error::Closed) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            while acknowledged.lock().unwrap().len() < THREADS {
                std::thread::yield_now();
            }
            store.close();
        });
        drop(open_before);
        let reader = scratch.store();
        for id in acknowledged.into_inner().unwrap() {
            let ending = reader.view(&id).expect("reads").ending().expect("reads");
            let why = ending.and_then(|end| end.why);
            assert_eq!(
                why.as_deref(),
                Some("aborted"),
                "round {round}: episode {id} was acknowledged, and has no end"
            );
        }
    }
}

fn run_on(disk: Arc<dyn keepstep::disk::Files>) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

/// Closes the store of a run in a thread of its own, and waits until it has begun to.
fn begin_to_close(run: &Run) -> JoinHandle<()> {
    let store = run.store().clone();
    let closes = std::thread::spawn(move || drop(store.close()));
    // Refused for one reason or the other, before it does anything.
    let ask = Opening::default().busy(WhenBusy::Take);
    while !matches!(run.group("asked", 0, 1).claim(&ask), Err(Error::Closed)) {
        std::thread::yield_now();
    }
    closes
}

/// Whose store is to be closed, and who closes it.
type Closed = (Option<Run>, Option<JoinHandle<()>>);

/// Opens an episode in one of the ways, and closes the store before call number `at` of it. False if there are fewer.
fn closed_at(way: u64, at: u64) -> bool {
    let sim = SimDisk::new(at);
    run_on(sim.process()).plan(["planned"], PlanOptions::default()).expect("plans");
    let closed: Arc<Mutex<Closed>> = Arc::default();
    let (inside, calls) = (Arc::clone(&closed), AtomicU64::new(0));
    let run = run_on(HookedDisk::new(sim.process(), move |_| {
        let Ok(mut inside) = inside.try_lock() else { return };
        if inside.0.is_some() && calls.fetch_add(1, Ordering::Relaxed) == at {
            inside.1 = inside.0.take().map(|run| begin_to_close(&run));
        }
    }));
    closed.lock().unwrap().0 = Some(run.clone());
    let opened = open(&run, way);
    let (not_closed, closes) = std::mem::take(&mut *closed.lock().unwrap());
    if not_closed.is_some() {
        return false;
    }
    let what = format!("way {way}, closed before call {at}");
    let acknowledged = match &opened {
        Ok(Some(episode)) => episode.step(Step::new().action("x")).is_ok().then(|| episode.id()),
        // Whoever works through a plan would believe that all of it is done.
        Ok(None) => panic!("{what}: nothing to do"),
        Err(error) => {
            assert!(matches!(error, Error::Closed), "{what}: {error}");
            None
        }
    };
    closes.expect("was begun").join().expect("closes");
    let reader = run_on(sim.process());
    let listed = reader.episodes(&keepstep::EpisodeFilter::default()).expect("lists");
    assert!(listed.len() <= 1 && acknowledged.is_none_or(|id| listed[0].key.episode == id), "{what}");
    for it in listed {
        assert_eq!(it.state(), "aborted", "{what}: it began, and has no end");
    }
    std::mem::forget(opened);
    true
}

/// Also one whose recorder is just being made when the store is closed; and nobody is told that nothing is left to do.
#[test]
fn closing_at_each_point_of_opening_leaves_nothing_without_an_end() {
    for way in 0..4 {
        let points = (0..).find(|at| !closed_at(way, *at)).expect("ends");
        assert!(points > 10, "only {points} points of way {way}");
    }
}

/// Whoever records after `close` is told so, also if nobody had recorded before it; reading goes on.
#[test]
fn nothing_is_recorded_to_a_store_that_was_closed() {
    let scratch = Scratch::new("closed");
    for has_recorded in [true, false] {
        let store = scratch.store();
        let run = store.run("run", Value::Null).expect("opens");
        run.plan(["planned"], PlanOptions::default()).expect("plans");
        let job = if has_recorded { run.claim(RemainingOptions::default()).expect("claims") } else { None };
        store.close();
        let target = NoteTarget::episode(run.episode_id(&EpisodeName::task("a")));
        let is_closed = |error: Option<Error>| matches!(error, Some(Error::Closed));
        assert!(is_closed(run.episode(EpisodeName::task("a")).err()));
        assert!(is_closed(run.unnamed(Opening::default()).err()));
        assert!(is_closed(run.claim(RemainingOptions::default()).err()));
        assert!(is_closed(run.group("group", 0, 2).claim(&Opening::default()).err()));
        assert!(is_closed(run.annotate(target, "score", Value::Null, "judge").err()));
        assert!(is_closed(run.stream("stream").put("entry", Value::Null).err()));
        assert!(job.is_none_or(|job| is_closed(job.episode(Opening::default()).err())));
        assert!(
            run.view(&EpisodeName::task("a")).is_err_and(|error| matches!(error, Error::NotFound { .. }))
        );
        assert!(scratch.files(".claim").len() <= usize::from(has_recorded), "nothing is claimed in vain");
        store.close();
        if has_recorded {
            std::fs::remove_dir_all(&scratch.0).expect("is there");
        }
    }
}

/// The last clone of a store that goes closes it, also while somebody keeps a receipt.
#[test]
fn a_receipt_does_not_keep_a_store_open() {
    let scratch = Scratch::new("receipt");
    let store = Store::open(&scratch.0, Options::default()).expect("opens");
    let episode =
        store.run("run", Value::Null).expect("opens").episode(EpisodeName::task("a")).expect("begins");
    let receipt = episode.record(Step::new().action("x")).expect("is taken");
    drop((episode, store));
    assert!(receipt.poll().is_some_and(|came| came.is_ok()));
    assert_eq!(scratch.files("").iter().filter(|path| path.to_string_lossy().contains("scans")).count(), 1);
}
