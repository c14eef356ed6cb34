//! Files that are open: bounded by the store, not by how many read it; and too many is told as what it is.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(target_os = "linux")]

mod scratch;

use std::collections::BTreeSet;
use std::time::Duration;

use keepstep::tend::CompactOptions;
use keepstep::{Ending, EpisodeName, Run, RunEvent, RunFollow, Step, Store, Value};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scratch::Scratch;

/// Each process has a log of its own: so many logs, so many files.
const WRITERS: u64 = 150;
/// What a store keeps open, and some for what the test itself has open.
const OPEN_MAX: usize = 128 + 40;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("lists").count()
}

fn open(scratch: &Scratch) -> Store {
    scratch.store()
}

fn name(task: u64) -> EpisodeName {
    EpisodeName::task(format!("t{task}"))
}

/// Nothing can be opened while `act` runs, also if another thread closes something meanwhile.
fn with_no_more_files<T>(act: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(0), maximum: limit.maximum };
    setrlimit(Resource::Nofile, none).expect("sets");
    let done = act();
    setrlimit(Resource::Nofile, limit).expect("sets");
    done
}

/// A follower whose look fails half-way, just when everything was moved, concludes nothing from it: each end is told once.
fn follow_through(store: &Store, run: &Run) {
    let mut follow = run.follow(None).expect("follows");
    let mut told = Vec::new();
    let mut hear = |follow: &mut RunFollow, most: usize| {
        for _ in 0..most {
            match follow.next(Duration::ZERO) {
                Ok(Some((RunEvent::Ended { episode, .. }, _))) => told.push(episode),
                Ok(_) => return Ok(told.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(told.clone())
    };
    hear(&mut follow, 10).expect("follows");
    let options = CompactOptions { grace: Duration::ZERO, ..CompactOptions::default() };
    for _ in 0..2 {
        store.compact(options.clone(), &mut |_| {}).expect("compacts");
    }
    for _ in 0..3 {
        let error = with_no_more_files(|| hear(&mut follow, usize::MAX)).expect_err("no file can be opened");
        assert!(error.is_out_of_files(), "{error:?}");
    }
    let told = hear(&mut follow, usize::MAX).expect("follows");
    let once: BTreeSet<_> = told.iter().collect();
    assert_eq!((told.len() as u64, once.len() as u64), (WRITERS, WRITERS));
}

/// Each kept view had a file open for each writer of the store: 13 views of a store with 78 writers reached the limit of 1024,
/// and what could not be opened then counted as damaged.
#[test]
fn readers_share_what_is_open_and_the_limit_is_told_as_such() {
    let scratch = Scratch::new("descriptors");
    for task in 0..WRITERS {
        let store = open(&scratch);
        let run = store.run("run", Value::Null).expect("opens");
        let episode = run.episode(name(task)).expect("begins");
        for index in 0..3 {
            episode.step(Step::new().reward(f64::from(index))).expect("records");
        }
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
        store.close();
    }
    let store = open(&scratch);
    let run = store.run("run", Value::Null).expect("opens");
    let mut kept = Vec::new();
    for task in 0..WRITERS {
        let mut catalog = store.catalog().expect("looks");
        let listed = store.list_one(&mut catalog, &run.episode_id(&name(task))).expect("lists");
        let view = store.view_of(&catalog, &listed[0].key).expect("reads");
        // Nothing was read yet of the first ones, and the files of others were opened since.
        if task >= 20 {
            assert_eq!(view.step(1).expect("reads").reward, Some(1.0));
        }
        kept.push((catalog, view));
    }
    let open_now = open_files();
    assert!(open_now < OPEN_MAX, "{open_now} files are open for {} views", kept.len());

    // No more can be opened than there are.
    let mut catalog = store.catalog().expect("looks");
    let (refreshed, looked, read) = with_no_more_files(|| {
        let read: Vec<_> = kept.iter().map(|(_, view)| view.step(2).map(|step| step.reward)).collect();
        (catalog.refresh(), store.catalog().map(|_| ()), read)
    });
    for failed in [refreshed, looked] {
        let error = failed.expect_err("no file can be opened");
        assert!(error.is_out_of_files(), "{error:?}");
    }
    let mut refused = 0;
    for read in read {
        match read {
            Ok(reward) => assert_eq!(reward, Some(2.0)),
            Err(error) => {
                assert!(error.is_out_of_files(), "{error:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "more logs than files are kept open");
    follow_through(&store, &run);
    // Nothing of it was remembered.
    catalog.refresh().expect("looks");
    assert!(catalog.troubles().is_empty(), "{:?}", catalog.troubles());
    for (_, view) in &kept {
        assert_eq!(view.step(2).expect("reads").reward, Some(2.0));
    }
}
