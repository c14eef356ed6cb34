//! Streams: what is acknowledged is in, whoever freezes and whenever; nothing is settled in silence.
//!
//! `KEEPSTEP_SEED` repeats a run. The broken variants must be caught, or the tests prove nothing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "streams/again.rs"]
mod again;
#[path = "streams/cuts.rs"]
mod cuts;
#[path = "streams/handles.rs"]
mod handles;
#[path = "streams/histories.rs"]
mod histories;
#[path = "streams/processes.rs"]
mod processes;
#[path = "streams/turns.rs"]
mod turns;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::{Errno, Fault, On, SimDisk};
use keepstep::{Broken, Error, Level, Options, Remedy, Store, Stream, StreamView, Value};

fn seed() -> u64 {
    std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

fn options(broken: Option<Broken>) -> Options {
    Options::default().background(false).dictionary(false).stall(Duration::from_millis(500)).broken(broken)
}

fn stream_on(disk: Arc<dyn Files>, options: Options) -> keepstep::Result<Stream> {
    Ok(Store::on_files(disk, options)?.run("run", Value::Null)?.stream("tokens"))
}

fn stream(sim: &SimDisk) -> Stream {
    stream_on(sim.process(), options(None)).expect("opens")
}

fn value(id: &str) -> Value {
    Value::map([("text", Value::from(format!("what {id} says"))), ("n", Value::Int(id.len() as i64))])
}

fn put(stream: &Stream, id: &str) -> keepstep::Result<()> {
    stream.put(id, value(id))?.wait()
}

fn ids(view: &StreamView) -> BTreeSet<String> {
    assert!(view.lost.is_empty(), "{:?}", view.lost);
    for (id, found) in &view.entries {
        assert_eq!(*found, value(id), "entry {id}");
    }
    view.entries.iter().map(|(id, _)| id.clone()).collect()
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|id| (*id).to_owned()).collect()
}

/// The hash that is taken on the way to the log and the one that is taken of what is read are the same, for what is short and
/// what is long: so an entry is known again by whoever put it and by whoever saw it.
#[test]
fn an_entry_of_any_sort_is_known_again() {
    use keepstep::format::value::{Array, Dtype};
    let numbers = |count: usize| {
        let array = Array::new(Dtype::I32, vec![count as u64], vec![7; 4 * count]).expect("fits");
        Value::Array(Arc::new(array))
    };
    let text = |count: usize| Value::from("x".repeat(count));
    let sorts: Vec<Value> = [0, 1, 8, 60, 127, 128, 1_000, 5_000, 20_000]
        .into_iter()
        .flat_map(|count| {
            let list = Value::list([text(count), Value::Int(3)]);
            let map = Value::map([("ids", numbers(count)), ("text", text(count))]);
            let named = Value::Typed("tuple".into(), Arc::new(list.clone()));
            [text(count), numbers(count), Value::bytes(vec![1; count]), list, map, named]
        })
        .chain([Value::Null, Value::Int(-1), Value::Float(0.5), Value::Bool(true)])
        .collect();
    let sim = SimDisk::new(seed());
    let (first, second) = (stream(&sim), stream(&sim));
    for (number, sort) in sorts.iter().enumerate() {
        first.put(&number.to_string(), sort.clone()).expect("puts").wait().expect("is durable");
    }
    for (number, sort) in sorts.iter().enumerate() {
        for stream in [&first, &second] {
            let again = stream.put(&number.to_string(), sort.clone()).expect("the same is fine");
            assert_eq!(again.level(), Some(Level::Power), "{sort:?} was there");
            let other = Value::list([sort.clone()]);
            let refused = stream.put(&number.to_string(), other).map(|_| ());
            assert!(matches!(refused, Err(Error::BadInput { .. })), "{sort:?} was changed: {refused:?}");
        }
    }
}

