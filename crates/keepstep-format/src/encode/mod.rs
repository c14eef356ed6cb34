//! Encodes values into the body of a record, leaving out what the log has already.
//!
//! The encoder writes forward into one buffer. When a value is complete and long enough, its hash is looked up. If
//! the log has it, its bytes are replaced by a reference. If the log has its beginning, only the rest stays. So a
//! history that grew by one message costs one message.

mod known;
mod leaf;
mod sequence;
mod slide;
#[cfg(test)]
mod tests;
mod twice;

use std::collections::HashSet;

use thiserror::Error;

pub use known::{InLog, Known, NothingKnown, Span, Stored};
pub use slide::{SlideList, Slides};

use crate::bytes::{put_blob, put_varint, zigzag};
use crate::frame::{Place, Reference};
use crate::hash::{ContentKey, Hash, SMALL_BYTES};
use crate::value::{DEPTH_MAX, Memo, Value, tag};

/// A body that is being written, or is complete.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The bytes, references as tags.
    pub body: Vec<u8>,
    /// The references, in the order of their tags.
    pub links: Vec<Link>,
    /// Values of this body that later ones may refer to.
    pub fresh: Vec<Fresh>,
    /// How long the body would be without references.
    pub full_bytes: u64,
}

/// A reference whose place is known, or one that the committer decides.
#[derive(Debug)]
pub enum Link {
    /// In the log already.
    Placed(Reference),
    /// It may be in the log by the time this record gets its place. If not, `piece` is stored before it.
    Undecided {
        /// The value's hash.
        hash: Hash,
        /// Units of it that are meant; 0 for all.
        take: u64,
        /// The value itself.
        piece: Box<Encoded>,
    },
}

/// A reference to nothing.
const NOWHERE: Reference =
    Reference { place: Place { segment: 0, offset: 0, inner: 0, base: 0 }, take: 0, hash: [0; 16] };

impl Link {
    /// Takes the place of a link while it is moved.
    const GONE: Link = Link::Placed(NOWHERE);
}

/// A value in a body that later records may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// Its hash.
    pub hash: Hash,
    /// Where it stands in the body.
    pub inner: u64,
    /// How many links of the body stand before it.
    pub base: u32,
    /// Units of it that the hash means; 0 for all.
    pub take: u64,
    /// Long enough that other encoders should know of it before it has a place.
    pub heavy: bool,
    /// For values that can grow: how it was built.
    pub growth: Option<Growth>,
}

/// How a list, string or array was built, so that the chain can be stored whole in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growth {
    /// Units that the hash covers.
    pub units: u64,
    /// What it extends: hash and units. `None` if it is stored here whole.
    pub prefix: Option<(Hash, u64)>,
    /// How many links a reader follows from the prefix on; without one, from what the value rests on.
    pub depth: u16,
    /// All spans are stored here: links are counted from here again.
    pub flat: bool,
    /// For lists that others may slide from: what they are found by.
    pub slides: Option<Slides>,
}

/// Why a value cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Deeper than a reader would follow.
    #[error(
        "a value is nested deeper than {DEPTH_MAX} levels: record a flatter one, or a cycle was meant as a value"
    )]
    TooDeep,
    /// A value that came out of a damaged record.
    #[error("a value that was lost to damage cannot be recorded again")]
    Lost,
}

/// The kind of an open container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    List,
    Map,
    Typed,
}

/// A container that is not ended yet.
#[derive(Debug)]
struct Open {
    shape: Shape,
    at: Mark,
    /// Where its parts begin in `parts`.
    parts: usize,
    /// Where its items' marks begin in `items`.
    items: usize,
    /// Where its first item begins in the body.
    content: usize,
    values_seen: u64,
    count: u64,
}

/// A point in the output to which the encoder can go back.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    body: usize,
    links: usize,
    fresh: usize,
    full: u64,
}

/// The end of a list's item.
#[derive(Debug, Clone, Copy)]
struct ItemEnd {
    parts: usize,
    mark: Mark,
}

