//! The bodies of COMMIT and BIND frames.
//!
//! A commit lists the place and the binding of each of its frames, so that a lost frame still has a name.

use crate::Id;
use crate::bytes::{Cursor, Malformed, put_varint};
use crate::frame::{ALIGN, FIRST_FRAME};

/// An offset, a kind, a slot and a sequence number take at least this many bytes.
const LISTED_BYTES_MIN: usize = 4;

/// A frame in the list of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listed {
    /// Where it is.
    pub offset: u64,
    /// Its kind.
    pub kind: u8,
    /// Which binding it belongs to.
    pub slot: u32,
    /// Its sequence number among the records of that binding.
    pub seq: u32,
}

/// Appends the body of a COMMIT frame; nothing if there are no frames.
///
/// # Panics
/// If the frames are not in the order of their offsets, or an offset cannot be that of a frame.
pub fn put_commit_body(out: &mut Vec<u8>, listed: &[Listed]) {
    if listed.is_empty() {
        return;
    }
    put_varint(out, listed.len() as u64);
    let mut before = 0;
    for frame in listed {
        put_step(out, &mut before, frame.offset);
        out.push(frame.kind);
        put_varint(out, u64::from(frame.slot));
        put_varint(out, u64::from(frame.seq));
    }
}

/// The frames that the body of a COMMIT frame lists.
pub fn read_commit_body(body: &[u8]) -> Result<Vec<Listed>, Malformed> {
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let mut cursor = Cursor::new(body);
    let count = cursor.count(LISTED_BYTES_MIN)?;
    let mut listed = Vec::with_capacity(count);
    let mut before = 0;
    for _ in 0..count {
        let offset = read_step(&mut cursor, &mut before)?;
        let kind = cursor.u8()?;
        listed.push(Listed { offset, kind, slot: read_u32(&mut cursor)?, seq: read_u32(&mut cursor)? });
    }
    if !cursor.is_at_end() {
        return Err(cursor.malformed("a commit is longer than its list"));
    }
    Ok(listed)
}

/// Appends the distance of `offset` from the one before.
pub(crate) fn put_step(out: &mut Vec<u8>, before: &mut u64, offset: u64) {
    assert!(offset.is_multiple_of(ALIGN as u64) && offset >= FIRST_FRAME, "no frame stands at {offset}");
    assert!(offset > *before, "{offset} is not behind {before}");
    put_varint(out, (offset - *before) / ALIGN as u64);
    *before = offset;
}

/// Reads a distance, and returns the offset.
pub(crate) fn read_step(cursor: &mut Cursor<'_>, before: &mut u64) -> Result<u64, Malformed> {
    let step = cursor.varint()?.checked_mul(ALIGN as u64);
    let offset = step.and_then(|step| before.checked_add(step));
    match offset {
        Some(offset) if offset > *before && offset >= FIRST_FRAME => {
            *before = offset;
            Ok(offset)
        }
        _ => Err(cursor.malformed("a list of frames is not in their order")),
    }
}

pub(crate) fn read_u32(cursor: &mut Cursor<'_>) -> Result<u32, Malformed> {
    let number = cursor.varint()?;
    u32::try_from(number).map_err(|_| cursor.malformed("a number does not fit 32 bits"))
}

/// What a slot, or an entry of a footer, belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// The log itself; only in footers.
    Log,
    /// An attempt of an episode.
    Attempt,
    /// An attempt of an episode, copied from the log of another writer by the process that took it over.
    Copied {
        /// That writer.
        from: Id,
    },
    /// A stream.
    Stream,
    /// A run: notes on episodes that this writer does not record.
    Run,
}

impl What {
    /// Its number in the format.
    pub fn number(&self) -> u8 {
        match self {
            What::Log => 0,
            What::Attempt => 1,
            What::Copied { .. } => 2,
            What::Stream => 3,
            What::Run => 4,
        }
    }
}

/// What the frames of a slot belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bind {
    /// The kind of `id`.
    pub what: What,
    /// The episode, stream or run.
    pub id: Id,
    /// The attempt; 0 if there are none.
    pub attempt: u32,
}

