//! The rows of a table, read from the store as they are asked for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use keepstep::{EpisodeFilter, Result, Run};

use super::ahead::{Ahead, Next};
use super::batch::Batch;
use super::columns::{Column, Of};
use super::maker::{Look, Maker};
use super::notes::NoteRows;
use crate::listing::{troubles_of, warn};

/// Rows, in batches.
pub(super) struct Rows {
    schema: SchemaRef,
    source: Option<Source>,
    /// What is wrong, as far as it is known and was not told.
    unread: Vec<String>,
}

/// Where rows come from.
struct Source {
    look: Arc<Look>,
    notes: Option<NoteRows>,
    /// `None` only while it is let go.
    ahead: Option<Ahead>,
    maker: Maker,
    /// True while the maker has a share.
    is_making: bool,
}

impl Rows {
    pub(super) fn new(run: Option<&Run>, of: Of, columns: &[Column], schema: &SchemaRef) -> Result<Self> {
        let mut unread = Vec::new();
        let source = run.map(|run| Source::new(run, of, columns, schema, &mut unread)).transpose()?;
        Ok(Self { schema: schema.clone(), source, unread })
    }

    /// What is wrong, as far as it is known and was not told: now, or when all is read.
    pub(super) fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unread)
    }

    /// Reads a batch. Nothing if there are no more rows.
    fn batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        match &mut self.source {
            Some(source) => source.batch(&mut self.unread),
            None => Ok(None),
        }
    }
}

impl Iterator for Rows {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch();
        if !matches!(batch, Ok(Some(_))) {
            // Behind an error, or the last row, there is nothing.
            self.source = None;
            warn(self.take_troubles());
        }
        batch.transpose()
    }
}

impl RecordBatchReader for Rows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Source {
    fn new(
        run: &Run,
        of: Of,
        columns: &[Column],
        schema: &SchemaRef,
        unread: &mut Vec<String>,
    ) -> Result<Self> {
        let mut catalog = run.store().catalog()?;
        // Notes may be on attempts that do not count any more.
        let filter = EpisodeFilter::default().all_attempts(of == Of::Notes);
        let listed = run.episodes_in(&mut catalog, &filter)?;
        unread.extend(troubles_of(&catalog, &listed));
        let notes = (of == Of::Notes).then(|| NoteRows::of(run, &listed, unread)).transpose()?;
        let (run, columns, schema) = (run.clone(), columns.to_vec(), schema.clone());
        let look = Arc::new(Look { run, catalog, listed, of, columns, schema });
        let (ahead, maker) = (Some(Ahead::new(&look)), Maker::new(&look));
        Ok(Self { look, notes, ahead, maker, is_making: false })
    }

    fn batch(&mut self, unread: &mut Vec<String>) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        let is_ours = self.look.run.store().check_process();
        is_ours.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        if let Some(notes) = &mut self.notes {
            let mut batch = Batch::new(&self.look.columns, &self.look.schema);
            notes.fill(&self.look.columns, &mut batch);
            return batch.finish();
        }
        loop {
            if self.is_making {
                if let Some(batch) = self.maker.batch(&AtomicBool::new(false))? {
                    return Ok(Some(batch));
                }
                self.is_making = false;
                tell(unread, self.maker.take_troubles());
            }
            match self.ahead.as_mut().map_or(Next::Over, Ahead::next) {
                Next::Yours(share) => {
                    self.maker.begin(share);
                    self.is_making = true;
                }
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::Told(troubles) => tell(unread, troubles),
                Next::Failed(error) => return Err(error),
                Next::Over => return Ok(None),
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.look.run.store().check_process().is_err() {
            self.ahead.take().into_iter().for_each(Ahead::forget);
        }
    }
}

/// Each is told once: an episode in two shares that cannot be read is the last trouble of one and the first of the next.
fn tell(unread: &mut Vec<String>, more: Vec<String>) {
    for said in more {
        if unread.last() != Some(&said) {
            unread.push(said);
        }
    }
}
