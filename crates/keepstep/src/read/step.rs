//! A step as it was recorded: one field for each line of the table of fields.

use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::step_fields::{self, StepField};
use keepstep_format::value::Value;

use super::item::{DamagedRecord, Record, RecordPlace};

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

/// A field of a step, as it stands in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Held<'s> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'s str),
    /// Any other.
    Value(&'s Value),
}

impl From<&f64> for Held<'_> {
    fn from(number: &f64) -> Self {
        Self::Number(*number)
    }
}

impl<'s> From<&'s String> for Held<'s> {
    fn from(text: &'s String) -> Self {
        Self::Text(text)
    }
}

impl<'s> From<&'s Value> for Held<'s> {
    fn from(value: &'s Value) -> Self {
        Self::Value(value)
    }
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

            /// A field, by its number, as it stands here.
            pub fn held(&self, number: u8) -> Option<Held<'_>> {
                match number {
                    $(fields::$constant => self.$name.as_ref().map(Held::from),)*
                    _ => None,
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
