//! A block of a sorted file: entries, or the places of the blocks one level below.

use crc32c::{crc32c, crc32c_append};

use super::{KEY_BYTES_MAX, SORTED_HEADER_BYTES, VALUE_BYTES_MAX};
use crate::bytes::{Cursor, Malformed, put_blob, put_varint};
use crate::record::{compress_block, decompress};

/// Length of the header of a block.
pub const BLOCK_HEADER_BYTES: usize = 16;
/// A block is full when its entries take this many bytes. Smaller ones are found faster, larger ones compress better.
pub(super) const BLOCK_BYTES_FULL: usize = 16 << 10;
/// The longest that the entries of a block can be: a full one, and the entry that fills it.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES_FULL + KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;
/// The longest block in the file: what does not compress is stored as it is.
const STORED_BYTES_MAX: usize = BLOCK_HEADER_BYTES + BLOCK_BYTES_MAX;
/// More levels than any file has.
const LEVELS_MAX: u8 = 8;
/// Two lengths of a key and one of a value.
const ENTRY_BYTES_MIN: usize = 3;

const ZSTD: u8 = 1;

/// Where a block is, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Where its header begins.
    pub offset: u64,
    /// Its length with its header.
    pub bytes: u32,
    /// 0 for entries, else how far above them it is.
    pub level: u8,
}

impl BlockPlace {
    /// The places of a block below one at `above`, as the value that the index has for it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        put_varint(&mut out, self.offset);
        put_varint(&mut out, u64::from(self.bytes));
        out
    }

    fn decode(value: &[u8], above: &Self) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(value);
        let (offset, bytes) = (cursor.varint()?, cursor.varint()?);
        let end = offset.checked_add(bytes);
        let fits = offset >= SORTED_HEADER_BYTES as u64 && end.is_some_and(|end| end <= above.offset);
        match (u32::try_from(bytes), above.level.checked_sub(1)) {
            (Ok(bytes), Some(level)) if fits && cursor.is_at_end() => Ok(Self { offset, bytes, level }),
            _ => Err(cursor.malformed("an index names no block before it")),
        }
    }

    /// False for one that is longer than any block: do not read it.
    pub fn is_readable(&self) -> bool {
        self.bytes as usize <= STORED_BYTES_MAX && self.level <= LEVELS_MAX
    }
}

/// The entries of a block, in the making.
#[derive(Debug, Default)]
pub(super) struct Filling {
    count: u64,
    raw: Vec<u8>,
    pub(super) first: Vec<u8>,
    last: Vec<u8>,
}

impl Filling {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.count == 0 { 0 } else { shared_bytes(&self.last, key) };
        put_varint(&mut self.raw, shared as u64);
        put_blob(&mut self.raw, &key[shared..]);
        put_blob(&mut self.raw, value);
        if self.count == 0 {
            self.first = key.to_vec();
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.raw.len() >= BLOCK_BYTES_FULL
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The block as bytes, for this place.
    pub(super) fn encode(&self, salt: u64, offset: u64, level: u8) -> Vec<u8> {
        let mut raw = Vec::with_capacity(self.raw.len() + 4);
        put_varint(&mut raw, self.count);
        raw.extend_from_slice(&self.raw);
        let (stored, flags) = match compress_block(&raw) {
            Some(stored) => (stored, ZSTD),
            None => (raw, 0),
        };
        let mut out = Vec::with_capacity(BLOCK_HEADER_BYTES + stored.len());
        out.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        out.extend_from_slice(&[flags, level, 0, 0]);
        out.extend_from_slice(&[0; 4]);
        let crc = checksum(salt, offset, &out[..12], &stored);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&stored);
        out
    }
}

fn checksum(salt: u64, offset: u64, head: &[u8], stored: &[u8]) -> u32 {
    let crc = crc32c_append(crc32c(&salt.to_le_bytes()), &offset.to_le_bytes());
    crc32c_append(crc32c_append(crc, head), stored)
}

fn shared_bytes(before: &[u8], key: &[u8]) -> usize {
    before.iter().zip(key).take_while(|(a, b)| a == b).count()
}

/// A key and its value.
pub(super) type KeyValue = (Vec<u8>, Vec<u8>);

/// A block, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedBlock {
    place: BlockPlace,
    /// In order of their keys.
    entries: Vec<KeyValue>,
}

