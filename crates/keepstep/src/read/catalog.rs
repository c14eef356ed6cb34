//! The catalog of a store: all writers, their segments, and the attempts that have records in them.
//!
//! Opening reads headers and indexes, no data. Refreshing looks only at what can have changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};

use super::attempt::AttemptReader;
use crate::error::{Error, Result};
use crate::segment::chain::read_claim;
use crate::segment::names::{list_writers, manifest_path, scan_path, segment_path};
use crate::segment::scanned::ScannedEntry;
use crate::segment::summing::Summed;
use crate::segment::{Contents, Liveness, Log, Manifest, ScanUnsealed, Segment, Storage, Summary};

/// Names an attempt, and the writer that recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    /// The episode.
    pub episode: Id,
    /// Which attempt of the episode.
    pub attempt: u32,
    /// The writer in whose log it is.
    pub writer: Id,
}

impl AttemptKey {
    pub(super) fn bind(&self) -> Bind {
        Bind { what: What::Attempt, id: self.episode, attempt: self.attempt }
    }
}

/// An attempt in a list.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AttemptInfo {
    /// Which attempt.
    pub key: AttemptKey,
    /// Its name, steps, rewards, times and end.
    pub summary: Summary,
    /// How many records it has.
    pub records: u64,
    /// How many more it had, as far as is known. They cannot be read, or their file is gone.
    pub missing: u64,
    /// Whether its writer is alive.
    pub liveness: Liveness,
}

/// A file that could not be read. The others are read all the same.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Trouble {
    /// Which file.
    pub path: String,
    /// What is wrong with it.
    pub error: Error,
}

/// The catalog of a store.
#[derive(Debug)]
pub struct Catalog {
    storage: Arc<Storage>,
    scan: Arc<dyn ScanUnsealed>,
    logs: BTreeMap<Id, Log>,
    /// The segments that `compact` made of the logs of exited writers.
    grouped: Log,
    manifest: Arc<Manifest>,
}

impl std::fmt::Debug for dyn ScanUnsealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<ScanUnsealed>")
    }
}

impl Catalog {
    /// Reads the catalog of a store; open files are shared with other readers.
    pub(crate) fn over(storage: Arc<Storage>, scan: Arc<dyn ScanUnsealed>) -> Result<Self> {
        let mut catalog = Self::unread(storage, scan);
        catalog.refresh()?;
        Ok(catalog)
    }

    /// A catalog that has read nothing yet.
    pub(crate) fn unread(storage: Arc<Storage>, scan: Arc<dyn ScanUnsealed>) -> Self {
        let grouped = Log::of_compact(Arc::clone(&storage));
        Self { storage, scan, logs: BTreeMap::new(), grouped, manifest: Arc::default() }
    }

    /// Reads what is new.
    pub fn refresh(&mut self) -> Result<()> {
        self.look(None)
    }

    /// Reads what is new in the logs of some writers only.
    pub(crate) fn refresh_of(&mut self, writers: &[Id]) -> Result<()> {
        self.look(Some(writers))
    }

    fn look(&mut self, only: Option<&[Id]>) -> Result<()> {
        self.storage.look_for_heals();
        let mut manifest = self.storage.renew_manifest()?;
        loop {
            self.look_at(&manifest, only)?;
            // A log may have been replaced and deleted before it was read. Each round needs a newer manifest that was
            // read: a name alone never makes another one.
            let newest = self.storage.renew_manifest()?;
            if newest.number == manifest.number {
                return Ok(());
            }
            manifest = newest;
        }
    }

    fn look_at(&mut self, manifest: &Arc<Manifest>, only: Option<&[Id]>) -> Result<()> {
        if manifest.number != self.manifest.number {
            // A finished log is not read again, unless a manifest replaced it.
            self.logs
                .retain(|_, log| !log.segments().any(|it| manifest.is_replaced(log.writer(), it.number)));
            self.manifest = Arc::clone(manifest);
        }
        let writers = match only {
            Some(writers) => writers.to_vec(),
            None => {
                let writers = list_writers(self.storage.disk())?;
                self.logs.retain(|writer, _| writers.binary_search(writer).is_ok());
                writers
            }
        };
        for writer in writers {
            let log = self.logs.entry(writer).or_insert_with(|| Log::new(Arc::clone(&self.storage), writer));
            log.refresh(&*self.scan)?;
        }
        self.grouped.refresh(&*self.scan)?;
        match only {
            // Whoever lists the store asks for all there is.
            None => self.grouped.open_all(),
            // Of what `compact` made, only what has records of an episode is opened when it is asked for.
            Some(_) => Ok(()),
        }
    }

