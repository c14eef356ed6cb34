//! The first 128 bytes of a segment, which name its log, and the last 40, which say that it is sealed.
//!
//! The checksum is checked before the version, so that a flipped bit is never taken for a newer format.

use crc32c::{crc32c, crc32c_append};
use thiserror::Error;

use crate::bytes::{Cursor, Malformed};
use crate::frame::{ALIGN, FIRST_FRAME};
use crate::{FORMAT_VERSION, Id};

/// Length of a segment's header.
pub const HEADER_BYTES: usize = 128;
/// Length of a sealed segment's trailer.
pub const TRAILER_BYTES: usize = 40;
/// The two places of the salt in the header: without it no frame can be checked.
const SALT_AT: usize = 56;
const SALT_AGAIN_AT: usize = 104;

const HEADER_MAGIC: &[u8; 8] = b"KEEPSEG1";
const TRAILER_MAGIC: &[u8; 8] = b"KEEPEND1";
/// No segment is voided.
const VOIDS_NONE: u64 = u64::MAX;

const _: () = assert!(HEADER_BYTES as u64 == FIRST_FRAME);

/// The header of a segment: its log, and the salt of its frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store.
    pub store: Id,
    /// The writer; zero in `grouped/`.
    pub writer: Id,
    /// Its number among the segments of that writer.
    pub number: u64,
    /// A random number that is part of the checksum of every frame.
    pub salt: u64,
    /// When it was made, in microseconds since 1970.
    pub created: i64,
    /// (number, offset): frames of that earlier segment from that offset on do not count.
    pub voids: Option<(u64, u64)>,
    /// (number, bytes): the segment that was sealed before this one was made, and its length. So a later cut is
    /// noticed.
    pub sealed: Option<(u64, u64)>,
}

/// Why bytes are not a valid header of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// A later version wrote it.
    #[error(
        "format version {found} (needs {needs:#x}, header {header_bytes} bytes) is newer than {known}, the newest known here"
    )]
    Newer {
        /// Its version.
        found: u16,
        /// The newest version that this code reads.
        known: u16,
        /// Features that a reader must know; this code knows none.
        needs: u32,
        /// The length of its header.
        header_bytes: u16,
    },
    /// It does not begin like a segment.
    #[error("not a segment")]
    NotASegment,
    /// It is a segment, but its header differs from what was written.
    #[error("the header of a segment is damaged")]
    Damaged,
    /// The bytes end before the header does.
    #[error("the header of a segment is cut off")]
    Short,
}

impl SegmentHeader {
    /// The header as bytes.
    ///
    /// # Panics
    /// If it voids itself, a later segment, or from an offset at which no frame starts.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.voids_fit(), "segment {} cannot void {:?}", self.number, self.voids);
        let (voided, voided_from) = self.voids.unwrap_or((VOIDS_NONE, 0));
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(HEADER_MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        out[16..32].copy_from_slice(&self.store.0);
        out[32..48].copy_from_slice(&self.writer.0);
        out[48..56].copy_from_slice(&self.number.to_le_bytes());
        out[56..64].copy_from_slice(&self.salt.to_le_bytes());
        out[64..72].copy_from_slice(&self.created.to_le_bytes());
        out[72..80].copy_from_slice(&voided.to_le_bytes());
        out[80..88].copy_from_slice(&voided_from.to_le_bytes());
        let (sealed, sealed_bytes) = self.sealed.unwrap_or((VOIDS_NONE, 0));
        out[88..96].copy_from_slice(&sealed.to_le_bytes());
        out[96..104].copy_from_slice(&sealed_bytes.to_le_bytes());
        out[SALT_AGAIN_AT..SALT_AGAIN_AT + 8].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c(&out[..124]);
        out[124..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the beginning of `data`.
    pub fn decode(data: &[u8]) -> Result<Self, HeaderError> {
        let begins_as_one = data.iter().zip(HEADER_MAGIC).all(|(found, known)| found == known);
        if !begins_as_one {
            return Err(HeaderError::NotASegment);
        }
        let Some((bytes, _)) = data.split_first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderError::Short);
        };
        let header = Self::read(bytes).map_err(|_| HeaderError::Damaged)??;
        if header.voids_fit() { Ok(header) } else { Err(HeaderError::Damaged) }
    }

    fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Result<Self, HeaderError>, Malformed> {
        let mut cursor = Cursor::at(bytes, 8);
        let (version, header_bytes, needs) = (cursor.u16()?, cursor.u16()?, cursor.u32()?);
        let (store, writer) = (Id(cursor.array()?), Id(cursor.array()?));
        let (number, salt, created) = (cursor.u64()?, cursor.u64()?, cursor.i64()?);
        let (voided, voided_from) = (cursor.u64()?, cursor.u64()?);
        let (sealed, sealed_bytes) = (cursor.u64()?, cursor.u64()?);
        let salt_again = cursor.u64()?;
        let is_reserved_zero = cursor.take(12)?.iter().all(|&byte| byte == 0);
        if crc32c(&bytes[..124]) != cursor.u32()? || version == 0 || salt_again != salt {
            return Ok(Err(HeaderError::Damaged));
        }
        let is_known = version == FORMAT_VERSION && needs == 0 && is_reserved_zero;
        if !is_known || header_bytes as usize != HEADER_BYTES {
            let known = FORMAT_VERSION;
            return Ok(Err(HeaderError::Newer { found: version, known, needs, header_bytes }));
        }
        let voids = (voided != VOIDS_NONE).then_some((voided, voided_from));
        let sealed = (sealed != VOIDS_NONE).then_some((sealed, sealed_bytes));
        Ok(Ok(Self { store, writer, number, salt, created, voids, sealed }))
    }

    fn voids_fit(&self) -> bool {
        self.voids.is_none_or(|(number, from)| number < self.number && is_frame_offset(from))
            && self.sealed.is_none_or(|(number, _)| number < self.number)
    }

    /// The two salts of a damaged header: at least one of them may still be right.
    pub fn salts_of_a_damaged_one(bytes: &[u8; HEADER_BYTES]) -> [u64; 2] {
        [SALT_AT, SALT_AGAIN_AT].map(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])))
    }
}

/// The end of a sealed segment: where its index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The offset of the FOOTER frame.
    pub footer: u64,
    /// The offset of the LISTS frame, where data ends.
    pub lists: u64,
}

impl Trailer {
    /// The trailer as bytes.
    ///
    /// # Panics
    /// If the two are not offsets of frames, in their order.
    pub fn encode(&self, salt: u64) -> [u8; TRAILER_BYTES] {
        assert!(self.fits(), "{self:?}");
        let mut out = [0; TRAILER_BYTES];
        out[..8].copy_from_slice(TRAILER_MAGIC);
        out[8..16].copy_from_slice(&self.footer.to_le_bytes());
        out[16..24].copy_from_slice(&self.lists.to_le_bytes());
        let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &out[..36]);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The trailer at the end of a segment's bytes, if the segment was sealed; `len` is the length of the file.
    pub fn decode(last_bytes: &[u8], len: u64, salt: u64) -> Option<Self> {
        let bytes = last_bytes.last_chunk::<TRAILER_BYTES>()?;
        let mut cursor = Cursor::at(bytes, 8);
        let trailer = Self { footer: cursor.u64().ok()?, lists: cursor.u64().ok()? };
        let is_reserved_zero = cursor.take(12).ok()?.iter().all(|&byte| byte == 0);
        let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &bytes[..36]);
        let holds = bytes.starts_with(TRAILER_MAGIC) && is_reserved_zero && cursor.u32() == Ok(crc);
        let fits = trailer.fits() && trailer.footer < len.saturating_sub(TRAILER_BYTES as u64);
        (holds && fits).then_some(trailer)
    }

    fn fits(&self) -> bool {
        is_frame_offset(self.lists) && is_frame_offset(self.footer) && self.lists < self.footer
    }
}

