//! A record that is ready for the committer. It is encoded on the caller's thread, and compressed and checksummed
//! there or by the committer.

use std::sync::Arc;

use keepstep_format::encode::{Encoded, Fresh, Link};
use keepstep_format::frame::{FRAME_BODY_MAX, Flags, Reference};
use keepstep_format::hash::Hash;
use keepstep_format::record::{self, Dictionary};

/// A dictionary that has a place in the log.
#[derive(Debug)]
pub(crate) struct PlacedDictionary {
    pub(crate) dictionary: Dictionary,
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// The bytes of a record, without its place.
#[derive(Debug)]
pub(crate) struct EncodedRecord {
    /// The body as stored.
    pub(crate) stored: Vec<u8>,
    pub(crate) crcs: Sums,
    /// True once it is compressed and checksummed. Until then `stored` is the encoded body.
    is_compressed: bool,
    pub(crate) flags: Flags,
    pub(crate) dictionary: Option<Arc<PlacedDictionary>>,
    pub(crate) links: Vec<EncodedLink>,
    pub(crate) fresh: Vec<Fresh>,
    /// The length of the body without references.
    pub(crate) full_bytes: u64,
    /// The length before compression.
    pub(crate) new_bytes: u64,
    /// The generation of the index when this was encoded: it names no place that was given up before.
    pub(crate) generation: u64,
}

/// The checksums of a body, one for each frame: nearly always one, which needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    first: u32,
    more: Vec<u32>,
}

#[derive(Debug)]
pub(crate) enum EncodedLink {
    Placed(Reference),
    Undecided { hash: Hash, take: u64, piece: Box<EncodedRecord> },
}

impl EncodedRecord {
    /// An encoded body that is not compressed yet.
    pub(crate) fn new(encoded: Encoded, dictionary: Option<Arc<PlacedDictionary>>) -> Self {
        let Encoded { body, links, fresh, full_bytes } = encoded;
        let links = links.into_iter().map(|link| match link {
            Link::Placed(reference) => EncodedLink::Placed(reference),
            Link::Undecided { hash, take, piece } => {
                EncodedLink::Undecided { hash, take, piece: Box::new(EncodedRecord::new(*piece, None)) }
            }
        });
        Self {
            new_bytes: body.len() as u64,
            stored: body,
            crcs: Sums::default(),
            is_compressed: false,
            flags: Flags::NONE,
            dictionary,
            links: links.collect(),
            fresh,
            full_bytes,
            generation: 0,
        }
    }

    /// Compresses and checksums it, if that is not done yet.
    pub(crate) fn compress(&mut self) {
        if std::mem::replace(&mut self.is_compressed, true) {
            return;
        }
        let compressed =
            record::compress(&self.stored, self.dictionary.as_ref().map(|placed| &placed.dictionary));
        match (compressed, &self.dictionary) {
            (Some(compressed), Some(_)) => {
                self.stored = compressed;
                self.flags = Flags(Flags::ZSTD.0 | Flags::DICT.0);
            }
            (Some(compressed), None) => {
                self.stored = compressed;
                self.flags = Flags::ZSTD;
            }
            (None, _) => self.dictionary = None,
        }
        self.crcs = Sums::of(&self.stored);
        for link in &mut self.links {
            if let EncodedLink::Undecided { piece, .. } = link {
                piece.compress();
            }
        }
    }

    /// Bytes as they are, without compression or references.
    pub(crate) fn plain(stored: Vec<u8>) -> Self {
        let new_bytes = stored.len() as u64;
        Self {
            crcs: Sums::of(&stored),
            is_compressed: true,
            stored,
            flags: Flags::NONE,
            dictionary: None,
            links: Vec::new(),
            fresh: Vec::new(),
            full_bytes: new_bytes,
            new_bytes,
            generation: 0,
        }
    }

    /// How many bytes it takes in the queue.
    pub(crate) fn queue_bytes(&self) -> usize {
        let pieces = self.links.iter().map(|link| match link {
            EncodedLink::Placed(_) => 0,
            EncodedLink::Undecided { piece, .. } => piece.queue_bytes(),
        });
        self.stored.len() + pieces.sum::<usize>() + 256
    }
}

impl Sums {
    fn of(stored: &[u8]) -> Self {
        let (first, more) = stored.split_at(stored.len().min(FRAME_BODY_MAX));
        let more = more.chunks(FRAME_BODY_MAX).map(crc32c::crc32c).collect();
        Self { first: crc32c::crc32c(first), more }
    }

    /// The checksum of a body that fits one frame.
    pub(crate) fn only(&self) -> Option<u32> {
        self.more.is_empty().then_some(self.first)
    }

    /// How many frames it takes.
    pub(crate) fn len(&self) -> usize {
        1 + self.more.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}
