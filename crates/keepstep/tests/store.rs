//! The store on a real disk: what people will do to it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keepstep::read::FollowFrom;
use keepstep::{
    Ending, Entry, Episode, EpisodeName, Error, Level, Options, RecordNews, Remedy, Step, Store, Value,
};

use scratch::Scratch;

fn name(sample: i64) -> EpisodeName {
    EpisodeName::task("task").sample(sample)
}

fn steps_of(store: &Store, recorder: &Episode) -> Vec<keepstep::read::RecordedStep> {
    let catalog = store.catalog().expect("reads");
    let key = catalog.find(&recorder.id(), 0).expect("is there");
    let attempt = catalog.reader(&key).expect("reads").read().expect("reads");
    assert!(attempt.is_whole(), "{attempt:?}");
    attempt.steps
}

/// What was recorded is read back while the writer still writes, and after it closed.
#[test]
fn steps_are_read_while_they_are_written() {
    let scratch = Scratch::new("live");
    let store = scratch.open(Options::default());
    let run = store.run("run", Value::Null).expect("opens");
    let recorder = run.episode(name(0)).expect("begins");
    let mut messages = Vec::new();
    for step in 0..100i64 {
        messages.push(Value::from(format!("message {step} ").repeat(40)));
        let receipt = recorder
            .step(Step::new().prompt(Value::list(messages.clone())).reward(step as f64))
            .expect("records");
        assert_eq!(receipt.level(), Some(Level::Power));
        if step % 25 == 0 {
            // Readers go as far as the log says it is synced, which it says a moment after the acknowledgement.
            let visible = || Some(steps_of(&store, &recorder)).filter(|steps| steps.len() as i64 == step + 1);
            let tries = std::iter::repeat_with(|| std::thread::sleep(Duration::from_millis(1))).take(10_000);
            let steps = visible().or_else(|| tries.into_iter().find_map(|()| visible())).expect("is seen");
            assert_eq!(steps[step as usize].prompt, Some(Value::list(messages.clone())), "step {step}");
        }
    }
    recorder.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    assert!(matches!(recorder.step(Step::new()), Err(Error::Ended { .. })));
    store.close();
    let again = scratch.open(Options::default());
    assert_eq!(steps_of(&again, &recorder).len(), 100);
    assert!(again.verify(&mut |_| {}).expect("verifies").is_whole());
}

/// Who compresses a step changes nothing of what is stored: the caller, or the committer with a dictionary that came meanwhile.
#[test]
fn a_step_pressed_late_is_the_same_step() {
    let record = |compress_late: bool, dictionary: bool, steps: u64| {
        let scratch = Scratch::new(&format!("late-{compress_late}-{dictionary}"));
        let options = Options::default().compress_late(compress_late).dictionary(dictionary);
        let store = scratch.open(options);
        let recorder = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
        let page = |step: u64| {
            format!("{{\"url\": \"https://shop.example/{step}\", \"links\": {}}}", step * 7919).repeat(20)
        };
        for step in 0..steps {
            recorder
                .record(Entry::step(Step::new().observation(page(step))).waiting_for_room())
                .expect("records");
        }
        recorder.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
        let read = steps_of(&store, &recorder);
        assert_eq!(read.len() as u64, steps);
        assert!((0..).zip(&read).all(|(step, read)| read.observation == Some(Value::from(page(step)))));
        let stored_bytes = store.writer_stats().stored_bytes;
        drop(recorder);
        store.close();
        let again = scratch.open(Options::default());
        assert!(again.verify(&mut |_| {}).expect("verifies").is_whole());
        stored_bytes
    };
    // Times and identities differ by a byte or two a record.
    let (early, late) = (record(false, false, 500), record(true, false, 500));
    assert!(early.abs_diff(late) < early / 50, "{early} and {late} bytes");
    // A dictionary comes when it is trained; what was submitted before and behind it is read alike.
    record(true, true, 3_000);
}

