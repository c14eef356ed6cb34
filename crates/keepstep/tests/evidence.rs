//! Evidence is wrong: an owner lives, and its lock seems free. Whoever acts on that costs it a moment, and never a step.
//!
//! One runs as a whole at each call of the other, in both directions: `compact`, `prune`, `reap` and a taker beside an owner
//! that goes on. Acting on the evidence alone is caught.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::{SimDisk, SimProcess};
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{
    Broken, Ending, Episode, EpisodeName, Error, Opening, Options, Run, Step, Store, Value, WhenBusy,
};

fn run_on(disk: Arc<dyn Files>, broken: Option<Broken>) -> Run {
    let options = Options::default()
        .background(false)
        .stall(Duration::from_millis(500))
        .dictionary(false)
        .broken(broken);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

/// An owner in the middle of an episode, and what it was promised.
struct Owner {
    run: Run,
    process: Arc<SimProcess>,
    episode: Mutex<Option<Episode>>,
    acknowledged: AtomicU64,
    is_finished: Mutex<bool>,
    refused: AtomicU64,
}

/// What came of recording.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Recorded,
    Refused,
}

impl Owner {
    /// Has recorded two steps, and then whatever else runs in its process opened and closed its lock.
    fn start(sim: &SimDisk, wrong: Wrong, disk: impl FnOnce(Arc<SimProcess>) -> Arc<dyn Files>) -> Arc<Self> {
        let process = sim.process();
        let run = run_on(disk(Arc::clone(&process)), None);
        let episode = run.episode(name()).expect("begins");
        let (acknowledged, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let (episode, is_finished) = (Mutex::new(Some(episode)), Mutex::new(false));
        let owner = Arc::new(Self { run, process, episode, acknowledged, is_finished, refused });
        assert_eq!((owner.step(), owner.step()), (Came::Recorded, Came::Recorded));
        if !matches!(wrong, Wrong::Boot) {
            owner.process.lose_locks();
        }
        owner
    }

    fn step(&self) -> Came {
        let episode = self.episode.lock().expect("no panic");
        let index = self.acknowledged.load(Ordering::Relaxed);
        let stepped = episode.as_ref().expect("is open").step(Step::new().action(index as i64));
        self.note(stepped.map(|_| _ = self.acknowledged.fetch_add(1, Ordering::Relaxed)))
    }

    fn finish(&self) -> Came {
        let episode = self.episode.lock().expect("no panic");
        let ended = episode.as_ref().expect("is open").end("finished", Ending::default());
        self.note(
            ended.and_then(|end| end.wait()).map(|_| *self.is_finished.lock().expect("no panic") = true),
        )
    }

    fn note(&self, done: keepstep::Result<()>) -> Came {
        match done {
            Ok(()) => Came::Recorded,
            Err(error) if is_fenced(&error) || matches!(error, Error::Ended { .. }) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Came::Refused
            }
            Err(error) => panic!("the owner is told: {error}"),
        }
    }

    /// Opens the episode again at once, in the same process, and goes on. What is there is what it was promised, and at most
    /// what it was refused.
    fn come_back(&self) -> Result<(), String> {
        *self.episode.lock().expect("no panic") = None;
        let taking = Opening::default().busy(WhenBusy::Take);
        let episode = match self.run.open(name(), taking) {
            Err(Error::Ended { .. }) if *self.is_finished.lock().expect("no panic") => return Ok(()),
            // A refused end may have been seen by whoever closed the log: it is there whole.
            Err(Error::Ended { .. }) if self.refused.load(Ordering::Relaxed) > 0 => return Ok(()),
            opened => opened.map_err(|error| format!("cannot open it again: {error}"))?,
        };
        let (found, promised) = (episode.inherited(), self.acknowledged.load(Ordering::Relaxed));
        if found < promised || found > promised + self.refused.load(Ordering::Relaxed) {
            return Err(format!("{found} steps are there, and {promised} were acknowledged"));
        }
        self.acknowledged.store(found, Ordering::Relaxed);
        *self.episode.lock().expect("no panic") = Some(episode);
        match self.step() {
            Came::Recorded => Ok(()),
            Came::Refused => Err("is refused after it came back".to_owned()),
        }
    }
}

