//! Fetches what a record refers to, within limits that keep a hostile file from unfolding without end.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Bodies, Body, Reader, Spans, Unfolded, family, whole_text_or_bytes};
use crate::frame::{Place, Reference};
use crate::hash::Hash;
use crate::value::{DEPTH_MAX, Dtype, Value, elements, tag};

/// How many links a reader follows in a row. A writer stores the whole chain of spans long before.
pub(super) const LINKS_MAX: usize = 512;
/// How many bytes one record may unfold to by references: a small hostile file could refer to itself without end.
pub const UNFOLDED_BYTES_MAX: u64 = 8 << 30;
/// How many bytes each value counts for, whatever it is.
pub(super) const ITEM_BYTES: u64 = 64;
/// Up to this many items that are lost together are marked one by one, otherwise by one mark for all.
const LOST_MAX: u64 = 1 << 16;

/// What may still be fetched for one record, so that a hostile file cannot unfold without end.
pub(super) struct Budget<'b> {
    bodies: &'b mut dyn Bodies,
    bytes_left: u64,
    /// How deeply nested the present value was so far.
    pub(super) deepest: usize,
    /// How much was lost so far.
    lost: u64,
    /// Whole values that were fetched: each is read once, however often it is referred to.
    fetched: HashMap<Place, Unfolded>,
}

impl<'b> Budget<'b> {
    pub(super) fn new(bodies: &'b mut dyn Bodies) -> Self {
        let bytes_left = bodies.unfolded_bytes_max();
        Self { bodies, bytes_left, deepest: 0, lost: 0, fetched: HashMap::new() }
    }

    /// False if the limit is exceeded.
    pub(super) fn spend(&mut self, bytes: u64) -> bool {
        let is_enough = bytes <= self.bytes_left;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        is_enough
    }

    pub(super) fn lose(&mut self, hash: Hash) -> Value {
        self.lost += 1;
        Value::Lost(hash)
    }

    /// Uses a value again at some depth, if it is not too deep there.
    fn reuse(&mut self, unfolded: Unfolded, depth: usize) -> Option<Value> {
        let deepest = depth + unfolded.height;
        self.deepest = self.deepest.max(deepest);
        (deepest < DEPTH_MAX && self.spend(unfolded.bytes)).then_some(unfolded.value)
    }
}

/// A list that was paid for as a whole, and up to which item it was used: what is behind that is paid for already.
type Paid = Option<(Place, u64)>;

/// Fetches what a record refers to.
pub(super) struct Fetch<'f, 'b> {
    pub(super) budget: &'f mut Budget<'b>,
    pub(super) links: usize,
    /// How many values contain the fetched one: nesting continues across references.
    pub(super) depth: usize,
    /// The value that refers. Its target was written before it, in an earlier record or earlier in the same block.
    pub(super) before: Option<(u64, u64, u64)>,
}

impl Fetch<'_, '_> {
    /// The value of a reference.
    pub(super) fn whole(&mut self, reference: &Reference) -> Option<Value> {
        let is_whole = reference.take == 0;
        if is_whole && let Some(unfolded) = self.known(&reference.place) {
            return self.budget.reuse(unfolded, self.depth);
        }
        let Some((unfolded, is_all_there)) = self.measured(|fetch| fetch.fetch_whole(reference)) else {
            return self.budget.bodies.healed(&reference.hash);
        };
        if is_whole {
            if is_all_there {
                self.budget.bodies.cache(&reference.place, &unfolded);
            }
            self.budget.fetched.insert(reference.place, unfolded.clone());
        }
        Some(unfolded.value)
    }

    fn known(&mut self, place: &Place) -> Option<Unfolded> {
        self.budget.bodies.cached(place).or_else(|| self.budget.fetched.get(place).cloned())
    }

    /// Fetches something, and notes its size and whether it is whole.
    fn measured(&mut self, fetch: impl FnOnce(&mut Self) -> Option<Value>) -> Option<(Unfolded, bool)> {
        let (bytes_left, lost) = (self.budget.bytes_left, self.budget.lost);
        let outside = std::mem::replace(&mut self.budget.deepest, self.depth);
        let value = fetch(self);
        let height = self.budget.deepest - self.depth;
        self.budget.deepest = self.budget.deepest.max(outside);
        let bytes = bytes_left - self.budget.bytes_left;
        Some((Unfolded { value: value?, bytes, height }, self.budget.lost == lost))
    }

