//! Fetches the records of one writer's log that other records refer to, with a bounded cache.
//!
//! Records in a voided, damaged or missing part are lost, never guessed.

use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::block::BlockRecord;
use keepstep_format::decode::{self, Bodies, Body, Part, Unfolded, Wanted};
use keepstep_format::frame::{FrameHeader, Kind, Place, Reference};
use keepstep_format::hash::Hash;
use keepstep_format::value::Value;

use super::lru::Lru;
use super::record::{StoredRecord, Unreadable, load};
use super::storage::Storage;
use super::window::{RECORD_BYTES, Window};
use crate::error::Error;

/// How many bytes of unpacked bodies are cached, and as many of decoded values.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// What must be known of a segment to read its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadableSegment {
    /// The salt of its frames.
    pub salt: u64,
    /// Records from here on do not count.
    pub voided_from: Option<u64>,
}

/// The segments of a writer that can be read, by number.
pub(crate) type ReadableSegments = BTreeMap<u64, ReadableSegment>;

/// A record, unpacked.
#[derive(Debug, Clone)]
pub(crate) struct OpenRecord {
    /// Its kind.
    pub kind: u8,
    /// Its sequence number.
    pub seq: u32,
    /// How many bytes it takes in the file; in a block, its share.
    pub bytes: u64,
    /// Its body, or that of its block.
    pub body: Arc<Body>,
    /// Its own part of that body.
    pub part: Part,
}

impl OpenRecord {
    /// Its bytes, uncompressed.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.body.raw[self.part.bytes.clone()]
    }

    /// What it refers to.
    pub(crate) fn references(&self) -> &[Reference] {
        &self.body.references[self.part.references.clone()]
    }
}

/// What is at a place, unpacked: a record, or a block of records.
#[derive(Debug)]
struct Opened {
    header: FrameHeader,
    bytes: u64,
    body: Arc<Body>,
    /// The records of a block; empty for a plain record.
    records: Vec<BlockRecord>,
}

/// Fetches records of one writer.
pub(crate) struct LogBodies {
    storage: Arc<Storage>,
    writer: Id,
    readable: Arc<ReadableSegments>,
    /// One window for records that are read in order, one for the records that they refer to.
    windows: [Option<(u64, Window)>; 2],
    ahead_bytes: usize,
    bodies: Lru<(u64, u64), Arc<Opened>>,
    values: Lru<Place, Unfolded>,
    uses_heals: bool,
    missing: Vec<Hash>,
    /// Why something could not be fetched this time, although it may exist.
    failed: Option<Error>,
}

impl std::fmt::Debug for LogBodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<LogBodies of writer {}>", self.writer)
    }
}

impl LogBodies {
    /// For the log of `writer`.
    pub(crate) fn new(storage: Arc<Storage>, writer: Id, readable: Arc<ReadableSegments>) -> Self {
        Self {
            storage,
            writer,
            readable,
            windows: [None, None],
            ahead_bytes: RECORD_BYTES,
            bodies: Lru::new(CACHE_BYTES_MAX),
            values: Lru::new(CACHE_BYTES_MAX),
            uses_heals: true,
            missing: Vec::new(),
            failed: None,
        }
    }

    /// Reads this many bytes at a time: for callers that read everything in order.
    #[must_use]
    pub(crate) fn reading_ahead(mut self, bytes: usize) -> Self {
        self.ahead_bytes = bytes;
        self
    }

    /// Caches this many bytes.
    #[must_use]
    pub(crate) fn caching(mut self, bytes: usize) -> Self {
        (self.bodies, self.values) = (Lru::new(bytes), Lru::new(bytes));
        self
    }

    /// Sets whether values that were found elsewhere replace lost ones.
    #[must_use]
    pub(crate) fn healing(mut self, uses_heals: bool) -> Self {
        self.uses_heals = uses_heals;
        self
    }

    /// The writer of this log.
    pub(crate) fn writer(&self) -> &Id {
        &self.writer
    }

    /// Continues with newer segments. Records never change, so the cache stays valid.
    pub(crate) fn renew(&mut self, readable: &Arc<ReadableSegments>) {
        if !Arc::ptr_eq(&self.readable, readable) {
            self.readable = Arc::clone(readable);
        }
    }

    /// The record at a place. In a block, the one with this sequence number.
    pub(crate) fn record(&mut self, segment: u64, offset: u64, seq: u32) -> Result<OpenRecord, Unreadable> {
        let opened = self.open(0, segment, offset)?;
        let Opened { header, bytes, body, records } = &*opened;
        if records.is_empty() {
            let (bytes, body, part) = (*bytes, Arc::clone(body), body.whole());
            return Ok(OpenRecord { kind: header.kind, seq: header.seq, bytes, body, part });
        }
        let record = seq.checked_sub(header.seq).and_then(|at| records.get(at as usize));
        let BlockRecord { kind, part } = record.ok_or(Unreadable::Damaged)?;
        let bytes = *bytes * part.bytes.len() as u64 / body.raw.len().max(1) as u64;
        let (kind, part) = (*kind, part.clone());
        Ok(OpenRecord { kind, seq, bytes, body: Arc::clone(body), part })
    }

    /// The fields of a record. A value that cannot be fetched is [`Value::Lost`].
    pub(crate) fn fields(&mut self, record: &OpenRecord) -> Result<Vec<(u8, Value)>, Unreadable> {
        self.wanted_fields(record, &Wanted::ALL)
    }

