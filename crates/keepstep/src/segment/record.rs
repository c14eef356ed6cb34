//! Reads one record from a segment: joins its frames, checks its references, unpacks its body.
//!
//! Nothing is trusted before its checksum was checked, and nothing is allocated for bytes that are not there.

use keepstep_format::decode::Body;
use keepstep_format::frame::{Flags, FrameHeader, Kind, Parsed, Reference, parse, read_head};
use keepstep_format::record::{Dictionary, decompress};

use super::window::Window;
use crate::error::Error;

/// Why a record cannot be read.
#[derive(Debug, Clone)]
pub(crate) enum Unreadable {
    /// Its segment is gone, or it is in a part that does not count.
    Missing,
    /// Its bytes differ from what was written.
    Damaged,
    /// Only a newer version understands it.
    Newer,
    /// The operating system returned an error.
    Io(Error),
}

/// A record as it is stored: checked, not unpacked.
#[derive(Debug, Clone)]
pub(crate) struct StoredRecord {
    /// The header of its first frame.
    pub header: FrameHeader,
    /// How many bytes it takes in the file, all frames together.
    pub bytes: u64,
    /// Where its dictionary is: segment and offset.
    pub dictionary: Option<(u64, u64)>,
    /// Its references.
    pub references: Vec<Reference>,
    /// Its body, perhaps compressed.
    pub stored: Vec<u8>,
}

impl StoredRecord {
    /// Unpacks the body.
    pub(crate) fn unpack(self, dictionary: Option<&Dictionary>) -> Result<Body, Unreadable> {
        let raw = if self.header.flags.has(Flags::ZSTD) {
            decompress(&self.stored, dictionary).map_err(|_| Unreadable::Damaged)?
        } else {
            self.stored
        };
        Ok(Body { raw, references: self.references })
    }
}

/// The record that starts at `offset` of segment `number`.
pub(crate) fn load(
    window: &mut Window,
    salt: u64,
    number: u64,
    offset: u64,
) -> Result<StoredRecord, Unreadable> {
    let io = |source| Unreadable::Io(Error::io("read", format!("segment {number}"), source));
    let mut needs = keepstep_format::frame::FRAME_FIXED_BYTES;
    let (header, head, mut stored) = loop {
        let data = window.at(offset, needs).map_err(io)?;
        match parse(data, 0, offset, salt) {
            Parsed::Whole(frame) => break (frame.header, frame.head.to_vec(), frame.body.to_vec()),
            Parsed::Short { needs: more } if more > data.len() && more > needs => needs = more,
            Parsed::Cut(_, more) if more > data.len() && more > needs => needs = more,
            Parsed::Newer { .. } => return Err(Unreadable::Newer),
            Parsed::BodyDamaged(..) | Parsed::Cut(..) | Parsed::Bad | Parsed::Short { .. } => {
                return Err(Unreadable::Damaged);
            }
        }
    };
    if header.is(Kind::Chunk) {
        return Err(Unreadable::Damaged);
    }
    let mut bytes = header.bytes() as u64;
    let mut has_more = header.flags.has(Flags::MORE);
    while has_more {
        let (chunk_bytes, more) = append_chunk(window, salt, offset + bytes, &header, &mut stored)?;
        bytes += chunk_bytes;
        has_more = more;
    }
    let (dictionary, references) = references(&header, &head, number, offset)?;
    Ok(StoredRecord { header, bytes, dictionary, references, stored })
}

/// Appends the chunk at `offset` to the record's body: how many bytes it takes, and whether more follow.
fn append_chunk(
    window: &mut Window,
    salt: u64,
    offset: u64,
    of: &FrameHeader,
    stored: &mut Vec<u8>,
) -> Result<(u64, bool), Unreadable> {
    let io = |source| Unreadable::Io(Error::io("read", "a chunk of a segment", source));
    let mut needs = keepstep_format::frame::FRAME_FIXED_BYTES;
    loop {
        let data = window.at(offset, needs).map_err(io)?;
        match parse(data, 0, offset, salt) {
            Parsed::Whole(frame) => {
                let chunk = frame.header;
                if !chunk.is(Kind::Chunk) || (chunk.slot, chunk.seq) != (of.slot, of.seq) {
                    return Err(Unreadable::Damaged);
                }
                stored.extend_from_slice(frame.body);
                return Ok((chunk.bytes() as u64, chunk.flags.has(Flags::MORE)));
            }
            Parsed::Short { needs: more } | Parsed::Cut(_, more) if more > data.len() && more > needs => {
                needs = more;
            }
            _ => return Err(Unreadable::Damaged),
        }
    }
}

/// A place in a log: segment and offset.
type At = (u64, u64);

/// The references of a head, if all point to places before the record: so no chain of references has a circle.
fn references(
    header: &FrameHeader,
    head: &[u8],
    number: u64,
    offset: u64,
) -> Result<(Option<At>, Vec<Reference>), Unreadable> {
    if head.is_empty() {
        return Ok((None, Vec::new()));
    }
    let (dictionary, references) =
        read_head(head, number, header.flags.has(Flags::DICT)).map_err(|_| Unreadable::Damaged)?;
    let here = (number, offset);
    let point_back = references.iter().all(|it| (it.place.segment, it.place.offset) < here);
    if !point_back || dictionary.is_some_and(|at| at >= here) {
        return Err(Unreadable::Damaged);
    }
    Ok((dictionary, references))
}
