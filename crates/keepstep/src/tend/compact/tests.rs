use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::card::kind;
use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::*;
use crate::read::{Catalog, Item};
use crate::segment::names::stream_path;
use crate::segment::testing::*;
use crate::segment::{Liveness, ScanUnsealed};
use crate::tend::tests::small_store;
use crate::tend::{NotClosed, verify};

fn how(block_bytes_max: usize) -> CompactSetup {
    let options = CompactOptions { grace: Duration::ZERO, block_bytes_max, ..CompactOptions::default() };
    CompactSetup { options, faults: Faults::default() }
}

/// All writers are gone, and nobody has to be asked.
struct AllGone(crate::recover::Recovery);

impl CloseLogs for AllGone {
    fn close(&self, _: &[Id]) -> Result<BTreeMap<Id, NotClosed>> {
        Ok(BTreeMap::new())
    }

    fn scan(&self) -> &dyn ScanUnsealed {
        &self.0
    }

    fn scan_closed(&self) -> &dyn ScanUnsealed {
        &self.0
    }
}

fn compact_now(store: &TestStore, block_bytes_max: usize) -> CompactReport {
    let all_gone = AllGone(recovery(Liveness::Dead));
    compact(&store.storage(), &all_gone, &how(block_bytes_max), &mut |_| {}).unwrap()
}

/// What a reader is told, without places: kind and fields, or why not.
type RecordSaid = (u32, u8, Vec<(u8, Value)>, Vec<u8>);

fn read_all(store: &TestStore) -> BTreeMap<(Id, Id, u32, u8, Id), Vec<RecordSaid>> {
    let catalog = Catalog::over(store.storage(), Arc::new(recovery(Liveness::Dead))).unwrap();
    let mut all = BTreeMap::new();
    for (writer, bind) in catalog.subjects() {
        let said = |item| match item {
            Item::Record(record) => (record.seq, record.kind, record.fields, record.lost),
            Item::Damaged(lost) => (lost.seq, lost.kind, Vec::new(), vec![255]),
            Item::Gap(gap) => (gap.from, 0, vec![(0, Value::Int(i64::from(gap.to)))], vec![254]),
        };
        let mut reader = catalog.bind_reader(&writer, &bind).unwrap();
        let records = reader.records().map(|item| said(item.unwrap())).collect();
        let from = if let What::Copied { from } = bind.what { from } else { Id::NONE };
        all.insert((writer, bind.id, bind.attempt, bind.what.number(), from), records);
    }
    all
}

/// Copies of another writer's attempt, streams, notes on runs, gaps, dictionaries, chunks, what was given up and written
/// again, two attempts that refer to one another: all is read as before, by the same writers.
#[test]
fn whatever_a_log_can_have_is_moved() {
    let (store, _) = small_store("moved");
    let mut log = LogMaker::new(3);
    let first = attempt(0xd4);
    let second = Bind { attempt: 1, ..first };
    let copied = Bind { what: What::Copied { from: Id([9; 16]) }, ..first };
    let stream = Bind { what: What::Stream, id: Id([0xe5; 16]), attempt: 0 };
    let run = Bind { what: What::Run, id: Id([0xf6; 16]), attempt: 0 };
    log.record(&second, Kind::Begin, &begin("four"));
    log.record(&second, Kind::Step, &step(0, history(2, 400)));
    log.record(&first, Kind::Begin, &begin("four"));
    // The older attempt refers to what the newer one said first.
    log.record(&first, Kind::Step, &step(0, history(3, 400)));
    log.record(&second, Kind::Step, &step(1, history(4, 400)));
    log.rewind(&copied, 5);
    log.record(&copied, Kind::Step, &step(4, history(2, 400)));
    log.record(&stream, Kind::Put, &[(fields::NAME, "id".into()), (fields::VALUE, history(3, 400))]);
    log.record(&run, Kind::Note, &[(fields::NAME, "score".into()), (fields::VALUE, Value::Float(1.0))]);
    log.commit_synced();
    log.seal();
    log.next_segment(None);
    log.record(
        &stream,
        Kind::Put,
        &[(fields::NAME, "big".into()), (fields::VALUE, noise(1, 1_200_000).into())],
    );
    log.rewind(&first, 7);
    log.record(&first, Kind::Step, &step(6, history(5, 400)));
    log.commit_synced();
    log.save(&store);
    let claim = stream_path(&stream.id, &log.writer.to_string());
    store.publish(&claim, kind::CLAIM, &[]);

    let before = read_all(&store);
    assert_eq!(before.len(), 3 + 5);
    for (round, block_bytes_max) in [(0, 700), (1, 700), (2, 1 << 20)] {
        let report = compact_now(&store, block_bytes_max);
        assert_eq!(report.left_alone, [], "round {round}");
        assert_eq!(read_all(&store), before, "round {round}");
        let report = verify(&store.storage(), &recovery(Liveness::Dead), &mut |_| {}).unwrap();
        let gaps: Vec<_> = report.missing.iter().map(|gap| (gap.writer, gap.from, gap.to)).collect();
        let writer = log.writer;
        // The copy begins with 5, as no base says otherwise.
        assert_eq!(gaps, [(writer, 2, 7)], "round {round}: {report:?}");
        assert!(report.damage.is_empty() && report.lost.is_empty(), "round {round}: {report:?}");
    }
}