/// A step of 100 MB is kept like any other, and what stands around it too.
#[test]
fn a_step_of_100_mb_works() {
    let scratch = Scratch::new("big");
    let store = scratch.open(Options::default());
    let recorder = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    let mut noise = 1u64;
    let big: Vec<u8> = (0..100_000_000 / 8)
        .flat_map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.to_le_bytes()
        })
        .collect();
    recorder.step(Step::new().observation("before")).expect("records");
    recorder.step(Step::new().observation(Value::bytes(&big))).expect("records");
    recorder.step(Step::new().observation("after")).expect("records");
    let steps = steps_of(&store, &recorder);
    assert_eq!(steps[1].observation.as_ref().and_then(Value::as_bytes), Some(&big[..]));
    assert_eq!(steps[2].observation, Some(Value::from("after")));
    drop(recorder);
    store.close();
    let again = scratch.open(Options::default());
    assert!(again.verify(&mut |_| {}).expect("verifies").is_whole());
}

/// A history that is told again in full costs what is new, also across rotation; siblings share their prompt.
#[test]
fn what_repeats_is_stored_once() {
    let scratch = Scratch::new("dedupe");
    let options = Options::default().segment_bytes_max(64 << 10);
    let store = scratch.open(options);
    let run = store.run("run", Value::Null).expect("opens");
    let mut noise = 7u64;
    let mut message = || {
        let text: String = (0..2048)
            .map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                char::from(32 + (noise >> 57) as u8 % 95)
            })
            .collect();
        Value::from(text)
    };
    let system: Vec<Value> = (0..20).map(|_| message()).collect();
    let recorders: Vec<Episode> = (0..4).map(|sample| run.episode(name(sample)).expect("begins")).collect();
    let mut histories = vec![system.clone(); 4];
    for _ in 0..50 {
        for (recorder, history) in recorders.iter().zip(&mut histories) {
            history.push(message());
            recorder.step(Step::new().prompt(Value::list(history.clone()))).expect("records");
        }
    }
    let stats = store.writer_stats();
    let news = (20 + 4 * 50) * 2048;
    assert!(stats.new_bytes < news * 107 / 100, "{} stored of {news} new: {stats:?}", stats.new_bytes);
    assert!(stats.full_bytes > 30 * stats.new_bytes, "{stats:?}");
    for (recorder, history) in recorders.iter().zip(&histories) {
        let steps = steps_of(&store, recorder);
        assert_eq!(steps[49].prompt, Some(Value::list(history.clone())));
    }
}

/// Compressed media stays as it is; arrays are shuffled and shrink.
#[test]
fn media_is_left_alone_and_arrays_shrink() {
    let scratch = Scratch::new("media");
    let store = scratch.open(Options::default());
    let recorder = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    let mut noise = 3u64;
    let png: Vec<u8> = (0..50_000)
        .map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(5);
            (noise >> 56) as u8
        })
        .collect();
    let image = Value::Media(Arc::from("image/png"), Arc::from(png.as_slice()));
    recorder.step(Step::new().observation(image.clone())).expect("records");
    let before = store.writer_stats().stored_bytes;
    assert!(before >= 50_000);
    let ids: Vec<u8> = (0..20_000i64).flat_map(|i| (i * 3 % 50_000).to_le_bytes()).collect();
    let ids = keepstep::format::value::Array::new(keepstep::format::value::Dtype::I64, vec![20_000], ids)
        .expect("fits");
    recorder.step(Step::new().observation(Value::Array(Arc::new(ids.clone())))).expect("records");
    assert!(store.writer_stats().stored_bytes - before < 160_000 / 4);
    let steps = steps_of(&store, &recorder);
    assert_eq!(steps[0].observation, Some(image));
    assert_eq!(steps[1].observation, Some(Value::Array(Arc::new(ids))));
}

/// `kill` and `power` in one run: a receipt says what was reached, and can be asked for more.
#[test]
fn a_receipt_can_be_upgraded() {
    let scratch = Scratch::new("upgrade");
    let options = Options::default().background_sync(Duration::from_secs(3600));
    let store = scratch.open(options);
    let recorder = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    let receipt =
        recorder.record(Entry::step(Step::new().observation("one")).at(Level::Kill)).expect("submits");
    receipt.wait().expect("is written");
    assert!(receipt.level() >= Some(Level::Kill));
    assert!(receipt.wait_for(Level::Power, None).expect("syncs"));
    assert_eq!(receipt.level(), Some(Level::Power));
    assert!(matches!(receipt.wait_for(Level::Machine, None), Err(Error::LevelOutOfReach { .. })));
}

