//! What an attempt knows of its inherited steps, and of its present turn: the intent, and the calls that were made.
//!
//! It knows what was handed over, so that the next entry need not wait for this one. What was then refused is taken
//! back: a turn whose result was refused is pending, and a call whose result was refused is not known.

use std::collections::HashSet;

use keepstep_format::fields;
use keepstep_format::kind::Kind;
use keepstep_format::value::Value;

use crate::error::Result;
use crate::read::{self, Call, Item, Lineage};
use crate::store::episode::Known;
use crate::write::{CallKey, Entry, Receipt};

/// How many names without a state are remembered. Programs ask for a few names, again and again.
const ABSENT_STATES_MAX: usize = 1024;

/// What an attempt knows of its inherited steps, and of its present turn.
#[derive(Default)]
pub(super) struct Inherited {
    pub(super) lineage: Option<Lineage>,
    /// Names that no inherited step has as a state. All of them were read to know that: once for each name.
    pub(super) absent_states: HashSet<String>,
    /// The pending turn, until it is adopted or discarded.
    pub(super) pending: Option<read::RecordedStep>,
    /// The intent of the present turn.
    pub(super) said: Option<read::RecordedStep>,
    /// The receipt of that intent, if this attempt recorded it.
    pub(super) said_by: Option<Receipt>,
    /// Turns whose result, or whose discarding, is in flight.
    pub(super) settling: Vec<Settling>,
    /// The present turn, whose calls follow.
    pub(super) turn: u64,
    pub(super) calls: Vec<Recorded>,
    pub(super) next_ordinal: u64,
    /// Which try of a turn it is. Rises when calls are numbered from the first on again: at the next turn, and when the
    /// present one is left or discarded.
    pub(super) tried: u64,
    /// With which ordinal the calls of this turn begin. Those of a turn that was discarded come before.
    pub(super) first_ordinal: u64,
    /// Which turn is under way or pending. Rises when one is said, adopted, left or settled, so that the handle of
    /// another turn, or of an earlier try, is known as such.
    pub(super) number: u64,
    /// How many of its calls were made before the intent. After an adoption, calls are numbered after these.
    pub(super) said_behind: u64,
    /// The ordinal behind all that were given out in this turn, in whatever try.
    pub(super) given_behind: u64,
}

/// A turn that was settled, until it is known whether that was recorded.
pub(super) struct Settling {
    said: read::RecordedStep,
    said_by: Option<Receipt>,
    settled_by: Receipt,
}

pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) key: CallKey,
    pub(super) arguments: Value,
    pub(super) result: Value,
    pub(super) awaited: bool,
    /// Its receipt, if this attempt recorded it.
    receipt: Option<Receipt>,
}

/// How an entry changes the present turn.
pub(super) enum TurnChange {
    /// Nothing.
    None,
    /// Its intent was recorded.
    Said(Box<read::RecordedStep>),
    /// It got its result.
    Settled,
    /// It was discarded.
    Discarded,
    /// One of its calls returned.
    Called(Box<Recorded>),
}

impl TurnChange {
    pub(super) fn of(entry: &Entry) -> Self {
        match entry.kind {
            // The index is known after the entry was handed over.
            Kind::Intent => Self::Said(Box::new(read::RecordedStep::of_said(0, entry.step.fields()))),
            Kind::Result => Self::Settled,
            Kind::Discard => Self::Discarded,
            Kind::Call => Recorded::of_entry(entry).map_or(Self::None, |call| Self::Called(Box::new(call))),
            _ => Self::None,
        }
    }
}

impl Inherited {
    /// The newest inherited state of a name.
    pub(super) fn inherited_state(&mut self, name: &str) -> Result<Option<Value>> {
        let Some(lineage) = self.lineage.as_mut().filter(|_| !self.absent_states.contains(name)) else {
            return Ok(None);
        };
        let state = lineage.state(name)?;
        if state.is_none() && self.absent_states.len() < ABSENT_STATES_MAX {
            self.absent_states.insert(name.to_owned());
        }
        Ok(state)
    }

    /// An entry was handed over.
    pub(super) fn apply(&mut self, change: TurnChange, receipt: &Receipt) {
        let step = receipt.step();
        match change {
            TurnChange::None => {}
            TurnChange::Said(mut said) => {
                said.index = step.unwrap_or(0) as i64;
                (self.said, self.said_by) = (Some(*said), Some(receipt.clone()));
                self.said_behind = self.next_ordinal;
                self.number += 1;
            }
            TurnChange::Settled | TurnChange::Discarded => {
                if matches!(change, TurnChange::Discarded) {
                    self.first_ordinal = self.behind_all_calls();
                    self.begin_try();
                }
                self.number += 1;
                let (pending, said, said_by) = (self.pending.take(), self.said.take(), self.said_by.take());
                if let Some(said) = said.or(pending) {
                    self.settling.push(Settling { said, said_by, settled_by: receipt.clone() });
                }
            }
            // A call that returned after its turn had ended is not part of the present turn.
            TurnChange::Called(mut call) => {
                if step.is_none_or(|turn| turn == self.turn) {
                    call.receipt = Some(receipt.clone());
                    self.calls.push(*call);
                }
            }
        }
    }

