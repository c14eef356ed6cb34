//! The hash of a value that was read, to compare it with the recorded one.
//!
//! The encoder hashes on the way to disk, this module on the way back. They share only the primitives of
//! [`hash`](crate::hash).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::bytes::{put_blob, put_varint, varint_bytes, zigzag};
use crate::hash::{ContentKey, Hash, PIECE_BYTES, SMALL_BYTES};
use crate::value::{Array, Dtype, Value, tag};

/// How much memory the remembered values may take.
const MEMO_BYTES_MAX: u64 = 32 << 20;
/// How many values are remembered.
const MEMO_COUNT_MAX: usize = 1 << 16;

/// Hashes values of one store, and remembers those that steps share.
pub struct Rehash<'k> {
    key: &'k ContentKey,
    memo: Memo<(Hash, u64)>,
    searched: Memo<()>,
}

impl<'k> Rehash<'k> {
    /// Hashes with this key.
    pub fn new(key: &'k ContentKey) -> Self {
        Self { key, memo: Memo::default(), searched: Memo::default() }
    }

    /// The hash of a value; `None` if a part of it was lost.
    pub fn value(&mut self, value: &Value) -> Option<Hash> {
        Some(self.sum(value.plain(), &mut Vec::new())?.0)
    }

    /// The hash of a value's first `take` units; `None` if it has fewer, or if this prefix has no hash of its own.
    pub fn prefix(&mut self, value: &Value, take: u64) -> Option<Hash> {
        if let Value::List(items) = value.plain() {
            let items = items.get(..usize::try_from(take).ok()?)?;
            let mut chain = self.key.list_begin();
            let mut part = Vec::new();
            for item in items {
                part.clear();
                self.part(item, &mut part)?;
                chain = self.key.item(&chain, &part);
            }
            return Some(chain);
        }
        let leaf = Leaf::of(value.plain())?;
        let bytes = usize::try_from(take).ok()?.checked_mul(leaf.unit_bytes())?;
        // Only whole pieces have a hash.
        let data = leaf.data.get(..bytes).filter(|data| data.len().is_multiple_of(PIECE_BYTES))?;
        leaf.pieces(self.key, data).last().copied()
    }

    /// Looks for wanted hashes in a value, in all its parts, and in the prefixes of those.
    pub fn find(&mut self, value: &Value, wanted: &HashSet<Hash>, found: &mut dyn FnMut(Hash, Value)) {
        let value = value.plain();
        if self.searched.get(value).is_some() {
            return;
        }
        match value {
            Value::List(items) => {
                items.iter().for_each(|item| self.find(item, wanted, found));
                self.find_in_list(items, wanted, found);
            }
            Value::Map(entries) => entries.iter().for_each(|(_, value)| self.find(value, wanted, found)),
            Value::Typed(_, inner) => self.find(inner, wanted, found),
            _ => {
                if let Some(leaf) = Leaf::of(value) {
                    leaf.find_beginnings(self.key, wanted, found);
                }
            }
        }
        let mut small = Vec::new();
        if let Some((hash, size)) = self.sum(value, &mut small) {
            if wanted.contains(&hash) {
                found(hash, value.clone());
            }
            self.searched.keep(value, (), size);
        }
    }

    fn find_in_list(&mut self, items: &[Value], wanted: &HashSet<Hash>, found: &mut dyn FnMut(Hash, Value)) {
        let mut chain = self.key.list_begin();
        let mut part = Vec::new();
        for (index, item) in items.iter().enumerate() {
            part.clear();
            // The beginning of a list can be whole although the rest of it is lost.
            if self.part(item, &mut part).is_none() {
                return;
            }
            chain = self.key.item(&chain, &part);
            if wanted.contains(&chain) {
                found(chain, Value::list(items[..=index].iter().cloned()));
            }
        }
    }

    /// Appends `part(value)` as in the spec, and returns `size(value)`.
    fn part(&mut self, value: &Value, out: &mut Vec<u8>) -> Option<u64> {
        let at = out.len();
        out.push(0);
        let value = value.plain();
        if let Some(size) = put_small(value, out) {
            return Some(size);
        }
        let mut small = Vec::new();
        let (hash, size) = self.sum(value, &mut small)?;
        if size < SMALL_BYTES {
            out.extend_from_slice(&small);
        } else {
            out[at] = 1;
            out.extend_from_slice(&hash);
        }
        Some(size)
    }

    /// Hash and size; if it is small, `small` gets its full encoding.
    fn sum(&mut self, value: &Value, small: &mut Vec<u8>) -> Option<(Hash, u64)> {
        if let Some(&(hash, size)) = self.memo.get(value) {
            return Some((hash, size));
        }
        let (hash, size) = match value {
            Value::List(items) => self.list(items, small)?,
            Value::Map(entries) => self.map(entries, small)?,
            Value::Typed(name, inner) => self.typed(name, inner, small)?,
            Value::Lost(_) => return None,
            leaf => self.leaf(leaf, small)?,
        };
        self.memo.keep(value, (hash, size), size);
        Some((hash, size))
    }

