//! The index of a sealed segment: what has records in it, and where each of them is.
//!
//! It only repeats what the frames say, so a segment whose index is lost is scanned instead.

use crc32c::crc32c;

use crate::Id;
use crate::bytes::{Cursor, Malformed, put_blob, put_varint};
use crate::commit::{Bind, What, put_step, read_step, read_u32};
use crate::frame::{FRAME_BODY_MAX, Flags, FrameSpec, Kind, join, put_record};
use crate::segment::{TRAILER_BYTES, Trailer};

/// What, id, attempt, slot, first sequence, count, position and the length of the summary.
const ENTRY_BYTES_MIN: usize = 23;
/// A distance and a kind.
const LISTED_BYTES_MIN: usize = 2;

/// The records of one attempt (stream, run, or the log itself) in a segment, without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FooterEntry {
    /// The kind of `id`.
    pub what: What,
    /// The episode, stream or run; zero for the log itself.
    pub id: Id,
    /// The attempt; 0 if there are none.
    pub attempt: u32,
    /// The slot that it was bound to; 0 for the log itself.
    pub slot: u32,
    /// The sequence number of its first record here.
    pub first_seq: u32,
    /// How many records it has here.
    pub count: u32,
    /// Where its list starts in the body of LISTS; see [`read_list`].
    pub list_position: u64,
    /// Fields for lists of episodes, as bytes; may be empty.
    pub summary: Vec<u8>,
}

impl FooterEntry {
    /// The sort key of an entry: id, attempt, what, the writer copied from, first sequence number. It is unique.
    pub fn sort_key(&self) -> (Id, u32, u8, Id, u32) {
        let from = if let What::Copied { from } = self.what { from } else { Id::NONE };
        (self.id, self.attempt, self.what.number(), from, self.first_seq)
    }
}

/// The body of a FOOTER frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Footer {
    /// In the order of [`FooterEntry::sort_key`].
    pub entries: Vec<FooterEntry>,
    /// The earlier segments that references in this one point to, as this number minus theirs; rising.
    pub depends_on: Vec<u64>,
}

impl Footer {
    /// The footer as bytes.
    ///
    /// # Panics
    /// If the entries or the segments are not in their order.
    pub fn encode(&self) -> Vec<u8> {
        let is_sorted = self.entries.is_sorted_by(|a, b| a.sort_key() < b.sort_key());
        assert!(is_sorted, "the entries of a footer are not in their order");
        assert!(rises(&self.depends_on), "{:?} do not rise from 1", self.depends_on);
        let mut out = Vec::new();
        put_varint(&mut out, self.entries.len() as u64);
        for entry in &self.entries {
            Bind { what: entry.what, id: entry.id, attempt: entry.attempt }.put(&mut out);
            put_varint(&mut out, u64::from(entry.slot));
            put_varint(&mut out, u64::from(entry.first_seq));
            put_varint(&mut out, u64::from(entry.count));
            put_varint(&mut out, entry.list_position);
            put_blob(&mut out, &entry.summary);
        }
        put_varint(&mut out, self.depends_on.len() as u64);
        self.depends_on.iter().for_each(|&back| put_varint(&mut out, back));
        out
    }

    /// Reads what [`Footer::encode`] wrote.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        let count = cursor.count(ENTRY_BYTES_MIN)?;
        let mut entries: Vec<FooterEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = read_entry(&mut cursor)?;
            if entries.last().is_some_and(|before| before.sort_key() >= entry.sort_key()) {
                return Err(cursor.malformed("the entries of a footer are not in their order"));
            }
            entries.push(entry);
        }
        let count = cursor.count(1)?;
        let depends_on = (0..count).map(|_| cursor.varint()).collect::<Result<Vec<_>, _>>()?;
        if !rises(&depends_on) {
            return Err(cursor.malformed("the segments that a footer depends on do not rise"));
        }
        if !cursor.is_at_end() {
            return Err(cursor.malformed("a footer is longer than its entries"));
        }
        Ok(Self { entries, depends_on })
    }
}

fn read_entry(cursor: &mut Cursor<'_>) -> Result<FooterEntry, Malformed> {
    let Bind { what, id, attempt } = Bind::read(cursor)?;
    let (slot, first_seq, count) = (read_u32(cursor)?, read_u32(cursor)?, read_u32(cursor)?);
    let list_position = cursor.varint()?;
    let summary = cursor.blob()?.to_vec();
    Ok(FooterEntry { what, id, attempt, slot, first_seq, count, list_position, summary })
}

