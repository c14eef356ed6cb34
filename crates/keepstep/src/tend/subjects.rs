//! Follows every attempt, stream and run through the log of a writer: are its sequences dense, and which step is which?

use std::collections::{BTreeSet, HashMap};

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::Kind;

use super::bases::Copies;
use super::report::Missing;

fn is_copy(bind: &Bind) -> bool {
    matches!(bind.what, What::Copied { .. })
}

/// Where one subject is.
#[derive(Debug, Default)]
struct Subject {
    /// Sequences that were seen, or are known to have been there.
    next_seq: u32,
    /// Known beyond `next_seq`, since something before is missing so far.
    beyond: BTreeSet<u32>,
    next_step: i64,
}

/// All subjects of one log, by writer: what `compact` made has those of many.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    by_bind: HashMap<(Id, Bind), Subject>,
}

impl Subjects {
    pub(super) fn len(&self) -> u64 {
        self.by_bind.len() as u64
    }

    /// Notes a record that is there or is lost by name. False if its sequence was there before.
    pub(super) fn note(&mut self, writer: &Id, bind: &Bind, seq: u32) -> bool {
        let subject = self.by_bind.entry((*writer, *bind)).or_default();
        if seq < subject.next_seq || !subject.beyond.insert(seq) {
            return false;
        }
        while subject.beyond.first() == Some(&subject.next_seq) {
            subject.beyond.pop_first();
            subject.next_seq = subject.next_seq.saturating_add(1);
        }
        true
    }

    /// The step that a record belongs to: what it says itself, else what follows from those before it.
    pub(super) fn step(&mut self, writer: &Id, bind: &Bind, kind: u8, index: Option<i64>) -> Option<i64> {
        let kind = Kind::from_u8(kind)?;
        let completes = matches!(kind, Kind::First | Kind::Step | Kind::Result | Kind::Item);
        let belongs = completes || matches!(kind, Kind::Intent | Kind::Discard);
        let subject = self.by_bind.entry((*writer, *bind)).or_default();
        let step = index.or(belongs.then_some(subject.next_step));
        if completes && let Some(step) = step {
            subject.next_step = step.saturating_add(1);
        }
        step
    }

    /// The attempts of which something is there, or was.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (Id, u32)> {
        self.by_bind
            .keys()
            .filter(|(_, bind)| bind.what == What::Attempt)
            .map(|(_, bind)| (bind.id, bind.attempt))
    }

    /// What is there of copies.
    pub(super) fn add_copies_to(&self, copies: &mut Copies) {
        for (whose, subject) in self.by_bind.iter().filter(|((_, bind), _)| is_copy(bind)) {
            copies
                .entry(*whose)
                .or_default()
                .extend((0..subject.next_seq).chain(subject.beyond.iter().copied()));
        }
    }

    /// What is missing, now that the whole log was seen.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        // What must be there of a copy is said by a base.
        for ((writer, bind), subject) in self.by_bind.iter().filter(|((_, bind), _)| !is_copy(bind)) {
            let mut from = subject.next_seq;
            for &seq in &subject.beyond {
                if from < seq {
                    missing.push(Missing { writer: *writer, bind: *bind, from, to: seq });
                }
                from = seq.saturating_add(1);
            }
        }
        missing.sort_by_key(|missing| (missing.writer, missing.bind.id, missing.bind.attempt, missing.from));
        missing
    }
}