/// Writes the body of one record.
pub struct Encoder<'k> {
    key: &'k ContentKey,
    known: &'k dyn Known,
    out: Encoded,
    open: Vec<Open>,
    parts: Vec<u8>,
    items: Vec<ItemEnd>,
    /// Hash and full length of the value completed last, if it was long enough to have a hash.
    last: Option<(Hash, u64)>,
    fields: u8,
    /// Long values that were written here: if one comes again, it is stored once.
    here: HashSet<Hash>,
    /// Those of them that came again.
    twice: Vec<Hash>,
}

/// From this length on, an undecided value is left to the committer, which decides whether it is stored again.
const UNDECIDED_BYTES: usize = 4096;
/// A chain that is longer than this and cannot be stored whole is not extended: the value is stored again.
const DEPTH_OF_LINKS_MAX: u16 = 256;
/// So many references of one body fit the head of a frame, with room for a chain that is stored whole.
const LINKS_IN_A_BODY_MAX: usize = 16 << 10;
/// Longer values are not extended by reference: a reader would refuse them as hostile.
const EXTENDED_BYTES_MAX: usize = 4 << 30;
const EXTENDED_ITEMS_MAX: usize = 1 << 26;
/// How many prefixes are looked up before a sequence counts as new.
const PREFIXES_MAX: usize = 1024;

impl<'k> Encoder<'k> {
    /// An encoder for one value.
    pub fn value(key: &'k ContentKey, known: &'k dyn Known) -> Self {
        Self {
            key,
            known,
            out: Encoded::default(),
            open: Vec::new(),
            parts: Vec::new(),
            items: Vec::new(),
            last: None,
            fields: 0,
            here: HashSet::new(),
            twice: Vec::new(),
        }
    }

    /// An encoder for the fields of a record; each is announced with [`Encoder::field`].
    pub fn fields(key: &'k ContentKey, known: &'k dyn Known) -> Self {
        Self::fields_into(key, known, Encoded::default())
    }

    /// As [`Encoder::fields`], into the vectors of a body that was used before.
    pub fn fields_into(key: &'k ContentKey, known: &'k dyn Known, spare: Encoded) -> Self {
        let mut encoder = Self::value(key, known);
        encoder.out = spare;
        encoder.out.body.clear();
        encoder.out.links.clear();
        encoder.out.fresh.clear();
        // Most steps are longer than this; an empty vector would grow four times on the way.
        encoder.out.body.reserve(512);
        encoder.out.body.push(0);
        encoder.out.full_bytes = 1;
        encoder
    }

    /// Announces the next field of a record. Numbers must rise.
    pub fn field(&mut self, number: u8) {
        debug_assert!(self.open.is_empty() && number < 0x80, "fields stand side by side");
        self.fields += 1;
        self.out.body[0] = self.fields;
        self.out.body.push(number);
        self.out.full_bytes += 1;
    }

    /// The hash of the value that was put last, if it is long enough to have one.
    pub fn last_hash(&self) -> Option<Hash> {
        self.last.map(|(hash, _)| hash)
    }

    /// The body, once every container was closed.
    pub fn finish(mut self) -> Encoded {
        debug_assert!(self.open.is_empty(), "every container was closed");
        self.store_once();
        self.out
    }