fn rises(backs: &[u64]) -> bool {
    backs.first() != Some(&0) && backs.is_sorted_by(|a, b| a < b)
}

/// Appends one entry's list to the body of LISTS, and returns its position there.
///
/// # Panics
/// If the frames are not in the order of their offsets.
pub fn put_list(lists: &mut Vec<u8>, frames: impl IntoIterator<Item = (u64, u8)>) -> u64 {
    let position = lists.len() as u64;
    let mut before = 0;
    for (offset, kind) in frames {
        put_step(lists, &mut before, offset);
        lists.push(kind);
    }
    position
}

/// The (offset, kind) of each of the `count` records of an entry.
pub fn read_list(lists: &[u8], position: u64, count: u32) -> Result<Vec<(u64, u8)>, Malformed> {
    let start = usize::try_from(position).ok().filter(|&start| start <= lists.len());
    let start = start.ok_or(Malformed { what: "a list starts behind the end", at: lists.len() })?;
    let mut cursor = Cursor::at(lists, start);
    let count = count as usize;
    if count.checked_mul(LISTED_BYTES_MIN).is_none_or(|bytes| bytes > cursor.left()) {
        return Err(cursor.malformed("a list is longer than the bytes that are left"));
    }
    let mut before = 0;
    (0..count).map(|_| Ok((read_step(&mut cursor, &mut before)?, cursor.u8()?))).collect()
}

/// The index of a sealed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The footer: what has records here.
    pub footer: Footer,
    /// The body of LISTS, for [`read_list`].
    pub lists: Vec<u8>,
}

/// Appends LISTS, FOOTER and the trailer, which seal a segment whose data ends at `offset`.
pub fn put_index(out: &mut Vec<u8>, salt: u64, offset: u64, footer: &Footer, lists: &[u8]) {
    put_index_of(out, salt, offset, &footer.encode(), lists);
}

/// As [`put_index`], from the bytes of a footer.
pub fn put_index_of(out: &mut Vec<u8>, salt: u64, offset: u64, footer: &[u8], lists: &[u8]) {
    let start = out.len();
    let put = |out: &mut Vec<u8>, kind, body: &[u8]| {
        let here = offset + (out.len() - start) as u64;
        let spec = FrameSpec { kind, flags: Flags::NONE, slot: 0, seq: 0, synced_to: None, head: &[] };
        let mut crcs: Vec<u32> = body.chunks(FRAME_BODY_MAX).map(crc32c).collect();
        if crcs.is_empty() {
            crcs.push(crc32c(&[]));
        }
        put_record(out, salt, here, &spec, body, &crcs);
        here
    };
    let lists = put(out, Kind::Lists, lists);
    let footer = put(out, Kind::Footer, footer);
    out.extend_from_slice(&Trailer { footer, lists }.encode(salt));
}

