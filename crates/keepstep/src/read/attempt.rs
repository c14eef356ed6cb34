//! Reads one attempt: its records, or the steps that they make up.

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::Bind;

use super::events::Events;
use super::kinds::Attempt;
use super::places::{Next, Parts};
use super::records::Records;
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
    pub(super) fn new(log: &Log, writer: &Id, bind: Bind, scan: Arc<dyn ScanUnsealed>) -> Result<Self> {
        let segments = log.segments_with(&bind.id)?;
        let damage =
            segments.into_iter().flat_map(|it| it.nameless_damage().into_iter().map(|at| (it.number, at)));
        let nameless = damage.collect();
        Ok(Self { parts: Parts::new(log, writer, bind, scan)?, bodies: log.bodies(), nameless })
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
        self.events().read()
    }
}
