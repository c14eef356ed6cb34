//! Decodes the body of a record into values, and fetches the values that it refers to.
//!
//! A value that cannot be fetched becomes [`Value::Lost`], so that a step with a damaged prompt keeps its action and
//! reward.

mod fetch;
mod measure;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

pub use fetch::UNFOLDED_BYTES_MAX;
use fetch::{Budget, Fetch, ITEM_BYTES};
pub use measure::part_of_value;

use crate::bytes::{Cursor, Malformed, unzigzag};
use crate::frame::{Place, Reference};
use crate::hash::Hash;
use crate::value::{Array, DEPTH_MAX, DIMENSIONS_MAX, Dtype, Value, elements, tag, unshuffle};

/// The uncompressed body of a record, with its references.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// The bytes.
    pub raw: Vec<u8>,
    /// The references, in the order of their tags.
    pub references: Vec<Reference>,
}

/// Where referenced bodies come from.
pub trait Bodies {
    /// The record at this place; `None` if it is lost.
    fn body(&mut self, segment: u64, offset: u64) -> Option<Arc<Body>>;
    /// A value with this hash that `verify --heal` found elsewhere.
    fn healed(&mut self, _hash: &Hash) -> Option<Value> {
        None
    }
    /// A value that was read at this place before.
    fn cached(&mut self, _place: &Place) -> Option<Unfolded> {
        None
    }
    /// Remembers a value for [`Bodies::cached`].
    fn cache(&mut self, _place: &Place, _unfolded: &Unfolded) {}
    /// How many bytes one record may unfold to by references before it is refused as hostile.
    fn unfolded_bytes_max(&self) -> u64 {
        UNFOLDED_BYTES_MAX
    }
}

/// A fetched value and its full size: parts that it shares count each time.
#[derive(Debug, Clone)]
pub struct Unfolded {
    /// The value.
    pub value: Value,
    /// How large it is.
    pub bytes: u64,
    /// How deep it is nested.
    pub height: usize,
}

/// For bodies that must not have references (cards).
#[derive(Debug, Clone, Copy)]
pub struct NoBodies;

impl Bodies for NoBodies {
    fn body(&mut self, _: u64, _: u64) -> Option<Arc<Body>> {
        None
    }
}

/// The part of a body that belongs to a record: all of it, unless the record is in a block with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its bytes.
    pub bytes: Range<usize>,
    /// Its references.
    pub references: Range<usize>,
}

impl Body {
    /// All of it, as one part.
    pub fn whole(&self) -> Part {
        Part { bytes: 0..self.raw.len(), references: 0..self.references.len() }
    }
}

/// Which fields are wanted, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted([u64; 4]);

impl Wanted {
    /// All there are.
    pub const ALL: Wanted = Wanted([u64::MAX; 4]);

    /// These fields.
    pub fn of(numbers: impl IntoIterator<Item = u8>) -> Self {
        let mut bits = [0; 4];
        numbers.into_iter().for_each(|number| bits[usize::from(number / 64)] |= 1 << (number % 64));
        Self(bits)
    }

    /// True if this field is wanted.
    pub fn has(&self, number: u8) -> bool {
        self.0[usize::from(number / 64)] & 1 << (number % 64) != 0
    }
}

/// Reads all fields of a record or card.
pub fn read_fields(body: &Body, bodies: &mut dyn Bodies) -> Result<Vec<(u8, Value)>, Malformed> {
    read_fields_of(body, &body.whole(), bodies)
}

/// Reads all fields of a record that is a part of a body.
pub fn read_fields_of(
    body: &Body,
    part: &Part,
    bodies: &mut dyn Bodies,
) -> Result<Vec<(u8, Value)>, Malformed> {
    read_wanted_fields_of(body, part, &Wanted::ALL, bodies)
}

