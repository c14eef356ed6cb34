//! "What the bytes say" (§4 of the spec), sentence by sentence.

use super::log::*;
use crate::commit::Listed;
use crate::frame::{Flags, FrameSpec, Kind, frame_bytes};
use crate::scan::{Hole, Rules, scan_segment};
use crate::segment::{TRAILER_BYTES, Trailer};

/// Two synced batches of two records, and one that was not synced.
struct Three {
    log: TestLog,
    batches: [[Listed; 2]; 3],
    commits: [Listed; 3],
}

fn three_batches() -> Three {
    let mut log = TestLog::new();
    let batch = |log: &mut TestLog| {
        let pair = [log.record(b"first of two"), log.record(b"second")];
        (pair, log.commit())
    };
    let (first, commit_0) = batch(&mut log);
    log.sync();
    let (second, commit_1) = batch(&mut log);
    log.sync();
    let (third, commit_2) = batch(&mut log);
    Three { log, batches: [first, second, third], commits: [commit_0, commit_1, commit_2] }
}

fn damage(offset: u64, end: u64, lost: &[Listed], certain: bool) -> Hole {
    Hole { offset, len: end - offset, damage: true, lost: lost.to_vec(), certain }
}

fn torn(offset: u64, end: u64, lost: &[Listed], certain: bool) -> Hole {
    Hole { damage: false, ..damage(offset, end, lost, certain) }
}

/// An empty segment holds nothing, and nothing is missing.
#[test]
fn an_empty_segment_is_whole() {
    let log = TestLog::new();
    for found in [scan(&log.bytes), scan_complete(&log.bytes), scan_voided(&log.bytes, 128)] {
        assert_eq!((found.frames.len(), found.holes.len(), found.torn), (0, 0, None));
        assert_eq!((found.synced_to, found.valid_to, found.data_end), (128, 128, 128));
    }
}

/// A record exists when it is committed, by a COMMIT behind it or by its own flag.
#[test]
fn what_is_committed_exists() {
    let mut log = three_batches().log;
    log.lone(b"alone");
    let found = scan(&log.bytes);
    assert_eq!(names(&found.frames), log.records().iter().map(|(name, _)| *name).collect::<Vec<_>>());
    assert_eq!((found.valid_to, found.torn, found.holes), (log.end(), None, vec![]));
    assert_eq!(found.synced_to, log.synced_to);
}

/// A valid frame without a commit behind it does not exist.
#[test]
fn a_frame_without_a_commit_does_not_exist() {
    let Three { mut log, .. } = three_batches();
    let end = log.end();
    let late = [log.record(b"late"), log.chunked(&[b"later", b"still"])];
    let found = scan(&log.bytes);
    assert_eq!(found.frames.len(), 9);
    assert_eq!((found.valid_to, found.torn), (end, Some(log.end() - end)));
    assert_eq!(found.holes, [torn(end, log.end(), &late, true)]);
}

/// Any hole below S is damage, and frames behind the damage stay readable.
#[test]
fn a_hole_below_synced_to_is_damage() {
    let Three { log, batches: [_, [lost, _], _], .. } = three_batches();
    let end = log.frame(&lost).end;
    let body = scan(&log.with_damaged_body(&lost));
    assert_eq!(body.holes, [damage(lost.offset, end, &[lost], true)]);
    assert_eq!((body.frames.len(), body.valid_to, body.torn), (8, log.end(), None));
    // Its head is gone, so its name comes from the list of its commit.
    let head = scan(&log.with_damaged_head(&lost));
    assert_eq!(head.holes, [damage(lost.offset, end, &[lost], false)]);
    assert_eq!(head.frames, body.frames);
}

