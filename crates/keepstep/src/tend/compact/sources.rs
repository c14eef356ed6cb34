//! Finds the logs that can be rewritten: those that are closed for good and have no damage.
//!
//! All segments of a writer are taken, or none: its later segments refer to earlier ones. That a writer seems gone is
//! only a reason to close its log. What counts is what is in the log after it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keepstep_format::Id;

use super::notes::has_note_on;
use super::{CompactReport, CompactSetup, LeftAlone};
use crate::error::{Doing, Result};
use crate::segment::bodies::LogBodies;
use crate::segment::names::{list_writers, scan_path, segment_path};
use crate::segment::{Contents, Liveness, Log, Manifest, ScanUnsealed, Segment, Storage};
use crate::tend::closing::CloseLogs;

/// How many short segments that `compact` made are left before they are merged.
const SHORT_SEGMENTS_MAX: usize = 8;
/// For how many logs fetched data is kept.
const BODIES_MAX: usize = 4;
/// How many bytes of it.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// In a log that many episodes share, the records of one episode are far apart, so little is read ahead.
const READ_BYTES: usize = 4 << 10;

/// What to rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tend) enum Wanted {
    /// Everything that was not rewritten yet.
    All,
    /// Only logs, and segments that `compact` made, that have records of these episodes.
    Episodes(BTreeSet<Id>),
}

/// The logs that are read in one round.
pub(super) struct Sources {
    logs: BTreeMap<Id, Log>,
    /// Which segments that `compact` made earlier are taken.
    grouped: BTreeSet<u64>,
    /// True if there is more than fits one round.
    pub(super) has_more: bool,
    pub(super) left_alone: Vec<LeftAlone>,
    /// Writers that are gone, and whose logs were replaced or never began.
    pub(super) empty: Vec<Id>,
    bodies: BTreeMap<Id, LogBodies>,
}

impl Sources {
    pub(super) fn find(
        storage: &Arc<Storage>,
        closer: &dyn CloseLogs,
        manifest: &Manifest,
        wanted: &Wanted,
        damaged: &BTreeSet<Id>,
        options: &CompactSetup,
    ) -> Result<Self> {
        let mut found = Self {
            logs: BTreeMap::new(),
            grouped: BTreeSet::new(),
            has_more: false,
            left_alone: Vec::new(),
            empty: Vec::new(),
            bodies: BTreeMap::new(),
        };
        let bytes = found.find_grouped(storage, closer.scan(), manifest, wanted, damaged, options)?;
        let seem_gone = found.find_gone(storage, closer.scan(), wanted, damaged, options, bytes)?;
        let not_closed =
            if options.faults.asks_nobody { BTreeMap::new() } else { closer.close(&seem_gone)? };
        for writer in seem_gone {
            if let Some(why) = not_closed.get(&writer) {
                found.left_alone.push(LeftAlone { writer, why: why.to_string() });
                continue;
            }
            // What was read before the log was closed is forgotten: it may have grown since.
            let mut log = Log::new(Arc::clone(storage), writer);
            log.refresh(closer.scan_closed())?;
            match why_not(&log) {
                Some(why) => found.left_alone.push(LeftAlone { writer, why }),
                None => {
                    log.sum_up()?;
                    found.logs.insert(writer, log);
                }
            }
        }
        Ok(found)
    }

    /// The logs that are worth closing: their writers seem gone, and nothing seems to prevent rewriting them.
    fn find_gone(
        &mut self,
        storage: &Arc<Storage>,
        scan: &dyn ScanUnsealed,
        wanted: &Wanted,
        damaged: &BTreeSet<Id>,
        options: &CompactSetup,
        mut bytes: u64,
    ) -> Result<Vec<Id>> {
        let mut seem_gone = Vec::new();
        for writer in list_writers(storage.disk())? {
            let mut log = Log::new(Arc::clone(storage), writer);
            log.refresh(scan)?;
            if log.segments().next().is_none() && log.liveness() != Liveness::Live {
                self.empty.push(writer);
            }
            if log.segments().next().is_none() || !is_wanted(&log, None, wanted)? {
                continue;
            }
            if bytes >= options.round_bytes_max {
                self.has_more = true;
                break;
            }
            let is_live = log.liveness() == Liveness::Live;
            let why = is_live.then(|| "its writer is alive".to_owned());
            let damage = || damaged.contains(&writer).then(|| "a record in it cannot be read".to_owned());
            match why.or_else(damage).or_else(|| why_not(&log)) {
                Some(why) => self.left_alone.push(LeftAlone { writer, why }),
                None => {
                    bytes += log.segments().map(|segment| segment.file_bytes).sum::<u64>();
                    seem_gone.push(writer);
                }
            }
        }
        Ok(seem_gone)
    }

    /// The writers whose logs are replaced as a whole, with the last segment of each and its length: what counts of
    /// them.
    pub(super) fn closed(&self) -> impl Iterator<Item = (Id, (u64, u64))> {
        let logs = self.logs.values().filter(|log| *log.writer() != Id::NONE);
        logs.filter_map(|log| {
            let last = log.segments().next_back()?;
            Some((*log.writer(), (last.number, last.voided_from.unwrap_or(last.file_bytes))))
        })
    }