fn is_frame_offset(offset: u64) -> bool {
    offset >= FIRST_FRAME && offset.is_multiple_of(ALIGN as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> SegmentHeader {
        let (store, writer) = (Id([7; 16]), Id([9; 16]));
        SegmentHeader {
            store,
            writer,
            number: 3,
            salt: 0x0123_4567_89ab_cdef,
            created: -5,
            voids: Some((1, 256)),
            sealed: Some((2, 4096)),
        }
    }

    fn with_crc(mut bytes: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
        let crc = crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    proptest! {
        /// What a header says is read back.
        #[test]
        fn headers_come_back(
            store: [u8; 16], writer: [u8; 16], number: u64, salt: u64, created: i64, voids: Option<(u64, u32)>,
        ) {
            let voids = voids.map(|(n, from)| (n % number.max(1), 128 + u64::from(from) * 8)).filter(|v| v.0 < number);
            let header = SegmentHeader { store: Id(store), writer: Id(writer), number, salt, created, voids, sealed: voids };
            prop_assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        }

        /// What a trailer says is read back, with its salt only.
        #[test]
        fn trailers_come_back(salt: u64, lists in 16u64..1 << 40, frames in 1u64..1 << 20, other: u64) {
            let trailer = Trailer { lists: lists * 8, footer: (lists + frames) * 8 };
            let (bytes, len) = (trailer.encode(salt), trailer.footer + 24 + 40);
            prop_assert_eq!(Trailer::decode(&bytes, len, salt), Some(trailer));
            prop_assert_eq!(Trailer::decode(&bytes, trailer.footer, salt), None);
            prop_assert!(other == salt || Trailer::decode(&bytes, len, other).is_none());
        }
    }

    /// No flip makes another header of it, and none makes it look like a newer version.
    #[test]
    fn a_flipped_bit_in_a_header_is_found() {
        let bytes = header().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 64 { HeaderError::NotASegment } else { HeaderError::Damaged };
            assert_eq!(SegmentHeader::decode(&flipped), Err(expected), "bit {bit}");
        }
    }

    /// A header that is not all there is short, whatever is missing.
    #[test]
    fn a_cut_header_is_short() {
        let bytes = header().encode();
        for cut in 0..bytes.len() {
            assert_eq!(SegmentHeader::decode(&bytes[..cut]), Err(HeaderError::Short), "cut at {cut}");
        }
        assert_eq!(SegmentHeader::decode(b"KEEPSEG2"), Err(HeaderError::NotASegment));
    }

    /// Another version, an unknown need, another length and a reserved byte are all refused as newer.
    #[test]
    fn newer_headers_are_refused() {
        for (at, value) in [(8, 2), (9, 1), (10, 136), (12, 1), (15, 0x80), (112, 1), (123, 1)] {
            let mut bytes = header().encode();
            bytes[at] = value;
            let found = SegmentHeader::decode(&with_crc(bytes));
            assert!(matches!(found, Err(HeaderError::Newer { known: 1, .. })), "byte {at}: {found:?}");
        }
    }

    /// Whichever byte of a header flips, one of its two salts is still the right one.
    #[test]
    fn a_damaged_header_still_tells_its_salt() {
        for at in 0..HEADER_BYTES {
            let mut bytes = header().encode();
            bytes[at] ^= 0xff;
            assert!(SegmentHeader::salts_of_a_damaged_one(&bytes).contains(&header().salt), "byte {at}");
        }
    }

    /// A segment can only void an earlier one, and only from where a frame may start.
    #[test]
    fn a_header_that_voids_the_impossible_is_damaged() {
        for (number, from) in [(3u64, 256u64), (4, 256), (1, 0), (1, 120), (1, 257)] {
            let mut bytes = header().encode();
            bytes[72..80].copy_from_slice(&number.to_le_bytes());
            bytes[80..88].copy_from_slice(&from.to_le_bytes());
            let found = SegmentHeader::decode(&with_crc(bytes));
            assert_eq!(found, Err(HeaderError::Damaged), "{number} from {from}");
        }
    }

    /// No flip and no cut leaves a trailer.
    #[test]
    fn a_changed_trailer_is_none() {
        let bytes = Trailer { footer: 1024, lists: 512 }.encode(1);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::decode(&flipped, 2048, 1), None, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(Trailer::decode(&bytes[..cut], 2048, 1), None, "cut at {cut}");
        }
    }
}
