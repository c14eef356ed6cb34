//! Follows every subject (attempt, stream, run) through a writer's log: are its sequence numbers dense, and which
//! record is of which step?

use std::collections::{BTreeSet, HashMap};

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};
use keepstep_format::kind::{Effect, Kind};

use super::bases::There;
use super::named::Rests;
use super::report::Missing;

fn is_copy(bind: &Bind) -> bool {
    matches!(bind.what, What::Copied { .. })
}

/// Sequence numbers that were seen, or are known to have been there.
#[derive(Debug, Default)]
struct Sequences {
    /// All numbers before this one are known.
    next: u32,
    /// Known numbers beyond it: one before them is missing so far.
    beyond: BTreeSet<u32>,
}

impl Sequences {
    /// In ranges, in order.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges = vec![(0, self.next)];
        for &seq in &self.beyond {
            match ranges.last_mut() {
                Some((_, to)) if *to == seq => *to = seq.saturating_add(1),
                _ => ranges.push((seq, seq.saturating_add(1))),
            }
        }
        ranges
    }

    /// False if it was there before.
    fn insert(&mut self, seq: u32) -> bool {
        if seq < self.next || !self.beyond.insert(seq) {
            return false;
        }
        while self.beyond.first() == Some(&self.next) {
            self.beyond.pop_first();
            self.next = self.next.saturating_add(1);
        }
        true
    }
}

/// How far one subject was followed.
#[derive(Debug, Default)]
struct Subject {
    sequences: Sequences,
    next_step: i64,
}

/// All subjects of one log, by writer: segments that `compact` made have those of many writers.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    by_bind: HashMap<(Id, Bind), Subject>,
}

impl Subjects {
    pub(super) fn len(&self) -> u64 {
        self.by_bind.len() as u64
    }

    /// Notes a record that is there or is known to be lost. False if its sequence number was there before.
    pub(super) fn note(&mut self, writer: &Id, bind: &Bind, seq: u32) -> bool {
        self.by_bind.entry((*writer, *bind)).or_default().sequences.insert(seq)
    }

    /// The step of a record: its own index, or what follows from the records before it.
    pub(super) fn step(&mut self, writer: &Id, bind: &Bind, kind: u8, index: Option<i64>) -> Option<i64> {
        let kind = Kind::from_u8(kind)?;
        let completes = kind.completes_a_step();
        let belongs = kind.effect() != Effect::None;
        let subject = self.by_bind.entry((*writer, *bind)).or_default();
        let step = index.or(belongs.then_some(subject.next_step));
        if completes && let Some(step) = step {
            subject.next_step = step.saturating_add(1);
        }
        step
    }

    /// Adds these attempts and streams to `rests`.
    pub(super) fn add_to(&self, rests: &mut Rests) {
        self.by_bind.keys().for_each(|(writer, bind)| rests.note_subject(writer, bind));
    }

    /// Adds the ranges of attempts and of copies to `there`.
    pub(super) fn add_to_there(&self, there: &mut There) {
        for (whose, subject) in &self.by_bind {
            there.entry(*whose).or_default().extend(subject.sequences.ranges());
        }
    }

    /// What is missing, after the whole log was seen.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        // What a copy must have is named by a base.
        for ((writer, bind), subject) in self.by_bind.iter().filter(|((_, bind), _)| !is_copy(bind)) {
            let mut from = subject.sequences.next;
            for &seq in &subject.sequences.beyond {
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
