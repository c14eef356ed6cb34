//! From Python objects to values: the plain types, by exact class and without calling anything of Python's.
//!
//! The entries of a dictionary are taken out before any of them is walked: what the walk calls (a `__repr__`, `redact`) may
//! change it meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use keepstep::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::place::{Part, Place};
use super::redact::REDACTED;
use super::{Walk, plan};
use crate::errors::OrRaise;

/// From here on an object that comes twice in a call is held once.
const HEAVY_BYTES: usize = 4096;

/// The value of an object, hidden if it is to be.
pub(super) fn value(walk: &mut Walk<'_>, given: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<Value> {
    if let Some(replaced) = walk.context.redact.replace(given, place)? {
        return open_value(walk, &replaced, place);
    }
    if let Some(known) = walk.met.get(given) {
        return Ok(known);
    }
    let (before, reprs) = (walk.bytes, walk.reprs);
    let value = open_value(walk, given, place)?;
    // What has a marked text in it is refused elsewhere in the same call, so it is looked at again.
    if walk.bytes - before >= HEAVY_BYTES && walk.reprs == reprs && walk.may_know_again() {
        walk.met.keep(given, &value);
    }
    Ok(value)
}

/// The value of an object that was looked at by `redact` already; what is in it was not.
pub(super) fn open_value(
    walk: &mut Walk<'_>,
    given: &Bound<'_, PyAny>,
    place: &Place<'_>,
) -> PyResult<Value> {
    if let Ok(text) = given.cast_exact::<PyString>() {
        return str_value(walk, text);
    }
    if let Ok(map) = given.cast_exact::<PyDict>() {
        return dict(walk, map, place);
    }
    if let Ok(list) = given.cast_exact::<PyList>() {
        return items(walk, list, place);
    }
    if let Some(value) = small(given)? {
        return Ok(value);
    }
    if let Ok(data) = given.cast_exact::<PyBytes>() {
        walk.bytes += data.as_bytes().len();
        return Ok(Value::bytes(data.as_bytes()));
    }
    if let Ok(tuple) = given.cast_exact::<PyTuple>() {
        let inside = place.itself();
        return Ok(typed(&name_tuple(), sequence(walk, tuple.iter(), tuple.len(), &inside)?));
    }
    plan::value(walk, given, place)
}

/// None, a truth, a number.
fn small(given: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if let Ok(number) = given.cast_exact::<PyInt>() {
        return int_value(number).map(Some);
    }
    if let Ok(number) = given.cast_exact::<PyFloat>() {
        return Ok(Some(Value::Float(number.value())));
    }
    if given.is_none() {
        return Ok(Some(Value::Null));
    }
    Ok(given.cast_exact::<PyBool>().ok().map(|truth| Value::Bool(truth.is_true())))
}

/// A text; one with lone surrogates, which no UTF-8 has, is bytes with a name.
pub(super) fn str_value(walk: &mut Walk<'_>, text: &Bound<'_, PyString>) -> PyResult<Value> {
    let Ok(utf8) = text.to_str() else {
        let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
        let bytes = bytes.cast_into::<PyBytes>()?;
        walk.bytes += bytes.as_bytes().len();
        return Ok(typed(&Arc::from("str"), Value::bytes(bytes.as_bytes())));
    };
    walk.bytes += utf8.len();
    if walk.in_error
        && let Some(hidden) = walk.context.redact.text(utf8)
    {
        return Ok(Value::from(hidden));
    }
    Ok(Value::from(utf8))
}

/// An integer of any size.
pub(super) fn int_value(number: &Bound<'_, PyInt>) -> PyResult<Value> {
    if let Ok(number) = number.extract::<i64>() {
        return Ok(Value::Int(number));
    }
    let negative = number.lt(0)?;
    let bits: usize = number.call_method0("bit_length")?.extract()?;
    let absolute = number.call_method0("__abs__")?;
    let magnitude = absolute.call_method1("to_bytes", (bits.div_ceil(8), "little"))?;
    let magnitude = magnitude.cast_into::<PyBytes>()?;
    Ok(Value::Big { negative, magnitude: Arc::from(magnitude.as_bytes()) })
}

/// A dictionary, or what is derived from one: as the map below it says.
pub(super) fn dict(walk: &mut Walk<'_>, map: &Bound<'_, PyDict>, place: &Place<'_>) -> PyResult<Value> {
    place.check_depth().or_raise(map.py())?;
    let given: Vec<_> = map.iter().collect();
    let mut entries = Vec::with_capacity(given.len());
    for (key, item) in &given {
        let Some(name) = key_value(walk, key, 0)? else {
            return pairs(walk, &given, place);
        };
        let hidden = match name.as_str() {
            Some(name) => walk.context.redact.hides(name),
            None => walk.context.redact.hides_key(key),
        };
        entries.push((name, entry(walk, hidden, key, item, place)?));
    }
    Ok(Value::Map(Arc::new(entries)))
}

