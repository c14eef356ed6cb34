//! JSON Lines: one line for each step, with the names of its episode, so that each line can be understood alone.
//! Calls and notes are lines too, on request; `kind` says what a line is.
//!
//! At most two steps are in memory at a time, however long the episodes are.

use std::fmt::Write as _;
use std::io;

use keepstep_format::fields;
use keepstep_format::value::Value;

use super::json::{write_text, write_value};
use crate::error::{Doing, Result};
use crate::read::{
    Described, EpisodeEvent, Exported, NoteIndex, NoteKey, NoteSaid, NoteTarget, RecordedStep,
};
use crate::store::{Listed, View};

/// How lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct JsonlOptions {
    /// If a prompt continues the one of the step before, write only its new part.
    pub only_new: bool,
    /// Write calls as lines too, each before the step that it was made for.
    pub calls: bool,
}

impl JsonlOptions {
    /// Sets whether to write only the new part of a prompt that continues the one before.
    pub fn only_new(mut self, only_new: bool) -> Self {
        self.only_new = only_new;
        self
    }

    /// Sets whether to write calls as lines too.
    pub fn calls(mut self, calls: bool) -> Self {
        self.calls = calls;
        self
    }
}

/// What was written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportCounts {
    /// Episodes.
    pub episodes: u64,
    /// Steps: one line each.
    pub steps: u64,
    /// Calls, and what else is recorded beside the steps: one line each.
    pub calls: u64,
    /// Notes: one line each.
    pub notes: u64,
    /// Notes that were left out: they do not count for the attempt, such as one that was made on an earlier attempt
    /// from outside.
    pub notes_elsewhere: u64,
    /// Bytes.
    pub bytes: u64,
    /// Turns without a result. They are not steps, and are left out.
    pub pending: u64,
    /// Steps with a lost field, and places where records are missing.
    pub damaged: u64,
}

/// Writes episodes as JSON Lines.
///
/// ```
/// use keepstep::EpisodeFilter;
/// use keepstep::export::{Jsonl, JsonlOptions};
///
/// # let dir = std::env::temp_dir().join(format!("keepstep-doc-jsonl-{}", std::process::id()));
/// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
/// # let episode = run.episode(keepstep::EpisodeName::task("shop-17"))?;
/// # episode.step(keepstep::Step::new().action("buy").reward(1.0))?;
/// # episode.end(keepstep::Why::Finished, keepstep::Ending::default())?.wait()?;
/// let mut jsonl = Jsonl::new(Vec::new(), JsonlOptions::default());
/// let store = run.store();
/// for listed in run.episodes(&EpisodeFilter::default())? {
///     let view = store.view(&listed.key.episode)?;
///     jsonl.episode(&listed, &view, &mut || {})?;
/// }
/// let (lines, counts) = jsonl.finish()?;
/// assert_eq!((counts.steps, lines.ends_with(b"\n")), (1, true));
/// # drop((episode, run));
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok::<(), keepstep::Error>(())
/// ```
#[derive(Debug)]
pub struct Jsonl<W> {
    out: W,
    options: JsonlOptions,
    line: String,
    counts: ExportCounts,
}

impl<W: io::Write> Jsonl<W> {
    /// Writes to `out`.
    pub fn new(out: W, options: JsonlOptions) -> Self {
        Self { out, options, line: String::new(), counts: ExportCounts::default() }
    }

    /// Writes an episode: the attempt of this view, with its inherited steps. `after` is called after each step.
    pub fn episode(&mut self, listed: &Listed, view: &View, after: &mut dyn FnMut()) -> Result<()> {
        let names = names(listed);
        let mut before: Option<Value> = None;
        let mut gaps = 0;
        for told in view.events() {
            match told? {
                EpisodeEvent::Step(step) => {
                    self.step(&names, &step, view, before.as_ref())?;
                    before = step.prompt;
                    after();
                }
                EpisodeEvent::Gap(_) => gaps += 1,
                EpisodeEvent::Damaged(_) => self.counts.damaged += 1,
                event => self.beside(&names, event.describe())?,
            }
        }
        // Some missing records leave no gap.
        self.counts.damaged += gaps.max(view.missing().len() as u64);
        self.counts.pending += u64::from(view.pending()?.is_some());
        self.counts.episodes += 1;
        Ok(())
    }

    /// Writes the notes on an episode that count for this view ([`View::counting`]): for each target, name and source
    /// the newest.
    pub fn notes(&mut self, listed: &Listed, view: &View, index: &NoteIndex) -> Result<()> {
        let names = names(listed);
        let (notes, _) = index.episode(&view.id())?;
        let counting = view.counting(&notes);
        self.counts.notes_elsewhere += (notes.iter().count() - counting.len()) as u64;
        for (key, said) in &counting {
            self.note(&names, key, said)?;
        }
        Ok(())
    }

    /// Writes what is buffered, and returns the writer.
    pub fn finish(mut self) -> Result<(W, ExportCounts)> {
        self.out.flush().doing("write", "the export")?;
        Ok((self.out, self.counts))
    }

