//! Files that are gone, or emptied: an incomplete copy of a store has no damaged byte in it, and is not whole.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use keepstep::{Ending, EpisodeName, Error, Options, RemainingOptions, Run, Step, Store, Value};

use scratch::Scratch;

fn name(task: &str) -> EpisodeName {
    EpisodeName::task(task)
}

fn step(index: i64) -> Step {
    Step::new().action(index).reward(1.0)
}

/// Three attempts at one episode, of a step each; one that finished, in a sealed group; planned both.
fn recorded(scratch: &Scratch) {
    for attempt in 0..3 {
        let store = Store::open(&scratch.0, Options::default()).expect("opens");
        let run = store.run("run", Value::Null).expect("opens");
        if attempt == 0 {
            let tasks = ["half".to_owned(), "done".to_owned()];
            run.plan(tasks, keepstep::PlanOptions::default()).expect("plans");
            let done = run.episode(name("done")).expect("begins");
            done.step(step(0)).expect("records");
            done.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
            drop(done);
            run.group("done", 0, 1).seal(None, "test", None).expect("seals");
        }
        let half = run.episode(name("half")).expect("goes on");
        half.step(step(attempt)).expect("records");
        drop(half);
        store.close();
    }
}

fn run_of(scratch: &Scratch) -> Run {
    Store::open(&scratch.0, Options::default()).expect("opens").run("run", Value::Null).expect("opens")
}

fn is_whole(scratch: &Scratch) -> bool {
    let store = Store::open(&scratch.0, Options::default()).expect("opens");
    store.verify(&mut |_| {}).expect("verifies").is_whole()
}

fn listed_return(run: &Run, task: &str) -> Option<f64> {
    let listed = run.episodes(&keepstep::EpisodeFilter::default()).expect("lists");
    let of = |it: &&keepstep::Listed| it.summary.task.as_deref() == Some(task);
    listed.iter().find(of).and_then(|it| it.summary.total_reward)
}

fn is_damaged<T: std::fmt::Debug>(what: keepstep::Result<T>) {
    assert!(matches!(what, Err(Error::Damaged { .. })), "{what:?}");
}

/// A base that was deleted passed for one that never was: the steps behind it were gone without a word, and sums were of a part.
#[test]
fn a_base_that_is_gone_is_damage() {
    for (base, views) in [(2, false), (1, true)] {
        let scratch = Scratch::new("gone-base");
        recorded(&scratch);
        assert!(is_whole(&scratch));
        assert_eq!(listed_return(&run_of(&scratch), "half"), Some(3.0));
        let run = run_of(&scratch);
        let id = run.episode_id(&name("half")).to_string();
        std::fs::remove_file(scratch.0.join(format!("claims/{}/{id}.{base}.base", &id[..2]))).unwrap();
        assert!(!is_whole(&scratch), "base {base}");
        let run = run_of(&scratch);
        assert_eq!(listed_return(&run, "half"), None, "base {base}: a part of it would be a wrong answer");
        if views {
            assert_eq!(run.view(&name("half")).expect("the newest base says all").steps(), 3);
        } else {
            is_damaged(run.view(&name("half")));
            is_damaged(run.episode(name("half")));
            let left = run.remaining_list(&RemainingOptions::default()).expect("looks");
            assert_eq!(left.iter().map(|(_, why)| &**why).collect::<Vec<_>>(), ["damaged"]);
        }
    }
}

/// An episode whose log was emptied began again from nothing; one that had finished was offered to be done again.
#[test]
fn a_log_that_was_emptied_is_damage() {
    let scratch = Scratch::new("gone-log");
    recorded(&scratch);
    let first = std::fs::read_dir(scratch.0.join("writers")).unwrap().flatten().map(|it| it.path());
    for writer in first {
        std::fs::write(writer.join("0.seg"), b"").unwrap();
    }
    assert!(!is_whole(&scratch));
    let run = run_of(&scratch);
    for task in ["half", "done"] {
        is_damaged(run.view(&name(task)));
        is_damaged(run.episode(name(task)));
    }
    let left = run.remaining_list(&RemainingOptions::default()).expect("looks");
    assert!(left.iter().all(|(_, why)| &**why == "damaged"), "{left:?}");
}

/// With its whole log gone, a sealed member was missing, and the store was called whole.
#[test]
fn what_a_seal_names_must_be_there() {
    let scratch = Scratch::new("gone-member");
    recorded(&scratch);
    std::fs::remove_dir_all(scratch.0.join("writers")).unwrap();
    let store = Store::open(&scratch.0, Options::default()).expect("opens");
    let report = store.verify(&mut |_| {}).expect("verifies");
    assert!(!report.is_whole());
    assert!(report.damage.iter().any(|it| it.path.starts_with("groups/")), "{report:?}");
    assert_eq!(report.unrecorded.len(), 2, "{report:?}");
}

/// What `compact` made was gone, and everything that had finished was offered to be done again.
#[test]
fn a_regrouped_segment_that_is_gone_is_damage() {
    let scratch = Scratch::new("gone-grouped");
    recorded(&scratch);
    let store = Store::open(&scratch.0, Options::default()).expect("opens");
    let options = keepstep::tend::CompactOptions::default().grace(std::time::Duration::ZERO);
    assert!(store.compact(options, &mut |_| {}).expect("compacts").logs > 0);
    std::fs::remove_file(scratch.0.join("grouped/0.seg")).unwrap();
    assert!(!is_whole(&scratch));
    let left = run_of(&scratch).remaining_list(&RemainingOptions::default()).expect("looks");
    assert!(!left.is_empty() && left.iter().all(|(_, why)| &**why == "damaged"), "{left:?}");
}

