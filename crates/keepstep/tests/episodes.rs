//! Episodes: attempts, going on, turns, calls, endings. On a real disk, several stores standing for several processes.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::{
    Ending, Entry, Episode, EpisodeName, Error, Known, Level, Opening, Options, Resume, Run, Step, Store,
    Value, WhenBusy,
};

use scratch::{Scratch, copy_all};

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn taking() -> Opening {
    Opening::default().busy(WhenBusy::Take)
}

fn step(number: i64) -> Step {
    let messages = (0..=number).map(|it| Value::from(format!("message {it} ").repeat(30)));
    let messages = Value::list(messages.collect::<Vec<_>>());
    Step::new().action(number).reward(number as f64).state([("messages", messages)])
}

/// A named episode's steps, as its lineage gives them.
fn actions(run: &Run) -> Vec<i64> {
    let view = run.view(&name()).expect("reads");
    let attempt = view.read().expect("reads");
    assert!(attempt.is_whole(), "{attempt:?}");
    attempt.steps.iter().map(|step| step.action.as_ref().unwrap().as_int().unwrap()).collect()
}

#[track_caller]
fn is_busy(opened: Result<Episode, Error>) -> String {
    match opened {
        Err(error @ Error::Busy { .. }) => error.to_string(),
        other => panic!("should be busy: {other:?}"),
    }
}

/// An episode that is over stays over; the words say which and how.
#[test]
fn what_is_final_says_ended() {
    let scratch = Scratch::new("final");
    let run = scratch.run();
    let episode = run.episode(name()).expect("begins");
    episode.step(step(0)).expect("records");
    let ending = Ending::default().limit("turns");
    episode.end("truncated", ending).expect("ends").wait().expect("is durable");
    drop(episode);
    for run in [run, scratch.run()] {
        let error = run.episode(name()).expect_err("is over");
        assert!(matches!(&error, Error::Ended { why, .. } if why == "truncated"), "{error}");
    }
}

/// A live owner keeps others out, by name; and this process cannot open it twice.
#[test]
fn a_live_owner_is_busy() {
    let scratch = Scratch::new("busy");
    let run = scratch.run();
    let episode = run.episode(name()).expect("begins");
    assert!(is_busy(run.episode(name())).contains("this process"));
    let other = scratch.run();
    let said = is_busy(other.episode(name()));
    assert!(said.contains(&format!("process {}", std::process::id())) && said.contains(" s ago"), "{said}");
    let patient = Opening::default().busy(WhenBusy::Wait(Duration::from_millis(50)));
    is_busy(other.open(name(), patient));
    drop(episode);
    let again = other.episode(name()).expect("is free now");
    assert_eq!((again.attempt(), again.resumed()), (1, Some(0)));
}

/// Whoever is told that an episode ended can tell another process at once: it is not busy any more. (Others were told how far the
/// log is synced only a moment later, by whoever came to it.)
#[test]
fn what_has_ended_is_free_at_once() {
    let scratch = Scratch::new("free");
    let (one, two) = (scratch.run(), scratch.run());
    let hand_over = &|sample: i64| {
        for iteration in 0..20 {
            let name = EpisodeName::task("task").iteration(iteration).sample(sample);
            let episode = one.episode(name.clone()).expect("begins");
            episode.end("cancelled", Ending::default()).expect("ends").wait().expect("is durable");
            assert_eq!(two.episode(name).expect("is free").attempt(), 1);
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|sample| drop(scope.spawn(move || hand_over(sample)))));
}

