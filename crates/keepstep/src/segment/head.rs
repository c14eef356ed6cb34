//! The first 128 bytes of a segment, and what can still be read if they are damaged.

use keepstep_format::Id;
use keepstep_format::scan::{Event, Scanner};
use keepstep_format::segment::{HEADER_BYTES, HeaderError, SegmentHeader};

use super::names::segment_path;
use super::storage::Storage;
use crate::disk::ReadLog;
use crate::error::{Doing, Error, Result};

/// Offsets fit 2^35; the last record and the index come after.
const SEGMENT_BYTES_MAX: u64 = 1 << 36;
/// How many bytes are searched for a frame.
const LOOK_BYTES: usize = 64 << 10;

/// What must be known of a segment before anything in it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    /// Its writer.
    pub writer: Id,
    /// Its number.
    pub number: u64,
    /// Part of the checksum of every frame.
    pub salt: u64,
    /// (number, offset): frames of that earlier segment from that offset on do not count.
    pub voids: Option<(u64, u64)>,
    /// (number, bytes): the segment that was sealed before this one was made, and its length then.
    pub sealed: Option<(u64, u64)>,
    /// True if the header does not validate. The salt is right: a frame was found that was written with it. It is
    /// unknown what the segment voids.
    pub is_damaged: bool,
}

impl SegmentHead {
    /// Reads the header of a segment.
    pub(crate) fn read(storage: &Storage, writer: &Id, number: u64) -> Result<Self> {
        let path = segment_path(writer, number);
        let file = storage.file(writer, number)?;
        let mut bytes = [0; HEADER_BYTES];
        let read = file.read_at(&mut bytes, 0).doing("read", &path)?;
        let damaged = |found: &str| Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() };
        if file.bytes().doing("measure", &path)? > SEGMENT_BYTES_MAX {
            return Err(damaged("it is longer than any segment can be"));
        }
        match SegmentHeader::decode(&bytes[..read]) {
            Ok(header) => {
                let is_ours =
                    header.store == *storage.store() && (header.writer, header.number) == (*writer, number);
                if !is_ours {
                    return Err(damaged("its header belongs to another store, writer or number"));
                }
                let SegmentHeader { salt, voids, sealed, .. } = header;
                Ok(Self { writer: *writer, number, salt, voids, sealed, is_damaged: false })
            }
            Err(HeaderError::Newer { found, known, .. }) => {
                let (found, known) = (u32::from(found), u32::from(known));
                // The new thing may be a feature bit, in a file of the same version.
                Err(Error::NewerFormat { path, found: found.max(known + 1), known })
            }
            Err(HeaderError::Short) => Err(damaged("its header is cut off")),
            Err(_) => Self::salvage(&*file, writer, number, &bytes, &path)?
                .ok_or_else(|| damaged("its header is damaged, and no frame in it can be checked")),
        }
    }

    /// The header, as far as a walk through the frames needs it.
    pub(crate) fn header(&self) -> SegmentHeader {
        let Self { writer, number, salt, voids, sealed, .. } = *self;
        SegmentHeader { store: Id::NONE, writer, number, salt, created: 0, voids, sealed }
    }

    /// If one of the salts in a damaged header fits a frame, the segment can still be read.
    fn salvage(
        file: &dyn ReadLog,
        writer: &Id,
        number: u64,
        bytes: &[u8; HEADER_BYTES],
        path: &str,
    ) -> Result<Option<Self>> {
        for salt in SegmentHeader::salts_of_a_damaged_one(bytes) {
            if has_frame(file, salt).doing("read", path)? {
                let (writer, voids, sealed) = (*writer, None, None);
                return Ok(Some(Self { writer, number, salt, voids, sealed, is_damaged: true }));
            }
        }
        Ok(None)
    }
}

/// True if any frame in the segment has a valid header.
pub(crate) fn has_frame(file: &dyn ReadLog, salt: u64) -> std::io::Result<bool> {
    let file_bytes = file.bytes()?;
    let mut scanner = Scanner::new(salt);
    let mut data = Vec::new();
    while scanner.offset() < file_bytes {
        let offset = scanner.offset();
        let left = usize::try_from(file_bytes - offset).unwrap_or(usize::MAX);
        data.resize(scanner.needs().max(LOOK_BYTES).min(left), 0);
        let read = file.read_at(&mut data, offset)?;
        let is_end = read == left || read < data.len();
        while let Some(event) = scanner.next(&data[..read], offset, is_end) {
            if !matches!(event, Event::Hole { .. }) {
                return Ok(true);
            }
        }
        if is_end {
            break;
        }
    }
    Ok(false)
}
