//! Content hashes: how the same value is recognised when it comes again.
//!
//! Keyed with the store's id: otherwise the author of a recorded page could prepare two pages with one hash.

use crate::value::tag;

/// The hash of a value, or of a prefix of one.
pub type Hash = [u8; 16];

/// Strings, bytes and arrays are hashed in pieces of this many bytes, so that a longer one can refer to a shorter one.
pub const PIECE_BYTES: usize = 4096;

/// Values whose full encoding is shorter than this get no reference. They are part of their parent's hash as they
/// are.
pub const SMALL_BYTES: u64 = 256;

const PIECES_BEGIN: u8 = 1;
const PIECE: u8 = 2;
const WHOLE: u8 = 3;
const LIST_BEGIN: u8 = 4;
const ITEM: u8 = 5;
const MAP: u8 = 6;
const TYPED: u8 = 7;
const MEDIA: u8 = 8;
const OTHER: u8 = 9;

/// The key of one store.
#[derive(Clone)]
pub struct ContentKey {
    key: [u8; 32],
    /// For strings, bytes and arrays: there the data comes first, so that whole blocks of it are hashed in parallel.
    data_key: [u8; 32],
    list_begin: Hash,
    /// Before the first piece of a string, and of bytes.
    leaf_begin: [Hash; 2],
}

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentKey")
    }
}

impl ContentKey {
    /// The key that belongs to a store's id.
    pub fn new(store: &[u8; 16]) -> Self {
        let key = blake3::derive_key("keepstep 1 content", store);
        let data_key = blake3::derive_key("keepstep 1 data", store);
        let mut made = Self { key, data_key, list_begin: [0; 16], leaf_begin: [[0; 16]; 2] };
        made.list_begin = made.hash(&[&[LIST_BEGIN]]);
        made.leaf_begin = [tag::STR, tag::BYTES].map(|tag| made.hash(&[&[PIECES_BEGIN, tag]]));
        made
    }

    /// Distinguishes keys in a memo; never stored.
    pub fn tag(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.key[i]))
    }

    fn hash(&self, parts: &[&[u8]]) -> Hash {
        hash_parts(&self.key, parts)
    }

    fn data(&self, parts: &[&[u8]]) -> Hash {
        hash_parts(&self.data_key, parts)
    }

    /// The hash before the first piece of a string (tag 06), bytes (07) or array (0A, with its dtype).
    pub fn pieces_begin(&self, tag: u8, dtype: Option<u8>) -> Hash {
        match dtype {
            None => self.leaf_begin[usize::from(tag == tag::BYTES)],
            Some(dtype) => self.hash(&[&[PIECES_BEGIN, tag, dtype]]),
        }
    }

    /// The hash of a prefix that is one piece longer.
    pub fn piece(&self, before: &Hash, piece: &[u8]) -> Hash {
        self.data(&[piece, before, &[PIECE]])
    }

    /// The hash of a whole string, bytes or array: its whole pieces, its shape (arrays), and the rest.
    pub fn whole(&self, pieces: &Hash, shape: &[u8], rest: &[u8]) -> Hash {
        self.data(&[rest, shape, &(shape.len() as u16).to_le_bytes(), pieces, &[WHOLE]])
    }

    /// The hash of an empty list.
    pub fn list_begin(&self) -> Hash {
        self.list_begin
    }

    /// The hash of a list that is one item longer.
    pub fn item(&self, before: &Hash, part: &[u8]) -> Hash {
        // One compression instead of a hasher's set-up: most items are a hash of 17 bytes.
        let mut short = [0u8; 64];
        let length = 17 + part.len();
        if length <= short.len() {
            short[0] = ITEM;
            short[1..17].copy_from_slice(before);
            short[17..length].copy_from_slice(part);
            return cut(blake3::keyed_hash(&self.key, &short[..length]));
        }
        self.hash(&[&[ITEM], before, part])
    }

    /// The hash of a map, from its count and the parts of its keys and values.
    pub fn map(&self, count: &[u8], parts: &[u8]) -> Hash {
        self.hash(&[&[MAP], count, parts])
    }

    /// The hash of a value with a type name.
    pub fn typed(&self, name: &[u8], part: &[u8]) -> Hash {
        self.hash(&[&[TYPED], name, part])
    }

    /// The hash of media.
    pub fn media(&self, kind: &[u8], data: &[u8]) -> Hash {
        self.hash(&[&[MEDIA], kind, data])
    }

    /// The hash of anything else, from its full encoding.
    pub fn other(&self, encoding: &[u8]) -> Hash {
        self.hash(&[&[OTHER], encoding])
    }
}

fn hash_parts(key: &[u8; 32], parts: &[&[u8]]) -> Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    cut(hasher.finalize())
}

fn cut(hash: blake3::Hash) -> Hash {
    std::array::from_fn(|i| hash.as_bytes()[i])
}
