//! From values to Python objects.
//!
//! No class is looked up by a recorded name: only what is in the two tables of `keepstep/_values.py` is ever made.

use keepstep::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyTuple};

use super::plan::unless_fatal;
use super::{arrays, python_half};

/// The Python object of a value: plain data, and what has exactly one counterpart among Python's own types.
pub(crate) fn from_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value.plain() {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Str(text) => text.into_pyobject(py)?.into_any(),
        Value::Bytes(data) => PyBytes::new(py, data).into_any(),
        Value::List(items) => PyList::new(py, objects(py, items)?)?.into_any(),
        Value::Map(entries) => map(py, entries)?,
        Value::Big { negative, magnitude } => big(py, *negative, magnitude)?,
        Value::Array(array) => arrays::array_object(py, array)?,
        Value::Typed(name, inner) => typed(py, name, inner)?,
        Value::Media(kind, data) => mark(py, "Media")?.call1((&**kind, PyBytes::new(py, data)))?,
        Value::Repr(class, text) => mark(py, "Repr")?.call1((&**class, &**text))?,
        Value::Lost(hash) => mark(py, "Lost")?.call1((PyBytes::new(py, hash),))?,
        // `plain` has looked through it.
        Value::Shared(shared) => from_value(py, &shared.value)?,
    })
}

fn objects<'py>(py: Python<'py>, items: &[Value]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    items.iter().map(|item| from_value(py, item)).collect()
}

/// A dictionary; a list of pairs if two of its keys are the same to Python, or one cannot be a key.
fn map<'py>(py: Python<'py>, entries: &[(Value, Value)]) -> PyResult<Bound<'py, PyAny>> {
    let map = PyDict::new(py);
    for (key, value) in entries {
        let set = map.set_item(from_value(py, key)?, from_value(py, value)?);
        set.or_else(|error| unless_fatal(py, error))?;
    }
    if map.len() == entries.len() {
        return Ok(map.into_any());
    }
    let pair =
        |(key, value): &(Value, Value)| PyTuple::new(py, [from_value(py, key)?, from_value(py, value)?]);
    let pairs: PyResult<Vec<_>> = entries.iter().map(pair).collect();
    Ok(PyList::new(py, pairs?)?.into_any())
}

fn big<'py>(py: Python<'py>, negative: bool, magnitude: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let magnitude = PyBytes::new(py, magnitude);
    let number = py.get_type::<PyInt>().call_method1("from_bytes", (magnitude, "little"))?;
    if negative { number.neg() } else { Ok(number) }
}

fn typed<'py>(py: Python<'py>, name: &str, inner: &Value) -> PyResult<Bound<'py, PyAny>> {
    if name == "tuple"
        && let Value::List(items) = inner.plain()
    {
        return Ok(PyTuple::new(py, objects(py, items)?)?.into_any());
    }
    let data = from_value(py, inner)?;
    let half = python_half(py)?;
    let registered = half.getattr("decoders")?.cast_into::<PyDict>()?;
    if let Some(decode) = registered.get_item(name)? {
        return decode.call1((data,));
    }
    let builtin = half.getattr("builtin_decoders")?.cast_into::<PyDict>()?;
    let Some(decode) = builtin.get_item(name)? else { return Ok(data) };
    match decode.call1((&data,)) {
        Ok(object) => Ok(object),
        // Whoever wrote it meant something else by that name: the data is what was recorded.
        Err(error) => unless_fatal(py, error).map(|()| data),
    }
}

fn mark<'py>(py: Python<'py>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    python_half(py)?.getattr(class)
}