/// An entry that one process put is seen by another at once, and the same entry again costs nothing.
#[test]
fn entries_are_shared_and_idempotent() {
    let sim = SimDisk::new(seed());
    let (first, second) = (stream(&sim), stream(&sim));
    put(&first, "a").expect("puts");
    assert_eq!(ids(&second.read().expect("reads")), names(&["a"]));
    put(&second, "b").expect("puts");
    let again = second.put("a", value("a")).expect("the same is fine");
    assert_eq!(again.level(), Some(Level::Power), "durable before it was asked for");
    let own = first.put("a", value("a")).expect("the same is fine");
    assert_eq!(own.level(), Some(Level::Power));
    let writes = |stream: &Stream| stream.read().expect("reads").entries.len();
    assert_eq!((writes(&first), writes(&second)), (2, 2));
    let view = first.freeze().expect("freezes");
    assert!(view.is_frozen && view.conflicts.is_empty());
    assert_eq!(ids(&view), names(&["a", "b"]));
    assert_eq!(second.freeze().expect("the same again"), view);
    assert_eq!(stream(&sim).read().expect("reads"), view);
}

/// Another value under an id that can be seen is refused, whoever put it; the message names the id.
#[test]
fn a_conflict_that_can_be_seen_is_refused() {
    let sim = SimDisk::new(seed() + 1);
    let (first, second) = (stream(&sim), stream(&sim));
    put(&first, "a").expect("puts");
    for other in [&first, &second] {
        let error = other.put("a", Value::Int(7)).expect_err("is refused");
        assert!(matches!(&error, Error::BadInput { field, .. } if field.contains("\"a\"")), "{error}");
        assert_eq!(error.remedy(), Remedy::FixInput);
    }
    put(&second, "b").expect("goes on");
    // Also one that came later, once it is looked for again.
    sim.advance(Duration::from_secs(1));
    assert!(matches!(first.put("b", Value::Int(7)), Err(Error::BadInput { .. })));
    assert_eq!(ids(&first.freeze().expect("freezes")), names(&["a", "b"]));
}

/// Two processes that put different values under one id without seeing one another: freezing tells, and settles nothing.
#[test]
fn a_conflict_that_could_not_be_seen_is_told_by_freeze() {
    let sim = SimDisk::new(seed() + 2);
    let (first, second) = (stream(&sim), stream(&sim));
    put(&first, "a").expect("puts");
    put(&second, "b").expect("puts");
    let values = [Value::from("one"), Value::from("other")];
    // Neither looks again so soon.
    first.put("x", values[0].clone()).expect("puts").wait().expect("is durable");
    second.put("x", values[1].clone()).expect("puts").wait().expect("is durable");
    for view in
        [second.read().expect("reads"), first.freeze().expect("freezes"), stream(&sim).read().unwrap()]
    {
        assert_eq!(ids(&view), names(&["a", "b"]), "what contradicts itself is not among the entries");
        assert_eq!(view.conflicts.len(), 1);
        assert_eq!(view.conflicts[0].id, "x");
        let said: Vec<Value> = view.conflicts[0].values.iter().map(|(_, value)| value.clone()).collect();
        assert_eq!(said, values);
    }
}

/// After a freeze everybody is refused: those who had put before, and those who begin.
#[test]
fn a_frozen_stream_takes_nothing_more() {
    let sim = SimDisk::new(seed() + 3);
    let (first, second) = (stream(&sim), stream(&sim));
    put(&first, "a").expect("puts");
    second.freeze().expect("freezes");
    for other in [&first, &second, &stream(&sim)] {
        let error = put(other, "late").expect_err("is refused");
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        assert_eq!(error.remedy(), Remedy::Stop);
    }
    assert_eq!(ids(&first.read().expect("reads")), names(&["a"]));
    assert_eq!(put(&first, "a").ok(), Some(()), "what is in is in");
}

