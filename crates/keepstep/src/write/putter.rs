//! Appends records without an order among themselves: entries of a stream, notes on a run.

use std::sync::{Arc, Mutex, PoisonError};

use keepstep_format::Id;
use keepstep_format::frame::Kind;
use keepstep_format::hash::Hash;
use keepstep_format::value::Value;

use super::event::{Event, Stage};
use super::handoff::{Ticket, WhenFull};
use super::log::QueuedRecord;
use super::receipt::Receipt;
use super::subject::{Subject, SubjectKey, SubjectName};
use super::writer::Writer;
use crate::error::Result;
use crate::options::Level;

/// Appends records of one stream or run to this process's log. Threads may share it.
pub(crate) struct Putter {
    writer: Arc<Writer>,
    subject: Arc<Subject>,
    level: Level,
    /// The one record that was let through although the queue was full.
    passed: Mutex<Option<Receipt>>,
}

impl Putter {
    pub(crate) fn new(writer: Arc<Writer>, key: SubjectKey, name: SubjectName, level: Level) -> Self {
        Self { writer, subject: Arc::new(Subject::new(key, name)), level, passed: Mutex::default() }
    }

    /// The writer of the log that it appends to.
    pub(crate) fn writer(&self) -> Id {
        self.writer.id()
    }

    /// True if it appends to the log of this writer.
    pub(crate) fn is_of(&self, writer: &Arc<Writer>) -> bool {
        Arc::ptr_eq(&self.writer, writer)
    }

    /// Encodes a record without handing it over, and returns the hash of its last field if that is long enough to
    /// have one. The numbers of the fields must rise.
    pub(crate) fn prepare(&self, kind: Kind, fields: &[(u8, Value)]) -> Result<(QueuedRecord, Option<Hash>)> {
        self.writer.check_process()?;
        let fields = fields.iter().map(|(number, value)| (*number, value));
        self.writer.prepare_and_hash(&self.subject, self.subject.epoch(), kind, fields, self.level)
    }

    /// Hands a record over, and returns at once. `Busy` if the queue is full and one more record is in flight.
    pub(crate) fn hand_over(&self, mut pending: QueuedRecord) -> Result<Receipt> {
        self.writer.check_process()?;
        // Failures since it was encoded are no reason for this one to fail.
        pending.epoch = self.subject.epoch();
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let may_pass =
            passed.as_ref().is_none_or(|receipt| receipt.level().is_some() || receipt.has_failed());
        let when_full = if may_pass { WhenFull::Pass } else { WhenFull::Refuse };
        let receipt = self.receipt(self.writer.submit(pending, when_full)?);
        *passed = Some(receipt.clone());
        Ok(receipt)
    }

    /// Encodes a record and hands it over.
    pub(crate) fn append(&self, kind: Kind, fields: &[(u8, Value)]) -> Result<Receipt> {
        self.hand_over(self.prepare(kind, fields)?.0)
    }

    /// As [`Putter::append`], but waits while the queue is full.
    pub(crate) fn append_waiting(&self, kind: Kind, fields: &[(u8, Value)]) -> Result<Receipt> {
        let (pending, _) = self.prepare(kind, fields)?;
        Ok(self.receipt(self.writer.submit(pending, WhenFull::Wait)?))
    }

    /// A receipt for an entry that is durable already.
    pub(crate) fn already_durable(&self) -> Receipt {
        let event = Arc::new(Event::new());
        event.raise(Stage::Power);
        self.receipt(Ticket { event, index: 0 })
    }

    fn receipt(&self, ticket: Ticket) -> Receipt {
        let (writer, episode) = (Arc::clone(&self.writer), self.subject.key.id);
        let (subject, epoch) = (Arc::clone(&self.subject), self.subject.epoch());
        Receipt { writer, ticket, episode, index: None, level: self.level, subject, epoch }
    }
}