    fn list(&mut self, items: &[Value], small: &mut Vec<u8>) -> Option<(Hash, u64)> {
        let mut head = vec![tag::LIST];
        put_varint(&mut head, items.len() as u64);
        let mut node = Node::new(head);
        let mut chain = self.key.list_begin();
        let mut part = Vec::new();
        for item in items {
            part.clear();
            node.size += self.part(item, &mut part)?;
            node.keep_small(&part);
            chain = self.key.item(&chain, &part);
        }
        Some((chain, node.finish(small)))
    }

    fn map(&mut self, entries: &[(Value, Value)], small: &mut Vec<u8>) -> Option<(Hash, u64)> {
        let mut head = vec![tag::MAP];
        put_varint(&mut head, entries.len() as u64);
        let count = head[1..].to_vec();
        let mut node = Node::new(head);
        let mut parts = Vec::new();
        for value in entries.iter().flat_map(|(key, value)| [key, value]) {
            let at = parts.len();
            node.size += self.part(value, &mut parts)?;
            node.keep_small(&parts[at..]);
        }
        Some((self.key.map(&count, &parts), node.finish(small)))
    }

    fn typed(&mut self, name: &str, inner: &Value, small: &mut Vec<u8>) -> Option<(Hash, u64)> {
        let mut head = vec![tag::TYPED];
        put_blob(&mut head, name.as_bytes());
        let name = head[1..].to_vec();
        let mut node = Node::new(head);
        let mut part = Vec::new();
        node.size += self.part(inner, &mut part)?;
        node.keep_small(&part);
        Some((self.key.typed(&name, &part), node.finish(small)))
    }

    fn leaf(&self, value: &Value, small: &mut Vec<u8>) -> Option<(Hash, u64)> {
        let hash = if let Some(leaf) = Leaf::of(value) {
            let chain = leaf.pieces(self.key, leaf.data);
            let rest = &leaf.data[(chain.len() - 1) * PIECE_BYTES..];
            self.key.whole(&chain[chain.len() - 1], &leaf.shape_bytes(), rest)
        } else if let Value::Media(kind, data) = value {
            let mut head = Vec::new();
            put_blob(&mut head, kind.as_bytes());
            self.key.media(&head, data)
        } else {
            let encoding = other_encoding(value)?;
            if (encoding.len() as u64) < SMALL_BYTES {
                small.extend_from_slice(&encoding);
            }
            return Some((self.key.other(&encoding), encoding.len() as u64));
        };
        put_small(value, small);
        Some((hash, leaf_size(value)))
    }
}

/// A container that is being hashed: the length of its full encoding, and that encoding while it is small.
struct Node {
    size: u64,
    encoding: Vec<u8>,
}

impl Node {
    fn new(head: Vec<u8>) -> Self {
        Self { size: head.len() as u64, encoding: head }
    }

    fn keep_small(&mut self, part: &[u8]) {
        if self.size < SMALL_BYTES {
            // All of it is small, so each part is a zero and its encoding.
            self.encoding.extend_from_slice(&part[1..]);
        }
    }

    fn finish(self, small: &mut Vec<u8>) -> u64 {
        if self.size < SMALL_BYTES {
            small.extend_from_slice(&self.encoding);
        }
        self.size
    }
}

/// A string, bytes or an array: what is hashed in pieces.
struct Leaf<'a> {
    tag: u8,
    array: Option<(Dtype, &'a [u64])>,
    data: &'a [u8],
}

impl<'a> Leaf<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Str(text) => Some(Self { tag: tag::STR, array: None, data: text.as_bytes() }),
            Value::Bytes(data) => Some(Self { tag: tag::BYTES, array: None, data }),
            Value::Array(array) => {
                let Array { dtype, shape, data } = array.as_ref();
                Some(Self { tag: tag::ARRAY, array: Some((*dtype, shape)), data })
            }
            _ => None,
        }
    }

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

    fn size(&self) -> u64 {
        let before = match self.array {
            Some(_) => 1 + self.shape_bytes().len(),
            None => varint_bytes(self.data.len() as u64),
        };
        (1 + before + self.data.len()) as u64
    }

    /// The hashes of nothing, of the first piece, of the first two, …: all whole pieces.
    fn pieces(&self, key: &ContentKey, data: &[u8]) -> Vec<Hash> {
        let mut before = key.pieces_begin(self.tag, self.array.map(|(dtype, _)| dtype as u8));
        let mut chain = vec![before];
        for piece in data.chunks_exact(PIECE_BYTES) {
            before = key.piece(&before, piece);
            chain.push(before);
        }
        chain
    }

    fn find_beginnings(&self, key: &ContentKey, wanted: &HashSet<Hash>, found: &mut dyn FnMut(Hash, Value)) {
        for (pieces, hash) in self.pieces(key, self.data).into_iter().enumerate().skip(1) {
            if wanted.contains(&hash) {
                found(hash, self.beginning(&self.data[..pieces * PIECE_BYTES]));
            }
        }
    }

    /// Whole pieces as a value of their own.
    fn beginning(&self, data: &[u8]) -> Value {
        match self.array {
            Some((dtype, _)) => {
                let shape = vec![(data.len() / dtype.item_bytes()) as u64];
                Value::Array(Arc::new(Array { dtype, shape, data: data.to_vec() }))
            }
            // A piece may end in the middle of a character; then only bytes can hold it.
            None => match std::str::from_utf8(data) {
                Ok(text) if self.tag == tag::STR => Value::from(text),
                _ => Value::bytes(data),
            },
        }
    }
}

