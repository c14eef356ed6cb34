//! How attempts ended, gathered from all logs as they grow, so that no episode has to be opened for it.
//!
//! Nothing is read twice: sealed segments give their index once, and of a log that grows only the END records are
//! read.

use std::collections::HashMap;
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::frame::Kind;

use super::catalog::Catalog;
use crate::error::{Error, Result, or_told};
use crate::segment::chain::read_claim;
use crate::segment::scanned::{Scanned, ScannedEntry, ScannedRecord};
use crate::segment::summary::{Stored, WHY_IS_LOST};
use crate::segment::summing::SegmentRecords;
use crate::segment::window::RECORD_BYTES;
use crate::segment::{Contents, Liveness, Log, Segment, Storage};

/// The end that the owner of an attempt recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaidEnd {
    /// The owner.
    pub writer: Id,
    /// How it ended.
    pub why: Arc<str>,
}

/// How attempts ended, as their owners recorded.
#[derive(Debug)]
pub(crate) struct Outcomes {
    catalog: Catalog,
    said: HashMap<(Id, u32), SaidEnd>,
    /// Episodes that have records, and a writer that recorded some.
    recorded: HashMap<Id, Id>,
    /// Episodes for which several logs have an end of one attempt, and the claim that decides cannot be read.
    troubles: HashMap<Id, Error>,
    /// How far a segment was read; all of a sealed one.
    looked_to: HashMap<(Id, u64), u64>,
    /// Each reason once.
    reasons: Vec<Arc<str>>,
}

/// An end that was found.
struct FoundEnd {
    episode: Id,
    attempt: u32,
    writer: Id,
    why: String,
}

impl Outcomes {
    /// Nothing is read yet.
    pub(crate) fn new(catalog: Catalog) -> Self {
        let (said, recorded, troubles) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { catalog, said, recorded, troubles, looked_to: HashMap::new(), reasons: Vec::new() }
    }

    /// Reads what is new.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.catalog.refresh()?;
        let mut found = Looked { recorded: &mut self.recorded, ends: Vec::new() };
        for log in self.catalog.logs().chain([self.catalog.grouped()]) {
            for segment in log.segments() {
                let looked_to = self.looked_to.entry((*log.writer(), segment.number)).or_insert(0);
                *looked_to = look(self.catalog.storage(), log, segment, *looked_to, &mut found)?;
            }
        }
        for FoundEnd { episode, attempt, writer, why } in found.ends {
            self.note(episode, attempt, writer, &why)?;
        }
        Ok(())
    }

    /// Adds an end that is known from elsewhere.
    pub(crate) fn note(&mut self, episode: Id, attempt: u32, writer: Id, why: &str) -> Result<()> {
        let why = self.reason(why);
        let known = self.said.get(&(episode, attempt));
        if known.is_some_and(|known| known.writer != writer) {
            // Two logs have an end. Only the one that the claim names counts.
            let (claim, trouble) = or_told(read_claim(self.catalog.storage(), &episode, attempt))?;
            self.troubles.extend(trouble.map(|trouble| (episode, trouble)));
            if claim.flatten().is_none_or(|claim| claim.writer != writer) {
                return Ok(());
            }
        }
        self.said.insert((episode, attempt), SaidEnd { writer, why });
        Ok(())
    }

    /// How an attempt ended, if its owner recorded it.
    pub(crate) fn said(&self, episode: &Id, attempt: u32) -> Option<&SaidEnd> {
        self.said.get(&(*episode, attempt))
    }

    /// A writer that recorded something of an episode, if there is one.
    pub(crate) fn recorder(&self, episode: &Id) -> Option<&Id> {
        self.recorded.get(episode)
    }

    /// Why the state of an episode is unknown, although it has records.
    pub(crate) fn trouble(&self, episode: &Id) -> Option<&Error> {
        self.troubles.get(episode)
    }

    /// True if everything that a writer recorded was read: it was gone before its log was read, or its log is gone.
    pub(crate) fn is_complete(&self, writer: &Id) -> bool {
        self.catalog.log(writer).is_none_or(|log| log.liveness() != Liveness::Live)
    }

    /// Why a part of a writer's log cannot be read, if that is so. Then it is unknown how its attempts ended.
    pub(crate) fn unreadable(&self, writer: &Id) -> Option<Error> {
        self.catalog.unreadable(writer)
    }

    /// True if the episode was pruned.
    pub(crate) fn is_pruned(&self, episode: &Id) -> bool {
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

/// What reading segments gathers.
struct Looked<'o> {
    recorded: &'o mut HashMap<Id, Id>,
    ends: Vec<FoundEnd>,
}