impl Bind {
    /// The body of a BIND frame.
    ///
    /// # Panics
    /// If it binds the log itself, which has no slot.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.what != What::Log, "the log itself is never bound");
        let mut out = Vec::with_capacity(38);
        self.put(&mut out);
        out
    }

    /// Decodes the body of a BIND frame.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        let bind = Self::read(&mut cursor)?;
        if bind.what == What::Log {
            return Err(cursor.malformed("the log itself is bound"));
        }
        if !cursor.is_at_end() {
            return Err(cursor.malformed("a binding is longer than it should be"));
        }
        Ok(bind)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.what.number());
        out.extend_from_slice(&self.id.0);
        put_varint(out, u64::from(self.attempt));
        if let What::Copied { from } = self.what {
            out.extend_from_slice(&from.0);
        }
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let number = cursor.u8()?;
        let id = Id(cursor.array()?);
        let attempt = read_u32(cursor)?;
        let what = match number {
            0 => What::Log,
            1 => What::Attempt,
            2 => What::Copied { from: Id(cursor.array()?) },
            3 => What::Stream,
            4 => What::Run,
            _ => return Err(cursor.malformed("a binding of an unknown sort")),
        };
        Ok(Self { what, id, attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn lists() -> impl Strategy<Value = Vec<Listed>> {
        let frame = (1u64..1 << 30, any::<u8>(), any::<u32>(), any::<u32>());
        vec(frame, 0..50).prop_map(|frames| {
            let mut offset = 120;
            let place = |(step, kind, slot, seq)| {
                offset += step * 8;
                Listed { offset, kind, slot, seq }
            };
            frames.into_iter().map(place).collect()
        })
    }

    pub(crate) fn binds() -> impl Strategy<Value = Bind> {
        let what = prop_oneof![
            Just(What::Attempt),
            any::<[u8; 16]>().prop_map(|from| What::Copied { from: Id(from) }),
            Just(What::Stream),
            Just(What::Run),
        ];
        (what, any::<[u8; 16]>(), any::<u32>()).prop_map(|(what, id, attempt)| Bind {
            what,
            id: Id(id),
            attempt,
        })
    }

    proptest! {
        /// What a commit lists is read back, and from no part of it.
        #[test]
        fn commits_come_back_whole_or_not_at_all(listed in lists()) {
            let mut body = Vec::new();
            put_commit_body(&mut body, &listed);
            prop_assert_eq!(read_commit_body(&body), Ok(listed));
            for cut in 1..body.len() {
                prop_assert!(read_commit_body(&body[..cut]).is_err(), "cut at {}", cut);
            }
            if !body.is_empty() {
                body.push(0);
                prop_assert!(read_commit_body(&body).is_err());
            }
        }

        /// What a slot was bound to is read back, and from no part of it.
        #[test]
        fn binds_come_back_whole_or_not_at_all(bind in binds()) {
            let mut body = bind.encode();
            prop_assert_eq!(Bind::decode(&body), Ok(bind));
            for cut in 0..body.len() {
                prop_assert!(Bind::decode(&body[..cut]).is_err(), "cut at {}", cut);
            }
            body.push(0);
            prop_assert!(Bind::decode(&body).is_err());
        }

        /// Nothing that is no commit makes the reader panic or allocate beyond its input.
        #[test]
        fn any_bytes_are_read_without_panic(body in vec(any::<u8>(), 0..200)) {
            if let Ok(listed) = read_commit_body(&body) {
                prop_assert!(listed.len() <= body.len());
            }
            let _ = Bind::decode(&body);
        }
    }

    /// A commit of nothing, which only carries a newer `synced_to`, has no body; a count of 0 says the same.
    #[test]
    fn an_empty_commit_lists_nothing() {
        let mut body = Vec::new();
        put_commit_body(&mut body, &[]);
        assert!(body.is_empty());
        assert_eq!(read_commit_body(&[0]), Ok(vec![]));
    }

    /// Two frames never stand at one place, and none stands in the header.
    #[test]
    fn a_list_out_of_order_is_refused() {
        assert!(read_commit_body(&[2, 16, 0x12, 1, 0, 0, 0x12, 1, 1]).is_err());
        assert!(read_commit_body(&[1, 15, 0x12, 1, 0]).is_err());
        assert!(read_commit_body(&[2, 16, 0x12, 1, 0, 1, 0x12, 1, 1]).is_ok());
    }

    /// The log itself stands in footers only, and unknown sorts of bindings are not guessed at.
    #[test]
    fn what_cannot_be_bound_is_refused() {
        for what in [0, 5, 255] {
            let mut body = vec![what];
            body.extend_from_slice(&[0; 17]);
            assert!(Bind::decode(&body).is_err(), "what {what}");
        }
    }
}
