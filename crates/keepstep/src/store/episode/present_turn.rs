//! What an attempt knows of its inherited steps, and of its present turn: the intent, and the calls that were made.
//!
//! It knows what was handed over, so that the next entry need not wait for this one. What was then refused is taken
//! back: a turn whose result was refused is pending, with its calls and their numbers, and a call whose result was
//! refused is not known.

use std::collections::HashSet;

use keepstep_format::fields;
use keepstep_format::kind::Kind;
use keepstep_format::value::Value;

use crate::error::Result;
use crate::read::{self, Call, Item, Lineage};
use crate::store::episode::turn_calls::{Recorded, TurnCalls, WaysOfOld};
use crate::write::{Entry, Receipt};

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
    /// The calls of the present turn.
    pub(super) calls: TurnCalls,
    /// Those of the turns before that may come back, since the step behind them may still be refused.
    pub(super) earlier: Vec<TurnCalls>,
    /// Which try of a turn it is. Rises when calls are numbered from the first on again: at the next turn, and when the
    /// present one is left or discarded.
    pub(super) tried: u64,
    /// Which turn is under way or pending. Rises when one is said, adopted, left or settled, so that the handle of
    /// another turn, or of an earlier try, is known as such.
    pub(super) number: u64,
}

/// A turn that was settled, until it is known whether that was recorded.
pub(super) struct Settling {
    said: read::RecordedStep,
    said_by: Option<Receipt>,
    settled_by: Receipt,
    /// Its index, with which ordinal its calls begin, and with which those behind its intent: the next turn may have
    /// the same index, and others.
    turn: u64,
    first_ordinal: u64,
    said_behind: u64,
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
                self.calls.said_behind = self.calls.next_ordinal;
                self.number += 1;
            }
            TurnChange::Settled | TurnChange::Discarded => {
                let TurnCalls { turn, first_ordinal, said_behind, .. } = self.calls;
                if matches!(change, TurnChange::Discarded) {
                    self.calls.first_ordinal = self.calls.behind_all();
                    self.begin_try();
                }
                self.number += 1;
                let (pending, said, said_by) = (self.pending.take(), self.said.take(), self.said_by.take());
                if let Some(said) = said.or(pending) {
                    let settled_by = receipt.clone();
                    let settling = Settling { said, said_by, settled_by, turn, first_ordinal, said_behind };
                    self.settling.push(settling);
                }
            }
            // A call that returned after its turn had ended is not part of the present turn.
            TurnChange::Called(mut call) => {
                if step.is_none_or(|turn| turn == self.calls.turn) {
                    call.receipt = Some(receipt.clone());
                    self.calls.recorded.push(*call);
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
        self.calls.forget_refused();
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
        if turn.said_by.is_some_and(|said_by| said_by.has_failed()) {
            return;
        }
        (self.pending, self.said, self.said_by) = (Some(turn.said), None, None);
        // The turn is the present one, or becomes it again when the index goes back.
        for calls in self.earlier.iter_mut().chain([&mut self.calls]).filter(|it| it.turn == turn.turn) {
            (calls.first_ordinal, calls.said_behind) = (turn.first_ordinal, turn.said_behind);
        }
        self.begin_try();
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
        self.calls.begin_try();
        self.tried += 1;
    }

    /// Makes the pending turn the present one.
    pub(super) fn adopt(&mut self) -> Option<read::RecordedStep> {
        let adopted = self.pending.take()?;
        self.number += 1;
        self.said = Some(adopted.clone());
        self.calls.go_behind_intent();
        Some(adopted)
    }

    /// Moves to a turn, and forgets the calls of those before it whose steps are durable. If a step was refused, its
    /// turn is the present one again, with the calls that it has on record.
    pub(super) fn at_turn(&mut self, turn: u64, durable: u64, is_inherited: bool) -> Result<()> {
        if self.calls.turn == turn {
            return Ok(());
        }
        self.tried += 1;
        let left = std::mem::replace(&mut self.calls, TurnCalls::at(turn));
        self.earlier.push(left);
        // What comes behind the present turn was refused with it.
        self.earlier.retain(|calls| (durable..=turn).contains(&calls.turn) && !calls.is_empty());
        if let Some(at) = self.earlier.iter().position(|calls| calls.turn == turn) {
            self.calls = self.earlier.swap_remove(at);
            self.calls.forget_refused();
            self.calls.begin_try();
            return Ok(());
        }
        if is_inherited { self.inherit_calls() } else { Ok(()) }
    }

    /// Reads the inherited calls of the present turn.
    fn inherit_calls(&mut self) -> Result<()> {
        let (Some(lineage), calls) = (self.lineage.as_mut(), &mut self.calls) else { return Ok(()) };
        let discarded = lineage.since_last_step(Kind::Discard).last().copied();
        let said = discarded.map(|at| lineage.item(at)).transpose()?.and_then(|item| ordinal_of(&item));
        calls.first_ordinal = said.unwrap_or(0);
        let mut ways = WaysOfOld::default();
        for at in lineage.since_last_step(Kind::Call) {
            if let Item::Record(record) = lineage.item(at)? {
                // A call that returned after its turn had ended is not part of this turn.
                let call = Call::of(&record);
                if call.index.is_some_and(|of| of != calls.turn as i64) {
                    continue;
                }
                let behind = call.ordinal.map_or(0, |ordinal| ordinal as u64 + 1);
                if lineage.is_before_pending(at) {
                    calls.said_behind = calls.said_behind.max(behind);
                }
                // Discards of 0.1 do not say it.
                if said.is_none() && discarded.is_some_and(|discarded| at < discarded) {
                    calls.first_ordinal = calls.first_ordinal.max(behind);
                }
                calls.given_behind = calls.given_behind.max(behind);
                calls.recorded.extend(Recorded::of(call, &mut ways));
            }
        }
        calls.next_ordinal = calls.first_ordinal;
        Ok(())
    }
}

/// The ordinal that a record says.
fn ordinal_of(item: &Item) -> Option<u64> {
    let Item::Record(record) = item else { return None };
    u64::try_from(record.get(fields::ORDINAL)?.as_int()?).ok()
}
