use keepstep_format::commit::Bind;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;

use super::*;
use crate::segment::testing::*;
use crate::segment::{Contents, Log};

fn open(store: &TestStore, maker: &LogMaker, liveness: Liveness) -> Log {
    let mut log = Log::new(store.storage(), maker.writer);
    log.refresh(&recovery(liveness)).unwrap();
    log
}

fn scanned(log: &Log, number: u64) -> &Scanned {
    match log.segment(number).unwrap().contents() {
        Contents::Open(scanned) => scanned,
        other => panic!("it is not open: {other:?}"),
    }
}

fn sequences(scanned: &Scanned, bind: &Bind) -> Vec<u32> {
    scanned.records_of(bind).iter().map(|record| record.seq).collect()
}

fn three_steps() -> (LogMaker, Bind) {
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    maker.record(&bind, Kind::Begin, &begin("t"));
    maker.commit_synced();
    maker.record(&bind, Kind::Step, &step(0, history(2, 300)));
    maker.record(&bind, Kind::Step, &step(1, history(3, 300)));
    maker.commit();
    (maker, bind)
}

/// What was found in the log of a dead writer is published, and whoever comes next reads that, and the same.
#[test]
fn a_dead_writer_is_scanned_once() {
    let store = TestStore::new("once");
    let (maker, bind) = three_steps();
    maker.save(&store);
    let path = crate::segment::names::segment_path(&maker.writer, 0);
    let before = std::fs::read(store.file(&path)).unwrap();
    let log = open(&store, &maker, Liveness::Dead);
    let first = scanned(&log, 0);
    assert!(!first.is_from_card && !log.is_finished(), "that its writer seems dead proves nothing");
    let log = open(&store, &maker, Liveness::Dead);
    let second = scanned(&log, 0);
    assert!(second.is_from_card);
    assert_eq!((&first.entries, &first.log_frames), (&second.entries, &second.log_frames));
    assert_eq!(
        (first.synced_to, first.valid_to, &first.lost),
        (second.synced_to, second.valid_to, &second.lost)
    );
    assert_eq!(sequences(second, &bind), [0, 1, 2]);
    assert_eq!(second.entries[0].summary.steps, 2);
    let log = open(&store, &maker, Liveness::Unknown);
    assert!(scanned(&log, 0).is_from_card, "it says the same while the file is as long");
    assert_eq!(std::fs::read(store.file(&path)).unwrap(), before, "nobody's files were changed");
    let names = store.files();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// While a writer lives or may live, nothing is published about it.
#[test]
fn nothing_is_published_about_the_living() {
    let store = TestStore::new("living");
    let (maker, _) = three_steps();
    maker.save(&store);
    open(&store, &maker, Liveness::Live);
    open(&store, &maker, Liveness::Unknown);
    assert_eq!(store.files().len(), 1);
}

/// A card that does not validate is passed over and told, and the segment is scanned again.
#[test]
fn a_damaged_card_is_ignored_and_told() {
    let store = TestStore::new("bad-card");
    let (maker, bind) = three_steps();
    maker.save(&store);
    open(&store, &maker, Liveness::Dead);
    let path = store.file(&scan_path(&maker.writer, 0));
    let card = std::fs::read(&path).unwrap();
    for at in (0..card.len()).step_by(7) {
        let mut flipped = card.clone();
        flipped[at] ^= 16;
        std::fs::write(&path, &flipped).unwrap();
        let log = open(&store, &maker, Liveness::Dead);
        assert!(scanned(&log, 0).card_is_damaged, "byte {at}");
        assert_eq!(sequences(scanned(&log, 0), &bind), [0, 1, 2], "byte {at}");
        assert_eq!(std::fs::read(&path).unwrap(), flipped, "a name is never given twice");
    }
}

/// A store that cannot be written to is read all the same.
#[test]
fn a_store_without_room_for_cards_is_read() {
    let store = TestStore::new("read-only");
    let (maker, bind) = three_steps();
    maker.save(&store);
    store.write("scans", b"a file where a folder should be");
    let log = open(&store, &maker, Liveness::Dead);
    assert_eq!(sequences(scanned(&log, 0), &bind), [0, 1, 2]);
}

/// A flip below `synced_to` is damage and has a name; above it is a torn end; a log that goes on has no torn end.
#[test]
fn damage_and_torn_ends_are_told_apart() {
    let store = TestStore::new("apart");
    let (maker, bind) = three_steps();
    let whole = maker.segments()[0].1.clone();
    let path = crate::segment::names::segment_path(&maker.writer, 0);
    let find = |seq: u32| {
        maker.save(&store);
        let log = open(&store, &maker, Liveness::Unknown);
        scanned(&log, 0).records_of(&bind).iter().find(|record| record.seq == seq).unwrap().offset
    };
    let (synced, torn) = (find(0), find(1));
    let with_flip = |maker: &LogMaker, at: u64| {
        let mut data = whole.clone();
        data[at as usize + 30] ^= 1;
        store.write(&path, &data);
        open(&store, maker, Liveness::Unknown)
    };
    let log = with_flip(&maker, synced);
    let found = scanned(&log, 0);
    assert_eq!(sequences(found, &bind), [1, 2]);
    assert_eq!(found.lost_of(&bind).iter().map(|lost| lost.seq).collect::<Vec<_>>(), [0]);
    assert!(found.lost[0].damage && found.lost[0].offset == synced);

    let log = with_flip(&maker, torn);
    let found = scanned(&log, 0);
    assert_eq!(sequences(found, &bind), [0]);
    assert!(!found.lost[0].damage && found.lost.len() == 1, "{:?}", found.lost);
    assert_eq!(found.valid_to, found.synced_to.max(found.valid_to));

    let mut maker = maker;
    maker.next_segment(None);
    maker.record(&bind, Kind::Step, &step(2, "more".into()));
    maker.commit();
    maker.save(&store);
    let log = with_flip(&maker, torn);
    let found = scanned(&log, 0);
    assert_eq!(
        sequences(found, &bind),
        [0, 2],
        "a later segment has a frame, so all of this one was promised"
    );
    assert!(found.lost[0].damage);
}

/// A segment is read in windows: one that is longer than any window, with records longer than any frame.
#[test]
fn a_segment_longer_than_a_window_is_scanned() {
    let store = TestStore::new("long");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    for index in 0..5 {
        let big: Vec<u8> =
            (0..3 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761 + index) >> 24) as u8).collect();
        maker.record(&bind, Kind::Step, &step(i64::from(index), Value::bytes(big)));
        maker.record(&bind, Kind::Note, &[(keepstep_format::fields::NAME, "small".into())]);
    }
    maker.commit();
    maker.save(&store);
    for liveness in [Liveness::Unknown, Liveness::Dead, Liveness::Dead] {
        let mut log = open(&store, &maker, liveness);
        log.sum_up().unwrap();
        let found = scanned(&log, 0);
        assert_eq!(sequences(found, &bind), (0..10).collect::<Vec<_>>());
        assert_eq!(found.entries[0].summary.total_reward, Some(2.5), "long records are summed up too");
    }
}

