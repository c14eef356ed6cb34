//! The committer's work: places records in the log, writes and syncs them, and only then acknowledges them.
//!
//! Only one thread at a time. A write or sync that fails is never tried again on the same file: the segment is given
//! up after its synced part, and the rest goes, in the same order, to a new segment whose header says so. A look into
//! the mailbox that fails damages nothing: only the look is tried again, and nothing is acknowledged before it
//! succeeds.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use keepstep_format::Id;

use keepstep_format::frame::Kind;
use keepstep_format::hash::ContentKey;
use keepstep_format::segment::SegmentHeader;

use super::buffer_pool::BufferPool;
use super::decide::Round;
use super::encoded_record::EncodedRecord;
use super::event::Event;
use super::handoff::Batch;
use super::index::{FirstBytes, Index};
use super::moved::Moves;
use super::open_segment::{OpenSegment, Placed};
use super::stats::Counters;
use super::subject::{Progress, Subject, SubjectKey};
use super::wakers::Wakers;
use crate::disk::{self, Disk};
use crate::error::Error;
use crate::options::{Level, Options};

/// A record in the queue.
pub(crate) struct QueuedRecord {
    pub(crate) subject: Option<Arc<Subject>>,
    pub(crate) epoch: u32,
    pub(crate) kind: Kind,
    pub(crate) encoded: EncodedRecord,
    pub(crate) level: Level,
    pub(crate) progress: Progress,
    /// True for the last record of a subject: nothing about the subject needs to be remembered after it.
    pub(crate) last: bool,
}

/// What a letter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// An episode or stream has another owner: attempts before this one are fenced.
    Claimed { id: Id, attempt: u32 },
    /// The whole log was closed: this writer was asked, and did not answer in time.
    Closed,
}

/// Looks for mail. Called once a batch, after the sync and before anything is acknowledged, and now and then when
/// idle.
pub(crate) type LookUp = Box<dyn FnMut() -> io::Result<Vec<News>> + Send>;

/// Called with the number and length of the last segment.
pub(crate) type OnClose = Box<dyn FnOnce(u64, u64) + Send>;

/// How many bytes may be written without a sync before the committer syncs by itself.
const UNSYNCED_BYTES_MAX: u64 = 8 << 20;
/// About how many bytes one write has; a larger batch is written in parts, and synced once.
const WRITE_BYTES: usize = 4 << 20;
const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// The writer, and its storage.
pub(crate) struct Identity {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) store: Id,
    pub(crate) writer: Id,
    /// The highest level of this storage, which a sync reaches.
    pub(crate) strongest: Level,
    /// Keeps the writer's lock until its last byte is written.
    pub(crate) lock: Option<Arc<dyn Send + Sync>>,
    /// Called with the number and length of the last segment when it was sealed normally.
    pub(crate) on_close: Option<OnClose>,
}

/// The log of one writer.
pub(crate) struct LogWriter {
    pub(super) identity: Identity,
    dir: String,
    key: ContentKey,
    pub(super) index: Arc<Index>,
    pub(super) options: Options,
    look_up: LookUp,
    pub(super) counters: Arc<Counters>,
    pub(super) segment: Option<OpenSegment>,
    pub(super) next_number: u64,
    /// A segment that was given up, and from where on: the next header names it.
    voids: Option<(u64, u64)>,
    /// The last sealed segment, and its length: the next header names it.
    sealed: Option<(u64, u64)>,
    /// The next sequence number of each subject.
    pub(super) subjects: HashMap<SubjectKey, u32, BuildHasherDefault<FirstBytes>>,
    pub(super) fenced: HashMap<Id, u32>,
    /// True if another process has closed this log: nothing more is written or acknowledged in it.
    pub(super) is_closed: Arc<AtomicBool>,
    /// Batches that are acknowledged at `kill` and not synced yet.
    pub(super) unsynced: Vec<(Vec<Placed>, Arc<Event>)>,
    /// True if what was not synced must be written again, to a new segment.
    pub(super) rewrite: bool,
    /// Records that were moved out of a segment that was given up.
    pub(super) moves: Moves,
    pub(super) last_failure: Option<Error>,
    pub(super) vanished: Option<Error>,
    pub(super) dictionary: Option<(u64, u64)>,
    pub(super) buffer_pool: Arc<BufferPool>,
    pub(super) wakers: Arc<Wakers>,
    /// The batch that is being woken by relay.
    pub(super) relayed: Option<Arc<Event>>,
    /// A batch that a caller could not write, and left to the committer's thread.
    pub(super) held: Option<Round>,
}