/// Reads some fields of a record that is a part of a body. The others are passed over: nothing is fetched or allocated
/// for them, and of their content only the lengths are checked.
pub fn read_wanted_fields_of(
    body: &Body,
    part: &Part,
    wanted: &Wanted,
    bodies: &mut dyn Bodies,
) -> Result<Vec<(u8, Value)>, Malformed> {
    let mut budget = Budget::new(bodies);
    let mut reader = Reader::part(body, part, &mut budget)?;
    let count = reader.cursor.count(2)?;
    let mut fields: Vec<(u8, Value)> = Vec::with_capacity(count.min(64));
    let mut before = None;
    for _ in 0..count {
        let number = reader.cursor.varint()?;
        let number = u8::try_from(number).map_err(|_| reader.cursor.malformed("a field number above 255"))?;
        if before.is_some_and(|before| before >= number) {
            return Err(reader.cursor.malformed("fields are not in rising order"));
        }
        before = Some(number);
        if wanted.has(number) {
            let value = reader.value(0)?;
            fields.push((number, value));
        } else {
            (reader.cursor, reader.next) = measure::behind_value(body, reader.cursor, reader.next)?;
        }
    }
    if !reader.cursor.is_at_end() {
        return Err(reader.cursor.malformed("bytes behind the last field"));
    }
    Ok(fields)
}

/// Reads one value that fills the body.
pub fn read_value(body: &Body, bodies: &mut dyn Bodies) -> Result<Value, Malformed> {
    read_value_of(body, &body.whole(), bodies)
}

/// Reads one value that fills a part of a body.
pub fn read_value_of(body: &Body, part: &Part, bodies: &mut dyn Bodies) -> Result<Value, Malformed> {
    let mut budget = Budget::new(bodies);
    let mut reader = Reader::part(body, part, &mut budget)?;
    let value = reader.value(0)?;
    if reader.cursor.is_at_end() { Ok(value) } else { Err(reader.cursor.malformed("bytes behind the value")) }
}

/// Reads the value of a reference; `None` if it is lost.
pub fn read_reference(reference: &Reference, bodies: &mut dyn Bodies) -> Option<Value> {
    let mut budget = Budget::new(bodies);
    Fetch { budget: &mut budget, links: 0, depth: 0, before: None }.whole(reference)
}

struct Reader<'a, 'f, 'b> {
    body: &'a Body,
    cursor: Cursor<'a>,
    /// The next reference of the table.
    next: usize,
    /// How many values of other records contain this one.
    outside: usize,
    fetch: Fetch<'f, 'b>,
}

/// The head of a sequence: the spans that it takes from elsewhere.
struct Spans {
    list: Vec<(u64, Reference)>,
}

impl<'a, 'f, 'b> Reader<'a, 'f, 'b> {
    fn new(body: &'a Body, at: usize, base: usize, fetch: Fetch<'f, 'b>) -> Self {
        Self { body, cursor: Cursor::at(&body.raw, at), next: base, outside: fetch.depth, fetch }
    }