/// Taken over while alive: the new attempt has every acknowledged step, the old one may say nothing more.
#[test]
fn taking_over_fences_the_owner() {
    let scratch = Scratch::new("take");
    let (one, two) = (scratch.run(), scratch.run());
    let old = one.episode(name()).expect("begins");
    let bystander = one.episode(EpisodeName::task("other")).expect("begins");
    for number in 0..5 {
        old.step(step(number)).expect("records");
    }
    let new = two.open(name(), taking()).expect("takes over");
    assert_eq!((new.attempt(), new.inherited(), new.resumed()), (1, 5, Some(0)));
    let error = old.step(step(99)).expect_err("is fenced");
    assert!(matches!(error, Error::Fenced { mine: 0, attempt: 1, .. }), "{error}");
    // A live owner that loses one of its episodes goes on with the rest.
    bystander.step(step(0)).expect("records");
    assert_eq!(
        new.state("messages").expect("reads"),
        step(4).fields().last().map(|(_, state)| {
            let Value::Map(state) = state.plain() else { panic!("a map") };
            state[0].1.clone()
        })
    );
    assert_eq!(new.history(3).expect("reads").action, Some(Value::Int(3)));
    new.step(step(5)).expect("records");
    new.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop((old, new));
    assert_eq!(actions(&two), [0, 1, 2, 3, 4, 5]);
    let id = two.episode_id(&name());
    assert_eq!(two.store().found_end(&id, 0).expect("reads").expect("is known").0, "superseded");
    let parts = two.view(&name()).expect("reads").parts().to_vec();
    assert_eq!(parts.iter().map(|part| part.steps.clone()).collect::<Vec<_>>(), [0..5, 5..6]);
}

/// A taker that dies between its base and the end that it records for the old attempt: that attempt is superseded, whether
/// or not its owner is still there, and `reap` does not find another end. (It was `superseded`, then `interrupted`, then
/// `crashed`.)
#[test]
fn what_was_taken_over_is_superseded_whenever_it_is_asked() {
    if scratch::is_toy() {
        return;
    }
    let scratch = Scratch::new("superseded");
    let (one, two) = (scratch.run(), scratch.run());
    let old = one.episode(name()).expect("begins");
    old.step(step(0)).expect("records");
    let new = two.open(name(), taking()).expect("takes over");
    let ends = scratch.0.join("ends");
    let hex = two.episode_id(&name()).to_string();
    std::fs::remove_file(ends.join(&hex[..2]).join(format!("{hex}.0"))).expect("was there");
    let check = |when: &str| {
        let run = scratch.run();
        let (store, id) = (run.store(), run.episode_id(&name()));
        let listed = store.list_one(&mut store.catalog().expect("opens"), &id).expect("lists");
        assert_eq!(listed[0].state(), "superseded", "{when}");
        let view = store.view_of(&store.catalog().expect("opens"), &listed[0].key).expect("reads");
        let end = view.ending().expect("reads").expect("is known");
        assert_eq!(end.why.as_deref(), Some("superseded"), "{when}");
    };
    check("both owners are there");
    drop((old, one));
    check("its owner is gone");
    new.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop((new, two));
    assert!(scratch.run().store().reap().expect("looks").crashed.is_empty());
    check("reaped");
}

/// The same, of an owner that was killed: the record says that it crashed, also if its taker dies before it has recorded
/// the end. (It was `superseded`: taken from an owner that was alive.)
#[test]
fn what_a_killed_owner_left_is_crashed_whoever_died_after_it() {
    let sim = SimDisk::new(5);
    let run_on = |process: Arc<dyn Files>| {
        let options = Options::default().background(false);
        Store::on_files(process, options).expect("opens").run("run", Value::Null).expect("opens")
    };
    let process = sim.process();
    let old = run_on(process.clone()).episode(name()).expect("begins");
    old.step(step(0)).expect("records");
    process.kill();
    let process = sim.process();
    let taker = run_on(process.clone());
    let hex = taker.episode_id(&name()).to_string();
    let new = taker.episode(name()).expect("takes over");
    new.step(step(1)).expect("records");
    process.kill();
    let path = format!("ends/{}/{hex}.0", &hex[..2]);
    sim.process().remove(&path).expect("was there");
    let reader = run_on(sim.process());
    let (store, id) = (reader.store(), reader.episode_id(&name()));
    let listed = store.list_one(&mut store.catalog().expect("opens"), &id).expect("lists");
    assert_eq!(listed[0].state(), "crashed");
    let view = store.view_of(&store.catalog().expect("opens"), &listed[0].key).expect("reads");
    let end = view.ending().expect("reads").expect("is known");
    let said = (end.why.as_deref(), end.said_by.as_deref());
    assert_eq!(said, (Some("crashed"), Some("attempt 1, which resumed it")));
}

