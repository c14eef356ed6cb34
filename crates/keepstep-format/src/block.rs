//! A block: many records of one attempt, compressed as one piece by `compact`.
//!
//! Each record keeps its bytes. Only its references are rewritten, so a moved record has the same content and the
//! same hashes as before.

use crate::bytes::{Cursor, Malformed, put_varint};
use crate::decode::{Body, Part};
use crate::frame::{ALIGN, FIRST_FRAME, Place, Reference};

/// A kind, a length and a count of references.
const RECORD_BYTES_MIN: usize = 3;
/// Four varints and a hash.
const REFERENCE_BYTES_MIN: usize = 20;

/// A record of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRecord {
    /// Its kind.
    pub kind: u8,
    /// Which bytes and references of the block are its own.
    pub part: Part,
}

/// The records of a block, in the order of their sequence numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// The bodies of all records, one after another, and all their references.
    pub body: Body,
    /// The records.
    pub records: Vec<BlockRecord>,
}

impl Block {
    /// Adds a record, and returns where it is in the block.
    pub fn push(
        &mut self,
        kind: u8,
        raw: &[u8],
        references: impl IntoIterator<Item = Reference>,
    ) -> &BlockRecord {
        let (bytes, base) = (self.body.raw.len(), self.body.references.len());
        self.body.raw.extend_from_slice(raw);
        self.body.references.extend(references);
        let part = Part { bytes: bytes..self.body.raw.len(), references: base..self.body.references.len() };
        self.records.push(BlockRecord { kind, part });
        &self.records[self.records.len() - 1]
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let references = self.body.references.len() * size_of::<Reference>();
        self.body.raw.len() + references + self.records.len() * size_of::<BlockRecord>()
    }

    /// The block as bytes, for its place at `offset` of its segment.
    ///
    /// # Panics
    /// If a reference does not point back.
    pub fn encode(&self, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.raw.len() + 32 * self.body.references.len() + 64);
        put_varint(&mut out, self.records.len() as u64);
        for record in &self.records {
            out.push(record.kind);
            put_varint(&mut out, record.part.bytes.len() as u64);
            put_varint(&mut out, record.part.references.len() as u64);
        }
        for record in &self.records {
            for reference in &self.body.references[record.part.references.clone()] {
                assert!(points_back(reference, offset, &record.part), "{reference:?} of a block at {offset}");
                put_varint(&mut out, (offset - reference.place.offset) / ALIGN as u64);
                put_varint(&mut out, reference.place.inner);
                put_varint(&mut out, u64::from(reference.place.base));
                put_varint(&mut out, reference.take);
                out.extend_from_slice(&reference.hash);
            }
        }
        out.extend_from_slice(&self.body.raw);
        out
    }

    /// Reads what [`Block::encode`] wrote for this offset of this segment.
    pub fn decode(mut data: Vec<u8>, segment: u64, offset: u64) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(&data);
        let table = read_table(&mut cursor)?;
        let mut references = Vec::new();
        for record in &table {
            for _ in record.part.references.clone() {
                let reference = read_reference(&mut cursor, segment, offset)?;
                if !points_back(&reference, offset, &record.part) {
                    return Err(cursor.malformed("a reference of a block does not point back"));
                }
                references.push(reference);
            }
        }
        let bodies_at = cursor.position();
        let all = table.last().map_or(0, |record| record.part.bytes.end);
        if cursor.left() != all {
            return Err(cursor.malformed("the records of a block have another length than it says"));
        }
        data.drain(..bodies_at);
        Ok(Self { body: Body { raw: data, references }, records: table })
    }
}

/// The kinds and lengths of the records. Every length is checked against what is left.
fn read_table(cursor: &mut Cursor<'_>) -> Result<Vec<BlockRecord>, Malformed> {
    let count = cursor.count(RECORD_BYTES_MIN)?;
    let mut table = Vec::with_capacity(count);
    let (mut bytes, mut base) = (0, 0);
    for _ in 0..count {
        let kind = cursor.u8()?;
        let (length, references) = (cursor.count(1)?, cursor.count(REFERENCE_BYTES_MIN)?);
        let part = Part { bytes: bytes..bytes + length, references: base..base + references };
        (bytes, base) = (part.bytes.end, part.references.end);
        table.push(BlockRecord { kind, part });
    }
    let needed = base.checked_mul(REFERENCE_BYTES_MIN).and_then(|it| it.checked_add(bytes));
    if needed.is_none_or(|needed| needed > cursor.left()) {
        return Err(cursor.malformed("the records of a block are longer than the bytes that are left"));
    }
    Ok(table)
}

