//! Tells damage from a torn end: which bytes had been synced, and which were still being written.
//!
//! Everything below S, the highest `synced_to`, had been synced: what cannot be read there is damage. Above S, the
//! log ends at the last commit before the first hole.

use super::Scanner;
use super::walk::{Gap, Walk};
use crate::commit::Listed;
use crate::frame::{FIRST_FRAME, FrameHeader, Kind};
use crate::segment::{SegmentHeader, Trailer};

/// What is known about a segment beside its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    /// The trailer, if the end of the file says that the segment was sealed.
    pub trailer: Option<Trailer>,
    /// A later segment of the same writer has a frame, and does not void this one.
    pub complete: bool,
    /// A later header voids this segment from this offset on. If several do, the lowest counts.
    pub voided_from: Option<u64>,
    /// How long the file was when it was sealed, according to the next header or a card.
    pub sealed_bytes: Option<u64>,
}

impl Rules {
    /// Where data ends, if this is known.
    pub(super) fn limit(&self) -> Option<u64> {
        let lists = self.trailer.map(|trailer| trailer.lists);
        lists.into_iter().chain(self.voided_from).min().map(|limit| limit.max(FIRST_FRAME))
    }
}

/// A record that exists, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRef {
    /// Where its first frame is.
    pub offset: u64,
    /// The header of its first frame.
    pub header: FrameHeader,
    /// How many bytes it takes, all frames together.
    pub bytes: u64,
    /// How many CHUNK frames follow the first.
    pub chunks: u32,
}

impl FrameRef {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// It as a commit would list it.
    pub fn listed(&self) -> Listed {
        let FrameHeader { kind, slot, seq, .. } = self.header;
        Listed { offset: self.offset, kind, slot, seq }
    }
}

/// A range of a segment without a readable record that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// Where it starts.
    pub offset: u64,
    /// Its length; 0 if it is only known that something is missing at the end.
    pub len: u64,
    /// True if the bytes had been synced; false for a torn end.
    pub damage: bool,
    /// The frames that are known to have been here, in order. A CHUNK means a record of which no more is known.
    pub lost: Vec<Listed>,
    /// True if nothing else was here: each byte belongs to a frame in `lost`.
    pub certain: bool,
}

/// The content of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentScan {
    /// The records that exist, commits among them, in order; chunks are part of their record.
    pub frames: Vec<FrameRef>,
    /// Everything before this had been synced. Data ends here if the segment is sealed, complete or voided.
    pub synced_to: u64,
    /// Where the log ends: all records that count are before this.
    pub valid_to: u64,
    /// The end of the space for data: the index, the voided part, or the end of the file starts here.
    pub data_end: u64,
    /// Damage, in order, and then the torn end, if there is one.
    pub holes: Vec<Hole>,
    /// How many bytes of data come after `valid_to`: written, and never known to be durable.
    pub torn: Option<u64>,
    /// A kind of frame that only a newer version understands: the segment must be refused.
    pub newer: Option<u8>,
}

impl SegmentScan {
    /// True if something is lost that had been synced.
    pub fn is_damaged(&self) -> bool {
        self.holes.iter().any(|hole| hole.damage)
    }
}

/// What is new in a log that is still being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The records that are durable now, in order.
    pub frames: Vec<FrameRef>,
    /// Damage among them, in order.
    pub holes: Vec<Hole>,
    /// Everything before this was reported; what comes after it is "not yet".
    pub synced_to: u64,
    /// True if the segment is finished: data ends at `synced_to`.
    pub is_over: bool,
    /// A kind of frame that only a newer version understands: the segment must be refused.
    pub newer: Option<u8>,
}

/// Scans the whole file `data`. If `rules` have no trailer, the last bytes of `data` are checked for one.
pub fn scan_segment(data: &[u8], header: &SegmentHeader, rules: Rules) -> SegmentScan {
    let trailer = rules.trailer.or_else(|| Trailer::decode(data, data.len() as u64, header.salt));
    let mut walk = Walk::new(header, Rules { trailer, ..rules });
    walk.feed(data, 0, true);
    walk.finish()
}

impl Walk {
    /// The content of the segment, if it ends with the last window.
    pub fn finish(mut self) -> SegmentScan {
        self.close_end();
        let data_end = self.data_end();
        let is_sealed = self.index_at.is_some() || self.rules.sealed_bytes.is_some();
        let is_guarded = is_sealed || self.rules.complete || self.rules.limit().is_some();
        let synced_to = if is_guarded { data_end } else { self.scanner.synced_to() };

        let first_torn = self.gaps.iter().find(|gap| gap.end > synced_to);
        let torn_from = first_torn.map_or(data_end, |gap| gap.offset);
        let before = self.records.partition_point(|record| record.end() <= torn_from);
        let last_commit = self.records[..before].iter().rfind(|record| commits(record));
        // All below S is committed: S is the end of a commit, even if that commit can no longer be read.
        let valid_to = last_commit.map_or(synced_to, |commit| commit.end().max(synced_to));

        let mut holes = self.damage_below(synced_to);
        if self.misses_a_commit(data_end) {
            holes.push(Hole { offset: data_end, len: 0, damage: true, lost: Vec::new(), certain: false });
        }
        let torn = (valid_to < data_end).then(|| data_end - valid_to);
        if torn.is_some() {
            holes.push(self.torn_end(valid_to, data_end));
        }
        let existing = self.records.partition_point(|record| record.end() <= valid_to);
        self.records.truncate(existing);
        SegmentScan { frames: self.records, synced_to, valid_to, data_end, holes, torn, newer: self.newer }
    }

