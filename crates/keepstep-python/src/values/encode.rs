//! From Python objects to values.

use std::sync::Arc;

use keepstep::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::Walk;
use crate::errors::{bad_input, raise};
use crate::fields::kind_of;

pub(super) fn value(walk: &mut Walk<'_>, given: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
    if given.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(text) = given.cast_exact::<PyString>() {
        let text = text.to_str()?;
        walk.bytes += text.len();
        return Ok(Value::from(text));
    }
    if let Ok(truth) = given.cast_exact::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if let Ok(number) = given.cast_exact::<PyFloat>() {
        return Ok(Value::Float(number.value()));
    }
    if let Ok(number) = given.cast_exact::<PyInt>() {
        return Ok(Value::Int(number.extract()?));
    }
    if let Ok(data) = given.cast_exact::<PyBytes>() {
        walk.bytes += data.as_bytes().len();
        return Ok(Value::bytes(data.as_bytes()));
    }
    if let Ok(map) = given.cast_exact::<PyDict>() {
        let mut entries = Vec::with_capacity(map.len());
        for (key, entry) in map.iter() {
            entries.push((value(walk, &key, path)?, value(walk, &entry, path)?));
        }
        return Ok(Value::Map(Arc::new(entries)));
    }
    let items = match (given.cast_exact::<PyList>(), given.cast_exact::<PyTuple>()) {
        (Ok(list), _) => list.iter().collect::<Vec<_>>(),
        (_, Ok(tuple)) => tuple.iter().collect::<Vec<_>>(),
        _ => return Err(raise(given.py(), &bad_input(path, &kind_of(given), "cannot be recorded"))),
    };
    let items: PyResult<Vec<Value>> = items.iter().map(|item| value(walk, item, path)).collect();
    Ok(Value::List(Arc::new(items?)))
}