    /// Encodes a value of any kind.
    pub fn put(&mut self, value: &Value) -> Result<(), EncodeError> {
        match value {
            Value::Null => self.small(&[tag::NULL]),
            Value::Bool(truth) => self.small(&[if *truth { tag::TRUE } else { tag::FALSE }]),
            Value::Int(number) => self.int(*number),
            Value::Big { negative, magnitude } => self.big(*negative, magnitude),
            Value::Float(number) => self.float(*number),
            Value::Str(text) => self.str(text),
            Value::Bytes(data) => self.bytes(data),
            Value::Array(array) => self.array(array.dtype, &array.shape, &array.data),
            Value::Media(kind, data) => self.media(kind, data),
            Value::Repr(name, text) => self.repr(name, text),
            Value::List(items) => {
                self.begin_list(items.len())?;
                items.iter().try_for_each(|item| self.put(item))?;
                self.end();
            }
            Value::Map(entries) => {
                self.begin_map(entries.len())?;
                entries.iter().try_for_each(|(key, value)| self.put(key).and_then(|()| self.put(value)))?;
                self.end();
            }
            Value::Typed(name, value) => {
                self.begin_typed(name)?;
                self.put(value)?;
                self.end();
            }
            Value::Shared(shared) => return self.shared(shared),
            Value::Lost(_) => return Err(EncodeError::Lost),
        }
        Ok(())
    }

    /// Encodes a value whose hash may be known; then its content need not be read.
    fn shared(&mut self, shared: &crate::value::Shared) -> Result<(), EncodeError> {
        if let Some(memo) = shared.memo.get().filter(|memo| memo.key_tag == self.key.tag())
            && !self.is_key()
            && let InLog::At(stored) = self.look_up(&memo.hash)
        {
            let at = self.mark();
            self.out.full_bytes += memo.full_bytes;
            self.refer(&memo.hash, &stored);
            self.complete(at, Some(memo.hash));
            return Ok(());
        }
        self.put(&shared.value)?;
        if let Some((hash, full_bytes)) = self.last {
            // Another thread may have set it first, to the same.
            let _ = shared.memo.set(Memo { key_tag: self.key.tag(), hash, full_bytes });
        }
        Ok(())
    }

    /// An integer.
    pub fn int(&mut self, number: i64) {
        let at = self.mark();
        self.out.body.push(tag::INT);
        put_varint(&mut self.out.body, zigzag(number));
        self.out.full_bytes += (self.out.body.len() - at.body) as u64;
        self.complete(at, None);
    }

    /// A float.
    pub fn float(&mut self, number: f64) {
        let mut bytes = [tag::FLOAT; 9];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        self.small(&bytes);
    }

    /// An integer of any size: its sign and its magnitude, little-endian.
    pub fn big(&mut self, negative: bool, magnitude: &[u8]) {
        let length = magnitude.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let magnitude = &magnitude[..length];
        if length <= 8 {
            let mut bytes = [0; 8];
            bytes[..length].copy_from_slice(magnitude);
            let number = i128::from(u64::from_le_bytes(bytes)) * if negative { -1 } else { 1 };
            if let Ok(number) = i64::try_from(number) {
                return self.int(number);
            }
        }
        let mut bytes = vec![tag::BIG, u8::from(negative)];
        put_blob(&mut bytes, magnitude);
        self.other(&bytes);
    }

    /// A value that could not be recorded: the name of its type, and its `repr`.
    pub fn repr(&mut self, name: &str, text: &str) {
        let mut bytes = vec![tag::REPR];
        put_blob(&mut bytes, name.as_bytes());
        put_blob(&mut bytes, text.as_bytes());
        self.other(&bytes);
    }

    /// Media: a type and bytes that are compressed already.
    pub fn media(&mut self, kind: &str, data: &[u8]) {
        let mut head = Vec::with_capacity(kind.len() + 16);
        put_blob(&mut head, kind.as_bytes());
        let hash = self.key.media(&head, data);
        head.insert(0, tag::MEDIA);
        put_varint(&mut head, data.len() as u64);
        self.leaf(&head, data, Some(hash));
    }

    /// Something short, whole.
    fn small(&mut self, bytes: &[u8]) {
        let at = self.mark();
        self.out.body.extend_from_slice(bytes);
        self.out.full_bytes += bytes.len() as u64;
        self.complete(at, None);
    }

    /// A value that is hashed by its encoding.
    fn other(&mut self, bytes: &[u8]) {
        let hash = (bytes.len() as u64 >= SMALL_BYTES).then(|| self.key.other(bytes));
        self.leaf(bytes, &[], hash);
    }

