use keepstep_format::frame::Kind;
use keepstep_format::value::Value;

use super::log::Contents;
use super::names::segment_path;
use super::testing::*;
use super::{Liveness, Log};

fn open(store: &TestStore, maker: &LogMaker) -> Log {
    let mut log = Log::new(store.storage(), maker.writer);
    log.refresh(&recovery(Liveness::Unknown)).unwrap();
    log
}

/// Opening a sealed segment reads its header, trailer and FOOTER: whatever happened to the data, the list is there.
#[test]
fn a_sealed_segment_is_opened_without_its_data() {
    let store = TestStore::new("sealed");
    let mut maker = LogMaker::new(1);
    for episode in 1..=9 {
        maker.record(&attempt(episode), Kind::Begin, &begin("t"));
        maker.record(&attempt(episode), Kind::Step, &step(0, Value::from(noise(u64::from(episode), 300))));
    }
    maker.commit_synced();
    let data_end = maker.offset() as usize;
    maker.seal();
    let mut bytes = maker.segments()[0].1.clone();
    // Data and LISTS are gone, as if nobody had ever read them.
    let log = {
        maker.save(&store);
        open(&store, &maker)
    };
    let Contents::Sealed(index) = log.segment(0).unwrap().contents() else { panic!("it is sealed") };
    bytes[128..index.trailer.footer as usize].fill(0);
    assert_eq!(index.trailer.lists as usize, data_end);
    store.write(&segment_path(&maker.writer, 0), &bytes);
    let log = open(&store, &maker);
    let Contents::Sealed(index) = log.segment(0).unwrap().contents() else { panic!("it is still sealed") };
    assert_eq!(index.entries().count(), 9);
    assert_eq!(index.entries_by(&maker.writer, &attempt(4)).map(|entry| entry.count).sum::<u32>(), 2);
}

/// A name that keepstep would not have given is passed over.
#[test]
fn files_in_the_making_are_passed_over() {
    let store = TestStore::new("names");
    let mut maker = LogMaker::new(1);
    maker.record(&attempt(1), Kind::Begin, &begin("t"));
    maker.commit_synced();
    maker.save(&store);
    let dir = super::names::writer_dir(&maker.writer);
    for name in [".tmp-00", "01.seg", "x.seg", "1.seg.bak", "lock", "beat"] {
        store.write(&format!("{dir}/{name}"), b"x");
    }
    store.write("writers/nobody/0.seg", b"x");
    store.write("writers/file", b"x");
    let storage = store.storage();
    assert_eq!(super::names::list_writers(storage.disk()).unwrap(), [maker.writer]);
    assert_eq!(super::names::list_segments(storage.disk(), &maker.writer).unwrap(), [0]);
    assert_eq!(super::names::list_temporary(storage.disk(), &dir).unwrap(), [format!("{dir}/.tmp-00")]);
}

/// One segment that cannot be read does not keep the others from being read.
#[test]
fn an_unreadable_segment_costs_only_itself() {
    let store = TestStore::new("unreadable");
    let mut maker = LogMaker::new(1);
    for index in 0..3 {
        maker.record(&attempt(1), Kind::Step, &step(index, "x".into()));
        maker.commit_synced();
        maker.seal();
        maker.next_segment(None);
    }
    maker.save(&store);
    for junk in [&b""[..], b"KEEPSEG1", &[0; 128], &[7; 4000]] {
        store.write(&segment_path(&maker.writer, 1), junk);
        let log = open(&store, &maker);
        assert!(
            matches!(log.segment(1).unwrap().contents(), Contents::Unreadable(_)),
            "{} bytes",
            junk.len()
        );
        assert!(matches!(log.segment(0).unwrap().contents(), Contents::Sealed(_)));
        assert!(matches!(log.segment(2).unwrap().contents(), Contents::Sealed(_)));
        assert_eq!(log.segments().count(), 4);
    }
}

/// A segment that was copied under another name does not count as that one.
#[test]
fn a_segment_under_another_name_is_refused() {
    let store = TestStore::new("copied");
    let mut maker = LogMaker::new(1);
    maker.record(&attempt(1), Kind::Begin, &begin("t"));
    maker.commit_synced();
    maker.save(&store);
    let bytes = maker.segments()[0].1.clone();
    store.write(&segment_path(&maker.writer, 5), &bytes);
    let log = open(&store, &maker);
    assert!(matches!(log.segment(5).unwrap().contents(), Contents::Unreadable(_)));
    assert!(log.segment(0).unwrap().scanned().unwrap().has_records());
}
