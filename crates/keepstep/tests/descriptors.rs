//! Files that are open: bounded by the store, not by how many read it; and too many is told as what it is.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(target_os = "linux")]

mod scratch;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keepstep::read::Catalog;
use keepstep::tend::CompactOptions;
use keepstep::{
    Ending, EpisodeName, Level, Options, Run, RunEvent, RunFollow, Step, StepNews, Store, Value, View,
};
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

/// The limit is the whole process's: one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

/// Nothing can be opened while `act` runs, also if another thread closes something meanwhile.
fn with_no_more_files<T>(act: impl FnOnce() -> T) -> T {
    with_limit(0, act)
}

fn with_limit<T>(files: u64, act: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: limit.maximum }).expect("sets");
    let done = act();
    setrlimit(Resource::Nofile, limit).expect("sets");
    done
}

/// Occupies all files but some that this process may open while `act` runs.
fn with_so_many_files<T>(spare: u64, act: impl FnOnce() -> T) -> T {
    with_limit(open_files() as u64 + 1 + spare, || {
        let mut occupied: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        occupied.truncate(occupied.len().saturating_sub(spare as usize));
        act()
    })
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
    let options = CompactOptions::default().grace(Duration::ZERO);
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

/// More segments than are kept open.
const SEGMENTS: u64 = 140;

fn page() -> Value {
    Value::from("a page of a long book. ".repeat(100))
}

/// One log of that many segments. The last two steps stand in one of them, and only the last refers to the first.
fn record_a_long_log(scratch: &Scratch) {
    let options =
        Options::default().level(Level::Kill).segment_bytes_max(2_000).background(false).dictionary(false);
    let store = Store::open(&scratch.0, options).expect("opens");
    let episode = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for index in 0..SEGMENTS {
        let step = Step::new().reward(index as f64);
        let noise = Value::bytes((0..2_100).map(|_| byte()).collect::<Vec<u8>>());
        let step = if index == 0 { step.prompt(page()) } else { step };
        episode.step(step.observation(noise)).expect("records");
    }
    episode.step(Step::new().reward(0.0)).expect("records");
    episode.step(Step::new().prompt(page())).expect("records");
    store.close();
    assert!(scratch.files(".seg").len() as u64 > SEGMENTS);
}

/// With some files left, a look that ran out of them half-way through a log counted the rest as damaged, and what a step
/// refers to as lost.
#[test]
fn running_out_of_files_half_way_is_no_damage() {
    let _limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("half-way");
    record_a_long_log(&scratch);
    let mut refused = 0;
    for spare in [1, 2, 3, 5, 20, 100, 200] {
        let store = open(&scratch);
        match with_so_many_files(spare, || store.catalog()) {
            Ok(catalog) => assert!(catalog.troubles().is_empty(), "{spare} left: {:?}", catalog.troubles()),
            Err(error) => {
                assert!(error.is_out_of_files(), "{spare} left: {error:?}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 6, "the last can open all that is kept open");

    let view = open(&scratch).run("run", Value::Null).expect("opens").view(&name(0)).expect("reads");
    assert_eq!(view.step(SEGMENTS).expect("reads").reward, Some(0.0));
    // Its own record was read with the one before it; what it refers to is in another file.
    let error = with_no_more_files(|| view.step(SEGMENTS + 1)).expect_err("no file can be opened");
    assert!(error.is_out_of_files(), "{error:?}");
    assert_eq!(view.step(SEGMENTS + 1).expect("reads").prompt, Some(page()), "nothing of it was remembered");
}

/// A step that was inherited, and could not be read for a moment, was never told.
#[test]
fn a_follower_that_runs_out_of_files_tells_each_inherited_step_once() {
    let _limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("out-of-files-following");
    record_a_long_log(&scratch);
    let store = open(&scratch);
    let run = store.run("run", Value::Null).expect("opens");
    let next = run.episode(name(0)).expect("goes on");
    next.step(Step::new().reward(-1.0)).expect("records");
    let mut follow = run.view(&name(0)).expect("reads").follow().expect("follows");
    let (mut told, mut failed) = (Vec::new(), 0);
    while told.len() as u64 <= SEGMENTS + 2 {
        let news = match failed < told.len() {
            true => with_no_more_files(|| follow.next(Duration::ZERO)),
            false => follow.next(Duration::ZERO),
        };
        match news {
            Ok(StepNews::Step(step)) => told.push(step.index),
            Ok(other) => panic!("{other:?} after {told:?}"),
            Err(error) => {
                assert!(error.is_out_of_files(), "{error:?}");
                failed += 1;
            }
        }
    }
    assert!(failed > 100, "{failed} looks failed");
    assert!(told.iter().copied().eq(0..told.len() as i64), "{told:?}");
}

/// Each kept view had a file open for each writer of the store: 13 views of a store with 78 writers reached the limit of 1024,
/// and what could not be opened then counted as damaged.
#[test]
fn readers_share_what_is_open_and_the_limit_is_told_as_such() {
    let _limit = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
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
    // The store's own thread may close a file just then, and leave room for one: then it is tried again.
    let refused =
        (0..20).map(|_| refused_without_files(&store, &mut catalog, &kept)).find(|refused| *refused > 0);
    let refused = refused.unwrap_or(0);
    assert!(refused > 0, "more logs than files are kept open");
    follow_through(&store, &run);
    // Nothing of it was remembered.
    catalog.refresh().expect("looks");
    assert!(catalog.troubles().is_empty(), "{:?}", catalog.troubles());
    for (_, view) in &kept {
        assert_eq!(view.step(2).expect("reads").reward, Some(2.0));
    }
}

/// Reads everything while no file can be opened: all that comes is right or told as such; how much is refused.
fn refused_without_files(store: &Store, catalog: &mut Catalog, kept: &[(Catalog, View)]) -> usize {
    let (refreshed, looked, read) = with_no_more_files(|| {
        let read: Vec<_> = kept.iter().map(|(_, view)| view.step(2).map(|step| step.reward)).collect();
        (catalog.refresh(), store.catalog().map(|_| ()), read)
    });
    for error in [refreshed, looked].into_iter().filter_map(Result::err) {
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
    refused
}
