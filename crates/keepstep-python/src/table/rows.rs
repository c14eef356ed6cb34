//! The rows of a table, read from the store as they are asked for.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use keepstep::format::step_fields::{self, Holds, Part, StepField};
use keepstep::read::{Catalog, End, NoteKey, NoteSaid, RecordedStep};
use keepstep::{EpisodeFilter, Id, Listed, Result, Run, Value};

use super::cells::{Builder, Cell, json};
use super::columns::{Column, Form, Of};
use super::tokens;
use crate::listing::{troubles_of, warn};
use crate::view::policies_of;

/// A batch has at most so many rows,
const ROWS_MAX: usize = 4096;
/// and about so many bytes: one more row may pass.
const BYTES_MAX: usize = 8 << 20;

/// Rows, in batches.
pub(super) struct Rows {
    of: Of,
    columns: Vec<Column>,
    schema: SchemaRef,
    source: Option<Source>,
}

/// Where rows come from.
struct Source {
    run: Run,
    catalog: Catalog,
    listed: std::vec::IntoIter<Listed>,
    reading: Option<Reading>,
    notes: VecDeque<(NoteKey, NoteSaid, bool)>,
    /// What the episodes that have notes are called.
    named: HashMap<(Id, Option<u32>), Listed>,
    /// Episodes that cannot be read, and why. They do not keep the others from being read.
    unread: RefCell<Vec<String>>,
}

/// An episode whose steps are being read.
struct Reading {
    listed: Listed,
    reference: String,
    view: keepstep::View,
    next: u64,
}

impl Rows {
    pub(super) fn new(run: Option<&Run>, of: Of, columns: &[Column], schema: &SchemaRef) -> Result<Self> {
        let source = run.map(|run| Source::new(run, of)).transpose()?;
        Ok(Self { of, columns: columns.to_vec(), schema: schema.clone(), source })
    }

    /// What is wrong, as far as it is known and was not told: now, or when all is read.
    pub(super) fn take_troubles(&mut self) -> Vec<String> {
        self.source.as_mut().map(|source| source.unread.take()).unwrap_or_default()
    }

    /// Reads a batch. Nothing if there are no more rows.
    fn batch(&mut self) -> Result<Option<std::result::Result<RecordBatch, ArrowError>>> {
        let Some(source) = &mut self.source else { return Ok(None) };
        let mut builders: Vec<Builder> =
            self.columns.iter().map(|column| Builder::new(column.form)).collect();
        let (mut rows, mut bytes) = (0, 0);
        while rows < ROWS_MAX && bytes < BYTES_MAX {
            let Some(cells) = source.row(self.of, &self.columns)? else { break };
            for (builder, cell) in builders.iter_mut().zip(cells) {
                bytes += cell.bytes();
                builder.push(cell);
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = builders.iter_mut().map(Builder::finish).collect();
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)))
    }
}

impl Iterator for Rows {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch().map_err(|error| ArrowError::ExternalError(Box::new(error)));
        if !matches!(batch, Ok(Some(Ok(_)))) {
            // Behind an error, or the last row, there is nothing.
            warn(self.take_troubles());
            self.source = None;
        }
        batch.transpose().map(std::result::Result::flatten)
    }
}

impl RecordBatchReader for Rows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Source {
    fn new(run: &Run, of: Of) -> Result<Self> {
        let mut catalog = run.store().catalog()?;
        // Notes may be on attempts that do not count any more.
        let filter = EpisodeFilter::default().all_attempts(of == Of::Notes);
        let listed = run.episodes_in(&mut catalog, &filter)?;
        let unread = RefCell::new(troubles_of(&catalog, &listed));
        let mut source = Self {
            run: run.clone(),
            catalog,
            listed: Vec::new().into_iter(),
            reading: None,
            notes: VecDeque::new(),
            named: HashMap::new(),
            unread,
        };
        match of {
            Of::Notes => source.read_notes(listed)?,
            _ => source.listed = listed.into_iter(),
        }
        Ok(source)
    }