fn read_reference(cursor: &mut Cursor<'_>, segment: u64, offset: u64) -> Result<Reference, Malformed> {
    let back = cursor.varint()?.checked_mul(ALIGN as u64);
    let target = back.and_then(|back| offset.checked_sub(back)).filter(|target| *target >= FIRST_FRAME);
    let offset =
        target.ok_or_else(|| cursor.malformed("a reference of a block points before its segment"))?;
    let inner = cursor.varint()?;
    let base = cursor.varint()?;
    let base = u32::try_from(base).map_err(|_| cursor.malformed("a reference has too large a base"))?;
    let (take, hash) = (cursor.varint()?, cursor.array()?);
    Ok(Reference { place: Place { segment, offset, inner, base }, take, hash })
}

/// A record refers only to earlier records, in its own block or in an earlier one, so no chain has a circle.
fn points_back(reference: &Reference, offset: u64, part: &Part) -> bool {
    let Place { offset: target, inner, .. } = reference.place;
    target < offset || (target == offset && inner < part.bytes.start as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn blocks() -> impl Strategy<Value = (Block, u64)> {
        let reference = (0u64..64, any::<u16>(), 0u32..9, any::<u64>(), any::<[u8; 16]>());
        let record = (any::<u8>(), vec(any::<u8>(), 0..40), vec(reference, 0..4));
        (vec(record, 0..12), 64u64..1 << 30).prop_map(|(records, offset)| {
            let offset = offset * 8;
            let mut block = Block::default();
            for (kind, raw, references) in records {
                let start = block.body.raw.len() as u64;
                let place = |(back, inner, base, take, hash): (u64, u16, u32, u64, [u8; 16])| {
                    let inner = u64::from(inner);
                    // In its own block a record can only refer to what is before it.
                    let back = if inner < start { back } else { back.max(1) };
                    let place = Place { segment: 3, offset: offset - back * 8, inner, base };
                    Reference { place, take, hash }
                };
                let references: Vec<Reference> = references.into_iter().map(place).collect();
                block.push(kind, &raw, references);
            }
            (block, offset)
        })
    }

    proptest! {
        /// A block is read back, and from no part of it.
        #[test]
        fn blocks_come_back_whole_or_not_at_all((block, offset) in blocks()) {
            let mut data = block.encode(offset);
            prop_assert_eq!(Block::decode(data.clone(), 3, offset), Ok(block));
            for cut in 0..data.len() {
                prop_assert!(Block::decode(data[..cut].to_vec(), 3, offset).is_err(), "cut at {}", cut);
            }
            data.push(0);
            prop_assert!(Block::decode(data, 3, offset).is_err());
        }

        /// Nothing that is no block makes the reader panic, or find a reference that does not point back.
        #[test]
        fn any_bytes_are_read_without_panic(data in vec(any::<u8>(), 0..300), offset in 16u64..1 << 20) {
            let offset = offset * 8;
            if let Ok(block) = Block::decode(data, 0, offset) {
                for record in &block.records {
                    let references = &block.body.references[record.part.references.clone()];
                    prop_assert!(references.iter().all(|it| points_back(it, offset, &record.part)));
                }
            }
        }
    }

    /// A record that refers to itself, or to one behind it, would have no end.
    #[test]
    fn a_reference_that_does_not_point_back_is_refused() {
        let reference = |inner| Reference {
            place: Place { segment: 0, offset: 800, inner, base: 0 },
            take: 0,
            hash: [0; 16],
        };
        for (inner, is_fine) in [(9, true), (10, false), (11, false)] {
            let mut block = Block::default();
            block.push(0x12, &[0; 10], []);
            block.push(0x12, &[0; 10], [reference(9)]);
            let mut data = block.encode(800);
            let at = data.len() - 20 - 19;
            assert_eq!(data[at], 9);
            data[at] = inner;
            assert_eq!(Block::decode(data, 0, 800).is_ok(), is_fine, "inner {inner}");
        }
    }
}
