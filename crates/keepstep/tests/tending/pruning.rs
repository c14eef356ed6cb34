//! Pruning: what is asked for goes, as a whole, and leaves a note; everything else stays as it was.

use std::time::Duration;

use keepstep::disk::sim::SimDisk;
use keepstep::tend::{PruneFilter, PruneReport};
use keepstep::{Error, Id, Remedy, Store, Value};

use super::world::{Everything, at_once, everything, followed, name, open, record, recorded, step};

fn by_ending(why: &str) -> PruneFilter {
    let reason = format!("all that {why}");
    PruneFilter::default().endings([why]).reason(reason)
}

fn prune(sim: &SimDisk, filter: &PruneFilter) -> PruneReport {
    open(sim).prune_with(filter, at_once(), false, &mut |_| {}).expect("prunes")
}

/// What is left when these episodes are gone.
pub fn without(everything: &Everything, episodes: &[Id]) -> Everything {
    let stays = |key: &(Id, u32, u8, Id)| !episodes.contains(&key.0);
    everything.iter().filter(|(key, _)| stays(key)).map(|(key, records)| (*key, records.clone())).collect()
}

fn ids(report: &PruneReport) -> Vec<Id> {
    report.episodes.iter().map(|episode| episode.episode).collect()
}

/// A dry run says what would go and how much that is, and changes nothing.
#[test]
fn a_dry_run_changes_nothing() {
    let sim = SimDisk::new(21);
    recorded(&sim);
    let before = everything(&open(&sim)).expect("reads");
    let operations = sim.operations();
    let files: Vec<_> = sim.files();
    let report = open(&sim).prune(&by_ending("finished"), true, &mut |_| {}).expect("looks");
    assert!(report.is_dry_run && report.episodes.len() == 5 && report.refused.is_empty(), "{report:?}");
    assert!(report.bytes > 10_000, "{report:?}");
    assert!(report.episodes.iter().all(|it| it.why.as_deref() == Some("finished") && it.records > 0));
    assert_eq!(sim.files(), files);
    assert_eq!(everything(&open(&sim)).expect("reads"), before);
    println!("{} operations", sim.operations() - operations);
}

/// Pruned episodes are gone at once for readers, who are told when and why; on disk they go with the next call.
#[test]
fn what_was_pruned_is_gone_and_says_so() {
    let sim = SimDisk::new(22);
    recorded(&sim);
    let before = everything(&open(&sim)).expect("reads");
    let report = prune(&sim, &by_ending("finished"));
    let gone = ids(&report);
    assert_eq!(gone.len(), 5);
    for round in 0..2 {
        let store = open(&sim);
        assert_eq!(everything(&store).expect("reads"), without(&before, &gone), "round {round}");
        assert_eq!(followed(&store).expect("follows"), without(&before, &gone), "round {round}");
        let catalog = store.catalog().expect("reads");
        let found = catalog.find(&gone[0], 0);
        let Err(error @ Error::Pruned { .. }) = &found else { panic!("{found:?}") };
        assert_eq!(error.remedy(), Remedy::FixInput);
        assert!(error.to_string().contains("all that finished"), "{error}");
        let note = store.pruned(&gone[0]).expect("looks").expect("is noted");
        assert_eq!((note.reason.as_str(), note.attempt), ("all that finished", 0));
        let run = store.run("run", Value::Null).expect("opens");
        let again = (0..3).find(|sample| run.episode_id(&name(0, *sample)) == gone[0]);
        if let Some(sample) = again {
            let opened = run.episode(name(0, sample));
            assert!(matches!(opened, Err(Error::Pruned { .. })), "{:?}", opened.err());
        }
        assert!(store.verify(&mut |_| {}).expect("verifies").is_whole());
        let more = prune(&sim, &by_ending("finished"));
        assert!(more.episodes.is_empty(), "{more:?}");
    }
    let page = super::world::page(1000, 400);
    let holds_it =
        sim.files().iter().any(|(_, data)| data.windows(60).any(|it| it == &page.as_bytes()[..60]));
    assert!(!holds_it, "not even its bytes are left");
}

