//! The head of a frame: the earlier values that its body refers to, and the dictionary of its compression.
//!
//! A head only points back: to the same segment, or to an earlier one of the same log.

use super::{ALIGN, FIRST_FRAME};
use crate::bytes::{Cursor, Malformed, put_varint};

/// The longest record, uncompressed; so no value inside one begins after this.
const INNER_MAX: u64 = 1 << 40;
/// Five varints and a hash.
const REFERENCE_BYTES_MIN: usize = 21;

/// The place of a value in a writer's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The number of the segment.
    pub segment: u64,
    /// Where its record starts there.
    pub offset: u64,
    /// Where it starts in the uncompressed body of that record.
    pub inner: u64,
    /// How many references of that record's own table come before it.
    pub base: u32,
}

/// A value that is stored elsewhere, or the first part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Where it is.
    pub place: Place,
    /// 0 for the whole value, otherwise the number of its first units.
    pub take: u64,
    /// The hash of the value, or of its first units.
    pub hash: [u8; 16],
}

/// Appends the head of a record in `this_segment`: the dictionary's (segment, offset) and the references.
///
/// # Panics
/// If one of them is in a later segment, or at an offset where no record can start.
pub fn put_head(out: &mut Vec<u8>, this_segment: u64, dict: Option<(u64, u64)>, refs: &[Reference]) {
    if let Some((segment, offset)) = dict {
        put_where(out, this_segment, segment, offset);
    }
    put_varint(out, refs.len() as u64);
    for reference in refs {
        let place = &reference.place;
        assert!(place.inner <= INNER_MAX, "{place:?} is behind the end of any record");
        put_where(out, this_segment, place.segment, place.offset);
        put_varint(out, place.inner);
        put_varint(out, u64::from(place.base));
        put_varint(out, reference.take);
        out.extend_from_slice(&reference.hash);
    }
}

fn put_where(out: &mut Vec<u8>, this_segment: u64, segment: u64, offset: u64) {
    assert!(segment <= this_segment, "segment {this_segment} cannot refer to {segment}");
    assert!(offset >= FIRST_FRAME && offset.is_multiple_of(ALIGN as u64), "no record starts at {offset}");
    put_varint(out, this_segment - segment);
    put_varint(out, offset / ALIGN as u64);
}

/// Reads what [`put_head`] wrote; `has_dict` is the frame's flag DICT.
#[allow(clippy::type_complexity, reason = "a name for a pair of two would say less")]
pub fn read_head(
    head: &[u8],
    this_segment: u64,
    has_dict: bool,
) -> Result<(Option<(u64, u64)>, Vec<Reference>), Malformed> {
    let mut cursor = Cursor::new(head);
    let dict = if has_dict { Some(read_where(&mut cursor, this_segment)?) } else { None };
    let count = cursor.count(REFERENCE_BYTES_MIN)?;
    let mut refs = Vec::with_capacity(count);
    for _ in 0..count {
        let (segment, offset) = read_where(&mut cursor, this_segment)?;
        let inner = cursor.varint()?;
        if inner > INNER_MAX {
            return Err(cursor.malformed("a reference points behind the end of any record"));
        }
        let base = cursor.varint()?;
        let base = u32::try_from(base).map_err(|_| cursor.malformed("a reference has too large a base"))?;
        let take = cursor.varint()?;
        let hash = cursor.array()?;
        refs.push(Reference { place: Place { segment, offset, inner, base }, take, hash });
    }
    if !cursor.is_at_end() {
        return Err(cursor.malformed("a head is longer than its references"));
    }
    Ok((dict, refs))
}

fn read_where(cursor: &mut Cursor<'_>, this_segment: u64) -> Result<(u64, u64), Malformed> {
    let back = cursor.varint()?;
    let segment = this_segment.checked_sub(back);
    let segment = segment.ok_or_else(|| cursor.malformed("a reference points before the first segment"))?;
    let offset = cursor.varint()?.checked_mul(ALIGN as u64).filter(|&offset| offset >= FIRST_FRAME);
    let offset = offset.ok_or_else(|| cursor.malformed("a reference points to where no record starts"))?;
    Ok((segment, offset))
}
