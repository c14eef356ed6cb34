//! Compacting: what a store says is the same before, meanwhile and afterwards, whatever happens.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/cuts.rs"]
mod cuts;
#[path = "tending/hooked_disk.rs"]
mod hooked_disk;
#[path = "tending/pruning.rs"]
mod pruning;
#[path = "tending/races.rs"]
mod races;
#[path = "tending/world.rs"]
mod world;

use hooked_disk::HookedDisk;
use keepstep::Broken;
use keepstep::disk::sim::SimDisk;
use keepstep::read::{FollowFrom, Item};
use keepstep::tend::CompactReport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::{at_once, everything, followed, open, recorded};

fn compact(sim: &SimDisk) -> CompactReport {
    open(sim).compact(at_once(), &mut |_| {}).expect("compacts")
}

fn assert_whole(sim: &SimDisk) {
    let report = open(sim).verify(&mut |_| {}).expect("verifies");
    assert!(report.is_whole(), "{report:?}");
}

fn has_writers_segments(sim: &SimDisk) -> bool {
    sim.files().iter().any(|(path, _)| path.starts_with("writers/") && path.ends_with(".seg"))
}

/// Records, sequences, values, summaries and what a follower hears: all as before, and the old segments go.
#[test]
fn a_compacted_store_says_the_same() {
    let sim = SimDisk::new(1);
    recorded(&sim);
    let before = everything(&open(&sim)).expect("reads");
    assert!(before.values().map(Vec::len).sum::<usize>() > 40, "{before:?}");
    assert_eq!(followed(&open(&sim)).expect("follows"), before);

    let report = compact(&sim);
    assert_eq!((report.logs, report.left_alone.len()), (2, 0), "{report:?}");
    assert!(report.segments_made > 1 && report.segments_replaced > 3, "{report:?}");
    assert!(has_writers_segments(&sim), "they stay until the next call");
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    assert_eq!(followed(&open(&sim)).expect("follows"), before);
    assert_whole(&sim);

    let report = compact(&sim);
    assert!(report.files_deleted > 3 && report.segments_made == 0, "{report:?}");
    assert!(!has_writers_segments(&sim), "{:?}", sim.files().iter().map(|it| &it.0).collect::<Vec<_>>());
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    assert_eq!(followed(&open(&sim)).expect("follows"), before);
    assert_whole(&sim);

    let operations = sim.operations();
    let report = compact(&sim);
    assert_eq!((report.files_deleted, report.segments_made, report.files_waiting), (0, 0, 0), "{report:?}");
    println!("{} operations for a call that has nothing to do", sim.operations() - operations);
}

/// A reader that was opened before reads on, also when the segments it reads were replaced; one that follows hears
/// every record once, and nothing twice.
#[test]
fn readers_and_followers_do_not_notice() {
    let sim = SimDisk::new(2);
    recorded(&sim);
    let store = open(&sim);
    let before = everything(&store).expect("reads");
    let records: usize = before.values().map(Vec::len).sum();
    let catalog = store.catalog().expect("reads");
    let (mut early, mut late) =
        (store.follow(FollowFrom::Start).expect("follows"), store.follow(FollowFrom::Now).expect("follows"));
    let mut heard = std::collections::BTreeMap::new();
    let mut hear = |follow: &mut keepstep::RecordFollow, most: usize| {
        for _ in 0..most {
            let Some(next) = follow.next(Duration::ZERO).expect("follows") else { return };
            let Item::Record(record) = next.item else { panic!("{next:?}") };
            let key = (next.bind.id, next.bind.attempt, next.writer);
            assert_eq!(heard.insert((key, record.seq), ()), None, "heard twice: {record:?}");
        }
    };
    hear(&mut early, records / 3);
    compact(&sim);
    hear(&mut early, records / 3);
    for (writer, bind) in catalog.subjects() {
        let read = catalog.bind_reader(&writer, &bind).expect("reads").records().count();
        assert!(read > 0);
    }
    compact(&sim);
    hear(&mut early, usize::MAX);
    assert_eq!(heard.len(), records);
    assert_eq!(late.next(Duration::ZERO).expect("follows"), None, "nothing is new");
    // What comes after is heard by both.
    let recorders = world::record(&store, 8..9, 1, 1);
    let new = everything(&store).expect("reads").values().map(Vec::len).sum::<usize>() - records;
    for follow in [&mut early, &mut late] {
        let mut count = 0;
        while follow.next(Duration::ZERO).expect("follows").is_some() {
            count += 1;
        }
        assert_eq!(count, new);
    }
    drop(recorders);
}

