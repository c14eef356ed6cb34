//! What a lineage has after its completed steps: the pending turn, and its calls.

use keepstep_format::kind::Kind;

use super::item::Item;
use super::kinds::Call;
use super::lineage::Lineage;
use super::step::RecordedStep;
use crate::error::Result;

impl Lineage {
    /// The turn that has an intent and no result.
    pub(crate) fn pending(&mut self) -> Result<Option<RecordedStep>> {
        let Some(at) = self.pending else { return Ok(None) };
        let mut step = RecordedStep { index: self.steps.len() as i64, ..RecordedStep::default() };
        match self.item(at)? {
            Item::Record(record) => step.add(&record),
            Item::Damaged(lost) => step.lose(&lost),
            Item::Gap(_) => {}
        }
        Ok(Some(step))
    }

    /// True for a line before the intent of the pending turn.
    pub(crate) fn is_before_pending(&self, at: usize) -> bool {
        self.pending.is_some_and(|pending| at < pending)
    }

    /// The records of a kind after the last completed step.
    pub(crate) fn since_last_step(&self, kind: Kind) -> Vec<usize> {
        let from = self.steps.last().map_or(0, |step| step.done + 1);
        (from..self.lines.len()).filter(|&at| self.lines[at].kind == kind as u8).collect()
    }

    /// The calls, in order. Reads only these. A damaged call is still listed.
    pub(crate) fn calls(&mut self) -> Result<Vec<Call>> {
        let is_call = |at: &usize| self.lines[*at].kind == Kind::Call as u8;
        let calls: Vec<usize> = (0..self.lines.len()).filter(is_call).collect();
        let read = |at: usize| {
            Ok(match self.item(at)? {
                Item::Record(record) => Call::of(&record),
                Item::Damaged(_) | Item::Gap(_) => Call { damaged: vec!["call"], ..Call::default() },
            })
        };
        calls.into_iter().map(read).collect()
    }

    /// What cannot be read of the turn under way, before a line: a lost answer of a call would be asked for again.
    /// Damage in completed steps is reported when they are read.
    pub(crate) fn loss_since_last_step(&mut self, before: usize) -> Result<Option<String>> {
        for kind in [Kind::Intent, Kind::Call] {
            for at in self.since_last_step(kind).into_iter().filter(|at| *at < before) {
                let is_whole = matches!(self.item(at)?, Item::Record(record) if record.lost.is_empty());
                if !is_whole {
                    let (line, span) = (&self.lines[at], &self.parts[self.lines[at].part].span);
                    return Ok(Some(format!(
                        "record {} of attempt {} cannot be read",
                        line.seq, span.attempt
                    )));
                }
            }
        }
        Ok(None)
    }
}
