//! More of what was truncated: whoever asks goes on where it stopped, and nobody else sees anything but whole attempts.
//!
//! Crashes at every point of going on; two who ask at once; sealers, `compact`, `prune`, `reap` and followers beside it, each
//! as a whole before every call that the other makes.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;
#[path = "more/tended.rs"]
mod tended;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::read::EpisodeEvent;
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{
    Ending, Episode, EpisodeName, Error, Jobs, NoteTarget, Opening, Options, PlanOptions, RemainingOptions,
    Resume, Run, RunEvent, Step, Store, Value,
};

fn run_on(disk: Arc<dyn Files>) -> Run {
    let options = Options::default().background(false).stall(Duration::from_millis(500)).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn retry() -> Opening {
    Opening::default().retry(["truncated"])
}

fn retrying() -> RemainingOptions {
    RemainingOptions::default().retry(["truncated"])
}

fn end(episode: &Episode, why: &str) {
    episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
}

/// Records steps up to that many, and an end.
fn walk(episode: &Episode, steps: u64, why: &str) {
    for index in episode.steps()..steps {
        episode.step(Step::new().action(index as i64).reward(1.0)).expect("records");
    }
    end(episode, why);
}

/// Two steps, and then a limit.
fn truncated(run: &Run) {
    walk(&run.episode(name()).expect("begins"), 2, "truncated");
}

/// Attempt, steps and ending of the one that counts, if all of it can be read, and its steps are what was done.
fn seen(run: &Run) -> (u32, u64, Option<String>) {
    let view = run.view(&name()).expect("was begun");
    let read = view.read().expect("reads");
    assert!(read.is_whole(), "{read:?}");
    for (index, step) in read.steps.iter().enumerate() {
        assert_eq!(step.action.as_ref().and_then(Value::as_int), Some(index as i64));
    }
    (view.number(), view.steps(), view.ending().expect("reads").and_then(|end| end.why))
}

fn truncated_in(attempt: u32, steps: u64) -> (u32, u64, Option<String>) {
    (attempt, steps, Some("truncated".to_owned()))
}

/// What is truncated is final for all who do not ask for more; who does has all of it.
#[test]
fn it_goes_on_where_it_stopped() {
    let sim = SimDisk::new(1);
    let run = run_on(sim.process());
    truncated(&run);
    let error = run.episode(name()).expect_err("is over");
    assert!(matches!(&error, Error::Ended { why, .. } if why == "truncated"), "{error}");
    let other = run_on(sim.process());
    let episode = other.open(name(), retry()).expect("goes on");
    assert_eq!((episode.attempt(), episode.steps()), (1, 2));
    assert_eq!(seen(&run), (1, 2, None));
    walk(&episode, 4, "truncated");
    drop(episode);
    assert_eq!(seen(&run), truncated_in(1, 4));
    let at = retry().at(3);
    walk(&run.open(name(), at).expect("goes on from the middle"), 5, "truncated");
    let restart = retry().resume(Resume::Restart);
    let episode = other.open(name(), restart).expect("begins anew");
    assert_eq!((episode.attempt(), episode.steps()), (3, 0));
    walk(&episode, 1, "finished");
    drop(episode);
    let error = run.open(name(), retry()).expect_err("is finished");
    assert!(matches!(&error, Error::Ended { why, .. } if why == "finished"), "{error}");
    let states = [(0, "truncated", 2), (1, "truncated", 4), (2, "truncated", 5), (3, "finished", 1)];
    assert_eq!(listed(&run), states.map(state));
}

fn state((attempt, state, steps): (u32, &str, u64)) -> (u32, String, u64) {
    (attempt, state.to_owned(), steps)
}

/// Attempts, states and steps, as they are listed.
fn listed(run: &Run) -> Vec<(u32, String, u64)> {
    let list = run.store().list(&mut run.store().catalog().expect("reads")).expect("lists");
    list.iter().map(|it| state((it.key.attempt, it.state(), it.summary.steps))).collect()
}

/// An end that a taker had found, and made its own by its base, is gone on from as well: the END is no part of what is
/// inherited.
#[test]
fn it_goes_on_from_an_end_that_was_adopted() {
    let sim = SimDisk::new(2);
    let process = sim.process();
    let options = Options::default().background(false).level(keepstep::Level::Kill);
    let owner = Store::on_files(process.clone(), options).expect("opens");
    let owner = owner.run("run", Value::Null).expect("opens");
    truncated(&owner);
    process.kill();
    let (run, other) = (run_on(sim.process()), run_on(sim.process()));
    run.group("task", 0, 2).seal(None, "nobody", None).expect_err("one is missing");
    let began = run.store().began(&run.episode_id(&name())).expect("reads");
    assert!(began.last().is_some_and(|it| it.was_over), "this is what is tested: {began:?}");
    assert_eq!(seen(&run), truncated_in(1, 2));
    let episode = other.open(name(), retry()).expect("goes on");
    assert_eq!((episode.attempt(), episode.steps()), (2, 2));
    walk(&episode, 3, "finished");
    drop(episode);
    assert_eq!(seen(&run), (2, 3, Some("finished".to_owned())));
    let view = run.view(&name()).expect("reads");
    let ends = view.events().filter(|it| matches!(it, Ok(EpisodeEvent::End(_)))).count();
    assert_eq!(ends, 1, "the END that was adopted is no part of what goes on");
    assert_eq!(listed(&run), [(0, "truncated", 2), (1, "truncated", 2), (2, "finished", 3)].map(state));
    let mut told = told_to(&run, &mut None);
    told.sort_unstable();
    assert_eq!(told, [(0, "truncated".to_owned()), (2, "finished".to_owned())]);
}

/// Which attempts ended, and how.
type Ends = Vec<(u32, String)>;

/// All that a follower is told behind its cursor: what one writer said in order, of several in any.
fn told_to(run: &Run, cursor: &mut Option<String>) -> Ends {
    let mut follow = run.follow(cursor.as_deref()).expect("follows");
    let mut told = Vec::new();
    while let Some((event, behind)) = follow.next(Duration::ZERO).expect("follows") {
        if let RunEvent::Ended { attempt, why, .. } = event {
            told.push((attempt, why));
        }
        *cursor = Some(behind);
    }
    told
}

/// At every point of going on, by a kill and by a power cut: the old end stands, or the next attempt counts with all that
/// it inherited; either way whoever asks next goes on.
#[test]
fn a_crash_while_going_on_leaves_the_old_end_or_the_next_attempt() {
    let sim = SimDisk::new(3);
    truncated(&run_on(sim.process()));
    let run = run_on(sim.process());
    let before = sim.operations();
    let episode = run.open(name(), retry()).expect("goes on");
    episode.step(Step::new().action(2)).expect("records");
    let acknowledged = sim.operations();
    walk(&episode, 4, "finished");
    let trace = sim.trace();
    let (mut old, mut new) = (0, 0);
    for cut in before..trace.cuts() {
        let states = (0..trace.state_count(cut).min(12)).map(|index| trace.state(cut, index));
        for state in states.chain([trace.killed(cut)]) {
            let reader = run_on(state.process());
            let (attempt, steps, why) = seen(&reader);
            let what = trace.operation_before(cut);
            if attempt == 0 {
                assert_eq!((steps, why.as_deref()), (2, Some("truncated")), "{what}");
                assert!(cut < acknowledged, "{what}");
                old += 1;
            } else {
                assert!(attempt == 1 && steps >= if cut >= acknowledged { 3 } else { 2 }, "{what}: {steps}");
                new += 1;
            }
            if why.as_deref() != Some("finished") {
                let next = reader.open(name(), retry()).expect("whoever asks next goes on");
                assert_eq!(next.steps(), steps, "{what}");
                walk(&next, steps + 1, "finished");
            }
            let finished = seen(&run_on(state.process()));
            assert_eq!(finished.2.as_deref(), Some("finished"), "{what}");
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// Runs `inside` as a whole before call number `at` of what the door's owner does in `outside`. The call; nothing if there
/// are fewer.
fn inside_at<T>(
    sim: &SimDisk,
    at: u64,
    inside: impl Fn() + Send + Sync + 'static,
    outside: impl FnOnce(&Run) -> T,
) -> Option<(String, T)> {
    let (calls, said) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(Mutex::new(None)));
    let (count, slot) = (Arc::clone(&calls), Arc::clone(&said));
    let run = run_on(HookedDisk::new(sim.process(), move |call| {
        // Not while the store is opened.
        let is_on = count.load(Ordering::Relaxed) != u64::MAX;
        if is_on && count.fetch_add(1, Ordering::Relaxed) == at {
            *slot.lock().expect("no panic") = Some(call.to_owned());
            inside();
        }
    }));
    calls.store(0, Ordering::Relaxed);
    let came = outside(&run);
    calls.store(u64::MAX, Ordering::Relaxed);
    let said = said.lock().expect("no panic").take();
    said.map(|call| (call, came))
}

/// Tries each point of what one does, until there is none. How many there were.
fn each_point<T>(mut at_point: impl FnMut(u64) -> Option<T>) -> u64 {
    let points = (0..).find(|at| at_point(*at).is_none()).expect("ends");
    assert!(points > 5, "only {points} points");
    points
}

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Busy { .. } | Error::Ended { .. } | Error::Fenced { .. })
}

/// Two who ask for more of the same at once: one has it, the other is told so, and what the one recorded is what is read.
#[test]
fn two_who_ask_at_once_do_not_both_go_on() {
    each_point(|at| {
        let sim = SimDisk::new(4);
        truncated(&run_on(sim.process()));
        let second = run_on(sim.process());
        let kept: Arc<Mutex<Option<keepstep::Result<Episode>>>> = Arc::default();
        let slot = Arc::clone(&kept);
        let open = move || *slot.lock().expect("no panic") = Some(second.open(name(), retry()));
        let (call, first) = inside_at(&sim, at, open, |run| run.open(name(), retry()))?;
        let second = kept.lock().expect("no panic").take().expect("ran");
        let won = match (&first, &second) {
            (Ok(episode), Err(error)) | (Err(error), Ok(episode)) if is_refused(error) => episode,
            other => panic!("before {call}: {other:?}"),
        };
        assert_eq!(won.steps(), 2, "before {call}");
        walk(won, 3, "finished");
        assert_eq!(seen(&run_on(sim.process())).1, 3, "before {call}");
        Some(())
    });
}

/// Whatever a sealer and somebody who asks for more do at once, a seal names an attempt that is whole and had ended, stays
/// as it is, and nothing goes on behind it.
#[test]
fn a_seal_stays_as_it_is() {
    let check = |sim: &SimDisk, call: &str, opened: Option<&keepstep::Result<Episode>>| {
        let run = run_on(sim.process());
        let group = run.group("task", 0, 1);
        let sealed = group.sealed().expect("reads");
        match opened {
            Some(Ok(episode)) => walk(episode, 3, "truncated"),
            Some(Err(error)) => {
                assert!(is_refused(error), "before {call}: {error}");
                assert!(sealed.is_some(), "before {call}: nobody sealed it, and it is {error}");
            }
            None => {}
        }
        let Some(sealed) = sealed else {
            // What goes on was found: the seal waits for it.
            assert!(matches!(opened, Some(Ok(_))), "before {call}: {opened:?}");
            assert_eq!(group.seal(None, "judge", None).expect("seals").members[0].attempt, 1);
            return false;
        };
        let attempt = run.view(&name()).expect("reads").attempt(sealed.members[0].attempt).expect("is there");
        let why = attempt.ending().expect("reads").and_then(|end| end.why);
        assert_eq!((attempt.steps(), why.as_deref()), (2, Some("truncated")), "before {call}");
        assert_eq!(group.seal(None, "judge", None).expect("is the same"), sealed, "before {call}");
        let claims = |sim: &SimDisk| sim.files().iter().filter(|(path, _)| path.ends_with(".claim")).count();
        let before = claims(sim);
        let error = run.open(name(), retry()).expect_err("is sealed");
        assert_eq!(claims(sim), before, "before {call}: what is refused costs nothing");
        assert!(
            matches!(&error, Error::Ended { why, .. } if why.contains("sealed")),
            "before {call}: {error}"
        );
        assert!(run_on(sim.process()).claim(retrying()).expect("looks").is_none());
        true
    };
    let begin = || {
        let sim = SimDisk::new(5);
        let run = run_on(sim.process());
        run.plan([name().task], PlanOptions::default()).expect("plans");
        truncated(&run);
        run.store().close();
        sim
    };
    let (mut sealed, mut open) = (0, 0);
    let mut count = |is_sealed: bool| if is_sealed { sealed += 1 } else { open += 1 };
    each_point(|at| {
        let sim = begin();
        let sealer = run_on(sim.process());
        let seal = move || drop(sealer.group("task", 0, 1).seal(None, "judge", None));
        let go_on = |run: &Run| {
            let opened = run.open(name(), retry());
            // Whoever was refused has given its claim back: asked again, it has nothing to take over.
            let again = opened.is_err().then(|| run.episode(name()));
            assert!(again.is_none_or(|again| matches!(again, Err(Error::Ended { .. }))));
            opened
        };
        let (call, opened) = inside_at(&sim, at, seal, go_on)?;
        let is_sealed = check(&sim, &call, Some(&opened));
        // A seal that is there before the claim is seen, and a sealer that comes after it sees the claim.
        assert_eq!(is_sealed, opened.is_err(), "before {call}");
        if is_sealed {
            assert_eq!(seen(&run_on(sim.process())), truncated_in(0, 2), "before {call}");
        }
        count(is_sealed);
        Some(())
    });
    each_point(|at| {
        let sim = begin();
        let other = run_on(sim.process());
        let kept: Arc<Mutex<Option<keepstep::Result<Episode>>>> = Arc::default();
        let slot = Arc::clone(&kept);
        let open = move || *slot.lock().expect("no panic") = Some(other.open(name(), retry()));
        let seal = |run: &Run| drop(run.group("task", 0, 1).seal(None, "judge", None));
        let (call, ()) = inside_at(&sim, at, open, seal)?;
        let opened = kept.lock().expect("no panic").take();
        count(check(&sim, &call, opened.as_ref()));
        Some(())
    });
    assert!(sealed > 0 && open > 0, "{sealed} {open}");
}

/// A follower that comes back with its cursor before any call of whoever goes on, and one that reads all at the end, are
/// told of each ending once; so after `compact`, and of one whose taker died before its base.
#[test]
fn each_ending_is_told_once() {
    let expected = [(0, "truncated".to_owned()), (1, "truncated".to_owned()), (2, "finished".to_owned())];
    each_point(|at| {
        let sim = SimDisk::new(7);
        truncated(&run_on(sim.process()));
        let kept: Arc<Mutex<(Option<String>, Ends)>> = Arc::default();
        let (slot, reader) = (Arc::clone(&kept), run_on(sim.process()));
        let follow = move || {
            let mut kept = slot.lock().expect("no panic");
            let told = told_to(&reader, &mut kept.0);
            kept.1.extend(told);
        };
        let go_on = |run: &Run| {
            walk(&run.open(name(), retry()).expect("goes on"), 3, "truncated");
            walk(&run.open(name(), retry()).expect("goes on"), 4, "finished");
        };
        let (call, ()) = inside_at(&sim, at, follow, go_on)?;
        let (mut cursor, mut told) = std::mem::take(&mut *kept.lock().expect("no panic"));
        let options = CompactOptions::default().grace(Duration::ZERO);
        run_on(sim.process()).store().compact(options, &mut |_| {}).expect("compacts");
        told.extend(told_to(&run_on(sim.process()), &mut cursor));
        for mut told in [told, told_to(&run_on(sim.process()), &mut None)] {
            told.sort_unstable();
            assert_eq!(told, expected, "before {call}");
        }
        Some(())
    });
}

/// One who claimed it and died before its base has changed nothing: readers see the end, followers are told of it, and
/// whoever asks next goes on.
#[test]
fn a_claim_without_a_base_changes_nothing() {
    let sim = SimDisk::new(8);
    let process = sim.process();
    let run = run_on(sim.process());
    run.plan([name().task], PlanOptions::default()).expect("plans");
    truncated(&run);
    let dead = run_on(process.clone());
    let job = dead.claim(retrying()).expect("looks").expect("has a job");
    assert_eq!((&*job.why, job.attempts), ("truncated", 1));
    assert!(run.claim(retrying()).expect("looks").is_none(), "somebody has it");
    assert_eq!(run.progress(&retrying()).expect("looks").running, 1);
    assert_eq!(seen(&run), truncated_in(0, 2));
    process.kill();
    std::mem::forget(job);
    assert_eq!(seen(&run), truncated_in(0, 2));
    let files = sim.files().len();
    let progress = run.progress(&retrying()).expect("looks");
    assert_eq!((progress.running, progress.done()), (0, 1));
    assert_eq!(sim.files().len(), files, "a look writes nothing");
    assert_eq!(told_to(&run, &mut None), [(0, "truncated".to_owned())]);
    let job = run.claim(retrying()).expect("looks").expect("has a job");
    let episode = job.episode(Opening::default()).expect("goes on");
    assert_eq!((episode.attempt(), episode.steps()), (2, 2));
}

/// What remains: only for those who ask for more, once for each who asks; a job that was dropped goes to nobody else.
#[test]
fn it_remains_for_those_who_ask() {
    let sim = SimDisk::new(9);
    let run = run_on(sim.process());
    run.plan([name().task], PlanOptions::default()).expect("plans");
    truncated(&run);
    let list = |options: &RemainingOptions| run.remaining_list(options).expect("lists").len();
    assert_eq!((list(&RemainingOptions::default()), list(&retrying())), (0, 1));
    let to_score = retrying().jobs(Jobs::ToScore);
    assert!(run.claim(to_score).expect("looks").is_none());
    let mut given = 0;
    for job in run.remaining(retrying()).expect("looks") {
        given += 1;
        walk(&job.expect("is given").episode(Opening::default()).expect("opens"), 2 + given, "truncated");
    }
    assert_eq!(given, 1, "it was truncated again, and does not go round in circles");
    drop(run.claim(retrying()).expect("looks").expect("comes again for whoever asks anew"));
    assert!(
        run.claim(RemainingOptions::default()).expect("looks").is_none(),
        "and to nobody who did not ask"
    );
    assert_eq!(seen(&run), truncated_in(1, 3));
    let job = run.claim(retrying()).expect("looks").expect("the one that was dropped");
    let episode = job.episode(Opening::default()).expect("goes on");
    assert_eq!((episode.attempt(), episode.steps()), (2, 3));
    drop(episode);
    // Opened by its name while a job for it lies about.
    let error = run.episode(name()).expect("was left, and goes on").end("truncated", Ending::default());
    error.expect("ends").wait().expect("is durable");
    drop(run.claim(retrying()).expect("looks").expect("has a job"));
    assert!(matches!(run.episode(name()), Err(Error::Ended { .. })));
    let job = run.claim(retrying()).expect("looks").expect("has a job");
    walk(&job.episode(Opening::default()).expect("goes on all the same"), 4, "finished");
    assert_eq!(seen(&run).1, 4);
}

/// The slots of a group: given once by each handle that asks for more, and not to the others.
#[test]
fn a_group_gives_its_truncated_slots_to_those_who_ask() {
    let sim = SimDisk::new(12);
    let run = run_on(sim.process());
    truncated(&run);
    let group = run.group("task", 0, 1);
    assert!(group.claim(&Opening::default()).expect("looks").is_none());
    walk(&group.claim(&retry()).expect("looks").expect("has a slot"), 3, "truncated");
    assert!(group.claim(&retry()).expect("looks").is_none(), "it does not go round in circles");
    walk(&run.group("task", 0, 1).claim(&retry()).expect("looks").expect("asks anew"), 4, "truncated");
    assert_eq!(group.seal(None, "judge", None).expect("seals").members[0].attempt, 2);
    assert!(run.group("task", 0, 1).claim(&retry()).expect("looks").is_none());
}

/// What failed comes back by itself until it failed as often as it may; then it is given up by name, with its last error.
#[test]
fn what_failed_comes_back_until_it_is_given_up() {
    let sim = SimDisk::new(10);
    let run = run_on(sim.process());
    run.plan(["bad", "good"].map(str::to_owned), PlanOptions::default()).expect("plans");
    let options = RemainingOptions::default().max_attempts(2);
    let mut remaining = run.remaining(options.clone()).expect("looks");
    let mut given = BTreeMap::new();
    for job in remaining.by_ref() {
        let job = job.expect("is given");
        *given.entry(job.name.task.clone()).or_insert(0) += 1;
        let is_good = job.name.task == "good";
        let episode = job.episode(Opening::default()).expect("opens");
        let error = Value::map([("type", Value::from("Oops")), ("message", Value::from("no browser"))]);
        let ending = if is_good { Ending::default() } else { Ending::default().error(error) };
        let why = if is_good { "finished" } else { "errored" };
        episode.end(why, ending).expect("ends").wait().expect("is durable");
    }
    assert_eq!(given, BTreeMap::from([("bad".to_owned(), 2), ("good".to_owned(), 1)]));
    let given_up = remaining.given_up().expect("tells");
    assert_eq!(
        given_up.iter().map(|it| (&*it.name.task, it.attempts, it.errors)).collect::<Vec<_>>(),
        [("bad", 2, 2)]
    );
    assert_eq!(run.last_error(&given_up[0].name).expect("reads").as_deref(), Some("Oops: no browser"));
    assert_eq!(remaining.given_up().expect("tells"), [], "once");
    let other = run_on(sim.process());
    for looks in [&run, &other] {
        let progress = looks.progress(&options).expect("looks");
        assert_eq!(
            (progress.planned, progress.done(), progress.left(), progress.given_up),
            (2, 1, 0, given_up.clone())
        );
    }
    assert_eq!(other.progress(&RemainingOptions::default()).expect("looks").left(), 1);
    let job = other.claim(RemainingOptions::default()).expect("looks").expect("one more is allowed");
    assert_eq!((&*job.why, job.attempts), ("errored", 2));
}

/// Progress adds up, in every state of an episode, and a look at it writes nothing.
#[test]
fn progress_adds_up_and_writes_nothing() {
    let sim = SimDisk::new(11);
    let run = run_on(sim.process());
    let needs = PlanOptions::default().needs(["score"]);
    let tasks = ["new", "running", "left", "dead", "finished", "scored", "truncated", "errored", "pruned"];
    run.plan(tasks.map(str::to_owned), needs).expect("plans");
    let begin = |run: &Run, task: &str| run.episode(EpisodeName::task(task)).expect("begins");
    let process = sim.process();
    std::mem::forget(begin(&run_on(process.clone()), "dead"));
    process.kill();
    for (task, why) in [("left", "aborted"), ("finished", "finished"), ("scored", "finished")] {
        end(&begin(&run, task), why);
    }
    for (task, why) in [("truncated", "truncated"), ("errored", "errored"), ("pruned", "finished")] {
        end(&begin(&run, task), why);
    }
    let scored = run.episode_id(&EpisodeName::task("scored"));
    run.annotate(NoteTarget::episode(scored), "score", Value::Float(1.0), "judge")
        .expect("notes")
        .wait()
        .expect("waits");
    let filter =
        PruneFilter::default().episodes([run.episode_id(&EpisodeName::task("pruned"))]).reason("old");
    let other = run_on(sim.process());
    let _running = begin(&other, "running");
    other.store().prune(&filter, false, &mut |_| {}).expect("prunes");
    let files = sim.files().len();
    let progress = run_on(sim.process()).progress(&RemainingOptions::default()).expect("looks");
    let counted =
        progress.not_begun + progress.running + progress.interrupted + progress.pruned + progress.damaged;
    assert_eq!(counted + progress.ended.values().sum::<u64>(), progress.planned, "{progress:?}");
    assert_eq!((progress.not_begun, progress.running, progress.interrupted), (1, 1, 2), "{progress:?}");
    assert_eq!((progress.pruned, progress.damaged, progress.unscored), (1, 0, 2), "{progress:?}");
    assert_eq!((progress.done(), progress.left()), (1, 7), "{progress:?}");
    assert_eq!(sim.files().len(), files, "a look writes nothing");
}
