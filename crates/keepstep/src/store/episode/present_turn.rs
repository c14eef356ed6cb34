//! What an attempt knows of its inherited steps, and of its present turn: the intent, and the calls that were made.

use keepstep_format::fields;
use keepstep_format::kind::Kind;
use keepstep_format::value::Value;

use crate::error::Result;
use crate::read::{self, Call, Item, Lineage};
use crate::write::{CallKey, Entry};

/// What an attempt knows of its inherited steps, and of its present turn.
#[derive(Default)]
pub(super) struct Inherited {
    pub(super) lineage: Option<Lineage>,
    /// The pending turn, until it is adopted or discarded.
    pub(super) pending: Option<read::RecordedStep>,
    /// The intent of the present turn.
    pub(super) said: Option<read::RecordedStep>,
    /// The present turn, whose calls follow.
    pub(super) turn: u64,
    pub(super) calls: Vec<Recorded>,
    pub(super) next_ordinal: u64,
    /// How many of its calls were made before the intent. After an adoption, calls are numbered after these.
    pub(super) said_behind: u64,
}

pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) key: CallKey,
    pub(super) arguments: Value,
    pub(super) result: Value,
    pub(super) awaited: bool,
}

/// How an entry changes the present turn.
pub(super) enum TurnChange {
    /// Nothing.
    None,
    /// Its intent was recorded.
    Said(Box<read::RecordedStep>),
    /// It got its result, or was discarded.
    Settled,
    /// One of its calls returned.
    Called(Box<Recorded>),
}

impl TurnChange {
    pub(super) fn of(entry: &Entry) -> Self {
        match entry.kind {
            // The index is known after the entry was handed over.
            Kind::Intent => Self::Said(Box::new(read::RecordedStep::of_said(0, entry.step.fields()))),
            Kind::Result | Kind::Discard => Self::Settled,
            Kind::Call => Recorded::of_entry(entry).map_or(Self::None, |call| Self::Called(Box::new(call))),
            _ => Self::None,
        }
    }
}

impl Inherited {
    /// An entry was handed over. `step` is the step that it is about, if there is one.
    pub(super) fn apply(&mut self, change: TurnChange, step: Option<u64>) {
        match change {
            TurnChange::None => {}
            TurnChange::Said(mut said) => {
                said.index = step.unwrap_or(0) as i64;
                self.said = Some(*said);
                self.said_behind = self.next_ordinal;
            }
            TurnChange::Settled => (self.pending, self.said) = (None, None),
            // A call that returned after its turn had ended is not part of the present turn.
            TurnChange::Called(call) => {
                if step.is_none_or(|turn| turn == self.turn) {
                    self.calls.push(*call);
                }
            }
        }
    }

    /// Makes the pending turn the present one.
    pub(super) fn adopt(&mut self) -> Option<read::RecordedStep> {
        let adopted = self.pending.take()?;
        self.said = Some(adopted.clone());
        self.next_ordinal = self.next_ordinal.max(self.said_behind);
        Some(adopted)
    }

    /// Moves to a turn, and forgets the calls of the one before.
    pub(super) fn at_turn(&mut self, turn: u64, is_inherited: bool) -> Result<()> {
        if self.turn == turn {
            return Ok(());
        }
        (self.turn, self.next_ordinal, self.said_behind) = (turn, 0, 0);
        self.calls.clear();
        let Some(lineage) = self.lineage.as_mut().filter(|_| is_inherited) else { return Ok(()) };
        for at in lineage.since_last_step(Kind::Call) {
            if let Item::Record(record) = lineage.item(at)? {
                // A call that returned after its turn had ended is not part of this turn.
                let call = Call::of(&record);
                if call.index.is_some_and(|of| of != turn as i64) {
                    continue;
                }
                if let Some(ordinal) = call.ordinal.filter(|_| lineage.is_before_pending(at)) {
                    self.said_behind = self.said_behind.max(ordinal as u64 + 1);
                }
                self.calls.extend(Recorded::of(call));
            }
        }
        Ok(())
    }
}

impl Recorded {
    /// The call that an entry records, if it returned.
    fn of_entry(entry: &Entry) -> Option<Self> {
        let get = |number| entry.step.get(number);
        let key = match get(fields::KEY).and_then(Value::as_str) {
            Some(key) => CallKey::Key(key.to_owned()),
            None => CallKey::Ordinal(u64::try_from(get(fields::ORDINAL)?.as_int()?).ok()?),
        };
        Some(Self {
            name: get(fields::NAME)?.as_str()?.to_owned(),
            key,
            arguments: get(fields::ARGUMENTS)?.clone(),
            result: get(fields::RESULT)?.clone(),
            awaited: get(fields::AWAITED).is_some(),
        })
    }

    /// `None` if the call raised, or if a part of it is damaged: such calls are not replayed.
    pub(super) fn of(call: Call) -> Option<Self> {
        let is_whole = call.error.is_none() && call.damaged.is_empty();
        let key = match (call.key, call.ordinal) {
            (Some(key), _) => CallKey::Key(key),
            (None, ordinal) => CallKey::Ordinal(u64::try_from(ordinal?).ok()?),
        };
        let (name, arguments) = (call.name?, call.arguments.unwrap_or(Value::Null));
        let (result, awaited) = (call.result.unwrap_or(Value::Null), call.awaited);
        is_whole.then_some(Self { name, key, arguments, result, awaited })
    }

    /// A key is unique among the calls of one name; ordinals count all calls of a turn.
    pub(super) fn is_meant(&self, name: &str) -> bool {
        matches!(self.key, CallKey::Ordinal(_)) || self.name == name
    }
}
