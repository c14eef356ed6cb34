//! The events of an episode, one by one, for `show` and `tail`.

use keepstep::Value;
use keepstep::read::{EpisodeEvent, Item, NoteKey, NoteSaid, Record, RecordedStep};
use keepstep_format::fields;

use crate::columns::{columns, cut, padded};
use crate::json::{self, Json};
use crate::numbers::{date, reward};
use crate::screen::{Paint, shown};
use crate::values::{brief, lines};

/// How wide what was said and what was seen are, each, on one line.
const BRIEF_COLUMNS: usize = 56;
/// At least so wide are they where there is little room.
const BRIEF_COLUMNS_MIN: usize = 12;
/// What stands before them: number, kind, reward, and the spaces between.
const BEFORE_COLUMNS: usize = 25;
/// So much is told of an error on one line.
const ERROR_COLUMNS: usize = 200;
/// The name of the call that records a failed try of a turn that stays pending. No caller made it.
const TRY: &str = "keepstep.turn";

/// How wide what was said and what was seen are, each, if a line may have so many columns.
fn brief_columns(width: Option<usize>) -> usize {
    let Some(width) = width else { return BRIEF_COLUMNS };
    (width.saturating_sub(BEFORE_COLUMNS + 2) / 2).clamp(BRIEF_COLUMNS_MIN, BRIEF_COLUMNS)
}

/// What stands over the lines of an episode.
pub(crate) fn titles(width: Option<usize>) -> String {
    let said = padded("SAID", brief_columns(width));
    format!("{:>5}  {:<5}  {:>9}  {said}  {}", "STEP", "KIND", "REWARD", "SEEN")
}

/// One thing that happened, with its fields by name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rendered {
    pub(crate) what: String,
    pub(crate) fields: Vec<(&'static str, Value)>,
    /// The fields that are lost, or of which a part is.
    pub(crate) damaged: Vec<&'static str>,
    /// True for a pending turn of an attempt that records nothing more.
    is_over: bool,
}

