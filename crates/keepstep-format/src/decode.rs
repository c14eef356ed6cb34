//! Turns the body of a record back into values, fetching what it refers to.
//!
//! What cannot be fetched comes back as [`Value::Lost`], so that a step with a damaged prompt keeps its action and reward.

use std::collections::HashMap;
use std::sync::Arc;

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
    /// The record at this place, or nothing if it is lost.
    fn body(&mut self, segment: u64, offset: u64) -> Option<Arc<Body>>;
    /// A value with this hash that `verify --heal` found elsewhere.
    fn healed(&mut self, _hash: &Hash) -> Option<Value> {
        None
    }
    /// A value that was read at this place before.
    fn cached(&mut self, _place: &Place) -> Option<Value> {
        None
    }
    /// Remembers a value for [`Bodies::cached`].
    fn cache(&mut self, _place: &Place, _value: &Value) {}
    /// How many bytes one record may unfold to by references before it counts as hostile.
    fn unfolded_bytes_max(&self) -> u64 {
        UNFOLDED_BYTES_MAX
    }
}

/// For bodies that must not refer to anything (cards).
#[derive(Debug, Clone, Copy)]
pub struct NoBodies;

impl Bodies for NoBodies {
    fn body(&mut self, _: u64, _: u64) -> Option<Arc<Body>> {
        None
    }
}

/// How many links a reader follows in a row; a writer writes the whole chain down long before.
const LINKS_MAX: usize = 512;
/// How much one record may unfold to by references: a small file could name itself together without end.
pub const UNFOLDED_BYTES_MAX: u64 = 8 << 30;
/// What an item of a list counts for, whatever it is.
const ITEM_BYTES: u64 = 64;

/// Reads all fields of a record or card.
pub fn read_fields(body: &Body, bodies: &mut dyn Bodies) -> Result<Vec<(u8, Value)>, Malformed> {
    let mut budget = Budget::new(bodies);
    let mut reader = Reader::whole(body, &mut budget);
    let count = reader.cursor.count(2)?;
    let mut fields: Vec<(u8, Value)> = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        let number = reader.cursor.varint()?;
        let number = u8::try_from(number).map_err(|_| reader.cursor.malformed("a field number above 255"))?;
        if fields.last().is_some_and(|(before, _)| *before >= number) {
            return Err(reader.cursor.malformed("fields are not in rising order"));
        }
        let value = reader.value(0)?;
        fields.push((number, value));
    }
    if !reader.cursor.is_at_end() {
        return Err(reader.cursor.malformed("bytes behind the last field"));
    }
    Ok(fields)
}

/// Reads one value that fills the body.
pub fn read_value(body: &Body, bodies: &mut dyn Bodies) -> Result<Value, Malformed> {
    let mut budget = Budget::new(bodies);
    let mut reader = Reader::whole(body, &mut budget);
    let value = reader.value(0)?;
    if reader.cursor.is_at_end() { Ok(value) } else { Err(reader.cursor.malformed("bytes behind the value")) }
}

/// Reads what a reference means, or nothing if it is lost.
pub fn read_reference(reference: &Reference, bodies: &mut dyn Bodies) -> Option<Value> {
    let mut budget = Budget::new(bodies);
    Fetch { budget: &mut budget, links: 0, before: None }.whole(reference)
}

/// What may be fetched on behalf of one record, so that a hostile file cannot unfold without end.
struct Budget<'b> {
    bodies: &'b mut dyn Bodies,
    bytes_left: u64,
    /// Whole values that were fetched: each is unfolded once, however often it is referred to.
    fetched: HashMap<Place, Value>,
}

impl<'b> Budget<'b> {
    fn new(bodies: &'b mut dyn Bodies) -> Self {
        let bytes_left = bodies.unfolded_bytes_max();
        Self { bodies, bytes_left, fetched: HashMap::new() }
    }

    /// False if that would be too much.
    fn spend(&mut self, bytes: u64) -> bool {
        let is_enough = bytes <= self.bytes_left;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        is_enough
    }
}

/// Fetches what a record refers to.
struct Fetch<'f, 'b> {
    budget: &'f mut Budget<'b>,
    links: usize,
    /// The record that refers: what it refers to was written before it.
    before: Option<(u64, u64)>,
}

struct Reader<'a, 'f, 'b> {
    body: &'a Body,
    cursor: Cursor<'a>,
    /// The next reference of the table.
    next: usize,
    fetch: Fetch<'f, 'b>,
}

/// The head of a sequence: what it takes from elsewhere.
struct Spans {
    list: Vec<(u64, Reference)>,
}

impl<'a, 'f, 'b> Reader<'a, 'f, 'b> {
    fn new(body: &'a Body, at: usize, base: usize, fetch: Fetch<'f, 'b>) -> Self {
        Self { body, cursor: Cursor::at(&body.raw, at), next: base, fetch }
    }

