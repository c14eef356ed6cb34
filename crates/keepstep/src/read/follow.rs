//! Tells of records as they come in, and sleeps when nothing happens.
//!
//! The watch stands before the files are looked at, so nothing falls between the look and the sleep. Of writers that are
//! alive only what is synced is told; of the others all that is whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::{FIRST_FRAME, Kind};

use super::catalog::Catalog;
use super::places::RecordPlace;
use super::records::{DamagedRecord, Gap, Item, read_record};
use crate::disk::Watch;
use crate::error::{Doing, Error, Result};
use crate::segment::names::{GROUPED, WRITERS, list_writers, writer_dir};
use crate::segment::scanned::ScannedEntry;
use crate::segment::{Contents, Log, LogBodies, ScanUnsealed, Scanned, SealedIndex, Segment, Storage};

/// That a writer died changes no file; so now and then it is asked about.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often the stop flag is looked at while asleep.
const STOP_LATENCY: Duration = Duration::from_millis(200);
/// For how many writers what was fetched is kept.
const BODIES_MAX: usize = 8;

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowFrom {
    /// With the first record that is there.
    Start,
    /// With the next one.
    Now,
    /// Behind what was told before.
    Behind(Position),
}

/// How far a store was told: for each writer the segment, and the offset there, of the next record to look at.
///
/// A writer's records are told in the order of its log, so this is exact.
pub type Position = BTreeMap<Id, (u64, u64)>;

/// The place behind everything that a writer ever recorded.
const DONE: (u64, u64) = (u64::MAX, u64::MAX);

/// Something new.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// Whose log it is in.
    pub writer: Id,
    /// What it belongs to.
    pub bind: Bind,
    /// The record, or that there is one and it cannot be read.
    pub item: Item,
}

/// Follows a store, or one attempt in it.
pub struct Follow {
    catalog: Catalog,
    watch: Box<dyn Watch>,
    only: Option<Bind>,
    /// Only records of these kinds, if any are named: the others are not even read.
    kinds: Vec<u8>,
    from: FollowFrom,
    has_begun: bool,
    position: Position,
    /// How far each segment was told: by writer and number.
    told_to: BTreeMap<(Id, u64), u64>,
    next_seq: HashMap<(Id, Bind), u32>,
    queue: VecDeque<Pointer>,
    bodies: HashMap<Id, LogBodies>,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Follow, {} records ready>", self.queue.len())
    }
}

/// A record that is to be told.
#[derive(Debug, Clone, Copy)]
struct Pointer {
    writer: Id,
    /// Where it is read: the writer's own log, or nobody's, if `compact` moved it.
    log: Id,
    bind: Bind,
    seq: u32,
    kind: u8,
    place: RecordPlace,
    is_lost: bool,
}

impl Follow {
    /// Follows everything that is recorded.
    pub fn store(storage: Arc<Storage>, scan: Arc<dyn ScanUnsealed>, from: FollowFrom) -> Result<Self> {
        Self::new(storage, scan, from, None, &[])
    }

    /// Follows all records of some kinds. What is missing between them is not told.
    pub fn kinds(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
        kinds: &[Kind],
    ) -> Result<Self> {
        Self::new(storage, scan, from, None, kinds)
    }

    /// Follows one attempt, also if it has not begun yet.
    pub fn attempt(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
        episode: Id,
        attempt: u32,
    ) -> Result<Self> {
        let bind = Bind { what: What::Attempt, id: episode, attempt };
        Self::new(storage, scan, from, Some(bind), &[])
    }

    fn new(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
        only: Option<Bind>,
        kinds: &[Kind],
    ) -> Result<Self> {
        let watch = storage.disk().watch(&[String::new(), WRITERS.to_owned()]).doing("watch", WRITERS)?;
        let mut follow = Self {
            catalog: Catalog::unread(storage, scan),
            watch,
            only,
            kinds: kinds.iter().map(|&kind| kind as u8).collect(),
            position: if let FollowFrom::Behind(position) = &from {
                position.clone()
            } else {
                Position::new()
            },
            from,
            has_begun: false,
            told_to: BTreeMap::new(),
            next_seq: HashMap::new(),
            queue: VecDeque::new(),
            bodies: HashMap::new(),
            stop: Arc::default(),
        };
        follow.look()?;
        Ok(follow)
    }

