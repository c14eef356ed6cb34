//! Makes the rows of a share, a batch at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use keepstep::read::{Catalog, End};
use keepstep::{Listed, Result, Run};

use super::batch::Batch;
use super::cells::Cell;
use super::columns::{Column, Of};
use super::says::{error_text, name_cell, policy_text};
use super::shares::{Piece, Plan, Share};
use super::steps::{Rowed, StepColumns};
use crate::view::policies_of;

/// What was found when the reading of a table began. Whoever makes rows of it makes them of the same.
pub(super) struct Look {
    pub(super) run: Run,
    pub(super) catalog: Catalog,
    pub(super) listed: Vec<Listed>,
    pub(super) of: Of,
    pub(super) columns: Vec<Column>,
    pub(super) schema: SchemaRef,
}

impl Look {
    /// The next share of what is left.
    pub(super) fn share(&self, plan: &mut Plan) -> Option<Share> {
        match self.of {
            Of::Steps | Of::Tokens => plan.of_steps(&self.listed),
            Of::Episodes => plan.of_episodes(&self.listed),
            Of::Notes => None,
        }
    }

    /// An attempt; nothing if it cannot be read, which is told when all is read.
    fn view_of(&self, listed: &Listed, troubles: &mut Vec<String>) -> Result<Option<keepstep::View>> {
        match self.run.store().view_of(&self.catalog, &listed.key) {
            Err(error) if error.is_of_one_file() => {
                // What a list could see is told already.
                if listed.trouble.is_none() {
                    let name = keepstep::refs::name_of(listed);
                    troubles.push(format!("{name}: {error}"));
                }
                Ok(None)
            }
            view => view.map(Some),
        }
    }
}

/// An episode whose steps are being read.
struct Reading {
    at: usize,
    reference: String,
    view: keepstep::View,
}

/// Makes the rows of one share after another.
pub(super) struct Maker {
    look: Arc<Look>,
    says: StepColumns,
    /// The episode that was read last: the next share may go on with it.
    reading: Option<Reading>,
    left: std::vec::IntoIter<Piece>,
    /// The rest of a piece, if a batch was full.
    rest: Option<Piece>,
    /// Episodes that cannot be read, and why. They do not keep the others from being read.
    troubles: Vec<String>,
}

impl Maker {
    pub(super) fn new(look: &Arc<Look>) -> Self {
        Self {
            look: Arc::clone(look),
            says: StepColumns::new(look.of, &look.columns),
            reading: None,
            left: Share::new().into_iter(),
            rest: None,
            troubles: Vec::new(),
        }
    }

    /// Begins a share. The one before is over.
    pub(super) fn begin(&mut self, share: Share) {
        (self.left, self.rest) = (share.into_iter(), None);
    }

    /// What is wrong with the share that was made.
    pub(super) fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// The next batch of the share; nothing if it is over, or if nobody wants it any more.
    pub(super) fn batch(
        &mut self,
        is_stopped: &AtomicBool,
    ) -> std::result::Result<Option<RecordBatch>, ArrowError> {
        let mut batch = Batch::new(&self.look.columns, &self.look.schema);
        while !batch.is_full() && !is_stopped.load(Ordering::Relaxed) {
            let Some(piece) = self.rest.take().or_else(|| self.left.next()) else { break };
            let made = match self.look.of {
                Of::Episodes => self.episode(&piece, &mut batch),
                _ => self.steps(piece, &mut batch, is_stopped),
            };
            made.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        }
        batch.finish()
    }

    /// Adds the steps of a piece, up to the end of the batch.
    fn steps(&mut self, piece: Piece, batch: &mut Batch, is_stopped: &AtomicBool) -> Result<()> {
        let Piece { at, steps } = piece;
        let look = Arc::clone(&self.look);
        let listed = &look.listed[at];
        if self.reading.as_ref().is_none_or(|it| it.at != at) {
            self.reading = None;
            let Some(view) = look.view_of(listed, &mut self.troubles)? else { return Ok(()) };
            let reference = keepstep::refs::reference_of(listed).to_string();
            self.reading = Some(Reading { at, reference, view });
        }
        let Some(Reading { view, reference, .. }) = &self.reading else { return Ok(()) };
        let (end, says) = (steps.end.min(view.steps()), &self.says);
        let (mut next, rowed) = (steps.start, Rowed { listed, reference });
        view.read_steps(steps.start..end, says.fields.iter().copied(), &mut |step| {
            next += 1;
            if says.wants(&step) {
                batch.row(|column, builder| says.fill(column, builder, &rowed, &step));
            }
            !batch.is_full() && !is_stopped.load(Ordering::Relaxed)
        })?;
        self.rest = (next < end).then_some(Piece { at, steps: next..steps.end });
        Ok(())
    }

    fn episode(&mut self, piece: &Piece, batch: &mut Batch) -> Result<()> {
        let look = Arc::clone(&self.look);
        let listed = &look.listed[piece.at];
        let mut opened = Opened { look: &look, listed, troubles: &mut self.troubles, view: None, end: None };
        let cells = look.columns.iter().map(|column| opened.cell(column.name));
        batch.cells(cells.collect::<Result<_>>()?);
        Ok(())
    }
}

/// An episode, opened only if a column asks for what the list does not say.
struct Opened<'s> {
    look: &'s Look,
    listed: &'s Listed,
    troubles: &'s mut Vec<String>,
    /// Once it is opened; nothing in it if it cannot be read.
    view: Option<Option<keepstep::View>>,
    end: Option<End>,
}

impl Opened<'_> {
    fn view(&mut self) -> Result<Option<&keepstep::View>> {
        Ok(match &mut self.view {
            Some(view) => view.as_ref(),
            none => none.insert(self.look.view_of(self.listed, self.troubles)?).as_ref(),
        })
    }

    fn end(&mut self) -> Result<&End> {
        if self.end.is_none() {
            let has_ended = self.listed.summary.why.is_some();
            let view = if has_ended { self.view()? } else { None };
            let end = view.map(keepstep::View::ending).transpose();
            let end = match end {
                Err(error) if error.is_of_one_file() => None,
                end => end?.flatten(),
            };
            self.end = Some(end.unwrap_or_default());
        }
        Ok(self.end.get_or_insert_default())
    }

    fn cell(&mut self, name: &str) -> Result<Cell> {
        let (listed, summary) = (self.listed, &self.listed.summary);
        Ok(match name {
            "id" => Cell::Text(listed.key.episode.to_string()),
            "run" => Cell::text(summary.run.as_deref()),
            "state" => Cell::text(Some(listed.state())),
            "why" => Cell::text(summary.why.as_deref()),
            "limit" => Cell::text(self.end()?.limit.as_deref()),
            "said_by" => Cell::text(self.end()?.said_by.as_deref()),
            "error" => self.end()?.error.as_ref().map_or(Cell::Null, |error| Cell::Text(error_text(error))),
            "steps" => Cell::Int(summary.steps as i64),
            "reward" => Cell::float(summary.total_reward),
            "policies" => match self.view()? {
                Some(view) => Cell::Texts(policies_of(view)?.iter().map(policy_text).collect()),
                None => Cell::Null,
            },
            "first_time" => Cell::int(summary.first_time),
            "last_time" => Cell::int(summary.last_time),
            "parent" => {
                let begin = self.view()?.map(keepstep::View::begin).transpose()?.flatten();
                Cell::text(begin.and_then(|begin| begin.parent).as_deref())
            }
            name => name_cell(name, listed),
        })
    }
}