/// Above S the log ends at the first hole: a torn end. Whatever stands behind it does not exist.
#[test]
fn a_hole_above_synced_to_is_a_torn_end() {
    let Three { log, batches: [_, _, third], commits } = three_batches();
    for bytes in [log.with_damaged_body(&third[0]), log.with_damaged_head(&third[0])] {
        let found = scan(&bytes);
        assert_eq!((found.synced_to, found.valid_to), (third[0].offset, third[0].offset));
        assert_eq!((found.frames.len(), found.is_damaged()), (6, false));
        assert_eq!(found.torn, Some(log.end() - third[0].offset));
        assert_eq!(found.holes[0].lost, [third[0], third[1], commits[2]], "named, since nobody can tell");
    }
}

/// The log ends at the last commit before the hole, not at the hole.
#[test]
fn a_batch_with_a_hole_is_torn_as_a_whole() {
    let Three { log, batches: [_, _, third], .. } = three_batches();
    let found = scan(&log.with_damaged_head(&third[1]));
    assert_eq!((found.frames.len(), found.valid_to), (6, third[0].offset));
}

/// S is found behind a bad place too: a commit behind the hole proves that the hole had been synced.
#[test]
fn a_commit_behind_a_hole_makes_it_damage() {
    let Three { mut log, batches: [_, _, third], .. } = three_batches();
    assert!(!scan(&log.with_damaged_head(&third[0])).is_damaged());
    log.sync();
    log.commit();
    let found = scan(&log.with_damaged_head(&third[0]));
    assert_eq!(found.holes, [damage(third[0].offset, third[1].offset, &third[..1], false)]);
    assert_eq!((found.torn, found.valid_to), (None, log.end()));
}

/// `synced_to` stands under the checksum of the head: a commit with a damaged body still carries it.
#[test]
fn a_commit_with_a_damaged_body_still_says_what_was_synced() {
    let Three { log, batches: [_, second, _], commits, .. } = three_batches();
    let mut bytes = log.with_damaged_body(&commits[2]);
    bytes[log.frame(&second[0]).body_at as usize] ^= 1;
    let found = scan(&bytes);
    assert_eq!(found.synced_to, log.synced_to);
    let end = log.frame(&second[0]).end;
    assert_eq!(found.holes[0], damage(second[0].offset, end, &second[..1], true));
    assert_eq!(found.valid_to, log.synced_to, "what it would have committed is torn");
}

/// S is the highest that any commit says: one behind it that says less takes nothing back.
#[test]
fn a_commit_that_says_less_lowers_nothing() {
    let Three { mut log, batches: [_, second, _], .. } = three_batches();
    let synced_to = std::mem::replace(&mut log.synced_to, 128);
    log.commit();
    assert_eq!(scan(&log.bytes).synced_to, synced_to);
    assert!(scan(&log.with_damaged_body(&second[0])).is_damaged());
}

/// A commit below S that cannot be read takes only itself along: what it committed had been synced.
#[test]
fn a_lost_commit_below_synced_to_uncommits_nothing() {
    let Three { log, commits, .. } = three_batches();
    let found = scan(&log.with_damaged_head(&commits[0]));
    assert_eq!(found.holes, [damage(commits[0].offset, log.frame(&commits[0]).end, &[], false)]);
    assert_eq!((found.frames.len(), found.valid_to), (8, log.end()));
}

/// A hole that reaches over S is damage before it, and the log ends at S.
#[test]
fn a_hole_over_synced_to_is_cut_there() {
    let Three { mut log, batches: [_, _, third], commits, .. } = three_batches();
    log.record(b"behind");
    log.commit();
    let found = scan(&log.changed(commits[1].offset, third[1].offset));
    let [before, behind] = &found.holes[..] else { panic!("{:?}", found.holes) };
    assert_eq!(*before, damage(commits[1].offset, log.synced_to, &[], false));
    assert_eq!((behind.offset, behind.damage), (log.synced_to, false));
    assert_eq!((found.valid_to, found.frames.len()), (log.synced_to, 5));
}