/// A dictionary with keys that are neither plain nor tuples of plain ones: a list of pairs, since two of its keys may be
/// recorded alike.
fn pairs(
    walk: &mut Walk<'_>,
    given: &[(Bound<'_, PyAny>, Bound<'_, PyAny>)],
    place: &Place<'_>,
) -> PyResult<Value> {
    let mut pairs = Vec::with_capacity(given.len());
    for (key, item) in given {
        // Three levels: the name, the list, the pair.
        let inside = place.itself();
        let inside = inside.itself();
        let hidden = walk.context.redact.hides_key(key);
        let name = open_value(walk, key, &inside.inside(Part::Key(key), key))?;
        pairs.push(Value::list([name, entry(walk, hidden, key, item, &inside)?]));
    }
    Ok(typed(&Arc::from("dict"), Value::list(pairs)))
}

fn entry(
    walk: &mut Walk<'_>,
    hidden: bool,
    key: &Bound<'_, PyAny>,
    item: &Bound<'_, PyAny>,
    place: &Place<'_>,
) -> PyResult<Value> {
    match hidden {
        true => Ok(Value::from(REDACTED)),
        false => value(walk, item, &place.inside(Part::Key(key), item)),
    }
}

/// A key whose value no other key of the same dictionary can have.
fn key_value(walk: &mut Walk<'_>, key: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Value>> {
    const TUPLES_IN_TUPLES_MAX: usize = 3;
    if let Ok(text) = key.cast_exact::<PyString>() {
        let Ok(utf8) = text.to_str() else { return Ok(None) };
        walk.bytes += utf8.len();
        return Ok(Some(Value::from(utf8)));
    }
    if let Some(value) = small(key)? {
        // Every NaN is another key, and all are recorded alike.
        return Ok(Some(value).filter(|value| !value.as_float().is_some_and(f64::is_nan)));
    }
    if let Ok(data) = key.cast_exact::<PyBytes>() {
        return Ok(Some(Value::bytes(data.as_bytes())));
    }
    let Ok(tuple) = key.cast_exact::<PyTuple>() else { return Ok(None) };
    if depth == TUPLES_IN_TUPLES_MAX {
        return Ok(None);
    }
    let parts: PyResult<Option<Vec<Value>>> =
        tuple.iter().map(|part| key_value(walk, &part, depth + 1)).collect();
    Ok(parts?.map(|parts| typed(&name_tuple(), Value::list(parts))))
}

/// A list. The items of the outermost one are what histories are made of: those that were met before are known again.
pub(super) fn items(walk: &mut Walk<'_>, list: &Bound<'_, PyList>, place: &Place<'_>) -> PyResult<Value> {
    if walk.in_item || walk.in_error || !walk.past.is_kept() {
        return sequence(walk, list.iter(), list.len(), place);
    }
    place.check_depth().or_raise(list.py())?;
    let mut values = Vec::with_capacity(list.len());
    walk.in_item = true;
    for (index, item) in list.iter().enumerate() {
        match item_value(walk, &item, &place.inside(Part::Index(index), &item)) {
            Ok(value) => values.push(value),
            Err(error) => {
                walk.in_item = false;
                return Err(error);
            }
        }
    }
    walk.in_item = false;
    Ok(Value::List(Arc::new(values)))
}

fn item_value(walk: &mut Walk<'_>, item: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<Value> {
    if let Some(known) = walk.past.recall(item) {
        walk.context.recalled.fetch_add(1, Ordering::Relaxed);
        return Ok(known);
    }
    let before = walk.bytes;
    let met = value(walk, item, place)?;
    let bytes = walk.bytes - before;
    Ok(walk.past.keep(item, met, bytes))
}

/// Items one after the other.
pub(super) fn sequence<'py>(
    walk: &mut Walk<'_>,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    count: usize,
    place: &Place<'_>,
) -> PyResult<Value> {
    let mut values = Vec::with_capacity(count);
    for (index, item) in items.enumerate() {
        if index == 0 {
            place.check_depth().or_raise(item.py())?;
        }
        values.push(value(walk, &item, &place.inside(Part::Index(index), &item))?);
    }
    Ok(Value::List(Arc::new(values)))
}

/// A value with the name of its type.
pub(super) fn typed(name: &Arc<str>, value: Value) -> Value {
    Value::Typed(Arc::clone(name), Arc::new(value))
}

fn name_tuple() -> Arc<str> {
    static NAME: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("tuple"));
    Arc::clone(&NAME)
}
