//! A plan of 100,000 episodes: listing what remains of it, the first job, and many processes that claim at once.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keepstep::{Options, PlanOptions, RemainingOptions, Run, Store, Value};

use super::Got;
use crate::child::{self, Job};
use crate::engine::EngineFactory;
use crate::measure::median_ms;
use crate::quiet;
use crate::scratch::{Scratch, copy_tree};
use crate::settings::Settings;

const TASKS: usize = 100_000;
const TASKS_QUICK: usize = 10_000;
const TIMES: usize = 5;
const PROCESSES: usize = 8;
const WORKERS_EACH: usize = 8;

pub fn open_run(dir: &Path) -> Run {
    let store = Store::open(dir, Options::default()).expect("could not open the store");
    store.run("bench", Value::Null).expect("could not open the run")
}

fn planned(settings: &Settings) -> (Scratch, usize) {
    let tasks = if settings.quick { TASKS_QUICK } else { TASKS };
    let scratch = Scratch::new(&settings.data_dir);
    let names = (0..tasks).map(|task| task.to_string());
    open_run(scratch.path()).plan(names, PlanOptions::default()).expect("could not plan");
    (scratch, tasks)
}

/// In a process of its own each time; what it opens is a copy with nothing recorded.
pub fn list_and_first_job(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let (scratch, tasks) = planned(settings);
    let list_ms = timed_by_children(settings, factory, Job::ListPlan, scratch.path());
    let first_ms = timed_by_children(settings, factory, Job::ClaimFirst, scratch.path());
    println!("  a plan of {tasks}: listed in {list_ms:.0} ms, the first job after {first_ms:.1} ms");
    vec![
        Got { name: "plan-list-100k", value: list_ms / 1e3 },
        Got { name: "plan-first-job", value: first_ms },
    ]
}

fn timed_by_children(settings: &Settings, factory: &dyn EngineFactory, job: Job, planned: &Path) -> f64 {
    let copy = || {
        let copy = Scratch::new(&settings.data_dir);
        copy_tree(planned, copy.path());
        copy
    };
    median_ms(TIMES, copy, |copy| {
        let said = child::output(factory, job, copy.path(), settings.quick);
        Duration::from_secs_f64(said.trim().parse().expect("the child says how long it took"))
    })
}

/// The child's part: opens the store, lists what remains, and prints how long that took.
pub fn list_plan(dir: &Path) {
    let start = Instant::now();
    let list = open_run(dir).remaining_list(&RemainingOptions::default()).expect("could not list");
    assert!(!list.is_empty(), "nothing remains");
    println!("{}", start.elapsed().as_secs_f64());
}

/// The child's part: opens the store, claims one job, and prints how long that took.
pub fn first_job(dir: &Path) {
    let start = Instant::now();
    let job = open_run(dir).claim(RemainingOptions::default()).expect("could not claim");
    println!("{}", start.elapsed().as_secs_f64());
    assert!(job.is_some(), "nothing remains");
}

/// 64 workers in 8 processes share one plan.
pub fn claims_per_second(settings: &Settings, factory: &dyn EngineFactory) -> Vec<Got> {
    let (scratch, _) = planned(settings);
    quiet::wait();
    let said = child::outputs(factory, Job::ClaimJobs, scratch.path(), settings.quick, PROCESSES);
    let counts = said.iter().map(|said| said.trim().parse::<f64>().expect("the child says how many"));
    let counts: Vec<f64> = counts.collect();
    let total: f64 = counts.iter().sum();
    println!("  {total:.0} claims/s by {PROCESSES} processes with {WORKERS_EACH} workers each: {counts:.0?}");
    vec![Got { name: "plan-claims", value: total }]
}

/// The child's part: claims jobs with several threads, and prints how many a second it got while all were at it.
pub fn claim_jobs(dir: &Path) {
    let (warm_up, measured) = (Duration::from_secs(3), Duration::from_secs(4));
    let run = open_run(dir);
    let (count, stop, together) = (AtomicU64::new(0), AtomicBool::new(false), Barrier::new(WORKERS_EACH + 1));
    thread::scope(|scope| {
        for _ in 0..WORKERS_EACH {
            scope.spawn(|| {
                let mut jobs = Vec::new();
                let remaining = run.remaining(RemainingOptions::default()).expect("could not look");
                together.wait();
                for job in remaining {
                    jobs.push(job.expect("could not claim"));
                    count.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
                panic!("the plan is too short for this machine");
            });
        }
        together.wait();
        thread::sleep(warm_up);
        let (before, start) = (count.load(Ordering::Relaxed), Instant::now());
        thread::sleep(measured);
        let (after, took) = (count.load(Ordering::Relaxed), start.elapsed());
        stop.store(true, Ordering::Relaxed);
        println!("{}", (after - before) as f64 / took.as_secs_f64());
    });
}
