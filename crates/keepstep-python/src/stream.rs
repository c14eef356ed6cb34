//! A stream: entries that many processes put, frozen once.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{OrRaise, exception};
use crate::receipt::Receipt;
use crate::values::{Context, Walk, from_value};

/// An append-only set of entries.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Stream {
    inner: keepstep::Stream,
    run: keepstep::Run,
    context: Py<Context>,
}

impl Stream {
    pub(crate) fn new(inner: keepstep::Stream, run: &keepstep::Run, context: Py<Context>) -> Self {
        Self { inner, run: run.clone(), context }
    }

    fn told(&self) -> String {
        format!("stream {:?} of run {:?}", self.inner.name(), self.run.name())
    }
}

#[pymethods]
impl Stream {
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn put(&self, py: Python<'_>, id: &str, value: &Bound<'_, PyAny>) -> PyResult<Receipt> {
        let value = Walk::new(self.context.get()).value(value, id)?;
        let receipt = py.detach(|| self.inner.put(id, value)).or_raise(py)?;
        let reference = format!("{}/stream {}: {id}", self.run.name(), self.inner.name());
        Ok(Receipt::new(receipt, self.run.store(), &reference.into()))
    }

    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = py.detach(|| self.inner.read()).or_raise(py)?;
        dict_of(py, &self.told(), &view)
    }

    fn freeze<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = py.detach(|| self.inner.freeze()).or_raise(py)?;
        dict_of(py, &self.told(), &view)
    }

    fn drop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.hide()).or_raise(py)
    }
}

/// The entries by id. What is in doubt or lost is an error: who reads must not take the rest for the whole.
fn dict_of<'py>(py: Python<'py>, stream: &str, view: &keepstep::StreamView) -> PyResult<Bound<'py, PyDict>> {
    if !view.lost.is_empty() {
        const TOLD_MAX: usize = 5;
        let told = view.lost.iter().take(TOLD_MAX);
        let mut places: Vec<String> =
            told.map(|lost| format!("{} at byte {}: {}", lost.path, lost.offset, lost.found)).collect();
        if view.lost.len() > TOLD_MAX {
            places.push(format!("and {} more", view.lost.len() - TOLD_MAX));
        }
        let (count, places) = (view.lost.len(), places.join("; "));
        let message = format!(
            "{count} of the entries of {stream} cannot be read ({places}): `keepstep verify` says what was lost"
        );
        return Err(exception(py, "Damaged", message));
    }
    if !view.conflicts.is_empty() {
        let ids: Vec<&str> = view.conflicts.iter().map(|conflict| conflict.id.as_str()).collect();
        let message =
            format!("{stream} has several values under one id: {}; an entry never changes", ids.join(", "));
        return Err(exception(py, "BadInput", message));
    }
    let entries = PyDict::new(py);
    for (id, value) in &view.entries {
        entries.set_item(id, from_value(py, value)?)?;
    }
    Ok(entries)
}