/// Going on up to a step, and from nothing; the old attempts stay as they were.
#[test]
fn rewinding_and_restarting() {
    let scratch = Scratch::new("rewind");
    let run = scratch.run();
    let first = run.episode(name()).expect("begins");
    (0..6).for_each(|number| drop(first.step(step(number)).expect("records")));
    drop(first);
    let too_far = run.open(name(), Opening::default().at(7));
    assert!(too_far.expect_err("too far").to_string().contains("6 durable steps"));
    let rewound = run.open(name(), Opening::default().at(2)).expect("rewinds");
    assert_eq!((rewound.inherited(), rewound.steps()), (2, 2));
    rewound.step(step(20)).expect("records");
    drop(rewound);
    assert_eq!(actions(&run), [0, 1, 20]);
    let refused = run.open(name(), Opening::default().resume(Resume::Refuse));
    assert!(matches!(refused, Err(Error::ResumeRefused { .. })));
    let fresh = run.open(name(), Opening::default().resume(Resume::Restart)).expect("restarts");
    assert_eq!((fresh.inherited(), fresh.turns()), (0, 0));
    fresh.step(step(30)).expect("records");
    fresh.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(fresh);
    assert_eq!(actions(&run), [30]);
    let view = run.view(&name()).expect("reads");
    let old = view.attempt(0).expect("reads").read().expect("reads");
    assert_eq!((old.steps.len(), old.end.unwrap().why.as_deref()), (6, Some("aborted")));
}

/// Asking for more steps than there are costs nobody anything: the owner goes on.
#[test]
fn a_rewind_that_goes_too_far_takes_nothing() {
    let scratch = Scratch::new("too-far");
    let (one, two) = (scratch.run(), scratch.run());
    let owner = one.episode(name()).expect("begins");
    owner.step(step(0)).expect("records");
    let too_far = two.open(name(), taking().at(2));
    assert!(matches!(too_far, Err(Error::BadInput { .. })), "{too_far:?}");
    owner.step(step(1)).expect("is still the owner");
}

/// A turn that never got its result comes back, is adopted if the same is said, and is never paired with another.
#[test]
fn a_pending_turn_comes_back() {
    let scratch = Scratch::new("pending");
    let (one, two) = (scratch.run(), scratch.run());
    let old = one.episode(name()).expect("begins");
    old.first(Step::new().observation("start")).expect("records").wait().expect("is durable");
    let turn = old.turn(Step::new().action("buy").prompt("what?")).expect("is said");
    assert!(matches!(old.step(step(1)), Err(Error::BadInput { .. })), "a turn is open");
    drop(turn);
    let new = two.open(name(), taking()).expect("takes over");
    assert_eq!(new.pending().expect("comes back").action, Some(Value::from("buy")));
    assert_eq!((new.inherited(), new.turns()), (1, 0));
    let other = new.turn(Step::new().action("sell"));
    assert!(matches!(&other, Err(Error::Diverged { field, .. }) if field == "action"), "{other:?}");
    drop(other);
    let turn = new.turn(Step::new().action("buy")).expect("is adopted");
    assert!(turn.adopted().is_some() && turn.index() == 1);
    turn.result(Step::new().reward(1.0)).expect("records");
    assert!(new.pending().is_none() && new.turns() == 1);
    drop((old, new));
    let read = two.view(&name()).expect("reads").read().expect("reads");
    assert_eq!(read.steps.len(), 2);
    assert_eq!((read.steps[1].prompt.clone(), read.steps[1].reward), (Some(Value::from("what?")), Some(1.0)));
}