impl Looked<'_> {
    fn add(&mut self, writer: Id, episode: Id, attempt: u32, why: Option<String>) {
        self.recorded.insert(episode, writer);
        self.ends.extend(why.map(|why| FoundEnd { episode, attempt, writer, why }));
    }
}

/// Looks for ends after a place, and returns how far it looked.
fn look(
    storage: &Arc<Storage>,
    log: &Log,
    segment: &Segment,
    looked_to: u64,
    found: &mut Looked<'_>,
) -> Result<u64> {
    if looked_to == u64::MAX {
        return Ok(looked_to);
    }
    match (segment.contents(), segment.head()) {
        (Contents::Sealed(index), _) if index.is_rebuilt() => {
            for it in log.summed(segment, None)?.into_iter().filter(|it| it.bind.what == What::Attempt) {
                found.add(it.writer, it.bind.id, it.bind.attempt, it.summary.why);
            }
            Ok(u64::MAX)
        }
        (Contents::Sealed(index), _) => {
            for (writer, entry) in index.owned_entries().filter(|(_, entry)| entry.what == What::Attempt) {
                let stored = Stored::decode(&entry.summary).unwrap_or_default();
                found.add(writer, entry.id, entry.attempt, stored.summary.why);
            }
            Ok(u64::MAX)
        }
        (Contents::Open(scanned), Some(head)) => {
            let whose = (head.writer, head.number);
            let mut source = SegmentRecords::new(storage, whose, log.readable(), RECORD_BYTES);
            for entry in scanned.entries.iter().filter(|entry| entry.bind.what == What::Attempt) {
                let is_new = |record: &ScannedRecord| record.offset >= looked_to;
                if !entry.records.last().is_some_and(is_new) && scanned.lost.is_empty() {
                    continue;
                }
                let why = match new_end(entry, looked_to) {
                    Some(_) if entry.summed == entry.records.len() && entry.summary.why.is_some() => {
                        entry.summary.why.clone()
                    }
                    Some(end) => Some(read_why(&mut source, end).unwrap_or_else(|| WHY_IS_LOST.to_owned())),
                    None => lost_end(scanned, entry),
                };
                found.add(*log.writer(), entry.bind.id, entry.bind.attempt, why);
            }
            Ok(scanned.valid_to.max(looked_to))
        }
        _ => Ok(looked_to),
    }
}

/// Where an END is that was not there at the last look.
fn new_end(entry: &ScannedEntry, looked_to: u64) -> Option<&ScannedRecord> {
    let new = entry.records.iter().rev().take_while(|record| record.offset >= looked_to);
    new.into_iter().find(|record| record.kind == Kind::End as u8)
}

/// The loss of an END that is known to have been there, unless an END is there.
fn lost_end(scanned: &Scanned, entry: &ScannedEntry) -> Option<String> {
    let is_end = |kind: u8| kind == Kind::End as u8;
    let is_lost = scanned.lost_of(&entry.bind).iter().any(|lost| is_end(lost.kind));
    let is_there = || entry.records.iter().any(|record| is_end(record.kind));
    (is_lost && !is_there()).then(|| WHY_IS_LOST.to_owned())
}

/// The reason in an END record; `None` if it cannot be read.
fn read_why(source: &mut SegmentRecords, end: &ScannedRecord) -> Option<String> {
    source.part_of(end)?.why.map(String::from)
}
