//! Proof that a step is durable, or the way to wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;

use super::event::Stage;
use super::handoff::Ticket;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::options::Level;

/// A record on its way, or there. Dropping it does not withdraw the record.
#[derive(Clone)]
pub struct Receipt {
    pub(super) writer: Arc<Writer>,
    pub(super) ticket: Ticket,
    pub(super) episode: Id,
    pub(super) index: Option<u64>,
    pub(super) level: Level,
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

    /// What it survives by now; nothing yet if it is on its way or was not recorded.
    pub fn level(&self) -> Option<Level> {
        if self.has_failed() {
            return None;
        }
        match self.ticket.event.stage() {
            Stage::Queued => None,
            Stage::Kill => Some(Level::Kill),
            // What a sync is worth is for the storage to say.
            Stage::Power => Some(self.writer.strongest()),
        }
    }

    /// True if a sync has covered it, whatever that is worth here.
    pub(crate) fn is_synced(&self) -> bool {
        !self.has_failed() && self.ticket.event.stage() == Stage::Power
    }

    /// Waits until a sync has covered it, whatever that is worth here.
    pub(crate) fn wait_synced(&self) -> Result<()> {
        self.writer.check_process()?;
        self.writer.wait(&self.ticket, Level::Power, None).map(|_| ())
    }

    /// True if it is known that it was not recorded.
    pub(crate) fn has_failed(&self) -> bool {
        // In a forked child the list of failures may be locked for ever: there, nothing of a batch with one is known.
        let event = &self.ticket.event;
        event.has_failures()
            && (self.writer.check_process().is_err() || event.failure(self.ticket.index).is_some())
    }

    /// Waits until the level that was asked for is reached.
    pub fn wait(&self) -> Result<()> {
        self.wait_for(self.level, None).map(|_| ())
    }

    /// Looks whether the level that was asked for is reached, without waiting; none if it is not known yet.
    pub fn poll(&self) -> Option<Result<()>> {
        self.writer.poll(&self.ticket, self.level)
    }

    /// The level that was asked for.
    pub fn wanted(&self) -> Level {
        self.level
    }

    /// Waits until a level is reached, which may be higher than what was asked for. False if the time was over first.
    pub fn wait_for(&self, level: Level, timeout: Option<Duration>) -> Result<bool> {
        if level == Level::Machine {
            return Err(Error::LevelOutOfReach {
                wanted: level.name(),
                storage: "a directory".to_owned(),
                why: "one machine's disk goes with the machine; record to a bucket".to_owned(),
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
        // A forked child would wait for ever: nobody there commits.
        self.writer.check_process()?;
        self.writer.wait(&self.ticket, level, timeout)
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
