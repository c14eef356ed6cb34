//! A stream: entries that many processes put, frozen once.

use std::sync::{Mutex, PoisonError};

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

    /// The entries by id, and what is left out of them. Without `partial`, it is an error if anything is left out.
    fn read<'py>(&self, py: Python<'py>, partial: bool) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
        let view = py.detach(|| self.inner.read()).or_raise(py)?;
        self.entries(py, &view, partial)
    }

    /// As `read`, of the stream that is frozen from then on.
    fn freeze<'py>(&self, py: Python<'py>, partial: bool) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
        let freeze = || if partial { self.inner.freeze_without_lost() } else { self.inner.freeze() };
        let view = py.detach(freeze).or_raise(py)?;
        self.entries(py, &view, partial)
    }

    /// The values of each id that has several.
    fn conflicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = py.detach(|| self.inner.read()).or_raise(py)?;
        let conflicts = PyDict::new(py);
        for conflict in &view.conflicts {
            let values = conflict.values.iter().map(|(_, value)| from_value(py, value));
            conflicts.set_item(&conflict.id, values.collect::<PyResult<Vec<_>>>()?)?;
        }
        Ok(conflicts)
    }

    fn drop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.hide()).or_raise(py)
    }

    /// A reader that gives what is new at each look.
    fn reader(&self, py: Python<'_>) -> StreamReader {
        let stream =
            Stream { inner: self.inner.clone(), run: self.run.clone(), context: self.context.clone_ref(py) };
        StreamReader { reader: Mutex::new(self.inner.reader()), stream }
    }
}

/// Reads a stream again and again, each time only what is new.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct StreamReader {
    reader: Mutex<keepstep::StreamReader>,
    stream: Stream,
}

#[pymethods]
impl StreamReader {
    /// What is new: the entries, whether they are all that there are, what is left out, and how many entries the stream
    /// has. Without `partial`, it is an error if anything is left out; the next look then begins from the start.
    fn look<'py>(
        &self,
        py: Python<'py>,
        partial: bool,
    ) -> PyResult<(Bound<'py, PyDict>, bool, Vec<String>, usize)> {
        // A panic in another thread leaves a reader that can be used.
        let lock = || self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = py.detach(|| {
            let mut reader = lock();
            reader.look().map(|news| (news, reader.entry_count()))
        });
        let (news, count) = looked.or_raise(py)?;
        let is_from_start = news.is_from_start;
        let mut view = keepstep::StreamView::default();
        (view.entries, view.conflicts, view.lost) = (news.entries, news.conflicts, news.lost);
        (view.is_frozen, view.is_hidden) = (news.is_frozen, news.is_hidden);
        let told = self.stream.entries(py, &view, partial);
        let (entries, left_out) = told.inspect_err(|_| py.detach(|| lock().forget()))?;
        Ok((entries, is_from_start, left_out, count))
    }

    /// The value of one entry, and whether there is one.
    fn value<'py>(&self, py: Python<'py>, id: &str) -> PyResult<(bool, Option<Bound<'py, PyAny>>)> {
        let value = py.detach(|| self.stream.inner.value_of(id)).or_raise(py)?;
        Ok((value.is_some(), value.map(|value| from_value(py, &value)).transpose()?))
    }

    /// Forgets what was read: the next look gives all entries again.
    fn forget(&self, py: Python<'_>) {
        py.detach(|| self.reader.lock().unwrap_or_else(PoisonError::into_inner).forget());
    }
}

impl Stream {
    fn entries<'py>(
        &self,
        py: Python<'py>,
        view: &keepstep::StreamView,
        partial: bool,
    ) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
        let left_out = [("Damaged", self.lost(view)), ("BadInput", self.in_conflict(view))];
        let left_out = left_out.into_iter().filter_map(|(name, told)| Some((name, told?)));
        let left_out: Vec<(&str, String)> = left_out.collect();
        // A caller that did not ask for a part must not take the rest for the whole.
        if let Some((name, told)) = left_out.first().filter(|_| !partial) {
            return Err(exception(py, name, format!("{told}; `read(partial=True)` gives the other entries")));
        }
        let entries = PyDict::new(py);
        for (id, value) in &view.entries {
            entries.set_item(id, from_value(py, value)?)?;
        }
        Ok((entries, left_out.into_iter().map(|(_, told)| told).collect()))
    }

    /// What cannot be read.
    fn lost(&self, view: &keepstep::StreamView) -> Option<String> {
        let places =
            view.lost.iter().map(|lost| format!("{} at byte {}: {}", lost.path, lost.offset, lost.found));
        let (count, stream) = (view.lost.len(), self.told(view));
        (count > 0).then(|| {
            let places = shortened(places.collect());
            format!("{count} of the entries of {stream} cannot be read ({places}): `keepstep verify` says what was lost")
        })
    }

    /// The ids that have several values.
    fn in_conflict(&self, view: &keepstep::StreamView) -> Option<String> {
        let ids: Vec<String> = view.conflicts.iter().map(|conflict| format!("{:?}", conflict.id)).collect();
        let stream = self.told(view);
        (!ids.is_empty()).then(|| {
            let ids = shortened(ids);
            format!("{stream} has several values under one id, which `conflicts()` gives: {ids}")
        })
    }

    /// The stream, as messages name it. Freezing one is done even if the call that did it raises.
    fn told(&self, view: &keepstep::StreamView) -> String {
        let frozen = if view.is_frozen { "the frozen " } else { "" };
        format!("{frozen}stream {:?} of run {:?}", self.inner.name(), self.run.name())
    }
}

/// The first of many, as text.
fn shortened(mut all: Vec<String>) -> String {
    const TOLD_MAX: usize = 5;
    let more = all.len().saturating_sub(TOLD_MAX);
    all.truncate(TOLD_MAX);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join("; ")
}
