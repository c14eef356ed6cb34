//! Marking attempts of dead processes as `crashed`: many at once, sharing their syncs, and as safe as one by one.
//!
//! `KEEPSTEP_SEED` repeats a run.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, EpisodeName, Level, Options, Run, RunEvent, Step, Store, Value};

fn seed() -> u64 {
    std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

fn run_on(disk: Arc<dyn Files>) -> Run {
    let stall = Duration::from_millis(500);
    let options = Options::default().background(false).stall(stall).dictionary(false);
    Store::on_files(disk, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name(sample: i64) -> EpisodeName {
    EpisodeName::task("task").sample(sample)
}

/// Two processes that were killed with so many episodes open, all in all; each has a step.
fn killed(episodes: i64) -> SimDisk {
    let sim = SimDisk::new(seed());
    for part in 0..2 {
        let process = sim.process();
        let run = run_on(process.clone());
        let begin = |sample| {
            let episode = run.episode(name(sample)).expect("begins");
            episode.step(Step::new().action(sample)).expect("records");
            episode
        };
        let open: Vec<_> = (0..episodes).filter(|sample| sample % 2 == part).map(begin).collect();
        process.kill();
        drop(open);
    }
    let trace = sim.trace();
    trace.killed(trace.cuts() - 1)
}

fn mail(sim: &SimDisk) -> Vec<Vec<u64>> {
    let disk = sim.process();
    let boxes = disk.list("mail").expect("lists").into_iter();
    let numbers = |entry: keepstep::disk::DirEntry| {
        let letters = disk.list(&format!("mail/{}", entry.name)).expect("lists");
        let mut numbers: Vec<u64> = letters.iter().filter_map(|it| it.name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    };
    boxes.map(numbers).filter(|numbers| !numbers.is_empty()).collect()
}

/// What is wrong with what is on the disk, if something is: before all is recorded, or when it is.
fn what_broke(sim: &SimDisk, episodes: i64, is_done: bool) -> Option<String> {
    let run = run_on(sim.process());
    for sample in 0..episodes {
        let view = match run.view(&name(sample)) {
            Ok(view) => view,
            Err(error) => return Some(format!("sample {sample} cannot be read: {error}")),
        };
        let why = view.ending().expect("reads").and_then(|end| end.why);
        let is_right = why.as_deref() == Some("crashed") || (why.is_none() && !is_done);
        if view.steps() != 1 || !is_right {
            return Some(format!("sample {sample} has {} steps, and ended as {why:?}", view.steps()));
        }
    }
    let report = run.store().verify(&mut |_| {}).expect("verifies");
    (!report.is_whole()).then(|| format!("{report:?}"))
}

/// The power fails at any point of reaping: each end is there whole or not at all, no step is lost, and reaping again
/// records the rest.
#[test]
fn no_cut_of_reaping_loses_anything() {
    const EPISODES: i64 = 7;
    let sim = killed(EPISODES);
    let reaped = run_on(sim.process()).store().reap().expect("reaps").crashed;
    assert_eq!(reaped.len() as i64, EPISODES);
    let trace = sim.trace();
    assert_eq!(what_broke(&sim, EPISODES, true), None);
    let (mut states, mut broke) = (0, Vec::new());
    for cut in 0..trace.cuts() {
        let count = trace.state_count(cut);
        let some = (0..count.min(24)).map(|index| trace.state(cut, index));
        let random = (0..if count > 24 { 24 } else { 0 }).map(|nth| trace.random_state(cut, seed() + nth));
        for state in some.chain(random).chain([trace.killed(cut)]) {
            states += 1;
            // What was told as recorded stays recorded.
            let first = what_broke(&state, EPISODES, cut + 1 == trace.cuts());
            // In another boot the dead are silent first.
            let run = run_on(state.process());
            run.store().reap().expect("looks");
            state.advance(Duration::from_secs(3600));
            run.store().reap().expect("reaps");
            let last = first.or_else(|| what_broke(&state, EPISODES, true));
            broke.extend(last.map(|what| format!("{}: {what}", trace.operation_before(cut))));
        }
    }
    println!("{states} states at {} cuts, seed {}", trace.cuts(), seed());
    assert!(broke.is_empty(), "{} of {states}:\n{}", broke.len(), broke.join("\n"));
}

/// Folders are synced once for many: reaping was slow because each attempt synced four.
#[test]
fn reaping_many_shares_syncs() {
    const EPISODES: i64 = 60;
    let sim = killed(EPISODES);
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    let run = run_on(HookedDisk::new(sim.process(), move |call| {
        counted.fetch_add(u64::from(call.starts_with("sync_dir ")), Ordering::Relaxed);
    }));
    syncs.store(0, Ordering::Relaxed);
    assert_eq!(run.store().reap().expect("reaps").crashed.len() as i64, EPISODES);
    let shards = sim.process().list("ends").expect("lists").len() as u64;
    let synced = syncs.load(Ordering::Relaxed);
    println!("{synced} folders synced, of {shards} with ends");
    assert!(synced <= shards + 12, "{synced} folders were synced, and {shards} have ends");
    assert_eq!(what_broke(&sim, EPISODES, true), None);
    assert_eq!(run.store().reap().expect("looks").crashed, [], "once");
}

/// A letter that cannot be posted leaves no hole in the numbers: whoever reads its mail would stop there for ever.
#[test]
fn a_mailbox_has_no_hole() {
    const EPISODES: i64 = 8;
    // A question and its answer for each of the two writers.
    for after in 0..4 {
        let sim = killed(EPISODES);
        let run = run_on(sim.process());
        sim.faults().plan(Fault::new(On::Link, Errno::Enospc).at("mail/").after(after));
        let failed = run.store().reap().expect_err("a letter cannot be posted");
        assert_eq!(sim.faults().hits(), 1, "{failed}");
        for numbers in mail(&sim) {
            assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "after {after}");
        }
        assert_eq!(run.store().reap().expect("reaps").crashed.len() as i64, EPISODES, "after {after}");
        assert_eq!(what_broke(&sim, EPISODES, true), None);
    }
}

/// Reaping failed if an episode was pruned meanwhile.
#[test]
fn what_is_pruned_meanwhile_is_left_out() {
    const EPISODES: i64 = 3;
    let mut calls = 0;
    for at in 0.. {
        let sim = killed(EPISODES);
        // Whoever deletes waits until nothing was heard of the owner for a lease.
        sim.advance(Duration::from_secs(60));
        let (count, has_come, other) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)), sim.clone());
        let came = Arc::clone(&has_come);
        let run = run_on(HookedDisk::new(sim.process(), move |_| {
            if count.fetch_add(1, Ordering::Relaxed) == at {
                came.store(1, Ordering::Relaxed);
                let run = run_on(other.process());
                let one = PruneFilter::default().episodes([run.episode_id(&name(1))]).reason("waste");
                run.store().prune(&one, false, &mut |_| {}).expect("prunes");
            }
        }));
        let reaped = run.store().reap();
        if has_come.load(Ordering::Relaxed) == 0 {
            break;
        }
        let reaped = reaped.unwrap_or_else(|error| panic!("pruned before call {at}: {error}")).crashed;
        assert!(reaped.len() as i64 >= EPISODES - 1, "pruned before call {at}: {reaped:?}");
        calls = at;
    }
    println!("{calls} points");
    assert!(calls > 40, "{calls}");
}

