//! The segments that `compact` made: each is sealed when it gets its name, and depends on no other.
//!
//! Their index is read like that of any sealed segment. If it is damaged, it is rebuilt from the blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use keepstep_format::Id;
use keepstep_format::block::Block;
use keepstep_format::commit::{Bind, What};
use keepstep_format::footer::FooterEntry;
use keepstep_format::frame::{Flags, Kind};
use keepstep_format::grouped;
use keepstep_format::record::decompress;
use keepstep_format::scan::{Rules, Walk};

use super::head::SegmentHead;
use super::log::{Contents, Log, Segment, concerns_all};
use super::names::segment_path;
use super::record::{StoredRecord, Unreadable, load};
use super::sealed::{SealedIndex, read_trailer};
use super::window::{RECORD_BYTES, Window, feed};
use super::{Liveness, Storage};
use crate::error::{Doing, Error, Result};

impl Log {
    /// The segments that `compact` made, as if they were the log of one more writer. Nothing is read yet.
    pub(crate) fn of_compact(storage: Arc<Storage>) -> Self {
        Self::new(storage, Id::NONE)
    }

    /// Reads the segments that the manifest names. They never change, so each is read once.
    pub(super) fn refresh_grouped(&mut self) -> Result<()> {
        self.liveness = Liveness::Dead;
        let manifest = self.storage.manifest()?;
        let held: BTreeSet<u64> = manifest.held.keys().copied().collect();
        self.segments.retain(|number, _| held.contains(number));
        self.catalog_files.look(&self.storage, &manifest);
        for (&number, &bytes) in &manifest.held {
            // One that could not be read is tried again.
            let is_known = self.segments.get(&number).is_some_and(|it| it.head().is_some());
            if !is_known {
                let segment = look_at(&self.storage, number, bytes)?;
                self.segments.insert(number, segment);
            }
        }
        for segment in self.segments.values() {
            let salt = segment.head.as_ref().map(|head| head.salt);
            let is_covered = salt.is_some_and(|salt| self.catalog_files.cover(segment.number, salt));
            if !is_covered {
                segment.open()?;
            }
        }
        self.note_voids();
        Ok(())
    }

    /// Looks into all its segments, also those that a catalog knows.
    pub(crate) fn open_all(&self) -> Result<()> {
        self.segments.values().try_for_each(Segment::open)
    }
}

/// A segment that `compact` made, as long as nobody has asked for its content.
#[derive(Debug)]
pub(super) struct Unopened {
    storage: Arc<Storage>,
    head: SegmentHead,
    bytes: u64,
}

impl Unopened {
    /// Reads its index. An error does not concern this segment alone.
    pub(super) fn open(&self) -> Result<Contents> {
        match index(&self.storage, &self.head, self.bytes) {
            Ok(index) => Ok(Contents::Sealed(Arc::new(index))),
            Err(error) if concerns_all(&error) => Err(error),
            Err(error) => Ok(Contents::Unreadable(error)),
        }
    }
}

/// Looks at the header of one. If it cannot be read, the others must still be readable.
fn look_at(storage: &Arc<Storage>, number: u64, bytes: u64) -> Result<Segment> {
    let file_bytes = storage
        .file(&Id::NONE, number)
        .and_then(|file| file.bytes().doing("measure", &segment_path(&Id::NONE, number)));
    if let Err(error) = &file_bytes
        && concerns_all(error)
    {
        return Err(error.clone());
    }
    let mut segment = Segment {
        number,
        file_bytes: file_bytes.unwrap_or(0),
        voided_from: None,
        contents: OnceLock::new(),
        unopened: None,
        sealed_bytes: Some(bytes),
        head: None,
        trailer: None,
        has_frame: true,
    };
    match SegmentHead::read(storage, &Id::NONE, number) {
        Ok(head) => {
            let storage = Arc::clone(storage);
            segment.unopened = Some(Box::new(Unopened { storage, head: head.clone(), bytes }));
            segment.head = Some(head);
        }
        Err(error) if concerns_all(&error) => return Err(error),
        Err(error) => segment.put(Contents::Unreadable(error)),
    }
    Ok(segment)
}

fn index(storage: &Storage, head: &SegmentHead, bytes: u64) -> Result<SealedIndex> {
    let path = segment_path(&Id::NONE, head.number);
    let file = storage.file(&Id::NONE, head.number)?;
    // Bytes that were appended later do not hide its end.
    let end = file.bytes().doing("measure", &path)?.min(bytes);
    if let Some(trailer) = read_trailer(&*file, end, head.salt, &path)? {
        let whose = (Id::NONE, head.number, head.salt);
        if let Some(index) = SealedIndex::read(&*file, end, trailer, whose, &path)? {
            return Ok(index);
        }
    }
    rebuild(storage, head, bytes)
}

