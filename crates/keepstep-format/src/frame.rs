//! One frame: a header that says what its bytes belong to, and those bytes; each has its own checksum.
//!
//! A header only validates at the offset and in the segment that it was written for, so stale, copied or half-written
//! bytes are never taken for a frame.

mod chunks;
mod head;
#[cfg(test)]
mod tests;

use std::ops::BitOr;

use crc32c::{crc32c, crc32c_append};

pub use crate::kind::Kind;
pub(crate) use chunks::continues;
pub use chunks::{Joined, NotJoined, join, put_record, record_bytes};
pub use head::{Place, Reference, put_head, read_head};

/// The largest body of one frame; larger records are chunked.
pub const FRAME_BODY_MAX: usize = 1 << 20;
/// The largest head of a frame.
pub const HEAD_MAX: usize = 1 << 20;
/// Every frame starts at a multiple of this.
pub const ALIGN: usize = 8;
/// The part of a header that every frame has.
pub const FRAME_FIXED_BYTES: usize = 24;
/// No frame is longer than this: a window of this many bytes always lets a scan continue.
pub const FRAME_BYTES_MAX: usize = frame_bytes(HEAD_MAX, FRAME_BODY_MAX, true);
/// The offset of the first frame of a segment, and so the smallest `synced_to`.
pub const FIRST_FRAME: u64 = 128;
/// From this number on, a reader may skip kinds that it does not know.
pub const KIND_SKIPPABLE: u8 = 0x80;

/// The flags of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// None of them.
    pub const NONE: Flags = Flags(0);
    /// The frame commits itself and the frames before it, and carries `synced_to`.
    pub const COMMITS: Flags = Flags(1);
    /// The record continues in the CHUNK frame after this one.
    pub const MORE: Flags = Flags(2);
    /// The frame has a head: references, and where its dictionary is.
    pub const HEAD: Flags = Flags(4);
    /// The record's body is compressed.
    pub const ZSTD: Flags = Flags(8);
    /// The compressed body needs the dictionary that the head names.
    pub const DICT: Flags = Flags(16);

    const KNOWN: u8 = 0x1f;

    /// True if all of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    const fn has_any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// The header of a frame, whose checksum was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// See [`Kind`]. Unknown kinds are kept as they are.
    pub kind: u8,
    /// The flags.
    pub flags: Flags,
    /// Which binding of this segment it belongs to; 0 for none.
    pub slot: u32,
    /// Its sequence number among the records of that binding.
    pub seq: u32,
    /// If it commits: how far the segment had been synced.
    pub synced_to: Option<u64>,
    /// Length of the body of this frame.
    pub body_len: u32,
    /// Checksum of the body of this frame.
    pub body_crc: u32,
    /// Length of the head; 0 if it has none.
    pub head_len: u32,
}

impl FrameHeader {
    /// True if it is of this kind.
    pub fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }

    /// How many bytes the whole frame takes, padding included.
    pub fn bytes(&self) -> usize {
        frame_bytes(self.head_len as usize, self.body_len as usize, self.synced_to.is_some())
    }
}

/// A frame whose every byte was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its kind, and what it belongs to.
    pub header: FrameHeader,
    /// See [`read_head`]; empty if it has none.
    pub head: &'a [u8],
    /// The body as stored: this frame's piece of it, perhaps compressed.
    pub body: &'a [u8],
}

/// A frame to be written.
#[derive(Debug, Clone, Copy)]
pub struct FrameSpec<'a> {
    /// Its kind.
    pub kind: Kind,
    /// MORE, ZSTD and DICT; COMMITS and HEAD follow from the fields below.
    pub flags: Flags,
    /// Which binding it belongs to; 0 for none.
    pub slot: u32,
    /// Its sequence number among the records of that binding.
    pub seq: u32,
    /// Makes it a commit.
    pub synced_to: Option<u64>,
    /// The head; may be empty.
    pub head: &'a [u8],
}

/// How many bytes a frame takes, padding included.
pub const fn frame_bytes(head_len: usize, body_len: usize, commits: bool) -> usize {
    let commit = if commits { 8 } else { 0 };
    let head = if head_len > 0 { 4 + head_len } else { 0 };
    (FRAME_FIXED_BYTES + commit + head + body_len).next_multiple_of(ALIGN)
}

