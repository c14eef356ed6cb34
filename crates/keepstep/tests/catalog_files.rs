//! The catalog of what `compact` made: an episode is found without reading all indexes, and no catalog is ever wrong.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(target_os = "linux")]

mod scratch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use keepstep::tend::CompactOptions;
use keepstep::{Ending, EpisodeName, Error, Step, Value, refs};
use scratch::{Scratch, copy_all};

/// What this thread has read by system calls so far.
fn bytes_read() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/io").expect("reads");
    let line = told.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("is told");
    line.parse().expect("is a number")
}

/// Records so many episodes by one writer, each with a step that says which it is.
fn record(at: &Path, numbers: std::ops::Range<u64>) {
    let run = scratch::open(at, keepstep::Options::default())
        .expect("opens")
        .run("run", Value::Null)
        .expect("opens");
    for number in numbers {
        let episode = run.episode(EpisodeName::task(format!("t{number}"))).expect("begins");
        episode.step(Step::new().action(number as i64).reward(number as f64)).expect("records");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    run.store().close();
}

fn compact(at: &Path) {
    let store = scratch::open(at, keepstep::Options::default()).expect("opens");
    // Few episodes a segment, and short segments stay as they are.
    let options = CompactOptions::default().grace(Duration::ZERO).subjects_max(40);
    let report = store.compact(options, &mut |_| {}).expect("compacts");
    assert!(report.left_alone.is_empty(), "{report:?}");
}

/// What a new process is told of an episode that it looks for.
fn found(at: &Path, number: u64) -> String {
    let store = scratch::open(at, keepstep::Options::default()).expect("opens");
    let found = match refs::find(&store, &format!("run/t{number}#0.0")) {
        Ok(found) => found,
        Err(error) => return format!("{error}"),
    };
    let view = store.view_of(&found.catalog, &found.listed.key).expect("opens");
    let read = view.read().expect("reads");
    format!("{} {:?} {:?}", found.listed.state(), found.listed.summary.total_reward, read.steps)
}

/// The same, and of one that it wants to open.
fn told(at: &Path, number: u64) -> String {
    let run = scratch::open(at, keepstep::Options::default())
        .expect("opens")
        .run("run", Value::Null)
        .expect("opens");
    let again = match run.episode(EpisodeName::task(format!("t{number}"))) {
        Err(Error::Ended { why, .. }) => why,
        Err(other) => format!("{other}"),
        Ok(_) => "is open again".to_owned(),
    };
    format!("{} {again}", found(at, number))
}

fn all_told(at: &Path, numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(|number| told(at, number)).collect()
}

/// Fails with the first difference alone.
fn assert_same(now: &[String], before: &[String]) {
    let differs = now.iter().zip(before).enumerate().find(|(_, (now, before))| now != before);
    assert!(differs.is_none() && now.len() == before.len(), "{differs:?}");
}

fn catalog_of(scratch: &Scratch) -> Vec<PathBuf> {
    scratch.files(".catalog")
}

/// What finding one of so many episodes reads, after `compact`: with the catalog and without it.
fn read_to_find(episodes: u64) -> [u64; 2] {
    let scratch = Scratch::new(&format!("find-{episodes}"));
    record(&scratch.0, 0..episodes);
    compact(&scratch.0);
    let read = || {
        let before = bytes_read();
        assert!(told(&scratch.0, episodes / 3).starts_with("finished"));
        bytes_read() - before
    };
    let with = read();
    for path in catalog_of(&scratch) {
        std::fs::remove_file(path).expect("removes");
    }
    [with, read()]
}

/// All indexes were read to find one episode, and to see that an episode is over.
#[test]
fn finding_an_episode_does_not_read_the_indexes_of_all() {
    let ([few, few_without], [many, many_without]) = (read_to_find(200), read_to_find(1600));
    println!(
        "among 200 episodes {few} bytes, without the catalog {few_without}; among 1,600 {many}, {many_without}"
    );
    assert!(many < 2 * few, "{few} bytes were read among 200 episodes, {many} among 1,600");
    assert!(many_without > 4 * few_without, "without the catalog {few_without}, then {many_without}");
}

/// However often a store is compacted, it has few files of the catalog, and all of them together know every episode.
#[test]
fn many_rounds_leave_few_files() {
    let scratch = Scratch::new("rounds");
    for round in 0..24 {
        record(&scratch.0, round * 4..round * 4 + 4);
        compact(&scratch.0);
        assert!(catalog_of(&scratch).len() <= 6, "round {round}: {:?}", catalog_of(&scratch));
    }
    let with = all_told(&scratch.0, 0..96);
    assert!(with.iter().all(|told| told.starts_with("finished")), "{with:?}");
    for path in catalog_of(&scratch) {
        std::fs::remove_file(path).expect("removes");
    }
    assert_same(&all_told(&scratch.0, 0..96), &with);
    // The next `compact` makes it again, though it has nothing else to do.
    compact(&scratch.0);
    assert_eq!(catalog_of(&scratch).len(), 1);
    assert_same(&all_told(&scratch.0, 0..96), &with);
}

/// Each byte of a catalog is changed, and each length is tried: it is slower, and never another answer.
#[test]
fn a_damaged_catalog_changes_no_answer() {
    let scratch = Scratch::new("damaged");
    record(&scratch.0, 0..20);
    compact(&scratch.0);
    let with: Vec<String> = (0..20).map(|number| found(&scratch.0, number)).collect();
    let path = catalog_of(&scratch).pop().expect("there is one");
    let whole = std::fs::read(&path).expect("reads");
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        for content in [&flipped[..], &whole[..at]] {
            std::fs::write(&path, content).expect("writes");
            let number = at as u64 % 20;
            assert_eq!(found(&scratch.0, number), with[number as usize], "byte {at} of {}", whole.len());
        }
    }
    // Something else under its name.
    std::fs::remove_file(&path).expect("removes");
    std::fs::create_dir(&path).expect("makes");
    let all = || (0..20).map(|number| found(&scratch.0, number)).collect::<Vec<_>>();
    assert_same(&all(), &with);
    compact(&scratch.0);
    assert_same(&all(), &with);
}

/// Two copies of a store that were compacted apart have segments of the same numbers and lengths, with other episodes in
/// them: a catalog tells its own segments by their salts.
#[test]
fn the_catalog_of_another_copy_is_not_believed() {
    let (scratch, other) = (Scratch::new("copy"), Scratch::new("copied"));
    record(&scratch.0, 0..4);
    copy_all(&scratch.0, &other.0);
    record(&scratch.0, 10..40);
    record(&other.0, 50..80);
    compact(&scratch.0);
    compact(&other.0);
    let with = all_told(&scratch.0, 0..80);
    for (from, to) in catalog_of(&other).iter().zip(catalog_of(&scratch)) {
        std::fs::copy(from, to).expect("copies");
    }
    assert_same(&all_told(&scratch.0, 0..80), &with);
}
