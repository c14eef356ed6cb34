//! Logs that are gone in part or whole, and what readers must not make of that: nothing of an episode passes for never recorded.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::fs::remove_file;
use std::path::PathBuf;
use std::time::Duration;

use keepstep::tend::CompactOptions;
use keepstep::{
    Ending, EpisodeFilter, EpisodeName, Error, Listed, NoteTarget, Opening, Options, PlanOptions,
    RemainingOptions, Run, Step, Store, Value, Why,
};

use scratch::{Scratch, copy_all};

fn name(task: &str) -> EpisodeName {
    EpisodeName::task(task)
}

fn record(run: &Run, task: &str, steps: i64) {
    let episode = run.episode(name(task)).expect("opens");
    for index in 0..steps {
        episode.step(Step::new().action(index).reward(1.0).info("x".repeat(3000).as_str())).expect("records");
    }
    episode.end(Why::Finished, Ending::default()).expect("ends").wait().expect("is durable");
}

fn listed(scratch: &Scratch, task: &str) -> Listed {
    let all = scratch.run().episodes(&EpisodeFilter::default()).expect("lists");
    all.into_iter().find(|it| it.summary.task.as_deref() == Some(task)).expect("is listed")
}

fn is_whole(scratch: &Scratch) -> bool {
    scratch.store().verify(&mut |_| {}).expect("verifies").is_whole()
}

/// One attempt that ended, gone on with behind it by another one; both ended.
fn taken_over(scratch: &Scratch) -> PathBuf {
    let run = scratch.run();
    let episode = run.episode(name("t")).expect("begins");
    episode.step(Step::new().reward(1.0)).expect("records");
    episode.end(Why::Truncated, Ending::default().limit("steps")).expect("ends");
    drop(episode);
    run.store().close();
    let run = scratch.run();
    let more = Opening::default().retry(["truncated"]);
    let episode = run.open(name("t"), more).expect("goes on");
    episode.step(Step::new().reward(1.0)).expect("records");
    episode.end(Why::Finished, Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    let id = run.episode_id(&name("t")).to_string();
    run.store().close();
    scratch.0.join(format!("claims/{}/{id}.1.base", &id[..2]))
}

/// A reader that waited for groups or ends put a void base where one was gone, and from then on nobody could tell.
#[test]
fn who_passes_over_a_claim_buries_no_records() {
    let scratch = Scratch::new("void");
    let base = taken_over(&scratch);
    remove_file(&base).unwrap();
    assert!(!is_whole(&scratch));
    let run = scratch.run();
    let mut events = run.follow(None).expect("follows");
    let mut told = Vec::new();
    while let Some((event, _)) = events.next(Duration::from_millis(300)).expect("looks") {
        told.push(format!("{event:?}"));
    }
    assert!(told.iter().any(|event| event.contains("Unreadable")), "{told:?}");
    let _ = run.group("t", 0, 1).seal(None, "test", None);
    let _ = run.remaining_list(&RemainingOptions::default());
    assert!(!base.exists(), "nobody made another");
    assert!(!is_whole(&scratch));
    assert!(listed(&scratch, "t").trouble.is_some());
}

/// A segment in the middle of a log was not missed: what was in it had never been, and the episode was opened again.
#[test]
fn a_segment_that_a_later_one_names_is_missed() {
    let scratch = Scratch::new("middle");
    let run = scratch.open(Options::default().segment_bytes_max(20_000)).run("run", Value::Null).unwrap();
    let mut state = 7u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state ^ (state >> 29))
    };
    for task in ["a", "b", "c"] {
        let noisy: String = (0..4_000).map(|_| noise()).collect();
        let episode = run.episode(name(task)).expect("opens");
        episode.step(Step::new().reward(1.0).observation(noisy.as_str())).expect("records");
        record(&run, &format!("{task} later"), 1);
        episode.end(Why::Finished, Ending::default()).expect("ends").wait().expect("is durable");
    }
    run.store().close();
    drop(run);
    let segments = scratch.files(".seg");
    assert!(segments.len() > 2, "{segments:?}");
    assert!(is_whole(&scratch));
    let before = answers(&scratch);
    let kept = std::fs::read(&segments[1]).unwrap();
    remove_file(&segments[1]).unwrap();
    assert!(!is_whole(&scratch));
    let store = scratch.store();
    let catalog = store.catalog().expect("reads");
    let number = segments[1].file_name().unwrap().to_string_lossy().into_owned();
    let told = catalog.troubles();
    assert!(told.iter().any(|trouble| trouble.path.ends_with(&number)), "{told:?}");
    let listed = scratch.run().episodes(&EpisodeFilter::default()).expect("lists");
    for one in listed.iter().filter(|it| it.summary.why.is_none()) {
        assert!(one.trouble.is_some() && one.summary.total_reward.is_none(), "{one:?}");
    }
    // Whoever comes meanwhile publishes nothing that stands when it is back.
    for _ in 0..2 {
        let options = CompactOptions::default().grace(Duration::ZERO);
        store.compact(options, &mut |_| {}).expect("compacts the rest");
        assert_eq!(store.reap().expect("reaps").crashed.len(), 0);
    }
    std::fs::write(&segments[1], kept).unwrap();
    assert_eq!(answers(&scratch), before);
}