impl SortedBlock {
    /// Reads the block at a place of the file with this salt, of all its bytes.
    pub fn decode(bytes: &[u8], salt: u64, place: BlockPlace) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        if bytes.len() != place.bytes as usize || !place.is_readable() {
            return Err(cursor.malformed("a block has another length or level than its place says"));
        }
        let head = cursor.take(12)?;
        let crc = cursor.u32()?;
        let stored = cursor.take(cursor.left())?;
        if crc != checksum(salt, place.offset, head, stored) {
            return Err(cursor.malformed("a block is damaged"));
        }
        let length = [head[0], head[1], head[2], head[3]];
        let (flags, level) = (head[4], head[5]);
        let is_known = flags & !ZSTD == 0 && head[6..].iter().all(|byte| *byte == 0);
        if u32::from_le_bytes(length) as usize != stored.len() || level != place.level || !is_known {
            return Err(cursor.malformed("a block has another header than its place says"));
        }
        let raw = match flags {
            0 => stored.to_vec(),
            // Checked before it is unfolded.
            _ if Cursor::new(stored).varint()? > BLOCK_BYTES_MAX as u64 => {
                return Err(cursor.malformed("a block that is longer than any"));
            }
            _ => decompress(stored, None)?,
        };
        let entries = read_entries(&raw)?;
        let block = Self { place, entries };
        if level > 0 && block.entries.is_empty() {
            return Err(cursor.malformed("an index of no block"));
        }
        Ok(block)
    }

    /// True if it names blocks, and has no entries of its own.
    pub fn is_index(&self) -> bool {
        self.place.level > 0
    }

    /// The value of a key, if this block of entries has it.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let at = self.entries.binary_search_by(|(it, _)| it.as_slice().cmp(key)).ok()?;
        Some(&self.entries[at].1)
    }

    /// The block below that has a key, or the first behind it, if any has. `None` if the key is before all of them.
    pub fn below(&self, key: &[u8]) -> Result<Option<BlockPlace>, Malformed> {
        match self.entries.partition_point(|(first, _)| first.as_slice() <= key).checked_sub(1) {
            Some(at) => BlockPlace::decode(&self.entries[at].1, &self.place).map(Some),
            None => Ok(None),
        }
    }

    /// The blocks below that may have keys from this one on, in order.
    pub fn all_below<'b>(
        &'b self,
        from: &[u8],
    ) -> impl Iterator<Item = Result<BlockPlace, Malformed>> + use<'b> {
        let at = self.entries.partition_point(|(first, _)| first.as_slice() <= from);
        self.entries[at.saturating_sub(1)..].iter().map(|(_, it)| BlockPlace::decode(it, &self.place))
    }

    /// The entries from a key on, in order.
    pub fn entries_from<'b>(&'b self, from: &[u8]) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b> {
        let at = self.entries.partition_point(|(key, _)| key.as_slice() < from);
        self.entries[at..].iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let each = |(key, value): &KeyValue| key.len() + value.len() + 48;
        self.entries.iter().map(each).sum::<usize>() + size_of::<Self>()
    }
}

fn read_entries(raw: &[u8]) -> Result<Vec<KeyValue>, Malformed> {
    let mut cursor = Cursor::new(raw);
    let count = cursor.count(ENTRY_BYTES_MIN)?;
    let mut entries: Vec<KeyValue> = Vec::with_capacity(count);
    for _ in 0..count {
        let shared = cursor.varint()?;
        let before = entries.last().map_or(&[][..], |(key, _)| key.as_slice());
        let shared = usize::try_from(shared).ok().and_then(|shared| before.get(..shared));
        let shared = shared.ok_or_else(|| cursor.malformed("a key shares more than there is"))?;
        let rest = cursor.blob()?;
        if shared.len() + rest.len() > KEY_BYTES_MAX {
            return Err(cursor.malformed("a key is longer than any"));
        }
        let key = [shared, rest].concat();
        if !entries.is_empty() && key.as_slice() <= before {
            return Err(cursor.malformed("keys are out of order"));
        }
        entries.push((key, cursor.blob()?.to_vec()));
    }
    match cursor.is_at_end() {
        true => Ok(entries),
        false => Err(cursor.malformed("bytes behind the last entry of a block")),
    }
}
