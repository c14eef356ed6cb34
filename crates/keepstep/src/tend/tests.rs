use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::card::{Card, kind};
use keepstep_format::commit::Bind;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::*;
use crate::read::{AttemptKey, Catalog, Item, Record};
use crate::recover::Recovery;
use crate::segment::names::segment_path;
use crate::segment::testing::*;
use crate::segment::{Liveness, ScanUnsealed};

fn verify_now(store: &TestStore, scan: &dyn ScanUnsealed) -> Report {
    verify(&store.storage(), scan, &mut |_| {}).unwrap()
}

fn watching(liveness: Liveness) -> Recovery {
    Recovery::read_only(Box::new(move |_| liveness))
}

/// A small store with a bit of everything: two writers, sealed and unsealed segments, values that are shared, a
/// dictionary, packed records, a segment that was given up, cards.
pub(super) fn small_store(name: &str) -> (TestStore, Vec<LogMaker>) {
    let store = TestStore::new(name);
    store.write("keepstep.json", keepstep_format::card::store_json(&STORE, 5).as_bytes());
    let mut first = LogMaker::new(1);
    let (a, b) = (attempt(0xa1), attempt(0xb2));
    first.record(&a, Kind::Begin, &begin("one"));
    first.commit_synced();
    first.value(&Value::from(noise(40, 260)));
    first.record(&a, Kind::Step, &step(0, history(1, 280)));
    first.record(&b, Kind::Begin, &begin("two"));
    first.record(&b, Kind::Step, &step(0, Value::from(noise(40, 260))));
    first.commit_synced();
    first.seal();
    first.next_segment(None);
    first.packs = true;
    first.use_dictionary(noise(41, 300).as_bytes());
    let mut more = step(1, history(2, 280));
    more.push((fields::INFO, Value::from("abc ".repeat(40))));
    first.record(&a, Kind::Step, &more);
    first.commit_synced();
    let synced_to = first.offset();
    first.record(&b, Kind::Step, &step(1, "given up".into()));
    first.commit();
    first.next_segment(Some((1, synced_to)));
    first.rewind(&b, 2);
    first.record(&b, Kind::Step, &step(1, "kept".into()));
    first.record(&a, Kind::Step, &step(2, history(3, 280)));
    first.record(&a, Kind::End, &end("finished"));
    first.commit_synced();
    first.save(&store);

    let mut second = LogMaker::new(2);
    let c = attempt(0xc3);
    second.record(&c, Kind::Begin, &begin("three"));
    second.record(&c, Kind::Step, &step(0, history(2, 280)));
    second.commit_synced();
    second.record(&c, Kind::Step, &step(1, "not synced".into()));
    second.commit();
    second.save(&store);
    let lock = format!("writers/{}/lock", second.writer);
    store.write(&lock, &Card::encode(&STORE, &lock, kind::LOCK, &[0]));
    make_run(&store);
    (store, vec![first, second])
}

type Contents = BTreeMap<(AttemptKey, u32), Record>;

fn read_all(store: &TestStore, scan: Arc<dyn ScanUnsealed>) -> (Contents, bool) {
    let mut catalog = Catalog::over(store.storage(), scan).unwrap();
    let mut all = Contents::new();
    let mut is_whole = true;
    for info in catalog.attempts().unwrap() {
        let mut reader = catalog.reader(&info.key).unwrap();
        for item in reader.records() {
            match item.unwrap() {
                Item::Record(record) => {
                    is_whole &= record.lost.is_empty();
                    all.insert((info.key, record.seq), *record);
                }
                Item::Damaged(_) | Item::Gap(_) => is_whole = false,
            }
        }
    }
    (all, is_whole)
}

/// True if what was found is what was written, apart from what is marked as lost.
fn is_true_to(found: &Value, written: &Value) -> bool {
    match (found.plain(), written.plain()) {
        (Value::Lost(_), _) => true,
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_true_to(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|((k, a), (l, b))| k == l && is_true_to(a, b))
        }
        (a, b) => a == b,
    }
}

