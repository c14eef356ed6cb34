//! What a scan found in a segment that was never sealed: an index made from its frames.

use std::collections::HashMap;

use keepstep_format::commit::{Bind, Listed};
use keepstep_format::frame::{FIRST_FRAME, Kind};
use keepstep_format::scan::{FrameRef, Hole, Walk};

use super::UnsealedFacts;
use super::head::SegmentHead;
use super::record::{Unreadable, load};
use super::summary::{Summary, has_summary};
use super::summing::{SegmentRecords, to_be_summed};
use super::window::Window;
use crate::error::Result;

/// A record that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScannedRecord {
    /// Where it is.
    pub offset: u64,
    /// Its sequence number.
    pub seq: u32,
    /// Its kind.
    pub kind: u8,
}

/// The records of one attempt, stream or run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScannedEntry {
    /// What they belong to.
    pub bind: Bind,
    /// Its number in this segment.
    pub slot: u32,
    /// The records, in the order of the file.
    pub records: Vec<ScannedRecord>,
    /// The summary of the first `summed` records.
    pub summary: Summary,
    /// See `summary`.
    pub summed: usize,
}

/// A record that is known to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostRecord {
    /// What it belonged to, if the segment still says so.
    pub bind: Option<Bind>,
    /// Its number in the segment.
    pub slot: u32,
    /// Its sequence number.
    pub seq: u32,
    /// Its kind. CHUNK if only a later part of the record was found.
    pub kind: u8,
    /// Where it was.
    pub offset: u64,
}

/// A range without readable records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LostRange {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// True if the bytes had been synced; false for a torn end.
    pub damage: bool,
    /// The records that are known to have been there.
    pub records: Vec<LostRecord>,
    /// True if nothing else was there.
    pub certain: bool,
}

/// What is known of a segment that was never sealed.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// What has records here.
    pub entries: Vec<ScannedEntry>,
    /// BIND, VALUE and DICT frames: offset and kind.
    pub log_frames: Vec<(u64, u8)>,
    /// Damage, and then the torn end.
    pub lost: Vec<LostRange>,
    /// Everything before this had been synced.
    pub synced_to: u64,
    /// All records that count are before this.
    pub valid_to: u64,
    /// Earlier segments that references point to, as this number minus theirs, rising; known after everything was
    /// summarized.
    pub depends_on: Vec<u64>,
    /// The facts that were used: while they are the same, so are the findings.
    pub looked_at: Option<UnsealedFacts>,
    /// Where to continue in a log that may still grow.
    pub walk: Option<Walk>,
    /// What is found again at each look, if this was read up to the end of a log that may still grow.
    pub certain: Option<Certain>,
    /// Its length when it was sealed, if it was.
    pub sealed_bytes: Option<u64>,
    /// True if this was read from the card of an earlier scan, made after its writer died: all of it was whole and
    /// synced.
    pub is_from_card: bool,
    /// True if a card about this segment exists and cannot be read.
    pub card_is_damaged: bool,
    slots: HashMap<u32, usize>,
}

/// The part of [`Scanned`] that is known to be synced. Its writer may still give up what comes after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Certain {
    offset: u64,
    entries: usize,
    log_frames: usize,
}

impl Scanned {
    /// Nothing found yet.
    pub(crate) fn new() -> Self {
        Self { synced_to: FIRST_FRAME, valid_to: FIRST_FRAME, ..Self::default() }
    }