    fn fetch_whole(&mut self, reference: &Reference) -> Option<Value> {
        if reference.take == 0 {
            return self.inside(&reference.place, |reader| reader.value(0).ok());
        }
        let body = self.body(&reference.place)?;
        let tag = *body.raw.get(usize::try_from(reference.place.inner).ok()?)?;
        match tag {
            tag::LIST | tag::LIST_MORE => {
                self.items(reference, 0, reference.take, &mut None).map(|items| Value::List(Arc::new(items)))
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
        let at = (place.segment, place.offset, place.inner);
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
        let before = Some((place.segment, place.offset, place.inner));
        let (links, depth) = (self.links + 1, self.depth);
        let fetch = Fetch { budget: &mut *self.budget, links, depth, before };
        let mut reader = Reader::new(&body, at, place.base as usize, fetch);
        let result = read(&mut reader);
        let consumed = reader.cursor.position() - at;
        if self.budget.spend(consumed as u64) { result } else { None }
    }

    /// Items `from` to `to` of the list that the spans describe; lost ones are marked one by one.
    pub(super) fn spans_items(&mut self, spans: &Spans, from: u64, to: u64) -> Vec<Value> {
        let mut items = Vec::new();
        let (mut at, mut paid) = (0u64, None);
        for (skip, reference) in &spans.list {
            let length = reference.take - skip;
            let (low, high) = (from.max(at), to.min(at.saturating_add(length)));
            if low < high {
                let count = high - low;
                if !self.budget.spend(count.saturating_mul(ITEM_BYTES)) {
                    items.push(self.budget.lose(reference.hash));
                    break;
                }
                let first = skip + (low - at);
                match self.items(reference, first, first + count, &mut paid) {
                    Some(found) => items.extend(found),
                    None if count > LOST_MAX => items.push(self.budget.lose(reference.hash)),
                    None => items.extend((0..count).map(|_| self.budget.lose(reference.hash))),
                }
            }
            at = at.saturating_add(length);
        }
        items
    }

    /// Items `from` to `to` of a referenced list. Slices of one list that do not overlap are paid for once: a list that
    /// slid consists of two, and would count twice for the one that it slid from.
    fn items(&mut self, reference: &Reference, from: u64, to: u64, paid: &mut Paid) -> Option<Vec<Value>> {
        let range = usize::try_from(from).ok()?..usize::try_from(to).ok()?;
        let is_paid = paid.take().is_some_and(|(place, used)| place == reference.place && used <= from);
        if let Some(mut unfolded) = self.budget.bodies.cached(&reference.place)
            && matches!(unfolded.value, Value::List(_))
        {
            if is_paid {
                unfolded.bytes = 0;
            }
            *paid = Some((reference.place, to));
            return self.budget.reuse(unfolded, self.depth)?.as_list()?.get(range).map(<[Value]>::to_vec);
        }
        let found = self.fetch_items(reference, from, to);
        if found.is_some() {
            return found;
        }
        self.budget.bodies.healed(&reference.hash)?.as_list()?.get(range).map(<[Value]>::to_vec)
    }

    fn fetch_items(&mut self, reference: &Reference, from: u64, to: u64) -> Option<Vec<Value>> {
        let mut all = 0;
        let (unfolded, is_all_there) = self.measured(|fetch| {
            let items = fetch.inside(&reference.place, |reader| {
                let spans = match reader.cursor.u8().ok()? {
                    tag::LIST => None,
                    tag::LIST_MORE => Some(reader.spans().ok()?),
                    _ => return None,
                };
                let own = reader.cursor.count(1).ok()?;
                all = spans.as_ref().map_or(0, Spans::units).saturating_add(own as u64);
                reader.items_between(spans, all - own as u64, all, from, to)
            })?;
            Some(Value::List(Arc::new(items)))
        })?;
        if from == 0 && to == all && is_all_there {
            self.budget.bodies.cache(&reference.place, &unfolded);
        }
        let items = unfolded.value.as_list()?;
        (items.len() as u64 == to - from).then(|| items.to_vec())
    }

    /// Units `from` to `to` of the data that the spans describe; `None` if a part is lost.
    pub(super) fn spans_data(
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
        let range =
            usize::try_from(from.checked_mul(unit)?).ok()?..usize::try_from(to.checked_mul(unit)?).ok()?;
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
