//! Short episodes by the thousand, and going on with one out of a large store.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keepstep::{Ending, EpisodeName, Run, Step, Value};

use super::Got;
use super::plans::open_run;
use crate::engine::EngineFactory;
use crate::measure::median_ms;
use crate::quiet;
use crate::scratch::{Scratch, bytes_below, warm};
use crate::settings::Settings;
use crate::workload::random::fill_step;

const THREADS: u64 = 64;
const STEPS: u64 = 3;
const SHORT: Duration = Duration::from_secs(5);

/// Episodes of 3 steps, begun and ended at `power` by one process.
pub fn short_per_second(settings: &Settings, _: &dyn EngineFactory) -> Vec<Got> {
    let scratch = Scratch::new(&settings.data_dir);
    let run = open_run(scratch.path());
    quiet::wait();
    let (next, start) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while start.elapsed() < SHORT {
                    record(&run, next.fetch_add(1, Ordering::Relaxed), STEPS, "finished", 2048);
                }
            });
        }
    });
    let per_second = next.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    println!("  {per_second:.0} episodes of {STEPS} steps a second with {THREADS} threads");
    vec![Got { name: "short-episodes", value: per_second }]
}

fn record(run: &Run, task: u64, steps: u64, why: &str, bytes: usize) {
    let episode = run.episode(EpisodeName::task(task.to_string())).expect("could not begin");
    let mut content = vec![0; bytes];
    for step in 0..steps {
        fill_step(task, step, &mut content);
        let state = [("at", Value::Int(step as i64))];
        episode.step(Step::new().observation(Value::bytes(&content)).state(state)).expect("could not record");
    }
    let ended = episode.end(why, Ending::default()).expect("could not end");
    ended.wait().expect("could not make the end durable");
}

const EPISODES: u64 = 100_000;
const EPISODES_QUICK: u64 = 5_000;
/// With 5 steps each this makes 1 GiB.
const BIG_STEP_BYTES: usize = 2_100;
const BIG_STEPS: u64 = 5;
const TIMES: usize = 25;

/// Goes on with interrupted episodes of a dead writer, with a store that has been opened before.
pub fn open_in_a_large_store(settings: &Settings, _: &dyn EngineFactory) -> Vec<Got> {
    let episodes = if settings.quick { EPISODES_QUICK } else { EPISODES };
    let scratch = Scratch::new(&settings.data_dir);
    build(scratch.path(), episodes);
    warm(scratch.path());
    let run = open_run(scratch.path());
    // Each once, here and there: one that is open cannot be opened again.
    let mut tasks = (0..episodes).map(|nth| nth * 7919 % episodes);
    let mut another = || EpisodeName::task(tasks.next().expect("there are enough").to_string());
    go_on(&run, another());
    let open_ms = median_ms(TIMES, &mut another, |name| {
        let start = Instant::now();
        go_on(&run, name);
        start.elapsed()
    });
    let bytes = bytes_below(scratch.path());
    println!("  opened and read where to go on in {open_ms:.2} ms: {episodes} episodes in {bytes} bytes");
    vec![Got { name: "open-episode", value: open_ms }]
}

fn build(dir: &Path, episodes: u64) {
    let run = open_run(dir);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= episodes {
                        return;
                    }
                    record(&run, task, BIG_STEPS, "aborted", BIG_STEP_BYTES);
                }
            });
        }
    });
    run.store().close();
}

fn go_on(run: &Run, name: EpisodeName) {
    let episode = run.episode(name).expect("could not open");
    assert_eq!((episode.turns(), episode.resumed()), (BIG_STEPS, Some(0)), "it does not go on");
    let state = episode.state("at").expect("could not read the state");
    assert_eq!(state, Some(Value::Int(BIG_STEPS as i64 - 1)), "the state is not the last one");
    // Ending it is another matter.
    std::mem::forget(episode);
}