/// How all episodes ended, with how many steps.
fn answers(scratch: &Scratch) -> Vec<(Option<String>, Option<String>, u64)> {
    let listed = scratch.run().episodes(&EpisodeFilter::default()).expect("lists");
    let said = |it: Listed| (it.summary.task, it.summary.why, it.summary.steps);
    let mut answers: Vec<_> = listed.into_iter().map(said).collect();
    answers.sort();
    answers
}

/// The folder of a writer was gone, and so was all that it had recorded, without a word.
#[test]
fn the_folder_of_a_writer_is_missed() {
    let scratch = Scratch::new("folder");
    taken_over(&scratch);
    let id = scratch.run().view(&name("t")).expect("reads").writer();
    std::fs::remove_dir_all(scratch.0.join(format!("writers/{id}"))).unwrap();
    assert!(!is_whole(&scratch));
    let one = listed(&scratch, "t");
    assert!(one.trouble.is_some() && one.summary.total_reward.is_none(), "{one:?}");
    assert!(!scratch.store().catalog().expect("reads").troubles().is_empty());
    // Nor is it said that it runs, or has not begun.
    let run = scratch.run();
    run.plan(["t", "new"].map(str::to_owned), PlanOptions::default()).expect("plans");
    let progress = run.progress(&RemainingOptions::default()).expect("looks");
    assert_eq!((progress.running, progress.damaged, progress.not_begun), (0, 1, 1));
    let told = keepstep::refs::find(run.store(), "run/new").expect_err("is not there").to_string();
    assert!(told.contains("may have been there"), "{told}");
}