    /// Takes back what was refused since the last look.
    pub(super) fn take_back(&mut self) {
        if self.said_by.as_ref().is_some_and(Receipt::has_failed) {
            (self.said, self.pending, self.said_by) = (None, None, None);
            self.number += 1;
        }
        self.calls.retain(|call| !call.receipt.as_ref().is_some_and(Receipt::has_failed));
        if self.settling.is_empty() {
            return;
        }
        let refused = self.settling.iter().position(|turn| turn.settled_by.has_failed());
        let Some(refused) = refused else {
            return self.settling.retain(|turn| turn.settled_by.peek().is_none());
        };
        let turn = self.settling.swap_remove(refused);
        // All that was handed over after a refused entry was refused too.
        self.settling.clear();
        self.number += 1;
        if !turn.said_by.is_some_and(|said_by| said_by.has_failed()) {
            (self.pending, self.said, self.said_by) = (Some(turn.said), None, None);
            self.begin_try();
        }
    }

    /// Leaves the present turn pending: its calls are numbered from the first on again.
    pub(super) fn leave(&mut self) {
        if let Some(said) = self.said.take() {
            self.pending = Some(said);
            self.number += 1;
            self.begin_try();
        }
    }

    /// The calls of the present turn are made once more, or those of another one follow.
    fn begin_try(&mut self) {
        // A turn that was left has given out the later ordinals all the same.
        self.given_behind = self.given_behind.max(self.next_ordinal);
        self.next_ordinal = self.first_ordinal;
        self.tried += 1;
    }

    /// The ordinal behind those of all calls of this turn: recorded, raised or still running.
    pub(super) fn behind_all_calls(&self) -> u64 {
        let recorded = self.calls.iter().filter_map(|call| call.ordinal()).map(|it| it + 1);
        recorded.fold(self.next_ordinal.max(self.given_behind), u64::max)
    }

    /// Makes the pending turn the present one.
    pub(super) fn adopt(&mut self) -> Option<read::RecordedStep> {
        let adopted = self.pending.take()?;
        self.number += 1;
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
        (self.first_ordinal, self.given_behind) = (0, 0);
        self.tried += 1;
        self.calls.clear();
        let Some(lineage) = self.lineage.as_mut().filter(|_| is_inherited) else { return Ok(()) };
        let discarded = lineage.since_last_step(Kind::Discard).last().copied();
        let said = discarded.map(|at| lineage.item(at)).transpose()?.and_then(|item| ordinal_of(&item));
        self.first_ordinal = said.unwrap_or(0);
        for at in lineage.since_last_step(Kind::Call) {
            if let Item::Record(record) = lineage.item(at)? {
                // A call that returned after its turn had ended is not part of this turn.
                let call = Call::of(&record);
                if call.index.is_some_and(|of| of != turn as i64) {
                    continue;
                }
                let behind = call.ordinal.map_or(0, |ordinal| ordinal as u64 + 1);
                if lineage.is_before_pending(at) {
                    self.said_behind = self.said_behind.max(behind);
                }
                // Discards of 0.1 do not say it.
                if said.is_none() && discarded.is_some_and(|discarded| at < discarded) {
                    self.first_ordinal = self.first_ordinal.max(behind);
                }
                self.given_behind = self.given_behind.max(behind);
                self.calls.extend(Recorded::of(call));
            }
        }
        self.next_ordinal = self.first_ordinal;
        Ok(())
    }
}

/// The ordinal that a record says.
fn ordinal_of(item: &Item) -> Option<u64> {
    let Item::Record(record) = item else { return None };
    u64::try_from(record.get(fields::ORDINAL)?.as_int()?).ok()
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
            receipt: None,
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
        is_whole.then_some(Self { name, key, arguments, result, awaited, receipt: None })
    }

    pub(super) fn known(&self) -> Known {
        let result = self.result.clone();
        if self.awaited { Known::Awaited(result) } else { Known::Result(result) }
    }

    fn ordinal(&self) -> Option<u64> {
        if let CallKey::Ordinal(ordinal) = self.key { Some(ordinal) } else { None }
    }

    /// A key is unique among the calls of one name; ordinals count all calls of a turn.
    pub(super) fn is_meant(&self, name: &str) -> bool {
        matches!(self.key, CallKey::Ordinal(_)) || self.name == name
    }
}
