//! What owning costs the write path: system calls counted by strace, with 64 writers and 4096 live episodes.
//!
//! Opening the episodes, which claims them, is left out: the child marks where it is done by looking for a file that is
//! not there.

use std::path::Path;
use std::process::Command;
use std::{fs, thread};

use super::Got;
use crate::child::{self, Job};
use crate::engine::{EngineFactory, OpenOptions};
use crate::scratch::Scratch;
use crate::settings::Settings;
use crate::workload::random::Random;

const WRITERS: u64 = 64;
const EPISODES: u64 = 4096;
const QUICK_EPISODES: u64 = 512;
const STEPS: u64 = 3;
const RECORD_BYTES: usize = 2048;
const MARK: &str = "keepstep-mark";

pub fn calls_per_batch(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("  strace is not installed here, so that nothing can be counted");
        return Vec::new();
    }
    let scratch = Scratch::new(&settings.data_dir);
    let log = scratch.path().join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=fdatasync,fsync,newfstatat,statx", "-o"]).arg(&log);
    let store = scratch.path().join("store");
    let batches: f64 = child::output_under(command, factory, Job::CountCalls, &store, settings.quick)
        .trim()
        .parse()
        .expect("the child says how many batches it committed");
    let calls = fs::read_to_string(&log).expect("could not read what strace saw");
    let counted: Vec<&str> = calls.lines().skip_while(|line| !line.contains(MARK)).skip(1).collect();
    let until = counted.iter().position(|line| line.contains(MARK)).unwrap_or(counted.len());
    let count =
        |wanted: &dyn Fn(&str) -> bool| counted[..until].iter().filter(|line| wanted(line)).count() as f64;
    // A call that another thread interrupted in the log is shown twice; it is counted where it began.
    let begins = |line: &str| !line.contains("resumed>");
    let syncs = count(&|line| begins(line) && (line.contains("fdatasync(") || line.contains("fsync(")));
    let look_ups = count(&|line| begins(line) && line.contains("\"mail/"));
    println!("  {batches} batches, {syncs} syncs, {look_ups} look-ups");
    vec![
        Got { name: "owning-syncs", value: syncs / batches },
        Got { name: "owning-look-ups", value: look_ups / batches },
    ]
}

/// The child's part: opens all episodes, records, and prints how many batches that took.
pub fn record_between_marks(factory: &dyn EngineFactory, dir: &Path, quick: bool) {
    let episodes = if quick { QUICK_EPISODES } else { EPISODES };
    let engine = factory.open(dir, OpenOptions::default());
    let engine = &*engine;
    let begin = |writer: u64| {
        let tasks = (0..episodes).filter(move |task| task % WRITERS == writer);
        tasks.map(|task| engine.begin(task)).collect::<Vec<_>>()
    };
    let mut opened: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || begin(writer))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    // All beginnings are committed before the counting starts.
    opened.iter_mut().flatten().for_each(|episode| episode.append(&[0]));
    let mut record = vec![0; RECORD_BYTES];
    Random::new(1).fill(&mut record);
    let before = engine.stats().batches;
    let _ = fs::metadata(MARK);
    thread::scope(|scope| {
        for episodes in &mut opened {
            let record = &record;
            scope.spawn(move || {
                for _ in 0..STEPS {
                    episodes.iter_mut().for_each(|episode| episode.append(record));
                }
            });
        }
    });
    let _ = fs::metadata(MARK);
    println!("{}", engine.stats().batches - before);
}