    /// Gathers all notes: those of the run, and those that attempts recorded themselves.
    fn read_notes(&mut self, listed: Vec<Listed>) -> Result<()> {
        let index = self.run.notes()?;
        self.unread.get_mut().extend(index.lost().iter().map(ToString::to_string));
        let mut episodes: Vec<Id> = Vec::new();
        for it in listed {
            let id = it.key.episode;
            if episodes.last() != Some(&id) {
                episodes.push(id);
            }
            if it.is_in_force {
                self.named.insert((id, None), it.clone());
            }
            self.named.insert((id, Some(it.key.attempt)), it);
        }
        for id in episodes {
            let (notes, lost) = match index.episode(&id) {
                // Its cards say which of its notes count.
                Err(error) if error.is_of_one_file() => {
                    self.unread.get_mut().push(format!("the notes on episode {id}: {error}"));
                    continue;
                }
                found => found?,
            };
            self.unread.get_mut().extend(lost.iter().map(ToString::to_string));
            for (key, said) in notes.iter() {
                let newest = notes.newest(key);
                self.notes.extend(said.iter().map(|it| (key.clone(), it.clone(), newest == Some(it))));
            }
        }
        Ok(())
    }

    fn row(&mut self, of: Of, columns: &[Column]) -> Result<Option<Vec<Cell>>> {
        match of {
            Of::Episodes => self.episode(columns),
            Of::Steps => self.step(columns, |_| true),
            Of::Tokens => {
                self.step(columns, |step| step.tokens.is_some() || step.damaged.contains(&"tokens"))
            }
            Of::Notes => Ok(self.notes.pop_front().map(|(key, said, counts)| {
                columns.iter().map(|column| self.note_cell(column.name, &key, &said, counts)).collect()
            })),
        }
    }

    fn episode(&mut self, columns: &[Column]) -> Result<Option<Vec<Cell>>> {
        let Some(listed) = self.listed.next() else { return Ok(None) };
        let mut opened = Opened { source: self, listed: &listed, view: None, end: None };
        columns.iter().map(|column| opened.cell(column.name)).collect::<Result<_>>().map(Some)
    }

    /// The next step that is wanted, of whichever episode has one.
    fn step(
        &mut self,
        columns: &[Column],
        is_wanted: impl Fn(&RecordedStep) -> bool,
    ) -> Result<Option<Vec<Cell>>> {
        loop {
            if self.reading.as_ref().is_none_or(|it| it.next >= it.view.steps()) {
                let Some(listed) = self.listed.next() else { return Ok(None) };
                let Some(view) = self.view_of(&listed)? else { continue };
                let reference = keepstep::refs::reference_of(&listed).to_string();
                self.reading = Some(Reading { listed, reference, view, next: 0 });
                continue;
            }
            let Some(reading) = &mut self.reading else { continue };
            let step = reading.view.step(reading.next)?;
            reading.next += 1;
            if is_wanted(&step) {
                return Ok(Some(columns.iter().map(|column| reading.cell(column, &step)).collect()));
            }
        }
    }

    /// An attempt; nothing if it cannot be read, which is told when all is read.
    fn view_of(&self, listed: &Listed) -> Result<Option<keepstep::View>> {
        match self.run.store().view_of(&self.catalog, &listed.key) {
            Err(error) if error.is_of_one_file() => {
                // What a list could see is told already.
                if listed.trouble.is_none() {
                    let name = keepstep::refs::name_of(listed);
                    self.unread.borrow_mut().push(format!("{name}: {error}"));
                }
                Ok(None)
            }
            view => view.map(Some),
        }
    }

    fn note_cell(&self, name: &str, key: &NoteKey, said: &NoteSaid, counts: bool) -> Cell {
        let of = self.named.get(&(key.target.episode, key.target.attempt));
        match name {
            "attempt" => Cell::int(key.target.attempt.map(i64::from)),
            "step" => Cell::int(key.target.step.map(|step| step as i64)),
            "name" => Cell::Text(key.name.clone()),
            "source" => Cell::Text(key.source.clone()),
            "time" => Cell::Int(said.time),
            "counts" => Cell::Truth(counts),
            "value" => Cell::json(Some(&said.value)),
            // A note on something that is not there any more.
            "ref" if of.is_none() => Cell::Text(key.target.episode.to_string()),
            name => of.map_or(Cell::Null, |listed| name_cell(name, listed)),
        }
    }
}