/// An empty stream can be frozen, and a stream of one run is not that of another.
#[test]
fn streams_are_told_apart() {
    let sim = SimDisk::new(seed() + 4);
    let store = Store::on_files(sim.process(), options(None)).expect("opens");
    let (run, other) = (store.run("a", Value::Null).unwrap(), store.run("b", Value::Null).unwrap());
    put(&run.stream("s"), "x").expect("puts");
    put(&run.stream("t"), "y").expect("puts");
    assert!(other.stream("s").freeze().expect("freezes").entries.is_empty());
    assert_eq!(ids(&run.stream("s").freeze().expect("freezes")), names(&["x"]));
    put(&run.stream("t"), "z").expect("is not frozen");
    assert_eq!(ids(&run.stream("t").read().expect("reads")), names(&["y", "z"]));
}

/// A dropped stream shows nothing and takes nothing; nothing of it is deleted.
#[test]
fn a_dropped_stream_is_hidden() {
    let sim = SimDisk::new(seed() + 5);
    let (first, second) = (stream(&sim), stream(&sim));
    put(&first, "a").expect("puts");
    let count = |sim: &SimDisk| sim.files().iter().filter(|(path, _)| path.ends_with(".seg")).count();
    let segments = count(&sim);
    second.hide().expect("hides");
    second.hide().expect("hides again");
    assert!(matches!(put(&first, "b"), Err(Error::Fenced { .. })));
    assert!(matches!(put(&stream(&sim), "b"), Err(Error::Fenced { .. })));
    let view = first.read().expect("reads");
    assert!(view.is_hidden && view.entries.is_empty());
    assert!(matches!(first.freeze(), Err(Error::Ended { .. })));
    assert_eq!(count(&sim), segments);
    let store = Store::on_files(sim.process(), options(None)).expect("opens");
    assert!(store.verify(&mut |_| {}).expect("verifies").is_whole());
}

/// Once the claim stands, an entry costs what a step costs: one sync, and no new file.
#[test]
fn an_entry_costs_one_sync() {
    let sim = SimDisk::new(seed() + 10);
    let store = Store::on_files(sim.process(), options(None)).expect("opens");
    let stream = store.run("run", Value::Null).expect("opens").stream("tokens");
    put(&stream, "first").expect("puts");
    let (syncs, files) = (store.writer_stats().syncs, sim.files().len());
    for n in 0..50 {
        put(&stream, &format!("entry {n}")).expect("puts");
        put(&stream, "first").expect("costs nothing");
    }
    assert_eq!((store.writer_stats().syncs - syncs, sim.files().len()), (50, files));
}

/// An entry that was not recorded, since the disk was full, can be put again, with another value too.
#[test]
fn an_entry_that_failed_can_be_put_again() {
    let sim = SimDisk::new(seed() + 6);
    let stream = stream(&sim);
    put(&stream, "a").expect("puts");
    sim.faults().set_capacity(Some(sim.faults().used_bytes()));
    assert!(matches!(put(&stream, "b"), Err(Error::DiskFull { .. })));
    sim.faults().set_capacity(None);
    stream.put("b", Value::from("x".repeat(5))).expect("puts").wait().expect("is durable");
    let view = stream.freeze().expect("freezes");
    assert!(view.entries.contains(&("b".to_owned(), Value::from("xxxxx"))), "{view:?}");
}

/// What was put long ago, in segments that were sealed since, is frozen with the rest.
#[test]
fn a_stream_that_spans_segments_is_frozen_whole() {
    let sim = SimDisk::new(seed() + 7);
    let small = options(None).segment_bytes_max(2000);
    let first = stream_on(sim.process(), small.clone()).expect("opens");
    let all: BTreeSet<String> = (0..60).map(|n| format!("entry {n}")).collect();
    for id in &all {
        put(&first, id).expect("puts");
    }
    let second = stream_on(sim.process(), small).expect("opens");
    assert_eq!(ids(&second.freeze().expect("freezes")), all);
    assert_eq!(ids(&first.read().expect("reads")), all);
}

