//! The receipt of a record: tells when it is durable, and waits for that.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;

use super::event::Stage;
use super::handoff::Ticket;
use super::subject::Subject;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::options::Level;

/// The receipt of a record that is in flight or durable. Dropping it does not withdraw the record.
#[derive(Clone)]
pub struct Receipt {
    pub(super) writer: Arc<Writer>,
    pub(super) ticket: Ticket,
    pub(super) episode: Id,
    pub(super) index: Option<u64>,
    pub(super) level: Level,
    /// Whose record it is of, and in which epoch: it says if it failed that this was heard.
    pub(super) subject: Arc<Subject>,
    pub(super) epoch: u32,
}

impl Receipt {
    /// The episode or stream.
    pub fn episode(&self) -> Id {
        self.episode
    }

    /// The step's index, if it is a step.
    pub fn step(&self) -> Option<u64> {
        self.index
    }

    /// The level that it has reached; `None` if it is still in flight or was not recorded.
    pub fn level(&self) -> Option<Level> {
        if self.has_failed() {
            return None;
        }
        match self.ticket.event.stage() {
            Stage::Queued => None,
            Stage::Kill => Some(Level::Kill),
            // The storage decides which level a sync reaches.
            Stage::Power => Some(self.writer.strongest()),
        }
    }

    /// True if it is synced, whatever level that is here.
    pub(crate) fn is_synced(&self) -> bool {
        !self.has_failed() && self.ticket.event.stage() == Stage::Power
    }

    /// Waits until it is synced, whatever level that is here.
    pub(crate) fn wait_synced(&self) -> Result<()> {
        self.writer.check_process()?;
        self.heard(self.writer.wait(&self.ticket, Level::Power, None)).map(|_| ())
    }

    /// True if it is known that it was not recorded.
    pub(crate) fn has_failed(&self) -> bool {
        // In a forked child, the list of failures may be locked for ever: there, the state of a batch with failures
        // is unknown.
        let event = &self.ticket.event;
        event.has_failures()
            && (self.writer.check_process().is_err() || event.failure(self.ticket.index).is_some())
    }

    /// Waits until the requested level is reached.
    pub fn wait(&self) -> Result<()> {
        self.wait_for(self.level, None).map(|_| ())
    }

    /// Checks without waiting whether the requested level is reached; `None` if it is not known yet. Whoever gets an
    /// error here, or from waiting, knows that the record is missing, and may record again.
    pub fn poll(&self) -> Option<Result<()>> {
        self.peek().map(|outcome| self.heard(outcome))
    }

    /// As [`Receipt::poll`], for whoever only shows it: the one who records has not heard of it by that.
    pub fn peek(&self) -> Option<Result<()>> {
        self.writer.poll(&self.ticket, self.level)
    }

    fn heard<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() && self.has_failed() {
            self.subject.hear(self.epoch);
        }
        outcome
    }

    /// The requested level.
    pub fn wanted(&self) -> Level {
        self.level
    }

    /// Waits until a level is reached, which may be higher than the requested one. False if the time was over first.
    pub fn wait_for(&self, level: Level, timeout: Option<Duration>) -> Result<bool> {
        if level == Level::Machine {
            return Err(Error::LevelOutOfReach {
                wanted: level.name(),
                storage: "a directory".to_owned(),
                why: "the disk is lost with the machine; record to a bucket".to_owned(),
            });
        }
        if level > self.writer.strongest() {
            return Err(Error::LevelOutOfReach {
                wanted: level.name(),
                storage: "this storage".to_owned(),
                why: "a sync here does not reach a disk (`keepstep doctor` says why); wait for level kill"
                    .to_owned(),
            });
        }
        // A forked child would wait for ever: it has no committer.
        self.writer.check_process()?;
        self.heard(self.writer.wait(&self.ticket, level, timeout))
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.index, self.level()) {
            (Some(index), Some(level)) => write!(f, "<Receipt step {index}: survives {}>", level.name()),
            (Some(index), None) => write!(f, "<Receipt step {index}: not durable yet>"),
            (None, Some(level)) => write!(f, "<Receipt: survives {}>", level.name()),
            (None, None) => f.write_str("<Receipt: not durable yet>"),
        }
    }
}
