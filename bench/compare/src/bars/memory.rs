//! 4096 live episodes with heavy steps: the peak of memory, and whether every acknowledged step is there afterwards.
//!
//! The recording runs in a process of its own, so that its peak is not some other measurement's.

use std::fs;
use std::path::Path;

use super::Got;
use super::rounds::record;
use crate::child::{self, Job};
use crate::engine::{EngineFactory, OpenOptions, Reader};
use crate::scratch::Scratch;
use crate::settings::Settings;
use crate::workload::live::{HEAVY, Live};

const QUICK: Live = Live { steps: 5, ..HEAVY };

pub fn peak_and_losses(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let live = workload(settings.quick);
    let scratch = Scratch::new(&settings.data_dir);
    let peak_kib: f64 = child::output(factory, Job::RecordLive, scratch.path(), settings.quick)
        .trim()
        .parse()
        .expect("the child says its peak in KiB");
    let peak_mb = peak_kib * 1024.0 / 1e6;
    let lost = count_lost(live, &*factory.read(scratch.path()));
    println!(
        "  {} episodes × {} steps of {} bytes: peak {peak_mb:.0} MB, {lost} lost",
        live.episodes, live.steps, live.step_bytes
    );
    vec![
        Got { name: "rss-live-4096x50", value: peak_mb },
        Got { name: "lost-live-4096x50", value: lost as f64 },
    ]
}

/// The child's part: records all, and prints the peak of its resident memory in KiB.
pub fn record_and_report(factory: &dyn EngineFactory, dir: &Path, quick: bool) {
    let live = workload(quick);
    let engine = factory.open(dir, OpenOptions::default());
    record(&*engine, live, 0);
    engine.close();
    println!("{}", peak_resident_kib());
}

fn workload(quick: bool) -> Live {
    if quick { QUICK } else { HEAVY }
}

/// Every step was acknowledged, so every one that is not there as it was recorded is lost.
fn count_lost(live: Live, reader: &dyn Reader) -> u64 {
    let lost_of = |task| {
        let found = reader.read(task);
        let is_lost = |step: &u64| found.get(*step as usize) != Some(&live.news(task, *step));
        (0..live.steps).filter(is_lost).count() as u64
    };
    (0..live.episodes).map(lost_of).sum()
}

pub fn peak_resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("could not read /proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel gives VmHWM");
    line.trim().trim_end_matches("kB").trim().parse().expect("VmHWM is a number of kB")
}
