//! Records that are larger than one frame: split when they are written, joined when they are read.
//!
//! A record is whole only if all its chunks are there, directly after one another; otherwise none of it counts.

use std::borrow::Cow;

use super::{
    FRAME_BODY_MAX, Flags, Frame, FrameHeader, FrameSpec, Kind, Parsed, frame_bytes, parse, put_frame,
};

/// A record with its body in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined<'a> {
    /// The header of its first frame; `body_len` and `body_crc` are of that frame alone.
    pub header: FrameHeader,
    /// Its head; empty if it has none.
    pub head: &'a [u8],
    /// The body of all its frames, as stored.
    pub body: Cow<'a, [u8]>,
    /// How many bytes it takes in the file, all frames together.
    pub bytes: usize,
}

/// Why there is no whole record at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotJoined {
    /// No record starts here.
    Bad,
    /// One starts here, but some of its body is damaged or missing.
    Damaged(FrameHeader),
    /// Only a newer version understands what is here.
    Newer {
        /// The kind of that frame.
        kind: u8,
    },
    /// The bytes end before the record does: at least this many are needed, counted from its start.
    Short {
        /// The header, if it was all there.
        header: Option<FrameHeader>,
        /// How many bytes.
        needs: usize,
    },
}

/// How many bytes a record takes, all its frames together.
pub fn record_bytes(head_len: usize, body_len: usize, commits: bool) -> usize {
    let first = frame_bytes(head_len, body_len.min(FRAME_BODY_MAX), commits);
    let rest = body_len.saturating_sub(FRAME_BODY_MAX);
    let full = frame_bytes(0, FRAME_BODY_MAX, false);
    let last = rest % FRAME_BODY_MAX;
    first + rest / FRAME_BODY_MAX * full + if last > 0 { frame_bytes(0, last, false) } else { 0 }
}

/// Appends a record of any length, as one frame or as chunks; `crcs` has the checksum of each [`FRAME_BODY_MAX`]
/// bytes of the body (one for an empty body).
///
/// # Panics
/// As [`put_frame`]; also if a record of several frames is a commit, or if the number of checksums is not that of the
/// frames.
pub fn put_record(
    out: &mut Vec<u8>,
    salt: u64,
    offset: u64,
    spec: &FrameSpec<'_>,
    body: &[u8],
    crcs: &[u32],
) {
    assert_eq!(crcs.len(), body.len().div_ceil(FRAME_BODY_MAX).max(1), "one checksum for each frame");
    let start = out.len();
    let mut spec = *spec;
    let mut rest = body;
    for &crc in crcs {
        let (piece, behind) = rest.split_at(rest.len().min(FRAME_BODY_MAX));
        let more = if behind.is_empty() { Flags::NONE } else { Flags::MORE };
        let here = offset + (out.len() - start) as u64;
        put_frame(out, salt, here, &FrameSpec { flags: spec.flags | more, ..spec }, piece, crc);
        spec = FrameSpec { kind: Kind::Chunk, flags: Flags::NONE, head: &[], ..spec };
        rest = behind;
    }
}

/// The record that starts at `data[at..]`; `data` is the part of its file that begins at `base_offset`.
pub fn join<'a>(data: &'a [u8], at: usize, base_offset: u64, salt: u64) -> Result<Joined<'a>, NotJoined> {
    let first = match parse(data, at, base_offset, salt) {
        Parsed::Whole(frame) => frame,
        Parsed::BodyDamaged(header, _) => return Err(NotJoined::Damaged(header)),
        Parsed::Cut(header, needs) => return Err(NotJoined::Short { header: Some(header), needs }),
        Parsed::Short { needs } => return Err(NotJoined::Short { header: None, needs }),
        Parsed::Newer { kind, .. } => return Err(NotJoined::Newer { kind }),
        Parsed::Bad => return Err(NotJoined::Bad),
    };
    let header = first.header;
    if header.is(Kind::Chunk) {
        return Err(NotJoined::Bad);
    }
    let mut bytes = header.bytes();
    let mut body = Cow::Borrowed(first.body);
    let mut has_more = header.flags.has(Flags::MORE);
    while has_more {
        let chunk =
            chunk_at(data, at + bytes, base_offset, salt, &header).map_err(|reason| match reason {
                NotJoined::Short { needs, .. } => {
                    NotJoined::Short { header: Some(header), needs: bytes + needs }
                }
                other => other,
            })?;
        body.to_mut().extend_from_slice(chunk.body);
        bytes += chunk.header.bytes();
        has_more = chunk.header.flags.has(Flags::MORE);
    }
    Ok(Joined { header, head: first.head, body, bytes })
}

fn chunk_at<'a>(
    data: &'a [u8],
    at: usize,
    base_offset: u64,
    salt: u64,
    of: &FrameHeader,
) -> Result<Frame<'a>, NotJoined> {
    match parse(data, at, base_offset, salt) {
        Parsed::Whole(frame) if continues(&frame.header, of) => Ok(frame),
        Parsed::Cut(header, needs) if continues(&header, of) => {
            Err(NotJoined::Short { header: Some(*of), needs })
        }
        Parsed::Short { needs } => Err(NotJoined::Short { header: Some(*of), needs }),
        _ => Err(NotJoined::Damaged(*of)),
    }
}

/// True if `chunk` is a chunk of the record that begins with `first`.
pub(crate) fn continues(chunk: &FrameHeader, first: &FrameHeader) -> bool {
    chunk.is(Kind::Chunk) && (chunk.slot, chunk.seq) == (first.slot, first.seq)
}