fn is_fenced(error: &Error) -> bool {
    match error {
        Error::EarlierFailed(cause) => is_fenced(cause),
        error => matches!(error, Error::Fenced { .. } | Error::LogClosed { .. }),
    }
}

/// What others do to an owner that seems dead.
#[derive(Debug, Clone, Copy)]
enum Act {
    Compact,
    /// The second call deletes what the first has replaced, under an owner that still writes to it.
    CompactAndDelete,
    Reap,
    Take,
    Prune,
}

impl Act {
    /// True if the episode may be gone afterwards: it was to be deleted, and its owner is told.
    fn may_delete(self) -> bool {
        matches!(self, Self::Prune)
    }

    /// Whoever deletes waits until nothing was heard of the owner for a lease.
    fn waits(self, sim: &SimDisk) {
        if self.may_delete() {
            sim.advance(Duration::from_secs(60));
        }
    }

    fn on(self, run: &Run) -> keepstep::Result<()> {
        let options = CompactOptions::default().grace(Duration::ZERO);
        match self {
            Self::Compact => run.store().compact(options, &mut |_| {}).map(|_| ()),
            Self::CompactAndDelete => Self::Compact.on(run).and_then(|()| Self::Compact.on(run)),
            Self::Reap => run.store().reap().map(|_| ()),
            Self::Take => match run.open(name(), Opening::default().busy(WhenBusy::Raise)) {
                // It lives on without a word: the next to come must find what it inherited.
                Ok(episode) => {
                    std::mem::forget(episode);
                    Ok(())
                }
                Err(Error::Busy { .. } | Error::Ended { .. } | Error::Fenced { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            Self::Prune => {
                let episodes = vec![run.episode_id(&name())];
                let filter = PruneFilter::default().episodes(episodes).reason("left");
                run.store().prune_with(&filter, options, false, &mut |_| {}).map(|_| ())
            }
        }
    }
}

/// Why others take the owner for dead, wrongly; or why they cannot tell.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    /// Its lock slipped.
    Lock,
    /// Its lock holds, and whoever looks believes to be in a later boot of the machine.
    Boot,
    /// Its lock slipped, and at that moment the clock is set, by so many seconds.
    Clock(i64),
}

impl Wrong {
    const ALL: [Self; 4] = [Self::Lock, Self::Boot, Self::Clock(-86_400), Self::Clock(86_400)];

    fn boot(self) -> Option<&'static str> {
        matches!(self, Self::Boot).then_some("another-boot")
    }

    /// At the moment when the other one comes.
    fn happens(self, sim: &SimDisk) {
        if let Self::Clock(by_s) = self {
            sim.set_clock_by(by_s);
        }
    }
}

/// What is wrong afterwards, if something is.
fn what_broke(sim: &SimDisk, owner: &Owner, act: Act) -> Option<String> {
    let promised = owner.acknowledged.load(Ordering::Relaxed);
    let refused = owner.refused.load(Ordering::Relaxed);
    let reader = run_on(sim.process(), None);
    let report = match reader.store().verify(&mut |_| {}) {
        Ok(report) => report,
        Err(error) => return Some(format!("verifying failed: {error}")),
    };
    if !report.is_whole() {
        return Some(format!("the store is damaged: {report:?}"));
    }
    let view = match reader.view(&name()) {
        Ok(view) => view,
        Err(Error::Pruned { .. } | Error::NotFound { .. }) if act.may_delete() && refused > 0 => return None,
        // Deleted before its owner said another word, which must then be refused.
        Err(Error::Pruned { .. } | Error::NotFound { .. }) if act.may_delete() => {
            return (owner.step() == Came::Recorded).then(|| "it is deleted, and goes on".to_owned());
        }
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    let steps = match view.read() {
        Ok(read) if read.is_whole() => read.steps.len() as u64,
        other => return Some(format!("cannot be read whole: {other:?}")),
    };
    if steps < promised || steps > promised + refused {
        return Some(format!("{steps} steps are read, {promised} were acknowledged and {refused} refused"));
    }
    let why = view.ending().expect("reads").and_then(|end| end.why);
    if *owner.is_finished.lock().expect("no panic") && why.as_deref() != Some("finished") {
        return Some(format!("its end was acknowledged, and is {why:?}"));
    }
    // A refused step is not there in one look, and gone or grown in the next.
    let again = run_on(sim.process(), None).view(&name()).and_then(|view| view.read());
    match again {
        Ok(read) if read.steps.len() as u64 == steps => {}
        other => return Some(format!("{steps} steps, and then {:?}", other.map(|read| read.steps.len()))),
    }
    owner.come_back().err()
}

/// The owner does something before call number `at` of another's act. Nothing if there are fewer calls.
fn owner_inside(
    act: Act,
    wrong: Wrong,
    broken: Option<Broken>,
    at: u64,
    finishes: bool,
) -> Option<(String, Option<String>)> {
    let sim = SimDisk::new(77);
    let owner = Owner::start(&sim, wrong, |process| process);
    act.waits(&sim);
    let (calls, said) = (AtomicU64::new(0), Arc::new(Mutex::new(None)));
    let (inside, slot, clock) = (Arc::clone(&owner), Arc::clone(&said), sim.clone());
    let disk = HookedDisk::booted(sim.process(), wrong.boot(), move |call| {
        if calls.fetch_add(1, Ordering::Relaxed) == at {
            wrong.happens(&clock);
            let came = inside.step();
            if came == Came::Recorded && finishes {
                inside.finish();
            }
            *slot.lock().expect("no panic") = Some(call.to_owned());
        }
    });
    let acted = act.on(&run_on(disk, broken));
    let call = said.lock().expect("no panic").take()?;
    Some((call, acted.err().map(|error| error.to_string()).or_else(|| what_broke(&sim, &owner, act))))
}

/// Another acts before call number `at` of the owner.
fn owner_outside(
    act: Act,
    wrong: Wrong,
    broken: Option<Broken>,
    at: u64,
    finishes: bool,
) -> Option<(String, Option<String>)> {
    let sim = SimDisk::new(78);
    let (calls, said) = (Arc::new(AtomicU64::new(u64::MAX / 2)), Arc::new(Mutex::new(None)));
    let (count, slot, disk) = (Arc::clone(&calls), Arc::clone(&said), sim.clone());
    let owner = Owner::start(&sim, wrong, |process| {
        HookedDisk::new(process, move |call| {
            if count.fetch_add(1, Ordering::Relaxed) == at {
                wrong.happens(&disk);
                let other = HookedDisk::booted(disk.process(), wrong.boot(), |_| {});
                let acted = act.on(&run_on(other, broken));
                *slot.lock().expect("no panic") = Some((call.to_owned(), acted.err()));
            }
        })
    });
    act.waits(&sim);
    calls.store(0, Ordering::Relaxed);
    if owner.step() == Came::Recorded && finishes {
        owner.finish();
    }
    calls.store(u64::MAX / 2, Ordering::Relaxed);
    let (call, error) = said.lock().expect("no panic").take()?;
    Some((call, error.map(|error| error.to_string()).or_else(|| what_broke(&sim, &owner, act))))
}

/// Both directions, with and without an end: how many orders, and what broke in them.
fn in_all_orders(act: Act, wrong: Wrong, broken: Option<Broken>) -> (u64, Vec<String>) {
    let (mut orders, mut broke) = (0, Vec::new());
    for finishes in [false, true] {
        for at in 0.. {
            let Some((call, what)) = owner_inside(act, wrong, broken, at, finishes) else { break };
            orders += 1;
            broke.extend(what.map(|what| format!("the owner before call {at} of {act:?} ({call}): {what}")));
        }
        for at in 0.. {
            let Some((call, what)) = owner_outside(act, wrong, broken, at, finishes) else { break };
            orders += 1;
            broke.extend(what.map(|what| format!("{act:?} before call {at} of the owner ({call}): {what}")));
        }
    }
    (orders, broke)
}

fn must_hold(act: Act) {
    for wrong in Wrong::ALL {
        let (orders, broke) = in_all_orders(act, wrong, None);
        println!("{act:?}, {wrong:?}: {orders} orders");
        assert!(broke.is_empty(), "{wrong:?}, {} of {orders}:\n{}", broke.len(), broke.join("\n"));
        assert!(orders > 30, "{orders}");
    }
}

fn must_be_caught(act: Act, broken: Broken) {
    let (orders, broke) = in_all_orders(act, Wrong::Lock, Some(broken));
    println!("{} of {orders} orders: {}", broke.len(), broke.first().map_or("", String::as_str));
    assert!(!broke.is_empty(), "{broken:?} is not caught in {orders} orders");
}

/// `compact` took the live writer for dead: five steps and the end that were acknowledged afterwards were gone.
#[test]
fn compacting_the_log_of_an_owner_that_lives() {
    must_hold(Act::Compact);
}

/// An owner whose log was closed, and then deleted, was told that its file had vanished: that its store has to be opened again.
#[test]
fn deleting_the_log_of_an_owner_that_lives() {
    must_hold(Act::CompactAndDelete);
}

/// `reap` recorded a live owner as crashed, and its end counted no more.
#[test]
fn reaping_an_owner_that_lives() {
    must_hold(Act::Reap);
}

#[test]
fn taking_from_an_owner_that_lives() {
    must_hold(Act::Take);
}

#[test]
fn pruning_an_episode_whose_owner_lives() {
    must_hold(Act::Prune);
}

/// An episode of an owner that lives, and is idle, was deleted: its lock had slipped, and it had no reason yet to look for letters.
#[test]
fn nothing_is_deleted_of_an_owner_that_was_heard_of_lately() {
    for reaps_first in [false, true] {
        let sim = SimDisk::new(75);
        let owner = Owner::start(&sim, Wrong::Lock, |process| process);
        let other = run_on(sim.process(), None);
        if reaps_first {
            assert_eq!(
                other.store().reap().expect("reaps").crashed.len(),
                1,
                "a lock that is free is enough to be fenced"
            );
        }
        let filter = PruneFilter::default().run("run");
        let prune = || {
            let options = CompactOptions::default().grace(Duration::ZERO);
            other.store().prune_with(&filter, options, false, &mut |_| {}).expect("prunes")
        };
        let report = prune();
        assert_eq!((report.episodes.len(), report.refused.len()), (0, 1), "{report:?}");
        let why = report.refused[0].running.as_deref().unwrap_or_default();
        assert!(why.contains("was heard of 0 s ago: try again in"), "{why}");
        assert_eq!(owner.come_back(), Ok(()), "nothing is gone");
        owner.process.kill();
        sim.advance(Duration::from_secs(60));
        assert_eq!(prune().episodes.len(), 1, "silent for a lease");
    }
}

#[test]
fn compacting_by_evidence_is_caught() {
    must_be_caught(Act::Compact, Broken::CloseByEvidence);
}

#[test]
fn pruning_by_evidence_is_caught() {
    must_be_caught(Act::Prune, Broken::CloseByEvidence);
}

#[test]
fn reaping_what_was_known_is_caught() {
    must_be_caught(Act::Reap, Broken::ActOnWhatWasKnown);
}

#[test]
fn taking_what_was_known_is_caught() {
    must_be_caught(Act::Take, Broken::ActOnWhatWasKnown);
}

/// What was built on an end while its taker was stopped, and what became of the taker.
struct Stopped {
    told: Vec<String>,
    sealed: bool,
    taken: keepstep::Result<Episode>,
    why: Option<String>,
}

/// A taker stops right before it publishes its base, having read before the end was written. The owner says the end, which is
/// refused; then others follow the run and seal the group, and the taker goes on.
fn a_stopped_taker(broken: Option<Broken>) -> Stopped {
    let sim = SimDisk::new(79);
    let owner = Owner::start(&sim, Wrong::Lock, |process| process);
    let taker = sim.process();
    let (inside, process, disk) = (Arc::clone(&owner), Arc::clone(&taker), sim.clone());
    let seen: Arc<Mutex<(Vec<String>, bool)>> = Arc::default();
    let slot = Arc::clone(&seen);
    let door = HookedDisk::new(taker, move |call| {
        if !(call.starts_with("link claims/") && call.ends_with(".1.base")) {
            return;
        }
        assert_eq!(inside.finish(), Came::Refused);
        process.lose_locks();
        let other = run_on(disk.process(), broken);
        let mut follow = other.follow(None).expect("follows");
        let mut seen = slot.lock().expect("no panic");
        while let Some((event, _)) = follow.next(Duration::ZERO).expect("follows") {
            if let keepstep::RunEvent::Ended { why, .. } = event {
                seen.0.push(why);
            }
        }
        seen.1 = other.group("task", 0, 1).seal(None, "test", None).is_ok();
    });
    let taken = run_on(door, None).episode(name());
    let view = run_on(sim.process(), None).view(&name()).expect("reads");
    let why = view.ending().expect("reads").and_then(|end| end.why);
    let (told, sealed) = seen.lock().expect("no panic").clone();
    Stopped { told, sealed, taken, why }
}

/// A follower told of an end, and a group was sealed with it, because the taker that could still overrule it seemed dead; then
/// that one published its base, and went on from before the end.
#[test]
fn what_was_told_of_a_stopped_takers_episode_stays_true() {
    let Stopped { told, sealed, taken, why } = a_stopped_taker(None);
    assert_eq!((told, sealed), (vec!["finished".to_owned()], true));
    assert!(matches!(taken, Err(Error::Fenced { .. })), "{taken:?}");
    assert_eq!(why.as_deref(), Some("finished"));
}

#[test]
fn passing_over_a_taker_by_evidence_is_caught() {
    let Stopped { told, taken, why, .. } = a_stopped_taker(Some(Broken::PassOverByEvidence));
    assert_eq!(told, ["finished"]);
    assert!(taken.is_ok() && why.as_deref() != Some("finished"), "the taker went on all the same: {why:?}");
}

/// An owner of whom nothing is known is asked, and has the time of a lease. One that answers keeps its log; one that does not
/// answer loses it, and no step with it.
#[test]
fn an_owner_that_answers_keeps_its_log() {
    for answers in [true, false] {
        let sim = SimDisk::new(80);
        let owner = Owner::start(&sim, Wrong::Lock, |process| process);
        // Its lock does not say in which boot it was taken, and is free: then nobody can tell.
        let disk = sim.process();
        let writer = disk.list("writers").unwrap().remove(0).name;
        disk.open_rw(&format!("writers/{writer}/lock")).unwrap().write_at(b"x", 30).unwrap();
        let inside = Arc::clone(&owner);
        let asker = run_on(
            HookedDisk::new(sim.process(), move |call| {
                if answers && call.starts_with("sleep") {
                    assert_eq!(inside.step(), Came::Recorded);
                }
            }),
            None,
        );
        let options = CompactOptions::default().grace(Duration::ZERO);
        let report = asker.store().compact(options, &mut |_| {}).expect("compacts");
        assert_eq!(report.logs, u64::from(!answers), "{report:?}");
        if answers {
            assert!(report.left_alone[0].why.contains("it answered"), "{report:?}");
            assert_eq!(owner.step(), Came::Recorded);
        } else {
            assert_eq!(owner.step(), Came::Refused);
            owner.come_back().expect("goes on");
        }
    }
}

/// Deletes at once all that may go: the first call names it, the second deletes it.
fn sweep(sim: &SimDisk) {
    let options = CompactOptions::default().grace(Duration::ZERO);
    for _ in 0..2 {
        run_on(sim.process(), None).store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
}

/// An episode that a killed process left.
fn left_by_a_killed_process(sim: &SimDisk, task: &str) {
    let process = sim.process();
    let run = run_on(process.clone(), None);
    let episode = run.episode(EpisodeName::task(task)).expect("begins");
    episode.step(Step::new().action(0)).expect("records");
    process.kill();
    std::mem::forget((episode, run));
    // Whoever deletes waits until nothing was heard of it for a lease.
    sim.advance(Duration::from_secs(60));
}

/// Somebody who publishes one of everything that is shared: claims, letters, bases, ends, manifests.
fn publish_everything(run: &Run) -> keepstep::Result<()> {
    let taken = run.episode(EpisodeName::task("taken"))?;
    taken.step(Step::new().action(1))?;
    taken.end("finished", Ending::default())?.wait()?;
    run.store().reap()?;
    run.group("taken", 0, 1).seal(None, "test", None)?;
    run.store().compact(CompactOptions::default(), &mut |_| {})?;
    Ok(())
}

/// `compact --grace 0` took a file in the making for one that was left behind, and deleted it: whoever was about to give it
/// its name failed with "No such file or directory".
#[test]
fn whoever_publishes_goes_on_when_its_file_is_swept_away() {
    let mut calls = 0;
    for at in 0.. {
        let sim = SimDisk::new(83);
        left_by_a_killed_process(&sim, "taken");
        left_by_a_killed_process(&sim, "left");
        let (count, is_over, other) = (AtomicU64::new(0), Arc::new(Mutex::new(None)), sim.clone());
        let said = Arc::clone(&is_over);
        let door = HookedDisk::new(sim.process(), move |call| {
            if count.fetch_add(1, Ordering::Relaxed) == at {
                *said.lock().expect("no panic") = Some(call.to_owned());
                sweep(&other);
            }
        });
        let done = publish_everything(&run_on(door, None));
        let Some(call) = is_over.lock().expect("no panic").take() else { break };
        assert!(done.is_ok(), "swept before call {at} ({call}): {done:?}");
        let report = run_on(sim.process(), None).store().verify(&mut |_| {}).expect("verifies");
        assert!(report.is_whole(), "swept before call {at} ({call}): {report:?}");
        calls = at;
    }
    println!("{calls} points");
    assert!(calls > 60, "{calls}");
}

/// Whoever lost a race takes back what it made, and may make another segment of that number: what it still had open of the
/// first passed for the second, which was then called damaged.
#[test]
fn a_number_that_was_taken_back_is_used_again() {
    let sim = SimDisk::new(84);
    left_by_a_killed_process(&sim, "first");
    let (other, times) = (sim.clone(), AtomicU64::new(0));
    let door = HookedDisk::new(sim.process(), move |call| {
        if call == "link grouped/0.manifest" && times.fetch_add(1, Ordering::Relaxed) == 0 {
            // A pruner that is killed when it has announced what it wants: its manifest holds no segment.
            left_by_a_killed_process(&other, "second");
            let process = other.process();
            let killed = Arc::clone(&process);
            let announced = HookedDisk::new(process, move |call| {
                if call == "link grouped/0.copy" {
                    killed.kill();
                }
            });
            let filter = PruneFilter::default().run("run");
            let pruned = run_on(announced, None).store().prune(&filter, false, &mut |_| {});
            assert!(pruned.is_err(), "{pruned:?}");
        }
    });
    let options = CompactOptions::default().grace(Duration::ZERO);
    let report = run_on(door, None).store().compact(options, &mut |_| {}).expect("compacts");
    assert_eq!(report.logs, 2, "{report:?}");
    let report = run_on(sim.process(), None).store().verify(&mut |_| {}).expect("verifies");
    assert!(report.is_whole(), "{report:?}");
}