    /// What became durable since the last call, and the damage in it.
    ///
    /// What comes after the first bad place above S may still be in the process of being written. So it is forgotten,
    /// and wanted again from S on.
    pub fn take(&mut self) -> Seen {
        let synced_to = self.index_at.unwrap_or(self.scanner.synced_to());
        let holes = self.damage_below(synced_to);
        let durable = self.records.partition_point(|record| record.end() <= synced_to);
        let frames = self.records.drain(..durable).collect();
        let is_bad_above = self.gaps.iter().any(|gap| gap.end > synced_to)
            || self.scanner.hole_from().is_some()
            || self.open.as_ref().is_some_and(|open| !open.is_whole);
        self.gaps.clear();
        self.named.clear();
        if is_bad_above && self.index_at.is_none() {
            self.records.clear();
            self.open = None;
            self.scanner = Scanner::from(self.salt, synced_to);
            self.seen_to = synced_to;
        }
        Seen { frames, holes, synced_to, is_over: self.index_at.is_some(), newer: self.newer }
    }

    /// Turns an incomplete record at the end into a hole.
    fn close_end(&mut self) {
        if self.index_at.is_none() {
            let looked_at = self.scanner.hole_from().unwrap_or(self.scanner.offset());
            if looked_at < self.data_end() {
                self.hole(looked_at, self.data_end());
            }
        }
        self.close_open();
    }

    /// A sealed file that became shorter has lost what was after its end, data or index.
    fn data_end(&self) -> u64 {
        let file_end = self.seen_to.max(self.rules.sealed_bytes.unwrap_or(0));
        self.index_at.or(self.rules.limit()).unwrap_or(file_end)
    }

    /// A log that continues in another segment ended with a commit. If that commit is gone, so may be the frames
    /// before it.
    fn misses_a_commit(&self, data_end: u64) -> bool {
        let ends_with_data = self.rules.complete && self.rules.limit().is_none() && self.index_at.is_none();
        ends_with_data && self.records.last().is_some_and(|last| last.end() == data_end && !commits(last))
    }

    fn damage_below(&mut self, synced_to: u64) -> Vec<Hole> {
        self.named.sort_by_key(|listed| listed.offset);
        let mut ranges: Vec<Gap> = Vec::new();
        for gap in self.gaps.iter().filter(|gap| gap.offset < synced_to) {
            let end = gap.end.min(synced_to);
            match ranges.last_mut().filter(|before| before.end == gap.offset) {
                Some(before) => {
                    before.end = end;
                    before.is_certain &= gap.is_certain;
                }
                None => ranges.push(Gap { end, ..*gap }),
            }
        }
        ranges.into_iter().map(|range| self.named_hole(range, true)).collect()
    }

    /// What was written and does not count. Whole frames are named too, since it is unknown whether they had been
    /// synced.
    fn torn_end(&mut self, offset: u64, end: u64) -> Hole {
        let whole = self.records.iter().filter(|record| record.offset >= offset);
        self.named.extend(whole.clone().map(FrameRef::listed));
        self.named.sort_by_key(|listed| listed.offset);
        let is_certain = self.gaps.iter().all(|gap| gap.end <= offset || gap.is_certain);
        self.named_hole(Gap { offset, end, is_certain }, false)
    }

    fn named_hole(&self, range: Gap, damage: bool) -> Hole {
        let from = self.named.partition_point(|listed| listed.offset < range.offset);
        let to = self.named.partition_point(|listed| listed.offset < range.end);
        let mut lost = self.named[from..to].to_vec();
        lost.dedup_by_key(|listed| listed.offset);
        drop_chunks_of_the_named(&mut lost);
        let (offset, len) = (range.offset, range.end - range.offset);
        Hole { offset, len, damage, lost, certain: range.is_certain }
    }
}

/// A chunk names its record by slot and sequence number; it adds nothing if the record itself is listed.
fn drop_chunks_of_the_named(lost: &mut Vec<Listed>) {
    let is_chunk = |listed: &Listed| listed.kind == Kind::Chunk as u8;
    if !lost.iter().any(is_chunk) {
        return;
    }
    let whole = lost.iter().filter(|listed| !is_chunk(listed));
    let mut known: std::collections::HashSet<_> = whole.map(|listed| (listed.slot, listed.seq)).collect();
    lost.retain(|listed| !is_chunk(listed) || known.insert((listed.slot, listed.seq)));
}

fn commits(record: &FrameRef) -> bool {
    record.header.synced_to.is_some()
}