    /// Whoever sets this ends the waiting, from any thread.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// How far it has told.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The next record. Waits for one up to `timeout`; nothing if none came, or if it was told to stop.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Followed>> {
        self.catalog.storage().check_process()?;
        let started = Instant::now();
        let mut looked = Instant::now();
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Ok(None);
            }
            if let Some(pointer) = self.queue.pop_front() {
                if let Some(followed) = self.tell(&pointer)? {
                    return Ok(Some(followed));
                }
                continue;
            }
            if self.gather()? {
                continue;
            }
            self.note_what_is_done();
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                // One last look, so that a timeout of nothing still sees what is there.
                self.look()?;
                if !self.gather()? {
                    return Ok(None);
                }
                continue;
            }
            let something = self.watch.wait(left.min(STOP_LATENCY)).doing("watch", WRITERS)?;
            if something || looked.elapsed() >= LOOK_AGAIN {
                looked = Instant::now();
                self.look()?;
            }
        }
    }

    /// Watches first, then looks.
    fn look(&mut self) -> Result<()> {
        let storage = Arc::clone(self.catalog.storage());
        self.watch.add(WRITERS).doing("watch", WRITERS)?;
        self.watch.add(GROUPED).doing("watch", GROUPED)?;
        for writer in list_writers(storage.disk())? {
            if self.catalog.log(&writer).is_none_or(|log| !log.is_finished()) {
                let dir = writer_dir(&writer);
                self.watch.add(&dir).doing("watch", &dir)?;
            }
        }
        self.catalog.refresh()?;
        if !std::mem::replace(&mut self.has_begun, true) {
            match self.from {
                FollowFrom::Start => {}
                FollowFrom::Now => self.pass_over_all(),
                FollowFrom::Behind(_) => self.pass_over_what_was_told()?,
            }
        }
        Ok(())
    }

    fn pass_over_what_was_told(&mut self) -> Result<()> {
        for (writer, &place) in self.position.iter().filter(|(_, place)| **place != DONE) {
            let log = self.catalog.log(writer).filter(|log| log.segment(place.0).is_some());
            // Whoever replaced it may have moved more that was not told yet: nobody can say which.
            let log = log.ok_or_else(|| Error::NotFound {
                what: format!("segment {} of writer {writer}, where the cursor stands,", place.0),
            })?;
            for segment in log.segments().filter(|segment| segment.number <= place.0) {
                let is_last = segment.number == place.0;
                let to = if is_last { place.1 } else { u64::MAX };
                self.told_to.insert((*writer, segment.number), to);
                // By name too: `compact` may move them later, and they are still told.
                let told = new_records(log, segment, FIRST_FRAME, self.only.as_ref(), &self.catalog)?;
                let told = told.iter().filter(|it| it.place.offset < to && self.is_wanted(it));
                let told: Vec<_> = told.map(|it| ((*writer, it.bind), it.seq.saturating_add(1))).collect();
                self.next_seq.extend(told);
            }
        }
        Ok(())
    }

    fn is_wanted(&self, pointer: &Pointer) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&pointer.kind)
    }

    /// Logs that are finished and told: what `compact` makes of them later is nothing new.
    fn note_what_is_done(&mut self) {
        for log in self.catalog.logs().filter(|log| log.is_finished()) {
            let writer = *log.writer();
            let is_told = log.segments().all(|segment| {
                let told = self.told_to.get(&(writer, segment.number)).copied().unwrap_or(FIRST_FRAME);
                visible_to(segment) <= told
            });
            if is_told && self.position.insert(writer, DONE) != Some(DONE) {
                self.next_seq.retain(|(of, _), _| *of != writer);
            }
        }
    }

    /// Sequences are noted too: what is there now may be moved by `compact` later, and is still not new.
    fn pass_over_all(&mut self) {
        for log in self.catalog.logs().chain([self.catalog.grouped()]) {
            for segment in log.segments() {
                let to = visible_to(segment);
                self.told_to.insert((*log.writer(), segment.number), to);
                if *log.writer() != Id::NONE {
                    self.position.insert(*log.writer(), (segment.number, to));
                }
                for (writer, bind, next) in next_seqs(log, segment) {
                    let known = self.next_seq.entry((writer, bind)).or_default();
                    *known = next.max(*known);
                }
            }
        }
    }

    /// Queues what is new in one segment. True if there was something new in any.
    fn gather(&mut self) -> Result<bool> {
        for log in self.catalog.logs().chain([self.catalog.grouped()]) {
            for segment in log.segments() {
                let key = (*log.writer(), segment.number);
                let from = self.told_to.get(&key).copied().unwrap_or(FIRST_FRAME);
                let to = visible_to(segment);
                if to <= from {
                    continue;
                }
                self.told_to.insert(key, to);
                let mut found = new_records(log, segment, from, self.only.as_ref(), &self.catalog)?;
                found.retain(|it| self.is_wanted(it) && self.position.get(&it.writer) != Some(&DONE));
                if !found.is_empty() {
                    self.queue.extend(found);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn tell(&mut self, pointer: &Pointer) -> Result<Option<Followed>> {
        let Pointer { writer, log, bind, seq, kind, place, is_lost } = *pointer;
        if log != Id::NONE {
            self.position.insert(writer, (place.segment, place.offset + 1));
        }
        // Where only some kinds are told, nothing is known to be missing between them.
        let first = (self.from == FollowFrom::Start && self.kinds.is_empty()).then_some(0);
        let known = self.next_seq.get(&(writer, bind)).copied().or(first);
        if known.is_some_and(|next| seq < next) {
            // It was written again after its segment was given up, or moved by `compact`.
            return Ok(None);
        }
        if let Some(from) = known.filter(|next| *next < seq && self.kinds.is_empty()) {
            self.next_seq.insert((writer, bind), seq);
            self.queue.push_front(*pointer);
            return Ok(Some(Followed { writer, bind, item: Item::Gap(Gap { from, to: seq }) }));
        }
        self.next_seq.insert((writer, bind), seq.saturating_add(1));
        if is_lost {
            let item = Item::Damaged(DamagedRecord { seq, kind, place });
            return Ok(Some(Followed { writer, bind, item }));
        }
        match self.read(log, seq, kind, place) {
            Err(error) if was_deleted(&error) => {
                // `compact` moved it, and the next look finds it there.
                self.next_seq.insert((writer, bind), seq);
                self.look()?;
                Ok(None)
            }
            read => Ok(read?.map(|item| Followed { writer, bind, item })),
        }
    }

    fn read(&mut self, log: Id, seq: u32, kind: u8, place: RecordPlace) -> Result<Option<Item>> {
        if !self.bodies.contains_key(&log) && self.bodies.len() >= BODIES_MAX {
            self.bodies.clear();
        }
        let found = if log == Id::NONE { Some(self.catalog.grouped()) } else { self.catalog.log(&log) };
        let Some(found) = found else { return Ok(None) };
        let bodies = self.bodies.entry(log).or_insert_with(|| found.bodies());
        bodies.renew(found.doors());
        read_record(bodies, seq, kind, place).map(Some)
    }
}

fn was_deleted(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// What of each attempt is behind a segment: whose it is, and the sequence that comes next.
fn next_seqs(log: &Log, segment: &Segment) -> Vec<(Id, Bind, u32)> {
    match &segment.contents {
        Contents::Unreadable(_) => Vec::new(),
        Contents::Sealed(index) => {
            let entries = index.owned_entries();
            let next = entries.map(|(writer, it)| {
                let bind = Bind { what: it.what, id: it.id, attempt: it.attempt };
                (writer, bind, it.first_seq.saturating_add(it.count))
            });
            next.collect()
        }
        Contents::Open(scanned) => {
            let last = |entry: &ScannedEntry| entry.records.iter().map(|record| record.seq).max();
            let entries = scanned.entries.iter();
            let next =
                entries.filter_map(|entry| Some((*log.writer(), entry.bind, last(entry)?.saturating_add(1))));
            next.collect()
        }
    }
}

/// Up to where a segment can be told.
fn visible_to(segment: &Segment) -> u64 {
    let to = match &segment.contents {
        Contents::Sealed(index) => index.trailer.lists,
        Contents::Open(scanned) => scanned.valid_to,
        Contents::Unreadable(_) => 0,
    };
    segment.voided_from.map_or(to, |from| to.min(from))
}

/// The records from an offset on, in the order of the file.
fn new_records(
    log: &Log,
    segment: &Segment,
    from: u64,
    only: Option<&Bind>,
    catalog: &Catalog,
) -> Result<Vec<Pointer>> {
    let named = match &segment.contents {
        Contents::Unreadable(_) => Vec::new(),
        Contents::Open(scanned) => scanned_names(*log.writer(), scanned),
        Contents::Sealed(index) => match sealed_names(index, only, catalog)? {
            Some(names) => names,
            None if *log.writer() == Id::NONE => Vec::new(),
            None => scanned_names(*log.writer(), &rescan(log, segment.number, catalog)?),
        },
    };
    let is_new = |name: &Named| {
        name.offset >= from
            && segment.exists_at(name.offset)
            && only.is_none_or(|only| *only == name.bind)
            && !catalog.is_pruned(&name.bind)
    };
    let pointer = |name: Named| Pointer {
        writer: name.writer,
        log: *log.writer(),
        bind: name.bind,
        seq: name.seq,
        kind: name.kind,
        place: RecordPlace { segment: segment.number, offset: name.offset },
        is_lost: name.is_lost,
    };
    let mut found: Vec<Pointer> = named.into_iter().filter(is_new).map(pointer).collect();
    found.sort_by_key(|pointer| pointer.place.offset);
    Ok(found)
}

/// A record of a segment, by name.
struct Named {
    writer: Id,
    bind: Bind,
    seq: u32,
    kind: u8,
    offset: u64,
    is_lost: bool,
}

/// What an index lists; nothing if its lists are damaged.
fn sealed_names(index: &SealedIndex, only: Option<&Bind>, catalog: &Catalog) -> Result<Option<Vec<Named>>> {
    let mut names = Vec::new();
    for (writer, entry) in index.owned_entries() {
        let bind = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
        if only.is_some_and(|only| *only != bind) {
            continue;
        }
        let Some(places) = index.places(catalog.storage(), entry)? else { return Ok(None) };
        let numbered = (entry.first_seq..).zip(places);
        names.extend(numbered.map(|(seq, (offset, kind))| Named {
            writer,
            bind,
            seq,
            kind,
            offset,
            is_lost: false,
        }));
    }
    Ok(Some(names))
}

fn scanned_names(writer: Id, scanned: &Scanned) -> Vec<Named> {
    let mut names = Vec::new();
    for entry in &scanned.entries {
        let bind = entry.bind;
        let records = entry.records.iter();
        names.extend(records.map(|it| Named {
            writer,
            bind,
            seq: it.seq,
            kind: it.kind,
            offset: it.offset,
            is_lost: false,
        }));
    }
    let damage = scanned.lost.iter().filter(|range| range.damage);
    for lost in damage.flat_map(|range| &range.records) {
        if let Some(bind) = lost.bind {
            let (seq, kind, offset) = (lost.seq, lost.kind, lost.offset);
            names.push(Named { writer, bind, seq, kind, offset, is_lost: true });
        }
    }
    names
}

fn rescan(log: &Log, number: u64, catalog: &Catalog) -> Result<Scanned> {
    let mut scanned = Scanned::new();
    if let Some((head, standing)) = log.rescan(number) {
        catalog.scan().scan(catalog.storage(), &head, log.doors(), &standing, &mut scanned)?;
    }
    Ok(scanned)
}
