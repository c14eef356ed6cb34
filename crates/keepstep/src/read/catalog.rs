//! What a store holds: all writers, their segments, and who has records in them.
//!
//! Opening reads headers and indexes, no data. Refreshing looks only at what can have changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};

use super::attempt::AttemptReader;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::segment::cards::decode_fields;
use crate::segment::chain::read_claim;
use crate::segment::names::{list_writers, scan_path, segment_path};
use crate::segment::{Contents, Liveness, Log, ScanUnsealed, Storage, Summary};

/// Names an attempt, and the writer that recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    /// The episode.
    pub episode: Id,
    /// Which attempt at it.
    pub attempt: u32,
    /// Whose log it is in.
    pub writer: Id,
}

impl AttemptKey {
    pub(super) fn bind(&self) -> Bind {
        Bind { what: What::Attempt, id: self.episode, attempt: self.attempt }
    }
}

/// What a list shows of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptInfo {
    /// Which.
    pub key: AttemptKey,
    /// Its name, steps, rewards, times and end.
    pub summary: Summary,
    /// How many records it has.
    pub records: u64,
    /// Whether its writer is still there.
    pub liveness: Liveness,
}

/// Something that could not be read; the rest is read all the same.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Which file.
    pub path: String,
    /// What is wrong with it.
    pub error: Error,
}

/// What a store holds.
#[derive(Debug)]
pub struct Catalog {
    storage: Arc<Storage>,
    scan: Arc<dyn ScanUnsealed>,
    logs: BTreeMap<Id, Log>,
}

impl std::fmt::Debug for dyn ScanUnsealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<ScanUnsealed>")
    }
}

impl Catalog {
    /// Looks at a store for the first time.
    pub fn open(disk: Arc<dyn Disk>, store: Id, scan: Arc<dyn ScanUnsealed>) -> Result<Self> {
        Self::over(Arc::new(Storage::new(disk, store)), scan)
    }

    /// Looks at a store whose open files are shared with others.
    pub fn over(storage: Arc<Storage>, scan: Arc<dyn ScanUnsealed>) -> Result<Self> {
        let mut catalog = Self { storage, scan, logs: BTreeMap::new() };
        catalog.refresh()?;
        Ok(catalog)
    }

    /// A catalog that has not looked yet.
    pub fn unread(storage: Arc<Storage>, scan: Arc<dyn ScanUnsealed>) -> Self {
        Self { storage, scan, logs: BTreeMap::new() }
    }

    /// Looks at what is new.
    pub fn refresh(&mut self) -> Result<()> {
        self.storage.look_for_heals();
        let writers = list_writers(self.storage.disk())?;
        self.logs.retain(|writer, _| writers.binary_search(writer).is_ok());
        for writer in writers {
            let log = self.logs.entry(writer).or_insert_with(|| Log::new(Arc::clone(&self.storage), writer));
            log.refresh(&*self.scan)?;
        }
        Ok(())
    }

    /// Looks at what is new in the logs of some writers only.
    pub fn refresh_of(&mut self, writers: &[Id]) -> Result<()> {
        self.storage.look_for_heals();
        for writer in writers {
            let log =
                self.logs.entry(*writer).or_insert_with(|| Log::new(Arc::clone(&self.storage), *writer));
            log.refresh(&*self.scan)?;
        }
        Ok(())
    }

    /// What its readers share.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Who finds out what is in unsealed segments.
    pub(super) fn scan(&self) -> &Arc<dyn ScanUnsealed> {
        &self.scan
    }

    /// The logs of all writers.
    pub fn logs(&self) -> impl Iterator<Item = &Log> {
        self.logs.values()
    }

    /// The log of one writer.
    pub fn log(&self, writer: &Id) -> Option<&Log> {
        self.logs.get(writer)
    }