    /// Reads a record from its beginning to its end.
    fn part(body: &'a Body, part: &Part, budget: &'f mut Budget<'b>) -> Result<Self, Malformed> {
        let outside = Malformed { what: "a record ends behind its body", at: body.raw.len() };
        let raw = body.raw.get(..part.bytes.end).ok_or(outside)?;
        let fetch = Fetch { budget, links: 0, depth: 0, before: None };
        let cursor = Cursor::at(raw, part.bytes.start);
        Ok(Self { body, cursor, next: part.references.start, outside: 0, fetch })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        self.fetch.depth = self.outside + depth;
        if self.fetch.depth >= DEPTH_MAX {
            return Err(self.cursor.malformed("values are nested too deep"));
        }
        self.fetch.budget.deepest = self.fetch.budget.deepest.max(self.fetch.depth);
        // The record's own content is bounded by its bytes; only what it refers to is counted.
        if self.fetch.links > 0 && !self.fetch.budget.spend(ITEM_BYTES) {
            return Err(self.cursor.malformed("a record unfolds to too much"));
        }
        let at = self.cursor.position();
        let tag = self.cursor.u8()?;
        Ok(match tag {
            tag::NULL => Value::Null,
            tag::FALSE => Value::Bool(false),
            tag::TRUE => Value::Bool(true),
            tag::INT => Value::Int(unzigzag(self.cursor.varint()?)),
            tag::BIG => self.big()?,
            tag::FLOAT => Value::Float(f64::from_le_bytes(self.cursor.array()?)),
            tag::STR => Value::from(self.cursor.text()?),
            tag::BYTES => Value::bytes(self.cursor.blob()?),
            tag::MEDIA => Value::Media(Arc::from(self.cursor.text()?), Arc::from(self.cursor.blob()?)),
            tag::REPR => Value::Repr(Arc::from(self.cursor.text()?), Arc::from(self.cursor.text()?)),
            tag::TYPED => {
                let name = Arc::from(self.cursor.text()?);
                Value::Typed(name, Arc::new(self.value(depth + 1)?))
            }
            tag::LIST => {
                let count = self.cursor.count(1)?;
                let mut items = Vec::with_capacity(count.min(1024));
                self.items_into(&mut items, count, depth)?;
                Value::List(Arc::new(items))
            }
            tag::MAP => self.map(depth)?,
            tag::ARRAY => self.array()?,
            tag::REF => {
                let reference = self.reference()?;
                self.fetch.whole(&reference).unwrap_or_else(|| self.fetch.budget.lose(reference.hash))
            }
            tag::LIST_MORE => {
                let spans = self.spans()?;
                let count = self.cursor.count(1)?;
                let mut items = self.fetch.spans_items(&spans, 0, u64::MAX);
                self.items_into(&mut items, count, depth)?;
                Value::List(Arc::new(items))
            }
            tag::STR_MORE | tag::BYTES_MORE => {
                let spans = self.spans()?;
                let rest = self.cursor.blob()?;
                match self.fetch.spans_data(tag, None, &spans, 0, u64::MAX) {
                    None => self.fetch.budget.lose(spans.first_hash()),
                    Some(mut data) => {
                        data.extend_from_slice(rest);
                        whole_text_or_bytes(tag, data).ok_or(Malformed { what: "a text is not UTF-8", at })?
                    }
                }
            }
            tag::ARRAY_MORE => {
                let (dtype, shape) = self.array_head()?;
                let spans = self.spans()?;
                let rest = self.array_rest(dtype, &shape, &spans)?;
                match self.fetch.spans_data(tag, Some(dtype), &spans, 0, u64::MAX) {
                    None => self.fetch.budget.lose(spans.first_hash()),
                    Some(mut data) => {
                        data.extend_from_slice(&rest);
                        let array = Array::new(dtype, shape, data);
                        Value::Array(Arc::new(
                            array.ok_or(Malformed { what: "an array has the wrong size", at })?,
                        ))
                    }
                }
            }
            _ => return Err(Malformed { what: "an unknown tag", at }),
        })
    }

    fn items_into(&mut self, items: &mut Vec<Value>, count: usize, depth: usize) -> Result<(), Malformed> {
        for _ in 0..count {
            items.push(self.value(depth + 1)?);
        }
        Ok(())
    }

    fn big(&mut self) -> Result<Value, Malformed> {
        let negative = match self.cursor.u8()? {
            0 => false,
            1 => true,
            _ => return Err(self.cursor.malformed("a sign that is neither 0 nor 1")),
        };
        let magnitude = self.cursor.blob()?;
        let fits_64_bits = match <[u8; 8]>::try_from(magnitude).map(u64::from_le_bytes) {
            Ok(number) => number <= i64::MAX as u64 + u64::from(negative),
            Err(_) => magnitude.len() < 8,
        };
        if fits_64_bits || magnitude.last() == Some(&0) {
            return Err(self.cursor.malformed("a big integer that is not minimal"));
        }
        Ok(Value::Big { negative, magnitude: Arc::from(magnitude) })
    }