    /// Takes short segments that `compact` made earlier, if there are many, and those with pruned episodes.
    fn find_grouped(
        &mut self,
        storage: &Arc<Storage>,
        scan: &dyn ScanUnsealed,
        manifest: &Manifest,
        wanted: &Wanted,
        damaged: &BTreeSet<Id>,
        options: &CompactSetup,
    ) -> Result<u64> {
        let mut log = Log::of_compact(Arc::clone(storage));
        log.refresh(scan)?;
        log.open_all()?;
        let is_short = |segment: &Segment| is_short(segment, options);
        let short = log.segments().filter(|segment| is_short(segment)).count();
        let pruned = Wanted::Episodes(manifest.pruned_episodes().copied().collect());
        let mut taken = BTreeSet::new();
        for segment in log.segments() {
            let is_taken = match wanted {
                // Episodes that were noted as pruned by a process that was killed before it could rewrite them.
                Wanted::All => {
                    (short > SHORT_SEGMENTS_MAX && is_short(segment))
                        || is_wanted(&log, Some(segment.number), &pruned)?
                }
                Wanted::Episodes(_) => is_wanted(&log, Some(segment.number), wanted)?,
            };
            taken.extend(is_taken.then_some(segment.number));
        }
        let is_damaged = damaged.contains(&Id::NONE)
            || log.segments().any(|it| taken.contains(&it.number) && trouble_of(it, false).is_some());
        if is_damaged {
            let why = "a record in it cannot be read".to_owned();
            self.left_alone.push(LeftAlone { writer: Id::NONE, why });
        } else if !taken.is_empty() {
            self.grouped = taken;
            self.logs.insert(Id::NONE, log);
        }
        Ok(self.segments().map(|(_, segment)| segment.file_bytes).sum())
    }

    /// The segments that are replaced, and their writers.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Id, &Segment)> {
        self.logs.values().flat_map(move |log| {
            let is_taken =
                move |it: &&Segment| *log.writer() != Id::NONE || self.grouped.contains(&it.number);
            log.segments().filter(is_taken).map(|segment| (*log.writer(), segment))
        })
    }

    pub(super) fn log(&self, log: &Id) -> Option<&Log> {
        self.logs.get(log)
    }

    /// Fetches records of a log; for few logs at a time, so that memory stays bounded.
    pub(super) fn bodies(&mut self, log: &Id) -> Option<&mut LogBodies> {
        if !self.bodies.contains_key(log) {
            if self.bodies.len() >= BODIES_MAX {
                self.bodies.clear();
            }
            let bodies = self.logs.get(log)?.bodies().caching(CACHE_BYTES_MAX).reading_ahead(READ_BYTES);
            self.bodies.insert(*log, bodies);
        }
        self.bodies.get_mut(log)
    }

    pub(super) fn tell(&self, report: &mut CompactReport) {
        report.logs += self.logs.keys().filter(|writer| **writer != Id::NONE).count() as u64;
        for (_, segment) in self.segments() {
            report.segments_replaced += 1;
            report.bytes_before += segment.file_bytes;
        }
    }

    /// The paths of all files that are replaced, and of the cards about them.
    pub(super) fn paths(&self, storage: &Storage) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        for (writer, segment) in self.segments() {
            paths.push(segment_path(&writer, segment.number));
            let card = scan_path(&writer, segment.number);
            if storage.disk().exists(&card).doing("look for", &card)? {
                paths.push(card);
            }
        }
        Ok(paths)
    }
}

/// True if several like it would fit one segment.
fn is_short(segment: &Segment, options: &CompactSetup) -> bool {
    let subjects = match segment.contents() {
        Contents::Sealed(index) => index.entries().count(),
        Contents::Open(_) | Contents::Unreadable(_) => 0,
    };
    segment.file_bytes < options.segment_bytes_max / 4 && subjects < options.subjects_max.div_ceil(2)
}

fn is_wanted(log: &Log, only: Option<u64>, wanted: &Wanted) -> Result<bool> {
    let Wanted::Episodes(episodes) = wanted else { return Ok(true) };
    for segment in log.segments().filter(|segment| only.is_none_or(|only| only == segment.number)) {
        let has_records = match segment.contents() {
            Contents::Sealed(index) => index.entries().any(|entry| episodes.contains(&entry.id)),
            Contents::Open(scanned) => scanned.entries.iter().any(|entry| episodes.contains(&entry.bind.id)),
            Contents::Unreadable(_) => false,
        };
        if has_records || has_note_on(log, segment, episodes)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why a log cannot be rewritten, if it cannot.
fn why_not(log: &Log) -> Option<String> {
    for segment in log.segments() {
        let mut later = log.segments().filter(|later| later.number > segment.number);
        let goes_on = later.any(|later| match later.contents() {
            Contents::Open(scanned) => scanned.has_records(),
            _ => true,
        });
        if let Some(trouble) = trouble_of(segment, goes_on) {
            let path = segment_path(log.writer(), segment.number);
            return Some(format!("{path}: {trouble}"));
        }
    }
    None
}

/// What is wrong with a segment, as far as is known without reading its records.
fn trouble_of(segment: &Segment, goes_on: bool) -> Option<&'static str> {
    if segment.head().is_none_or(|head| head.is_damaged) {
        return Some("its header is damaged");
    }
    if segment.sealed_bytes.is_some_and(|bytes| bytes != segment.file_bytes) {
        return Some("it is not as long as it was");
    }
    match segment.contents() {
        Contents::Unreadable(_) => Some("it cannot be read"),
        Contents::Sealed(index) => index.is_rebuilt().then_some("its index is damaged"),
        Contents::Open(scanned) => {
            let is_unsure = scanned.looked_at.is_none_or(|looked_at| looked_at.void_is_unknown);
            if segment.trailer().is_some() {
                Some("its index is damaged")
            } else if scanned.lost.iter().any(|range| range.damage) {
                Some("it is damaged")
            } else if is_unsure || scanned.card_is_damaged {
                Some("what was found in it is not certain")
            } else if goes_on && segment.voided_from.is_none() {
                Some("it was neither sealed nor given up")
            } else {
                None
            }
        }
    }
}
