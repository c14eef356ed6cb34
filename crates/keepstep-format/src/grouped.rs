//! What differs in segments of `grouped/`: every binding also names the writer of its records.
//!
//! Two writers may have recorded the same attempt, and only one of them counts, so the writer must be kept.

use crate::Id;
use crate::bytes::{Cursor, Malformed, put_blob, put_varint};
use crate::commit::{Bind, What, read_u32};
use crate::footer::FooterEntry;
use crate::frame::{ALIGN, FIRST_FRAME};

/// As in a plain footer, and the writer.
const ENTRY_BYTES_MIN: usize = 39;
/// A distance and a kind.
const LISTED_BYTES_MIN: usize = 2;

/// Appends the body of a BIND frame in `grouped/`: the binding and its writer.
pub fn put_bind(out: &mut Vec<u8>, writer: &Id, bind: &Bind) {
    out.extend_from_slice(&bind.encode());
    out.extend_from_slice(&writer.0);
}

/// Decodes the body of a BIND frame in `grouped/`.
pub fn read_bind(body: &[u8]) -> Result<(Id, Bind), Malformed> {
    let bind_bytes = body.len().saturating_sub(16);
    let bind = Bind::decode(&body[..bind_bytes])?;
    let writer = Cursor::at(body, bind_bytes).array()?;
    Ok((Id(writer), bind))
}

/// The sort key of an entry: id, attempt, what, the writer copied from, the writer, first sequence number. It is
/// unique.
pub fn sort_key((writer, entry): &(Id, FooterEntry)) -> (Id, u32, u8, Id, Id, u32) {
    let (id, attempt, what, from, first_seq) = entry.sort_key();
    (id, attempt, what, from, *writer, first_seq)
}

/// The body of a FOOTER frame in `grouped/`. Such a segment depends on no other.
///
/// # Panics
/// If the entries are not in the order of [`sort_key`].
pub fn encode_footer(entries: &[(Id, FooterEntry)]) -> Vec<u8> {
    let is_sorted = entries.is_sorted_by(|a, b| sort_key(a) < sort_key(b));
    assert!(is_sorted, "the entries of a footer are not in their order");
    let mut out = Vec::new();
    put_varint(&mut out, entries.len() as u64);
    for (writer, entry) in entries {
        Bind { what: entry.what, id: entry.id, attempt: entry.attempt }.put(&mut out);
        out.extend_from_slice(&writer.0);
        put_varint(&mut out, u64::from(entry.slot));
        put_varint(&mut out, u64::from(entry.first_seq));
        put_varint(&mut out, u64::from(entry.count));
        put_varint(&mut out, entry.list_position);
        put_blob(&mut out, &entry.summary);
    }
    out
}

/// Reads what [`encode_footer`] wrote.
pub fn decode_footer(body: &[u8]) -> Result<Vec<(Id, FooterEntry)>, Malformed> {
    let mut cursor = Cursor::new(body);
    let count = cursor.count(ENTRY_BYTES_MIN)?;
    let mut entries: Vec<(Id, FooterEntry)> = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = read_entry(&mut cursor)?;
        if entries.last().is_some_and(|before| sort_key(before) >= sort_key(&entry)) {
            return Err(cursor.malformed("the entries of a footer are not in their order"));
        }
        entries.push(entry);
    }
    if !cursor.is_at_end() {
        return Err(cursor.malformed("a footer is longer than its entries"));
    }
    Ok(entries)
}

fn read_entry(cursor: &mut Cursor<'_>) -> Result<(Id, FooterEntry), Malformed> {
    let Bind { what, id, attempt } = Bind::read(cursor)?;
    let writer = Id(cursor.array()?);
    if (what == What::Log) != (writer == Id::NONE) {
        return Err(cursor.malformed("an entry of a footer names no writer"));
    }
    let (slot, first_seq, count) = (read_u32(cursor)?, read_u32(cursor)?, read_u32(cursor)?);
    let list_position = cursor.varint()?;
    let summary = cursor.blob()?.to_vec();
    Ok((writer, FooterEntry { what, id, attempt, slot, first_seq, count, list_position, summary }))
}

