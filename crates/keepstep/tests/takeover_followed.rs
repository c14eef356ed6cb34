//! Whoever follows an attempt while another process is taking it over: between the claim and the base of the next attempt it is
//! open which records count, so nothing is told, and nothing is concluded.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::{
    Ending, EpisodeName, Opening, Options, Run, Step, StepFollow, StepNews, Store, Value, WhenBusy,
};

const STEPS: usize = 3;

fn run_on(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

/// How the owner of the first attempt left it.
#[derive(Debug, Clone, Copy)]
enum Left {
    Errored,
    Killed,
    Alive,
}

/// What is done between the claim and the base of the second attempt.
type Between = Box<dyn FnOnce() + Send>;

/// Lets something happen just before another process publishes its base for this attempt.
fn take_over(sim: &SimDisk, between: Between) {
    let between = Mutex::new(Some(between));
    let disk = HookedDisk::new(sim.process(), move |call| {
        if call.starts_with("link ") && call.ends_with(".1.base") {
            let between = between.lock().expect("no panic").take();
            between.expect("there is one base")();
        }
    });
    let taker = run_on(disk);
    let episode = taker.open(name(), Opening::default().busy(WhenBusy::Take)).expect("takes");
    assert_eq!((episode.attempt(), episode.inherited()), (1, STEPS as u64));
    // Both live on.
    std::mem::forget((episode, taker));
}

/// An attempt with some steps.
fn recorded(sim: &SimDisk, left: Left) {
    let process = sim.process();
    let owner = run_on(Arc::clone(&process) as Arc<dyn Files>);
    let episode = owner.episode(name()).expect("begins");
    for index in 0..STEPS {
        episode.step(Step::new().action(index as i64)).expect("records");
    }
    match left {
        Left::Errored => {
            episode.end("errored", Ending::default()).expect("ends").wait().expect("is durable");
        }
        Left::Killed => process.kill(),
        Left::Alive => {}
    }
    std::mem::forget((episode, owner));
}

fn follow_on(disk: Arc<dyn Files>) -> StepFollow {
    run_on(disk).view(&name()).expect("reads").attempt(0).expect("reads").follow().expect("follows")
}

/// The follower gave up: whoever followed an attempt that another process was taking over got no steps and the word that none
/// will come, although all of them were acknowledged.
#[test]
fn a_follower_waits_for_the_base_of_a_taker() {
    for left in [Left::Errored, Left::Killed, Left::Alive] {
        let sim = SimDisk::new(7);
        recorded(&sim, left);
        let follow = Arc::new(Mutex::new(follow_on(sim.process())));
        let (meanwhile, there) = (Arc::clone(&follow), sim.clone());
        take_over(
            &sim,
            Box::new(move || {
                let mut late = follow_on(there.process());
                for follow in [&mut *meanwhile.lock().expect("no panic"), &mut late] {
                    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
                        assert_eq!(follow.next(timeout).expect("follows"), StepNews::Nothing, "{left:?}");
                    }
                }
            }),
        );
        let mut told = Vec::new();
        let mut follow = follow.lock().expect("no panic");
        loop {
            match follow.next(Duration::from_secs(20)).expect("follows") {
                StepNews::Step(step) => told.push(step.index),
                StepNews::Nothing => panic!("{left:?}: nothing comes after {told:?}"),
                StepNews::Over => break,
            }
        }
        assert_eq!(told, [0, 1, 2], "{left:?}");
    }
}

/// The record of which it is open whether it counts was asked about again at once, for as long as the caller waited.
#[test]
fn a_follower_sleeps_while_it_waits_for_a_base() {
    let sim = SimDisk::new(8);
    recorded(&sim, Left::Alive);
    let there = sim.clone();
    take_over(
        &sim,
        Box::new(move || {
            let calls = Arc::new(Mutex::new(Vec::new()));
            let note = Arc::clone(&calls);
            let disk = HookedDisk::new(there.process(), move |call| {
                note.lock().expect("no panic").push(call.to_owned());
            });
            let mut follow = follow_on(disk);
            calls.lock().expect("no panic").clear();
            assert_eq!(follow.next(Duration::from_millis(20)).expect("follows"), StepNews::Nothing);
            let calls = calls.lock().expect("no panic");
            let looks = |part: &[String]| {
                part.iter().filter(|it| it.starts_with("exists ") && it.ends_with(".1.claim")).count()
            };
            assert!(calls.iter().any(|call| call == "sleep "), "{calls:?}");
            for part in calls.split(|call| call == "sleep ") {
                assert!(looks(part) <= 2, "{} looks without a pause: {part:?}", looks(part));
            }
        }),
    );
}