/// Damage in the log of a putter is an error when the stream is frozen, and told by those who read on.
#[test]
fn damage_is_never_frozen_in_silence() {
    let sim = SimDisk::new(seed() + 8);
    let process = sim.process();
    let first = stream_on(process.clone(), options(None)).expect("opens");
    for id in ["a", "b", "c"] {
        put(&first, id).expect("puts");
    }
    let (path, bytes) = sim.files().into_iter().find(|(path, _)| path.ends_with(".seg")).expect("has a log");
    let at = bytes.windows(4).position(|part| part == b"at b").expect("is there") as u64;
    process.open_rw(&path).unwrap().write_at(b"AT B", at).unwrap();
    let second = stream(&sim);
    let view = second.read().expect("the rest stays readable");
    assert_eq!((view.entries.len(), view.lost.len()), (2, 1), "{view:?}");
    assert_eq!(view.lost[0].path, path);
    let error = second.freeze().expect_err("an acknowledged entry is gone");
    assert!(matches!(&error, Error::Damaged { path: named, .. } if *named == path), "{error}");
    // To go on without it is a choice, and stays on record.
    let frozen = second.freeze_without_lost().expect("goes on");
    assert!(frozen.is_frozen && frozen.entries == view.entries && frozen.lost == view.lost, "{frozen:?}");
    assert!(matches!(put(&first, "d"), Err(Error::Fenced { .. })));
    assert_eq!(first.freeze().expect("is frozen"), frozen);
    assert_eq!(stream(&sim).read().expect("reads"), frozen);
}

/// What the processes of one schedule did.
#[derive(Default)]
struct Told {
    acknowledged: BTreeSet<String>,
    frozen: Vec<StreamView>,
    errors: Vec<Error>,
}

type Ledger = Arc<Mutex<Told>>;

/// A process that puts entries, and tells what was acknowledged.
fn putter(broken: Option<Broken>, put_ids: &[&str], ledger: &Ledger) -> turns::Work {
    let ids: Vec<String> = put_ids.iter().map(|id| (*id).to_owned()).collect();
    let ledger = Arc::clone(ledger);
    Box::new(move |disk| {
        let stream = stream_on(disk, options(broken)).expect("opens");
        for id in ids {
            match put(&stream, &id) {
                Ok(()) => drop(ledger.lock().unwrap().acknowledged.insert(id)),
                Err(error) => ledger.lock().unwrap().errors.push(error),
            }
        }
    })
}

fn freezer(broken: Option<Broken>, ledger: &Ledger) -> turns::Work {
    let ledger = Arc::clone(ledger);
    Box::new(move |disk| {
        let stream = stream_on(disk, options(broken)).expect("opens");
        let view = stream.freeze().expect("freezes");
        ledger.lock().unwrap().frozen.push(view);
    })
}

/// What must be true when all is over: everything acknowledged is in, all agree, and nobody gets in any more.
fn check(sim: &SimDisk, ledger: &Ledger) -> Result<(), String> {
    let told = ledger.lock().unwrap();
    let strange = told.errors.iter().find(|error| !matches!(error, Error::Fenced { .. }));
    if let Some(error) = strange {
        return Err(format!("a put failed: {error}"));
    }
    let later = stream(sim);
    let view = later.freeze().map_err(|error| format!("cannot be frozen again: {error}"))?;
    if let Some(other) = told.frozen.iter().find(|frozen| **frozen != view) {
        return Err(format!("two answers: {other:?} and {view:?}"));
    }
    if !view.lost.is_empty() {
        return Err(format!("frozen, and lost: {:?}", view.lost));
    }
    let found: BTreeSet<String> = view.entries.iter().map(|(id, _)| id.clone()).collect();
    if let Some(lost) = told.acknowledged.iter().find(|id| !found.contains(*id)) {
        return Err(format!("{lost} was acknowledged, and is not in {found:?}"));
    }
    match put(&later, "after the freeze") {
        Err(Error::Fenced { .. }) => Ok(()),
        other => Err(format!("a put after the freeze: {other:?}")),
    }
}