/// Of a writer whose log was compacted nothing is left to be missed; notes are read wherever they are.
#[test]
fn the_folder_of_a_writer_that_was_compacted_is_not_missed() {
    let scratch = Scratch::new("compacted");
    let run = scratch.run();
    record(&run, "t", 1);
    let target = NoteTarget::episode(run.episode_id(&name("t")));
    run.annotate(target, "score", Value::Float(0.5), "judge").expect("notes").wait().expect("is durable");
    run.store().close();
    drop(run);
    let options = CompactOptions::default().grace(Duration::ZERO);
    for _ in 0..2 {
        scratch.store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
    for writer in std::fs::read_dir(scratch.0.join("writers")).unwrap().flatten() {
        std::fs::remove_dir_all(writer.path()).unwrap();
    }
    assert!(is_whole(&scratch));
    assert!(listed(&scratch, "t").trouble.is_none());
    let run = scratch.run();
    let notes = run.notes().expect("reads");
    assert_eq!(notes.notes().of(&run.episode_id(&name("t"))).count(), 1);
}

/// What a scan had found was listed when half of the segment had been cut off since.
#[test]
fn what_was_cut_off_a_scanned_log_is_missed() {
    let scratch = Scratch::new("cut");
    let run = scratch.run();
    let episode = run.episode(name("t")).expect("begins");
    for _ in 0..4 {
        episode.step(Step::new().reward(1.0)).expect("records");
    }
    std::mem::forget((episode, run));
    let copy = Scratch::new("cut-copy");
    copy_all(&scratch.0, &copy.0);
    assert_eq!(listed(&copy, "t").summary.total_reward, Some(4.0), "and the scan is published");
    let segment = copy.files("0.seg").remove(0);
    let bytes = std::fs::metadata(&segment).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(bytes / 2).unwrap();
    let one = listed(&copy, "t");
    assert!(one.trouble.is_some() && one.summary.total_reward.is_none(), "{one:?}");
}

fn fail(run: &Run, task: &str, new_steps: u64) -> Result<(), Error> {
    let episode = run.episode(name(task))?;
    for _ in 0..new_steps {
        episode.step(Step::new().reward(1.0))?;
    }
    episode.end(Why::Errored, Ending::default())?.wait()
}

/// Eleven of twelve long rollouts were given up because four of two hundred calls failed, although each try got on.
#[test]
fn who_gets_on_is_not_given_up() {
    let scratch = Scratch::new("getting-on");
    let run = scratch.run();
    run.plan(["gets on", "does not"], PlanOptions::default()).expect("plans");
    for _ in 0..6 {
        fail(&run, "gets on", 2).expect("fails as it should");
        fail(&run, "does not", 1).expect("fails as it should");
    }
    let left = run.remaining(RemainingOptions::default()).expect("looks");
    let left: Vec<String> = left.map(|job| job.expect("is given").name.task.clone()).collect();
    assert_eq!(left, ["gets on"]);
    let given_up = run.progress(&RemainingOptions::default()).expect("looks").given_up;
    assert_eq!(given_up.iter().map(|it| it.name.task.as_str()).collect::<Vec<_>>(), ["does not"]);
}

/// The score of an attempt that was truncated stood for the one that finished behind it.
#[test]
fn a_score_from_before_an_attempt_is_none_of_its_own() {
    let scratch = Scratch::new("stale-score");
    let run = scratch.run();
    let needs = PlanOptions::default().needs(["score"]);
    run.plan(["t"], needs).expect("plans");
    let id = run.episode_id(&name("t"));
    let judge = |score: f64| {
        run.annotate(NoteTarget::episode(id), "score", Value::Float(score), "judge").unwrap().wait().unwrap();
    };
    let unscored = || {
        let left = scratch.run().remaining_list(&RemainingOptions::default()).expect("looks");
        left.iter().filter(|(_, why)| &**why == "unscored").count()
    };
    let episode = run.episode(name("t")).expect("begins");
    episode.end(Why::Truncated, Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    assert_eq!(unscored(), 1);
    judge(0.0);
    assert_eq!(unscored(), 0);
    let more = Opening::default().retry(["truncated"]);
    let episode = run.open(name("t"), more).expect("goes on");
    episode.end(Why::Finished, Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    assert_eq!(unscored(), 1, "nobody has judged what it came to");
    judge(1.0);
    assert_eq!(unscored(), 0);
}

#[test]
fn a_store_that_is_whole_has_no_troubles() {
    let scratch = Scratch::new("whole");
    taken_over(&scratch);
    assert!(is_whole(&scratch) && listed(&scratch, "t").trouble.is_none());
    let _: Store = scratch.store();
}

/// A store with an episode in what `compact` made: nothing else is left of it.
fn compacted(scratch: &Scratch) {
    let run = scratch.run();
    for task in ["t", "u"] {
        if run.view(&name(task)).is_err() {
            record(&run, task, 400);
        }
    }
    run.store().close();
    drop(run);
    let options = CompactOptions::default().grace(Duration::ZERO);
    for _ in 0..2 {
        scratch.store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
}

/// All ways of asking about an episode that is lost: none may say that nothing was ever recorded, or begin it again.
fn nobody_begins_again(scratch: &Scratch, task: &str) {
    let verified = scratch.store().verify(&mut |_| {});
    assert!(!verified.is_ok_and(|report| report.is_whole()));
    let opened = Store::open(&scratch.0, Options::default()).and_then(|store| store.run("run", Value::Null));
    let Ok(run) = opened else { return };
    let begun = run.episode(name(task)).map(|episode| episode.steps());
    assert!(matches!(begun, Err(Error::Damaged { .. })), "{begun:?}");
    let listed = run.episodes(&EpisodeFilter::default());
    let is_told = |listed: &[Listed]| {
        let mine = listed.iter().filter(|it| it.summary.task.as_deref() == Some(task));
        mine.clone().count() == 0 || mine.clone().all(|it| it.trouble.is_some())
    };
    assert!(listed.as_ref().map_or(true, |listed| is_told(listed)), "{listed:?}");
    run.plan([task.to_owned()], PlanOptions::default()).expect("plans");
    let remains = run.remaining_list(&RemainingOptions::default());
    let is_given =
        |list: Vec<(EpisodeName, std::sync::Arc<str>)>| list.iter().any(|(_, why)| &**why != "damaged");
    assert!(!remains.clone().is_ok_and(is_given), "{remains:?}");
    assert!(run.view(&name(task)).is_err());
}

/// A copy that left out what `compact` made passed for a store in which nothing was recorded.
#[test]
fn the_folder_of_what_was_compacted_is_missed() {
    let scratch = Scratch::new("no-grouped");
    compacted(&scratch);
    std::fs::remove_dir_all(scratch.0.join("grouped")).unwrap();
    nobody_begins_again(&scratch, "t");
}

/// Two copies of a store, each compacted by itself, and one put over the other: both have a manifest of the same number, and
/// what only one of them had was gone without a word.
#[test]
fn a_copy_that_was_compacted_by_itself_is_told_from_the_store() {
    let (scratch, copy) = (Scratch::new("one"), Scratch::new("other"));
    let run = scratch.run();
    record(&run, "t", 2);
    run.store().close();
    drop(run);
    copy_all(&scratch.0, &copy.0);
    let options = CompactOptions::default().grace(Duration::ZERO);
    for _ in 0..2 {
        copy.store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
    compacted(&scratch);
    assert!(is_whole(&scratch) && is_whole(&copy));
    copy_all(&copy.0, &scratch.0);
    nobody_begins_again(&scratch, "u");
}

/// Cut in half, what stands behind the cut is in no index that could be made again.
#[test]
fn what_was_cut_off_a_compacted_log_is_missed() {
    let scratch = Scratch::new("cut-grouped");
    compacted(&scratch);
    let segment = scratch.0.join("grouped/0.seg");
    let bytes = std::fs::metadata(&segment).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(bytes / 8).unwrap();
    for task in ["t", "u"] {
        nobody_begins_again(&scratch, task);
    }
}