    /// Checks whether a log that seemed finished has grown: its writer may still be alive. If it has, the next
    /// refresh reads it again.
    pub(super) fn doubt(&mut self, writer: &Id) -> Result<()> {
        if let Some(log) = self.logs.get(writer)
            && log.has_grown()?
        {
            self.logs.remove(writer);
        }
        Ok(())
    }

    /// Forgets the logs of some writers, and what `compact` made: the next refresh looks at all of their bytes again.
    pub(crate) fn forget_logs_of(&mut self, writers: &[Id]) {
        self.logs.retain(|writer, _| !writers.contains(writer));
        self.grouped = Log::of_compact(Arc::clone(&self.storage));
    }

    /// Forgets everything, so that the next refresh reads it again.
    pub(super) fn forget(&mut self) {
        self.logs.clear();
        self.grouped = Log::of_compact(Arc::clone(&self.storage));
    }

    /// The storage that its readers share.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Scans unsealed segments.
    pub(super) fn scan(&self) -> &Arc<dyn ScanUnsealed> {
        &self.scan
    }

    /// The logs of all writers.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &Log> {
        self.logs.values()
    }

    /// The segments that `compact` made, as if they were the log of one more writer.
    pub(crate) fn grouped(&self) -> &Log {
        &self.grouped
    }

    /// The manifest: what was pruned, and which files wait to be deleted.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The log of one writer.
    pub(crate) fn log(&self, writer: &Id) -> Option<&Log> {
        self.logs.get(writer)
    }

    /// Why it is unknown what a writer recorded: a part of its log cannot be read at all.
    pub(crate) fn unreadable(&self, writer: &Id) -> Option<Error> {
        let is_replaced = self.manifest.is_replaced(writer, 0);
        let log = if is_replaced { Some(&self.grouped) } else { self.logs.get(writer) };
        let unreadable = log?.segments().find_map(|segment| match segment.contents() {
            Contents::Unreadable(error @ Error::Damaged { .. }) => Some(error.clone()),
            Contents::Unreadable(error) => {
                let path = segment_path(log?.writer(), segment.number);
                Some(Error::Damaged { path, offset: 0, found: error.to_string() })
            }
            Contents::Sealed(index) => {
                let (path, offset) = (segment_path(log?.writer(), segment.number), *index.holes().first()?);
                let found = "damaged from here, and so is its index: there may have been more".to_owned();
                Some(Error::Damaged { path, offset, found })
            }
            Contents::Open(_) => None,
        });
        let is_there = |number: &u64| log.is_some_and(|log| log.segment(*number).is_some());
        let gone = self.manifest.held.keys().find(|number| is_replaced && !is_there(number));
        unreadable.or_else(|| {
            let path = segment_path(&Id::NONE, *gone?);
            Some(Error::Damaged { path, offset: 0, found: "it is gone".to_owned() })
        })
    }

    /// All attempts in the store, sorted by episode, attempt and writer. Pruned ones are left out.
    pub fn attempts(&mut self) -> Result<Vec<AttemptInfo>> {
        self.attempts_of(None)
    }

    /// As [`Catalog::attempts`], of one episode only.
    pub(crate) fn attempts_of(&mut self, only: Option<&Id>) -> Result<Vec<AttemptInfo>> {
        let mut found: HashMap<AttemptKey, (AttemptInfo, u32)> = HashMap::new();
        for log in self.logs.values_mut() {
            log.sum_up()?;
        }
        for log in self.logs.values().chain([&self.grouped]) {
            let mut add = |Summed { writer, bind, records, end_seq, summary, .. }: Summed| {
                if bind.what != What::Attempt || self.manifest.pruned(&bind.id).is_some() {
                    return;
                }
                let key = AttemptKey { episode: bind.id, attempt: bind.attempt, writer };
                let (info, end) = found.entry(key).or_insert_with(|| {
                    let (summary, liveness) = (Summary::default(), log.liveness());
                    (AttemptInfo { key, summary, records: 0, missing: 0, liveness }, 0)
                });
                info.records += records;
                *end = (*end).max(end_seq);
                info.missing = u64::from(*end).saturating_sub(info.records);
                info.summary.merge(&summary);
            };
            let segments = match only {
                Some(only) => log.segments_with(only)?,
                None => log.segments().collect(),
            };
            for segment in segments {
                log.summed(segment, only)?.into_iter().for_each(&mut add);
            }
        }
        for log in self.logs.values() {
            for (bind, cut) in log.segments().flat_map(cut_off) {
                let key = AttemptKey { episode: bind.id, attempt: bind.attempt, writer: *log.writer() };
                if let Some((info, _)) = found.get_mut(&key).filter(|_| bind.what == What::Attempt) {
                    info.missing += cut;
                }
            }
        }
        let infos = found.into_values().map(|(info, _)| info);
        let mut attempts: Vec<AttemptInfo> =
            infos.filter(|info| info.records > 0 || info.missing > 0).collect();
        attempts.sort_unstable_by_key(|info| info.key);
        Ok(attempts)
    }

    /// Everything that has records of its own, with the writer: attempts, copies of them, streams, notes on runs.
    pub fn subjects(&self) -> Vec<(Id, Bind)> {
        let mut found = HashSet::new();
        for log in self.logs.values().chain([&self.grouped]) {
            for segment in log.segments() {
                match segment.contents() {
                    Contents::Sealed(index) => found.extend(index.owned_entries().map(|(writer, it)| {
                        (writer, Bind { what: it.what, id: it.id, attempt: it.attempt })
                    })),
                    Contents::Open(scanned) => {
                        found.extend(scanned.entries.iter().map(|it| (*log.writer(), it.bind)));
                        // Of some, only the name of what was lost is left.
                        let damage = scanned.lost.iter().filter(|range| range.damage);
                        let lost = damage.flat_map(|range| &range.records).filter_map(|lost| lost.bind);
                        found.extend(lost.map(|bind| (*log.writer(), bind)));
                    }
                    Contents::Unreadable(_) => {}
                }
            }
        }
        found.retain(|(_, bind)| !self.is_pruned(bind));
        let mut found: Vec<(Id, Bind)> = found.into_iter().collect();
        found.sort_unstable_by_key(|(writer, bind)| (bind.id, bind.attempt, *writer, bind.what.number()));
        found
    }

    pub(super) fn is_pruned(&self, bind: &Bind) -> bool {
        let is_of_an_episode = matches!(bind.what, What::Attempt | What::Copied { .. });
        is_of_an_episode && self.manifest.pruned(&bind.id).is_some()
    }

    /// The attempts at one episode, without their summaries, sorted.
    pub(crate) fn attempts_at(&self, episode: &Id) -> Result<Vec<AttemptKey>> {
        let mut found = Vec::new();
        for log in self.logs.values().chain([&self.grouped]) {
            let mut add = |writer: Id, what: What, id: Id, attempt: u32| {
                if what == What::Attempt && id == *episode {
                    found.push(AttemptKey { episode: id, attempt, writer });
                }
            };
            for segment in log.segments_with(episode)? {
                match segment.contents() {
                    Contents::Sealed(index) => index
                        .owned_entries_at(episode)
                        .for_each(|(writer, entry)| add(writer, entry.what, entry.id, entry.attempt)),
                    Contents::Open(scanned) => {
                        let entries = scanned.entries.iter().filter(|entry| !entry.records.is_empty());
                        entries.for_each(|entry| {
                            add(*log.writer(), entry.bind.what, entry.bind.id, entry.bind.attempt);
                        });
                    }
                    Contents::Unreadable(_) => {}
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// An attempt of an episode, of any writer. If several writers have records of it, the claim names the one that
    /// counts.
    pub fn find(&self, episode: &Id, attempt: u32) -> Result<AttemptKey> {
        self.manifest.refuse_pruned(episode)?;
        let mut keys = self.attempts_at(episode)?;
        keys.retain(|key| key.attempt == attempt);
        if keys.len() > 1
            && let Some(owner) = self.claimed_by(episode, attempt)?
        {
            keys.retain(|key| key.writer == owner);
        }
        let what = || format!("attempt {attempt} at episode {episode}");
        keys.first().copied().ok_or_else(|| Error::NotFound { what: what() })
    }

    fn claimed_by(&self, episode: &Id, attempt: u32) -> Result<Option<Id>> {
        Ok(read_claim(&self.storage, episode, attempt)?.map(|claim| claim.writer))
    }

    /// Reads an attempt as it is now. For later records, refresh and call this again, or follow.
    pub fn reader(&self, key: &AttemptKey) -> Result<AttemptReader> {
        self.bind_reader(&key.writer, &key.bind())
    }

    /// Reads anything that has records of its own: an attempt, a copy of one, a stream, the notes on a run.
    pub fn bind_reader(&self, writer: &Id, bind: &Bind) -> Result<AttemptReader> {
        if self.is_pruned(bind) {
            self.manifest.refuse_pruned(&bind.id)?;
        }
        let log = self.log_with(writer, bind)?;
        let log = log.ok_or_else(|| Error::NotFound { what: format!("the log of writer {writer}") })?;
        AttemptReader::new(log, writer, *bind, Arc::clone(&self.scan))
    }

    /// Reads inherited records. If their log is gone, all of them are missing.
    pub(super) fn reader_of_span(&self, bind: &Bind, writer: &Id) -> Result<AttemptReader> {
        match self.bind_reader(writer, bind) {
            Err(Error::NotFound { .. }) => {
                let gone = Log::new(Arc::clone(&self.storage), *writer);
                AttemptReader::new(&gone, writer, *bind, Arc::clone(&self.scan))
            }
            reader => reader,
        }
    }

    /// The log that has the records of a writer: its own, or what `compact` made of it. If its own log was replaced,
    /// nothing counts there any more, even if the replacement is gone.
    pub(super) fn log_with(&self, writer: &Id, bind: &Bind) -> Result<Option<&Log>> {
        let is_grouped =
            self.grouped.segments_with(&bind.id)?.into_iter().any(|segment| match segment.contents() {
                Contents::Sealed(index) => index.entries_by(writer, bind).next().is_some(),
                _ => false,
            });
        if is_grouped || self.manifest.is_replaced(writer, 0) {
            Ok(Some(&self.grouped))
        } else {
            Ok(self.logs.get(writer))
        }
    }

    /// The files that could not be read at the last refresh.
    pub fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        let damaged = |path: String, found: &str| Trouble {
            error: Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() },
            path,
        };
        if self.manifest.is_from_copy {
            let path = manifest_path(self.manifest.number.unwrap_or(0));
            troubles.push(damaged(path, "it does not validate, so its copy was read"));
        }
        for log in self.logs.values().chain([&self.grouped]) {
            for segment in log.segments() {
                let path = segment_path(log.writer(), segment.number);
                if segment.head().is_some_and(|head| head.is_damaged) {
                    troubles.push(damaged(path.clone(), "its header does not validate"));
                }
                match segment.contents() {
                    Contents::Unreadable(error) => troubles.push(Trouble { path, error: error.clone() }),
                    Contents::Open(scanned) => {
                        let at = segment.nameless_damage().first().copied();
                        if let Some(offset) = at {
                            let found = "damaged from here: records of any episode may be lost".to_owned();
                            let error = Error::Damaged { path: path.clone(), offset, found };
                            troubles.push(Trouble { path: path.clone(), error });
                        }
                        if segment.trailer().is_some() {
                            troubles.push(damaged(path, "its index cannot be read, so it was scanned"));
                        }
                        if scanned.card_is_damaged {
                            let path = scan_path(log.writer(), segment.number);
                            troubles.push(damaged(
                                path,
                                "it does not validate, so the segment was scanned again",
                            ));
                        }
                    }
                    Contents::Sealed(index) if index.is_rebuilt() => {
                        troubles.push(damaged(path, "its index cannot be read, so it was made again"));
                    }
                    Contents::Sealed(_) => {}
                }
            }
        }
        let bad = self.storage.bad_heals();
        troubles.extend(
            bad.into_iter().map(|path| damaged(path, "it does not validate: its values are not used")),
        );
        troubles
    }
}

/// How many records were cut off a segment that was longer when it was scanned: the card of that scan lists them.
fn cut_off(segment: &Segment) -> Vec<(Bind, u64)> {
    let Some(scanned) = segment.scanned().filter(|scanned| segment.file_bytes < scanned.valid_to) else {
        return Vec::new();
    };
    let starts: BTreeSet<u64> =
        scanned.entries.iter().flat_map(|entry| &entry.records).map(|it| it.offset).collect();
    // A record ends where the next one begins; the end of the last one is not recorded.
    let ends = |offset: u64| starts.range(offset + 1..).next().copied().unwrap_or(scanned.valid_to);
    let lost = |entry: &ScannedEntry| {
        let is_cut = |offset: u64| ends(offset) > segment.file_bytes;
        (entry.bind, entry.records.iter().filter(|it| is_cut(it.offset)).count() as u64)
    };
    scanned.entries.iter().map(lost).filter(|(_, cut)| *cut > 0).collect()
}