    /// Reads a record from its beginning.
    fn whole(body: &'a Body, budget: &'f mut Budget<'b>) -> Self {
        Self::new(body, 0, 0, Fetch { budget, links: 0, before: None })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Malformed> {
        if depth >= DEPTH_MAX {
            return Err(self.cursor.malformed("values are nested too deep"));
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
                self.fetch.whole(&reference).unwrap_or(Value::Lost(reference.hash))
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
                    None => Value::Lost(spans.first_hash()),
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
                    None => Value::Lost(spans.first_hash()),
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
        if magnitude.len() < 8 || magnitude.last() == Some(&0) {
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

    /// The elements that follow the spans, as many as the shape leaves.
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

impl Fetch<'_, '_> {
    /// What a reference means.
    fn whole(&mut self, reference: &Reference) -> Option<Value> {
        let is_whole = reference.take == 0;
        if is_whole && let Some(value) = self.budget.bodies.cached(&reference.place) {
            return Some(value);
        }
        if is_whole && let Some(value) = self.budget.fetched.get(&reference.place) {
            return Some(value.clone());
        }
        let Some(value) = self.fetch_whole(reference) else {
            return self.budget.bodies.healed(&reference.hash);
        };
        if is_whole {
            self.budget.fetched.insert(reference.place, value.clone());
            if !value.has_lost() {
                self.budget.bodies.cache(&reference.place, &value);
            }
        }
        Some(value)
    }

    fn fetch_whole(&mut self, reference: &Reference) -> Option<Value> {
        if reference.take == 0 {
            return self.inside(&reference.place, |reader| reader.value(0).ok());
        }
        let body = self.body(&reference.place)?;
        let tag = *body.raw.get(usize::try_from(reference.place.inner).ok()?)?;
        match tag {
            tag::LIST | tag::LIST_MORE => {
                self.items(reference, 0, reference.take).map(|items| Value::List(Arc::new(items)))
            }
            tag::STR | tag::STR_MORE | tag::BYTES | tag::BYTES_MORE => {
                let data = self.data(tag, None, reference, 0, reference.take)?;
                whole_text_or_bytes(tag, data)
            }
            _ => None, // a prefix of an array has no shape of its own
        }
    }

    /// The record at a place, if it was written before the one that refers to it.
    fn body(&mut self, place: &Place) -> Option<Arc<Body>> {
        let at = (place.segment, place.offset);
        if self.links >= LINKS_MAX || self.before.is_some_and(|before| at >= before) {
            return None;
        }
        self.budget.bodies.body(place.segment, place.offset)
    }

    /// Runs `read` on a value inside another record.
    fn inside<T>(
        &mut self,
        place: &Place,
        read: impl FnOnce(&mut Reader<'_, '_, '_>) -> Option<T>,
    ) -> Option<T> {
        let body = self.body(place)?;
        let at = usize::try_from(place.inner).ok().filter(|&at| at < body.raw.len())?;
        let before = Some((place.segment, place.offset));
        let fetch = Fetch { budget: &mut *self.budget, links: self.links + 1, before };
        let mut reader = Reader::new(&body, at, place.base as usize, fetch);
        let result = read(&mut reader);
        let consumed = reader.cursor.position() - at;
        if self.budget.spend(consumed as u64) { result } else { None }
    }

    /// Items `from` to `to` of the list that spans describe; lost ones are marked one by one.
    fn spans_items(&mut self, spans: &Spans, from: u64, to: u64) -> Vec<Value> {
        let mut items = Vec::new();
        let mut at = 0u64;
        for (skip, reference) in &spans.list {
            let length = reference.take - skip;
            let (low, high) = (from.max(at), to.min(at.saturating_add(length)));
            if low < high {
                let count = high - low;
                if !self.budget.spend(count.saturating_mul(ITEM_BYTES)) {
                    items.push(Value::Lost(reference.hash));
                    break;
                }
                let first = skip + (low - at);
                match self.items(reference, first, first + count) {
                    Some(found) => items.extend(found),
                    None => items.extend((0..count).map(|_| Value::Lost(reference.hash))),
                }
            }
            at = at.saturating_add(length);
        }
        items
    }

    /// Items `from` to `to` of a referenced list.
    fn items(&mut self, reference: &Reference, from: u64, to: u64) -> Option<Vec<Value>> {
        if let Some(Value::List(all)) = self.budget.bodies.cached(&reference.place) {
            return all.get(from as usize..to as usize).map(<[Value]>::to_vec);
        }
        let found = self.fetch_items(reference, from, to);
        if found.is_some() {
            return found;
        }
        match self.budget.bodies.healed(&reference.hash)? {
            Value::List(all) => all.get(from as usize..to as usize).map(<[Value]>::to_vec),
            _ => None,
        }
    }

    fn fetch_items(&mut self, reference: &Reference, from: u64, to: u64) -> Option<Vec<Value>> {
        let (items, all) = self.inside(&reference.place, |reader| {
            let spans = match reader.cursor.u8().ok()? {
                tag::LIST => None,
                tag::LIST_MORE => Some(reader.spans().ok()?),
                _ => return None,
            };
            let own = reader.cursor.count(1).ok()?;
            let before = spans.as_ref().map_or(0, Spans::units);
            let all = before.saturating_add(own as u64);
            if to > all {
                return None;
            }
            let mut items = match spans {
                Some(spans) if from < before => reader.fetch.spans_items(&spans, from, to.min(before)),
                _ => Vec::new(),
            };
            for index in before..to.min(all) {
                let item = reader.value(1).ok()?;
                if index >= from {
                    items.push(item);
                }
            }
            Some((items, all))
        })?;
        if from == 0 && to == all && !items.iter().any(Value::has_lost) {
            self.budget.bodies.cache(&reference.place, &Value::List(Arc::new(items.clone())));
        }
        (items.len() as u64 == to - from).then_some(items)
    }

    /// Units `from` to `to` of the data that spans describe, or nothing if a part is lost.
    fn spans_data(
        &mut self,
        tag: u8,
        dtype: Option<Dtype>,
        spans: &Spans,
        from: u64,
        to: u64,
    ) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        let mut at = 0u64;
        for (skip, reference) in &spans.list {
            let length = reference.take - skip;
            let (low, high) = (from.max(at), to.min(at.saturating_add(length)));
            if low < high {
                let first = skip + (low - at);
                data.extend(self.data(tag, dtype, reference, first, first + (high - low))?);
            }
            at = at.saturating_add(length);
        }
        Some(data)
    }

    /// Units `from` to `to` of a referenced string, bytes or array, as bytes.
    fn data(
        &mut self,
        like: u8,
        dtype: Option<Dtype>,
        reference: &Reference,
        from: u64,
        to: u64,
    ) -> Option<Vec<u8>> {
        if let Some(data) = self.fetch_data(like, dtype, reference, from, to) {
            return Some(data);
        }
        let unit = dtype.map_or(1, Dtype::item_bytes) as u64;
        let range = (from * unit) as usize..(to * unit) as usize;
        let whole = self.budget.bodies.healed(&reference.hash)?;
        let data = match &whole {
            Value::Str(text) => text.as_bytes(),
            Value::Bytes(data) => data,
            Value::Array(array) => &array.data,
            _ => return None,
        };
        data.get(range).map(<[u8]>::to_vec)
    }

    fn fetch_data(
        &mut self,
        like: u8,
        dtype: Option<Dtype>,
        reference: &Reference,
        from: u64,
        to: u64,
    ) -> Option<Vec<u8>> {
        let unit = dtype.map_or(1, Dtype::item_bytes) as u64;
        let length = (to - from).checked_mul(unit)?;
        let data = self.inside(&reference.place, |reader| {
            let tag = reader.cursor.u8().ok()?;
            if family(tag)? != family(like)? {
                return None;
            }
            let (shape, is_more) = if matches!(tag, tag::ARRAY | tag::ARRAY_MORE) {
                let (found, shape) = reader.array_head().ok()?;
                (Some(shape).filter(|_| Some(found) == dtype)?, tag == tag::ARRAY_MORE)
            } else {
                (Vec::new(), matches!(tag, tag::STR_MORE | tag::BYTES_MORE))
            };
            let spans = if is_more { Some(reader.spans().ok()?) } else { None };
            let before = spans.as_ref().map_or(0, Spans::units);
            let own: Vec<u8> = match dtype {
                None => reader.cursor.blob().ok()?.to_vec(),
                Some(dtype) => {
                    reader.array_data(dtype, elements(&shape).and_then(|all| all.checked_sub(before))).ok()?
                }
            };
            let mut data = match spans {
                Some(spans) if from < before => {
                    reader.fetch.spans_data(like, dtype, &spans, from, to.min(before))?
                }
                _ => Vec::new(),
            };
            if to > before {
                let low = (from.max(before) - before).checked_mul(unit)?;
                let high = (to - before).checked_mul(unit)?;
                data.extend_from_slice(own.get(usize::try_from(low).ok()?..usize::try_from(high).ok()?)?);
            }
            reader.fetch.budget.spend(data.len() as u64).then_some(data)
        })?;
        (data.len() as u64 == length).then_some(data)
    }
}

/// Strings, bytes and arrays extend only their like.
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