    /// The entry of a slot, made if need be.
    pub(crate) fn entry(&mut self, slot: u32, bind: Bind) -> &mut ScannedEntry {
        let index = *self.slots.entry(slot).or_insert_with(|| {
            let (records, summary) = (Vec::new(), Summary::default());
            self.entries.push(ScannedEntry { bind, slot, records, summary, summed: 0 });
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    /// Adds records that count, in the order of the file.
    pub(crate) fn add(&mut self, window: &mut Window, head: &SegmentHead, frames: &[FrameRef]) -> Result<()> {
        for frame in frames {
            let Listed { offset, kind, slot, seq } = frame.listed();
            match Kind::from_u8(kind) {
                Some(Kind::Commit | Kind::Chunk | Kind::Footer | Kind::Lists | Kind::Block) | None => {}
                Some(Kind::Bind) => {
                    self.bind(window, head, slot, offset)?;
                    self.log_frames.push((offset, kind));
                }
                Some(Kind::Value | Kind::Dict) => self.log_frames.push((offset, kind)),
                Some(_) => match self.slots.get(&slot) {
                    Some(&index) => self.entries[index].records.push(ScannedRecord { offset, seq, kind }),
                    None => self.lose_orphan(frame),
                },
            }
        }
        Ok(())
    }

    fn bind(&mut self, window: &mut Window, head: &SegmentHead, slot: u32, offset: u64) -> Result<()> {
        let stored = match load(window, head.salt, head.number, offset) {
            Ok(stored) => stored,
            Err(Unreadable::Io(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        if let Ok(bind) = Bind::decode(&stored.stored) {
            self.entry(slot, bind);
        }
        Ok(())
    }

    /// A whole record whose BIND was lost: it is unknown what it belongs to.
    fn lose_orphan(&mut self, frame: &FrameRef) {
        let Listed { offset, kind, slot, seq } = frame.listed();
        let records = vec![LostRecord { bind: None, slot, seq, kind, offset }];
        self.lost.push(LostRange { offset, bytes: frame.bytes, damage: true, records, certain: true });
    }

    /// Adds ranges that cannot be read.
    pub(crate) fn lose(&mut self, holes: &[Hole]) {
        for hole in holes {
            let name = |lost: &Listed| {
                let bind = self.slots.get(&lost.slot).map(|&index| self.entries[index].bind);
                LostRecord { bind, slot: lost.slot, seq: lost.seq, kind: lost.kind, offset: lost.offset }
            };
            let records = hole.lost.iter().map(name).collect();
            let (offset, bytes, damage, certain) = (hole.offset, hole.len, hole.damage, hole.certain);
            self.lost.push(LostRange { offset, bytes, damage, records, certain });
        }
        self.lost.sort_by_key(|range| (range.offset, range.bytes));
    }

    /// What is there now, up to this place, as the part that does not change any more.
    pub(crate) fn certain_to(&self, offset: u64) -> Certain {
        Certain { offset, entries: self.entries.len(), log_frames: self.log_frames.len() }
    }

    /// Forgets what comes after the part that does not change.
    pub(crate) fn cut_to(&mut self, certain: Certain) {
        self.entries.truncate(certain.entries);
        self.slots.retain(|_, index| *index < certain.entries);
        self.log_frames.truncate(certain.log_frames);
        self.lost.retain(|range| range.offset < certain.offset);
        for entry in &mut self.entries {
            while entry.records.last().is_some_and(|last| last.offset >= certain.offset) {
                entry.records.pop();
            }
            if entry.summed > entry.records.len() {
                (entry.summary, entry.summed) = (Summary::default(), 0);
            }
        }
    }

    /// The records of one attempt, stream or run.
    pub(crate) fn records_of(&self, bind: &Bind) -> Vec<ScannedRecord> {
        let entries = self.entries.iter().filter(|entry| entry.bind == *bind);
        entries.flat_map(|entry| entry.records.iter().copied()).collect()
    }

    /// Lost records that are known to have belonged to it.
    pub(crate) fn lost_of(&self, bind: &Bind) -> Vec<LostRecord> {
        let damage = self.lost.iter().filter(|range| range.damage);
        damage.flat_map(|range| &range.records).filter(|lost| lost.bind == Some(*bind)).copied().collect()
    }

    /// True if it has any record that counts.
    pub(crate) fn has_records(&self) -> bool {
        !self.log_frames.is_empty() || self.entries.iter().any(|entry| !entry.records.is_empty())
    }

    /// Summarizes the records that are not summarized yet, in the order of the file: it is read once, however many
    /// episodes were recorded at the same time.
    pub(crate) fn sum_up(&mut self, source: &mut SegmentRecords) {
        let mut wanted: Vec<(ScannedRecord, usize)> = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if has_summary(entry.bind.what) {
                wanted.extend(to_be_summed(&entry.records, entry.summed).map(|record| (*record, index)));
            }
            entry.summed = entry.records.len();
        }
        wanted.sort_unstable_by_key(|(record, _)| record.offset);
        for (record, index) in wanted {
            if let Some(part) = source.part_of(&record) {
                self.entries[index].summary.add(&part);
            }
        }
    }

    /// Summarizes everything, and finds the segments that this one depends on.
    pub(crate) fn sum_all(&mut self, number: u64, source: &mut SegmentRecords) {
        let mut offsets: Vec<u64> = self.log_frames.iter().map(|(offset, _)| *offset).collect();
        self.sum_up(source);
        offsets.extend(self.entries.iter().flat_map(|entry| &entry.records).map(|record| record.offset));
        offsets.sort_unstable();
        let mut backs = std::collections::BTreeSet::new();
        for stored in offsets.into_iter().filter_map(|offset| source.stored(offset)) {
            let segments = stored.references.iter().map(|reference| reference.place.segment);
            backs.extend(segments.chain(stored.dictionary.map(|(segment, _)| segment)).map(|to| number - to));
        }
        backs.remove(&0);
        self.depends_on = backs.into_iter().collect();
    }
}