/// A store in which `tokens` exists, so that what is in the way of the protocol is made already.
fn prepared(seed: u64) -> SimDisk {
    let sim = SimDisk::new(seed);
    stream(&sim);
    sim
}

/// Runs one schedule of processes that begin from nothing.
fn run_schedule(
    seed: u64,
    broken: Option<Broken>,
    processes: &dyn Fn(Option<Broken>, &Ledger) -> Vec<turns::Work>,
    choose: turns::Choose,
) -> (Vec<usize>, Result<(), String>) {
    let sim = prepared(seed);
    let ledger = Ledger::default();
    let calls = turns::run(&sim, processes(broken, &ledger), choose);
    (calls, check(&sim, &ledger))
}

/// Every order with two switches between a process that puts and one that freezes, either of them first.
fn all_pairs(
    broken: Option<Broken>,
    processes: &dyn Fn(Option<Broken>, &Ledger) -> Vec<turns::Work>,
) -> Result<u64, String> {
    // Seeds of their own: tests run side by side, and writers with one id would pass for one another.
    let mut seed = seed() + 10_000_000 * (2 + broken.map_or(0, |broken| broken as u64));
    let (calls, checked) = run_schedule(seed, broken, processes, turns::two_switches(0, usize::MAX, 1, 0));
    checked?;
    let mut schedules = 0;
    for (first, second) in [(0, 1), (1, 0)] {
        for before in 0..=calls[first] {
            for between in 1..=calls[second] {
                seed += 1;
                schedules += 1;
                let choose = turns::two_switches(first, before, second, between);
                run_schedule(seed, broken, processes, choose)
                    .1
                    .map_err(|why| format!("{first} made {before} calls, {second} {between}: {why}"))?;
            }
        }
    }
    Ok(schedules)
}

fn one_puts_one_freezes(broken: Option<Broken>, ledger: &Ledger) -> Vec<turns::Work> {
    vec![putter(broken, &["a", "b"], ledger), freezer(broken, ledger)]
}

/// One process begins to put while another freezes: whatever the order, what was acknowledged is in.
#[test]
fn no_order_of_put_and_freeze_loses_an_entry() {
    let schedules = all_pairs(None, &one_puts_one_freezes).unwrap_or_else(|why| panic!("{why}"));
    println!("{schedules} orders of a put and a freeze, nothing acknowledged was lost");
}

/// A freezer is killed at any of its calls, while a process puts: the next one finishes what it began.
#[test]
fn a_freezer_that_dies_loses_nothing() {
    let mut seed = seed() + 700_000_000;
    let dying = |ledger: &Ledger| -> Vec<turns::Work> {
        let freezes = |disk| drop(stream_on(disk, options(None)).and_then(|stream| stream.freeze()));
        vec![putter(None, &["a", "b"], ledger), Box::new(freezes)]
    };
    let count =
        |seed| turns::run(&prepared(seed), dying(&Ledger::default()), turns::two_switches(0, 1000, 1, 0));
    let calls = count(seed);
    let mut schedules = 0;
    for killed_at in 1..=calls[1] {
        for before in 0..=calls[0] {
            (seed, schedules) = (seed + 1, schedules + 1);
            let (sim, ledger) = (prepared(seed), Ledger::default());
            let choose = turns::two_switches(0, before, 1, 1000);
            turns::run_until(&sim, dying(&ledger), choose, &[(1, killed_at)]);
            check(&sim, &ledger).unwrap_or_else(|why| {
                panic!("the freezer died at call {killed_at}, after {before} of the putter: {why}")
            });
        }
    }
    println!("{schedules} deaths of a freezer, nothing acknowledged was lost");
}