/// In a complete segment everything counts as below S, its last batch too.
#[test]
fn in_a_complete_segment_every_hole_is_damage() {
    let Three { log, batches: [_, _, third], commits } = three_batches();
    let found = scan_complete(&log.with_damaged_head(&third[0]));
    assert_eq!(found.holes, [damage(third[0].offset, third[1].offset, &third[..1], false)]);
    assert_eq!((found.frames.len(), found.valid_to, found.torn), (8, log.end(), None));
    let found = scan_complete(&log.with_damaged_head(&commits[2]));
    assert_eq!(found.holes, [damage(commits[2].offset, log.end(), &[], false)]);
    assert_eq!(found.frames.len(), 8, "the records of the last batch stay, though their commit is lost");
}

/// A complete segment that does not end with a commit was cut: something is missing, though no byte is bad.
#[test]
fn a_complete_segment_without_its_last_commit_is_damaged() {
    let Three { log, commits, .. } = three_batches();
    let cut = commits[2].offset;
    let found = scan_complete(&log.bytes[..cut as usize]);
    assert_eq!(found.holes, [damage(cut, cut, &[], false)]);
    assert_eq!(found.frames.len(), 8);
    assert_eq!(scan_complete(&log.bytes).holes, []);
}

/// A sealed segment holds its data and no hole; its index is not data.
#[test]
fn the_index_of_a_sealed_segment_is_no_data() {
    let Three { mut log, .. } = three_batches();
    let lists = log.seal();
    let found = scan(&log.bytes);
    assert_eq!((found.frames.len(), found.holes, found.torn), (9, vec![], None));
    assert_eq!((found.synced_to, found.valid_to, found.data_end), (lists, lists, lists));
}

/// In a sealed segment every hole is damage, also if of the seal only the trailer, or only the index, is left.
#[test]
fn in_a_sealed_segment_every_hole_is_damage() {
    let Three { mut log, batches: [_, _, third], .. } = three_batches();
    let lists = log.seal() as usize;
    let len = log.bytes.len();
    let trailer = Trailer::decode(&log.bytes, len as u64, SALT).unwrap();
    let intact = len..len;
    let no_trailer = len - TRAILER_BYTES..len;
    let no_lists = lists..lists + 24;
    let no_index = lists..len - TRAILER_BYTES;
    for gone in [intact, no_trailer, no_lists, no_index] {
        let mut bytes = log.with_damaged_head(&third[0]);
        bytes[gone.clone()].fill(0x55);
        let found = scan(&bytes);
        let expected = damage(third[0].offset, third[1].offset, &third[..1], false);
        assert_eq!(found.holes, [expected], "without {gone:?}");
        assert_eq!((found.data_end, found.torn), (trailer.lists, None), "without {gone:?}");
    }
}

/// A seal that was never finished says nothing about data: the log ends where it ended.
#[test]
fn a_seal_that_broke_off_costs_nothing() {
    let Three { mut log, .. } = three_batches();
    let lists = log.seal() as usize;
    for cut in lists..log.bytes.len() {
        let found = scan(&log.bytes[..cut]);
        assert_eq!((found.frames.len(), found.valid_to), (9, lists as u64), "cut at {cut}");
        assert!(!found.is_damaged(), "cut at {cut}");
    }
}

/// A sealed segment that is shorter than it was has lost the rest, even if it ends with a commit.
#[test]
fn a_sealed_segment_that_was_cut_is_damaged() {
    let Three { mut log, commits, .. } = three_batches();
    let lists = log.seal();
    let rules = Rules { sealed_bytes: Some(log.end()), ..Rules::default() };
    assert_eq!(scan_segment(&log.bytes, &header(), rules), scan(&log.bytes));
    for cut in 128..lists {
        let found = scan_segment(&log.bytes[..cut as usize], &header(), rules);
        let last = found.holes.last().unwrap();
        assert!(last.damage && last.offset <= cut && last.offset + last.len == log.end(), "cut at {cut}");
        assert_eq!((found.torn, found.valid_to), (None, log.end()), "cut at {cut}");
    }
    let at_a_commit = scan_segment(&log.bytes[..commits[1].offset as usize], &header(), rules);
    assert_eq!(at_a_commit.frames.len(), 5, "what is left stays readable");
    // The index alone costs nothing.
    let index_cut = scan_segment(&log.bytes[..lists as usize + 24], &header(), rules);
    assert_eq!((index_cut.frames.len(), index_cut.holes.len(), index_cut.valid_to), (9, 0, lists));
}

