//! Lists of numbers as the bytes of an array: as `struct.pack` makes them, without an argument for each number.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBytes, PyList};

/// The numbers of a list in 32 bits each, little-endian. None if it is no plain list of plain integers that fit.
#[pyfunction]
pub(crate) fn int32_bytes<'py>(numbers: &Bound<'py, PyAny>) -> Option<Bound<'py, PyBytes>> {
    bytes_of(numbers, |item| i32::try_from(plain_int(item)?).ok().map(i32::to_le_bytes))
}

/// The numbers of a list in 32 bits each, little-endian. None if it is no plain list of plain floats, or one of them is
/// not the same in 32 bits.
#[pyfunction]
pub(crate) fn float32_bytes<'py>(numbers: &Bound<'py, PyAny>) -> Option<Bound<'py, PyBytes>> {
    bytes_of(numbers, |item| {
        let number = plain_float(item)?;
        let narrow = number as f32;
        (f64::from(narrow) == number).then(|| narrow.to_le_bytes())
    })
}

/// An object that a list holds while nobody changes the list.
struct Item(*mut ffi::PyObject);

#[expect(unsafe_code, reason = "counting references to 2,000 numbers takes longer than reading them")]
fn bytes_of<'py>(
    numbers: &Bound<'py, PyAny>,
    bytes_of_one: impl Fn(&Item) -> Option<[u8; 4]>,
) -> Option<Bound<'py, PyBytes>> {
    let list = numbers.cast_exact::<PyList>().ok()?;
    let bytes = with_critical_section(list, || {
        let count = list.len();
        let mut bytes = Vec::with_capacity(4 * count);
        for index in 0..count {
            // SAFETY: the list is a list, and the index is below its length: nothing here runs code of Python's or lets
            // the interpreter go, and where there is no such lock the section keeps others from the list. So it keeps
            // the item alive while it is looked at.
            let item = unsafe { ffi::PyList_GetItem(list.as_ptr(), index as ffi::Py_ssize_t) };
            bytes.extend_from_slice(&bytes_of_one(&Item(item))?);
        }
        Some(bytes)
    });
    Some(PyBytes::new(numbers.py(), &bytes?))
}

#[expect(unsafe_code, reason = "as above")]
fn plain_int(item: &Item) -> Option<std::ffi::c_long> {
    let mut overflow = 0;
    // SAFETY: the item is alive, and exactly an `int` when it is read as one: that calls nothing and raises nothing.
    unsafe {
        if ffi::PyLong_CheckExact(item.0) == 0 {
            return None;
        }
        let number = ffi::PyLong_AsLongAndOverflow(item.0, &raw mut overflow);
        (overflow == 0).then_some(number)
    }
}

#[expect(unsafe_code, reason = "as above")]
fn plain_float(item: &Item) -> Option<f64> {
    // SAFETY: the item is alive, and exactly a `float` when it is read as one: that calls nothing and raises nothing.
    unsafe { (ffi::PyFloat_CheckExact(item.0) != 0).then(|| ffi::PyFloat_AsDouble(item.0)) }
}
