//! How attempts ended, gathered from all logs as they grow, so that nobody has to open each to know.
//!
//! What was looked at is not looked at again: sealed segments give their index once, and of a log that grows only the END
//! records are read.

use std::collections::HashMap;
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::frame::Kind;

use super::catalog::Catalog;
use crate::error::{Error, Result};
use crate::segment::chain::read_claim;
use crate::segment::names::segment_path;
use crate::segment::scanned::{ScannedEntry, ScannedRecord};
use crate::segment::summary::Stored;
use crate::segment::summing::SegmentRecords;
use crate::segment::window::RECORD_BYTES;
use crate::segment::{Contents, Liveness, Log, Segment, Storage};

/// What the owner of an attempt said about its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Who.
    pub writer: Id,
    /// How it ended.
    pub why: Arc<str>,
}

/// How attempts ended, as their owners said.
#[derive(Debug)]
pub struct Outcomes {
    catalog: Catalog,
    said: HashMap<(Id, u32), Said>,
    /// Up to where a segment was looked at; all of a sealed one.
    looked_to: HashMap<(Id, u64), u64>,
    /// Each reason once.
    reasons: Vec<Arc<str>>,
}

/// An end that was found.
struct Found {
    episode: Id,
    attempt: u32,
    writer: Id,
    why: String,
}

impl Outcomes {
    /// Nothing is known yet.
    pub fn new(catalog: Catalog) -> Self {
        Self { catalog, said: HashMap::new(), looked_to: HashMap::new(), reasons: Vec::new() }
    }

    /// Looks at what is new.
    pub fn refresh(&mut self) -> Result<()> {
        self.catalog.refresh()?;
        let mut found = Vec::new();
        for log in self.catalog.logs().chain([self.catalog.grouped()]) {
            for segment in log.segments() {
                let looked_to = self.looked_to.entry((*log.writer(), segment.number)).or_insert(0);
                *looked_to = look(self.catalog.storage(), log, segment, *looked_to, &mut found)?;
            }
        }
        for Found { episode, attempt, writer, why } in found {
            self.note(episode, attempt, writer, &why)?;
        }
        Ok(())
    }

    /// Adds an end that is known from elsewhere.
    pub fn note(&mut self, episode: Id, attempt: u32, writer: Id, why: &str) -> Result<()> {
        let why = self.reason(why);
        let known = self.said.get(&(episode, attempt));
        if known.is_some_and(|known| known.writer != writer) {
            // Two logs say so: only the one that the claim names counts.
            let claim = read_claim(self.catalog.storage(), &episode, attempt)?;
            if claim.is_none_or(|claim| claim.writer != writer) {
                return Ok(());
            }
        }
        self.said.insert((episode, attempt), Said { writer, why });
        Ok(())
    }

    /// How an attempt ended, if its owner said so.
    pub fn said(&self, episode: &Id, attempt: u32) -> Option<&Said> {
        self.said.get(&(*episode, attempt))
    }

    /// True if all that a writer ever said was seen: it was gone before its log was looked at, or has none any more.
    pub fn is_complete(&self, writer: &Id) -> bool {
        self.catalog.log(writer).is_none_or(|log| log.liveness() != Liveness::Live)
    }

    /// Why a part of what a writer said cannot be read, if that is so: how its attempts ended is not known then.
    pub fn unreadable(&self, writer: &Id) -> Option<Error> {
        let manifest = self.catalog.manifest();
        let is_replaced = manifest.is_replaced(writer, 0);
        let log = if is_replaced { Some(self.catalog.grouped()) } else { self.catalog.log(writer) };
        let unreadable = log?.segments().find_map(|segment| match &segment.contents {
            Contents::Unreadable(error @ Error::Damaged { .. }) => Some(error.clone()),
            Contents::Unreadable(error) => {
                let path = segment_path(log?.writer(), segment.number);
                Some(Error::Damaged { path, offset: 0, found: error.to_string() })
            }
            Contents::Sealed(_) | Contents::Open(_) => None,
        });
        let is_there = |number: &u64| log.is_some_and(|log| log.segment(*number).is_some());
        let gone = manifest.held.keys().find(|number| is_replaced && !is_there(number));
        unreadable.or_else(|| {
            let path = segment_path(&Id::NONE, *gone?);
            Some(Error::Damaged { path, offset: 0, found: "it is gone".to_owned() })
        })
    }

    /// True if somebody pruned the episode.
    pub fn is_pruned(&self, episode: &Id) -> bool {
        self.catalog.manifest().pruned(episode).is_some()
    }

    fn reason(&mut self, why: &str) -> Arc<str> {
        if let Some(known) = self.reasons.iter().find(|known| &***known == why) {
            return Arc::clone(known);
        }
        self.reasons.push(Arc::from(why));
        Arc::from(why)
    }
}

/// Looks for ends behind a place, and says up to where it looked.
fn look(
    storage: &Arc<Storage>,
    log: &Log,
    segment: &Segment,
    looked_to: u64,
    found: &mut Vec<Found>,
) -> Result<u64> {
    if looked_to == u64::MAX {
        return Ok(looked_to);
    }
    let mut add = |writer: Id, episode: Id, attempt: u32, why: Option<String>| {
        found.extend(why.map(|why| Found { episode, attempt, writer, why }));
    };
    match (&segment.contents, segment.head()) {
        (Contents::Sealed(index), _) if index.is_rebuilt() => {
            for it in log.summed(segment, None)?.into_iter().filter(|it| it.bind.what == What::Attempt) {
                add(it.writer, it.bind.id, it.bind.attempt, it.summary.why);
            }
            Ok(u64::MAX)
        }
        (Contents::Sealed(index), _) => {
            for (writer, entry) in index.owned_entries().filter(|(_, entry)| entry.what == What::Attempt) {
                let stored = Stored::decode(&entry.summary).unwrap_or_default();
                add(writer, entry.id, entry.attempt, stored.summary.why);
            }
            Ok(u64::MAX)
        }
        (Contents::Open(scanned), Some(head)) => {
            let whose = (head.writer, head.number);
            let mut source = SegmentRecords::new(storage, whose, log.doors(), RECORD_BYTES);
            for entry in scanned.entries.iter().filter(|entry| entry.bind.what == What::Attempt) {
                let Some(end) = new_end(entry, looked_to) else { continue };
                let is_summed = entry.summed == entry.records.len() && entry.summary.why.is_some();
                let why = if is_summed { entry.summary.why.clone() } else { read_why(&mut source, end) };
                add(*log.writer(), entry.bind.id, entry.bind.attempt, why);
            }
            Ok(scanned.valid_to.max(looked_to))
        }
        _ => Ok(looked_to),
    }
}

/// Where an END stands that was not there at the last look.
fn new_end(entry: &ScannedEntry, looked_to: u64) -> Option<&ScannedRecord> {
    let new = entry.records.iter().rev().take_while(|record| record.offset >= looked_to);
    new.into_iter().find(|record| record.kind == Kind::End as u8)
}

/// Why, as an END says. One that cannot be read says nothing.
fn read_why(source: &mut SegmentRecords, end: &ScannedRecord) -> Option<String> {
    source.part_of(end)?.why.map(String::from)
}
