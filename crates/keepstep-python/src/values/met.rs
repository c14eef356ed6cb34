//! What one call has met already: an object that comes twice in it is held once, and so recognised as one when it is stored.
//!
//! The object is kept alive as long as its address is remembered, so no other can have that address.

use std::collections::HashMap;

use keepstep::Value;
use pyo3::prelude::*;

/// Objects by their address, and what was made of them.
#[derive(Default)]
pub(super) struct Met(HashMap<usize, (Py<PyAny>, Value)>);

impl Met {
    /// What was made of this very object.
    pub(super) fn get(&self, object: &Bound<'_, PyAny>) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(object.as_ptr() as usize)).map(|(_, value)| value.clone())
    }

    pub(super) fn keep(&mut self, object: &Bound<'_, PyAny>, value: &Value) {
        self.0.insert(object.as_ptr() as usize, (object.clone().unbind(), value.clone()));
    }
}