/// Appends one entry's list to the body of LISTS, and returns its position there. Records of one block have its
/// offset.
///
/// # Panics
/// If the blocks are not in the order of their offsets.
pub fn put_list(lists: &mut Vec<u8>, records: impl IntoIterator<Item = (u64, u8)>) -> u64 {
    let position = lists.len() as u64;
    let mut before = 0;
    for (offset, kind) in records {
        assert!(offset.is_multiple_of(ALIGN as u64) && offset >= FIRST_FRAME, "no block stands at {offset}");
        assert!(offset >= before, "{offset} is before {before}");
        put_varint(lists, (offset - before) / ALIGN as u64);
        lists.push(kind);
        before = offset;
    }
    position
}

/// The (offset of its block, kind) of each of the `count` records of an entry.
pub fn read_list(lists: &[u8], position: u64, count: u32) -> Result<Vec<(u64, u8)>, Malformed> {
    let start = usize::try_from(position).ok().filter(|&start| start <= lists.len());
    let start = start.ok_or(Malformed { what: "a list starts behind the end", at: lists.len() })?;
    let mut cursor = Cursor::at(lists, start);
    let count = count as usize;
    if count.checked_mul(LISTED_BYTES_MIN).is_none_or(|bytes| bytes > cursor.left()) {
        return Err(cursor.malformed("a list is longer than the bytes that are left"));
    }
    let mut before = 0u64;
    let mut step = || {
        let step = cursor.varint()?.checked_mul(ALIGN as u64);
        let offset = step.and_then(|step| before.checked_add(step)).filter(|&it| it >= FIRST_FRAME);
        before = offset.ok_or_else(|| cursor.malformed("a list of blocks is not in their order"))?;
        Ok((before, cursor.u8()?))
    };
    (0..count).map(|_| step()).collect()
}

/// Appends where the records of an entry were in the log of their writer (segment, offset), and returns the position
/// in LISTS. Older readers skip it, since none of their lists point there.
///
/// # Panics
/// If one of them cannot be the place of a record.
pub fn put_origins(lists: &mut Vec<u8>, origins: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let position = lists.len() as u64;
    let mut before = (0, 0);
    for (segment, offset) in origins {
        assert!(offset.is_multiple_of(ALIGN as u64) && offset >= FIRST_FRAME, "no record stands at {offset}");
        let step = (segment == before.0).then(|| offset.checked_sub(before.1)).flatten();
        match step.filter(|step| *step > 0) {
            Some(step) => put_varint(lists, step / ALIGN as u64),
            // No two records are at the same place, so a step of 0 marks a new segment and offset.
            None => [0, segment, offset / ALIGN as u64].iter().for_each(|it| put_varint(lists, *it)),
        }
        before = (segment, offset);
    }
    position
}

