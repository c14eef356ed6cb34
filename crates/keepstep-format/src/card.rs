//! Small files: cards, the beat of a writer, and `keepstep.json`.
//!
//! A card knows its store and its path, so one that was copied to another name does not validate.

mod json;
#[cfg(test)]
mod tests;

use crc32c::{crc32c, crc32c_append};
use thiserror::Error;

use crate::bytes::Cursor;
use crate::{FORMAT_VERSION, Id};

pub use json::{StoreJsonError, parse_store_json, store_json};

/// The longest body of a card.
pub const CARD_BODY_MAX: usize = 64 << 20;
/// Length of a beat.
pub const BEAT_BYTES: usize = 32;

const CARD_MAGIC: &[u8; 8] = b"KEEPCARD";
const CARD_HEADER_BYTES: usize = 24;
const BEAT_MAGIC: &[u8; 8] = b"KEEPBEAT";

/// The kinds of cards. The spec, §7, lists their fields.
#[allow(missing_docs, reason = "the names are those of the table in the spec, §7")]
pub mod kind {
    pub const LOCK: u16 = 1;
    pub const RUN: u16 = 2;
    pub const PLAN: u16 = 3;
    pub const MAIL: u16 = 4;
    pub const CLAIM: u16 = 5;
    pub const BASE: u16 = 6;
    pub const SCAN: u16 = 7;
    pub const HEAL: u16 = 8;
    pub const END: u16 = 9;
    pub const SEAL: u16 = 10;
    pub const FREEZE: u16 = 11;
    pub const DROP: u16 = 12;
    pub const MANIFEST: u16 = 13;
    pub const ANSWER: u16 = 14;
}

/// A small file of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// See [`kind`]. Unknown kinds may be skipped.
    pub kind: u16,
    /// Fields, as bytes.
    pub body: Vec<u8>,
}

/// Why bytes are not a card that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CardError {
    /// A later version wrote it.
    #[error("format version {found} is newer than {known}, the newest known here")]
    Newer {
        /// Its version.
        found: u16,
        /// The newest version that this code reads.
        known: u16,
    },
    /// It does not begin like a card.
    #[error("not a card")]
    NotACard,
    /// It differs from what was written at this path of this store, or is incomplete.
    #[error("a card is damaged, or belongs to another path or store")]
    Damaged,
}

impl Card {
    /// The file at `path` (relative to the store, `/` between its parts) as bytes.
    ///
    /// # Panics
    /// If the body is longer than [`CARD_BODY_MAX`].
    pub fn encode(store: &Id, path: &str, kind: u16, body: &[u8]) -> Vec<u8> {
        assert!(body.len() <= CARD_BODY_MAX, "a card of {} bytes", body.len());
        let mut out = Vec::with_capacity(CARD_HEADER_BYTES + body.len());
        out.extend_from_slice(CARD_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32c(body).to_le_bytes());
        out.extend_from_slice(&header_crc(store, path, &out).to_le_bytes());
        out.extend_from_slice(body);
        out
    }

    /// Decodes `bytes`, the whole file at `path`.
    pub fn decode(bytes: &[u8], store: &Id, path: &str) -> Result<Self, CardError> {
        let begins_as_one = bytes.iter().zip(CARD_MAGIC).all(|(found, known)| found == known);
        if !begins_as_one {
            return Err(CardError::NotACard);
        }
        if bytes.len() < CARD_HEADER_BYTES {
            return Err(CardError::Damaged);
        }
        let (header, body) = bytes.split_at(CARD_HEADER_BYTES);
        let mut cursor = Cursor::at(header, 8);
        let (Ok(version), Ok(kind)) = (cursor.u16(), cursor.u16()) else { return Err(CardError::Damaged) };
        let (Ok(length), Ok(body_crc)) = (cursor.u32(), cursor.u32()) else { return Err(CardError::Damaged) };
        if cursor.u32() != Ok(header_crc(store, path, &header[..20])) || version == 0 {
            return Err(CardError::Damaged);
        }
        // The checksum was checked first, so that a flipped bit is not taken for a newer version.
        if version > FORMAT_VERSION {
            return Err(CardError::Newer { found: version, known: FORMAT_VERSION });
        }
        let is_whole = body.len() == length as usize && body.len() <= CARD_BODY_MAX;
        if !is_whole || crc32c(body) != body_crc {
            return Err(CardError::Damaged);
        }
        Ok(Self { kind, body: body.to_vec() })
    }
}

fn header_crc(store: &Id, path: &str, first_20: &[u8]) -> u32 {
    crc32c_append(crc32c_append(crc32c(&store.0), path.as_bytes()), first_20)
}

/// A sign of life: overwritten in place, never synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Rises with each beat. Observers only check whether it has changed.
    pub counter: u64,
    /// For people: microseconds since 1970 by the writer's clock.
    pub time: i64,
}

impl Beat {
    /// The beat as bytes.
    pub fn encode(&self) -> [u8; BEAT_BYTES] {
        let mut out = [0; BEAT_BYTES];
        out[..8].copy_from_slice(BEAT_MAGIC);
        out[8..16].copy_from_slice(&self.counter.to_le_bytes());
        out[16..24].copy_from_slice(&self.time.to_le_bytes());
        let crc = crc32c(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes `bytes`, the whole file. `None` counts as unchanged, since the file may be half-written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BEAT_BYTES] = bytes.try_into().ok()?;
        let mut cursor = Cursor::at(bytes, 8);
        let beat = Self { counter: cursor.u64().ok()?, time: cursor.i64().ok()? };
        let is_reserved_zero = cursor.u32() == Ok(0);
        let holds = bytes.starts_with(BEAT_MAGIC) && cursor.u32() == Ok(crc32c(&bytes[..28]));
        (holds && is_reserved_zero).then_some(beat)
    }
}