/// Kill-level steps are synced in the background without being asked.
#[test]
fn kill_level_steps_are_synced_by_and_by() {
    let scratch = Scratch::new("background");
    let store = scratch.open(Options::default());
    let recorder = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    let receipt =
        recorder.record(Entry::step(Step::new().observation("one")).at(Level::Kill)).expect("submits");
    receipt.wait().expect("is written");
    for _ in 0..200 {
        if receipt.level() == Some(Level::Power) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("never synced: {receipt:?}");
}

/// Wrong input names the field, and the episode goes on.
#[test]
fn wrong_input_costs_nothing() {
    let scratch = Scratch::new("input");
    let store = scratch.open(Options::default());
    let run = store.run("run", Value::map([("lr", Value::Float(0.1))])).expect("opens");
    let error = store.run("run", Value::map([("lr", Value::Float(0.2))])).expect_err("refuses");
    assert!(error.to_string().contains("lr was 0.1, is 0.2"), "{error}");
    let recorder = run.episode(name(0)).expect("begins");
    let deep = (0..200).fold(Value::Null, |value, _| Value::list([value]));
    let error = recorder.step(Step::new().info(deep)).expect_err("refuses");
    assert!(matches!(&error, Error::BadInput { field, .. } if field == "info"), "{error}");
    assert_eq!(error.remedy(), Remedy::FixInput);
    let error = recorder.step(Step::new().policy(Value::Null)).expect_err("refuses");
    assert!(error.to_string().starts_with("policy"), "{error}");
    recorder.step(Step::new().observation("fine").reward(f64::NAN)).expect("records");
    let steps = steps_of(&store, &recorder);
    assert_eq!((steps.len(), steps[0].index), (1, 0));
    assert!(steps[0].reward.is_some_and(f64::is_nan));
}

/// Memory is not power-safe, and says so; it is good enough for `kill`, which is what one gets who asks for nothing.
#[test]
fn tmpfs_reaches_kill_only() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let scratch = Scratch(shm.join(format!("keepstep-{}", std::process::id())));
    let with = |level| scratch::open(&scratch.0, Options::default().level(level));
    let error = with(Some(Level::Power)).expect_err("never a silent downgrade");
    assert!(error.to_string().contains("tmpfs"), "{error}");
    for level in [None, Some(Level::Kill)] {
        let store = with(level).expect("opens");
        assert_eq!(store.level(), Level::Kill);
        assert_eq!(store.warnings().len(), usize::from(level.is_none()), "{:?}", store.warnings());
        let run = store.run("run", Value::Null).expect("opens");
        let recorder = run.episode(name(level.map_or(0, |_| 1))).expect("begins");
        let receipt = recorder.step(Step::new().observation("one")).expect("records");
        assert_eq!(receipt.level(), Some(Level::Kill));
        let error = receipt.wait_for(Level::Power, None).expect_err("cannot");
        assert!(matches!(error, Error::LevelOutOfReach { .. }), "{error}");
        // What is sealed rests on a sync, which is worth no more here.
        drop(recorder);
        store.close();
        assert_eq!(receipt.level(), Some(Level::Kill), "synced since, and no safer for it");
    }
}

