//! Python objects as recorded values, and back.

mod decode;
mod encode;

use pyo3::prelude::*;

use keepstep::Value;

pub(crate) use decode::from_value;

/// How a store takes values: what it refuses, hides and leaves out.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Context {
    /// What cannot be recorded is an error, not a marked text.
    strict: bool,
    /// What hides secrets, before anything is hashed or stored.
    redact: Option<Py<PyAny>>,
    /// Fields of steps that are not recorded.
    skip: Vec<String>,
}

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (*, strict = false, redact = None, skip = Vec::new()))]
    fn new(strict: bool, redact: Option<Py<PyAny>>, skip: Vec<String>) -> Self {
        Self { strict, redact, skip }
    }
}

impl Context {
    /// True if a field is not recorded.
    pub(crate) fn skips(&self, field: &str) -> bool {
        self.skip.iter().any(|skipped| skipped == field)
    }
}

/// A walk through the arguments of one call. Nothing of Python's is kept: what it gives is the value of this moment.
pub(crate) struct Walk<'c> {
    context: &'c Context,
    /// How many bytes were met, about: what is large is worked on with the interpreter released.
    pub(crate) bytes: usize,
}

impl<'c> Walk<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self { context, bytes: 0 }
    }

    /// True if a field is not recorded.
    pub(crate) fn skips(&self, field: &str) -> bool {
        self.context.skips(field)
    }

    /// The value of an object; `path` names it in messages and to `redact`.
    pub(crate) fn value(&mut self, given: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
        let _ = (self.context.strict, &self.context.redact);
        encode::value(self, given, path)
    }
}

/// Adds what Python needs of this.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Context>()
}