/// Two putters and two freezers, in any order.
#[test]
fn no_order_of_many_loses_an_entry() {
    let processes = |broken: Option<Broken>, ledger: &Ledger| {
        vec![
            putter(broken, &["a", "b", "c"], ledger),
            putter(broken, &["d", "a", "e"], ledger),
            freezer(broken, ledger),
            freezer(broken, ledger),
        ]
    };
    let seeds = std::env::var("KEEPSTEP_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    for nth in 0..seeds {
        let seed = seed() + nth;
        // A disk of its own: tests run side by side, and writers with one id would pass for one another.
        let (_, checked) = run_schedule(seed + 900_000_000, None, &processes, turns::at_random(seed));
        checked.unwrap_or_else(|why| panic!("KEEPSTEP_SEED={seed}: {why}"));
    }
    println!("{seeds} random orders of two putters and two freezers, nothing acknowledged was lost");
}

#[test]
fn reading_before_posting_is_caught() {
    let why = all_pairs(Some(Broken::FreezeReadsFirst), &one_puts_one_freezes).expect_err("is caught");
    println!("caught: {why}");
}

/// A process acknowledges an entry, and cannot say any more that its log is synced: a freeze reads beyond what logs say.
fn frozen_without_a_word(broken: Option<Broken>) -> BTreeSet<String> {
    let sim = SimDisk::new(seed() + 9 + u64::from(broken.is_some()));
    let first = stream(&sim);
    put(&first, "a").expect("puts");
    sim.faults().plan(Fault::new(On::Write, Errno::Eio).at(".seg").after(1).times(1));
    put(&first, "b").expect("is acknowledged");
    assert_eq!(sim.faults().hits(), 1, "the word that came after it is lost");
    let second = stream_on(sim.process(), options(broken)).expect("opens");
    let view = second.freeze().expect("freezes");
    put(&first, "c").expect_err("is fenced");
    assert_eq!(second.freeze().expect("freezes"), view);
    ids(&view)
}

#[test]
fn what_is_acknowledged_is_frozen_before_its_log_says_so() {
    assert_eq!(frozen_without_a_word(None), names(&["a", "b"]));
}

#[test]
fn freezing_what_logs_say_is_caught() {
    assert_eq!(frozen_without_a_word(Some(Broken::FreezeReadsClean)), names(&["a"]), "b was acknowledged");
}

/// Many threads put through one handle while another process freezes, on a real disk.
#[test]
fn threads_put_while_others_freeze() {
    for round in 0..20 {
        let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("freeze-{}-{round}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let open =
            || Store::open(&dir, Options::default()).expect("opens").run("run", Value::Null).expect("opens");
        let acknowledged = Mutex::new(BTreeSet::new());
        let streams: Vec<Stream> = (0..3).map(|_| open().stream("tokens")).collect();
        let views: Vec<StreamView> = std::thread::scope(|scope| {
            for (who, stream) in streams.iter().enumerate() {
                for thread in 0..4 {
                    let acknowledged = &acknowledged;
                    scope.spawn(move || {
                        for n in 0..1000 {
                            let id = format!("{who}.{thread}.{n}");
                            match put(stream, &id) {
                                Ok(()) => drop(acknowledged.lock().unwrap().insert(id)),
                                Err(Error::Fenced { .. }) => return,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    });
                }
            }
            std::thread::sleep(Duration::from_millis(round * 2));
            let freezers: Vec<_> = (0..2).map(|_| scope.spawn(|| open().stream("tokens").freeze())).collect();
            freezers.into_iter().map(|freezer| freezer.join().unwrap().expect("freezes")).collect()
        });
        assert_eq!(views[0], views[1], "all agree");
        let acknowledged = acknowledged.into_inner().unwrap();
        let lost: Vec<_> = acknowledged.difference(&ids(&views[0])).cloned().collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {} were acknowledged", acknowledged.len());
        drop(streams);
        let store = Store::open_existing(&dir, Options::default()).expect("opens");
        assert!(store.verify(&mut |_| {}).expect("verifies").is_whole());
        std::fs::remove_dir_all(&dir).expect("is gone");
    }
}

#[test]
fn looking_before_claiming_is_caught() {
    let why = all_pairs(Some(Broken::PutLooksFirst), &one_puts_one_freezes).expect_err("is caught");
    println!("caught: {why}");
}
