//! Sorted files: many small values by their keys, in order, in compressed blocks under an index of blocks.
//!
//! One is written whole and never changed. To find a key, a reader follows [`SortedTrailer::root`] down: an index block
//! names the block below that has the key, until a block with entries is reached. Blocks only name blocks before them,
//! one level below, so any bytes end the search.

mod block;
#[cfg(test)]
mod tests;
mod writer;

use crc32c::{crc32c, crc32c_append};

use crate::bytes::{Cursor, Malformed};
use crate::{FORMAT_VERSION, Id};

pub use block::{BLOCK_HEADER_BYTES, BlockPlace, SortedBlock};
pub use writer::SortedWriter;

/// Length of the header of a sorted file.
pub const SORTED_HEADER_BYTES: usize = 64;
/// Length of its trailer.
pub const SORTED_TRAILER_BYTES: usize = 40;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 4 << 10;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

const HEADER_MAGIC: &[u8; 8] = b"KEEPSORT";
const TRAILER_MAGIC: &[u8; 8] = b"KEEPSEND";

/// What a sorted file is for.
#[allow(missing_docs, reason = "the names are those of the spec, §12")]
pub mod sorted_kind {
    pub const PACK: u16 = 1;
    pub const CATALOG: u16 = 2;
}

/// The header of a sorted file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedHeader {
    /// See [`sorted_kind`].
    pub kind: u16,
    /// The store.
    pub store: Id,
    /// Its number.
    pub number: u64,
    /// When it was made, in microseconds since 1970.
    pub created: i64,
    /// A random number that is part of the checksum of every block.
    pub salt: u64,
}

/// Why bytes are not a sorted file that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SortedError {
    /// A later version wrote it.
    #[error("format version {found} (needs {needs:#x}) is newer than {known}, the newest known here")]
    Newer {
        /// Its version.
        found: u16,
        /// The newest version that this code reads.
        known: u16,
        /// Features that a reader must know; this code knows none.
        needs: u32,
    },
    /// It does not begin like a sorted file.
    #[error("not a sorted file")]
    NotSorted,
    /// It differs from what was written, or is incomplete.
    #[error("a sorted file is damaged")]
    Damaged,
}

impl From<Malformed> for SortedError {
    fn from(_: Malformed) -> Self {
        Self::Damaged
    }
}

impl SortedHeader {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; SORTED_HEADER_BYTES] {
        let mut out = [0; SORTED_HEADER_BYTES];
        out[..8].copy_from_slice(HEADER_MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&self.kind.to_le_bytes());
        out[16..32].copy_from_slice(&self.store.0);
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        out[40..48].copy_from_slice(&self.created.to_le_bytes());
        out[48..56].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads what [`SortedHeader::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, SortedError> {
        let bytes = bytes.get(..SORTED_HEADER_BYTES).ok_or(SortedError::Damaged)?;
        if &bytes[..8] != HEADER_MAGIC {
            return Err(SortedError::NotSorted);
        }
        let mut cursor = Cursor::at(bytes, 8);
        let (found, kind, needs) = (cursor.u16()?, cursor.u16()?, cursor.u32()?);
        let (store, number) = (Id(cursor.array()?), cursor.u64()?);
        let (created, salt, reserved) = (cursor.i64()?, cursor.u64()?, cursor.u32()?);
        if crc32c(&bytes[..60]) != cursor.u32()? {
            return Err(SortedError::Damaged);
        }
        if found != FORMAT_VERSION || needs != 0 || reserved != 0 {
            return Err(SortedError::Newer { found, known: FORMAT_VERSION, needs });
        }
        Ok(Self { kind, store, number, created, salt })
    }
}

/// The trailer of a sorted file: it is there if all before it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedTrailer {
    /// The block that the search for any key begins with.
    pub root: BlockPlace,
    /// How many entries the file has.
    pub entries: u64,
}

impl SortedTrailer {
    /// The trailer as bytes, of a file with this salt.
    pub fn encode(&self, salt: u64) -> [u8; SORTED_TRAILER_BYTES] {
        let mut out = [0; SORTED_TRAILER_BYTES];
        out[..8].copy_from_slice(TRAILER_MAGIC);
        out[8..16].copy_from_slice(&self.root.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.root.bytes.to_le_bytes());
        out[20] = self.root.level;
        out[24..32].copy_from_slice(&self.entries.to_le_bytes());
        let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &out[..36]);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the last bytes of a file of this length with this salt.
    pub fn decode(bytes: &[u8], salt: u64, file_bytes: u64) -> Result<Self, SortedError> {
        let bytes: &[u8; SORTED_TRAILER_BYTES] = bytes.try_into().map_err(|_| SortedError::Damaged)?;
        let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &bytes[..36]);
        if &bytes[..8] != TRAILER_MAGIC || crc.to_le_bytes() != bytes[36..] {
            return Err(SortedError::Damaged);
        }
        let mut cursor = Cursor::at(bytes, 8);
        let (offset, length, level) = (cursor.u64()?, cursor.u32()?, cursor.u8()?);
        let reserved = cursor.take(3)?;
        let (entries, more_reserved) = (cursor.u64()?, cursor.u32()?);
        let root = BlockPlace { offset, bytes: length, level };
        let end = offset.checked_add(u64::from(length));
        // The root is the last block.
        let is_last = end.and_then(|end| end.checked_add(SORTED_TRAILER_BYTES as u64)) == Some(file_bytes);
        if !is_last || !root.is_readable() || reserved != [0; 3] || more_reserved != 0 {
            return Err(SortedError::Damaged);
        }
        Ok(Self { root, entries })
    }
}