fn assert_never_wrong(found: &Contents, written: &Contents, case: &str) {
    for (key, record) in found {
        let Some(original) = written.get(key) else {
            panic!("{case}: {key:?} was never written: {record:?}")
        };
        assert_eq!(record.kind, original.kind, "{case}");
        assert_eq!(record.fields.len(), original.fields.len(), "{case}");
        for ((number, value), (same, expected)) in record.fields.iter().zip(&original.fields) {
            assert_eq!(number, same, "{case}");
            assert!(
                is_true_to(value, expected),
                "{case}: {key:?} field {number}: {value:?} is not {expected:?}"
            );
            assert!(!value.has_lost() || record.lost.contains(number), "{case}: a loss that is not told");
        }
    }
}

/// True if the report speaks of this byte.
fn is_placed(report: &Report, path: &str, offset: u64) -> bool {
    let covers = |from: u64, bytes: u64| offset >= from && offset < from + bytes.max(1);
    let damage = report.damage.iter().any(|it| it.path == path && covers(it.offset, it.bytes));
    let torn = report
        .torn
        .iter()
        .any(|it| segment_path(&it.writer, it.segment) == path && covers(it.offset, it.bytes));
    damage || torn
}

/// One case of a store that was tampered with: nothing wrong is read, and if anything is missing it is told.
fn check_case(
    store: &TestStore,
    written: &Contents,
    liveness: Liveness,
    path: &str,
    at: u64,
    case: &str,
) -> bool {
    let (found, is_whole) = read_all(store, Arc::new(watching(liveness)));
    assert_never_wrong(&found, written, case);
    let report = verify_now(store, &watching(liveness));
    let is_same = is_whole && found.len() == written.len();
    let is_told = is_placed(&report, path, at);
    assert!(is_same || is_told, "{case}: something is gone, and nothing is told: {report:?}");
    let lost = written.len() - found.len();
    if lost > 0 && report.torn.is_empty() {
        assert!(!report.lost.is_empty() || !report.missing.is_empty() || !report.damage.is_empty(), "{case}");
    }
    is_told
}

fn flip_every_byte(name: &str, liveness: Liveness, with_cards: bool) {
    let (store, _) = small_store(name);
    if with_cards {
        read_all(&store, Arc::new(recovery(liveness)));
    }
    let (written, is_whole) = read_all(&store, Arc::new(watching(liveness)));
    assert!(is_whole && written.len() >= 9, "{}", written.len());
    assert!(verify_now(&store, &watching(liveness)).is_whole());
    let (mut told, mut flips) = (0, 0);
    for path in store.files() {
        let data = std::fs::read(store.file(&path)).unwrap();
        for at in 0..data.len() {
            let mut flipped = data.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(store.file(&path), &flipped).unwrap();
            let is_told =
                check_case(&store, &written, liveness, &path, at as u64, &format!("{path} byte {at}"));
            flips += 1;
            told += u64::from(is_told);
        }
        std::fs::write(store.file(&path), &data).unwrap();
    }
    // Only what does not count goes unnoticed: the part of a segment that was given up.
    assert!(told * 100 > flips * 80, "{told} of {flips}");
}

/// Each byte of a small store flipped: found and placed, or harmless; never wrong data, never a panic.
#[test]
fn a_flip_of_any_byte_is_found_or_harmless() {
    flip_every_byte("flip", Liveness::Dead, false);
}

/// The same with cards of an earlier scan, which the readers then use.
#[test]
fn a_flip_of_any_byte_is_found_or_harmless_with_cards() {
    flip_every_byte("flip-cards", Liveness::Dead, true);
}