    fn map(&mut self, depth: usize) -> Result<Value, Malformed> {
        let count = self.cursor.count(2)?;
        let mut entries = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(Arc::new(entries)))
    }

    fn array_head(&mut self) -> Result<(Dtype, Vec<u64>), Malformed> {
        let dtype = self.cursor.u8()?;
        let dtype = Dtype::from_u8(dtype).ok_or_else(|| self.cursor.malformed("an unknown dtype"))?;
        let dimensions = self.cursor.varint()?;
        if dimensions > DIMENSIONS_MAX as u64 {
            return Err(self.cursor.malformed("an array with too many dimensions"));
        }
        let shape = (0..dimensions).map(|_| self.cursor.varint()).collect::<Result<Vec<_>, _>>()?;
        Ok((dtype, shape))
    }

    fn array(&mut self) -> Result<Value, Malformed> {
        let (dtype, shape) = self.array_head()?;
        let data = self.array_data(dtype, elements(&shape))?;
        let array = Array::new(dtype, shape, data);
        Ok(Value::Array(Arc::new(array.ok_or_else(|| self.cursor.malformed("an array has the wrong size"))?)))
    }

    /// The elements after the spans, as many as the shape requires.
    fn array_rest(&mut self, dtype: Dtype, shape: &[u64], spans: &Spans) -> Result<Vec<u8>, Malformed> {
        let rest = elements(shape).and_then(|all| all.checked_sub(spans.units()));
        self.array_data(dtype, rest)
    }

    fn array_data(&mut self, dtype: Dtype, count: Option<u64>) -> Result<Vec<u8>, Malformed> {
        let bytes = count.and_then(|count| count.checked_mul(dtype.item_bytes() as u64));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| self.cursor.malformed("an array has the wrong size"))?;
        Ok(unshuffle(self.cursor.take(bytes)?, dtype.item_bytes()))
    }

    /// Items `from` to `to` of a list of `all` items, of which those before `before` are stored elsewhere.
    fn items_between(
        &mut self,
        spans: Option<Spans>,
        before: u64,
        all: u64,
        from: u64,
        to: u64,
    ) -> Option<Vec<Value>> {
        if to > all {
            return None;
        }
        let mut items = match spans {
            Some(spans) if from < before => self.fetch.spans_items(&spans, from, to.min(before)),
            _ => Vec::new(),
        };
        for index in before..to {
            let item = self.value(1).ok()?;
            if index >= from {
                items.push(item);
            }
        }
        Some(items)
    }

    fn reference(&mut self) -> Result<Reference, Malformed> {
        let reference = self.body.references.get(self.next).copied();
        self.next += 1;
        reference.ok_or_else(|| self.cursor.malformed("more references than the table has"))
    }

    fn spans(&mut self) -> Result<Spans, Malformed> {
        let count = self.cursor.count(1)?;
        if count == 0 {
            return Err(self.cursor.malformed("a sequence that extends nothing"));
        }
        let skips = (0..count).map(|_| self.cursor.varint()).collect::<Result<Vec<_>, _>>()?;
        let mut list = Vec::with_capacity(count);
        for skip in skips {
            let reference = self.reference()?;
            if reference.take <= skip {
                return Err(self.cursor.malformed("an empty span"));
            }
            list.push((skip, reference));
        }
        Ok(Spans { list })
    }
}

impl Spans {
    fn units(&self) -> u64 {
        self.list.iter().fold(0u64, |sum, (skip, reference)| sum.saturating_add(reference.take - skip))
    }

    fn first_hash(&self) -> Hash {
        self.list[0].1.hash
    }
}

/// Strings extend only strings, bytes only bytes, arrays only arrays.
fn family(tag: u8) -> Option<u8> {
    match tag {
        tag::STR | tag::STR_MORE => Some(tag::STR),
        tag::BYTES | tag::BYTES_MORE => Some(tag::BYTES),
        tag::ARRAY | tag::ARRAY_MORE => Some(tag::ARRAY),
        _ => None,
    }
}

fn whole_text_or_bytes(tag: u8, data: Vec<u8>) -> Option<Value> {
    if family(tag) == Some(tag::STR) {
        return String::from_utf8(data).ok().map(Value::from);
    }
    Some(Value::bytes(data))
}
