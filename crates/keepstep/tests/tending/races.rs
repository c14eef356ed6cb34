//! Somebody opens an episode while it is pruned: whichever comes first, nothing that was acknowledged goes.
//!
//! One of the two runs as a whole at each point of the other. Orders in which both stop halfway add nothing: whether the
//! opener sees the announcement, and the pruner the claim, is decided by single calls, and each stands before and behind
//! all calls of the other that matter in one of these.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keepstep::disk::sim::SimDisk;
use keepstep::tend::{PruneFilter, PruneReport};
use keepstep::{Broken, Episode, Error, Store, Value};

use super::cuts::aged;
use super::hooked_disk::HookedDisk;
use super::world::{at_once, name, open, open_as, record, step};

/// How many steps the episode has before anybody opens it again.
const STEPS: u64 = 3;

/// A process that recorded two episodes and closed: one finished, one was left and can go on.
fn left() -> SimDisk {
    let sim = SimDisk::new(31);
    let store = open(&sim);
    drop(record(&store, 0..1, 2, STEPS));
    store.close();
    drop(store);
    aged(&sim)
}

fn prune(store: &Store) -> keepstep::Result<PruneReport> {
    let endings = vec!["aborted".to_owned()];
    let filter = PruneFilter::default().endings(endings).reason("was left");
    store.prune_with(&filter, at_once(), false, &mut |_| {})
}

/// Opens the episode and records a step. The store lives on with it.
fn go_on(store: &Store) -> keepstep::Result<Episode> {
    let episode = store.run("run", Value::Null)?.episode(name(0, 1))?;
    episode.step(step(0, 1, STEPS))?;
    Ok(episode)
}

/// What the opener was told, and what the pruner was.
struct Outcomes {
    opened: keepstep::Result<Episode>,
    pruned: keepstep::Result<PruneReport>,
}

/// What is wrong with what the two were told, if something is.
fn what_broke(sim: &SimDisk, told: Outcomes) -> Option<String> {
    let Outcomes { opened, pruned } = told;
    let id = open(sim).run("run", Value::Null).expect("opens").episode_id(&name(0, 1));
    let report = match pruned {
        Ok(report) => report,
        Err(error) => return Some(format!("pruning failed: {error}")),
    };
    let is_pruned = report.episodes.iter().any(|it| it.episode == id);
    let episode = match opened {
        Ok(episode) => episode,
        Err(Error::Pruned { .. }) if is_pruned => return None,
        Err(error) => return Some(format!("opening failed: {error}; pruned: {is_pruned}")),
    };
    if is_pruned {
        return Some("it is pruned, and runs".to_owned());
    }
    for _ in 0..2 {
        if let Err(error) = open(sim).compact(at_once(), &mut |_| {}) {
            return Some(format!("compacting failed: {error}"));
        }
    }
    if let Err(error) = episode.step(step(0, 1, STEPS + 1)) {
        return Some(format!("it cannot go on: {error}"));
    }
    let view = open(sim).run("run", Value::Null).expect("opens").view(&name(0, 1));
    let steps = view.and_then(|view| view.read()).map(|read| (read.is_whole(), read.steps.len() as u64));
    match steps {
        Ok((true, steps)) if steps == STEPS + 2 => None,
        other => Some(format!("what was acknowledged is gone: {other:?}")),
    }
}

/// Does `inner` before the call number `at` of `outer`. Nothing if there are fewer calls.
fn nested<O, I>(
    broken: Option<Broken>,
    at: u64,
    outer: impl Fn(&Store) -> O,
    inner: impl Fn(&Store) -> I + Send + Sync + 'static,
) -> Option<(SimDisk, String, O, I, [Store; 2])>
where
    I: Send + 'static,
{
    let sim = left();
    let other = open_as(sim.process(), broken);
    let calls = AtomicU64::new(0);
    let done: Arc<Mutex<Option<(String, I)>>> = Arc::default();
    let (inside, slot) = (other.clone(), Arc::clone(&done));
    let disk = HookedDisk::new(sim.process(), move |call| {
        if calls.fetch_add(1, Ordering::Relaxed) == at {
            let outcome = inner(&inside);
            *slot.lock().expect("no panic") = Some((call.to_owned(), outcome));
        }
    });
    let store = open_as(disk, broken);
    let outcome = outer(&store);
    let (call, inside) = done.lock().expect("no panic").take()?;
    Some((sim, call, outcome, inside, [store, other]))
}

/// At each point of pruning somebody opens the episode; then at each point of opening somebody prunes. What broke.
fn both_ways(broken: Option<Broken>) -> (u64, Vec<String>) {
    let (mut orders, mut broke) = (0, Vec::new());
    for at in 0.. {
        let Some((sim, call, pruned, opened, _stores)) = nested(broken, at, prune, go_on) else { break };
        orders += 1;
        let what = what_broke(&sim, Outcomes { opened, pruned });
        broke.extend(what.map(|what| format!("opened before call {at} of prune ({call}): {what}")));
    }
    for at in 0.. {
        let Some((sim, call, opened, pruned, _stores)) = nested(broken, at, go_on, prune) else { break };
        orders += 1;
        let what = what_broke(&sim, Outcomes { opened, pruned });
        broke.extend(what.map(|what| format!("pruned before call {at} of open ({call}): {what}")));
    }
    (orders, broke)
}

