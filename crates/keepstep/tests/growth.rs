//! Cost follows the work: what is read to list a store grows with what was recorded, not with how it was interleaved.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(target_os = "linux")]

mod scratch;

use std::path::Path;

use keepstep::{Ending, Episode, EpisodeName, Options, Step, Store, Value, refs};
use scratch::{Scratch, copy_all};

const STEPS: u64 = 2_000;
const STEP_BYTES: usize = 4_000;

/// What this thread has read by system calls so far: other tests may read at the same time, in the same process.
fn bytes_read() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/io").expect("reads");
    let line = told.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("is told");
    line.parse().expect("is a number")
}

fn list(at: &Path) -> (usize, u64) {
    let store = Store::open(at, Options::default()).expect("opens");
    let before = bytes_read();
    let mut catalog = store.catalog().expect("looks");
    let listed = store.list(&mut catalog).expect("lists");
    assert_eq!(listed.iter().map(|it| it.summary.steps).sum::<u64>(), STEPS);
    assert_eq!(listed.iter().filter_map(|it| it.summary.total_reward).sum::<f64>(), STEPS as f64);
    (listed.len(), bytes_read() - before)
}

/// What listing reads of so many episodes that were recorded side by side: while their recorder lives, and when it was killed.
fn read_for(episodes: u64) -> [u64; 2] {
    let (scratch, dead) = (Scratch::new("growth"), Scratch::new("growth-dead"));
    let options = Options::default().dictionary(false);
    let store = Store::open(&scratch.0, options).expect("opens");
    let run = store.run("run", Value::Null).expect("opens");
    let begin = |number| run.episode(EpisodeName::task(format!("t{number}"))).expect("begins");
    let open: Vec<Episode> = (0..episodes).map(begin).collect();
    let mut noise = 1_u64;
    for at in 0..STEPS {
        let mut byte = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (noise >> 56) as u8
        };
        let data: Vec<u8> = (0..STEP_BYTES).map(|_| byte()).collect();
        let step = Step::new().observation(Value::bytes(data)).reward(1.0);
        open[(at % episodes) as usize].step(step).expect("records");
    }
    // A copy has no owner: its lock is free.
    copy_all(&scratch.0, &dead.0);
    let told = [&scratch.0, &dead.0].map(|at| list(at));
    assert!(told.iter().all(|(listed, _)| *listed as u64 == episodes));
    told.map(|(_, bytes)| bytes)
}

/// Each episode that was recorded beside others had the whole segment read for it: 64 of them read 8 GB to list 128 MB.
#[test]
fn listing_reads_a_log_as_often_as_its_episodes_are_few() {
    let (alone, many) = (read_for(1), read_for(64));
    let recorded = STEPS * STEP_BYTES as u64;
    for (stage, (alone, many)) in ["live", "killed"].iter().zip(alone.into_iter().zip(many)) {
        assert!(alone >= recorded / 2, "{stage}: {alone} bytes were read of {recorded}");
        assert!(many < 2 * alone, "{stage}: {many} bytes for 64 episodes, {alone} for one");
    }
}

/// A program that asks for a state which no step has, at each of its turns, read all inherited steps each time.
#[test]
fn a_state_that_was_never_recorded_is_looked_for_once() {
    let scratch = Scratch::new("absent");
    let name = || EpisodeName::task("task");
    let first = scratch.run().episode(name()).expect("begins");
    for at in 0..200 {
        let padding = Value::bytes(vec![at as u8; 2_000]);
        first.step(Step::new().observation(padding).state([("at", at)])).expect("records");
    }
    drop(first);
    let again = scratch.run().episode(name()).expect("resumes");
    let read = |state: &str| {
        let before = bytes_read();
        (again.state(state).expect("reads"), bytes_read() - before)
    };
    let (found, bytes) = read("never recorded");
    let (again_found, bytes_again) = read("never recorded");
    assert_eq!((found, again_found), (None, None));
    // What is left is the reading of the counter itself.
    assert!(bytes_again < bytes / 10, "{bytes} bytes were read, then {bytes_again}");
    // A name that another one hid before is found all the same, also once this attempt records it.
    assert_eq!(read("at").0, Some(Value::Int(199)));
    again.step(Step::new().state([("never recorded", 1)])).expect("records");
    assert_eq!(read("never recorded").0, Some(Value::Int(1)));
}

/// What finding an episode by its whole name reads, and then its steps, beside so many other writers.
fn read_to_find(writers: u64) -> u64 {
    let scratch = Scratch::new(&format!("find-{writers}"));
    for number in 0..writers {
        let run = scratch.run();
        let episode = run.episode(EpisodeName::task(format!("t{number}"))).expect("begins");
        (0..3).for_each(|_| drop(episode.step(Step::new().reward(1.0)).expect("records")));
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    let store = scratch.store();
    let before = bytes_read();
    let found = refs::find(&store, "run/t3#0.0").expect("finds");
    assert_eq!((found.listed.state(), found.listed.summary.total_reward), ("finished", Some(3.0)));
    let view = store.view_of(&found.catalog, &found.listed.key).expect("opens");
    assert_eq!(view.read().expect("reads").steps.len(), 3);
    bytes_read() - before
}

/// A name leads by its claim to the one log that has it: the logs of all other writers were read to find an episode.
#[test]
fn finding_a_name_does_not_read_what_others_recorded() {
    let (few, many) = (read_to_find(8), read_to_find(160));
    assert!(many < 2 * few, "{few} bytes were read beside 8 writers, {many} beside 160");
}

/// What a process reads of a stream of so many entries that another one puts, after one more each time: what is new, all of
/// it, and to put its own first entry.
fn read_after_one_more(entries: i64) -> [u64; 3] {
    let scratch = Scratch::new(&format!("stream-{entries}"));
    let putter = scratch.run().stream("tokens");
    let mut noise = 1_u64;
    let mut put = |number: i64| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let text = format!("{noise:016x}").repeat(125);
        putter.put(&number.to_string(), Value::from(text)).expect("puts")
    };
    (0..entries)
        .map(&mut put)
        .collect::<Vec<_>>()
        .iter()
        .for_each(|receipt| receipt.wait().expect("is durable"));
    let stream = scratch.run().stream("tokens");
    let mut reader = stream.reader();
    assert_eq!(reader.look().expect("looks").entries.len() as i64, entries);
    assert_eq!(stream.read().expect("reads").entries.len() as i64, entries);
    let mut read = |number: i64, work: &mut dyn FnMut()| {
        put(number).wait().expect("is durable");
        let before = bytes_read();
        work();
        bytes_read() - before
    };
    let looked = read(-1, &mut || assert_eq!(reader.look().expect("looks").entries.len(), 1));
    let all = read(-2, &mut || assert_eq!(stream.read().expect("reads").entries.len() as i64, entries + 2));
    let first_put =
        read(-3, &mut || stream.put("own", Value::Null).expect("puts").wait().expect("is durable"));
    [looked, all, first_put]
}

/// Each look at a stream read all of it: a thread of LangGraph took six times as long to look at when it was three times as
/// long.
#[test]
fn reading_a_stream_again_reads_what_is_new() {
    let (few, many) = (read_after_one_more(100), read_after_one_more(1_000));
    for (what, (few, many)) in ["look", "read", "first put"].iter().zip(few.into_iter().zip(many)) {
        assert!(many < 2 * few, "{what}: {few} bytes after 100 entries, {many} after 1,000");
        assert!(many < 200_000, "{what}: {many} bytes for one entry of 2,000");
    }
}
