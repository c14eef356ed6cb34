//! Every crash point of small recordings, then random ones: whatever the power takes, §1 of the design holds.
//!
//! `KEEPSTEP_CRASH_POINTS` says how many states are looked at in all (`make crash-million` says a million);
//! `KEEPSTEP_SEED` repeats a run. The broken variants must be caught, or the test proves nothing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "crash/oracle.rs"]
mod oracle;
#[path = "crash/workload.rs"]
mod workload;

use keepstep::Broken;
use keepstep::Level;
use keepstep::disk::sim::{SimDisk, Trace};
use workload::{Acknowledged, WORKLOADS, Workload, options};

/// A cut with so few states is looked at in all of them.
const STATES_OF_A_CUT_MAX: u64 = 4096;

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seed() -> u64 {
    number_from("KEEPSTEP_SEED", 20_261_115)
}

fn traced(workload: &Workload, seed: u64, broken: Option<Broken>) -> Trace {
    let sim = SimDisk::new(seed);
    (workload.record)(&sim, options(broken));
    sim.trace()
}

fn acknowledged(trace: &Trace, cut: usize) -> Vec<Acknowledged> {
    trace.events_before(cut).iter().map(|event| Acknowledged::from_event(*event)).collect()
}

/// What looking at many states found.
#[derive(Default)]
struct Findings {
    states: u64,
    cuts: u64,
    steps_found: u64,
    broke: Vec<String>,
}

impl Findings {
    fn look(
        &mut self,
        workload: &Workload,
        trace: &Trace,
        cut: usize,
        which: &str,
        state: &SimDisk,
        survived: Level,
    ) {
        self.states += 1;
        let acknowledged = acknowledged(trace, cut);
        let checked = oracle::check(workload, state, &acknowledged, survived);
        let checked = checked.and_then(|found| {
            self.steps_found += found;
            // Now and then: recording goes on from here.
            if self.states.is_multiple_of(16) { oracle::goes_on(state) } else { Ok(()) }
        });
        if let Err(why) = checked {
            let after = trace.operation_before(cut);
            self.broke.push(format!("{}: cut {cut} ({after}), {which}: {why}", workload.name));
        }
    }
}

/// Looks at every cut of a recording: all its states if they are few, else as many as it is given.
fn enumerate(
    workload: &Workload,
    trace: &Trace,
    seed: u64,
    states_each: u64,
    findings: &mut Findings,
    stop_early: bool,
) {
    for cut in 0..trace.cuts() {
        if stop_early && !findings.broke.is_empty() {
            return;
        }
        findings.cuts += 1;
        findings.look(workload, trace, cut, "killed", &trace.killed(cut), Level::Kill);
        if !trace.is_new(cut) {
            continue;
        }
        let count = trace.state_count(cut);
        if count <= states_each.min(STATES_OF_A_CUT_MAX) {
            for index in 0..count {
                findings.look(
                    workload,
                    trace,
                    cut,
                    &format!("state {index}"),
                    &trace.state(cut, index),
                    Level::Power,
                );
            }
        } else {
            for nth in 0..states_each {
                let seed = seed.wrapping_mul(1_000_003).wrapping_add(nth);
                findings.look(
                    workload,
                    trace,
                    cut,
                    &format!("seed {seed}"),
                    &trace.random_state(cut, seed),
                    Level::Power,
                );
            }
        }
    }
}

/// Whatever the power takes, at whatever point, in whatever combination: §1 holds.
#[test]
fn no_crash_point_breaks_a_promise() {
    let wanted = number_from("KEEPSTEP_CRASH_POINTS", 30_000);
    let mut findings = Findings::default();
    let mut round = 0;
    while findings.states < wanted {
        for workload in WORKLOADS {
            let seed = seed() + round;
            let trace = traced(workload, seed, None);
            // Small ones are enumerated, in the first round; the others take their share of random states.
            let share = wanted / WORKLOADS.len() as u64 / trace.cuts() as u64;
            let each =
                if workload.is_small && round == 0 { STATES_OF_A_CUT_MAX } else { share.clamp(4, 2000) };
            enumerate(workload, &trace, seed, each, &mut findings, false);
            let seen = findings.broke.first();
            assert!(
                seen.is_none(),
                "seed {seed} (KEEPSTEP_SEED={seed}): {} of {}: {seen:?}",
                findings.broke.len(),
                findings.states
            );
        }
        round += 1;
    }
    println!(
        "{} states at {} cuts of {} recordings, {} steps read back, 0 promises broken, seed {}",
        findings.states,
        findings.cuts,
        WORKLOADS.len(),
        findings.steps_found,
        seed()
    );
}

/// A broken variant is caught by at least one recording.
fn must_be_caught(broken: Broken) {
    let mut findings = Findings::default();
    // Seeds of their own: tests run side by side, and writers with one id would pass for one another.
    let seed = seed() + 1_000_000 * (broken as u64 + 1);
    for workload in WORKLOADS {
        let trace = traced(workload, seed, Some(broken));
        enumerate(workload, &trace, seed, 64, &mut findings, true);
        if let Some(why) = findings.broke.first() {
            println!("{broken:?} is caught after {} states: {why}", findings.states);
            return;
        }
    }
    panic!("{broken:?} went unnoticed in {} states", findings.states);
}

#[test]
fn acknowledging_before_the_sync_is_caught() {
    must_be_caught(Broken::AcknowledgeBeforeSync);
}

#[test]
fn skipping_a_directory_sync_is_caught() {
    must_be_caught(Broken::SkipDirectorySync);
}

#[test]
fn a_log_without_salt_is_caught() {
    must_be_caught(Broken::NoSalt);
}

#[test]
fn references_decided_by_the_caller_are_caught() {
    must_be_caught(Broken::CallerDecides);
}

#[test]
fn rename_instead_of_exclusive_create_is_caught() {
    must_be_caught(Broken::RenameInsteadOfLink);
}
