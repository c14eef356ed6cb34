//! Fetches the records of one writer's log that others refer to, with a bounded memory of what was fetched lately.
//!
//! What stands in a voided, damaged or missing part is lost, never guessed.

use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::decode::{self, Bodies, Body, Unfolded};
use keepstep_format::frame::{FrameHeader, Kind, Place, Reference};
use keepstep_format::hash::Hash;
use keepstep_format::value::Value;

use super::lru::Lru;
use super::record::{StoredRecord, Unreadable, load};
use super::storage::Storage;
use super::window::{RECORD_BYTES, Window};

/// How much of unpacked bodies is kept, and as much of decoded values.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// What must be known of a segment to take records out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Door {
    /// The salt of its frames.
    pub salt: u64,
    /// Records from here on do not exist.
    pub voided_from: Option<u64>,
}

/// The segments of a writer that can be read, by number.
pub type Doors = BTreeMap<u64, Door>;

/// A record, unpacked.
#[derive(Debug, Clone)]
pub struct OpenRecord {
    /// The header of its first frame.
    pub header: FrameHeader,
    /// How many bytes it takes in the file.
    pub bytes: u64,
    /// Its body.
    pub body: Arc<Body>,
}

/// Fetches records of one writer.
pub struct LogBodies {
    storage: Arc<Storage>,
    writer: Id,
    doors: Arc<Doors>,
    /// One window for the records that are read in order, one for those that they refer to.
    windows: [Option<(u64, Window)>; 2],
    ahead_bytes: usize,
    bodies: Lru<(u64, u64), Arc<Body>>,
    values: Lru<Place, Unfolded>,
    uses_heals: bool,
    missing: Vec<Hash>,
}

impl std::fmt::Debug for LogBodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<LogBodies of writer {}>", self.writer)
    }
}

impl LogBodies {
    /// For the log of `writer`.
    pub fn new(storage: Arc<Storage>, writer: Id, doors: Arc<Doors>) -> Self {
        Self {
            storage,
            writer,
            doors,
            windows: [None, None],
            ahead_bytes: RECORD_BYTES,
            bodies: Lru::new(CACHE_BYTES_MAX),
            values: Lru::new(CACHE_BYTES_MAX),
            uses_heals: true,
            missing: Vec::new(),
        }
    }

    /// Reads so much at a time: for those who read everything in order.
    #[must_use]
    pub fn reading_ahead(mut self, bytes: usize) -> Self {
        self.ahead_bytes = bytes;
        self
    }

    /// Whether values that were found elsewhere stand in for lost ones.
    #[must_use]
    pub fn healing(mut self, uses_heals: bool) -> Self {
        self.uses_heals = uses_heals;
        self
    }

    /// Whose log this is.
    pub fn writer(&self) -> &Id {
        &self.writer
    }

    /// Goes on with newer segments. Records never change, so all that is remembered stays true.
    pub fn renew(&mut self, doors: &Arc<Doors>) {
        if !Arc::ptr_eq(&self.doors, doors) {
            self.doors = Arc::clone(doors);
        }
    }

    /// The record at a place.
    pub fn record(&mut self, segment: u64, offset: u64) -> Result<OpenRecord, Unreadable> {
        let stored = self.stored(0, segment, offset)?;
        let (header, bytes) = (stored.header, stored.bytes);
        let body = Arc::new(self.unpack(stored)?);
        // The next step's history refers to this one's.
        self.remember((segment, offset), &body);
        Ok(OpenRecord { header, bytes, body })
    }

    /// The fields of a record; what they refer to and cannot be fetched is [`Value::Lost`].
    pub fn fields(&mut self, record: &OpenRecord) -> Result<Vec<(u8, Value)>, Unreadable> {
        self.missing.clear();
        decode::read_fields(&record.body, self).map_err(|_| Unreadable::Damaged(Some(record.header)))
    }

    /// The value of a VALUE record.
    pub fn value(&mut self, record: &OpenRecord) -> Result<Value, Unreadable> {
        self.missing.clear();
        decode::read_value(&record.body, self).map_err(|_| Unreadable::Damaged(Some(record.header)))
    }

    /// What a reference means.
    pub fn reference(&mut self, reference: &Reference) -> Option<Value> {
        self.missing.clear();
        decode::read_reference(reference, self)
    }

    /// The hashes that the last read wanted, and nobody has.
    pub fn missing(&self) -> &[Hash] {
        &self.missing
    }

    fn stored(&mut self, which: usize, segment: u64, offset: u64) -> Result<StoredRecord, Unreadable> {
        let door = *self.doors.get(&segment).ok_or(Unreadable::Missing)?;
        if door.voided_from.is_some_and(|from| offset >= from) {
            return Err(Unreadable::Missing);
        }
        let is_open = self.windows[which].as_ref().is_some_and(|(number, _)| *number == segment);
        if !is_open {
            let window =
                self.storage.window(&self.writer, segment, self.ahead_bytes).map_err(Unreadable::Io)?;
            self.windows[which] = Some((segment, window));
        }
        match &mut self.windows[which] {
            Some((_, window)) => load(window, door.salt, segment, offset),
            None => Err(Unreadable::Missing),
        }
    }

    fn unpack(&mut self, stored: StoredRecord) -> Result<Body, Unreadable> {
        let Some((segment, offset)) = stored.dictionary else { return stored.unpack(None) };
        let storage = Arc::clone(&self.storage);
        let dictionary = storage.dictionary((self.writer, segment, offset), || {
            let found = self.stored(1, segment, offset)?;
            let is_plain = found.header.is(Kind::Dict) && found.dictionary.is_none();
            // Without its dictionary the record is lost, although its own header holds.
            if is_plain { Ok(found.stored) } else { Err(Unreadable::Damaged(None)) }
        });
        let header = stored.header;
        stored.unpack(Some(&*dictionary.map_err(|_| Unreadable::Damaged(Some(header)))?))
    }

    fn remember(&mut self, at: (u64, u64), body: &Arc<Body>) {
        let bytes = body.raw.len() + body.references.len() * size_of::<Reference>() + 64;
        self.bodies.put(at, Arc::clone(body), bytes);
    }
}

impl Bodies for LogBodies {
    fn body(&mut self, segment: u64, offset: u64) -> Option<Arc<Body>> {
        if let Some(body) = self.bodies.get(&(segment, offset)) {
            return Some(body);
        }
        let stored = self.stored(1, segment, offset).ok()?;
        let body = Arc::new(self.unpack(stored).ok()?);
        self.remember((segment, offset), &body);
        Some(body)
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
        let bytes = usize::try_from(unfolded.bytes).unwrap_or(usize::MAX);
        self.values.put(*place, unfolded.clone(), bytes);
    }
}