    /// A leaf that is stored whole or as one reference.
    fn leaf(&mut self, head: &[u8], data: &[u8], hash: Option<Hash>) {
        let at = self.mark();
        let full_bytes = (head.len() + data.len()) as u64;
        let hash = hash.filter(|_| full_bytes >= SMALL_BYTES);
        self.out.full_bytes += full_bytes;
        if let Some(hash) = hash
            && !self.is_key()
        {
            match self.look_up(&hash) {
                InLog::At(stored) => {
                    self.refer(&hash, &stored);
                    return self.complete(at, Some(hash));
                }
                found => {
                    self.fresh(at, hash, 0, None);
                    self.out.body.extend_from_slice(head);
                    self.out.body.extend_from_slice(data);
                    self.set_aside_if_pending(at, hash, &found);
                    return self.complete(at, Some(hash));
                }
            }
        }
        self.out.body.extend_from_slice(head);
        self.out.body.extend_from_slice(data);
        self.complete(at, hash);
    }

    /// Begins a map; `count` keys and values follow in turn.
    pub fn begin_map(&mut self, count: usize) -> Result<(), EncodeError> {
        self.begin(Shape::Map, tag::MAP, |out| put_varint(out, count as u64), count as u64)
    }

    /// Begins a list of `count` values.
    pub fn begin_list(&mut self, count: usize) -> Result<(), EncodeError> {
        self.begin(Shape::List, tag::LIST, |out| put_varint(out, count as u64), count as u64)
    }

    /// Begins a structure that had a type; one value follows.
    pub fn begin_typed(&mut self, name: &str) -> Result<(), EncodeError> {
        self.begin(Shape::Typed, tag::TYPED, |out| put_blob(out, name.as_bytes()), 1)
    }

    fn begin(
        &mut self,
        shape: Shape,
        tag: u8,
        head: impl Fn(&mut Vec<u8>),
        count: u64,
    ) -> Result<(), EncodeError> {
        if self.open.len() >= DEPTH_MAX - 1 {
            return Err(EncodeError::TooDeep);
        }
        let at = self.mark();
        self.out.body.push(tag);
        head(&mut self.out.body);
        let content = self.out.body.len();
        self.out.full_bytes += (content - at.body) as u64;
        self.open.push(Open {
            shape,
            at,
            parts: self.parts.len(),
            items: self.items.len(),
            content,
            values_seen: 0,
            count,
        });
        Ok(())
    }

    /// Ends the list, map or structure that was begun last.
    pub fn end(&mut self) {
        let Some(open) = self.open.pop() else {
            debug_assert!(false, "end() without begin");
            return;
        };
        let expected = if open.shape == Shape::Map { 2 * open.count } else { open.count };
        debug_assert_eq!(open.values_seen, expected, "as many values as were announced");
        let full_bytes = self.out.full_bytes - open.at.full;
        let hash = if full_bytes < SMALL_BYTES {
            None
        } else if open.shape == Shape::List {
            Some(self.end_list(&open))
        } else {
            Some(self.end_node(&open))
        };
        self.parts.truncate(open.parts);
        self.items.truncate(open.items);
        self.complete(open.at, hash);
    }

    /// A map or structure: as a reference, or written here.
    fn end_node(&mut self, open: &Open) -> Hash {
        let parts = &self.parts[open.parts..];
        let head = &self.out.body[open.at.body + 1..open.content];
        let hash =
            if open.shape == Shape::Map { self.key.map(head, parts) } else { self.key.typed(head, parts) };
        if !self.is_key() {
            self.known_or_fresh(open.at, hash, None);
        }
        hash
    }