/// Why a batch could not be made durable now.
pub(super) enum Trouble {
    /// The cause may go away. What was not acknowledged goes to another segment.
    Disk(io::Error),
    /// It is unknown whether an episode was claimed. What was written and synced stays: only the look is tried again.
    LookUp(io::Error),
    /// The store was deleted.
    Vanished(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl LogWriter {
    pub(crate) fn new(
        identity: Identity,
        key: ContentKey,
        index: Arc<Index>,
        options: Options,
        counters: Arc<Counters>,
        look_up: LookUp,
    ) -> Self {
        Self {
            dir: format!("writers/{}", identity.writer),
            identity,
            key,
            index,
            options,
            look_up,
            counters,
            segment: None,
            next_number: 0,
            voids: None,
            sealed: None,
            subjects: HashMap::default(),
            fenced: HashMap::new(),
            is_closed: Arc::default(),
            unsynced: Vec::new(),
            rewrite: false,
            moves: Moves::default(),
            last_failure: None,
            vanished: None,
            dictionary: None,
            buffer_pool: Arc::default(),
            wakers: Arc::default(),
            relayed: None,
            held: None,
        }
    }

    /// Returns the buffers of written records to the encoding threads.
    pub(crate) fn with_buffer_pool(self, buffer_pool: Arc<BufferPool>) -> Self {
        Self { buffer_pool, ..self }
    }

    /// Calls these wakers when something was acknowledged.
    pub(crate) fn with_wakers(self, wakers: Arc<Wakers>) -> Self {
        Self { wakers, ..self }
    }

    /// Commits a batch: each of its records is acknowledged, or fails with a reason.
    pub(crate) fn commit(&mut self, batch: Batch<QueuedRecord>) {
        self.finish_held();
        let mut round = self.decide(batch);
        if round.placed.is_empty() {
            return round.event.close();
        }
        let outcome = self.persist(&mut round, self.options.stall);
        self.tell_all(round, outcome);
    }

    /// Tells every caller of a batch its outcome. In a log that was closed meanwhile, nothing is acknowledged.
    pub(super) fn tell_all(&mut self, round: Round, outcome: Result<(), Error>) {
        match outcome.and_then(|()| self.closed().map_or(Ok(()), Err)) {
            Ok(()) => self.acknowledge(round),
            Err(error) => self.withdraw(&round, &error),
        }
    }

    /// Syncs what was acknowledged only at `kill`. Tried once; a failed sync is tried again later.
    pub(crate) fn sync(&mut self) {
        self.finish_held();
        if self.unsynced.is_empty() || self.vanished.is_some() {
            return;
        }
        let mut round = Round::new(Arc::new(Event::new()), 0);
        round.needs_sync = true;
        if self.persist(&mut round, Duration::ZERO).is_ok() {
            self.tell_all(round, Ok(()));
        }
    }

    /// Where the newest dictionary is.
    pub(crate) fn dictionary_place(&self) -> Option<(u64, u64)> {
        self.dictionary
    }

    /// True while something waits for a sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// Records for readers how far the log is synced, if no next batch will do so. It needs no sync of its own.
    pub(crate) fn say_synced(&mut self) {
        self.wake_the_rest();
        // What is written and not acknowledged yet may still be given up.
        if self.held.is_some() {
            return;
        }
        let Some(segment) = &mut self.segment else { return };
        if segment.said_synced_to >= segment.synced_to {
            return;
        }
        segment.add_commit(segment.synced_to);
        if segment.write().is_err() {
            self.give_up_segment();
        }
    }

    /// Seals the segment, when the store is closed normally.
    pub(crate) fn close(&mut self) {
        self.sync();
        let is_done = self.unsynced.is_empty();
        if let Some(segment) = self.segment.as_mut().filter(|segment| is_done && !segment.is_empty()) {
            // A segment that could not be sealed is scanned by its readers.
            if segment.sync().and_then(|()| segment.seal(&self.key)).is_ok()
                && let Some(on_close) = self.identity.on_close.take()
            {
                on_close(segment.number, segment.end);
            }
        }
        self.segment = None;
        self.identity.lock = None;
    }

    /// Makes a batch durable. Tries again for as long as `stall` allows.
    pub(super) fn persist(&mut self, round: &mut Round, stall: Duration) -> Result<(), Error> {
        let started_us = self.identity.disk.uptime_us();
        let mut backoff = BACKOFF_FIRST;
        loop {
            let (error, is_written) = match self.try_persist(round) {
                Ok(()) => return Ok(()),
                // A process that closes a log deletes it afterwards, so the file may be gone for that reason.
                Err(Trouble::Vanished(_)) if self.look_for_mail().is_ok() && self.is_closed() => {
                    return Ok(());
                }
                Err(Trouble::Vanished(path)) => return Err(self.note_vanished(path)),
                Err(Trouble::Disk(error) | Trouble::LookUp(error))
                    if disk::store_is_deleted(&*self.identity.disk, &error) =>
                {
                    return Err(self.note_vanished(self.dir.clone()));
                }
                Err(Trouble::Disk(error)) => (error, false),
                Err(Trouble::LookUp(error)) => (error, true),
            };
            self.wake_the_rest();
            let waited = Duration::from_micros((self.identity.disk.uptime_us() - started_us).max(0) as u64);
            let is_over = waited >= stall;
            // A record that is reported as failed must never count: if it is written, its segment is given up.
            if !is_written || (is_over && round.is_written) {
                round.is_written = false;
                self.give_up_segment();
            }
            if is_over {
                return Err(self.stalled(error, round, waited));
            }
            self.identity.disk.sleep(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn note_vanished(&mut self, path: String) -> Error {
        let error = Error::Vanished { path };
        self.vanished = Some(error.clone());
        error
    }

    fn stalled(&self, error: io::Error, round: &Round, waited: Duration) -> Error {
        let path = self.dir.clone();
        let waited_s = waited.as_secs();
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            let bytes = round.placed.iter().map(|placed| placed.encoded.stored.len() as u64).sum();
            return Error::DiskFull { path, bytes, waited_s };
        }
        Error::Stalled { path, waited_s, source: Arc::new(error) }
    }

    pub(super) fn try_persist(&mut self, round: &mut Round) -> Result<(), Trouble> {
        if let (true, Some(segment)) = (round.is_written, &self.segment) {
            check_it_is_there(segment)?;
            return self.look_for_mail();
        }
        self.open_segment()?;
        if self.is_closed() {
            return Ok(());
        }
        let Some(segment) = &mut self.segment else {
            return Err(io::Error::other("no segment").into());
        };
        write_round(segment, &mut round.placed, &self.moves)?;
        round.needs_sync |= segment.end - segment.synced_to > UNSYNCED_BYTES_MAX;
        if round.needs_sync {
            segment.sync()?;
            self.counters.add_sync();
        }
        check_it_is_there(segment)?;
        round.is_written = !round.placed.is_empty();
        self.look_for_mail()
    }

    /// Called before anything is acknowledged. A look-up that fails is never an acknowledgement. The only way to learn
    /// of mail: a log that is found to be closed is left at once.
    pub(super) fn look_for_mail(&mut self) -> Result<(), Trouble> {
        for news in (self.look_up)().map_err(Trouble::LookUp)? {
            match news {
                News::Claimed { id, attempt } => {
                    let newest = self.fenced.entry(id).or_insert(0);
                    *newest = attempt.max(*newest);
                }
                News::Closed => self.leave(),
            }
        }
        Ok(())
    }

    /// Writes everything that is not synced into a new segment, in the same order.
    fn write_unsynced_again(&mut self, segment: &mut OpenSegment) -> io::Result<()> {
        let mut unsynced = std::mem::take(&mut self.unsynced);
        let mut result = Ok(());
        for (placed, _) in &mut unsynced {
            result = write_round(segment, placed, &self.moves);
            if result.is_err() {
                break;
            }
            for placed in placed.iter() {
                self.moves.put(placed.known_at, (placed.segment, placed.offset));
            }
        }
        self.unsynced = unsynced;
        result
    }

    /// Writes nothing more to this segment. The next header says from where on it is void.
    pub(super) fn give_up_segment(&mut self) {
        if let Some(segment) = self.segment.take() {
            // Not from the synced place: some records before it may not have been acknowledged, and will be reported
            // as failed.
            self.voids = Some((segment.number, segment.kept_to));
            self.index.forget_from(segment.number, segment.kept_to);
            self.counters.add_given_up();
        }
        self.rewrite = !self.unsynced.is_empty();
        if self.rewrite {
            // Only records that were encoded before may name the given-up places: the index has forgotten them.
            self.moves.begin(self.index.begin_generation());
        }
    }

    /// Makes sure that there is a segment with room; seals the full one before it.
    fn open_segment(&mut self) -> Result<(), Trouble> {
        if let Some(segment) = &mut self.segment {
            if segment.end < self.options.segment_bytes_max {
                return Ok(());
            }
            segment.sync()?;
            check_it_is_there(segment)?;
            self.look_for_mail()?;
            if self.is_closed() {
                return Ok(());
            }
            self.all_is_synced();
            if let Some(segment) = &mut self.segment {
                segment.seal(&self.key)?;
                self.sealed = Some((segment.number, segment.end));
            }
            self.segment = None;
        }
        let number = self.next_number;
        // A number is never used twice: a name whose creation failed half-way may exist after all.
        self.next_number += 1;
        let disk = Arc::clone(&self.identity.disk);
        let mut begun = disk.begin(&self.dir)?;
        let header = self.header(number)?;
        begun.append(&header.encode())?;
        let path = format!("{}/{number}.seg", self.dir);
        let mut segment = OpenSegment::new(begun, path.clone(), number, header.salt);
        if self.rewrite {
            // Written before the new segment gets its name, since with its name the old one becomes void.
            self.write_unsynced_again(&mut segment)?;
        }
        segment.sync()?;
        if !segment.log.publish(&path)? {
            return Err(
                io::Error::new(io::ErrorKind::AlreadyExists, "another process made our segment").into()
            );
        }
        self.voids = None;
        self.segment = Some(segment);
        if self.rewrite {
            self.look_for_mail()?;
            self.all_is_synced();
        }
        Ok(())
    }

    fn header(&self, number: u64) -> io::Result<SegmentHeader> {
        let disk = &*self.identity.disk;
        let mut salt = [0; 8];
        disk.random(&mut salt)?;
        Ok(SegmentHeader {
            store: self.identity.store,
            writer: self.identity.writer,
            number,
            salt: u64::from_le_bytes(salt),
            created: disk.now_us(),
            voids: self.voids,
            sealed: self.sealed,
        })
    }
}

/// Writes records, and the commit that makes them count.
fn write_round(segment: &mut OpenSegment, placed: &mut [Placed], moves: &Moves) -> io::Result<()> {
    let synced_to = segment.synced_to;
    let is_lone = placed.len() == 1 && placed[0].encoded.crcs.only().is_some();
    for record in 0..placed.len() {
        let (before, rest) = placed.split_at_mut(record);
        let current = &mut rest[0];
        for sibling in &current.siblings {
            let place = &mut current.references[sibling.reference].place;
            (place.segment, place.offset) = (before[sibling.record].segment, before[sibling.record].offset);
        }
        // Records keep naming places by which they are known: their present places may change with the next try.
        let known = moves.now(&current.references).map(|now| std::mem::replace(&mut current.references, now));
        segment.add(current, is_lone.then_some(synced_to));
        if let Some(known) = known {
            current.references = known;
        }
        if segment.list_is_long() {
            segment.add_commit(synced_to);
        }
        if segment.buffered() >= WRITE_BYTES {
            segment.write()?;
        }
    }
    if is_lone {
        segment.commit_was_inline(synced_to);
    } else if !placed.is_empty() {
        segment.add_commit(synced_to);
    }
    if segment.buffered() > 0 { segment.write() } else { Ok(()) }
}

/// An error if the file was deleted: it would accept every byte, and lose it.
fn check_it_is_there(segment: &OpenSegment) -> Result<(), Trouble> {
    if segment.log.is_there()? { Ok(()) } else { Err(Trouble::Vanished(segment.path.clone())) }
}