/// What `verify` says of a store of which one file was removed, when nobody has opened it since, and when the runs and
/// episodes of it were opened again.
fn verified_without(file: &str) -> Vec<keepstep::tend::Report> {
    [false, true]
        .map(|opens| {
            let scratch = Scratch::new("gone-file");
            recorded(&scratch);
            assert!(is_whole(&scratch));
            let run = run_of(&scratch);
            let id = run.episode_id(&name("half")).to_string();
            let group = keepstep_format::ids::group(&run.generation_id(), "done", 0).to_string();
            let folder = keepstep_format::ids::run_folder("run").to_string();
            drop(run);
            let path = file
                .replace("{claim}", &format!("claims/{}/{id}", &id[..2]))
                .replace("{group}", &format!("groups/{}/{group}", &group[..2]))
                .replace("{run}", &format!("runs/{folder}"));
            std::fs::remove_file(scratch.0.join(&path)).expect(&path);
            if opens {
                let store = Store::open(&scratch.0, Options::default()).expect("opens");
                // Whether it can still be opened is not asked here.
                let _ = store.run("run", Value::Null).and_then(|run| {
                    let half = run.episode(name("half"))?;
                    half.step(step(7))
                });
                store.close();
            }
            let store = Store::open(&scratch.0, Options::default()).expect("opens");
            store.verify(&mut |_| {}).expect("verifies")
        })
        .into()
}

/// The claims of an attempt, and the card of its run, could be removed, and the store was called whole: the episode began
/// again beside its steps.
#[test]
fn what_records_rest_on_must_be_there() {
    for file in ["{claim}.0.claim", "{claim}.1.claim", "{claim}.2.claim", "{claim}.1.base", "{run}/0.run"] {
        for (stage, report) in verified_without(file).into_iter().enumerate() {
            assert!(!report.is_whole(), "{file} at stage {stage}: {report:?}");
            let is_gone = |it: &keepstep::tend::Damage| it.wrong == keepstep::tend::Wrong::Gone;
            assert!(report.damage.iter().all(is_gone), "{file}: {report:?}");
        }
    }
}

/// A seal is announced before it is made: that it is not there is said, and is no damage.
#[test]
fn a_seal_that_is_not_there_is_told() {
    for report in verified_without("{group}.seal") {
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(report.unsealed.len(), 1);
    }
}

/// The only segment of a writer in the middle was removed: what the attempts behind it inherit is missing, by name.
#[test]
fn what_a_base_names_must_be_there() {
    let scratch = Scratch::new("gone-span");
    recorded(&scratch);
    let id = run_of(&scratch).episode_id(&name("half"));
    let writers: Vec<_> = std::fs::read_dir(scratch.0.join("writers")).unwrap().flatten().collect();
    let mut missed = 0;
    for writer in writers {
        let (log, aside) = (writer.path().join("0.seg"), scratch.0.join("aside"));
        std::fs::rename(&log, &aside).unwrap();
        let report = Store::open(&scratch.0, Options::default()).expect("opens").verify(&mut |_| {}).unwrap();
        std::fs::rename(&aside, &log).unwrap();
        missed += usize::from(report.missing.iter().any(|it| it.bind.id == id));
    }
    assert_eq!(missed, 2, "two of the three attempts were gone on from");
    assert!(is_whole(&scratch));
}

/// Only the entries of those who claimed a stream count.
#[test]
fn the_claim_of_a_stream_must_be_there() {
    let scratch = Scratch::new("gone-stream");
    let store = Store::open(&scratch.0, Options::default()).expect("opens");
    let run = store.run("run", Value::Null).expect("opens");
    run.stream("told").put("a", Value::from(1)).expect("puts").wait().expect("is durable");
    store.close();
    assert!(is_whole(&scratch));
    let claims = std::fs::read_dir(scratch.0.join("streams")).unwrap().flatten();
    for folder in claims.filter(|it| it.path().is_dir()) {
        std::fs::remove_dir_all(folder.path()).unwrap();
    }
    assert!(!is_whole(&scratch));
}

/// The whole log of a process that had closed it was removed, and the store was called whole: nobody had gone on from it.
#[test]
fn a_log_that_was_closed_must_be_there() {
    let scratch = Scratch::new("gone-closed");
    recorded(&scratch);
    for log in scratch.files(".seg") {
        let aside = scratch.0.join("aside");
        std::fs::rename(&log, &aside).unwrap();
        assert!(!is_whole(&scratch), "{log:?}");
        std::fs::rename(&aside, &log).unwrap();
    }
    let store = Store::open(&scratch.0, Options::default()).expect("opens");
    let options = keepstep::tend::CompactOptions::default().grace(std::time::Duration::ZERO);
    for _ in 0..3 {
        store.compact(options.clone(), &mut |_| {}).expect("compacts");
        assert!(is_whole(&scratch), "what was moved is no loss");
    }
}