/// The log of a writer that is alive is left alone, and its later steps may refer to its earlier ones.
#[test]
fn a_live_writer_goes_on_while_others_are_compacted() {
    let sim = SimDisk::new(3);
    recorded(&sim);
    let store = open(&sim);
    let recorders = world::record(&store, 9..10, 2, 3);
    let before = everything(&store).expect("reads");
    let report = compact(&sim);
    assert_eq!((report.logs, report.left_alone.len()), (2, 1), "{report:?}");
    compact(&sim);
    assert_eq!(everything(&store).expect("reads"), before);
    recorders[1].step(world::step(9, 1, 3)).expect("records");
    recorders[1].end("finished", keepstep::Ending::default()).expect("ends").wait().expect("is durable");
    let before = everything(&store).expect("reads");
    store.close();
    drop((recorders, store));
    let report = compact(&sim);
    assert_eq!((report.logs, report.left_alone.len()), (1, 0), "{report:?}");
    compact(&sim);
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    assert_whole(&sim);
}

/// Many short segments of earlier calls are put together, and say the same.
#[test]
fn short_segments_are_put_together() {
    let sim = SimDisk::new(4);
    let options = at_once().segment_bytes_max(1 << 20);
    for task in 0..10 {
        let store = open(&sim);
        let recorders = world::record(&store, task..task + 1, 1, 3);
        store.close();
        drop((recorders, store));
        let before = everything(&open(&sim)).expect("reads");
        open(&sim).compact(options.clone(), &mut |_| {}).expect("compacts");
        assert_eq!(everything(&open(&sim)).expect("reads"), before, "after {task}");
    }
    let before = everything(&open(&sim)).expect("reads");
    open(&sim).compact(options, &mut |_| {}).expect("compacts");
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    let count =
        sim.files().iter().filter(|(path, _)| path.starts_with("grouped/") && path.ends_with(".seg")).count();
    assert!(count < 9, "{count} segments");
    assert_whole(&sim);
}

/// Two at once: one manifest wins, the loser throws its work away and begins again, and nothing is there twice.
#[test]
fn the_loser_of_a_race_begins_again() {
    let sim = SimDisk::new(5);
    recorded(&sim);
    let before = everything(&open(&sim)).expect("reads");
    let (other, is_over) = (sim.clone(), AtomicBool::new(false));
    let overtake = move |call: &str| {
        let is_manifest = call.starts_with("link ") && call.ends_with(".manifest");
        if is_manifest && !is_over.swap(true, Ordering::Relaxed) {
            open(&other).compact(at_once(), &mut |_| {}).expect("compacts");
        }
    };
    let disk = HookedDisk::new(sim.process(), overtake);
    let report = world::open_as(disk, None).compact(at_once(), &mut |_| {}).expect("compacts");
    assert_eq!((report.logs, report.segments_made), (0, 0), "the other had done it all: {report:?}");
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    compact(&sim);
    compact(&sim);
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    assert_whole(&sim);
    assert!(!has_writers_segments(&sim));
}

fn seed() -> u64 {
    std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

/// A process that closed in good order, and one that was killed; both found and scanned before.
fn small(seed: u64) -> SimDisk {
    let sim = SimDisk::new(seed);
    let store = open(&sim);
    drop(world::record(&store, 0..1, 2, 4));
    store.close();
    drop(store);
    let process = sim.process();
    let recorders = world::record(&world::open_as(process.clone(), None), 3..4, 1, 2);
    process.kill();
    drop(recorders);
    everything(&open(&sim)).expect("reads");
    sim
}

fn look_at_every_cut(base: &SimDisk, tending: &cuts::Tending) {
    let trace = cuts::traced(base, tending, None);
    let findings = cuts::enumerate(tending, &trace, seed(), false);
    let (seen, count) = (findings.broke.first(), findings.broke.len());
    assert!(seen.is_none(), "KEEPSTEP_SEED={}: {count} of {}: {seen:?}", seed(), findings.states);
    println!(
        "{}: {} states at {} cuts, run again in {}, nothing lost, seed {}",
        tending.name,
        findings.states,
        findings.cuts,
        findings.again,
        seed()
    );
}

/// Whatever the power takes, at whatever point of compacting: all that was recorded is read, and the next call finishes.
#[test]
fn no_crash_point_of_compacting_loses_anything() {
    let base = small(seed());
    look_at_every_cut(&base, &cuts::compacting(&base));
}

/// The same of pruning: what is kept is read, what is pruned is all there or all gone, and the next call finishes.
#[test]
fn no_crash_point_of_pruning_loses_what_is_kept() {
    let base = small(seed() + 1);
    look_at_every_cut(&base, &cuts::pruning(&base));
}

fn must_be_caught(broken: Broken) {
    let base = small(seed() + 1_000 * (broken as u64 + 1));
    let tending = cuts::compacting(&base);
    let trace = cuts::traced(&base, &tending, Some(broken));
    let findings = cuts::enumerate(&tending, &trace, seed(), true);
    let why = findings.broke.first();
    assert!(why.is_some(), "{broken:?} went unnoticed in {} states", findings.states);
    println!("{broken:?} is caught after {} states: {why:?}", findings.states);
}

#[test]
fn deleting_before_the_manifest_is_caught() {
    must_be_caught(Broken::DeleteBeforeManifest);
}

#[test]
fn a_manifest_whose_name_is_not_safe_is_caught() {
    must_be_caught(Broken::ManifestWithoutSync);
}
