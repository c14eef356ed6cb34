//! Arrays and tensors: their bytes are copied once, from where they are.

use std::sync::Arc;

use keepstep::Value;
use keepstep::format::value::{Array, Dtype};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};

use super::encode::{open_value, typed};
use super::place::Place;
use super::plan::unless_fatal;
use super::{Walk, python_half};

/// An array of numpy or one of its scalars; `odd` takes those apart whose elements the format does not know.
pub(super) fn array_value(
    walk: &mut Walk<'_>,
    given: &Bound<'_, PyAny>,
    odd: &Bound<'_, PyAny>,
    place: &Place<'_>,
) -> PyResult<Option<Value>> {
    let py = given.py();
    let parts = python_half(py)?.getattr("array_parts")?.call1((given,));
    match parts {
        Ok(parts) if !parts.is_none() => {
            if let Some(array) = copied(walk, &parts)? {
                return Ok(Some(array));
            }
        }
        Ok(_) => {}
        Err(error) => unless_fatal(py, error)?,
    }
    match odd.call1((given,)) {
        Ok(data) => {
            let data = open_value(walk, &data, &place.itself())?;
            Ok(Some(typed(&Arc::from("numpy.ndarray"), data)))
        }
        Err(error) => unless_fatal(py, error).map(|()| None),
    }
}

/// A tensor. Nothing if its elements do not stand in a row, or are of a kind that the format does not know.
pub(super) fn tensor_value(walk: &mut Walk<'_>, given: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    let py = given.py();
    match python_half(py)?.getattr("tensor_parts")?.call1((given,)) {
        Ok(parts) if !parts.is_none() => copied(walk, &parts),
        Ok(_) => Ok(None),
        Err(error) => unless_fatal(py, error).map(|()| None),
    }
}

/// A `keepstep.Array`: what was read back where numpy had no such elements.
pub(super) fn raw_value(walk: &mut Walk<'_>, given: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    let name: String = given.getattr("dtype")?.extract()?;
    let shape: Vec<u64> = given.getattr("shape")?.extract()?;
    let data = given.getattr("data")?.cast_into::<PyBytes>()?;
    walk.bytes += data.as_bytes().len();
    let made = dtype_of(&name).and_then(|dtype| Array::new(dtype, shape, data.as_bytes().to_vec()));
    Ok(made.map(|array| Value::Array(Arc::new(array))))
}

fn dtype_of(name: &str) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
}

/// Copies the elements that `keepstep/_arrays.py` has found.
fn copied(walk: &mut Walk<'_>, parts: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    type Parts<'py> = (Bound<'py, pyo3::types::PyString>, Vec<u64>, Bound<'py, PyAny>, usize, usize);
    let (name, shape, keeper, address, length): Parts<'_> = parts.extract()?;
    let Some(dtype) = dtype_of(name.to_str()?) else { return Ok(None) };
    let data = bytes_at(&keeper, address, length);
    walk.bytes += length;
    Ok(Array::new(dtype, shape, data).map(|array| Value::Array(Arc::new(array))))
}

/// A copy of the bytes that an array keeps.
#[expect(unsafe_code, reason = "the stable interface of Python 3.10 has no other way to an array's bytes")]
fn bytes_at(keeper: &Bound<'_, PyAny>, address: usize, length: usize) -> Vec<u8> {
    let _ = keeper;
    if address == 0 || length == 0 {
        return Vec::new();
    }
    let mut data = Vec::with_capacity(length);
    // SAFETY: the address and the length were told by the array itself (`__array_interface__`, `data_ptr`), which is
    // contiguous and which `keeper` keeps alive; the interpreter is held, so nothing resizes it meanwhile. The copy fills
    // exactly the capacity that was reserved, and a new vector overlaps nothing.
    unsafe {
        std::ptr::copy_nonoverlapping(address as *const u8, data.as_mut_ptr(), length);
        data.set_len(length);
    }
    data
}

/// The array of numpy that a value is.
pub(super) fn array_object<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(py, &array.shape)?;
    let data = PyByteArray::new(py, &array.data);
    python_half(py)?.getattr("array_of")?.call1((array.dtype.name(), shape, data))
}
