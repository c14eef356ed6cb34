//! Any log, any damage: what a scan says is compared with what an oracle knows, which saw the log being written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::log::*;
use crate::commit::Listed;
use crate::frame::{FRAME_BYTES_MAX, Kind};
use crate::scan::{Rules, SegmentScan, Walk, scan_segment};
use crate::segment::Trailer;

/// One thing that a writer does.
#[derive(Debug, Clone)]
enum Act {
    Record(u8),
    Headed(u8),
    Chunked(Vec<u8>),
    Lone(u8),
    Commit,
    Sync,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0u8..40).prop_map(Act::Record),
        1 => (1u8..40).prop_map(Act::Headed),
        2 => vec(0u8..30, 2..5).prop_map(Act::Chunked),
        2 => (0u8..40).prop_map(Act::Lone),
        4 => Just(Act::Commit),
        3 => Just(Act::Sync),
    ];
    vec(act, 0..30)
}

fn written(acts: &[Act]) -> TestLog {
    let mut log = TestLog::new();
    for act in acts {
        match act {
            Act::Record(len) => drop(log.record(&vec![*len; *len as usize])),
            Act::Headed(len) => drop(log.with_head(&vec![1; *len as usize], &[*len])),
            Act::Chunked(lens) => {
                let pieces: Vec<Vec<u8>> = lens.iter().map(|&len| vec![len; len as usize]).collect();
                log.chunked(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
            Act::Lone(len) => drop(log.lone(&vec![*len; *len as usize])),
            Act::Commit => drop(log.commit()),
            Act::Sync => log.sync(),
        }
    }
    log
}

/// One thing that happens to the bytes behind the header; places are taken modulo their length.
#[derive(Debug, Clone)]
enum Harm {
    Flip(u32, u8),
    Fill(u32, u8, u8),
    Copy(u32, u32, u8),
    Cut(u32),
    Grow(u8),
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    let harm = prop_oneof![
        4 => (any::<u32>(), 0u8..8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        3 => (any::<u32>(), 1u8..100, any::<u8>()).prop_map(|(at, len, byte)| Harm::Fill(at, len, byte)),
        1 => (any::<u32>(), any::<u32>(), 8u8..100).prop_map(|(from, to, len)| Harm::Copy(from, to, len)),
        1 => any::<u32>().prop_map(Harm::Cut),
        1 => any::<u8>().prop_map(Harm::Grow),
    ];
    vec(harm, 0..4)
}

fn harmed(log: &TestLog, harms: &[Harm]) -> Vec<u8> {
    let mut bytes = log.bytes.clone();
    for harm in harms {
        let room = bytes.len() - 128;
        let place = |at: u32| 128 + at as usize % room.max(1);
        match *harm {
            Harm::Cut(at) => bytes.truncate(128 + at as usize % (room + 1)),
            Harm::Grow(len) => bytes.resize(bytes.len() + len as usize, 0),
            _ if room == 0 => {}
            Harm::Flip(at, bit) => bytes[place(at)] ^= 1 << bit,
            Harm::Fill(at, len, byte) => {
                let end = (place(at) + len as usize).min(bytes.len());
                bytes[place(at)..end].fill(byte);
            }
            Harm::Copy(from, to, len) => {
                let len = (len as usize).min(bytes.len() - place(from).max(place(to)));
                bytes.copy_within(place(from)..place(from) + len, place(to));
            }
        }
    }
    bytes
}

/// What is true of the frames of a log, given what became of its bytes.
struct Oracle<'a> {
    log: &'a TestLog,
    bytes: &'a [u8],
    /// How far data reaches.
    data_end: u64,
    synced_to: u64,
}

impl<'a> Oracle<'a> {
    fn new(log: &'a TestLog, bytes: &'a [u8], rules: Rules) -> Self {
        let len = bytes.len() as u64;
        let data_end = rules.voided_from.unwrap_or(len);
        let mut oracle = Self { log, bytes, data_end, synced_to: 128 };
        let placed = log.frames.iter().filter(|frame| oracle.is_same(frame.name.offset, frame.body_at));
        let highest = placed.filter_map(|frame| frame.synced_to).max();
        let is_guarded = rules.complete || rules.voided_from.is_some();
        oracle.synced_to = if is_guarded { data_end } else { highest.unwrap_or(128) };
        oracle
    }

    fn is_same(&self, from: u64, to: u64) -> bool {
        let range = from as usize..to as usize;
        let is_seen = to <= self.data_end && to <= self.bytes.len() as u64;
        is_seen && self.bytes[range.clone()] == self.log.bytes[range]
    }

    /// (name, end, whether every byte is there and unchanged) of each record of which anything should be there.
    fn records(&self) -> Vec<(Listed, u64, bool)> {
        let all = self.log.records().into_iter();
        let there = all.filter(|(name, _)| name.offset < self.data_end);
        there.map(|(name, end)| (name, end, self.is_same(name.offset, end))).collect()
    }

    fn valid_to(&self) -> u64 {
        let mut valid_to = self.synced_to;
        for (name, end, is_whole) in self.records().into_iter().filter(|(_, end, _)| *end > self.synced_to) {
            if !is_whole || name.offset < self.synced_to {
                break;
            }
            if self.log.frame(&name).synced_to.is_some() {
                valid_to = end;
            }
        }
        valid_to
    }

    /// Ranges below S of records that are not whole, and of what never was a record, joined where they touch.
    fn damage(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let broken = self.records().into_iter().filter(|(_, _, is_whole)| !is_whole);
        let foreign = (self.log.end().min(self.data_end), self.data_end);
        let all = broken.map(|(name, end, _)| (name.offset, end)).chain([foreign]);
        for (from, to) in all.filter(|(from, to)| from < to && *from < self.synced_to) {
            let to = to.min(self.synced_to);
            match ranges.last_mut().filter(|before| before.1 == from) {
                Some(before) => before.1 = to,
                None => ranges.push((from, to)),
            }
        }
        ranges
    }

    /// Records that are lost and must be named: their own header holds, or the COMMIT that lists them is whole.
    fn named(&self) -> Vec<Listed> {
        let lost =
            self.records().into_iter().filter(|(_, end, is_whole)| !is_whole && *end <= self.synced_to);
        let is_named = |name: &Listed| {
            let own = self.log.frame(name);
            let commit = self
                .log
                .frames
                .iter()
                .find(|frame| frame.name.offset > name.offset && frame.synced_to.is_some());
            let is_listed = commit.is_some_and(|commit| {
                commit.name.kind == Kind::Commit as u8 && self.is_same(commit.name.offset, commit.end)
            });
            // A frame that commits itself stands in no list.
            self.is_same(name.offset, own.body_at) || (is_listed && own.synced_to.is_none())
        };
        lost.map(|(name, _, _)| name).filter(is_named).collect()
    }

    fn assert_agrees(&self, found: &SegmentScan, case: &str) {
        let valid_to = self.valid_to();
        let existing = self.records().into_iter().filter(|(_, end, is_whole)| *is_whole && *end <= valid_to);
        let existing: Vec<Listed> = existing.map(|(name, _, _)| name).collect();
        assert_eq!((found.synced_to, found.valid_to), (self.synced_to, valid_to), "{case}");
        assert_eq!(names(&found.frames), existing, "{case}");
        assert_unchanged(self.log, self.bytes, &found.frames, case);
        assert_eq!(found.newer, None, "{case}");

        let damage: Vec<_> = found.holes.iter().filter(|hole| hole.damage && hole.len > 0).collect();
        let ranges: Vec<(u64, u64)> =
            damage.iter().map(|hole| (hole.offset, hole.offset + hole.len)).collect();
        assert_eq!(ranges, self.damage(), "{case}");
        let torn = (valid_to < self.data_end).then(|| self.data_end - valid_to);
        assert_eq!(found.torn, torn, "{case}");
        let lost: Vec<Listed> = damage.iter().flat_map(|hole| hole.lost.iter().copied()).collect();
        for name in self.named() {
            assert!(lost.contains(&name), "{case}: {name:?} is not named in {lost:?}");
        }
        let invented = found
            .holes
            .iter()
            .flat_map(|hole| &hole.lost)
            .find(|lost| !self.log.frames.iter().any(|frame| frame.name == **lost));
        assert_eq!(invented, None, "{case}");
    }
}

fn by_windows(bytes: &[u8], rules: Rules, window_bytes: usize) -> SegmentScan {
    let rules = Rules {
        trailer: rules.trailer.or_else(|| Trailer::decode(bytes, bytes.len() as u64, SALT)),
        ..rules
    };
    let mut walk = Walk::new(&header(), rules);
    while let Some(wants) = walk.wants() {
        assert!(wants.bytes <= FRAME_BYTES_MAX);
        let from = (wants.offset as usize).min(bytes.len());
        let to = (from + wants.bytes.max(window_bytes)).min(bytes.len());
        walk.feed(&bytes[from..to], from as u64, to == bytes.len());
        if to == bytes.len() {
            break;
        }
    }
    walk.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever was written and whatever happened to it, a scan says what is true; and in windows it says the same.
    #[test]
    fn a_scan_says_what_is_true(
        acts in acts(), harms in harms(), complete: bool, voided: Option<u8>, window_bytes in 1usize..300,
    ) {
        let log = written(&acts);
        let bytes = harmed(&log, &harms);
        let commits: Vec<u64> = log.frames.iter().filter(|f| f.synced_to.is_some()).map(|f| f.end).chain([128]).collect();
        let voided_from = voided.map(|index| commits[index as usize % commits.len()]);
        let rules = Rules { complete, voided_from, ..Rules::default() };
        let found = scan_segment(&bytes, &header(), rules);
        let case = format!("{acts:?} {harms:?} {rules:?}");
        Oracle::new(&log, &bytes, rules).assert_agrees(&found, &case);
        prop_assert_eq!(by_windows(&bytes, rules, window_bytes), found);
    }

    /// Sealed logs, too, are the same in windows, and no record of them is changed or missing without a word.
    #[test]
    fn a_sealed_log_loses_nothing_in_silence(acts in acts(), harms in harms(), window_bytes in 1usize..300) {
        let mut log = written(&acts);
        log.commit();
        let lists = log.seal();
        let bytes = harmed(&log, &harms);
        let found = scan(&bytes);
        let case = format!("{acts:?} {harms:?}");
        assert_unchanged(&log, &bytes, &found.frames, &case);
        for (name, end) in log.records() {
            let is_found = names(&found.frames).contains(&name);
            let is_reported = found.holes.iter().any(|hole| hole.offset <= name.offset && end <= hole.offset + hole.len);
            let is_cut_off = end > bytes.len() as u64;
            prop_assert!(is_found || is_reported || is_cut_off, "{name:?} of {case}");
            prop_assert!(end <= lists);
        }
        prop_assert_eq!(by_windows(&bytes, Rules::default(), window_bytes), found);
    }
}

/// A log with a bit of everything.
fn small_log() -> TestLog {
    let mut log = TestLog::new();
    log.record(b"one");
    log.chunked(&[b"chunk a", b"chunk b", b"c"]);
    log.commit();
    log.sync();
    log.lone(b"alone");
    log.sync();
    log.with_head(b"head", b"with a head");
    log.record(b"");
    log.commit();
    log.sync();
    log.commit();
    log.record(b"unsynced");
    log.commit();
    log.record(b"uncommitted");
    log
}

/// Each bit of a small segment flipped, under all rules: nothing that is read was changed, and the oracle agrees.
#[test]
fn every_flipped_bit_is_told() {
    let log = small_log();
    let voided_from = Some(log.synced_to);
    let rules = [
        Rules::default(),
        Rules { complete: true, ..Rules::default() },
        Rules { voided_from, ..Rules::default() },
    ];
    for bit in 128 * 8..log.bytes.len() * 8 {
        let mut bytes = log.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for rules in rules {
            let found = scan_segment(&bytes, &header(), rules);
            Oracle::new(&log, &bytes, rules).assert_agrees(&found, &format!("bit {bit}, {rules:?}"));
            let is_promised = (bit as u64 / 8) < found.synced_to;
            assert_eq!(
                found.holes.iter().any(|hole| hole.damage && hole.len > 0),
                is_promised,
                "bit {bit}, {rules:?}"
            );
        }
    }
}

/// Cut at each byte, a segment holds exactly what was committed before the cut.
#[test]
fn every_cut_leaves_what_was_committed_before_it() {
    let log = small_log();
    for cut in 128..=log.bytes.len() {
        let bytes = &log.bytes[..cut];
        let found = scan(bytes);
        Oracle::new(&log, bytes, Rules::default()).assert_agrees(&found, &format!("cut at {cut}"));
        assert!(!found.is_damaged(), "cut at {cut}");
        let commits = log.frames.iter().filter(|frame| frame.synced_to.is_some() && frame.end <= cut as u64);
        assert_eq!(found.valid_to, commits.map(|frame| frame.end).max().unwrap_or(128), "cut at {cut}");
    }
}

/// Frames of another segment, or of another place of this one, are nobody's.
#[test]
fn with_another_salt_or_place_nothing_is_there() {
    let log = small_log();
    let mut other = header();
    other.salt ^= 1;
    assert_eq!(scan_segment(&log.bytes, &other, Rules::default()).frames, []);
    let mut moved = log.bytes[..128].to_vec();
    moved.extend_from_slice(&[0; 8]);
    moved.extend_from_slice(&log.bytes[128..]);
    let found = scan(&moved);
    assert_eq!((found.frames.len(), found.valid_to), (0, 128));
}