/// Giving a pending turn up is on record, and the next one has its number.
#[test]
fn a_pending_turn_can_be_discarded() {
    let scratch = Scratch::new("discard");
    let (one, two) = (scratch.run(), scratch.run());
    let old = one.episode(name()).expect("begins");
    drop(old.turn(Step::new().action("buy")).expect("is said"));
    let new = two.open(name(), taking()).expect("takes over");
    new.discard("the shop is closed").expect("records");
    let turn = new.turn(Step::new().action("sell")).expect("is said");
    assert!(turn.index() == 0 && turn.adopted().is_none());
    turn.result(Step::new()).expect("records");
    drop((old, new));
    let read = two.view(&name()).expect("reads").read().expect("reads");
    assert_eq!(read.discarded[0].reason.as_deref(), Some("the shop is closed"));
    assert_eq!(read.steps[0].action, Some(Value::from("sell")));
}

/// A result for a turn that was said before needs no adopting: then nothing is pending any more.
#[test]
fn a_pending_turn_takes_its_result_directly() {
    let scratch = Scratch::new("direct");
    let (one, two) = (scratch.run(), scratch.run());
    let old = one.episode(name()).expect("begins");
    drop(old.turn(Step::new().action("buy")).expect("is said"));
    let new = two.open(name(), taking()).expect("takes over");
    new.result(Step::new().reward(2.0)).expect("records");
    assert!(new.pending().is_none());
    let turn = new.turn(Step::new().action("sell")).expect("is said");
    assert!(turn.index() == 1 && turn.adopted().is_none());
    drop((turn, old));
}

/// A turn that failed is a step and no turn, for those who inherit it too; one that was kept is adopted with its calls, and
/// whoever takes the pending turn goes on behind the calls that were made before it was said.
#[test]
fn a_failed_turn_is_no_turn_and_a_kept_one_is_adopted() {
    let scratch = Scratch::new("kept");
    let old = scratch.run().episode(name()).expect("begins");
    old.turn(step(0)).expect("says").fail(Value::from("no")).expect("records");
    old.step(step(1)).expect("records");
    assert_eq!((old.steps(), old.turns()), (2, 1));
    let ask = |episode: &Episode| episode.call_once("llm", None, Value::Null, || Ok(Value::from("answer")));
    let said = || Step::new().action(Value::from("pay"));
    for _ in 0..2 {
        assert_eq!(ask(&old).expect("is recorded once"), Ok(Value::from("answer")));
        let turn = old.turn(said()).expect("says");
        turn.keep(Value::from("jammed")).expect("keeps");
        assert_eq!((old.turns(), old.pending().and_then(|step| step.action)), (1, Some(Value::from("pay"))));
    }
    drop(old);
    let new = scratch.run().open(name(), Opening::default()).expect("goes on");
    assert_eq!((new.inherited(), new.turns()), (2, 1));
    assert!(new.adopt().expect("adopts").is_some());
    let tool = new.known("tool", None, &Value::Null).expect("is not the call before the turn");
    assert_eq!(tool, Known::New(keepstep::CallKey::Ordinal(1)));
    new.result(Step::new().observation(Value::from("thanks"))).expect("records");
    assert_eq!((new.steps(), new.turns()), (3, 2));
}