/// Where it is voided the log ends, without a torn end: what stood behind was written again elsewhere.
#[test]
fn the_log_ends_where_it_is_voided() {
    let Three { log, batches: [_, _, third], .. } = three_batches();
    let found = scan_voided(&log.bytes, third[0].offset);
    assert_eq!((found.frames.len(), found.holes, found.torn), (6, vec![], None));
    assert_eq!((found.valid_to, found.data_end), (third[0].offset, third[0].offset));
    let first = scan_voided(&log.bytes, 128);
    assert_eq!((first.frames.len(), first.valid_to), (0, 128));
}

/// A writer voids from what it had synced: a hole before that is damage, also if no commit lived to say so.
#[test]
fn a_hole_before_the_voided_part_is_damage() {
    let mut log = TestLog::new();
    let lost = log.record(b"synced");
    log.commit();
    let voided_from = log.end();
    let found = scan_voided(&log.with_damaged_body(&lost), voided_from);
    assert_eq!(found.holes, [damage(128, log.frame(&lost).end, &[lost], true)]);
    let cut = scan_voided(&log.bytes[..lost.offset as usize + 24], voided_from);
    assert_eq!(
        cut.holes,
        [damage(128, voided_from, &[lost], false)],
        "the file is shorter than what was synced"
    );
    assert!(!scan(&log.with_damaged_body(&lost)).is_damaged());
}

/// A record in chunks of which one is damaged is lost as a whole, by its name, whichever it was.
#[test]
fn a_record_with_a_damaged_chunk_is_damaged() {
    let mut log = TestLog::new();
    let before = log.record(b"before");
    let record = log.chunked(&[b"one", b"two", b"three", b"four"]);
    let behind = log.record(b"behind");
    let commit = log.commit();
    log.sync();
    let last = log.commit();
    let chunks: Vec<Listed> = log.frames[1..5].iter().map(|frame| frame.name).collect();
    for chunk in &chunks {
        for (bytes, certain) in [(log.with_damaged_body(chunk), true), (log.with_damaged_head(chunk), false)]
        {
            let found = scan(&bytes);
            assert_eq!(found.holes, [damage(record.offset, behind.offset, &[record], certain)], "{chunk:?}");
            assert_eq!(names(&found.frames), [before, behind, commit, last], "{chunk:?}");
        }
    }
}

/// Chunks whose first frame and commit are both lost still say whose they were.
#[test]
fn chunks_name_their_record_when_nothing_else_does() {
    let mut log = TestLog::new();
    let record = log.chunked(&[b"one", b"two", b"three"]);
    let commit = log.commit();
    log.sync();
    log.commit();
    let mut bytes = log.with_damaged_head(&record);
    bytes[commit.offset as usize + 1] ^= 0x40;
    let found = scan(&bytes);
    assert_eq!(found.holes, [damage(128, log.synced_to, &[log.frames[1].name], false)]);
    assert_eq!(found.holes[0].lost[0].seq, record.seq);
}

/// Chunks stand directly behind one another; a record whose next chunk is another frame, or another's, is damaged.
#[test]
fn chunks_of_another_record_complete_nothing() {
    let mut log = TestLog::new();
    let open =
        FrameSpec { kind: Kind::Step, flags: Flags::MORE, slot: 1, seq: 0, synced_to: None, head: &[] };
    log.put(&open, b"begun", 0);
    log.put(&FrameSpec { kind: Kind::Chunk, flags: Flags::NONE, seq: 1, ..open }, b"another's", 1);
    log.put(&open, b"begun again", 2);
    log.put(&FrameSpec { flags: Flags::NONE, seq: 2, ..open }, b"no chunk", 3);
    let commit = log.commit();
    let found = scan_complete(&log.bytes);
    assert_eq!(names(&found.frames), [log.frames[3].name, commit]);
    assert_eq!(
        (found.holes.len(), found.holes[0].offset, found.holes[0].len),
        (1, 128, log.frames[3].name.offset - 128)
    );
    assert_eq!(scan(&log.bytes).valid_to, 128, "unsynced, it is a torn end");
}

