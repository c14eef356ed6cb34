//! An episode that was resumed many times: what a follower does for each end does not grow with the attempts there are, and
//! what a reader does for the whole grows as they do. (At 150 attempts a follower read its 130 KB 5,000 times over.)
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
use keepstep::{Ending, EpisodeName, Options, Run, Step, Store, Value};

fn run_on(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

/// How many calls of the file system one attempt costs, to a follower and to a reader of the newest.
fn calls_of(attempts: u64) -> (u64, u64) {
    let sim = SimDisk::new(1);
    let owner = run_on(sim.process());
    for attempt in 0..attempts {
        let episode = owner.episode(EpisodeName::task("task")).expect("opens");
        episode.step(Step::new().action(attempt as i64)).expect("records");
        episode.end("errored", Ending::default()).expect("ends").wait().expect("is durable");
    }
    drop(owner);
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    let reader = run_on(HookedDisk::new(sim.process(), move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let mut follow = reader.follow(None).expect("follows");
    calls.store(0, Ordering::Relaxed);
    let mut ends = 0;
    while follow.next(Duration::ZERO).expect("reads").is_some() {
        ends += 1;
    }
    assert_eq!(ends, attempts);
    let following = calls.swap(0, Ordering::Relaxed);
    let episode = reader.episode_id(&EpisodeName::task("task"));
    for attempt in 0..attempts as u32 {
        let last = reader.store().last_with_end_of(&episode, attempt).expect("reads");
        assert_eq!(last, (u64::from(attempt) + 1 == attempts).then_some(attempt));
    }
    let following = following + calls.swap(0, Ordering::Relaxed);
    assert_eq!(reader.view(&EpisodeName::task("task")).expect("reads").steps(), attempts);
    (following / attempts, calls.load(Ordering::Relaxed) / attempts)
}

#[test]
fn an_episode_that_was_resumed_often_costs_what_its_attempts_cost() {
    let (few, many) = (calls_of(64), calls_of(192));
    println!("for each attempt: {few:?} calls at 64, {many:?} at 192");
    assert!(many.0 <= few.0 * 3 / 2, "following: {few:?} calls at 64, {many:?} at 192");
    assert!(many.1 <= few.1 * 3 / 2, "reading: {few:?} calls at 64, {many:?} at 192");
}