/// A call is made once and then told; other arguments are a divergence; one that raised is made again.
#[test]
fn calls_are_recorded_once() {
    let scratch = Scratch::new("calls");
    let (one, two) = (scratch.run(), scratch.run());
    let old = one.episode(name()).expect("begins");
    old.step(step(0)).expect("records");
    let asked = |episode: &Episode, text: &str| {
        episode.call_once("llm", None, Value::from(text), || Ok(Value::from("answer")))
    };
    assert_eq!(asked(&old, "question").expect("records"), Ok(Value::from("answer")));
    let failed = old.call_once("tool", Some("k"), Value::Null, || Err(Value::from("no")));
    assert_eq!(failed.expect("records"), Err(Value::from("no")));
    let new = two.open(name(), taking()).expect("takes over");
    let known = new.known("llm", None, &Value::from("question")).expect("is known");
    assert_eq!(known, Known::Result(Value::from("answer")));
    assert!(matches!(new.known("tool", Some("k"), &Value::Null), Ok(Known::New(_))), "it had raised");
    drop((old, new));
    let third = scratch.run().open(name(), Opening::default()).expect("goes on");
    let error = third.known("llm", None, &Value::from("another question")).expect_err("diverges");
    assert!(matches!(error, Error::Diverged { step: 1, .. }), "{error}");
}

/// Endings say what they may, and a panic is not silence.
#[test]
fn endings_are_true() {
    let scratch = Scratch::new("endings");
    let run = scratch.run();
    let open = |task: &str| run.episode(EpisodeName::task(task)).expect("begins");
    let episode = open("a");
    let wrong = episode.end("crashed", Ending::default()).expect_err("is found, not said").to_string();
    assert!(wrong.contains("finished") && wrong.contains("crashed"), "{wrong}");
    let limit = Ending::default().limit("turns");
    assert!(episode.end("finished", limit).is_err(), "a limit belongs to truncated");
    episode.end("cancelled", Ending::default()).expect("ends").wait().expect("is durable");
    assert!(matches!(episode.end("finished", Ending::default()), Err(Error::Ended { .. })), "set once");
    let panicked = std::thread::scope(|scope| {
        let in_panic = scope.spawn(|| {
            let _episode = open("b");
            panic!("on purpose");
        });
        in_panic.join().is_err()
    });
    assert!(panicked);
    let _left = open("c");
    run.store().close();
    let run = scratch.run();
    let why = |task: &str| {
        let view = run.view(&EpisodeName::task(task)).expect("reads");
        view.ending().expect("reads").expect("ended").why.expect("says why")
    };
    assert_eq!(
        (why("a").as_str(), why("b").as_str(), why("c").as_str()),
        ("cancelled", "errored", "aborted")
    );
}

/// A chain of takeovers inherits from all before; what an attempt did after its base was taken counts for nobody.
#[test]
fn a_chain_of_takeovers() {
    let scratch = Scratch::new("chain");
    let runs: Vec<Run> = (0..5).map(|_| scratch.run()).collect();
    let mut episodes = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let episode = run.open(name(), taking()).expect("takes over");
        assert_eq!((episode.attempt() as usize, episode.inherited() as usize), (number, number * 2));
        for index in 0..2 {
            episode.step(step((number * 2 + index) as i64)).expect("records");
        }
        episodes.push(episode);
        for old in &episodes[..number] {
            assert!(matches!(old.step(step(99)), Err(Error::Fenced { .. })));
        }
    }
    drop(episodes);
    assert_eq!(actions(&runs[0]), (0..10).collect::<Vec<_>>());
}

/// What is copied from another log is not fenced by letters about newer attempts: a process could not take back what it lost, and
/// not even go on by itself with steps that no sync had covered yet.
#[test]
fn unsynced_steps_are_taken_back() {
    let scratch = Scratch::new("unsynced");
    let options =
        || Options::default().level(keepstep::Level::Kill).background_sync(Duration::from_secs(3600));
    let run = || scratch.open(options()).run("run", Value::Null).expect("opens");
    let (one, two) = (run(), run());
    for number in 0..3 {
        let episode = one.episode(name()).expect("goes on");
        assert_eq!(episode.inherited(), number);
        episode.step(step(number as i64)).expect("records");
    }
    let other = two.open(name(), taking()).expect("takes over");
    other.step(step(3)).expect("records");
    let back = one.open(name(), taking()).expect("takes it back");
    assert_eq!(back.inherited(), 4);
    back.step(step(4)).expect("records");
    drop((other, back));
    one.store().close();
    assert_eq!(actions(&two), [0, 1, 2, 3, 4]);
}