impl Rendered {
    fn new(what: &str, damaged: &[&'static str]) -> Self {
        Self { what: what.to_owned(), fields: Vec::new(), damaged: damaged.to_vec(), is_over: false }
    }

    fn with(mut self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        self.fields.extend(value.map(|value| (name, value.into())));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// True if something of it is lost.
    pub(crate) fn is_damaged(&self) -> bool {
        !self.damaged.is_empty() || matches!(&*self.what, "damaged" | "gap")
    }

    /// True for records that only programs want to see: people see the turn itself.
    pub(crate) fn is_bookkeeping(&self) -> bool {
        let is_named = self.get("name").and_then(Value::as_str) == Some(TRY);
        let has_failed = self.get("error").is_some() && self.get("result").is_none();
        self.what == "call" && is_named && has_failed && !self.is_damaged()
    }

    /// As it was read back.
    pub(crate) fn of_event(event: &EpisodeEvent) -> Self {
        let described = event.describe();
        let (what, fields, damaged) = (described.what.to_owned(), described.fields, described.damaged);
        Self { what, fields, damaged, is_over: false }
    }

    /// A turn without a result. If its attempt is over, none will come.
    pub(crate) fn of_pending(step: &RecordedStep, is_over: bool) -> Self {
        let said = EpisodeEvent::Step(Box::new(step.clone()));
        Self { what: "pending".to_owned(), is_over, ..Self::of_event(&said) }
    }

    fn no_result(&self) -> &'static str {
        if self.is_over { "no result: the attempt ended first" } else { "no result yet" }
    }

    /// A note of the run: from another process, or from after the end.
    pub(crate) fn of_note_said(key: &NoteKey, said: &NoteSaid) -> Self {
        Self::new("note", &[])
            .with("index", key.target.step.and_then(|step| i64::try_from(step).ok()))
            .with("time_us", Some(said.time))
            .with("name", Some(key.name.clone()))
            .with("value", Some(said.value.clone()))
            .with("source", Some(key.source.clone()))
            .with("target_attempt", key.target.attempt.map(i64::from))
    }

    /// As it came in.
    pub(crate) fn of_item(item: &Item) -> Self {
        match item {
            Item::Record(record) => of_record(record),
            Item::Damaged(damaged) => Self::of_event(&EpisodeEvent::Damaged(*damaged)),
            Item::Gap(gap) => Self::of_event(&EpisodeEvent::Gap(*gap)),
        }
    }

    /// As JSON; `more` comes first.
    pub(crate) fn json(&self, more: impl IntoIterator<Item = (&'static str, Json)>) -> Json {
        let mut entries: Vec<(String, Json)> =
            more.into_iter().map(|(name, json)| (name.to_owned(), json)).collect();
        entries.push(("what".to_owned(), Json::from(&*self.what)));
        entries.extend(self.fields.iter().map(|(name, value)| ((*name).to_owned(), json::value(value))));
        if !self.damaged.is_empty() {
            entries
                .push(("damaged".to_owned(), Json::list(self.damaged.iter().map(|name| Json::from(*name)))));
        }
        Json::Map(entries)
    }

    /// On one line, of so many columns at most where that is said.
    pub(crate) fn line(&self, paint: Paint, width: Option<usize>) -> String {
        let index =
            self.get("index").and_then(Value::as_int).map_or(String::new(), |index| index.to_string());
        let text = match &*self.what {
            "step" | "first" | "pending" => self.step_line(brief_columns(width)),
            "call" => self.call_line(),
            "note" => self.note_line(),
            _ => {
                let told = self
                    .fields
                    .iter()
                    .filter(|(name, _)| !matches!(*name, "time_us" | "index" | "generation_id"));
                let as_told = |name: &str, value: &Value| match name {
                    "error" => error_of(value),
                    _ => brief(value, BRIEF_COLUMNS),
                };
                let told: Vec<String> =
                    told.map(|(name, value)| format!("{name} {}", as_told(name, value))).collect();
                format!("{}: {}", self.what, told.join(", "))
            }
        };
        let damage = if self.damaged.is_empty() {
            String::new()
        } else {
            format!("  {}", paint.red(&format!("damaged: {}", self.damaged.join(", "))))
        };
        let text = match width {
            Some(width) => cut(&text, width.saturating_sub(7 + columns(&damage)).max(BRIEF_COLUMNS_MIN)),
            None => text.into(),
        };
        let line = format!("{index:>5}  {text}{damage}");
        if self.is_damaged() && self.damaged.is_empty() {
            paint.red(line.trim_end())
        } else {
            line.trim_end().to_owned()
        }
    }

    /// A call as a program has it: `call llm("where") -> "look"`.
    fn call_line(&self) -> String {
        let name = self.get("name").map_or_else(|| "?".to_owned(), |name| brief(name, BRIEF_COLUMNS));
        let key =
            self.get("key").map_or_else(String::new, |key| format!(", key {}", brief(key, BRIEF_COLUMNS)));
        let arguments = self.get("arguments").map_or_else(String::new, arguments_of);
        let came = match (self.get("result"), self.get("error")) {
            (_, Some(error)) => format!("failed: {}", error_of(error)),
            (Some(result), _) => format!("-> {}", result_of(result)),
            _ => String::new(),
        };
        format!("call {name}({arguments}){key} {came}")
    }

    /// A note as people say it: `note score of judge: 0.5`.
    fn note_line(&self) -> String {
        let of = |name: &str| self.get(name).map(|value| brief(value, BRIEF_COLUMNS));
        let name = of("name").unwrap_or_else(|| "?".to_owned());
        let by = of("source").map_or_else(String::new, |source| format!(" by {source}"));
        let on = of("target_attempt").map_or_else(String::new, |attempt| format!(", on attempt ~{attempt}"));
        format!("note {name}{by}{on}: {}", of("value").unwrap_or_default())
    }

    fn step_line(&self, wide: usize) -> String {
        let kind =
            self.get("kind").and_then(Value::as_str).map_or(String::new(), |kind| format!("{kind:<5}  "));
        let reward = self.get("reward").and_then(Value::as_float).map_or("-".to_owned(), reward);
        let said = ["action", "response", "value"].iter().find_map(|name| self.get(name));
        let said = padded(&said.map_or(String::new(), |value| brief(value, wide)), wide);
        let seen = match (&*self.what, self.get("error")) {
            ("pending", _) => format!("({})", self.no_result()),
            (_, Some(error)) => cut(&format!("! {}", error_of(error)), wide).into_owned(),
            _ => self.get("observation").map_or(String::new(), |value| brief(value, wide)),
        };
        format!("{kind}{reward:>9}  {said}  {seen}")
    }

    /// In full.
    pub(crate) fn all_lines(&self, paint: Paint) -> Vec<String> {
        let mut out = Vec::new();
        for (name, value) in &self.fields {
            if let ("time_us", Some(time)) = (*name, value.as_int()) {
                out.push(format!("{} {}", paint.bold("time:"), date(time)));
                continue;
            }
            let mut inner = lines(value, 2);
            // What fits behind its name stands there.
            match inner.as_slice() {
                [one] if one.len() < 100 => {
                    out.push(format!("{} {}", paint.bold(&format!("{name}:")), one.trim_start()))
                }
                _ => {
                    out.push(paint.bold(&format!("{name}:")));
                    out.append(&mut inner);
                }
            }
        }
        if &*self.what == "pending" {
            out.push(format!("{} {}", paint.bold("pending:"), self.no_result()));
        }
        if !self.damaged.is_empty() {
            out.push(paint.red(&format!("damaged: {}", self.damaged.join(", "))));
        }
        out
    }
}

/// The arguments of a call, with those that have names behind the others.
fn arguments_of(arguments: &Value) -> String {
    let part = |name: &str| arguments.get(name);
    let (plain, named) = match (part("args"), part("kwargs")) {
        (Some(plain), Some(named)) => (plain, Some(named)),
        _ => (arguments, None),
    };
    let shown_as = |value: &Value| match value.plain() {
        Value::Str(_) => format!("\"{}\"", brief(value, BRIEF_COLUMNS)),
        _ => brief(value, BRIEF_COLUMNS),
    };
    let mut all: Vec<String> = match plain.plain() {
        Value::List(items) => items.iter().map(shown_as).collect(),
        Value::Null => Vec::new(),
        _ => vec![shown_as(plain)],
    };
    if let Some(Value::Map(entries)) = named.map(Value::plain) {
        all.extend(
            entries.iter().map(|(name, value)| format!("{}={}", brief(name, BRIEF_COLUMNS), shown_as(value))),
        );
    }
    all.join(", ")
}

/// What a call gave. Of an answer of a model, what it says comes first: its id and its settings tell nobody anything.
fn result_of(result: &Value) -> String {
    let whole = brief(result, BRIEF_COLUMNS);
    match content_of(result) {
        Some(content) => format!("\"{}\" in {whole}", brief(content, BRIEF_COLUMNS)),
        None => whole,
    }
}

/// The text of an answer, where the SDKs of model servers have it: `choices[0].message.content` or `content[0].text`.
fn content_of(answer: &Value) -> Option<&Value> {
    let said = match part(answer, "choices").and_then(first) {
        Some(choice) => part(part(choice, "message")?, "content")?,
        None => part(answer, "content")?,
    };
    let text = first(said).and_then(|block| part(block, "text")).unwrap_or(said);
    text.as_str().is_some_and(|text| !text.is_empty()).then_some(text)
}

fn part<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    bare(value).get(name)
}

fn first(value: &Value) -> Option<&Value> {
    match bare(value) {
        Value::List(items) => items.first(),
        _ => None,
    }
}

/// A value without the name of its class.
fn bare(value: &Value) -> &Value {
    match value.plain() {
        Value::Typed(_, inner) => bare(inner),
        other => other,
    }
}

/// What is told of an error on one line: its type and message, without the traceback.
pub(crate) fn error_of(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    match (text("type"), text("message")) {
        (Some(kind), Some(message)) => cut(&shown(&format!("{kind}: {message}")), ERROR_COLUMNS).into_owned(),
        _ => match error.as_str().and_then(|text| text.lines().next()) {
            Some(first) => cut(&shown(first), ERROR_COLUMNS).into_owned(),
            None => brief(error, BRIEF_COLUMNS),
        },
    }
}

/// The lines that explain an error: its traceback, or what stands behind the first line of a text. Each as it may be shown.
pub(crate) fn traceback_of(error: &Value) -> Vec<String> {
    let behind_the_first = || Some(error.as_str()?.split_once('\n')?.1);
    let text = error.get("traceback").and_then(Value::as_str).or_else(behind_the_first);
    text.unwrap_or_default().lines().map(|line| shown(line).trim_end().to_owned()).collect()
}

fn of_record(record: &Record) -> Rendered {
    let name = |number: u8| {
        if number == fields::TIME { "time_us" } else { fields::name(number).unwrap_or("unknown") }
    };
    let damaged: Vec<&'static str> = record.lost.iter().map(|number| name(*number)).collect();
    let mut entry = Rendered::new(&record.kind_name().to_lowercase(), &damaged);
    // The generation id of a run is of no use to people; its name is there.
    let told = record.fields.iter().filter(|(number, _)| *number != fields::GENERATION_ID);
    entry.fields = told.map(|(number, value)| (name(*number), value.clone())).collect();
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an answer of an SDK, people saw its id, its model and the time, and not what the model said.
    #[test]
    fn an_answer_says_its_content_first() {
        let text = |text: &str| Value::map([("type", Value::from("text")), ("text", Value::from(text))]);
        let message = Value::map([("role", Value::from("assistant")), ("content", Value::from("look"))]);
        let choice = Value::map([("index", Value::Int(0)), ("message", message)]);
        let of = |name: &str, value| Value::Typed(name.into(), std::sync::Arc::new(value));
        let chat =
            Value::map([("id", Value::from("chatcmpl-1")), ("choices", Value::list([of("Choice", choice)]))]);
        let blocks = Value::map([("id", Value::from("msg-1")), ("content", Value::list([text("pay")]))]);
        assert!(
            result_of(&of("ChatCompletion", chat))
                .starts_with(r#""look" in ChatCompletion({id: "chatcmpl-1""#)
        );
        assert!(result_of(&blocks).starts_with(r#""pay" in {id: "msg-1""#));
        assert_eq!(result_of(&Value::from("look")), "look");
        let tools = Value::map([("content", Value::Null)]);
        assert_eq!(result_of(&tools), "{content: null}");
    }
}
