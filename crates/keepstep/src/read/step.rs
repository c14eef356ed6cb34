//! What the records of an attempt say: steps, calls, notes, how it began and how it ended.

use keepstep_format::frame::Kind;
use keepstep_format::step_fields::{self, StepField};
use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use super::places::RecordPlace;
use super::records::{DamagedRecord, Record};
use crate::segment::cards::as_id;

impl StepKind {
    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "FIRST",
            Self::Mid => "MID",
            Self::Last => "LAST",
        }
    }
}

/// The position of a step in its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StepKind {
    /// The first observation.
    First,
    /// A step in between.
    #[default]
    Mid,
    /// The last step.
    Last,
}

/// The type of a field that was read.
macro_rules! held {
    (Number) => {
        f64
    };
    (Text) => {
        String
    };
    ($other:ident) => {
        Value
    };
}

/// How it is taken from what was recorded.
macro_rules! taken {
    (Number $value:expr) => {
        $value.as_float()
    };
    (Text $value:expr) => {
        $value.as_str().map(str::to_owned)
    };
    ($other:ident $value:expr) => {
        Some($value)
    };
}

macro_rules! step {
    ($($constant:ident $name:ident $part:ident $holds:ident $doc:literal;)*) => {
        /// A step. A field that is `None` was not recorded, unless `damaged` has its name.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct RecordedStep {
            /// Its index in the attempt.
            pub index: i64,
            /// Its position in the attempt.
            pub kind: StepKind,
            /// When it was recorded.
            pub time: Option<i64>,
            $(#[doc = $doc] pub $name: Option<held!($holds)>,)*
            /// Names of fields that are lost, in whole or in part ([`Value::Lost`] marks a lost part).
            pub damaged: Vec<&'static str>,
            /// Where its records are.
            pub places: Vec<RecordPlace>,
            pub(super) kind_was_said: bool,
        }

        impl RecordedStep {
            fn set(&mut self, number: u8, value: Value) {
                match number {
                    fields::TIME => self.time = value.as_int().or(self.time),
                    fields::INDEX => self.index = value.as_int().unwrap_or(self.index),
                    fields::STEP_KIND => self.say_kind(&value),
                    $(fields::$constant => self.$name = taken!($holds value),)*
                    // A field of a later version, unknown here.
                    _ => {}
                }
            }

            /// A field, by its number.
            pub fn get(&self, number: u8) -> Option<Value> {
                match number {
                    $(fields::$constant => self.$name.clone().map(Value::from),)*
                    _ => None,
                }
            }
        }
    };
}
keepstep_format::step_fields!(step);

impl RecordedStep {
    /// Adds the fields of a record.
    pub(super) fn add(&mut self, record: &Record) {
        self.places.push(record.place);
        for (number, value) in &record.fields {
            self.set(*number, value.clone());
        }
        for &number in &record.lost {
            self.mark(number);
        }
    }

    /// Notes that a record is lost, with all fields that it may have had.
    pub(super) fn lose(&mut self, lost: &DamagedRecord) {
        self.places.push(lost.place);
        self.lose_fields(Kind::from_u8(lost.kind).unwrap_or(Kind::Step));
    }

    /// Notes that the fields of a record of this kind are lost.
    pub(super) fn lose_fields(&mut self, kind: Kind) {
        kind.step_fields().iter().for_each(|number| self.mark(*number));
    }

    fn mark(&mut self, number: u8) {
        let name = fields::name(number).unwrap_or("field");
        if !self.damaged.contains(&name) {
            self.damaged.push(name);
        }
    }

    /// A step made of an intent that was just recorded, without reading it back.
    pub(crate) fn of_said(index: u64, said: &[(u8, Value)]) -> Self {
        let mut step = Self { index: index as i64, ..Self::default() };
        said.iter().for_each(|(number, value)| step.set(*number, value.clone()));
        step
    }

    /// Its recorded fields, in the order in which they are shown.
    pub fn fields(&self) -> impl Iterator<Item = (&'static StepField, Value)> {
        step_fields::ALL.iter().filter_map(|field| Some((field, self.get(field.number)?)))
    }

    /// Sets its position, unless its record did.
    pub(super) fn place_in(&mut self, is_first: bool, is_last: bool) {
        if self.kind_was_said {
            return;
        }
        self.kind = match (is_first, is_last) {
            (true, _) => StepKind::First,
            (_, true) => StepKind::Last,
            _ => StepKind::Mid,
        };
    }

    fn say_kind(&mut self, value: &Value) {
        let said = match value.as_int() {
            Some(0) => StepKind::First,
            Some(1) => StepKind::Mid,
            Some(2) => StepKind::Last,
            _ => return,
        };
        (self.kind, self.kind_was_said) = (said, true);
    }
}

fn text(record: &Record, number: u8) -> Option<String> {
    record.get(number)?.as_str().map(str::to_owned)
}

fn int(record: &Record, number: u8) -> Option<i64> {
    record.get(number)?.as_int()
}

fn id(record: &Record, number: u8) -> Option<Id> {
    as_id(record.get(number)?)
}

fn damaged(record: &Record) -> Vec<&'static str> {
    record.lost.iter().map(|&number| fields::name(number).unwrap_or("field")).collect()
}