/// An episode without a name needs no claim and is read like any other.
#[test]
fn an_unnamed_episode_is_unique() {
    let scratch = Scratch::new("unnamed");
    let run = scratch.run();
    let (one, two) = (run.unnamed(Opening::default()).unwrap(), run.unnamed(Opening::default()).unwrap());
    assert_ne!(one.id(), two.id());
    one.step(step(0)).expect("records");
    let catalog = run.store().catalog().expect("reads");
    let key = catalog.find(&one.id(), 0).expect("is there");
    assert_eq!(catalog.reader(&key).expect("reads").read().expect("reads").steps.len(), 1);
}

/// What no sync is known to have covered is copied by the taker, and counts; the copies are read like the rest.
#[test]
fn what_is_not_synced_is_copied() {
    let scratch = Scratch::new("copied");
    let options = Options::default().background_sync(Duration::from_secs(3600));
    let one = scratch.open(options).run("run", Value::Null).expect("opens");
    let old = one.episode(name()).expect("begins");
    old.step(step(0)).expect("records");
    for number in 1..4 {
        old.record(Entry::step(step(number)).at(Level::Kill))
            .expect("records")
            .wait()
            .expect("survives a kill");
    }
    let two = scratch.run();
    let new = two.open(name(), taking()).expect("takes over");
    assert_eq!(new.inherited(), 4);
    let copied = |run: &Run| {
        let view = run.view(&name()).expect("reads");
        view.parts().iter().filter(|part| part.span.copied.is_some()).map(|part| part.steps.clone()).next()
    };
    assert!(copied(&two).is_some_and(|steps| steps.end == 4 && steps.start <= 1), "{:?}", copied(&two));
    assert_eq!(actions(&two), [0, 1, 2, 3]);
    // A third goes on from the copies.
    let third = scratch.run();
    let newer = third.open(name(), taking()).expect("takes over");
    newer.step(step(4)).expect("records");
    assert_eq!(actions(&third), [0, 1, 2, 3, 4]);
}

/// A taker that finds the end in the log, which nobody said was synced, adopts it: the episode is over.
#[test]
fn an_end_that_the_taker_finds_is_adopted() {
    let scratch = Scratch::new("adopted");
    let options = Options::default().level(Level::Kill).background_sync(Duration::from_secs(3600));
    let one = scratch.open(options).run("run", Value::Null).expect("opens");
    let old = one.episode(name()).expect("begins");
    old.step(step(0)).expect("records");
    old.end("finished", Ending::default()).expect("ends").wait().expect("survives a kill");
    let two = scratch.run();
    let error = two.open(name(), taking()).expect_err("is over");
    assert!(matches!(&error, Error::Ended { why, .. } if why == "finished"), "{error}");
    let view = two.view(&name()).expect("reads");
    assert_eq!((view.steps(), view.ending().expect("reads").unwrap().why.as_deref()), (1, Some("finished")));
}

/// A handle that was kept after its episode ended is in nobody's way.
#[test]
fn an_episode_that_ended_can_be_opened_again_beside_its_old_handle() {
    let scratch = Scratch::new("beside");
    let run = scratch.run();
    let old = run.episode(name()).unwrap();
    old.step(step(0)).unwrap();
    is_busy(run.episode(name()));
    old.end("aborted", Ending::default()).unwrap().wait().unwrap();
    let new = run.episode(name()).unwrap();
    drop(old);
    is_busy(run.episode(name()));
    assert_eq!((new.attempt(), new.turns()), (1, 1));
}

