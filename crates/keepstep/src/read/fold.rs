//! Folds records into steps: an INTENT and its RESULT are one step, and the END tells which step was the last.

use std::collections::VecDeque;

use keepstep_format::fields;
use keepstep_format::frame::KIND_SKIPPABLE;
use keepstep_format::kind::{Effect, Kind};

use super::item::{DamagedRecord, Item, Record};
use super::kinds::{Discarded, End, EpisodeEvent};
use super::step::{RecordedStep, StepKind};

/// Folds the records of one attempt.
///
/// The newest step and what follows it are held back until it is known whether it was the last.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// Events to yield; the newest step, if there is one, is the first.
    held: VecDeque<EpisodeEvent>,
    pending: Vec<RecordedStep>,
    next_index: i64,
}

impl Fold {
    /// A fold without records.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds the next item, and returns the events that are known now.
    pub(super) fn add(&mut self, item: Item) -> Vec<EpisodeEvent> {
        match item {
            Item::Record(record) => self.record(&record),
            Item::Damaged(lost) => self.damaged(&lost),
            Item::Gap(gap) => self.hold(EpisodeEvent::Gap(gap)),
        }
    }

    /// There are no more items for now: returns what was held back.
    pub(super) fn finish(&mut self) -> Vec<EpisodeEvent> {
        self.held.drain(..).collect()
    }

    /// Turns that have an intent and no result.
    pub(super) fn pending(&self) -> &[RecordedStep] {
        &self.pending
    }

    fn record(&mut self, record: &Record) -> Vec<EpisodeEvent> {
        let Some(kind) = record.kind() else {
            // A kind of a later version. The spec lets readers skip some of these; the others are reported.
            let (seq, kind, place) = (record.seq, record.kind, record.place);
            return match kind >= KIND_SKIPPABLE {
                true => Vec::new(),
                false => self.hold(EpisodeEvent::Damaged(DamagedRecord { seq, kind, place })),
            };
        };
        match kind.effect() {
            Effect::CompletesStep => {
                let mut step = self.step_of(kind);
                step.add(record);
                self.completed(step)
            }
            Effect::OpensTurn => {
                let mut step = self.next_step();
                step.add(record);
                self.pending.push(step);
                Vec::new()
            }
            Effect::CompletesTurn => {
                let mut step = self.take_pending(index_of(record)).unwrap_or_else(|| {
                    // Its INTENT is in a gap.
                    let mut step = self.next_step();
                    step.lose_fields(Kind::Intent);
                    step
                });
                step.add(record);
                self.completed(step)
            }
            Effect::ClosesTurn => self.discarded(record),
            Effect::None => match EpisodeEvent::beside(kind, record) {
                Some(EpisodeEvent::End(end)) => self.ended(*end),
                Some(event) => self.hold(event),
                // Not a record of an attempt.
                None => Vec::new(),
            },
        }
    }

    fn damaged(&mut self, lost: &DamagedRecord) -> Vec<EpisodeEvent> {
        let Some(kind) = Kind::from_u8(lost.kind) else { return self.hold(EpisodeEvent::Damaged(*lost)) };
        match kind.effect() {
            Effect::CompletesStep => {
                let mut step = self.step_of(kind);
                step.lose(lost);
                self.completed(step)
            }
            Effect::OpensTurn => {
                let mut step = self.next_step();
                step.lose(lost);
                self.pending.push(step);
                Vec::new()
            }
            Effect::CompletesTurn => {
                let mut step = self.take_pending(None).unwrap_or_else(|| self.next_step());
                step.lose(lost);
                self.completed(step)
            }
            Effect::ClosesTurn | Effect::None => self.hold(EpisodeEvent::Damaged(*lost)),
        }
    }

    /// The next step, completed by a record of this kind.
    fn step_of(&self, kind: Kind) -> RecordedStep {
        let mut step = self.next_step();
        if kind == Kind::First {
            step.kind = StepKind::First;
        }
        step
    }

    fn next_step(&self) -> RecordedStep {
        RecordedStep { index: self.next_index, ..RecordedStep::default() }
    }

    /// The turn of a result: the one with its index, or the newest if the index is not known.
    fn take_pending(&mut self, index: Option<i64>) -> Option<RecordedStep> {
        let at = match index {
            Some(index) => self.pending.iter().rposition(|step| step.index == index)?,
            None => self.pending.len().checked_sub(1)?,
        };
        Some(self.pending.remove(at))
    }

    fn completed(&mut self, step: RecordedStep) -> Vec<EpisodeEvent> {
        self.next_index = step.index.saturating_add(1);
        let told = self.held.drain(..).collect();
        self.held.push_back(EpisodeEvent::Step(Box::new(step)));
        told
    }

    fn discarded(&mut self, record: &Record) -> Vec<EpisodeEvent> {
        let index = index_of(record);
        let step = self.take_pending(index).map(Box::new);
        let index = index.or(step.as_ref().map(|step| step.index)).unwrap_or(self.next_index);
        let reason = record.get(fields::REASON).and_then(|value| value.as_str()).map(str::to_owned);
        let time = record.get(fields::TIME).and_then(|value| value.as_int());
        self.hold(EpisodeEvent::Discarded(Box::new(Discarded { index, reason, time, step })))
    }

    fn ended(&mut self, end: End) -> Vec<EpisodeEvent> {
        if end.makes_last()
            && let Some(EpisodeEvent::Step(step)) = self.held.front_mut()
            && !step.kind_was_said
        {
            step.kind = StepKind::Last;
        }
        self.held.push_back(EpisodeEvent::End(Box::new(end)));
        self.held.drain(..).collect()
    }

    /// Returns the event at once if no step is held back before it.
    fn hold(&mut self, told: EpisodeEvent) -> Vec<EpisodeEvent> {
        if self.held.is_empty() {
            return vec![told];
        }
        self.held.push_back(told);
        Vec::new()
    }
}

fn index_of(record: &Record) -> Option<i64> {
    record.get(fields::INDEX).and_then(|value| value.as_int())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::RecordPlace;

    /// A kind that only a later version knows is reported, unless the spec lets readers skip it.
    #[test]
    fn records_of_a_kind_that_is_not_known_are_told() {
        let place = RecordPlace { segment: 0, offset: 128 };
        for (kind, told) in [(0x1b, 1), (0x7f, 1), (KIND_SKIPPABLE, 0), (0xff, 0), (Kind::Put as u8, 0)] {
            let record = Record { seq: 3, kind, place, bytes: 0, fields: Vec::new(), lost: Vec::new() };
            assert_eq!(Fold::new().add(Item::Record(Box::new(record))).len(), told, "kind {kind:#x}");
        }
    }
}
