//! Following a log that is still being written.

use super::log::*;
use crate::commit::Listed;
use crate::scan::{Hole, Rules, Seen, Walk};

/// Feeds what is new in a file of which `bytes` are there.
fn poll(walk: &mut Walk, bytes: &[u8]) -> Seen {
    if let Some(wants) = walk.wants() {
        walk.feed(&bytes[wants.offset as usize..], wants.offset, false);
    }
    walk.take()
}

fn growing_log() -> TestLog {
    let mut log = TestLog::new();
    for round in 0..4u8 {
        log.record(&[round; 20]);
        log.chunked(&[b"a", b"bb", b"ccc"]);
        log.commit();
        log.sync();
        log.lone(b"alone");
        log.sync();
    }
    log.commit();
    log
}

fn durable(log: &TestLog, synced_to: u64) -> Vec<Listed> {
    log.records().into_iter().filter(|(_, end)| *end <= synced_to).map(|(name, _)| name).collect()
}

/// However the file grows, each record is seen once, in order, and not before it is durable.
#[test]
fn records_are_seen_once_when_they_are_durable() {
    let log = growing_log();
    for step in [1, 7, 40, 333, 10_000] {
        let mut walk = Walk::new(&header(), Rules::default());
        let mut seen = Vec::new();
        let mut len = 128;
        while len < log.bytes.len() {
            len = (len + step).min(log.bytes.len());
            let news = poll(&mut walk, &log.bytes[..len]);
            seen.extend(names(&news.frames));
            assert_eq!(seen, durable(&log, news.synced_to), "{len} bytes, in steps of {step}");
            assert_eq!((news.holes, news.is_over, news.newer), (vec![], false, None));
        }
        assert_eq!(seen, durable(&log, log.synced_to));
    }
}

/// Bad bytes above S are "not yet": they are looked at again until they are good, or S has passed them.
#[test]
fn bad_bytes_above_synced_to_are_not_yet() {
    let log = growing_log();
    let mut walk = Walk::new(&header(), Rules::default());
    let mut seen = Vec::new();
    // A file that was made longer in advance, and is filled from the front.
    for len in (128..=log.bytes.len()).step_by(24).chain([log.bytes.len()]) {
        let mut bytes = log.bytes[..len].to_vec();
        bytes.resize(log.bytes.len() + 500, 0);
        let news = poll(&mut walk, &bytes);
        assert_eq!(news.holes, [], "{len} bytes");
        seen.extend(names(&news.frames));
        assert_eq!(seen, durable(&log, news.synced_to), "{len} bytes");
    }
    assert_eq!(seen, durable(&log, log.synced_to));
}

/// A chunk whose body is still on its way does not spoil its record for good.
#[test]
fn a_chunk_that_is_not_yet_all_there_is_looked_at_again() {
    let mut log = TestLog::new();
    let record = log.chunked(&[b"first", b"second", b"third"]);
    let second = log.frames[1].clone();
    let mut walk = Walk::new(&header(), Rules::default());
    let early = &log.with_damaged_body(&second.name)[..second.end as usize];
    assert_eq!(poll(&mut walk, early).holes, []);
    log.commit();
    log.sync();
    log.commit();
    let news = poll(&mut walk, &log.bytes);
    assert_eq!((names(&news.frames)[0], news.holes.len()), (record, 0));
}

/// Damage is told as soon as a commit behind it proves that the bytes had been synced, once and with its names.
#[test]
fn damage_is_told_once_when_it_is_certain() {
    let log = growing_log();
    let lost = log.frames[6].name;
    let end = log.frames[6].end;
    let bytes = log.with_damaged_head(&lost);
    for step in [8, 100, 10_000] {
        let mut walk = Walk::new(&header(), Rules::default());
        let (mut seen, mut holes) = (Vec::new(), Vec::new());
        let mut len = 128;
        while len < bytes.len() {
            len = (len + step).min(bytes.len());
            let news = poll(&mut walk, &bytes[..len]);
            seen.extend(names(&news.frames));
            holes.extend(news.holes);
        }
        let mut expected = durable(&log, log.synced_to);
        expected.retain(|name| *name != lost);
        assert_eq!(seen, expected, "in steps of {step}");
        let hole = Hole {
            offset: lost.offset,
            len: end - lost.offset,
            damage: true,
            lost: vec![lost],
            certain: false,
        };
        assert_eq!(holes, [hole], "in steps of {step}");
    }
}

/// When the segment is sealed, everything in it is durable and nothing more is wanted.
#[test]
fn a_seal_ends_it() {
    let mut log = growing_log();
    let lists = log.seal();
    let mut walk = Walk::new(&header(), Rules::default());
    let news = poll(&mut walk, &log.bytes);
    assert_eq!((news.is_over, news.synced_to), (true, lists));
    assert_eq!(names(&news.frames), durable(&log, lists));
    assert_eq!(walk.wants(), None);
    assert_eq!(poll(&mut walk, &log.bytes).frames, []);
}

/// Whoever knows a part already goes on behind it.
#[test]
fn a_walk_goes_on_from_a_synced_to() {
    let log = growing_log();
    let mut walk = Walk::new(&header(), Rules::default());
    let first = poll(&mut walk, &log.bytes[..log.bytes.len() / 2]);
    let mut later = Walk::from(&header(), first.synced_to, Rules::default());
    let second = poll(&mut later, &log.bytes);
    assert_eq!([names(&first.frames), names(&second.frames)].concat(), durable(&log, log.synced_to));
    // What is committed and not yet durable is there for whoever asks.
    let dirty = later.clone().finish();
    assert_eq!((dirty.frames.len(), dirty.valid_to, dirty.torn), (1, log.end(), None));
}