/// While the writers live, what is below `synced_to` is guarded just as well.
#[test]
fn a_flip_of_any_byte_of_a_live_log_is_never_read_as_data() {
    let (store, _) = small_store("flip-live");
    let (written, _) = read_all(&store, Arc::new(watching(Liveness::Unknown)));
    for path in store.files() {
        let data = std::fs::read(store.file(&path)).unwrap();
        for at in (0..data.len()).step_by(3) {
            let mut flipped = data.clone();
            flipped[at] ^= 0x40;
            std::fs::write(store.file(&path), &flipped).unwrap();
            let (found, _) = read_all(&store, Arc::new(watching(Liveness::Live)));
            assert_never_wrong(&found, &written, &format!("{path} byte {at}"));
            verify_now(&store, &watching(Liveness::Live));
        }
        std::fs::write(store.file(&path), &data).unwrap();
    }
}

/// Each truncation of each segment: found and placed, or harmless. A card of an earlier scan, or the next header, knows
/// how long a segment was.
#[test]
fn a_cut_at_any_byte_is_found_or_harmless() {
    let (store, _) = small_store("cut");
    read_all(&store, Arc::new(recovery(Liveness::Dead)));
    let (written, _) = read_all(&store, Arc::new(watching(Liveness::Dead)));
    for path in store.files() {
        if path == "keepstep.json" || path.ends_with("lock") {
            continue;
        }
        let data = std::fs::read(store.file(&path)).unwrap();
        for cut in 0..data.len() {
            std::fs::write(store.file(&path), &data[..cut]).unwrap();
            check_case(&store, &written, Liveness::Dead, &path, cut as u64, &format!("{path} cut at {cut}"));
        }
        std::fs::write(store.file(&path), &data).unwrap();
    }
}

/// Without a card nobody knows how long the last segment was: a cut leaves a prefix of what was written.
#[test]
fn a_cut_of_a_log_that_nobody_looked_at_leaves_a_prefix() {
    let (store, _) = small_store("cut-prefix");
    let (written, _) = read_all(&store, Arc::new(watching(Liveness::Dead)));
    let path = segment_path(&Id([2; 16]), 0);
    let data = std::fs::read(store.file(&path)).unwrap();
    let mut before = 0;
    for cut in 0..=data.len() {
        std::fs::write(store.file(&path), &data[..cut]).unwrap();
        let (found, is_whole) = read_all(&store, Arc::new(watching(Liveness::Dead)));
        assert_never_wrong(&found, &written, &format!("cut at {cut}"));
        assert!(found.len() >= before, "cut at {cut}: a longer file has no fewer records");
        assert!(is_whole, "cut at {cut}: what is there is whole");
        before = found.len();
    }
    assert_eq!(before, written.len());
}

/// What is whole is reported as whole, with all that was looked at.
#[test]
fn a_whole_store_is_reported_as_whole() {
    let (store, makers) = small_store("whole");
    let mut last = Progress { bytes_done: 0, bytes_total: 0 };
    let report = verify(&store.storage(), &watching(Liveness::Dead), &mut |progress| {
        assert!(progress.bytes_done >= last.bytes_done && progress.bytes_done <= progress.bytes_total);
        last = progress;
    })
    .unwrap();
    assert!(report.is_whole(), "{report:?}");
    let bytes: usize = makers.iter().flat_map(LogMaker::segments).map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((report.counts.bytes, last.bytes_done), (bytes as u64, bytes as u64));
    assert_eq!((report.counts.writers, report.counts.segments, report.counts.sealed), (2, 4, 1));
    assert_eq!((report.counts.subjects, report.counts.cards), (3, 2));
    assert!(report.counts.references >= 2 && report.torn.is_empty() && report.leftovers.is_empty());
}

/// A writer that died in mid-batch leaves a torn end, and that is no damage.
#[test]
fn a_torn_end_is_not_damage() {
    let store = TestStore::new("torn");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    maker.record(&bind, Kind::Step, &step(0, "synced".into()));
    maker.commit_synced();
    let whole = maker.offset();
    maker.record(&bind, Kind::Step, &step(1, "on its way".into()));
    maker.save(&store);
    store.write(&format!("writers/{}/.tmp-0011", maker.writer), b"x");
    for with_card in [false, true] {
        let report = verify_now(&store, &watching(Liveness::Dead));
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(report.torn.len(), 1);
        assert_eq!((report.torn[0].offset, report.torn[0].bytes), (whole, maker.offset() - whole));
        assert_eq!(report.torn[0].records, 1);
        assert_eq!(report.leftovers, [format!("writers/{}/.tmp-0011", maker.writer)]);
        if !with_card {
            read_all(&store, Arc::new(recovery(Liveness::Dead)));
        }
    }
}

