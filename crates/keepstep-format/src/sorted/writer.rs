//! Writes a sorted file from its beginning to its end, holding a block of each level.

use super::block::{BlockPlace, Filling};
use super::{KEY_BYTES_MAX, SORTED_HEADER_BYTES, SortedHeader, SortedTrailer, VALUE_BYTES_MAX};

/// Makes the bytes of a sorted file, in order.
#[derive(Debug)]
pub struct SortedWriter {
    salt: u64,
    /// The blocks in the making: entries first, then the index above them, and so on.
    levels: Vec<Filling>,
    /// Made and not taken yet.
    out: Vec<u8>,
    offset: u64,
    entries: u64,
    last: Option<Vec<u8>>,
}

impl SortedWriter {
    /// A file with this header.
    pub fn new(header: &SortedHeader) -> Self {
        Self {
            salt: header.salt,
            levels: vec![Filling::default()],
            out: header.encode().to_vec(),
            offset: SORTED_HEADER_BYTES as u64,
            entries: 0,
            last: None,
        }
    }

    /// True if an entry can be in a sorted file.
    pub fn takes(key: &[u8], value: &[u8]) -> bool {
        key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If the key is not behind the last one, or [`SortedWriter::takes`] refuses the entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        assert!(Self::takes(key, value), "an entry of {} and {} bytes", key.len(), value.len());
        assert!(self.last.as_deref().is_none_or(|last| last < key), "keys must rise");
        self.last = Some(key.to_vec());
        self.entries += 1;
        self.add(0, key, value);
    }

    /// The bytes that were made since the last call, to be appended to the file.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The rest of the file.
    pub fn finish(mut self) -> Vec<u8> {
        let mut level = 0;
        // A level that is alone at the top, and has not ended a block yet, is the root.
        while level + 1 < self.levels.len() {
            if !self.levels[level].is_empty() {
                self.end_block(level);
            }
            level += 1;
        }
        let root = self.put_block(level);
        let trailer = SortedTrailer { root, entries: self.entries };
        self.out.extend_from_slice(&trailer.encode(self.salt));
        self.out
    }

    fn add(&mut self, level: usize, key: &[u8], value: &[u8]) {
        self.levels[level].push(key, value);
        if self.levels[level].is_full() {
            self.end_block(level);
        }
    }

    /// Ends a block, and names it in the level above.
    fn end_block(&mut self, level: usize) {
        let first = std::mem::take(&mut self.levels[level].first);
        let place = self.put_block(level);
        if level + 1 == self.levels.len() {
            self.levels.push(Filling::default());
        }
        self.add(level + 1, &first, &place.encode());
    }

    fn put_block(&mut self, level: usize) -> BlockPlace {
        let block = std::mem::take(&mut self.levels[level]).encode(self.salt, self.offset, level as u8);
        let place = BlockPlace { offset: self.offset, bytes: block.len() as u32, level: level as u8 };
        self.offset += block.len() as u64;
        self.out.extend_from_slice(&block);
        place
    }
}
