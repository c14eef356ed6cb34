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
use crate::read::{Call, EpisodeEvent, NoteIndex, NoteKey, NoteSaid, NoteTarget, RecordedStep};
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
pub struct JsonlCounts {
    /// Episodes.
    pub episodes: u64,
    /// Steps: one line each.
    pub steps: u64,
    /// Calls: one line each.
    pub calls: u64,
    /// Notes: one line each.
    pub notes: u64,
    /// Notes that were left out: on a step or an attempt that is not in the view.
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
    counts: JsonlCounts,
}

impl<W: io::Write> Jsonl<W> {
    /// Writes to `out`.
    pub fn new(out: W, options: JsonlOptions) -> Self {
        Self { out, options, line: String::new(), counts: JsonlCounts::default() }
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
                EpisodeEvent::Call(call) if self.options.calls => self.call(&names, &call)?,
                EpisodeEvent::Gap(_) => gaps += 1,
                EpisodeEvent::Damaged(_) => self.counts.damaged += 1,
                _ => {}
            }
        }
        // Some missing records leave no gap.
        self.counts.damaged += gaps.max(view.missing().len() as u64);
        self.counts.pending += u64::from(view.pending()?.is_some());
        self.counts.episodes += 1;
        Ok(())
    }

    /// Writes the notes on an episode that count for this view: for each name and source the newest, on the episode,
    /// on an attempt that the view includes, or on one of its steps.
    pub fn notes(&mut self, listed: &Listed, view: &View, index: &NoteIndex) -> Result<()> {
        let names = names(listed);
        let (notes, _) = index.episode(&view.id())?;
        for (key, said) in notes.iter() {
            let Some(newest) = said.last() else { continue };
            if !is_about(view, &key.target) {
                self.counts.notes_elsewhere += 1;
                continue;
            }
            self.note(&names, key, newest)?;
        }
        Ok(())
    }

    /// Writes what is buffered, and returns the writer.
    pub fn finish(mut self) -> Result<(W, JsonlCounts)> {
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

    fn call(&mut self, names: &str, call: &Call) -> Result<()> {
        self.line.clear();
        self.line.push_str(names);
        self.field("index", call.index.map(Value::Int).as_ref());
        self.field("kind", Some(&Value::from("CALL")));
        self.field("time_us", call.time.map(Value::Int).as_ref());
        self.field("name", call.name.as_deref().map(Value::from).as_ref());
        self.field("key", call.key.as_deref().map(Value::from).as_ref());
        self.field("ordinal", call.ordinal.map(Value::Int).as_ref());
        self.field("arguments", call.arguments.as_ref());
        self.field("result", call.result.as_ref());
        self.field("error", call.error.as_ref());
        self.field("damaged", damaged(&call.damaged).as_ref());
        self.end_line()?;
        self.counts.calls += 1;
        self.counts.damaged += u64::from(!call.damaged.is_empty());
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

/// True if the target of a note is in a view.
fn is_about(view: &View, target: &NoteTarget) -> bool {
    let has_part = |attempt: u32| {
        attempt == view.number() || view.parts().iter().any(|part| part.span.attempt == attempt)
    };
    match (target.attempt, target.step) {
        (None, None) => true,
        (Some(attempt), None) => has_part(attempt),
        (attempt, Some(step)) => {
            step < view.steps() && attempt.is_none_or(|attempt| view.attempt_of(step) == attempt)
        }
    }
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
