//! Tables for other programs, by the Arrow C stream interface: read in batches as they are asked for, without a copy.
//!
//! No more than a few batches are held, however many episodes there are. Nothing of Python's is touched while reading; only
//! behind the last row its log is told which episodes could not be read.

mod ahead;
mod batch;
mod cells;
mod columns;
mod maker;
mod notes;
mod rows;
mod says;
mod shares;
mod steps;
mod tokens;

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::{OrRaise, bad_input};
use crate::listing::warn;
use crate::run::Run;
use columns::{Column, Of};
use rows::Rows;

/// A table of a run. Each time it is read, it is read anew.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Table {
    run: Option<keepstep::Run>,
    of: Of,
    columns: Vec<Column>,
    schema: SchemaRef,
}

#[pymethods]
impl Table {
    /// A table of `episodes`, `steps`, `tokens` or `notes`; of no run it is empty.
    #[new]
    #[pyo3(signature = (run, of, columns))]
    fn new(
        py: Python<'_>,
        run: Option<&Bound<'_, Run>>,
        of: &str,
        columns: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let Some(of) = Of::parse(of) else {
            let value = format!("is {of:?}");
            return Err(bad_input("of", &value, "give \"episodes\", \"steps\", \"tokens\" or \"notes\""))
                .or_raise(py);
        };
        let columns = chosen(of, columns).or_raise(py)?;
        let fields: Vec<_> = columns.iter().map(Column::field).collect();
        let run = run.map(|run| run.get().inner.clone());
        Ok(Self { run, of, columns, schema: Arc::new(Schema::new(fields)) })
    }

    #[getter]
    fn of(&self) -> &'static str {
        self.of.name()
    }

    #[getter]
    fn columns(&self) -> Vec<&'static str> {
        self.columns.iter().map(|column| column.name).collect()
    }

    fn arrow_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema).map_err(told)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn arrow_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let begin = || Rows::new(self.run.as_ref(), self.of, &self.columns, &self.schema);
        let mut rows = py.detach(begin).or_raise(py)?;
        warn(rows.take_troubles());
        let stream = FFI_ArrowArrayStream::new(Box::new(rows));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

fn told(error: arrow_schema::ArrowError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

/// The columns that were asked for, in that order; all if none were named.
fn chosen(of: Of, names: Option<Vec<String>>) -> keepstep::Result<Vec<Column>> {
    let all = of.columns();
    let Some(names) = names else { return Ok(all.to_vec()) };
    let mut chosen: Vec<Column> = Vec::with_capacity(names.len());
    for name in names {
        let known = || all.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let Some(column) = all.iter().find(|column| column.name == name) else {
            let value = format!("has {name:?}, which is not in {}", of.name());
            return Err(bad_input("columns", &value, &format!("give some of {}", known())));
        };
        if chosen.iter().any(|had| had.name == column.name) {
            return Err(bad_input("columns", &format!("has {name:?} twice"), "name each once"));
        }
        chosen.push(*column);
    }
    match chosen.is_empty() {
        true => Err(bad_input("columns", "is empty", "name some, or give None for all")),
        false => Ok(chosen),
    }
}
