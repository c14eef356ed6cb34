//! Waits for a quiet machine before each measurement, within reason.
//!
//! A compiler on the other core makes an fdatasync take 4 ms, a tick of the scheduler, in place of 0.13: whoever is
//! measured then looks bad, and which of a pair that is, is luck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

/// Of all processors together; the bench itself is idle while this is looked at.
const BUSY_MAX: f64 = 0.15;
const LOOK: Duration = Duration::from_millis(100);

/// For a whole run. After that it is measured all the same, and said.
static PATIENCE_MS: AtomicU64 = AtomicU64::new(0);
static WAITED_MS: AtomicU64 = AtomicU64::new(0);
static MEASURED: AtomicU64 = AtomicU64::new(0);
static MEASURED_BUSY: AtomicU64 = AtomicU64::new(0);

pub fn set_patience(patience: Duration) {
    PATIENCE_MS.store(patience.as_millis() as u64, Ordering::Relaxed);
}

/// Returns when others leave the processors alone, or when this run has waited enough.
pub fn wait() {
    MEASURED.fetch_add(1, Ordering::Relaxed);
    while busy_share() > BUSY_MAX {
        if WAITED_MS.fetch_add(LOOK.as_millis() as u64, Ordering::Relaxed)
            >= PATIENCE_MS.load(Ordering::Relaxed)
        {
            MEASURED_BUSY.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// How quiet it was, for whoever judges the numbers.
pub fn describe() -> String {
    let busy = MEASURED_BUSY.load(Ordering::Relaxed);
    let measured = MEASURED.load(Ordering::Relaxed);
    let waited_s = WAITED_MS.load(Ordering::Relaxed) as f64 / 1e3;
    if busy == 0 {
        format!("{measured} measurements on a quiet machine, after {waited_s:.0} s of waiting for it")
    } else {
        format!(
            "{busy} OF {measured} MEASUREMENTS BEGAN WHILE OTHERS USED THE PROCESSORS: run it again on a quiet machine"
        )
    }
}

fn busy_share() -> f64 {
    let (busy_before, all_before) = processor_ticks();
    thread::sleep(LOOK);
    let (busy, all) = processor_ticks();
    (busy - busy_before) as f64 / (all - all_before).max(1) as f64
}

/// Ticks that all processors together were busy, and all ticks; zeros where the kernel does not say.
fn processor_ticks() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        first.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
    let all = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}