    /// Some fields of a record.
    pub(crate) fn wanted_fields(
        &mut self,
        record: &OpenRecord,
        wanted: &Wanted,
    ) -> Result<Vec<(u8, Value)>, Unreadable> {
        self.begin();
        let read = decode::read_wanted_fields_of(&record.body, &record.part, wanted, self);
        self.finish(read.map_err(|_| Unreadable::Damaged))
    }

    /// The value of a VALUE record.
    pub(crate) fn value(&mut self, record: &OpenRecord) -> Result<Value, Unreadable> {
        self.begin();
        let read = decode::read_value_of(&record.body, &record.part, self);
        self.finish(read.map_err(|_| Unreadable::Damaged))
    }

    fn begin(&mut self) {
        self.missing.clear();
        self.failed = None;
    }

    /// A value that was not fetched because its file was moved, or too many files were open, is not lost: a later
    /// read finds it.
    fn finish<T>(&mut self, read: Result<T, Unreadable>) -> Result<T, Unreadable> {
        match self.failed.take() {
            Some(error) => Err(Unreadable::Io(error)),
            None => read,
        }
    }

    /// How many records are at a place: one, or those of a block.
    pub(crate) fn count_at(&mut self, segment: u64, offset: u64) -> Result<usize, Unreadable> {
        Ok(self.open(0, segment, offset)?.records.len().max(1))
    }

    /// What is at a place, unpacked. It is cached, since the next step's history refers to this one's.
    fn open(&mut self, which: usize, segment: u64, offset: u64) -> Result<Arc<Opened>, Unreadable> {
        if let Some(opened) = self.bodies.get(&(segment, offset)) {
            return Ok(opened);
        }
        let stored = self.stored(which, segment, offset)?;
        let (header, bytes) = (stored.header, stored.bytes);
        let opened = if header.is(Kind::Block) {
            let block = super::grouped::open_block(stored, segment, offset)?;
            Opened { header, bytes, body: Arc::new(block.body), records: block.records }
        } else {
            Opened { header, bytes, body: Arc::new(self.unpack(stored)?), records: Vec::new() }
        };
        let held = opened.body.raw.len()
            + opened.body.references.len() * size_of::<Reference>()
            + opened.records.len() * size_of::<BlockRecord>()
            + 128;
        let opened = Arc::new(opened);
        self.bodies.put((segment, offset), Arc::clone(&opened), held);
        Ok(opened)
    }

    /// The value of a reference.
    pub(crate) fn reference(&mut self, reference: &Reference) -> Option<Value> {
        self.missing.clear();
        decode::read_reference(reference, self)
    }

    /// The hashes that the last read needed and did not find.
    pub(crate) fn missing(&self) -> &[Hash] {
        &self.missing
    }

    pub(super) fn stored(
        &mut self,
        which: usize,
        segment: u64,
        offset: u64,
    ) -> Result<StoredRecord, Unreadable> {
        let readable = *self.readable.get(&segment).ok_or(Unreadable::Missing)?;
        if readable.voided_from.is_some_and(|from| offset >= from) {
            return Err(Unreadable::Missing);
        }
        let is_open = self.windows[which].as_ref().is_some_and(|(number, _)| *number == segment);
        if !is_open {
            let storage = Arc::clone(&self.storage);
            let window = Window::pooled(storage, self.writer, segment, self.ahead_bytes);
            self.windows[which] = Some((segment, window));
        }
        match &mut self.windows[which] {
            Some((_, window)) => load(window, readable.salt, segment, offset),
            None => Err(Unreadable::Missing),
        }
    }

    fn unpack(&mut self, stored: StoredRecord) -> Result<Body, Unreadable> {
        let Some((segment, offset)) = stored.dictionary else { return stored.unpack(None) };
        let storage = Arc::clone(&self.storage);
        let dictionary = storage.dictionary((self.writer, segment, offset), || {
            let found = self.stored(1, segment, offset)?;
            let is_plain = found.header.is(Kind::Dict) && found.dictionary.is_none();
            // Without its dictionary the record is lost, although its own header is valid.
            if is_plain { Ok(found.stored) } else { Err(Unreadable::Damaged) }
        });
        let dictionary = dictionary.map_err(|reason| match reason {
            Unreadable::Io(error) if error.is_gone() || error.is_out_of_files() => Unreadable::Io(error),
            _ => Unreadable::Damaged,
        });
        stored.unpack(Some(&*dictionary?))
    }
}

impl Bodies for LogBodies {
    fn body(&mut self, segment: u64, offset: u64) -> Option<Arc<Body>> {
        match self.open(1, segment, offset) {
            Ok(opened) => Some(Arc::clone(&opened.body)),
            Err(Unreadable::Io(error)) if error.is_gone() || error.is_out_of_files() => {
                self.failed = Some(error);
                None
            }
            Err(_) => None,
        }
    }

    fn healed(&mut self, hash: &Hash) -> Option<Value> {
        let healed = if self.uses_heals { self.storage.healed(hash) } else { None };
        if healed.is_none() {
            self.missing.push(*hash);
        }
        healed
    }

    fn cached(&mut self, place: &Place) -> Option<Unfolded> {
        self.values.get(place)
    }

    fn cache(&mut self, place: &Place, unfolded: &Unfolded) {
        if self.failed.is_some() {
            // A part of it is missing that may be found the next time.
            return;
        }
        let bytes = usize::try_from(unfolded.bytes).unwrap_or(usize::MAX);
        self.values.put(*place, unfolded.clone(), bytes);
    }
}
