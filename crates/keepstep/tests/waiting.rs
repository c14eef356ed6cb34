//! Waiting for an episode that somebody has: whoever waits gets it when its owner is done or gone, and all of it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::{Ending, Episode, EpisodeName, Error, Opening, Options, Run, Step, Store, Value, WhenBusy};

/// So often the waiter has slept before something happens.
const SLEEPS: u64 = 3;

fn run_on(disk: std::sync::Arc<dyn Files>) -> Run {
    let options = Options::default().background(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn step(number: i64) -> Step {
    Step::new().action(number).reward(0.5)
}

/// An owner with two steps; `then` happens to it while another waits for so long. What that one gets, and its run.
fn waited_for(
    patience: Duration,
    then: impl FnOnce(&SimDisk, Owner) + Send + Sync + 'static,
) -> (Run, keepstep::Result<Episode>) {
    let sim = SimDisk::new(41);
    let process = sim.process();
    let run = run_on(process.clone());
    let episode = run.episode(name()).expect("begins");
    episode.step(step(0)).expect("records");
    episode.step(step(1)).expect("records");
    let owner = Owner { process, run, episode };
    let (todo, sleeps, disk) = (Mutex::new(Some((then, owner))), AtomicU64::new(0), sim.clone());
    let waiter = run_on(HookedDisk::new(sim.process(), move |call| {
        if call.starts_with("sleep") && sleeps.fetch_add(1, Ordering::Relaxed) == SLEEPS {
            let (then, owner) = todo.lock().expect("no panic").take().expect("happens once");
            then(&disk, owner);
        }
    }));
    let opened = waiter.open(name(), Opening::default().busy(WhenBusy::Wait(patience)));
    (waiter, opened)
}

/// Who has the episode first.
struct Owner {
    process: std::sync::Arc<keepstep::disk::sim::SimProcess>,
    run: Run,
    episode: Episode,
}

impl Owner {
    fn end(&self, why: &str) {
        self.episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
    }

    fn die(self) {
        self.process.kill();
        drop((self.episode, self.run));
    }
}

const LONG: Duration = Duration::from_secs(60);

fn actions(run: &Run) -> Vec<i64> {
    let read = run.view(&name()).expect("reads").read().expect("reads");
    assert!(read.is_whole(), "{read:?}");
    read.steps.iter().map(|step| step.action.as_ref().unwrap().as_int().unwrap()).collect()
}

/// The owner records on while another waits, and leaves: the waiter goes on behind its last step, as the next attempt.
#[test]
fn whoever_waits_goes_on_when_the_owner_leaves() {
    let (run, opened) = waited_for(LONG, |_, owner| {
        owner.episode.step(step(2)).expect("records");
        owner.end("aborted");
    });
    let episode = opened.expect("gets it");
    assert_eq!((episode.attempt(), episode.inherited()), (1, 3));
    episode.step(step(3)).expect("records");
    assert_eq!(actions(&run), [0, 1, 2, 3]);
}

/// The owner dies without a word while another waits: that is recorded, and the waiter goes on.
#[test]
fn whoever_waits_goes_on_when_the_owner_dies() {
    let (run, opened) = waited_for(LONG, |_, owner| owner.die());
    let episode = opened.expect("gets it");
    assert_eq!((episode.attempt(), episode.inherited()), (1, 2));
    let (why, _) = run.store().found_end(&run.episode_id(&name()), 0).expect("reads").expect("is known");
    assert_eq!(why, "crashed");
}

/// A third takes the episode from the owner while another waits, and dies: the waiter goes on as the attempt after that.
#[test]
fn whoever_waits_follows_the_episode_from_hand_to_hand() {
    let (run, opened) = waited_for(LONG, |sim, owner| {
        let process = sim.process();
        let third = run_on(process.clone());
        let taken = third.open(name(), Opening::default().busy(WhenBusy::Take)).expect("takes");
        taken.step(step(2)).expect("records");
        let error = owner.episode.step(step(7)).expect_err("it is another's");
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        Owner { process, run: third, episode: taken }.die();
    });
    let episode = opened.expect("gets it");
    assert_eq!((episode.attempt(), episode.inherited()), (2, 3));
    drop(episode);
    assert_eq!(actions(&run), [0, 1, 2]);
}

/// The owner finishes while another waits: there is nothing to go on with.
#[test]
fn whoever_waits_is_told_that_it_is_over() {
    let (_, opened) = waited_for(LONG, |_, owner| owner.end("finished"));
    let error = opened.expect_err("is over");
    assert!(matches!(&error, Error::Ended { why, .. } if why == "finished"), "{error}");
}

/// Patience that ends too early is `Busy`, and takes nothing from the owner.
#[test]
fn whoever_waits_in_vain_takes_nothing() {
    let (run, opened) = waited_for(Duration::from_millis(100), |_, owner| {
        owner.episode.step(step(2)).expect("records");
        // It lives on.
        std::mem::forget(owner);
    });
    let error = opened.expect_err("somebody has it");
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert_eq!(actions(&run), [0, 1, 2]);
}