/// How an attempt began.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Begin {
    /// When.
    pub time: Option<i64>,
    /// The name of its run.
    pub run: Option<String>,
    /// The id of its run's generation.
    pub generation_id: Option<Id>,
    /// The run's generation.
    pub generation: Option<i64>,
    /// The task.
    pub task: Option<String>,
    /// The iteration.
    pub iteration: Option<i64>,
    /// The sample.
    pub sample: Option<i64>,
    /// The random id that makes an unnamed episode unique.
    pub unnamed: Option<Id>,
    /// What it belongs to.
    pub parent: Option<String>,
    /// Data that the caller recorded with the episode.
    pub meta: Option<Value>,
    /// The attempt that it resumed.
    pub resumed: Option<i64>,
    /// Names of fields that are lost.
    pub damaged: Vec<&'static str>,
}

impl Begin {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            time: int(record, fields::TIME),
            run: text(record, fields::RUN),
            generation_id: id(record, fields::GENERATION_ID),
            generation: int(record, fields::GENERATION),
            task: text(record, fields::TASK),
            iteration: int(record, fields::ITERATION),
            sample: int(record, fields::SAMPLE),
            unnamed: id(record, fields::UNNAMED),
            parent: text(record, fields::PARENT),
            meta: record.get(fields::META).cloned(),
            resumed: int(record, fields::RESUMED),
            damaged: damaged(record),
        }
    }
}

/// A side effect whose result was recorded.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// When.
    pub time: Option<i64>,
    /// The turn that it belongs to.
    pub index: Option<i64>,
    /// What was called.
    pub name: Option<String>,
    /// Its key, if it was given one.
    pub key: Option<String>,
    /// Its ordinal in the turn, if it has no key.
    pub ordinal: Option<i64>,
    /// Its arguments.
    pub arguments: Option<Value>,
    /// Its result.
    pub result: Option<Value>,
    /// What it raised instead.
    pub error: Option<Value>,
    /// True if its result was awaited.
    pub awaited: bool,
    /// Names of fields that are lost.
    pub damaged: Vec<&'static str>,
}

impl Call {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            time: int(record, fields::TIME),
            index: int(record, fields::INDEX),
            name: text(record, fields::NAME),
            key: text(record, fields::KEY),
            ordinal: int(record, fields::ORDINAL),
            arguments: record.get(fields::ARGUMENTS).cloned(),
            result: record.get(fields::RESULT).cloned(),
            error: record.get(fields::ERROR).cloned(),
            awaited: record.get(fields::AWAITED).is_some_and(|it| matches!(it.plain(), Value::Bool(true))),
            damaged: damaged(record),
        }
    }
}

/// A note.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Note {
    /// Its sequence number. It decides if two notes have the same time.
    pub seq: u32,
    /// When.
    pub time: Option<i64>,
    /// Its name.
    pub name: Option<String>,
    /// Its value.
    pub value: Option<Value>,
    /// Who gave it.
    pub source: Option<String>,
    /// The episode that it is on, if not this one.
    pub target: Option<Id>,
    /// The attempt that it is on, if not this one.
    pub target_attempt: Option<i64>,
    /// The step that it is on, if not the attempt as a whole.
    pub index: Option<i64>,
    /// Names of fields that are lost.
    pub damaged: Vec<&'static str>,
}

impl Note {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            seq: record.seq,
            time: int(record, fields::TIME),
            name: text(record, fields::NAME),
            value: record.get(fields::VALUE).cloned(),
            source: text(record, fields::SOURCE),
            target: id(record, fields::TARGET),
            target_attempt: int(record, fields::TARGET_ATTEMPT),
            index: int(record, fields::INDEX),
            damaged: damaged(record),
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct End {
    /// When.
    pub time: Option<i64>,
    /// Why.
    pub why: Option<String>,
    /// Which limit was reached.
    pub limit: Option<String>,
    /// What was raised.
    pub error: Option<Value>,
    /// Who recorded it.
    pub said_by: Option<String>,
    /// The evidence, if another process found the end.
    pub evidence: Option<Value>,
    /// Names of fields that are lost.
    pub damaged: Vec<&'static str>,
}

impl End {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            time: int(record, fields::TIME),
            why: text(record, fields::WHY),
            limit: text(record, fields::LIMIT),
            error: record.get(fields::ERROR).cloned(),
            said_by: text(record, fields::SAID_BY),
            evidence: record.get(fields::EVIDENCE).cloned(),
            damaged: damaged(record),
        }
    }

    /// True if it makes the step before it the last of the episode.
    pub(super) fn makes_last(&self) -> bool {
        self.why.as_deref().is_some_and(is_final)
    }
}

/// True if the episode is over after this ending.
pub fn is_final(why: &str) -> bool {
    Why::named(why).is_some_and(Why::is_final)
}

/// A turn that was discarded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Discarded {
    /// The turn.
    pub index: i64,
    /// Why it was discarded.
    pub reason: Option<String>,
    /// When.
    pub time: Option<i64>,
    /// Its intent.
    pub step: Option<Box<RecordedStep>>,
}
