//! Reads one attempt: its records, or the steps that they make up.

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::Bind;

use super::events::Events;
use super::fold::EpisodeEvent;
use super::places::{Next, Parts};
use super::records::{DamagedRecord, Gap, Item, Records};
use super::step::{Begin, Call, Discarded, End, Note, RecordedStep};
use crate::error::Result;
use crate::segment::{Log, LogBodies, ScanUnsealed};

/// Reads the records of one attempt, or of a stream or a run's notes.
#[derive(Debug)]
pub struct AttemptReader {
    parts: Parts,
    bodies: LogBodies,
    nameless: Vec<(u64, u64)>,
}

impl AttemptReader {
    /// Reads the records of `writer`. `log` is its own log, or the one that `compact` made.
    pub(super) fn new(log: &Log, writer: &Id, bind: Bind, scan: Arc<dyn ScanUnsealed>) -> Self {
        let damage = log.segments().flat_map(|it| it.nameless_damage().into_iter().map(|at| (it.number, at)));
        let nameless = damage.collect();
        Self { parts: Parts::new(log, writer, bind, scan), bodies: log.bodies(), nameless }
    }

    /// True if this log has none of its records.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Its records, in order.
    pub fn records(&mut self) -> Records<'_> {
        self.records_from(0)
    }

    /// Its records from a sequence number on.
    pub fn records_from(&mut self, seq: u32) -> Records<'_> {
        Records::new(self.parts.places(seq), &mut self.bodies)
    }

    /// Its events, in order.
    pub fn events(&mut self) -> Events<Records<'_>> {
        Events::new(self.records())
    }

    /// Damage in the log that may have hit this attempt: it is not known which records were there. The number of the
    /// segment, and where the damage begins.
    pub fn nameless_damage(&self) -> &[(u64, u64)] {
        &self.nameless
    }

    /// How it ended, according to the index of the segment that has its END.
    pub(super) fn said_why(&self) -> Option<String> {
        self.parts.said_why()
    }

    /// Where its records stand from a sequence number on, without reading them.
    pub(super) fn outline(&self, seq: u32) -> impl Iterator<Item = Result<Next>> {
        let mut places = self.parts.places(seq);
        std::iter::from_fn(move || places.next().transpose())
    }

    /// A new reader of the same records, which looks again where they are.
    pub(super) fn find_again(&self) -> Result<Self> {
        self.parts.find_again()
    }

    /// Turns into what fetches its records.
    pub(super) fn into_bodies(self) -> LogBodies {
        self.bodies
    }

    /// What fetches its records.
    pub(super) fn bodies(&mut self) -> &mut LogBodies {
        &mut self.bodies
    }

    /// Reads all of it.
    pub fn read(&mut self) -> Result<Attempt> {
        Attempt::of(self.events())
    }
}

/// All of an attempt.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// How it began.
    pub begin: Option<Begin>,
    /// Its steps.
    pub steps: Vec<RecordedStep>,
    /// A turn that has an intent and no result.
    pub pending: Option<RecordedStep>,
    /// Turns that were discarded.
    pub discarded: Vec<Discarded>,
    /// Calls that were recorded.
    pub calls: Vec<Call>,
    /// Notes that were added.
    pub notes: Vec<Note>,
    /// How it ended.
    pub end: Option<End>,
    /// Records that cannot be read and belong to no step.
    pub damaged: Vec<DamagedRecord>,
    /// Records that are missing.
    pub gaps: Vec<Gap>,
}

impl Attempt {
    /// Collects events.
    pub(super) fn of<I: Iterator<Item = Result<Item>>>(mut events: Events<I>) -> Result<Self> {
        let mut attempt = Self::default();
        for event in events.by_ref() {
            attempt.add(event?);
        }
        attempt.pending = events.pending().last().cloned();
        Ok(attempt)
    }

    fn add(&mut self, event: EpisodeEvent) {
        match event {
            // In an attempt that resumed another one, the last beginning and the last end are its own.
            EpisodeEvent::Begin(begin) => self.begin = Some(*begin),
            EpisodeEvent::Step(step) => self.steps.push(*step),
            EpisodeEvent::Discarded(discarded) => self.discarded.push(*discarded),
            EpisodeEvent::Call(call) => self.calls.push(*call),
            EpisodeEvent::Note(note) => self.notes.push(*note),
            EpisodeEvent::End(end) => self.end = Some(*end),
            EpisodeEvent::Damaged(damaged) => self.damaged.push(damaged),
            EpisodeEvent::Gap(gap) => self.gaps.push(gap),
        }
    }

    /// True if nothing of it is lost or damaged.
    pub fn is_whole(&self) -> bool {
        let steps = self.steps.iter().chain(&self.pending).all(|step| step.damaged.is_empty());
        let calls = self.calls.iter().all(|call| call.damaged.is_empty());
        let notes = self.notes.iter().all(|note| note.damaged.is_empty());
        let ends = self.begin.iter().all(|begin| begin.damaged.is_empty())
            && self.end.iter().all(|end| end.damaged.is_empty());
        steps && calls && notes && ends && self.damaged.is_empty() && self.gaps.is_empty()
    }
}
