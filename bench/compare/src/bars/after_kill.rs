//! A recorder is killed with 128 MB in its open segment: how long the next process takes to open the store.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Got;
use crate::child::{self, Job};
use crate::engine::{EngineFactory, OpenOptions};
use crate::measure::median_ms;
use crate::scratch::{Scratch, copy_tree, evict};
use crate::settings::Settings;
use crate::workload::RECORD_BYTES;
use crate::workload::random::fill_step;

const TIMES: usize = 5;
const WRITERS: u64 = 64;
const OPEN_SEGMENT_BYTES: u64 = 128_000_000;
const OPEN_SEGMENT_BYTES_QUICK: u64 = 16_000_000;
/// Never reached: the segment is still open when its writer dies.
const SEGMENT_BYTES: u64 = 1 << 30;

pub fn open(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let dead = Scratch::new(&settings.data_dir);
    child::kill_when_ready(factory, Job::FillAndHang, dead.path(), settings.quick);
    // A copy for each time: whoever opens the store first may leave a note that spares others the scan.
    let copy = || {
        let copy = Scratch::new(&settings.data_dir);
        copy_tree(dead.path(), copy.path());
        evict(copy.path());
        copy
    };
    let open_ms = median_ms(TIMES, copy, |copy| {
        let start = Instant::now();
        let reader = factory.read(copy.path());
        let episodes = reader.list();
        let took = start.elapsed();
        assert_eq!(episodes as u64, WRITERS, "not all episodes of the dead writer are listed");
        assert!(!reader.read(0).is_empty(), "an acknowledged episode of the dead writer is empty");
        took
    });
    println!("  open and list after kill -9: {open_ms:.1} ms");
    vec![Got { name: "open-after-kill", value: open_ms }]
}

/// The child's part: records until the open segment is big enough, says so, and waits for its end.
pub fn fill_and_hang(factory: &dyn EngineFactory, dir: &Path, quick: bool) {
    let wanted = if quick { OPEN_SEGMENT_BYTES_QUICK } else { OPEN_SEGMENT_BYTES };
    let engine = factory.open(dir, OpenOptions { segment_bytes: Some(SEGMENT_BYTES) });
    let (full, hanging) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for task in 0..WRITERS {
            let (mut episode, full, hanging) = (engine.begin(task), &full, &hanging);
            scope.spawn(move || {
                let mut record = [0; RECORD_BYTES];
                for step in 0.. {
                    fill_step(task, step, &mut record);
                    episode.append(&record);
                    if full.load(Ordering::Relaxed) {
                        break;
                    }
                }
                hanging.fetch_add(1, Ordering::Relaxed);
                // Dropping the episode might end it: the owner must die while it is live.
                hang();
            });
        }
        while engine.stats().open_segment_bytes < wanted {
            thread::sleep(Duration::from_millis(5));
        }
        full.store(true, Ordering::Relaxed);
        while hanging.load(Ordering::Relaxed) < WRITERS {
            thread::sleep(Duration::from_millis(5));
        }
        println!("{}", child::READY);
        hang();
    });
}

fn hang() -> ! {
    loop {
        thread::park();
    }
}
