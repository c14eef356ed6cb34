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

/// Reads one attempt, or whatever else has records of its own.
#[derive(Debug)]
pub struct AttemptReader {
    parts: Parts,
    bodies: LogBodies,
    nameless: Vec<(u64, u64)>,
}

impl AttemptReader {
    /// What `writer` recorded; `log` is its own, or that of what `compact` made.
    pub(super) fn new(log: &Log, writer: &Id, bind: Bind, scan: Arc<dyn ScanUnsealed>) -> Self {
        let damage = log.segments().flat_map(|it| it.nameless_damage().into_iter().map(|at| (it.number, at)));
        let nameless = damage.collect();
        Self { parts: Parts::new(log, writer, bind, scan), bodies: log.bodies(), nameless }
    }

    /// True if nothing of it is in this log.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Its records, in order.
    pub fn records(&mut self) -> Records<'_> {
        self.records_from(0)
    }

    /// Its records from a sequence on.
    pub fn records_from(&mut self, seq: u32) -> Records<'_> {
        Records::new(self.parts.places(seq), &mut self.bodies)
    }

    /// What happened in it, in order.
    pub fn events(&mut self) -> Events<Records<'_>> {
        Events::new(self.records())
    }

    /// Damage in the log of which nobody knows what was there: it may have been part of this attempt.
    /// The number of its segment, and where it begins there.
    pub fn nameless_damage(&self) -> &[(u64, u64)] {
        &self.nameless
    }

    /// How it ended, as the index of a segment says that has its END.
    pub(super) fn said_why(&self) -> Option<String> {
        self.parts.said_why()
    }

    /// Where its records stand from a sequence on, without reading one.
    pub(super) fn outline(&self, seq: u32) -> impl Iterator<Item = Result<Next>> {
        let mut places = self.parts.places(seq);
        std::iter::from_fn(move || places.next().transpose())
    }

    /// A reader of the same, with a new look at where it is.
    pub(super) fn find_again(&self) -> Result<Self> {
        self.parts.find_again()
    }

    /// Fetches its records, wherever it goes.
    pub(super) fn into_bodies(self) -> LogBodies {
        self.bodies
    }

    /// Fetches its records.
    pub(super) fn bodies(&mut self) -> &mut LogBodies {
        &mut self.bodies
    }

    /// Reads all of it.
    pub fn read(&mut self) -> Result<Attempt> {
        Attempt::of(self.events())
    }
}

/// An attempt, all of it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// How it began.
    pub begin: Option<Begin>,
    /// Its steps.
    pub steps: Vec<RecordedStep>,
    /// A turn that was said and has no result.
    pub pending: Option<RecordedStep>,
    /// Turns that were given up.
    pub discarded: Vec<Discarded>,
    /// Calls that were recorded.
    pub calls: Vec<Call>,
    /// Notes that were added.
    pub notes: Vec<Note>,
    /// How it ended.
    pub end: Option<End>,
    /// Records that cannot be read and are part of no step.
    pub damaged: Vec<DamagedRecord>,
    /// Records that are missing.
    pub gaps: Vec<Gap>,
}

impl Attempt {
    /// All that these events tell.
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
            // Of an attempt that goes on from another, the last beginning and the last end are its own.
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

    /// True if nothing of it is lost.
    pub fn is_whole(&self) -> bool {
        let steps = self.steps.iter().chain(&self.pending).all(|step| step.damaged.is_empty());
        let calls = self.calls.iter().all(|call| call.damaged.is_empty());
        let notes = self.notes.iter().all(|note| note.damaged.is_empty());
        let ends = self.begin.iter().all(|begin| begin.damaged.is_empty())
            && self.end.iter().all(|end| end.damaged.is_empty());
        steps && calls && notes && ends && self.damaged.is_empty() && self.gaps.is_empty()
    }
}