fn flip(store: &TestStore, path: &str, at: u64) {
    let mut data = std::fs::read(store.file(path)).unwrap();
    data[at as usize] ^= 1;
    std::fs::write(store.file(path), &data).unwrap();
}

/// What damage cost is told per value: which episode, which step, which field.
#[test]
fn damage_is_told_with_what_it_cost() {
    let store = TestStore::new("cost");
    let mut maker = LogMaker::new(1);
    let bind = attempt(7);
    let shared = Value::from(noise(1, 400));
    let at = maker.value(&shared);
    for index in 0..3 {
        maker.record(&bind, Kind::Step, &step(index, Value::list([shared.clone(), Value::Int(index)])));
        maker.commit_synced();
    }
    let second = maker.offset();
    maker.record(&bind, Kind::Step, &step(3, "own".into()));
    maker.commit_synced();
    maker.save(&store);
    let path = segment_path(&maker.writer, 0);
    flip(&store, &path, at + 100);
    flip(&store, &path, second + 40);

    let report = verify_now(&store, &watching(Liveness::Dead));
    assert_eq!(report.damage.len(), 2, "{report:?}");
    assert_eq!((report.damage[0].offset, report.damage[0].wrong), (at, Wrong::Records));
    assert_eq!((report.damage[1].offset, report.damage[1].segment), (second, Some(0)));
    let lost: Vec<_> =
        report.lost.iter().map(|it| (it.bind.unwrap().id, it.step, it.field, it.healed)).collect();
    let id = bind.id;
    assert_eq!(
        lost,
        [
            (id, Some(0), Some("observation"), false),
            (id, Some(1), Some("observation"), false),
            (id, Some(2), Some("observation"), false),
            (id, Some(3), None, false),
        ]
    );
    assert_eq!(report.missing, []);
}

/// A lost value that stands elsewhere in the store is found by its hash, and readers get it again.
#[test]
fn a_lost_value_is_healed_from_another_log() {
    let store = TestStore::new("heal");
    let shared = history(4, 300);
    let long = Value::from(noise(9, 9000));
    let mut maker = LogMaker::new(1);
    let bind = attempt(7);
    let at = maker.value(&Value::list([shared.clone(), long.clone()]));
    maker.commit_synced();
    let longer = Value::list((0..6).map(|turn| Value::from(noise(turn, 300))));
    let text = Value::from(format!("{}{}", noise(9, 9000), noise(10, 500)));
    let values =
        [(fields::OBSERVATION, longer.clone()), (fields::PROMPT, text.clone()), (fields::RESPONSE, long)];
    maker.record(&bind, Kind::Step, &values);
    maker.commit_synced();
    maker.save(&store);
    let mut other = LogMaker::new(2);
    other.record(
        &attempt(8),
        Kind::Step,
        &[(fields::STATE, Value::map([("m", history(5, 300)), ("t", text.clone())]))],
    );
    other.record(&attempt(8), Kind::Step, &[(fields::RESPONSE, Value::from(noise(9, 9000)))]);
    other.commit_synced();
    other.save(&store);
    flip(&store, &segment_path(&maker.writer, 0), at + 100);

    let scan = watching(Liveness::Dead);
    let before = verify_now(&store, &scan);
    assert_eq!(before.lost.len(), 3, "{before:?}");
    assert_eq!(before.lost_for_good().count(), 3);
    let storage = store.storage();
    let healed = heal(&storage, &scan, &mut |_| {}).unwrap();
    assert_eq!((healed.wanted, healed.found, healed.cards.len()), (3, 3, 1), "{healed:?}");
    let after = verify_now(&store, &scan);
    assert_eq!((after.lost.len(), after.lost_for_good().count(), after.damage.len()), (3, 0, 1), "{after:?}");

    let catalog = Catalog::over(store.storage(), Arc::new(scan)).unwrap();
    let key = AttemptKey { episode: bind.id, attempt: 0, writer: maker.writer };
    let found = catalog.reader(&key).unwrap().read().unwrap();
    assert!(found.steps[0].damaged.is_empty(), "{:?}", found.steps[0].damaged);
    assert_eq!((&found.steps[0].observation, &found.steps[0].prompt), (&Some(longer), &Some(text)));
    let again = heal(&storage, &watching(Liveness::Dead), &mut |_| {}).unwrap();
    assert_eq!((again.wanted, again.cards.len()), (0, 0));
}