/// Appends one frame, padding included, for its place at `offset` of its file.
///
/// `body_crc` is passed by the caller, so that it can be computed on another thread.
///
/// # Panics
/// If the frame breaks a rule of the format: no reader would accept it, and this must not be found out after a crash.
pub fn put_frame(
    out: &mut Vec<u8>,
    salt: u64,
    offset: u64,
    spec: &FrameSpec<'_>,
    body: &[u8],
    body_crc: u32,
) {
    let mut flags = spec.flags;
    if spec.synced_to.is_some() {
        flags = flags | Flags::COMMITS;
    }
    if !spec.head.is_empty() {
        flags = flags | Flags::HEAD;
    }
    assert!(body.len() <= FRAME_BODY_MAX && spec.head.len() <= HEAD_MAX, "a frame is too long");
    assert!(flags_fit(spec.kind as u8, flags), "{:?} cannot have {flags:?}", spec.kind);
    assert!(offset.is_multiple_of(ALIGN as u64) && offset >= FIRST_FRAME, "no frame stands at {offset}");
    assert!(spec.synced_to.is_none_or(|to| synced_to_fits(to, offset)), "{:?} at {offset}", spec.synced_to);
    debug_assert_eq!(body_crc, crc32c(body), "the body is not what its checksum was taken of");

    let start = out.len();
    out.reserve(frame_bytes(spec.head.len(), body.len(), spec.synced_to.is_some()));
    let mut fixed = [0; 20];
    fixed[0] = spec.kind as u8;
    fixed[1] = flags.0;
    fixed[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    fixed[8..12].copy_from_slice(&spec.slot.to_le_bytes());
    fixed[12..16].copy_from_slice(&spec.seq.to_le_bytes());
    fixed[16..20].copy_from_slice(&body_crc.to_le_bytes());
    out.extend_from_slice(&fixed);
    out.extend_from_slice(&[0; 4]);
    if let Some(synced_to) = spec.synced_to {
        out.extend_from_slice(&synced_to.to_le_bytes());
    }
    if !spec.head.is_empty() {
        out.extend_from_slice(&(spec.head.len() as u32).to_le_bytes());
        out.extend_from_slice(spec.head);
    }
    let crc = head_crc(salt, offset, &fixed, &out[start + FRAME_FIXED_BYTES..]);
    out[start + 20..start + 24].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
    let padding = (out.len() - start).next_multiple_of(ALIGN) - (out.len() - start);
    out.extend_from_slice(&[0; ALIGN][..padding]);
}

fn head_crc(salt: u64, offset: u64, fixed: &[u8; 20], optional: &[u8]) -> u32 {
    let mut place = [0; 36];
    place[..8].copy_from_slice(&salt.to_le_bytes());
    place[8..16].copy_from_slice(&offset.to_le_bytes());
    place[16..].copy_from_slice(fixed);
    crc32c_append(crc32c(&place), optional)
}

/// Which flags a kind may have. The first frame of a chunked record has all flags; a chunked record never commits.
fn flags_fit(kind: u8, flags: Flags) -> bool {
    let packed = Flags::HEAD | Flags::ZSTD | Flags::DICT;
    let of_kind = match Kind::from_u8(kind) {
        Some(Kind::Chunk) => !flags.has_any(packed | Flags::COMMITS),
        Some(Kind::Commit) => flags == Flags::COMMITS,
        _ => true,
    };
    of_kind
        && !flags.has(Flags::MORE | Flags::COMMITS)
        && (!flags.has(Flags::DICT) || flags.has(Flags::HEAD | Flags::ZSTD))
}

/// A commit can only know earlier frames to be synced.
fn synced_to_fits(synced_to: u64, offset: u64) -> bool {
    (FIRST_FRAME..=offset).contains(&synced_to) && synced_to.is_multiple_of(ALIGN as u64)
}

/// What is at a place where a frame may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A frame; header, head, body and padding were checked.
    Whole(Frame<'a>),
    /// Its header is valid, its body or padding is not; and how many bytes it takes.
    BodyDamaged(FrameHeader, usize),
    /// Its header is valid, but the bytes end before its body does; and how many bytes it takes.
    Cut(FrameHeader, usize),
    /// Its header is valid, and has something that only a newer version understands.
    Newer {
        /// Its kind; unknown, or with unknown flags.
        kind: u8,
        /// How many bytes it takes, as far as this version can tell.
        bytes: usize,
    },
    /// No frame.
    Bad,
    /// The bytes end before the header does; at least this many are needed.
    Short {
        /// Counted from the start of the frame.
        needs: usize,
    },
}

/// What is at `data[at..]`; `data` is the part of its file that begins at `base_offset`.
pub fn parse<'a>(data: &'a [u8], at: usize, base_offset: u64, salt: u64) -> Parsed<'a> {
    let Some(data) = data.get(at..) else { return Parsed::Short { needs: FRAME_FIXED_BYTES } };
    let offset = base_offset + at as u64;
    let Some((fixed, _)) = data.split_first_chunk() else {
        return Parsed::Short { needs: FRAME_FIXED_BYTES };
    };
    let layout = match layout(fixed, data) {
        Ok(layout) => layout,
        Err(Unfit::Bad) => return Parsed::Bad,
        Err(Unfit::Short { needs }) => return Parsed::Short { needs },
    };
    let body_at = layout.body_at();
    if data.len() < body_at {
        return Parsed::Short { needs: body_at };
    }
    if head_crc(salt, offset, &fixed_part(fixed), &data[FRAME_FIXED_BYTES..body_at]) != le_u32(fixed, 20) {
        return Parsed::Bad;
    }
    let total = frame_bytes(layout.head_len, layout.body_len, layout.commits);
    if layout.is_newer {
        return Parsed::Newer { kind: fixed[0], bytes: total };
    }
    let synced_to = layout.commits.then(|| le_u64(data, FRAME_FIXED_BYTES));
    // The checksum is right, so it was written like this, by a program that does not follow the format.
    let fits = flags_fit(fixed[0], Flags(fixed[1]))
        && synced_to.is_none_or(|to| synced_to_fits(to, offset))
        && offset.is_multiple_of(ALIGN as u64);
    if !fits {
        return Parsed::Bad;
    }
    let header = FrameHeader {
        kind: fixed[0],
        flags: Flags(fixed[1]),
        slot: le_u32(fixed, 8),
        seq: le_u32(fixed, 12),
        synced_to,
        body_len: layout.body_len as u32,
        body_crc: le_u32(fixed, 16),
        head_len: layout.head_len as u32,
    };
    if data.len() < total {
        return Parsed::Cut(header, total);
    }
    let body_end = body_at + layout.body_len;
    let body = &data[body_at..body_end];
    let is_padded = data[body_end..total].iter().all(|&byte| byte == 0);
    if crc32c(body) != header.body_crc || !is_padded {
        return Parsed::BodyDamaged(header, total);
    }
    Parsed::Whole(Frame { header, head: &data[body_at - layout.head_len..body_at], body })
}

