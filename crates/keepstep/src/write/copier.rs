//! Copies records of another writer's log into this one, so that inherited records are synced by this process.

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;

use super::handoff::{Ticket, WhenFull};
use super::subject::{Subject, SubjectKey, SubjectName};
use super::writer::Writer;
use crate::error::Result;
use crate::options::Level;

/// A record that is copied: its kind and fields.
pub(crate) type Copied = (Kind, Vec<(u8, Value)>);

/// What is copied, and from where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyOf {
    pub(crate) episode: Id,
    pub(crate) attempt: u32,
    /// The writer whose log it is copied from.
    pub(crate) from: Id,
    /// The sequence number of the first record; copies keep it.
    pub(crate) first_seq: u32,
}

impl CopyOf {
    fn key(&self) -> SubjectKey {
        SubjectKey { what: What::Copied { from: self.from }, id: self.episode, attempt: self.attempt }
    }
}

/// The next sequence number to copy: an earlier try that failed later may have copied some.
pub(crate) fn copied_to(writer: &Writer, what: &CopyOf) -> u32 {
    writer.next_seq(&what.key()).unwrap_or(what.first_seq)
}

/// Copies records, one after the other. Durable when it returns.
pub(crate) fn copy(
    writer: &Writer,
    what: &CopyOf,
    records: impl Iterator<Item = Result<Copied>>,
) -> Result<()> {
    let subject = Arc::new(Subject::new(what.key(), SubjectName::default()).at_seq(what.first_seq));
    let mut last: Option<Ticket> = None;
    for record in records {
        let (kind, fields) = record?;
        let mut pending = writer.prepare(&subject, subject.epoch(), kind, fields, Level::Power)?;
        // A copied END does not end the copying: another try must know how far this one came.
        pending.last = false;
        last = Some(writer.submit(pending, WhenFull::Wait)?);
    }
    match last {
        // An acknowledgement covers all earlier records.
        Some(ticket) => writer.wait(&ticket, Level::Power, None).map(|_| ()),
        None => Ok(()),
    }
}