/// A live log is gone on with where the last look ended, and what comes after `synced_to` is not there yet.
#[test]
fn a_live_log_is_gone_on_with() {
    let store = TestStore::new("go-on");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    let mut log = Log::new(store.storage(), maker.writer);
    let scan = recovery(Liveness::Live);
    for index in 0..20 {
        maker.record(&bind, Kind::Step, &step(index, history(index as usize, 100)));
        maker.commit();
        append(&maker, &store);
        log.refresh(&scan).unwrap();
        assert_eq!(sequences(scanned(&log, 0), &bind).len() as i64, index, "not yet");
        maker.sync();
        maker.commit();
        append(&maker, &store);
        log.refresh(&scan).unwrap();
        assert_eq!(sequences(scanned(&log, 0), &bind).len() as i64, index + 1);
    }
}

/// A dirty scan of a live log has all that was committed, tells what is not known to be synced, and leaves nothing behind.
#[test]
fn a_dirty_scan_goes_beyond_what_is_synced() {
    let store = TestStore::new("dirty");
    let (mut maker, bind) = three_steps();
    maker.save(&store);
    let clean = open(&store, &maker, Liveness::Live);
    assert_eq!(sequences(scanned(&clean, 0), &bind), [0], "only what is synced exists yet");
    let mut log = Log::new(store.storage(), maker.writer);
    log.refresh(&Recovery::dirty()).unwrap();
    let found = scanned(&log, 0);
    assert_eq!(sequences(found, &bind), [0, 1, 2]);
    assert!(found.synced_to < found.valid_to && found.lost.is_empty());
    let offsets: Vec<u64> = found.records_of(&bind).iter().map(|record| record.offset).collect();
    assert!(offsets[0] < found.synced_to && offsets[1] >= found.synced_to, "{offsets:?}");
    // The writer goes on, and so does whoever looks again.
    maker.record(&bind, Kind::Step, &step(2, history(4, 300)));
    maker.commit();
    append(&maker, &store);
    log.refresh(&Recovery::dirty()).unwrap();
    assert_eq!(sequences(scanned(&log, 0), &bind), [0, 1, 2, 3]);
    assert_eq!(store.files().len(), 1, "nothing is published: {:?}", store.files());
}

/// A scanner that finds half a frame of a live log waits for the rest.
#[test]
fn a_live_log_that_is_cut_anywhere_is_a_prefix() {
    let store = TestStore::new("live-cut");
    let mut maker = LogMaker::new(1);
    let bind = attempt(1);
    for index in 0..4 {
        maker.record(&bind, Kind::Step, &step(index, history(index as usize + 1, 100)));
        maker.commit_synced();
    }
    let whole = maker.segments()[0].1.clone();
    let path = crate::segment::names::segment_path(&maker.writer, 0);
    store.write(&path, &whole[..128]);
    let mut log = Log::new(store.storage(), maker.writer);
    let scan = recovery(Liveness::Live);
    let mut seen = 0;
    for cut in 128..=whole.len() {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).open(store.file(&path)).unwrap();
        file.write_all(&whole[cut - 1..cut][..usize::from(cut > 128)]).unwrap();
        log.refresh(&scan).unwrap();
        let found = scanned(&log, 0);
        assert!(found.lost.is_empty(), "cut at {cut}: {:?}", found.lost);
        let now = sequences(found, &bind);
        assert_eq!(now, (0..now.len() as u32).collect::<Vec<_>>());
        assert!(now.len() >= seen);
        seen = now.len();
    }
    assert_eq!(seen, 4);
}

