//! What was found in a segment that was never sealed: an index made from its frames.

use std::collections::HashMap;

use keepstep_format::commit::{Bind, Listed};
use keepstep_format::decode::{NoBodies, read_fields};
use keepstep_format::frame::{FIRST_FRAME, Kind};
use keepstep_format::scan::{FrameRef, Hole, Walk};

use super::head::SegmentHead;
use super::record::{StoredRecord, Unreadable, load};
use super::summary::Summary;
use super::window::Window;
use super::{Standing, Storage};
use crate::error::Result;

/// A record that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Where it stands.
    pub offset: u64,
    /// Its sequence.
    pub seq: u32,
    /// What it is.
    pub kind: u8,
}

/// The records of one attempt, stream or run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScannedEntry {
    /// Whose they are.
    pub bind: Bind,
    /// Its number in this segment.
    pub slot: u32,
    /// The records, in the order of the file.
    pub records: Vec<ScannedRecord>,
    /// What the first `summed` of them say.
    pub summary: Summary,
    /// See `summary`.
    pub summed: usize,
}

/// A record that was lost, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRecord {
    /// Whose it was, if the segment still says so.
    pub bind: Option<Bind>,
    /// Its number in the segment.
    pub slot: u32,
    /// Its sequence.
    pub seq: u32,
    /// What it was. CHUNK for a record of which only a later part was found.
    pub kind: u8,
    /// Where it stood.
    pub offset: u64,
}

/// A range without records that can be read.
#[derive(Debug, Clone, PartialEq)]
pub struct LostRange {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// True for bytes that had been promised; false for a torn end.
    pub damage: bool,
    /// The records that are known to have been there.
    pub records: Vec<LostRecord>,
    /// Nothing else was there.
    pub certain: bool,
}

/// What is known of a segment that was never sealed.
#[derive(Debug, Default)]
pub struct Scanned {
    /// Who has records here.
    pub entries: Vec<ScannedEntry>,
    /// BIND, VALUE and DICT frames: offset and kind.
    pub log_frames: Vec<(u64, u8)>,
    /// Damage, and then the torn end.
    pub lost: Vec<LostRange>,
    /// Everything before this had been synced.
    pub synced_to: u64,
    /// Everything that exists stands before this.
    pub valid_to: u64,
    /// Earlier segments that references point to, as this number minus theirs, rising; known once all is summed up.
    pub depends_on: Vec<u64>,
    /// What was looked at: while that is the same, so is what was found.
    pub looked_at: Option<Standing>,
    /// Where to go on in the log of a writer that is alive.
    pub walk: Option<Walk>,
    /// It had been sealed, and so long it was then.
    pub sealed_bytes: Option<u64>,
    /// Somebody scanned it before, when its writer was dead, and published this: all of it had been whole, and synced.
    pub is_from_card: bool,
    /// What somebody had published about this segment cannot be read.
    pub card_is_damaged: bool,
    slots: HashMap<u32, usize>,
}

impl Scanned {
    /// Nothing found yet.
    pub fn new() -> Self {
        Self { synced_to: FIRST_FRAME, valid_to: FIRST_FRAME, ..Self::default() }
    }