/// Frames of unknown kinds from 0x80 on are there and may be passed over; those below are refused by name.
#[test]
fn an_unknown_kind_is_newer_unless_it_may_be_passed_over() {
    for (kind, newer) in [(0x80, None), (0xff, None), (0x09, Some(0x09)), (0x7f, Some(0x7f))] {
        let mut log = TestLog::new();
        log.record(b"known");
        let at = log.end() as usize;
        log.record(b"unknown");
        log.commit();
        let mut place = [0; 36];
        place[..8].copy_from_slice(&SALT.to_le_bytes());
        place[8..16].copy_from_slice(&(at as u64).to_le_bytes());
        log.bytes[at] = kind;
        place[16..].copy_from_slice(&log.bytes[at..at + 20]);
        log.bytes[at + 20..at + 24].copy_from_slice(&crc32c::crc32c(&place).to_le_bytes());
        let found = scan(&log.bytes);
        assert_eq!((found.newer, found.holes.len()), (newer, 0), "kind {kind:#x}");
        assert_eq!(found.frames.len(), if newer.is_none() { 3 } else { 2 }, "kind {kind:#x}");
    }
}

/// Zeros behind the log, of a file made longer in advance or by a power cut, are a torn end and nothing worse.
#[test]
fn zeros_behind_the_log_are_a_torn_end() {
    let Three { mut log, .. } = three_batches();
    let end = log.end();
    log.bytes.resize(log.bytes.len() + 5000, 0);
    let found = scan(&log.bytes);
    assert_eq!((found.frames.len(), found.valid_to, found.torn), (9, end, Some(5000)));
    assert_eq!(found.holes, [torn(end, end + 5000, &[], false)]);
}

/// Bytes made to look like very many long heads cost little, and what stands behind them is still found.
#[test]
fn a_hole_full_of_fake_heads_is_walked_through() {
    let mut log = TestLog::new();
    let mut fake = [0u8; 40];
    fake[0] = Kind::Step as u8;
    fake[1] = Flags::HEAD.0;
    fake[24..28].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let body: Vec<u8> = fake.iter().copied().cycle().take(frame_bytes(0, 1 << 20, false) - 64).collect();
    let lost: Vec<Listed> = (0..4).map(|_| log.record(&body)).collect();
    let found_again = log.with_head(b"a head", b"behind");
    log.commit();
    let mut bytes = log.bytes.clone();
    lost.iter().for_each(|record| bytes[record.offset as usize] ^= 0x80);
    let found = scan_complete(&bytes);
    assert_eq!(found.holes, [damage(128, found_again.offset, &lost, false)]);
    assert_eq!(names(&found.frames)[0], found_again);
}

/// Rules that contradict one another, or the file, are no reason to panic: the lowest end holds.
#[test]
fn rules_that_do_not_fit_the_file_are_survived() {
    let Three { mut log, batches: [_, second, _], .. } = three_batches();
    log.seal();
    for voided_from in [0, 8, 128, second[0].offset, second[0].offset + 3, log.end() + 64, u64::MAX] {
        for complete in [false, true] {
            let rules = Rules { voided_from: Some(voided_from), complete, ..Rules::default() };
            for len in [128, 140, log.bytes.len() / 2, log.bytes.len()] {
                let found = scan_segment(&log.bytes[..len], &header(), rules);
                assert!(found.frames.iter().all(|frame| frame.end() <= voided_from), "{rules:?}");
            }
        }
    }
}
