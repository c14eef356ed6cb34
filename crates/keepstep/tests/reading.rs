//! Reading a run: filters, and following it across restarts of the reader, the writers and the owners.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::collections::BTreeSet;
use std::time::Duration;

use keepstep::{Ending, Entry, EpisodeFilter, EpisodeName, Opening, Run, RunEvent, Step, Value, WhenBusy};

use scratch::Scratch;

fn run_of(scratch: &Scratch, name: &str) -> Run {
    scratch.store().run(name, Value::Null).expect("opens")
}

fn record(run: &Run, task: &str, rewards: &[f64], policy: i64, why: &str) {
    let episode = run.episode(EpisodeName::task(task)).expect("begins");
    for reward in rewards {
        episode.step(Step::new().reward(*reward).policy(policy)).expect("records");
    }
    episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
}

fn tasks(run: &Run, filter: &EpisodeFilter) -> Vec<String> {
    run.episodes(filter).expect("reads").into_iter().map(|info| info.summary.task.unwrap()).collect()
}

/// Each filter keeps what it says and nothing else; an episode that was taken over counts once, with all its rewards.
#[test]
fn episodes_are_filtered() {
    let scratch = Scratch::new("filter");
    let (run, other) = (run_of(&scratch, "run"), run_of(&scratch, "another"));
    record(&run, "a", &[1.0, 2.0], 1, "finished");
    record(&run, "b", &[0.5], 2, "truncated");
    record(&run, "c", &[], 2, "errored");
    record(&other, "a", &[9.0], 1, "finished");
    let _live = run.episode(EpisodeName::task("d")).expect("begins");
    drop(run.episode(EpisodeName::task("e")).expect("begins"));
    let taken = run.episode(EpisodeName::task("e")).expect("goes on");
    taken.step(Step::new().reward(4.0).policy(3)).expect("records");
    let all = EpisodeFilter::default();
    assert_eq!(tasks(&run, &all), ["a", "b", "c", "d", "e"]);
    let ends = |ends: &[&str]| all.clone().ends(ends.iter().copied());
    assert_eq!(tasks(&run, &ends(&["finished", "truncated"])), ["a", "b"]);
    assert_eq!(tasks(&run, &ends(&["running"])), ["d", "e"]);
    assert_eq!(tasks(&run, &all.clone().task("b")), ["b"]);
    assert_eq!(tasks(&run, &all.clone().iteration(1)), [""; 0]);
    assert_eq!(tasks(&run, &all.clone().reward(0.5, 3.0)), ["a", "b"]);
    assert_eq!(tasks(&run, &all.clone().policy(Value::Int(2))), ["b"]);
    assert_eq!(tasks(&run, &all.clone().since(i64::MAX)), [""; 0]);
    assert_eq!(tasks(&run, &all.clone().all_attempts(true)), ["a", "b", "c", "d", "e", "e"]);
    let e = run.episodes(&all.task("e")).expect("reads").remove(0);
    assert_eq!((e.key.attempt, e.attempts, e.summary.total_reward, e.summary.steps), (1, 2, Some(4.0), 1));
}

/// A listed episode tells its name, unless it has none; its view yields its steps, whatever was recorded beside them.
#[test]
fn a_listed_episode_has_its_name_and_its_steps() {
    let scratch = Scratch::new("names");
    let run = run_of(&scratch, "run");
    let name = EpisodeName::task("a").iteration(1).sample(2);
    let episode = run.episode(name.clone()).expect("begins");
    for n in [1, 2] {
        episode.step(Step::new().state([("n", n)])).expect("records");
        episode.record(Entry::note("score", Value::Int(n), "judge", None).unwrap()).expect("records");
    }
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    run.unnamed(Opening::default()).expect("begins").step(Step::new().action("go")).expect("records");
    let listed = run.episodes(&EpisodeFilter::default()).expect("reads");
    let names: BTreeSet<Option<String>> =
        listed.iter().map(|it| it.name().map(|it| it.to_string())).collect();
    assert_eq!(names, BTreeSet::from([None, Some("a#1.2".to_owned())]));
    let view = run.view(&name).expect("reads");
    let states = view.each_step().map(|step| step.expect("reads").state.expect("has one"));
    assert_eq!(states.collect::<Vec<_>>(), [1, 2].map(|n| Value::map([("n", Value::Int(n))])));
}

/// A reader that stops after every event and goes on from its cursor sees each once, whoever recorded it.
#[test]
fn a_cursor_is_exact() {
    let scratch = Scratch::new("cursor");
    let mut cursor: Option<String> = None;
    let (mut told, mut made) = (Vec::new(), BTreeSet::new());
    for round in 0..6 {
        // A writer of its own each time; the old ones are closed, and their segments sealed.
        let run = run_of(&scratch, "run");
        let noise = run_of(&scratch, "another");
        for sample in 0..3 {
            let name = EpisodeName::task(format!("t{round}")).sample(sample);
            let episode = run.episode(name.clone()).expect("begins");
            episode.step(Step::new().reward(1.0)).expect("records");
            episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
            made.insert(run.episode_id(&name));
            record(&noise, &format!("{round}.{sample}"), &[], 0, "finished");
        }
        // Two of three are eaten, by two readers, one after the other.
        for _ in 0..2 {
            let mut follow = run.follow(cursor.as_deref()).expect("follows");
            let (event, next) = follow.next(Duration::from_secs(10)).expect("reads").expect("there is more");
            let RunEvent::Ended { episode, why, .. } = event else { panic!("an end: {event:?}") };
            assert_eq!(why, "finished");
            told.push(episode);
            cursor = Some(next);
        }
    }
    let run = run_of(&scratch, "run");
    let mut follow = run.follow(cursor.as_deref()).expect("follows");
    while let Some((RunEvent::Ended { episode, .. }, _)) = follow.next(Duration::ZERO).expect("reads") {
        told.push(episode);
    }
    assert_eq!(told.len(), 18, "{told:?}");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), made);
    // The cursor of a reader that saw everything shows nothing more.
    let mut again = run.follow(Some(&follow.cursor())).expect("follows");
    assert_eq!(again.next(Duration::ZERO).expect("reads"), None);
}

