//! A batch in the making: rows are added until there are enough of them.

use std::mem;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use super::cells::{Builder, Cell};
use super::columns::Column;

/// A batch has at most so many rows,
pub(super) const ROWS_MAX: usize = 4096;
/// and about so many bytes: one more row may pass.
pub(super) const BYTES_MAX: usize = 8 << 20;

/// A batch in the making.
pub(super) struct Batch {
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
    bytes: usize,
}

impl Batch {
    pub(super) fn new(columns: &[Column], schema: &SchemaRef) -> Self {
        let builders = columns.iter().map(|column| Builder::new(column.form)).collect();
        Self { schema: schema.clone(), builders, rows: 0, bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    /// Adds a row. `fill` adds a cell to a column, by its number, and says how many bytes that takes.
    pub(super) fn row(&mut self, mut fill: impl FnMut(usize, &mut Builder) -> usize) {
        let cells = self.builders.iter_mut().enumerate().map(|(at, builder)| fill(at, builder));
        self.bytes += cells.sum::<usize>();
        self.rows += 1;
    }

    /// Adds a row of cells.
    pub(super) fn cells(&mut self, mut cells: Vec<Cell>) {
        self.row(|at, builder| builder.push(mem::replace(&mut cells[at], Cell::Null)));
    }

    /// The batch; nothing if it has no rows.
    pub(super) fn finish(mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.rows == 0 {
            return Ok(None);
        }
        let columns = self.builders.iter_mut().map(Builder::finish).collect();
        RecordBatch::try_new(self.schema, columns).map(Some)
    }
}
