//! Cost follows the work: what is read to list a store grows with what was recorded, not with how it was interleaved.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(target_os = "linux")]

mod scratch;

use std::path::Path;

use keepstep::{Episode, EpisodeName, Options, Step, Store, Value};
use scratch::Scratch;

const STEPS: u64 = 2_000;
const STEP_BYTES: usize = 4_000;

/// What this process has read by system calls so far. Tests that count it run in a process of their own.
fn bytes_read() -> u64 {
    let told = std::fs::read_to_string("/proc/self/io").expect("reads");
    let line = told.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("is told");
    line.parse().expect("is a number")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("creates");
    for entry in std::fs::read_dir(from).expect("lists").flatten() {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copies")),
        }
    }
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
    copy(&scratch.0, &dead.0);
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