/// Reads what [`put_origins`] wrote for `count` records.
pub fn read_origins(lists: &[u8], position: u64, count: u32) -> Result<Vec<(u64, u64)>, Malformed> {
    let start = usize::try_from(position).ok().filter(|&start| start <= lists.len());
    let start = start.ok_or(Malformed { what: "a list starts behind the end", at: lists.len() })?;
    let mut cursor = Cursor::at(lists, start);
    if count as usize > cursor.left() {
        return Err(cursor.malformed("a list is longer than the bytes that are left"));
    }
    let mut before = (0u64, 0u64);
    let mut step = || {
        let mut from = 0;
        let mut step = cursor.varint()?;
        if step == 0 {
            (before.0, step) = (cursor.varint()?, cursor.varint()?);
        } else {
            from = before.1;
        }
        let offset = step.checked_mul(ALIGN as u64).and_then(|step| from.checked_add(step));
        let offset = offset.filter(|&it| it >= FIRST_FRAME);
        before.1 = offset.ok_or_else(|| cursor.malformed("a record stood at no place"))?;
        Ok(before)
    };
    (0..count).map(|_| step()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn footers() -> impl Strategy<Value = Vec<(Id, FooterEntry)>> {
        let what = prop_oneof![
            Just(What::Log),
            Just(What::Attempt),
            (0u8..3).prop_map(|from| What::Copied { from: Id([from; 16]) }),
            Just(What::Stream),
            Just(What::Run),
        ];
        let numbers = (any::<u32>(), 0u32..3, any::<u32>(), any::<u64>());
        let entry = (what, 0u8..4, 0u32..3, 1u8..4, numbers, vec(any::<u8>(), 0..20));
        let entry = entry.prop_map(|(what, id, attempt, writer, numbers, summary)| {
            let (slot, first_seq, count, list_position) = numbers;
            let writer = if what == What::Log { Id::NONE } else { Id([writer; 16]) };
            let id = Id([id; 16]);
            (writer, FooterEntry { what, id, attempt, slot, first_seq, count, list_position, summary })
        });
        vec(entry, 0..20).prop_map(|mut entries| {
            entries.sort_by_key(sort_key);
            entries.dedup_by_key(|entry| sort_key(entry));
            entries
        })
    }

    proptest! {
        /// A footer is read back, and from no part of it.
        #[test]
        fn footers_come_back_whole_or_not_at_all(entries in footers()) {
            let mut body = encode_footer(&entries);
            prop_assert_eq!(decode_footer(&body), Ok(entries));
            for cut in 0..body.len() {
                prop_assert!(decode_footer(&body[..cut]).is_err(), "cut at {}", cut);
            }
            body.push(0);
            prop_assert!(decode_footer(&body).is_err());
        }

        /// Lists are read back from where they were put, several records of one block too.
        #[test]
        fn lists_come_back(steps in vec((0u64..1 << 20, any::<u8>()), 0..40), before in vec(any::<u8>(), 0..9)) {
            let mut offset = 128;
            let records: Vec<(u64, u8)> = steps.into_iter().map(|(step, kind)| {
                offset += step * 8;
                (offset, kind)
            }).collect();
            let mut lists = before;
            let position = put_list(&mut lists, records.iter().copied());
            let count = records.len() as u32;
            prop_assert_eq!(read_list(&lists, position, count), Ok(records));
            prop_assert!(read_list(&lists, position, count + 1).is_err());
        }

        /// Places in the log of a writer are read back in any order, and from no part of them.
        #[test]
        fn origins_come_back(places in vec((0u64..3, 16u64..1 << 30), 0..40), before in vec(any::<u8>(), 0..9)) {
            let origins: Vec<(u64, u64)> = places.into_iter().map(|(segment, at)| (segment, at * 8)).collect();
            let mut lists = before;
            let position = put_origins(&mut lists, origins.iter().copied());
            let count = origins.len() as u32;
            prop_assert_eq!(read_origins(&lists, position, count), Ok(origins));
            prop_assert!(read_origins(&lists, position, count + 1).is_err());
        }

        /// A binding and its writer are read back, and from no part of it.
        #[test]
        fn bindings_come_back(id: [u8; 16], writer: [u8; 16], attempt: u32) {
            let bind = Bind { what: What::Attempt, id: Id(id), attempt };
            let mut body = Vec::new();
            put_bind(&mut body, &Id(writer), &bind);
            prop_assert_eq!(read_bind(&body), Ok((Id(writer), bind)));
            for cut in 0..body.len() {
                prop_assert!(read_bind(&body[..cut]).is_err(), "cut at {}", cut);
            }
        }

        /// Nothing makes a reader panic.
        #[test]
        fn any_bytes_are_read_without_panic(body in vec(any::<u8>(), 0..200), position: u64, count in 0u32..99) {
            let _ = decode_footer(&body);
            let _ = read_bind(&body);
            let _ = read_list(&body, position, count);
            let _ = read_origins(&body, position, count);
            let _ = read_origins(&body, 0, count);
        }
    }
}