/// The end that a fenced owner wrote too late is never told; the one that counts is told once.
#[test]
fn a_fenced_end_is_not_told() {
    let scratch = Scratch::new("fenced-end");
    let (one, two) = (run_of(&scratch, "run"), run_of(&scratch, "run"));
    let name = || EpisodeName::task("t");
    let old = one.episode(name()).expect("begins");
    old.step(Step::new()).expect("records");
    let taking = Opening::default().busy(WhenBusy::Take);
    let new = two.open(name(), taking).expect("takes over");
    // It is written, and refused: the log has it, the lineage does not.
    let _ = old.end("finished", Ending::default()).map(|receipt| receipt.wait());
    let _other = one.episode(EpisodeName::task("other")).expect("begins");
    new.end("truncated", Ending::default()).expect("ends").wait().expect("is durable");
    let mut follow = two.follow(None).expect("follows");
    let (event, _) = follow.next(Duration::from_secs(10)).expect("reads").expect("there is one");
    let episode = two.episode_id(&name());
    assert_eq!(event, RunEvent::Ended { episode, attempt: 1, why: "truncated".to_owned() });
    assert_eq!(follow.next(Duration::from_millis(300)).expect("reads"), None);
}

/// A follower that waits hears of an end as it comes, and a cursor from nowhere is refused.
#[test]
fn a_follower_waits() {
    let scratch = Scratch::new("waits");
    let run = run_of(&scratch, "run");
    let mut follow = run.follow(None).expect("follows");
    assert_eq!(follow.next(Duration::ZERO).expect("reads"), None);
    std::thread::scope(|scope| {
        scope.spawn(|| record(&run, "a", &[1.0], 0, "finished"));
        let (event, _) = follow.next(Duration::from_secs(30)).expect("reads").expect("comes");
        assert!(matches!(event, RunEvent::Ended { attempt: 0, .. }));
    });
    let error = run.follow(Some("1~nonsense~00000000")).expect_err("is no cursor").to_string();
    assert!(error.contains("after") && error.contains("nonsense"), "{error}");
}

/// A sealed group is told once, however many tried to seal it, and goes on across a cursor.
#[test]
fn a_seal_is_told_once() {
    let scratch = Scratch::new("seals");
    let (one, two) = (run_of(&scratch, "run"), run_of(&scratch, "run"));
    record(&one, "a", &[1.0], 0, "finished");
    record(&one, "b", &[1.0], 0, "finished");
    let mut follow = two.follow(None).expect("follows");
    let mut told = Vec::new();
    let mut hear = |follow: &mut keepstep::RunFollow| {
        while let Some((event, _)) = follow.next(Duration::from_millis(300)).expect("reads") {
            told.push(event);
        }
        told.clone()
    };
    assert_eq!(hear(&mut follow).len(), 2, "the two ends");
    std::thread::scope(|scope| {
        for run in [&one, &two, &one, &two] {
            scope.spawn(move || run.group("a", 0, 1).seal(None, "trainer", None).expect("seals"));
        }
    });
    let mut again = two.follow(Some(&follow.cursor())).expect("follows");
    let group = one.group("a", 0, 1).id();
    assert_eq!(hear(&mut again)[2..], [RunEvent::Sealed { group }]);
    assert_eq!(hear(&mut again).len(), 3);
}

/// What was told stays told when `compact` moves it, and what comes after is told once.
#[test]
fn a_cursor_outlives_compacting() {
    let scratch = Scratch::new("cursor-compact");
    let first = run_of(&scratch, "run");
    record(&first, "a", &[1.0], 0, "finished");
    first.store().close();
    drop(first);
    let reader = run_of(&scratch, "run");
    let mut follow = reader.follow(None).expect("follows");
    assert!(follow.next(Duration::from_secs(10)).expect("reads").is_some());
    assert_eq!(follow.next(Duration::from_millis(300)).expect("reads"), None);
    let cursor = follow.cursor();
    let options = keepstep::tend::CompactOptions::default().grace(Duration::ZERO);
    for _ in 0..2 {
        reader.store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
    assert_eq!(follow.next(Duration::from_millis(300)).expect("reads"), None, "while it follows");
    record(&reader, "b", &[1.0], 0, "finished");
    let mut again = reader.follow(Some(&cursor)).expect("follows");
    let (event, _) = again.next(Duration::from_secs(10)).expect("reads").expect("there is one");
    let episode = reader.episode_id(&EpisodeName::task("b"));
    assert_eq!(event, RunEvent::Ended { episode, attempt: 0, why: "finished".to_owned() });
    assert_eq!(again.next(Duration::from_millis(300)).expect("reads"), None);
}