/// What every table says of an episode.
fn name_cell(name: &str, listed: &Listed) -> Cell {
    let summary = &listed.summary;
    match name {
        "ref" => Cell::Text(keepstep::refs::reference_of(listed).to_string()),
        "task" => Cell::text(summary.task.as_deref()),
        "iteration" => Cell::int(summary.iteration),
        "sample" => Cell::int(summary.sample),
        "attempt" => Cell::Int(listed.key.attempt.into()),
        _ => Cell::Null,
    }
}

/// An episode, opened only if a column asks for what the list does not say.
struct Opened<'s> {
    source: &'s Source,
    listed: &'s Listed,
    /// Once it is opened; nothing in it if it cannot be read.
    view: Option<Option<keepstep::View>>,
    end: Option<End>,
}

impl Opened<'_> {
    fn view(&mut self) -> Result<Option<&keepstep::View>> {
        Ok(match &mut self.view {
            Some(view) => view.as_ref(),
            none => none.insert(self.source.view_of(self.listed)?).as_ref(),
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

impl Reading {
    fn cell(&self, column: &Column, step: &RecordedStep) -> Cell {
        match column.name {
            "ref" => Cell::Text(self.reference.clone()),
            "index" => Cell::Int(step.index),
            "kind" => Cell::text(Some(step.kind.name())),
            "time" => Cell::int(step.time),
            "policy_number" => Cell::int(step.policy.as_ref().and_then(Value::as_int)),
            "damaged" => Cell::Texts(step.damaged.iter().map(|&name| name.to_owned()).collect()),
            "arrays" => step.tokens.as_ref().map_or(Cell::Null, tokens::others),
            // The prompt of a step is what was asked; that of its tokens is a list of ids.
            "prompt" | "ids" | "logprobs" | "mask" if column.form != Form::Json => {
                step.tokens.as_ref().map_or(Cell::Null, |found| tokens::list(found, column.name))
            }
            name => match step_fields::named(name) {
                Some(field) => step.get(field.number).map_or(Cell::Null, |value| field_cell(field, &value)),
                None => name_cell(name, &self.listed),
            },
        }
    }
}

fn field_cell(field: &StepField, value: &Value) -> Cell {
    match field.holds {
        Holds::Any if field.part == Part::Failure => Cell::Text(error_text(value)),
        Holds::Any | Holds::Named | Holds::Tokens => Cell::json(Some(value)),
        Holds::Number => Cell::float(value.as_float()),
        Holds::Text => Cell::text(value.as_str()),
        Holds::Terms => terms(Some(value)),
        Holds::Version => Cell::Text(policy_text(value)),
    }
}

fn policy_text(policy: &Value) -> String {
    policy.as_str().map_or_else(|| json(policy), str::to_owned)
}

fn terms(value: Option<&Value>) -> Cell {
    let Some(Value::Map(entries)) = value.map(Value::plain) else { return Cell::Null };
    let term = |(name, number): &(Value, Value)| Some((name.as_str()?.to_owned(), number.as_float()?));
    entries.iter().map(term).collect::<Option<_>>().map_or(Cell::Null, Cell::Terms)
}

/// An error for people: its type and message, then where it came from; or whatever text was recorded.
fn error_text(error: &Value) -> String {
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    match (error.as_str(), part("type"), part("message")) {
        (Some(text), ..) => text.to_owned(),
        (None, Some(kind), Some(message)) => {
            let trace = part("traceback").filter(|trace| !trace.is_empty());
            let trace = trace.map(|trace| format!("\n{trace}")).unwrap_or_default();
            format!("{kind}: {message}{trace}")
        }
        _ => json(error),
    }
}