/// Two killed processes, one of which has a file that cannot be read or synced. Returns its writer.
fn one_is_bad(sim: &SimDisk, spoil: impl Fn(&SimDisk, &str)) -> String {
    let writer = sim.process().list("writers").expect("lists").remove(0).name;
    spoil(sim, &writer);
    writer
}

/// A card that says nothing, in the place of an answer.
fn bad_answer(sim: &SimDisk, writer: &str) {
    let file = sim.process().create_new(&format!("mail/{writer}/0.answer")).expect("creates");
    file.write_at(b"nothing", 0).expect("writes");
}

fn bad_syncs(sim: &SimDisk, writer: &str) {
    let fault = Fault::new(On::Sync, Errno::Eio).at(&format!("writers/{writer}/"));
    sim.faults().plan(fault.until_cleared());
}

/// One card that could not be read, or one log that could not be synced, kept `reap` from marking anybody, for ever. It costs
/// the episodes of its own writer, and is told.
#[test]
fn what_is_bad_of_one_writer_costs_its_own_episodes_alone() {
    const EPISODES: i64 = 6;
    for spoil in [bad_answer, bad_syncs] {
        let sim = killed(EPISODES);
        let writer = one_is_bad(&sim, spoil);
        let run = run_on(sim.process());
        for marked in [EPISODES / 2, 0] {
            let reaped = run.store().reap().expect("reaps");
            assert_eq!(reaped.crashed.len() as i64, marked, "{reaped:?}");
            let [left] = &reaped.left_alone[..] else { panic!("{reaped:?}") };
            assert!(left.writer.to_string() == writer && left.why.contains(&writer), "{left:?}");
        }
    }
}

/// `compact` stopped at such a log, too.
#[test]
fn what_is_bad_of_one_writer_stops_nobody_else() {
    for spoil in [bad_answer, bad_syncs] {
        let sim = killed(6);
        let writer = one_is_bad(&sim, spoil);
        let run = run_on(sim.process());
        let report = run.store().compact(CompactOptions::default(), &mut |_| {}).expect("compacts");
        assert_eq!(report.logs, 1, "{report:?}");
        assert_eq!(report.left_alone[0].writer.to_string(), writer, "{report:?}");
    }
}

/// Whoever followed a run stopped at a log that could not be synced. The ends of the others are told, and what is bad is told
/// once.
#[test]
fn a_follower_tells_what_is_bad_and_goes_on() {
    for spoil in [bad_answer, bad_syncs] {
        let sim = SimDisk::new(seed());
        for sample in 0..2 {
            let process = sim.process();
            let options = Options::default().background(false).dictionary(false).level(Level::Kill);
            let store = Store::on_files(process.clone(), options).expect("opens");
            let episode =
                store.run("run", Value::Null).expect("opens").episode(name(sample)).expect("begins");
            episode.end("finished", Ending::default()).expect("ends").wait().expect("is written");
            process.kill();
            drop((episode, store));
        }
        let trace = sim.trace();
        let sim = trace.killed(trace.cuts() - 1);
        let writer = one_is_bad(&sim, spoil);
        let run = run_on(sim.process());
        let mut follow = run.follow(None).expect("follows");
        let mut told = Vec::new();
        while told.len() < 2 {
            let (event, _) = follow.next(Duration::from_secs(20)).expect("goes on").expect("tells");
            told.push(event);
        }
        let bad = |event: &RunEvent| matches!(event, RunEvent::Unreadable { why } if why.contains(&writer));
        assert_eq!(told.iter().filter(|event| bad(event)).count(), 1, "{told:?}");
        let ended = |event: &RunEvent| matches!(event, RunEvent::Ended { .. });
        assert_eq!(told.iter().filter(|event| ended(event)).count(), 1, "{told:?}");
    }
}