/// The index entry of a writer's attempt, while it is rebuilt.
struct AttemptRecords {
    writer: Id,
    bind: Bind,
    /// Sequence number, offset of the block, kind.
    records: Vec<(u32, u64, u8)>,
}

/// Rebuilds the index of a segment from its frames; records in damaged frames are not in it. Its entries have no
/// summary: that is made from the records when it is needed.
pub(super) fn rebuild(storage: &Storage, head: &SegmentHead, bytes: u64) -> Result<SealedIndex> {
    let path = segment_path(&Id::NONE, head.number);
    let file = storage.file(&Id::NONE, head.number)?;
    let rules = Rules { complete: true, sealed_bytes: Some(bytes), ..Rules::default() };
    let mut walk = Walk::new(&head.header(), rules);
    let file_bytes = file.bytes().doing("measure", &path)?;
    feed(&mut walk, &file, file_bytes, true, &mut |_| {}).doing("read", &path)?;
    let scan = walk.finish();
    if scan.newer.is_some() {
        let known = u32::from(keepstep_format::FORMAT_VERSION);
        return Err(Error::NewerFormat { path, found: known + 1, known });
    }
    let mut window = Window::new(file, RECORD_BYTES);
    let mut slots: BTreeMap<u32, AttemptRecords> = BTreeMap::new();
    let mut log_frames = Vec::new();
    for frame in &scan.frames {
        let is_bind = frame.header.is(Kind::Bind);
        if !is_bind && !frame.header.is(Kind::Block) {
            continue;
        }
        let Ok(stored) = load(&mut window, head.salt, head.number, frame.offset) else { continue };
        let slot = frame.header.slot;
        if is_bind {
            log_frames.push((frame.offset, frame.header.kind));
            if let Ok((writer, bind)) = grouped::read_bind(&stored.stored) {
                slots.insert(slot, AttemptRecords { writer, bind, records: Vec::new() });
            }
        } else if slot == 0 {
            log_frames.push((frame.offset, frame.header.kind));
        } else if let (Some(entry), Ok(block)) =
            (slots.get_mut(&slot), open_block(stored, head.number, frame.offset))
        {
            entry.add(frame.offset, frame.header.seq, &block);
        }
    }
    let holes = scan.holes.iter().filter(|hole| hole.damage).map(|hole| hole.offset).collect();
    Ok(SealedIndex::rebuilt(head, scan.data_end, holes, entries(&slots, &log_frames)))
}

impl AttemptRecords {
    fn add(&mut self, offset: u64, first_seq: u32, block: &Block) {
        for (seq, record) in (first_seq..).zip(&block.records) {
            self.records.push((seq, offset, record.kind));
        }
    }
}

fn entries(
    slots: &BTreeMap<u32, AttemptRecords>,
    log_frames: &[(u64, u8)],
) -> (Vec<(Id, FooterEntry)>, Vec<u8>) {
    let mut lists = Vec::new();
    let mut entries = vec![(Id::NONE, log_entry(log_frames, &mut lists))];
    for (&slot, entry) in slots {
        for run in entry.records.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0)) {
            let list_position = grouped::put_list(&mut lists, run.iter().map(|it| (it.1, it.2)));
            let Bind { what, id, attempt } = entry.bind;
            let (first_seq, count) = (run[0].0, run.len() as u32);
            let summary = Vec::new();
            let made = FooterEntry { what, id, attempt, slot, first_seq, count, list_position, summary };
            entries.push((entry.writer, made));
        }
    }
    entries.sort_by_key(grouped::sort_key);
    entries.dedup_by_key(|entry| grouped::sort_key(entry));
    (entries, lists)
}

/// The entry that lists BIND frames and shared blocks.
pub(crate) fn log_entry(frames: &[(u64, u8)], lists: &mut Vec<u8>) -> FooterEntry {
    FooterEntry {
        what: What::Log,
        id: Id::NONE,
        attempt: 0,
        slot: 0,
        first_seq: 0,
        count: frames.len() as u32,
        list_position: grouped::put_list(lists, frames.iter().copied()),
        summary: Vec::new(),
    }
}

/// The records of a BLOCK frame.
pub(crate) fn open_block(stored: StoredRecord, segment: u64, offset: u64) -> Result<Block, Unreadable> {
    let header = stored.header;
    if !header.is(Kind::Block) || header.flags.has(Flags::HEAD) {
        return Err(Unreadable::Damaged);
    }
    let data = if header.flags.has(Flags::ZSTD) {
        decompress(&stored.stored, None).map_err(|_| Unreadable::Damaged)?
    } else {
        stored.stored
    };
    Block::decode(data, segment, offset).map_err(|_| Unreadable::Damaged)
}
