//! The state of an attempt during recording: how far it is, and what may come next.

use std::collections::BTreeMap;

use keepstep_format::fields;
use keepstep_format::kind::{Effect, Kind};
use keepstep_format::value::Value;

use super::entry::Entry;
use super::receipt::Receipt;
use super::subject::Subject;
use crate::counted;
use crate::error::{Error, Result};

/// The state of an attempt.
#[derive(Debug, Default)]
pub(super) struct AttemptState {
    pub(super) epoch: u32,
    /// The epoch in which BEGIN was handed over.
    pub(super) begin_sent: Option<u32>,
    pub(super) next_index: u64,
    /// True if step 0 was the first observation.
    pub(super) has_first: bool,
    /// True if a turn has an intent and no result.
    pub(super) is_pending: bool,
    /// How many of the inherited steps failed, and which of its own. They are not turns.
    pub(super) failed_before: u64,
    failed: Vec<u64>,
    /// Named values, each with its step: the newest, and older ones to fall back on if a step is not recorded.
    named: BTreeMap<String, Vec<(u64, Value)>>,
    pub(super) ended: Option<String>,
    /// True if the handle was left, even if its end was not recorded.
    pub(super) is_left: bool,
    /// True if its store was closed while it was open.
    pub(super) is_closed: bool,
    /// The one step that was let through although the queue was full.
    pub(super) passed: Option<Receipt>,
}

/// What a record changes, noted before its values are moved.
pub(super) struct Change {
    kind: Kind,
    fails: bool,
    named: Option<Value>,
    why: Option<String>,
}

impl Change {
    pub(super) fn of(entry: &Entry) -> Self {
        let why = entry.step.get(fields::WHY).filter(|_| entry.kind == Kind::End);
        Self {
            kind: entry.kind,
            fails: entry.fails(),
            named: entry.step.get(fields::STATE).cloned(),
            why: why.and_then(Value::as_str).map(str::to_owned),
        }
    }
}

impl AttemptState {
    pub(super) fn of(subject: &Subject) -> Self {
        Self { next_index: subject.steps(), is_pending: subject.is_pending(), ..Self::default() }
    }

    /// An entry was handed over. Done under the same lock, so that nothing comes after an end.
    pub(super) fn apply(&mut self, change: Change, durable_steps: u64) {
        let Change { kind, fails, named, why } = change;
        if fails {
            self.failed.push(self.next_index);
        }
        if let Some(Value::Map(named)) = named.as_ref().map(Value::plain) {
            self.name(named, durable_steps);
        }
        self.has_first |= kind == Kind::First;
        self.next_index += u64::from(kind.completes_a_step());
        match kind.effect() {
            Effect::OpensTurn => self.is_pending = true,
            Effect::CompletesTurn | Effect::ClosesTurn => self.is_pending = false,
            Effect::CompletesStep | Effect::None => {}
        }
        self.ended = why.or(self.ended.take());
    }

    fn name(&mut self, named: &[(Value, Value)], durable_steps: u64) {
        for (name, value) in named {
            let Some(name) = name.as_str() else { continue };
            let said = self.named.entry(name.to_owned()).or_default();
            let durable = said.iter().rposition(|(index, _)| *index < durable_steps);
            said.drain(..durable.unwrap_or(0));
            said.push((self.next_index, value.clone()));
        }
    }

    /// The newest value of this name that this attempt recorded.
    pub(super) fn named(&self, name: &str) -> Option<&Value> {
        self.named.get(name)?.last().map(|(_, value)| value)
    }

    /// How many steps failed, inherited ones included.
    pub(super) fn failed(&self) -> u64 {
        self.failed_before + self.failed.len() as u64
    }

    /// An entry may not have been recorded, perhaps the end: goes back to the recorded state.
    pub(super) fn catch_up(&mut self, subject: &Subject) {
        let epoch = subject.epoch();
        if epoch == self.epoch {
            return;
        }
        self.epoch = epoch;
        let next_index = subject.steps();
        self.next_index = next_index;
        self.has_first &= next_index > 0;
        self.is_pending = subject.is_pending();
        self.failed.retain(|&index| index < next_index);
        self.named.values_mut().for_each(|said| said.retain(|&(index, _)| index < next_index));
        self.ended = None;
    }

    pub(super) fn has_step(&self, index: u64) -> bool {
        index < self.next_index || (self.is_pending && index == self.next_index)
    }

    /// An error if this entry may not come now.
    pub(super) fn check(&self, entry: &Entry, subject: &Subject) -> Result<()> {
        self.check_not_ended(subject)?;
        let bad = |field: &str, value: String, fix: &str| {
            Err(Error::BadInput { field: field.to_owned(), value, fix: fix.to_owned() })
        };
        let kind = entry.kind;
        if let Some(index) = entry.index().filter(|index| kind == Kind::Note && !self.has_step(*index)) {
            // A note on a step that does not exist would never be seen.
            let hint = format!("{} were recorded so far, numbered from 0", self.next_index);
            return Err(Error::Unknown { what: format!("step {index} of {}", subject.called()), hint });
        }
        if kind == Kind::First && self.next_index > 0 {
            let value = format!("cannot come after {}", counted(self.next_index, "step"));
            return bad("first", value, "record the first observation before any step, and once");
        }
        match kind.effect() {
            Effect::CompletesStep | Effect::OpensTurn if self.is_pending => {
                let value = format!("cannot begin while turn {} has no result", self.next_index);
                bad("step", value, "give the turn its result, or discard it")
            }
            Effect::CompletesTurn | Effect::ClosesTurn if !self.is_pending => {
                bad("turn", "has not been said".to_owned(), "say the turn first, then give its result")
            }
            Effect::CompletesStep
            | Effect::OpensTurn
            | Effect::CompletesTurn
            | Effect::ClosesTurn
            | Effect::None => Ok(()),
        }
    }

    /// An error if nothing can be recorded any more.
    pub(super) fn check_not_ended(&self, subject: &Subject) -> Result<()> {
        match self.ended.as_deref().or(self.is_left.then_some("it was left")) {
            None => Ok(()),
            Some(_) if self.is_closed => Err(Error::Closed),
            Some(why) => Err(Error::Ended { what: subject.called(), why: why.to_owned() }),
        }
    }
}