    /// Replaces what was written since `at` by a reference if the log has it; otherwise remembers it.
    fn known_or_fresh(&mut self, at: Mark, hash: Hash, growth: Option<Growth>) {
        let found = self.look_up(&hash);
        if let InLog::At(stored) = found {
            self.go_back(at);
            self.refer(&hash, &stored);
            return;
        }
        self.fresh(at, hash, 0, growth);
        self.set_aside_if_pending(at, hash, &found);
    }

    /// If another record is about to store the same, the committer decides: what was written since `at` becomes a
    /// piece of its own.
    fn set_aside_if_pending(&mut self, at: Mark, hash: Hash, found: &InLog) {
        if !matches!(found, InLog::Pending) || self.out.body.len() - at.body < UNDECIDED_BYTES {
            return;
        }
        let mut piece = Encoded {
            body: self.out.body.split_off(at.body),
            links: self.out.links.split_off(at.links),
            fresh: self.out.fresh.split_off(at.fresh),
            full_bytes: self.out.full_bytes - at.full,
        };
        self.note_if_twice(hash);
        for fresh in &mut piece.fresh {
            fresh.inner -= at.body as u64;
            fresh.base -= at.links as u32;
        }
        self.out.body.push(tag::REF);
        self.out.links.push(Link::Undecided { hash, take: 0, piece: Box::new(piece) });
    }

    /// What the log knows of a hash. The number of references of a body is limited; beyond that, values are written
    /// in full.
    fn look_up(&self, hash: &Hash) -> InLog {
        if self.out.links.len() >= LINKS_IN_A_BODY_MAX {
            return InLog::No;
        }
        match self.known.find(hash) {
            // This very record is about to store it.
            InLog::No if self.here.contains(hash) => InLog::Pending,
            found => found,
        }
    }

    /// Notes a value that is set aside and also written here.
    fn note_if_twice(&mut self, hash: Hash) {
        if self.here.contains(&hash) && !self.twice.contains(&hash) {
            self.twice.push(hash);
        }
    }

    fn refer(&mut self, hash: &Hash, stored: &Stored) {
        self.out.body.push(tag::REF);
        self.out.links.push(Link::Placed(Reference { place: stored.place, take: stored.take, hash: *hash }));
    }

    fn fresh(&mut self, at: Mark, hash: Hash, take: u64, growth: Option<Growth>) {
        let heavy = self.out.full_bytes - at.full >= UNDECIDED_BYTES as u64;
        let fresh = Fresh { hash, inner: at.body as u64, base: at.links as u32, take, heavy, growth };
        if fresh.heavy && take == 0 && self.known.decides() {
            self.here.insert(hash);
        }
        self.out.fresh.push(fresh);
    }

    fn mark(&self) -> Mark {
        Mark {
            body: self.out.body.len(),
            links: self.out.links.len(),
            fresh: self.out.fresh.len(),
            full: self.out.full_bytes,
        }
    }

    /// Removes bytes, links and fresh values since a mark. The full length stays, since the value does.
    fn go_back(&mut self, at: Mark) {
        self.out.body.truncate(at.body);
        self.out.links.truncate(at.links);
        self.out.fresh.truncate(at.fresh);
    }

    /// True while a map's key is written: keys have no references.
    fn is_key(&self) -> bool {
        self.open.iter().any(|open| open.shape == Shape::Map && open.values_seen % 2 == 0)
    }

    /// Tells the parent that one more of its values is done.
    fn complete(&mut self, at: Mark, hash: Option<Hash>) {
        let full_bytes = self.out.full_bytes - at.full;
        self.last = hash.map(|hash| (hash, full_bytes));
        let Some(parent) = self.open.last_mut() else { return };
        parent.values_seen += 1;
        match hash {
            Some(hash) => {
                self.parts.push(1);
                self.parts.extend_from_slice(&hash);
            }
            None => {
                self.parts.push(0);
                self.parts.extend_from_slice(&self.out.body[at.body..]);
            }
        }
        if parent.shape == Shape::List {
            let mark = self.mark();
            self.items.push(ItemEnd { parts: self.parts.len(), mark });
        }
    }
}