/// Whatever is damaged: what is read afterwards is what was read before, lost marks and all. A log with damage is left
/// alone, and the report says so.
#[test]
fn what_is_lost_stays_lost_and_is_not_made_worse() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("KEEPSTEP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KEEPSTEP_SEEDS").unwrap_or(200),
    };
    let mut left_alone = 0;
    for seed in seeds {
        let (store, makers) = small_store("lost");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % below.max(1)
        };
        let maker = &makers[next(makers.len())];
        let (number, mut bytes) = maker.segments().swap_remove(next(maker.segments().len()));
        let at = next(bytes.len());
        bytes[at] ^= 1 << next(8);
        store.write(&crate::segment::names::segment_path(&maker.writer, number), &bytes);
        let before = read_all(&store);
        let report = compact_now(&store, 700);
        compact_now(&store, 700);
        left_alone += report.left_alone.len();
        assert_eq!(
            read_all(&store),
            before,
            "seed {seed}: byte {at} of segment {number} of {}",
            maker.writer
        );
    }
    assert!(left_alone > 0, "no damage was noticed");
}

/// With the lists of a segment and one of its blocks damaged, every record is read as it was, or told as lost.
#[test]
fn what_a_block_and_the_lists_cost_is_told() {
    let (store, _) = small_store("lists");
    compact_now(&store, 300);
    compact_now(&store, 300);
    let before = read_all(&store);
    let path = store.file("grouped/0.seg");
    let bytes = std::fs::read(&path).unwrap();
    let trailer = &bytes[bytes.len() - 40..];
    let lists = u64::from_le_bytes(trailer[16..24].try_into().unwrap()) as usize;
    let mut lost_somewhere = 0;
    for at in (128..lists).step_by(16) {
        let mut wounded = bytes.clone();
        wounded[at] ^= 1;
        wounded[lists + 24] ^= 1;
        std::fs::write(&path, &wounded).unwrap();
        let now = read_all(&store);
        for (key, records) in &before {
            let found = now.get(key).unwrap_or_else(|| panic!("byte {at}: {key:?} is gone"));
            assert_eq!(found.len(), records.len(), "byte {at}: {key:?}");
            for (found, said) in found.iter().zip(records) {
                let is_told = found.3 == [255] && found.0 == said.0;
                let is_marked = !found.3.is_empty() && (found.0, found.1) == (said.0, said.1);
                assert!(found == said || is_told || is_marked, "byte {at}: {found:?} instead of {said:?}");
                lost_somewhere += u64::from(found != said);
            }
        }
    }
    assert!(lost_somewhere > 0, "nothing was damaged");
}