/// An episode that was opened between prune's look and its note was marked as pruned while it ran, and deleted later.
#[test]
fn what_is_opened_while_it_is_pruned_stays() {
    let (orders, broke) = both_ways(None);
    println!("{orders} orders");
    assert!(broke.is_empty(), "{} of {orders}:\n{}", broke.len(), broke.join("\n"));
    assert!(orders > 100, "{orders}");
}

fn must_be_caught(broken: Broken) {
    let (orders, broke) = both_ways(Some(broken));
    println!("{} of {orders} orders: {}", broke.len(), broke.first().map_or("", String::as_str));
    assert!(!broke.is_empty(), "{broken:?} is not caught in {orders} orders");
}

#[test]
fn a_prune_that_looks_once_is_caught() {
    must_be_caught(Broken::PruneLooksOnce);
}

#[test]
fn an_opener_that_looks_once_is_caught() {
    must_be_caught(Broken::OpenLooksOnce);
}

/// Two prune at once: one announcement was withdrawn by somebody who opened the episode, and the other's must not pass for it.
#[test]
fn another_prunings_announcement_is_not_ours() {
    let sim = left();
    let (opener, opened) = (open(&sim), Arc::new(Mutex::new(None)));
    let (manifests, slot, disk) = (AtomicU64::new(0), Arc::clone(&opened), sim.clone());
    let first = HookedDisk::new(sim.process(), move |call| {
        let is_manifest = call.starts_with("link ") && call.ends_with(".manifest");
        // The first is the announcement, the second would be the note.
        if is_manifest && manifests.fetch_add(1, Ordering::Relaxed) == 1 {
            let process = disk.process();
            let (dies, announced) = (Arc::clone(&process), AtomicU64::new(0));
            // The second pruning saw the episode before it was opened, announces it after that, and dies.
            let inside = Arc::clone(&slot);
            let opener = opener.clone();
            let second = HookedDisk::new(process, move |call| {
                if call.starts_with("link ") && call.ends_with(".manifest") {
                    match announced.fetch_add(1, Ordering::Relaxed) {
                        0 => *inside.lock().expect("no panic") = Some(go_on(&opener)),
                        1 => {}
                        _ => dies.kill(),
                    }
                }
            });
            prune(&open_as(second, None)).expect_err("it was killed");
        }
    });
    let pruned = prune(&open_as(first, None));
    let opened = opened.lock().expect("no panic").take().expect("was opened");
    assert_eq!(what_broke(&sim, Outcomes { opened, pruned }), None);
}

/// A process that was killed when no sync covered what it had recorded: whoever goes on has to copy that.
fn killed_before_a_sync(sim: &SimDisk) {
    let process = sim.process();
    let options = super::world::options(None).level(keepstep::Level::Kill);
    let store = Store::on_files(process.clone(), options).expect("opens");
    let recorders = record(&store, 5..6, 2, STEPS);
    process.kill();
    std::mem::forget((recorders, store));
}

/// Takes the episode over, and lets its own lock slip: it seems dead, and is not.
fn take_and_slip(sim: &SimDisk) {
    let process = sim.process();
    let store = open_as(process.clone(), None);
    let episode = store.run("run", Value::Null).expect("opens").episode(name(5, 1)).expect("goes on");
    process.lose_locks();
    std::mem::forget((episode, store));
}

fn compact_at_once(sim: &SimDisk) {
    for _ in 0..2 {
        open(sim).compact(at_once(), &mut |_| {}).expect("compacts");
    }
}

/// What others do meanwhile.
type Beside = fn(&SimDisk);

/// `verify` beside others told of copies that were missing, because it read the bases after the logs: a taker had come
/// between; and it failed when `compact` deleted what it was reading.
#[test]
fn verifying_beside_others_tells_of_no_damage() {
    let acts: [(&str, Beside); 3] = [
        ("a takeover", take_and_slip),
        ("compact", compact_at_once),
        ("both", |sim| {
            take_and_slip(sim);
            compact_at_once(sim);
        }),
    ];
    for (act, beside) in acts {
        let mut calls = 0;
        for at in 0.. {
            let sim = left();
            killed_before_a_sync(&sim);
            let (count, said, other) = (AtomicU64::new(0), Arc::new(Mutex::new(None)), sim.clone());
            let slot = Arc::clone(&said);
            let door = HookedDisk::new(sim.process(), move |call| {
                if count.fetch_add(1, Ordering::Relaxed) == at {
                    *slot.lock().expect("no panic") = Some(call.to_owned());
                    beside(&other);
                }
            });
            let report = open_as(door, None).verify(&mut |_| {});
            let Some(call) = said.lock().expect("no panic").take() else { break };
            let is_whole = report.as_ref().is_ok_and(|report| report.is_whole());
            assert!(is_whole, "{act} before call {at} ({call}): {report:?}");
            calls = at;
        }
        println!("{act}: {calls} points");
        assert!(calls > 20, "{calls}");
    }
}