/// The directory is deleted under a recorder: nothing more is acknowledged.
#[test]
fn a_vanished_store_acknowledges_nothing() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("vanish");
    let store = scratch.open(Options::default());
    let recorder = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    recorder.step(Step::new().observation("one")).expect("records");
    std::fs::remove_dir_all(&scratch.0).expect("removes");
    let error = recorder.step(Step::new().observation("two")).expect_err("notices");
    assert!(matches!(error, Error::Vanished { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::Reopen);
}

/// A follower sleeps until something is durable, and sees each record once, in order.
#[test]
fn a_follower_sees_every_step_once() {
    let scratch = Scratch::new("follow");
    let store = scratch.open(Options::default().segment_bytes_max(20_000));
    let run = store.run("run", Value::Null).expect("opens");
    let recorder = run.episode(name(0)).expect("begins");
    let began = store.began(&recorder.id()).expect("reads");
    let mut follow = store.follow_attempt(began[0].key, FollowFrom::Start).expect("follows");
    let seen = std::thread::spawn(move || {
        let mut indices = Vec::new();
        while indices.len() < 100 {
            let news = follow.next(Duration::from_secs(20)).expect("follows");
            let RecordNews::Record(item) = news else { break };
            if let keepstep::read::Item::Record(record) = *item {
                indices.extend(record.get(keepstep::format::fields::INDEX).and_then(Value::as_int));
            }
        }
        indices
    });
    for step in 0..100 {
        recorder.step(Step::new().observation(Value::from(format!("{step} ").repeat(200)))).expect("records");
    }
    assert_eq!(seen.join().expect("no panic"), (0..100).collect::<Vec<i64>>());
}

/// Dozens of processes record into one directory at once, and are all aborted: each step that was acknowledged is there.
#[test]
fn many_processes_record_into_one_directory() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    if let Ok(dir) = std::env::var("KEEPSTEP_TEST_CHILD") {
        let store = Store::open(dir, Options::default()).expect("opens");
        let run = store.run("run", Value::Null).expect("opens");
        let recorder = run.episode(EpisodeName::task(format!("of {}", std::process::id()))).expect("begins");
        for step in 0..20 {
            recorder.step(Step::new().observation(Value::Int(step))).expect("records");
        }
        std::process::abort();
    }
    let scratch = Scratch::new("many");
    let me = std::env::current_exe().expect("is known");
    let child = || {
        Command::new(&me)
            .args(["--exact", "many_processes_record_into_one_directory"])
            .env("KEEPSTEP_TEST_CHILD", &scratch.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts")
    };
    let children: Vec<_> = (0..24).map(|_| child()).collect();
    for mut child in children {
        assert!(!child.wait().expect("ends").success(), "it aborts");
    }
    let store = scratch.open(Options::default());
    let mut catalog = store.catalog().expect("reads");
    let attempts = catalog.attempts().expect("lists");
    assert_eq!(attempts.len(), 24);
    for attempt in attempts {
        let read = catalog.reader(&attempt.key).expect("reads").read().expect("reads");
        assert!(read.is_whole() && read.steps.len() == 20, "{read:?}");
    }
}

/// A forked child cannot write to its parent's log: its handles raise, and it opens the store again for itself.
#[test]
#[allow(unsafe_code)]
fn a_forked_child_gets_a_writer_of_its_own() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("fork");
    let store = scratch.open(Options::default());
    let run = store.run("run", Value::Null).expect("opens");
    let recorder = run.episode(name(0)).expect("begins");
    recorder.step(Step::new().observation("parent")).expect("records");
    // SAFETY: the child calls nothing but what this test is about, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = matches!(recorder.step(Step::new()), Err(Error::Forked { .. }))
            && matches!(run.episode(name(1)), Err(Error::Forked { .. }));
        let goes_on = || -> keepstep::Result<()> {
            let store = scratch::open(&scratch.0, Options::default().background(false))?;
            let recorder = store.run("run", Value::Null)?.episode(name(2))?;
            recorder.step(Step::new().observation("child"))?;
            // Dropping the parent's handles in the child must not touch the parent's log.
            Ok(())
        };
        let code = if is_refused && goes_on().is_ok() { 0 } else { 1 };
        // SAFETY: ends the child without running the test harness a second time.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child was refused, and went on by itself");
    recorder.step(Step::new().observation("parent again")).expect("records");
    assert_eq!(steps_of(&store, &recorder).len(), 2);
    let child_episode = run.episode_id(&name(2));
    let catalog = store.catalog().expect("reads");
    let key = catalog.find(&child_episode, 0).expect("is there");
    assert_eq!(catalog.reader(&key).expect("reads").read().expect("reads").steps.len(), 1);
    assert!(store.verify(&mut |_| {}).expect("verifies").is_whole());
}