/// Where the parts of a frame are. No checksum was checked yet.
struct Layout {
    commits: bool,
    has_head: bool,
    head_len: usize,
    body_len: usize,
    is_newer: bool,
}

impl Layout {
    fn body_at(&self) -> usize {
        FRAME_FIXED_BYTES
            + if self.commits { 8 } else { 0 }
            + if self.has_head { 4 } else { 0 }
            + self.head_len
    }
}

enum Unfit {
    Bad,
    Short { needs: usize },
}

/// Refuses everything that can be refused without a checksum.
fn layout(fixed: &[u8; FRAME_FIXED_BYTES], data: &[u8]) -> Result<Layout, Unfit> {
    let (kind, flags) = (fixed[0], Flags(fixed[1]));
    let body_len = le_u32(fixed, 4) as usize;
    if kind == 0 || body_len > FRAME_BODY_MAX {
        return Err(Unfit::Bad);
    }
    let is_known = Kind::from_u8(kind).is_some() || kind >= KIND_SKIPPABLE;
    let is_newer = !is_known || flags.0 & !Flags::KNOWN != 0 || fixed[2] != 0 || fixed[3] != 0;
    let (commits, has_head) = (flags.has(Flags::COMMITS), flags.has(Flags::HEAD));
    let mut layout = Layout { commits, has_head, head_len: 0, body_len, is_newer };
    if has_head {
        let length_end = layout.body_at();
        if data.len() < length_end {
            return Err(Unfit::Short { needs: length_end });
        }
        layout.head_len = le_u32(data, length_end - 4) as usize;
        if !(1..=HEAD_MAX).contains(&layout.head_len) {
            return Err(Unfit::Bad);
        }
    }
    Ok(layout)
}

/// How many bytes [`parse`] would have to checksum before it knows whether a frame starts here; `None` if it knows at
/// once.
///
/// For looking at very many places after a hole. There, frames of a newer version are not looked for, so almost every
/// place costs nothing.
pub(crate) fn glance(data: &[u8]) -> Option<usize> {
    let (fixed, _) = data.split_first_chunk()?;
    match layout(fixed, data) {
        Ok(layout) if layout.is_newer || !flags_fit(fixed[0], Flags(fixed[1])) => None,
        Ok(layout) => Some(layout.body_at()),
        Err(_) => None,
    }
}

fn fixed_part(fixed: &[u8; FRAME_FIXED_BYTES]) -> [u8; 20] {
    let mut part = [0; 20];
    part.copy_from_slice(&fixed[..20]);
    part
}

fn le_u32(data: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&data[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn le_u64(data: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&data[at..at + 8]);
    u64::from_le_bytes(bytes)
}