    /// All attempts that were recorded here, sorted by episode, attempt and writer.
    pub fn attempts(&mut self) -> Result<Vec<AttemptInfo>> {
        let mut found: HashMap<AttemptKey, AttemptInfo> = HashMap::new();
        for log in self.logs.values_mut() {
            log.sum_up()?;
            for segment in log.segments() {
                let mut add = |bind: &Bind, records: u64, summary: &Summary| {
                    if bind.what != What::Attempt {
                        return;
                    }
                    let key = AttemptKey { episode: bind.id, attempt: bind.attempt, writer: *log.writer() };
                    let info = found.entry(key).or_insert_with(|| AttemptInfo {
                        key,
                        summary: Summary::default(),
                        records: 0,
                        liveness: log.liveness(),
                    });
                    info.records += records;
                    info.summary.merge(summary);
                };
                match &segment.contents {
                    Contents::Sealed(index) => {
                        for entry in index.entries() {
                            // A summary that cannot be read shows nothing; the records are the truth.
                            let summary =
                                Summary::from_fields(&decode_fields(&entry.summary).unwrap_or_default());
                            let bind = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
                            add(&bind, u64::from(entry.count), &summary);
                        }
                    }
                    Contents::Open(scanned) => {
                        for entry in &scanned.entries {
                            add(&entry.bind, entry.records.len() as u64, &entry.summary);
                        }
                    }
                    Contents::Unreadable(_) => {}
                }
            }
        }
        let mut attempts: Vec<AttemptInfo> = found.into_values().filter(|info| info.records > 0).collect();
        attempts.sort_unstable_by_key(|info| info.key);
        Ok(attempts)
    }

    /// The attempts at one episode, without their summaries, sorted.
    pub fn attempts_at(&self, episode: &Id) -> Vec<AttemptKey> {
        let mut found = Vec::new();
        for log in self.logs.values() {
            let mut add = |what: What, id: Id, attempt: u32| {
                if what == What::Attempt && id == *episode {
                    found.push(AttemptKey { episode: id, attempt, writer: *log.writer() });
                }
            };
            for segment in log.segments() {
                match &segment.contents {
                    Contents::Sealed(index) => {
                        let entries = &index.footer.entries;
                        let from = entries.partition_point(|entry| entry.id < *episode);
                        let same = entries[from..].iter().take_while(|entry| entry.id == *episode);
                        same.for_each(|entry| add(entry.what, entry.id, entry.attempt));
                    }
                    Contents::Open(scanned) => {
                        let entries = scanned.entries.iter().filter(|entry| !entry.records.is_empty());
                        entries.for_each(|entry| add(entry.bind.what, entry.bind.id, entry.bind.attempt));
                    }
                    Contents::Unreadable(_) => {}
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The attempt of an episode, whoever recorded it. If several did, the claim says who counts.
    pub fn find(&self, episode: &Id, attempt: u32) -> Result<AttemptKey> {
        let mut keys = self.attempts_at(episode);
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

    /// Reads an attempt. It sees what is there now: for what comes later, refresh and ask again, or follow.
    pub fn reader(&self, key: &AttemptKey) -> Result<AttemptReader> {
        self.bind_reader(&key.writer, &key.bind())
    }

    /// Reads whatever has records of its own: an attempt, a copy of one, a stream, the notes on a run.
    pub fn bind_reader(&self, writer: &Id, bind: &Bind) -> Result<AttemptReader> {
        let log = self.logs.get(writer);
        let log = log.ok_or_else(|| Error::NotFound { what: format!("the log of writer {writer}") })?;
        Ok(AttemptReader::new(log, *bind, Arc::clone(&self.scan)))
    }

    /// What could not be read at the last look.
    pub fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        let damaged = |path: String, found: &str| Trouble {
            error: Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() },
            path,
        };
        for log in self.logs.values() {
            for segment in log.segments() {
                let path = segment_path(log.writer(), segment.number);
                if segment.head().is_some_and(|head| head.is_damaged) {
                    troubles.push(damaged(path.clone(), "its header does not validate"));
                }
                match &segment.contents {
                    Contents::Unreadable(error) => troubles.push(Trouble { path, error: error.clone() }),
                    Contents::Open(scanned) => {
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
