//! Closes the logs of writers that seem gone, and keeps claims of takers that seem gone from becoming attempts.
//!
//! The evidence that a process is gone may be wrong. Closing is safe all the same: a writer whose log is closed
//! acknowledges nothing more there, and a taker whose base is void never begins.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;
use keepstep_format::card::kind;

use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::own::OwnerState;
use crate::own::closing;
use crate::read::Catalog;
use crate::recover::Recovery;
use crate::segment::cards::{Published, publish_card};
use crate::segment::chain::{Based, base_path, lost_base, read_based, read_claim, void_base_fields};
use crate::segment::closed::{LogEnd, answered};
use crate::segment::log::{Log, closed_by_its_owner};
use crate::segment::names::{list_segments, segment_path};
use crate::segment::{Liveness, ScanUnsealed};
use crate::store::Store;
use crate::tend::{CloseLogs, NotClosed};

/// How often to look for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the system says of a part of the disk that cannot be read or written.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// Closes logs, and reads them.
pub(in crate::store) struct Closer<'s> {
    store: &'s Store,
    scan: Arc<Recovery>,
    scan_closed: Recovery,
}

/// A question without an answer yet.
struct Asked {
    writer: Id,
    number: u64,
}

/// What came of asking.
enum Asking {
    /// The log is closed; or it is not, and why.
    Decided(Option<NotClosed>),
    Open(Asked),
}

/// Separates what is wrong with the files of one writer, such as an answer that cannot be read: its log is not closed.
/// A disk that is full, or that cannot be written to, concerns them all.
fn or_trouble(asking: Result<Asking>) -> Result<Asking> {
    let is_its_own = |error: &Error| match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => false,
        Error::Io { source, .. } => error.is_of_one_file() || source.raw_os_error() == Some(EIO),
        _ => error.is_of_one_file(),
    };
    match asking {
        Err(error) if is_its_own(&error) => Ok(Asking::Decided(Some(NotClosed::Trouble(error)))),
        asking => asking,
    }
}

fn note(not_closed: &mut BTreeMap<Id, NotClosed>, writer: Id, outcome: Option<NotClosed>) {
    not_closed.extend(outcome.map(|why| (writer, why)));
}

impl Store {
    pub(in crate::store) fn closer(&self) -> Closer<'_> {
        let scan_closed = Recovery::new(Box::new(|_| Liveness::Dead));
        Closer { store: self, scan: self.recovery(), scan_closed }
    }

    /// Keeps a claim whose taker seems gone from ever becoming an attempt. False if it has become one, which then
    /// counts.
    pub(in crate::store) fn pass_over(&self, episode: &Id, attempt: u32) -> Result<bool> {
        if self.inner.place.options.is_broken_pass_over_by_evidence() {
            return Ok(true);
        }
        self.refuse_to_bury_records(episode, attempt)?;
        let path = base_path(episode, attempt);
        let card = void_base_fields(episode, attempt, self.disk().now_us());
        if publish_card(self.cards(), &path, kind::BASE, &card)? == Published::Done {
            return Ok(true);
        }
        // The process that published it may have died before it synced the name.
        let dir = disk::parent(&path);
        self.disk().settle(dir).doing("sync", dir)?;
        Ok(matches!(read_based(self.cards(), episode, attempt)?, Some(Based::Void)))
    }

    /// An error if an attempt has records: then its base was published before, and is missing now. A void base in its
    /// place would hide that for ever.
    fn refuse_to_bury_records(&self, episode: &Id, attempt: u32) -> Result<()> {
        let based = read_based(self.cards(), episode, attempt)?;
        let Some(claim) = read_claim(self.cards(), episode, attempt)?.filter(|_| based.is_none()) else {
            return Ok(());
        };
        let mut catalog = Catalog::unread(Arc::clone(&self.inner.place.cards), Arc::new(Recovery::dirty()));
        catalog.refresh_of(&[claim.writer])?;
        let is_recorded = catalog.attempts_at(episode)?.iter().any(|key| key.attempt == attempt);
        if is_recorded { Err(lost_base(episode, attempt)) } else { Ok(()) }
    }
}