/// A record whose checksums hold and whose reference leads elsewhere is found by hashing what it leads to.
#[test]
fn a_reference_to_another_value_is_found() {
    let store = TestStore::new("wrong-reference");
    let mut maker = LogMaker::new(1);
    let bind = attempt(7);
    let value = Value::from(noise(1, 400));
    maker.value(&value);
    maker.commit_synced();
    maker.mislead(&value);
    maker.record(&bind, Kind::Step, &step(0, value));
    maker.commit_synced();
    maker.save(&store);
    let report = verify_now(&store, &watching(Liveness::Dead));
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!(report.damage[0].wrong, Wrong::Disagrees);
}

/// A binding that appears nowhere else is the only name of its records: without it they are told as nobody's.
#[test]
fn records_whose_binding_is_lost_are_told() {
    let store = TestStore::new("orphans");
    let mut maker = LogMaker::new(1);
    maker.record(&attempt(1), Kind::Step, &step(0, "x".into()));
    maker.commit_synced();
    maker.save(&store);
    flip(&store, &segment_path(&maker.writer, 0), 128 + 30);
    let report = verify_now(&store, &watching(Liveness::Dead));
    assert_eq!(report.damage.len(), 2, "{report:?}");
    assert_eq!(report.lost.len(), 1);
    assert_eq!((report.lost[0].bind, report.lost[0].kind), (None::<Bind>, Kind::Step as u8));
}

/// Any number of wounds at once, of any sort: nothing wrong is read, and nothing panics.
#[test]
fn many_wounds_at_once_are_never_read_as_data() {
    let (store, _) = small_store("wounds");
    read_all(&store, Arc::new(recovery(Liveness::Dead)));
    let (written, _) = read_all(&store, Arc::new(watching(Liveness::Dead)));
    let files: Vec<(String, Vec<u8>)> = store
        .files()
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(store.file(&path)).unwrap()))
        .collect();
    // KEEPSTEP_SEED=7 tries one again, KEEPSTEP_SEEDS=10000 tries many.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("KEEPSTEP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KEEPSTEP_SEEDS").unwrap_or(400),
    };
    for seed in seeds {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % below.max(1)
        };
        for (path, data) in &files {
            let mut data = data.clone();
            for _ in 0..next(4) {
                let (at, length) = (next(data.len()), next(64));
                let end = (at + length).min(data.len());
                match next(5) {
                    0 => data[at..end].fill(0),
                    1 => data[at..end].iter_mut().for_each(|byte| *byte = next(256) as u8),
                    2 => data.truncate(at),
                    3 => {
                        let to = next(data.len() - (end - at));
                        data.copy_within(at..end, to);
                    }
                    _ => data.extend_from_within(at..end),
                }
            }
            std::fs::write(store.file(path), &data).unwrap();
        }
        for liveness in [Liveness::Dead, Liveness::Live, Liveness::Unknown] {
            let (found, _) = read_all(&store, Arc::new(watching(liveness)));
            assert_never_wrong(&found, &written, &format!("seed {seed}"));
            verify_now(&store, &watching(liveness));
        }
        heal(&store.storage(), &watching(Liveness::Dead), &mut |_| {}).unwrap();
        let _ = std::fs::remove_dir_all(store.file("heals"));
    }
}
