//! Entries: what an episode records in one call.

use keepstep_format::fields;
use keepstep_format::kind::Kind;
use keepstep_format::value::Value;

use super::note::{check_name, note_fields};
use super::step::Step;
use crate::error::Result;
use crate::options::Level;

/// The name of the call that records a failed try of a turn that stays pending.
const TRY: &str = "keepstep.turn";

/// One thing to record: a step, a part of a turn, a call, a note or the end.
///
/// A [`Step`] is an entry by itself: `episode.record(Step::new().action("buy"))`.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub(crate) kind: Kind,
    pub(crate) step: Step,
    /// The level to wait for, if not that of the store.
    pub(super) level: Option<Level>,
    pub(crate) waits_for_room: bool,
    /// The turn that it belongs to, if it must be that one ([`crate::Episode::turn_number`]).
    pub(crate) turn_number: Option<u64>,
    /// True if keepstep records it for itself, under a reserved name.
    is_ours: bool,
}

/// A call that was made: its name, its arguments and its turn.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct CallMade {
    /// Its name.
    pub name: String,
    /// Which call of its turn.
    pub key: CallKey,
    /// Its arguments.
    pub arguments: Value,
    /// The turn in which it began; `None` for the present one.
    pub turn: Option<u64>,
    /// True if its result was awaited.
    pub awaited: bool,
    /// The function that is called, if it is known, and the ordinals of earlier calls that have failed: `None` if nobody
    /// asked whether it is recorded ([`crate::Episode::begin_call`]).
    pub(crate) made_by: Option<(Option<String>, Vec<u64>)>,
    /// The try of the turn in which it began.
    pub(crate) tried: Option<u64>,
}

/// Which call of a turn: by a key that the caller chose, or by its ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKey {
    /// The key that the caller chose.
    Key(String),
    /// Its ordinal among the calls of the turn that have no key.
    Ordinal(u64),
}

impl CallMade {
    /// A call of the present turn, which was not awaited.
    pub fn new(name: impl Into<String>, key: CallKey, arguments: impl Into<Value>) -> Self {
        let (name, arguments) = (name.into(), arguments.into());
        Self { name, key, arguments, turn: None, awaited: false, made_by: None, tried: None }
    }

    /// Sets the turn in which it began.
    pub fn turn(mut self, turn: impl Into<Option<u64>>) -> Self {
        self.turn = turn.into();
        self
    }

    /// Sets whether its result was awaited.
    pub fn awaited(mut self, awaited: bool) -> Self {
        self.awaited = awaited;
        self
    }
}

impl Entry {
    fn new(kind: Kind, step: Step) -> Self {
        Self { kind, step, level: None, waits_for_room: false, turn_number: None, is_ours: false }
    }

    /// The first observation, before any step.
    pub fn first(step: Step) -> Self {
        Self::new(Kind::First, step)
    }

    /// A whole step.
    pub fn step(step: Step) -> Self {
        Self::new(Kind::Step, step)
    }

    /// The intent of a turn. Wait until it is durable before you act.
    pub fn turn(said: Step) -> Self {
        Self::new(Kind::Intent, said)
    }

    /// The result of the turn, which completes it.
    pub fn result(result: Step) -> Self {
        Self::new(Kind::Result, result)
    }

    /// Discards the turn.
    pub fn discard(reason: &str) -> Self {
        Self::new(Kind::Discard, Step::new().with(fields::REASON, Value::from(reason)))
    }

    /// The result of a call, or the error that it raised.
    pub fn call(made: &CallMade, came: std::result::Result<Value, Value>) -> Self {
        let mut step = Step::new().with(fields::NAME, Value::from(made.name.as_str()));
        step.set(fields::ARGUMENTS, made.arguments.clone());
        match &made.key {
            CallKey::Key(key) => step.set(fields::KEY, Value::from(key.as_str())),
            CallKey::Ordinal(ordinal) => step.set(fields::ORDINAL, Value::Int(*ordinal as i64)),
        }
        if let Some(turn) = made.turn {
            step.set(fields::INDEX, Value::Int(turn as i64));
        }
        if made.awaited {
            step.set(fields::AWAITED, Value::Bool(true));
        }
        if let Some((function, failed)) = &made.made_by {
            let function = function.as_deref().map_or(Value::Null, Value::from);
            let failed = failed.iter().map(|ordinal| Value::Int(*ordinal as i64));
            step.set(fields::MADE_BY, Value::list([function].into_iter().chain(failed)));
        }
        match came {
            Ok(result) => step.set(fields::RESULT, result),
            Err(error) => step.set(fields::ERROR, error),
        }
        Self::new(Kind::Call, step)
    }

    /// A failed try of the turn, which stays pending.
    pub(crate) fn failed_try(error: Value) -> Self {
        let made = CallMade::new(TRY, CallKey::Key("try".to_owned()), Value::Null);
        Self { is_ours: true, ..Self::call(&made, Err(error)) }
    }

    /// An item of a recorded list.
    pub fn item(value: Value) -> Self {
        Self::new(Kind::Item, Step::new().with(fields::VALUE, value))
    }

    /// A note on the attempt, or on one of its steps. After the end, add notes to the run ([`crate::Run::annotate`]).
    pub fn note(name: &str, value: Value, source: &str, step: Option<u64>) -> Result<Self> {
        let mut note = Step::new();
        for (number, value) in note_fields(name, value, source)? {
            note.set(number, value);
        }
        if let Some(index) = step {
            note.set(fields::INDEX, Value::Int(index as i64));
        }
        Ok(Self::new(Kind::Note, note))
    }

    /// The end, with more fields.
    pub(crate) fn end(why: &str, more: Step) -> Self {
        Self::new(Kind::End, more.with(fields::WHY, Value::from(why)))
    }

    /// Sets the level to wait for, in place of that of the store.
    pub fn at(self, level: Level) -> Self {
        Self { level: Some(level), ..self }
    }

    /// Waits while the queue is full, instead of failing with [`crate::Error::Busy`].
    pub fn waiting_for_room(self) -> Self {
        Self { waits_for_room: true, ..self }
    }

    /// Says which turn it is of ([`crate::Episode::turn_number`]). It is refused if another turn is under way by then.
    pub fn of_turn(self, number: impl Into<Option<u64>>) -> Self {
        Self { turn_number: number.into(), ..self }
    }

    /// An error if it cannot be recorded, whenever it comes.
    pub(super) fn check(&self) -> Result<()> {
        if self.kind == Kind::Call && !self.is_ours {
            check_name("name", self.step.get(fields::NAME).and_then(Value::as_str).unwrap_or_default())?;
        }
        self.step.check()
    }

    /// The index of the step that it names.
    pub(super) fn index(&self) -> Option<u64> {
        self.step.get(fields::INDEX).and_then(Value::as_int).map(|index| index as u64)
    }

    /// True if it completes a step with an error instead of a result.
    pub(super) fn fails(&self) -> bool {
        self.kind == Kind::Result && self.step.get(fields::ERROR).is_some()
    }
}

impl From<Step> for Entry {
    fn from(step: Step) -> Self {
        Self::step(step)
    }
}
