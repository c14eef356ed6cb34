//! Closes the logs of writers that seem gone, and keeps claims of takers that seem gone from becoming attempts.
//!
//! The evidence that a process is gone may be wrong. Closing is safe all the same: a writer whose log is closed
//! acknowledges nothing more there, and a taker whose base is void never begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;
use keepstep_format::card::kind;

use crate::disk;
use crate::error::{Doing, Result};
use crate::own::OwnerState;
use crate::own::closing::{self, Answer};
use crate::read::Catalog;
use crate::recover::Recovery;
use crate::segment::cards::{Published, publish_card};
use crate::segment::chain::{Based, base_path, lost_base, read_based, read_claim, void_base_fields};
use crate::segment::log::closed_by_its_owner;
use crate::segment::names::list_segments;
use crate::segment::{Liveness, ScanUnsealed};
use crate::store::Store;
use crate::tend::CloseLogs;

/// How often to look for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
        let is_recorded = catalog.attempts_at(episode).iter().any(|key| key.attempt == attempt);
        if is_recorded { Err(lost_base(episode, attempt)) } else { Ok(()) }
    }
}

impl CloseLogs for Closer<'_> {
    fn close(&self, writers: &[Id]) -> Result<BTreeMap<Id, String>> {
        let (mut not_closed, mut waiting) = (BTreeMap::new(), Vec::new());
        for &writer in writers {
            if self.is_closed(&writer)? {
                continue;
            }
            let state = self.store.leases().state(&writer);
            if state == OwnerState::Live {
                not_closed.insert(writer, "its writer is there".to_owned());
                continue;
            }
            let number = closing::ask(self.store.cards(), self.store.notices(), &writer)?;
            let asked = Asked { writer, number };
            // If the lock is free, do not wait. Should the owner be alive, it is fenced, and no data is lost.
            match state {
                OwnerState::Dead(_) => self.decide(&asked, &mut not_closed)?,
                _ => waiting.push(asked),
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
        closing::is_closed(cards, writer)
    }

    /// Publishes the answer "closed" in place of an owner that does not answer.
    fn decide(&self, asked: &Asked, not_closed: &mut BTreeMap<Id, String>) -> Result<()> {
        let Asked { writer, number } = asked;
        if closing::answer(self.store.cards(), writer, *number, Answer::Closed)? == Answer::Alive {
            not_closed.insert(*writer, "its writer is there, and says so".to_owned());
        }
        Ok(())
    }

    /// Gives owners whose state is unknown the time of a lease to answer.
    fn wait_for(&self, mut waiting: Vec<Asked>, not_closed: &mut BTreeMap<Id, String>) -> Result<()> {
        let (disk, lease) = (self.store.disk(), self.store.leases().lease());
        let started_us = disk.uptime_us();
        while !waiting.is_empty() {
            let waited = Duration::from_micros((disk.uptime_us() - started_us).max(0) as u64);
            let mut left = Vec::new();
            for asked in waiting {
                match closing::answered(self.store.cards(), &asked.writer, asked.number)? {
                    None if waited < lease => left.push(asked),
                    _ => self.decide(&asked, not_closed)?,
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