/// The index, if all of it is whole. `tail` is the file from `trailer.lists` to its end.
pub fn read_index(tail: &[u8], trailer: &Trailer, salt: u64) -> Option<Index> {
    let lists = join(tail, 0, trailer.lists, salt).ok()?;
    let footer = join(tail, lists.bytes, trailer.lists, salt).ok()?;
    let is_in_place = lists.header.is(Kind::Lists)
        && footer.header.is(Kind::Footer)
        && trailer.footer == trailer.lists + lists.bytes as u64
        && tail.len() == lists.bytes + footer.bytes + TRAILER_BYTES;
    let is_plain = lists.header.flags.0 | footer.header.flags.0 | Flags::MORE.0 == Flags::MORE.0;
    if !is_in_place || !is_plain {
        return None;
    }
    let decoded = Footer::decode(&footer.body).ok()?;
    let are_in_bounds = decoded.entries.iter().all(|entry| entry.list_position <= lists.body.len() as u64);
    are_in_bounds.then(|| Index { footer: decoded, lists: lists.body.into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn footers() -> impl Strategy<Value = Footer> {
        let what = prop_oneof![
            Just(What::Attempt),
            (0u8..3).prop_map(|from| What::Copied { from: Id([from; 16]) }),
            Just(What::Stream),
            Just(What::Run),
        ];
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>());
        let entry = (what, 0u8..4, 0u32..3, numbers, vec(any::<u8>(), 0..20));
        let entry =
            entry.prop_map(|(what, id, attempt, (slot, first_seq, count, list_position), summary)| {
                let id = Id([id; 16]);
                FooterEntry { what, id, attempt, slot, first_seq, count, list_position, summary }
            });
        (vec(entry, 0..20), vec(1u64..1 << 40, 0..6)).prop_map(|(mut entries, mut depends_on)| {
            entries.sort_by_key(FooterEntry::sort_key);
            entries.dedup_by_key(|entry| entry.sort_key());
            depends_on.sort();
            depends_on.dedup();
            Footer { entries, depends_on }
        })
    }

    fn lists() -> impl Strategy<Value = Vec<(u64, u8)>> {
        vec((1u64..1 << 20, any::<u8>()), 0..40).prop_map(|steps| {
            let mut offset = 120;
            let place = |(step, kind)| {
                offset += step * 8;
                (offset, kind)
            };
            steps.into_iter().map(place).collect()
        })
    }

    proptest! {
        /// A footer is read back, and from no part of it.
        #[test]
        fn footers_come_back_whole_or_not_at_all(footer in footers()) {
            let mut body = footer.encode();
            prop_assert_eq!(Footer::decode(&body), Ok(footer));
            for cut in 0..body.len() {
                prop_assert!(Footer::decode(&body[..cut]).is_err(), "cut at {}", cut);
            }
            body.push(0);
            prop_assert!(Footer::decode(&body).is_err());
        }

        /// Lists are read back from where they were put; a longer one than was put is not there.
        #[test]
        fn lists_come_back(all in vec(lists(), 1..6)) {
            let mut body = Vec::new();
            let positions: Vec<u64> = all.iter().map(|list| put_list(&mut body, list.iter().copied())).collect();
            for (list, &position) in all.iter().zip(&positions) {
                prop_assert_eq!(read_list(&body, position, list.len() as u32), Ok(list.clone()));
            }
            let last = all.last().map_or(0, Vec::len) as u32;
            prop_assert!(read_list(&body, positions[all.len() - 1], last + 1).is_err());
            prop_assert!(read_list(&body, body.len() as u64 + 1, 0).is_err());
        }

        /// Any bytes are read without a panic.
        #[test]
        fn any_bytes_are_read_without_panic(body in vec(any::<u8>(), 0..200), position: u64, count: u32) {
            let _ = Footer::decode(&body);
            let _ = read_list(&body, position, count);
            let _ = read_list(&body, position % 200, count % 100);
        }
    }

    /// One key, one place: a reader may search by halving.
    #[test]
    fn entries_out_of_order_are_refused() {
        let entry = |id| FooterEntry {
            what: What::Attempt,
            id: Id([id; 16]),
            attempt: 0,
            slot: 1,
            first_seq: 0,
            count: 1,
            list_position: 0,
            summary: vec![],
        };
        let body = Footer { entries: vec![entry(1), entry(2)], depends_on: vec![1, 3] }.encode();
        let mut swapped = body.clone();
        swapped[2..18].copy_from_slice(&[2; 16]);
        assert!(Footer::decode(&swapped).is_err(), "the same key twice");
        let mut depends = body;
        let end = depends.len();
        depends[end - 1] = 1;
        assert!(Footer::decode(&depends).is_err(), "the same segment twice");
    }

    fn sealed(lists_bytes: usize) -> (Vec<u8>, Trailer, Index) {
        let mut lists = Vec::new();
        put_list(&mut lists, (0..lists_bytes as u64 / 2).map(|i| (128 + i * 8, 0x12)));
        let footer = Footer { entries: vec![], depends_on: vec![2] };
        let mut tail = Vec::new();
        put_index(&mut tail, 5, 4096, &footer, &lists);
        let len = 4096 + tail.len() as u64;
        let trailer = Trailer::decode(&tail, len, 5).unwrap();
        (tail, trailer, Index { footer, lists })
    }

    /// An index is read back, also one whose lists do not fit one frame.
    #[test]
    fn an_index_comes_back() {
        for lists_bytes in [0, 10, FRAME_BODY_MAX, FRAME_BODY_MAX + 2, 3 * FRAME_BODY_MAX] {
            let (tail, trailer, index) = sealed(lists_bytes);
            assert_eq!(trailer.lists, 4096);
            assert_eq!(read_index(&tail, &trailer, 5), Some(index), "{lists_bytes} bytes of lists");
        }
    }

    /// An index of which anything was changed or is missing is no index.
    #[test]
    fn a_changed_index_is_none() {
        let (tail, trailer, _) = sealed(10);
        for bit in 0..(tail.len() - TRAILER_BYTES) * 8 {
            let mut flipped = tail.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_index(&flipped, &trailer, 5), None, "bit {bit}");
        }
        for cut in 0..tail.len() {
            assert_eq!(read_index(&tail[..cut], &trailer, 5), None, "cut at {cut}");
        }
        assert_eq!(read_index(&tail, &trailer, 6), None);
    }
}
