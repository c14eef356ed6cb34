//! From values to Python objects.

use keepstep::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// The plain Python object of a value.
pub(crate) fn from_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value.plain() {
        Value::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => number.into_pyobject(py)?.into_any(),
        Value::Str(text) => text.into_pyobject(py)?.into_any(),
        Value::Bytes(data) => PyBytes::new(py, data).into_any(),
        Value::List(items) => {
            let items: PyResult<Vec<_>> = items.iter().map(|item| from_value(py, item)).collect();
            PyList::new(py, items?)?.into_any()
        }
        Value::Map(entries) => {
            let map = PyDict::new(py);
            for (key, entry) in entries.iter() {
                map.set_item(from_value(py, key)?, from_value(py, entry)?)?;
            }
            map.into_any()
        }
        _ => py.None().into_bound(py),
    })
}