/// The card that a writer leaves when it closes says how long its last segment was: a cut is damage then.
#[test]
fn a_segment_that_was_closed_and_then_cut_is_damaged() {
    let store = TestStore::new("closed");
    let (mut maker, bind) = three_steps();
    let data_end = maker.offset();
    maker.seal();
    maker.save(&store);
    let bytes = maker.segments()[0].1.clone();
    publish_closing(&store, &maker, bytes.len());
    let log = open(&store, &maker, Liveness::Dead);
    assert!(matches!(log.segment(0).unwrap().contents(), Contents::Sealed(_)));
    // Cut where a commit ends: nothing that is left tells of it.
    let cut = data_end;
    store.write(&crate::segment::names::segment_path(&maker.writer, 0), &bytes[..cut as usize]);
    let log = open(&store, &maker, Liveness::Dead);
    let found = scanned(&log, 0);
    let last = found.lost.last().unwrap();
    assert_eq!((last.offset, last.bytes, last.damage), (cut, bytes.len() as u64 - cut, true));
    assert_eq!(sequences(found, &bind), [0, 1, 2]);
}

/// What a writer leaves that closes in good order.
fn publish_closing(store: &TestStore, maker: &LogMaker, file_bytes: usize) {
    use keepstep_format::fields;
    let fields = [
        (fields::WRITER, Value::bytes(maker.writer.0)),
        (fields::SEGMENT, Value::Int(0)),
        (fields::FILE_BYTES, Value::Int(file_bytes as i64)),
    ];
    let path = scan_path(&maker.writer, 0);
    let kind = keepstep_format::card::kind::SCAN;
    crate::segment::cards::publish_card(&store.storage(), &path, kind, &fields).unwrap();
}

/// A segment was measured, then its writer went on and closed it, then its card was read: that looked like a cut.
#[test]
fn a_log_that_is_closed_while_it_is_read_is_whole() {
    let store = TestStore::new("closed-meanwhile");
    let (mut maker, bind) = three_steps();
    maker.save(&store);
    let log = open(&store, &maker, Liveness::Unknown);
    let (head, measured) = log.rescan(0).unwrap();
    maker.record(&bind, Kind::Step, &step(2, history(4, 300)));
    maker.commit();
    maker.seal();
    maker.save(&store);
    publish_closing(&store, &maker, maker.segments()[0].1.len());
    let mut found = Scanned::new();
    Recovery::dirty().scan(&store.storage(), &head, log.readable(), &measured, &mut found).unwrap();
    assert!(found.lost.is_empty(), "{:?}", found.lost);
    assert_eq!(sequences(&found, &bind), [0, 1, 2, 3]);
}

/// Whoever looks again and again at a log that grows, wherever a write was cut off meanwhile, finds what a first look finds.
#[test]
fn a_dirty_look_again_finds_what_a_first_look_finds() {
    let store = TestStore::new("dirty-again");
    let mut maker = LogMaker::new(1);
    let binds = [attempt(1), attempt(2), attempt(3)];
    let mut ends = Vec::new();
    for index in 0..60_i64 {
        let bind = &binds[(index % 7 % 3) as usize];
        maker.record(
            bind,
            Kind::Step,
            &step(index, Value::from(noise(index as u64, 40 + 37 * (index as usize % 5)))),
        );
        if index % 3 == 0 {
            maker.commit();
        }
        if index % 4 == 0 {
            maker.sync();
        }
        ends.push(maker.offset() as usize);
    }
    maker.commit();
    let path = crate::segment::names::segment_path(&maker.writer, 0);
    let (_, whole) = maker.segments().remove(0);
    let mut log = Log::new(store.storage(), maker.writer);
    let lengths = ends.iter().flat_map(|end| [end - 3, *end, end + 17]).chain([whole.len()]);
    for length in lengths.map(|length| length.min(whole.len())) {
        store.write(&path, &whole[..length]);
        log.refresh(&Recovery::dirty_again()).unwrap();
        let mut first = Log::new(store.storage(), maker.writer);
        first.refresh(&Recovery::dirty()).unwrap();
        let (again, first) = (scanned(&log, 0), scanned(&first, 0));
        let content = |found: &Scanned| {
            let sequences = binds.map(|bind| found.records_of(&bind));
            (sequences, found.log_frames.clone(), found.synced_to, found.valid_to, found.lost.clone())
        };
        assert_eq!(content(again), content(first), "{length} bytes");
        assert!(again.certain.is_some(), "{length} bytes: it went on");
    }
}
