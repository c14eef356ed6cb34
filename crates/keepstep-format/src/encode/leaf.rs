//! Encodes strings, bytes and arrays: as a reference, as a longer version of a known one, or in full.

use super::sequence::{can_be_extended, put_spans, spans_of};
use super::{EXTENDED_BYTES_MAX, Encoder, Growth, InLog, Link, Mark, PREFIXES_MAX, Stored};
use crate::bytes::put_varint;
use crate::hash::{Hash, PIECE_BYTES, SMALL_BYTES};
use crate::value::{Dtype, shuffle, tag};

/// A long leaf: its type, and its data as it is hashed.
struct Leaf<'a> {
    tag: u8,
    more_tag: u8,
    /// Type and shape, for arrays.
    array: Option<(Dtype, &'a [u64])>,
    data: &'a [u8],
}

impl Leaf<'_> {
    fn unit_bytes(&self) -> usize {
        self.array.map_or(1, |(dtype, _)| dtype.item_bytes())
    }

    fn shape_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some((_, shape)) = self.array {
            put_varint(&mut out, shape.len() as u64);
            shape.iter().for_each(|&n| put_varint(&mut out, n));
        }
        out
    }

    /// Appends tag, type and shape: what comes before the length or the data.
    fn put_head(&self, out: &mut Vec<u8>, tag: u8) {
        out.push(tag);
        if let Some((dtype, _)) = self.array {
            out.push(dtype as u8);
            out.extend(self.shape_bytes());
        }
    }

    /// How long it is in full.
    fn full_bytes(&self) -> u64 {
        let head = match self.array {
            Some(_) => 2 + self.shape_bytes().len(),
            None => 1 + crate::bytes::varint_bytes(self.data.len() as u64),
        };
        (head + self.data.len()) as u64
    }

    /// Appends data as it is stored.
    fn put_data(&self, out: &mut Vec<u8>, data: &[u8]) {
        if self.array.is_some() {
            shuffle(out, data, self.unit_bytes());
        } else {
            put_varint(out, data.len() as u64);
            out.extend_from_slice(data);
        }
    }
}

impl Encoder<'_> {
    /// A text.
    pub fn str(&mut self, text: &str) {
        let data = text.as_bytes();
        self.growing(&Leaf { tag: tag::STR, more_tag: tag::STR_MORE, array: None, data });
    }

    /// Bytes.
    pub fn bytes(&mut self, data: &[u8]) {
        self.growing(&Leaf { tag: tag::BYTES, more_tag: tag::BYTES_MORE, array: None, data });
    }

    /// A typed array: elements in C order, little-endian; `data` has the length that type and shape ask for.
    pub fn array(&mut self, dtype: Dtype, shape: &[u64], data: &[u8]) {
        let array = Some((dtype, shape));
        self.growing(&Leaf { tag: tag::ARRAY, more_tag: tag::ARRAY_MORE, array, data });
    }

    fn growing(&mut self, leaf: &Leaf<'_>) {
        let at = self.mark();
        let full_bytes = leaf.full_bytes();
        self.out.full_bytes += full_bytes;
        if full_bytes < SMALL_BYTES {
            self.put_whole(leaf);
            return self.complete(at, None);
        }
        let chain = self.pieces(leaf);
        let hash = self.whole(leaf, &chain);
        if self.is_key() {
            self.put_whole(leaf);
            return self.complete(at, Some(hash));
        }
        match self.look_up(&hash) {
            InLog::At(stored) => self.refer(&hash, &stored),
            found => {
                self.fresh(at, hash, 0, None);
                self.put_growing(at, leaf, &chain);
                self.set_aside_if_pending(at, hash, &found);
            }
        }
        self.complete(at, Some(hash));
    }

    fn put_whole(&mut self, leaf: &Leaf<'_>) {
        leaf.put_head(&mut self.out.body, leaf.tag);
        leaf.put_data(&mut self.out.body, leaf.data);
    }

    /// The hashes of all prefixes of whole pieces, the shortest first. Most leaves are shorter than a piece and have
    /// none.
    fn pieces(&self, leaf: &Leaf<'_>) -> Vec<Hash> {
        let mut before = self.begin_of(leaf);
        let piece_bytes = PIECE_BYTES / leaf.unit_bytes() * leaf.unit_bytes();
        let pieces = leaf.data.chunks_exact(piece_bytes).map(|piece| {
            before = self.key.piece(&before, piece);
            before
        });
        pieces.collect()
    }

    fn begin_of(&self, leaf: &Leaf<'_>) -> Hash {
        self.key.pieces_begin(leaf.tag, leaf.array.map(|(dtype, _)| dtype as u8))
    }

    fn whole(&self, leaf: &Leaf<'_>, chain: &[Hash]) -> Hash {
        let rest = &leaf.data[chain.len() * PIECE_BYTES..];
        let before = chain.last().copied().unwrap_or_else(|| self.begin_of(leaf));
        self.key.whole(&before, &leaf.shape_bytes(), rest)
    }

    /// Writes a leaf that is not in the log whole; its beginning may be.
    fn put_growing(&mut self, at: Mark, leaf: &Leaf<'_>, chain: &[Hash]) {
        let units = |pieces: usize| (pieces * PIECE_BYTES / leaf.unit_bytes()) as u64;
        let pieces = chain.len();
        let mut growth = Growth { units: units(pieces), ..Growth::default() };
        if leaf.data.len() <= EXTENDED_BYTES_MAX
            && let Some((count, stored)) = self.longest_pieces(chain)
        {
            let prefix = chain[count - 1];
            let spans = spans_of(&stored, units(count), &prefix);
            growth.prefix = Some((prefix, units(count)));
            growth.depth = stored.depth;
            growth.flat = !stored.spans.is_empty();
            leaf.put_head(&mut self.out.body, leaf.more_tag);
            put_spans(&mut self.out.body, &spans);
            leaf.put_data(&mut self.out.body, &leaf.data[count * PIECE_BYTES..]);
            self.out.links.extend(spans.iter().map(|span| Link::Placed(span.reference)));
        } else {
            self.put_whole(leaf);
        }
        // A leaf whose longest prefix is known adds nothing that later ones can refer to.
        if let Some(&longest) = chain.last()
            && growth.prefix.is_none_or(|(_, known)| known < growth.units)
        {
            let take = growth.units;
            self.fresh(at, longest, take, Some(growth));
        }
    }

    fn longest_pieces(&self, chain: &[Hash]) -> Option<(usize, Box<Stored>)> {
        let prefixes = chain.iter().enumerate();
        prefixes.rev().take(PREFIXES_MAX).find_map(|(index, hash)| match self.look_up(hash) {
            InLog::At(stored) if can_be_extended(&stored) => Some((index + 1, stored)),
            _ => None,
        })
    }
}