impl CloseLogs for Closer<'_> {
    fn close(&self, writers: &[Id]) -> Result<BTreeMap<Id, NotClosed>> {
        let (mut not_closed, mut waiting) = (BTreeMap::new(), Vec::new());
        for &writer in writers {
            match or_trouble(self.ask(writer))? {
                Asking::Decided(outcome) => note(&mut not_closed, writer, outcome),
                Asking::Open(asked) => waiting.push(asked),
            }
        }
        self.wait_for(waiting, &mut not_closed)?;
        Ok(not_closed)
    }

    fn scan(&self) -> &dyn ScanUnsealed {
        &*self.scan
    }

    fn scan_closed(&self) -> &dyn ScanUnsealed {
        &self.scan_closed
    }
}

impl Closer<'_> {
    /// True if its owner has closed it normally, or another process has closed it before.
    fn is_closed(&self, writer: &Id) -> Result<bool> {
        let cards = self.store.cards();
        let last = list_segments(&**self.store.disk(), writer)?.last().copied();
        if let Some(last) = last
            && closed_by_its_owner(cards, writer, last)?
        {
            return Ok(true);
        }
        Ok(closing::is_closed(cards, writer)?.is_some())
    }

    /// Asks a writer that seems gone whether its log may be closed.
    fn ask(&self, writer: Id) -> Result<Asking> {
        if self.is_closed(&writer)? {
            return Ok(Asking::Decided(None));
        }
        let state = self.store.leases().state(&writer);
        if state == OwnerState::Live {
            return Ok(Asking::Decided(Some(NotClosed::For("its writer is alive"))));
        }
        let number = closing::ask(self.store.cards(), self.store.notices(), &writer)?;
        let asked = Asked { writer, number };
        // If the lock is free, do not wait. Should the owner be alive, it is fenced, and no data is lost.
        match state {
            OwnerState::Dead(_) => self.decide(&asked).map(Asking::Decided),
            _ => Ok(Asking::Open(asked)),
        }
    }

    /// Publishes the answer "closed" in place of an owner that does not answer. Returns why it is not closed, if so.
    fn decide(&self, asked: &Asked) -> Result<Option<NotClosed>> {
        let Asked { writer, number } = asked;
        let cards = self.store.cards();
        // Read after the letter was posted: what the owner acknowledged without having seen it is there.
        let end = match self.end_of(writer) {
            // It was closed by yet another process, and replaced.
            Err(error) if error.is_gone() && closing::is_closed(cards, writer)?.is_some() => return Ok(None),
            end => end?,
        };
        Ok(match end.map(|end| closing::close(cards, writer, *number, end)).transpose()? {
            None => Some(NotClosed::For("where its log ends cannot be read")),
            Some(None) => Some(NotClosed::For("its writer is alive: it answered")),
            Some(Some(_)) => None,
        })
    }

    /// What came of a question, as far as it is known.
    fn look_for_answer(&self, asked: Asked, is_over: bool) -> Result<Asking> {
        match answered(self.store.cards(), &asked.writer, asked.number)? {
            None if !is_over => Ok(Asking::Open(asked)),
            _ => self.decide(&asked).map(Asking::Decided),
        }
    }

    /// Where a log ends now. What is in it must not be gone after a power cut.
    fn end_of(&self, writer: &Id) -> Result<Option<LogEnd>> {
        let mut log = Log::new(self.store.storage_as_it_is(), *writer);
        log.refresh(&self.scan_closed)?;
        let end = log.end();
        if let Some(LogEnd { segment, .. }) = end.filter(|end| end.bytes > 0) {
            let path = segment_path(writer, segment);
            log.storage().file(writer, segment)?.sync().doing("sync", &path)?;
        }
        Ok(end)
    }

    /// Gives owners whose state is unknown the time of a lease to answer.
    fn wait_for(&self, mut waiting: Vec<Asked>, not_closed: &mut BTreeMap<Id, NotClosed>) -> Result<()> {
        let (disk, lease) = (self.store.disk(), self.store.leases().lease());
        let started_us = disk.uptime_us();
        while !waiting.is_empty() {
            let waited = Duration::from_micros((disk.uptime_us() - started_us).max(0) as u64);
            let mut left = Vec::new();
            for asked in waiting {
                let writer = asked.writer;
                match or_trouble(self.look_for_answer(asked, waited >= lease))? {
                    Asking::Decided(outcome) => note(not_closed, writer, outcome),
                    Asking::Open(asked) => left.push(asked),
                }
            }
            waiting = left;
            if !waiting.is_empty() {
                disk.sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}