    /// The entry of a slot, made if need be.
    pub fn entry(&mut self, slot: u32, bind: Bind) -> &mut ScannedEntry {
        let index = *self.slots.entry(slot).or_insert_with(|| {
            let (records, summary) = (Vec::new(), Summary::default());
            self.entries.push(ScannedEntry { bind, slot, records, summary, summed: 0 });
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    /// Adds records that exist, in the order of the file.
    pub fn add(&mut self, window: &mut Window, head: &SegmentHead, frames: &[FrameRef]) -> Result<()> {
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

    /// A whole record whose BIND was lost: nobody can say whose it is.
    fn lose_orphan(&mut self, frame: &FrameRef) {
        let Listed { offset, kind, slot, seq } = frame.listed();
        let records = vec![LostRecord { bind: None, slot, seq, kind, offset }];
        self.lost.push(LostRange { offset, bytes: frame.bytes, damage: true, records, certain: true });
    }

    /// Adds ranges that cannot be read.
    pub fn lose(&mut self, holes: &[Hole]) {
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

    /// The records of one attempt, stream or run.
    pub fn records_of(&self, bind: &Bind) -> Vec<ScannedRecord> {
        let entries = self.entries.iter().filter(|entry| entry.bind == *bind);
        entries.flat_map(|entry| entry.records.iter().copied()).collect()
    }

    /// Lost records that are known to have belonged to it.
    pub fn lost_of(&self, bind: &Bind) -> Vec<LostRecord> {
        let damage = self.lost.iter().filter(|range| range.damage);
        damage.flat_map(|range| &range.records).filter(|lost| lost.bind == Some(*bind)).copied().collect()
    }

    /// True if it has anything that exists.
    pub fn has_records(&self) -> bool {
        !self.log_frames.is_empty() || self.entries.iter().any(|entry| !entry.records.is_empty())
    }

    /// Sums up what the records of one entry say that were not summed up yet.
    pub fn sum_entry(&mut self, index: usize, source: &mut dyn RecordSource) {
        let entry = &mut self.entries[index];
        while let Some(record) = entry.records.get(entry.summed) {
            if Summary::counts(record.kind) {
                add_to_summary(&mut entry.summary, record, source);
            }
            entry.summed += 1;
        }
    }

    /// Sums up everything, in the order of the file, and finds the segments that this one depends on.
    pub fn sum_all(&mut self, number: u64, source: &mut dyn RecordSource) {
        let mut records: Vec<(u64, Option<usize>)> =
            self.log_frames.iter().map(|(offset, _)| (*offset, None)).collect();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            (entry.summary, entry.summed) = (Summary::default(), 0);
            records.extend(entry.records.iter().map(|record| (record.offset, Some(index))));
        }
        records.sort_unstable();
        let mut backs = std::collections::BTreeSet::new();
        for (offset, owner) in records {
            let Some(stored) = source.stored(offset) else { continue };
            let segments = stored.references.iter().map(|reference| reference.place.segment);
            backs.extend(segments.chain(stored.dictionary.map(|(segment, _)| segment)).map(|to| number - to));
            if let Some(index) = owner {
                self.sum_stored(index, stored, source);
            }
        }
        backs.remove(&0);
        self.depends_on = backs.into_iter().collect();
    }

    fn sum_stored(&mut self, index: usize, stored: StoredRecord, source: &mut dyn RecordSource) {
        let entry = &mut self.entries[index];
        entry.summed += 1;
        let kind = stored.header.kind;
        if !Summary::counts(kind) {
            return;
        }
        if let Some(fields) = source.unpack(stored).and_then(|body| read_fields(&body, &mut NoBodies).ok()) {
            entry.summary.add(kind, fields);
        }
    }
}

fn add_to_summary(summary: &mut Summary, record: &ScannedRecord, source: &mut dyn RecordSource) {
    let Some(stored) = source.stored(record.offset) else { return };
    // Nothing that is summed up is long enough to stand elsewhere.
    if let Some(fields) = source.unpack(stored).and_then(|body| read_fields(&body, &mut NoBodies).ok()) {
        summary.add(record.kind, fields);
    }
}

/// Gives records of one segment, for summing up. What cannot be read is left out: the records are the truth.
pub trait RecordSource {
    /// The record at an offset.
    fn stored(&mut self, offset: u64) -> Option<StoredRecord>;
    /// Its body.
    fn unpack(&mut self, stored: StoredRecord) -> Option<keepstep_format::decode::Body>;
}

/// Reads records of a segment with a window of its own.
pub struct SegmentRecords<'s> {
    storage: &'s Storage,
    head: &'s SegmentHead,
    /// Where the salts of earlier segments are known: dictionaries may stand there.
    doors: &'s super::bodies::Doors,
    window: Window,
}

impl<'s> SegmentRecords<'s> {
    /// Reads `ahead_bytes` at a time.
    pub fn new(
        storage: &'s Storage,
        head: &'s SegmentHead,
        doors: &'s super::bodies::Doors,
        ahead_bytes: usize,
    ) -> Result<Self> {
        let window = storage.window(&head.writer, head.number, ahead_bytes)?;
        Ok(Self { storage, head, doors, window })
    }
}

impl RecordSource for SegmentRecords<'_> {
    fn stored(&mut self, offset: u64) -> Option<StoredRecord> {
        load(&mut self.window, self.head.salt, self.head.number, offset).ok()
    }

    fn unpack(&mut self, stored: StoredRecord) -> Option<keepstep_format::decode::Body> {
        let Some((segment, offset)) = stored.dictionary else { return stored.unpack(None).ok() };
        let writer = self.head.writer;
        let dictionary = self.storage.dictionary((writer, segment, offset), || {
            let door = self.doors.get(&segment).ok_or(Unreadable::Missing)?;
            let mut window =
                self.storage.window(&writer, segment, super::window::RECORD_BYTES).map_err(Unreadable::Io)?;
            let found = load(&mut window, door.salt, segment, offset)?;
            if found.header.is(Kind::Dict) { Ok(found.stored) } else { Err(Unreadable::Damaged(None)) }
        });
        stored.unpack(Some(&*dictionary.ok()?)).ok()
    }
}
