//! Runs writers against a ruler for a fixed time: records per second, or the median latency of one.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::quiet;
use crate::rulers::{Contender, Ruler};
use crate::scratch::Scratch;
use crate::settings::Settings;
use crate::stats::median;
use crate::workload::RECORD_BYTES;
use crate::workload::random::Random;

/// Enough for a record and a few calls; 512 default stacks would be half a gigabyte of address space.
const WRITER_STACK_BYTES: usize = 512 << 10;

/// Opens a contender in a fresh directory and gives its records per second.
pub fn throughput(settings: &Settings, contender: Contender, writers: usize) -> f64 {
    let scratch = Scratch::new(&settings.data_dir);
    quiet::wait();
    let ruler = (contender.open)(scratch.path(), writers);
    records_per_second(settings, &*ruler, writers)
}

/// Opens a contender in a fresh directory and gives one writer's median latency in microseconds.
pub fn lone_p50_us(settings: &Settings, contender: Contender) -> f64 {
    let scratch = Scratch::new(&settings.data_dir);
    quiet::wait();
    let ruler = (contender.open)(scratch.path(), 1);
    let (warm_up, measured) = (settings.warm_up, settings.measured);
    let mut random = Random::new(0);
    let mut record = [0; RECORD_BYTES];
    let mut latencies = Vec::with_capacity(1 << 16);
    let begin = Instant::now();
    while begin.elapsed() < warm_up + measured {
        random.fill(&mut record);
        let start = Instant::now();
        ruler.append(0, &record);
        if start - begin > warm_up {
            latencies.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    median(&mut latencies)
}

/// Records per second over the measured time, with all writers running before and after it.
pub fn records_per_second(settings: &Settings, ruler: &dyn Ruler, writers: usize) -> f64 {
    let stop = AtomicBool::new(false);
    let together = Barrier::new(writers + 1);
    let counts: Vec<Count> = (0..writers).map(|_| Count::default()).collect();
    let total = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum::<u64>();
    thread::scope(|scope| {
        for (writer, count) in counts.iter().enumerate() {
            let (stop, together) = (&stop, &together);
            thread::Builder::new()
                .stack_size(WRITER_STACK_BYTES)
                .spawn_scoped(scope, move || {
                    together.wait();
                    write_until(stop, ruler, writer, count);
                })
                .expect("could not start a writer");
        }
        together.wait();
        thread::sleep(settings.warm_up);
        let (before, start) = (total(), Instant::now());
        thread::sleep(settings.measured);
        let (after, took) = (total(), start.elapsed());
        stop.store(true, Ordering::Relaxed);
        (after - before) as f64 / took.as_secs_f64()
    })
}

fn write_until(stop: &AtomicBool, ruler: &dyn Ruler, writer: usize, count: &Count) {
    let mut random = Random::new(writer as u64);
    let mut record = [0; RECORD_BYTES];
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        random.fill(&mut record);
        ruler.append(writer, &record);
        written += 1;
        count.0.store(written, Ordering::Relaxed);
    }
}

/// Every writer appends this many records.
pub fn write_each(ruler: &dyn Ruler, writers: usize, records_each: u64) {
    thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                let mut random = Random::new(writer as u64);
                let mut record = [0; RECORD_BYTES];
                for _ in 0..records_each {
                    random.fill(&mut record);
                    ruler.append(writer, &record);
                }
            });
        }
    });
}

/// A writer's own count, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// The median of several timings, in milliseconds. Each is prepared before, on a machine that is quiet then.
pub fn median_ms<T>(times: usize, mut prepare: impl FnMut() -> T, run: impl Fn(T) -> Duration) -> f64 {
    let mut timings: Vec<f64> = (0..times)
        .map(|_| {
            let prepared = prepare();
            quiet::wait();
            run(prepared).as_secs_f64() * 1e3
        })
        .collect();
    median(&mut timings)
}
