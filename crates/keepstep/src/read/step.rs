//! What the records of an attempt mean: steps, calls, notes, how it began and how it ended.

use keepstep_format::frame::Kind;
use keepstep_format::step_fields::{self, StepField};
use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use super::places::RecordPlace;
use super::records::{DamagedRecord, Record};
use crate::segment::cards::as_id;

impl StepKind {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "FIRST",
            Self::Mid => "MID",
            Self::Last => "LAST",
        }
    }
}

/// Which step of its attempt a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StepKind {
    /// The first observation.
    First,
    /// One in between.
    #[default]
    Mid,
    /// The one that the attempt ended with.
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
        /// A step. A field that is none was not recorded, unless its name stands in `damaged`.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct RecordedStep {
            /// Its number in the attempt.
            pub index: i64,
            /// Which step it is.
            pub kind: StepKind,
            /// When it was recorded.
            pub time: Option<i64>,
            $(#[doc = $doc] pub $name: Option<held!($holds)>,)*
            /// Names of fields that are lost, or of which a part is ([`Value::Lost`] stands there).
            pub damaged: Vec<&'static str>,
            /// Where its records stand.
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
                    // A later version's: what it means is not known here.
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
    /// Adds what a record says.
    pub(super) fn add(&mut self, record: &Record) {
        self.places.push(record.place);
        for (number, value) in &record.fields {
            self.set(*number, value.clone());
        }
        for &number in &record.lost {
            self.mark(number);
        }
    }

    /// Adds that a record is lost: whatever it may have said.
    pub(super) fn lose(&mut self, lost: &DamagedRecord) {
        self.places.push(lost.place);
        self.lose_fields(Kind::from_u8(lost.kind).unwrap_or(Kind::Step));
    }

    /// What a record of this kind says is lost.
    pub(super) fn lose_fields(&mut self, kind: Kind) {
        kind.step_fields().iter().for_each(|number| self.mark(*number));
    }

    fn mark(&mut self, number: u8) {
        let name = fields::name(number).unwrap_or("field");
        if !self.damaged.contains(&name) {
            self.damaged.push(name);
        }
    }

    /// A step of what was just said, before anybody read it back.
    pub(crate) fn of_said(index: u64, said: &[(u8, Value)]) -> Self {
        let mut step = Self { index: index as i64, ..Self::default() };
        said.iter().for_each(|(number, value)| step.set(*number, value.clone()));
        step
    }

    /// Its fields that are there, in the order in which they are shown.
    pub fn fields(&self) -> impl Iterator<Item = (&'static StepField, Value)> {
        step_fields::ALL.iter().filter_map(|field| Some((field, self.get(field.number)?)))
    }

    /// Says which step it is, unless its record did.
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
    /// What makes an episode without a name unique.
    pub unnamed: Option<Id>,
    /// What it belongs to.
    pub parent: Option<String>,
    /// What the caller gave along.
    pub meta: Option<Value>,
    /// The attempt that it goes on from.
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
    /// Its number in the turn, if not.
    pub ordinal: Option<i64>,
    /// What it was called with.
    pub arguments: Option<Value>,
    /// What came back.
    pub result: Option<Value>,
    /// What was raised instead.
    pub error: Option<Value>,
    /// What it gave was awaited.
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

/// A fact that was added.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Note {
    /// Its sequence: the last resort when two notes have the same time.
    pub seq: u32,
    /// When.
    pub time: Option<i64>,
    /// What it is about.
    pub name: Option<String>,
    /// What it says.
    pub value: Option<Value>,
    /// Who says so.
    pub source: Option<String>,
    /// The episode that it is about, if not this one.
    pub target: Option<Id>,
    /// The attempt that it is about, if not this one.
    pub target_attempt: Option<i64>,
    /// The step that it is about, if not the attempt as a whole.
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
    /// Who said so.
    pub said_by: Option<String>,
    /// What it rests on.
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

    /// True if the last step before it was the last of the episode.
    pub(super) fn makes_last(&self) -> bool {
        self.why.as_deref().is_some_and(is_final)
    }
}

/// True if nothing can come after an attempt that ended so: the episode is over.
pub fn is_final(why: &str) -> bool {
    Why::named(why).is_some_and(Why::is_final)
}

/// A turn that was given up.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Discarded {
    /// The turn.
    pub index: i64,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub time: Option<i64>,
    /// What had been said in it.
    pub step: Option<Box<RecordedStep>>,
}