/// How long the full encoding of a string, bytes, an array or media is.
fn leaf_size(value: &Value) -> u64 {
    if let Value::Media(kind, data) = value {
        let lengths = varint_bytes(kind.len() as u64) + varint_bytes(data.len() as u64);
        return (1 + lengths + kind.len() + data.len()) as u64;
    }
    Leaf::of(value).map_or(0, |leaf| leaf.size())
}

/// Appends the full encoding of a small leaf, and returns its length.
fn put_small(value: &Value, out: &mut Vec<u8>) -> Option<u64> {
    let at = out.len();
    match value {
        Value::Null => out.push(tag::NULL),
        Value::Bool(false) => out.push(tag::FALSE),
        Value::Bool(true) => out.push(tag::TRUE),
        Value::Int(number) => {
            out.push(tag::INT);
            put_varint(out, zigzag(*number));
        }
        Value::Float(number) => {
            out.push(tag::FLOAT);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Str(_) | Value::Bytes(_) | Value::Array(_) | Value::Media(..)
            if leaf_size(value) >= SMALL_BYTES =>
        {
            return None;
        }
        Value::Str(text) => {
            out.push(tag::STR);
            put_blob(out, text.as_bytes());
        }
        Value::Bytes(data) => {
            out.push(tag::BYTES);
            put_blob(out, data);
        }
        Value::Array(array) => {
            out.extend_from_slice(&[tag::ARRAY, array.dtype as u8]);
            put_varint(out, array.shape.len() as u64);
            array.shape.iter().for_each(|&n| put_varint(out, n));
            crate::value::shuffle(out, &array.data, array.dtype.item_bytes());
        }
        Value::Media(kind, data) => {
            out.push(tag::MEDIA);
            put_blob(out, kind.as_bytes());
            put_blob(out, data);
        }
        _ => return None,
    }
    Some((out.len() - at) as u64)
}

/// The full encoding of a value that is hashed by it.
fn other_encoding(value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match value {
        Value::Big { negative, magnitude } => {
            out.extend_from_slice(&[tag::BIG, u8::from(*negative)]);
            put_blob(&mut out, magnitude);
        }
        Value::Repr(name, text) => {
            out.push(tag::REPR);
            put_blob(&mut out, name.as_bytes());
            put_blob(&mut out, text.as_bytes());
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            put_small(value, &mut out);
        }
        _ => return None,
    }
    Some(out)
}

/// What is known of values that are shared in memory. A value is kept alive while it is remembered, so that no other
/// value gets its address.
struct Memo<T> {
    known: HashMap<usize, (Value, T)>,
    bytes: u64,
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), bytes: 0 }
    }
}

impl<T> Memo<T> {
    fn get(&self, value: &Value) -> Option<&T> {
        let (held, known) = self.known.get(&address(value)?)?;
        // Two sorts of values may share one allocation.
        (std::mem::discriminant(held) == std::mem::discriminant(value)).then_some(known)
    }

    fn keep(&mut self, value: &Value, known: T, size: u64) {
        let Some(address) = address(value).filter(|_| size >= SMALL_BYTES) else { return };
        if self.bytes.saturating_add(size) > MEMO_BYTES_MAX || self.known.len() >= MEMO_COUNT_MAX {
            self.known.clear();
            self.bytes = 0;
        }
        if size <= MEMO_BYTES_MAX {
            self.bytes += size;
            self.known.insert(address, (value.clone(), known));
        }
    }
}

/// The address of a value's content in memory, if it identifies the value.
fn address(value: &Value) -> Option<usize> {
    match value {
        Value::Str(text) => Some(text.as_ptr().addr()),
        Value::Bytes(data) => Some(data.as_ptr().addr()),
        Value::List(items) => Some(Arc::as_ptr(items).addr()),
        Value::Map(entries) => Some(Arc::as_ptr(entries).addr()),
        Value::Array(array) => Some(Arc::as_ptr(array).addr()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
