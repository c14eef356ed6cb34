//! A power cut at every point of a takeover: what either side was promised is there, and a base never rests on what is gone.
//!
//! `KEEPSTEP_CRASH_POINTS` says how many states are looked at (`make takeover-all` says more); `KEEPSTEP_SEED` repeats a run.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "cuts/oracle.rs"]
mod oracle;
#[path = "cuts/workload.rs"]
mod workload;

use keepstep::disk::sim::{SimDisk, Trace};
use keepstep::{Broken, Level};
use workload::{Acknowledged, WORKLOADS, Workload};

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seed() -> u64 {
    number_from("KEEPSTEP_SEED", 20_261_115)
}

fn traced(workload: &Workload, seed: u64, broken: Option<Broken>) -> Trace {
    let sim = SimDisk::new(seed);
    (workload.record)(&sim, broken);
    let trace = sim.trace();
    // A takeover that stopped half-way would prove little.
    assert!(
        broken.is_some() || trace.events().len() == workload.promises,
        "{}: {:?}",
        workload.name,
        trace.events()
    );
    trace
}

#[derive(Default)]
struct Findings {
    states: u64,
    cuts: u64,
    steps_found: u64,
    broke: Option<String>,
}

impl Findings {
    fn look(&mut self, trace: &Trace, cut: usize, which: &str, state: &SimDisk, survived: Level) {
        self.states += 1;
        let acknowledged: Vec<_> =
            trace.events_before(cut).iter().map(|event| Acknowledged::from_event(*event)).collect();
        match oracle::check(state, &acknowledged, survived) {
            Ok(found) => self.steps_found += found,
            Err(why) => {
                let lost = trace.explain(cut, state);
                self.broke = self.broke.take().or(Some(format!("cut {cut}, {which}: {why}\n{lost}")));
            }
        }
    }

    /// Looks at every cut: all its states if they are few, else as many as it is given.
    fn enumerate(&mut self, trace: &Trace, seed: u64, states_each: u64) {
        for cut in 0..trace.cuts() {
            if self.broke.is_some() {
                return;
            }
            self.cuts += 1;
            self.look(trace, cut, "killed", &trace.killed(cut), Level::Kill);
            if !trace.is_new(cut) {
                continue;
            }
            let count = trace.state_count(cut);
            for nth in 0..count.min(states_each) {
                if count <= states_each {
                    self.look(trace, cut, &format!("state {nth}"), &trace.state(cut, nth), Level::Power);
                } else {
                    let seed = seed.wrapping_mul(1_000_003).wrapping_add(nth);
                    let state = trace.random_state(cut, seed);
                    self.look(trace, cut, &format!("random state of {seed}"), &state, Level::Power);
                }
            }
        }
    }
}

/// Wherever the power fails in a takeover, what either side was promised is there, and a third can go on.
#[test]
fn no_cut_in_a_takeover_breaks_a_promise() {
    let wanted = number_from("KEEPSTEP_CRASH_POINTS", 12_000);
    let mut findings = Findings::default();
    let mut round = 0;
    while findings.states < wanted {
        for workload in WORKLOADS {
            let seed = seed() + round;
            let trace = traced(workload, seed, None);
            let share = wanted / WORKLOADS.len() as u64 / trace.cuts() as u64;
            findings.enumerate(&trace, seed, share.clamp(4, 2000));
            assert!(
                findings.broke.is_none(),
                "{} (KEEPSTEP_SEED={seed}): {}",
                workload.name,
                findings.broke.unwrap_or_default()
            );
        }
        round += 1;
    }
    println!(
        "{} states at {} cuts of {} takeovers, {} steps read back, 0 promises broken, seed {}",
        findings.states,
        findings.cuts,
        WORKLOADS.len(),
        findings.steps_found,
        seed()
    );
}

/// A broken variant is caught by at least one takeover.
fn must_be_caught(broken: Broken) {
    let mut findings = Findings::default();
    // Seeds of their own: tests run side by side, and writers with one id would pass for one another.
    let seed = seed() + 1_000_000 * (broken as u64 + 1);
    for workload in WORKLOADS {
        findings.enumerate(&traced(workload, seed, Some(broken)), seed, 64);
        if let Some(why) = findings.broke {
            let first = why.lines().next().unwrap_or_default();
            println!("{broken:?} is caught in {:?} after {} states: {first}", workload.name, findings.states);
            return;
        }
    }
    panic!("{broken:?} went unnoticed in {} states", findings.states);
}

#[test]
fn resting_on_what_nobody_synced_is_caught() {
    must_be_caught(Broken::NoCopy);
}

#[test]
fn skipping_a_directory_sync_is_caught() {
    must_be_caught(Broken::SkipDirectorySync);
}

#[test]
fn acknowledging_before_the_sync_is_caught() {
    must_be_caught(Broken::AcknowledgeBeforeSync);
}