/// A state that damage took is told, and never replaced by an older one or by none. (A resumed attempt got the messages of an
/// earlier step, or its default, when the step that held the newest ones could not be read.)
#[test]
fn a_damaged_state_is_told_and_not_an_older_one() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    const STRIDE: usize = 13;
    let scratch = Scratch::new("damaged-state");
    let run = scratch.run();
    let episode = run.episode(name()).expect("begins");
    let state = |number: i64| Step::new().action(number).state([("number", Value::Int(number))]);
    (0..4).for_each(|number| drop(episode.step(state(number)).expect("records")));
    episode.end("aborted", Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    run.store().close();
    let (mut told, mut right) = (0, 0);
    let writers = std::fs::read_dir(scratch.0.join("writers")).expect("lists");
    let segment =
        writers.map(|writer| writer.expect("lists").path().join("0.seg")).find(|path| path.exists());
    let segment = segment.expect("has a segment");
    let whole = std::fs::read(&segment).expect("reads");
    for at in (0..whole.len()).step_by(STRIDE) {
        let mut wounded = whole.clone();
        wounded[at] ^= 0x10;
        std::fs::write(&segment, &wounded).expect("writes");
        let copy = Scratch::new(&format!("damaged-state-{at}"));
        copy_all(&scratch.0, &copy.0);
        let found = copy.run().episode(name()).and_then(|episode| episode.state("number"));
        match found {
            Ok(found) => assert_eq!((found, { right += 1 }), (Some(Value::Int(3)), ()), "byte {at} flipped"),
            Err(error) => assert!(matches!(error, Error::Damaged { .. }), "byte {at} flipped: {error}"),
        }
        told = at / STRIDE + 1 - right;
    }
    assert!(told > 0 && right > 0, "{told} told, {right} right");
}

/// The end of an episode is taken though the queue is full, and nothing comes behind it. (A process that exited with a full queue
/// left its episodes without a word: the end was refused as busy, and nobody says it twice.)
#[test]
fn an_end_passes_a_full_queue_and_nothing_passes_the_end() {
    let scratch = Scratch::new("full-end");
    let options = Options::default().queue_bytes_max(1);
    let store = scratch.open(options);
    let run = store.run("run", Value::Null).expect("opens");
    for sample in 0..50 {
        let name = name().sample(sample);
        let episode = run.episode(name.clone()).expect("begins");
        let is_done = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    match episode.record(step(1)) {
                        Err(Error::Busy { .. } | Error::Ended { .. }) => {}
                        sent => drop(sent.expect("records")),
                    }
                }
            });
            let is_full = |()| matches!(episode.record(step(2)), Err(Error::Busy { .. }));
            let was_full = std::iter::repeat_n((), 100_000).any(is_full);
            let ended = episode.end("finished", Ending::default());
            is_done.store(true, Ordering::Relaxed);
            assert!(was_full, "the queue was never full");
            ended
        });
        ended.expect("ends").wait().expect("is durable");
        drop(episode);
        let attempt = run.view(&name).expect("reads").read().expect("reads");
        assert!(attempt.is_whole(), "{attempt:?}");
        assert_eq!(attempt.end.expect("has an end").why.as_deref(), Some("finished"));
    }
}

/// One thread lets go of an episode that has ended while another opens it again: that one never finds it held.
#[test]
fn an_episode_that_has_ended_is_free_while_it_is_let_go() {
    let scratch = Scratch::new("let-go");
    let run = scratch.run();
    for round in 0..150 {
        let name = || name().sample(round % 10);
        let ended = run.episode(name()).expect("is free");
        ended.end("aborted", Ending::default()).expect("ends").wait().expect("is durable");
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                start.wait();
                drop(ended);
            });
            start.wait();
            let again = run.episode(name()).unwrap_or_else(|error| panic!("round {round}: {error}"));
            again.end("aborted", Ending::default()).expect("ends").wait().expect("is durable");
        });
    }
}