/// Filters are combined, and one that names nothing is refused.
#[test]
fn filters_are_combined() {
    let sim = SimDisk::new(23);
    recorded(&sim);
    let look = |filter: PruneFilter| {
        open(&sim).prune(&filter, true, &mut |_| {}).map(|report| report.episodes.len())
    };
    assert!(matches!(look(PruneFilter::default()), Err(Error::BadInput { .. })));
    assert_eq!(look(PruneFilter::default().run("run")).unwrap(), 8);
    assert_eq!(look(PruneFilter::default().run("other")).unwrap(), 0);
    let both = PruneFilter::default().run("run").endings(["finished"]);
    assert_eq!(look(both.clone()).unwrap(), 5);
    let all = open(&sim).prune(&both, true, &mut |_| {}).expect("looks");
    let one = both.episodes([all.episodes[1].episode]);
    assert_eq!(look(one.clone()).unwrap(), 1);
    let old = Some(Duration::from_secs(3600));
    assert_eq!(look(one.clone().older_than(old)).unwrap(), 0);
    sim.advance(Duration::from_secs(7200));
    assert_eq!(look(one.older_than(old)).unwrap(), 1);
}

/// An episode that is being recorded stays; the others of the same writer go for readers, and their bytes when the
/// writer is gone. What the live one refers to stays readable.
#[test]
fn a_running_episode_is_refused() {
    let sim = SimDisk::new(24);
    let store = open(&sim);
    let recorders = record(&store, 0..1, 3, 4);
    let all = PruneFilter::default().run("run").reason("test");
    let before = everything(&store).expect("reads");
    let report = prune(&sim, &all);
    assert_eq!((report.episodes.len(), report.refused.len()), (2, 1), "{report:?}");
    let left = without(&before, &ids(&report));
    assert_eq!(everything(&store).expect("reads"), left);
    recorders[1].step(step(0, 1, 4)).expect("records");
    let left = everything(&store).expect("reads");
    assert_eq!(left.len(), 1);
    store.close();
    drop((recorders, store));
    // Closing the store said that the episode was aborted.
    let left = everything(&open(&sim)).expect("reads");
    for _ in 0..2 {
        open(&sim).compact(at_once(), &mut |_| {}).expect("compacts");
    }
    assert_eq!(everything(&open(&sim)).expect("reads"), left);
    assert!(open(&sim).verify(&mut |_| {}).expect("verifies").is_whole());
}

/// What was compacted is pruned as well.
#[test]
fn a_compacted_store_is_pruned() {
    let sim = SimDisk::new(25);
    recorded(&sim);
    let before = everything(&open(&sim)).expect("reads");
    for _ in 0..2 {
        open(&sim).compact(at_once(), &mut |_| {}).expect("compacts");
    }
    let bytes: usize = sim.files().iter().map(|(_, data)| data.len()).sum();
    let report = prune(&sim, &by_ending("finished"));
    let left = without(&before, &ids(&report));
    prune(&sim, &by_ending("finished"));
    assert_eq!(everything(&open(&sim)).expect("reads"), left);
    assert_eq!(followed(&open(&sim)).expect("follows"), left);
    let now: usize = sim.files().iter().map(|(_, data)| data.len()).sum();
    assert!(now + report.bytes as usize / 2 < bytes, "{bytes} bytes became {now}");
    assert!(open(&sim).verify(&mut |_| {}).expect("verifies").is_whole());
}

/// Prunes what finished, and waits for nothing.
pub fn finished(store: &Store) -> keepstep::Result<()> {
    store.prune_with(&by_ending("finished"), at_once(), false, &mut |_| {})?;
    // What has no part in it is regrouped too, so that a test can ask for the end of all old segments.
    store.compact(at_once(), &mut |_| {}).map(drop)
}