    fn step(&mut self, names: &str, step: &RecordedStep, view: &View, before: Option<&Value>) -> Result<()> {
        self.line.clear();
        self.line.push_str(names);
        let index = u64::try_from(step.index).unwrap_or(0);
        // Writing to a text cannot fail.
        let _ = write!(self.line, ",\"recorded_in\":{},\"index\":{}", view.attempt_of(index), step.index);
        self.fields(step, before);
        self.end_line()?;
        self.counts.steps += 1;
        self.counts.damaged += u64::from(!step.damaged.is_empty());
        Ok(())
    }

    fn end_line(&mut self) -> Result<()> {
        self.line.push_str("}\n");
        self.counts.bytes += self.line.len() as u64;
        self.out.write_all(self.line.as_bytes()).doing("write", "the export")
    }

    /// A line for what is beside the steps, if there is to be one.
    fn beside(&mut self, names: &str, event: Described) -> Result<()> {
        let is_wanted = match event.exported {
            Exported::Always => true,
            Exported::WithCalls => self.options.calls,
            Exported::Never => false,
        };
        if !is_wanted {
            return Ok(());
        }
        self.line.clear();
        self.line.push_str(names);
        let (index, others): (Vec<_>, Vec<_>) =
            event.fields.into_iter().partition(|(name, _)| *name == "index");
        let kind = ("kind", Value::from(event.what.to_uppercase()));
        for (name, value) in index.into_iter().chain([kind]).chain(others) {
            self.field(name, Some(&value));
        }
        self.field("damaged", damaged(&event.damaged).as_ref());
        self.end_line()?;
        self.counts.calls += 1;
        self.counts.damaged += u64::from(!event.damaged.is_empty());
        Ok(())
    }

    fn note(&mut self, names: &str, key: &NoteKey, said: &NoteSaid) -> Result<()> {
        let NoteTarget { attempt, step, .. } = key.target;
        self.line.clear();
        self.line.push_str(names);
        self.field("on_attempt", attempt.map(|attempt| Value::Int(i64::from(attempt))).as_ref());
        self.field("index", step.map(|step| Value::Int(step as i64)).as_ref());
        self.field("kind", Some(&Value::from("NOTE")));
        self.field("time_us", Some(&Value::Int(said.time)));
        self.field("name", Some(&Value::from(key.name.as_str())));
        self.field("value", Some(&said.value));
        self.field("source", Some(&Value::from(key.source.as_str())));
        self.end_line()?;
        self.counts.notes += 1;
        Ok(())
    }

    fn fields(&mut self, step: &RecordedStep, before: Option<&Value>) {
        self.field("kind", Some(&Value::from(step.kind.name())));
        self.field("time_us", step.time.map(Value::Int).as_ref());
        match step.prompt.as_ref().and_then(|prompt| self.new_in(before?, prompt)) {
            Some((repeated, new)) => {
                self.field("prompt_repeats", Some(&Value::Int(repeated as i64)));
                self.field("prompt_new", Some(&new));
            }
            None => self.field("prompt", step.prompt.as_ref()),
        }
        for (field, value) in step.fields().filter(|(field, _)| field.number != fields::PROMPT) {
            self.field(field.name, Some(&value));
        }
        self.field("damaged", damaged(&step.damaged).as_ref());
    }

    /// A field that was not recorded is left out; it is not null.
    fn field(&mut self, name: &str, value: Option<&Value>) {
        if let Some(value) = value {
            let _ = write!(self.line, ",\"{name}\":");
            let _ = write_value(&mut self.line, value);
        }
    }

    /// How much of the previous prompt is repeated, and what comes after it.
    fn new_in(&self, before: &Value, prompt: &Value) -> Option<(usize, Value)> {
        if !self.options.only_new {
            return None;
        }
        match (before.plain(), prompt.plain()) {
            (Value::List(before), Value::List(now)) if !before.is_empty() && now.starts_with(before) => {
                Some((before.len(), Value::list(now[before.len()..].to_vec())))
            }
            (Value::Str(before), Value::Str(now)) if !before.is_empty() => {
                let new = now.strip_prefix(&**before)?;
                Some((before.chars().count(), Value::from(new)))
            }
            _ => None,
        }
    }
}

/// The names of fields that are lost, if any are.
fn damaged(names: &[&'static str]) -> Option<Value> {
    (!names.is_empty()).then(|| Value::list(names.iter().map(|name| Value::from(*name))))
}

/// The fields that begin every line of an episode.
fn names(listed: &Listed) -> String {
    let (key, summary) = (&listed.key, &listed.summary);
    let mut out = String::from("{\"run\":");
    let _ = write_text(&mut out, summary.run.as_deref().unwrap_or_default());
    let _ = write!(out, ",\"generation\":{},\"task\":", listed.generation.number);
    let _ = write_text(&mut out, summary.task.as_deref().unwrap_or_default());
    let (iteration, sample) = (summary.iteration.unwrap_or(0), summary.sample.unwrap_or(0));
    let _ = write!(out, ",\"iteration\":{iteration},\"sample\":{sample}");
    let _ = write!(out, ",\"episode\":\"{}\",\"attempt\":{},\"ending\":", key.episode, key.attempt);
    let _ = write_text(&mut out, listed.state());
    out
}
