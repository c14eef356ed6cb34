//! Reports records as they arrive, and sleeps while nothing happens.
//!
//! The watch begins before the files are read, so no change is missed between reading and sleeping. Of live writers
//! only synced records are reported; of the others all that is whole. That a writer seems gone is a hint, not proof:
//! its log is checked again, and counts as done only when a manifest replaced it.

mod names;
mod position;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::{FIRST_FRAME, Kind};

use super::catalog::Catalog;
use super::records::{DamagedRecord, Gap, Item, read_record};
use crate::disk::Watch;
use crate::error::{Doing, Error, Result};
use crate::segment::names::{GROUPED, WRITERS, list_writers, segment_path, writer_dir};
use crate::segment::{Contents, Liveness, Log, LogBodies, ScanUnsealed, Segment, Storage};

use names::{Moved, Pointer, Wanted, is_settled_at, new_records, next_seqs, visible_to, why_not_yet};
use position::ALL;
pub(crate) use position::Unsettled;
pub use position::{Origin, Position};

/// The death of a writer changes no file, so it is checked at this interval.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often the stop flag is checked during sleep.
const STOP_LATENCY: Duration = Duration::from_millis(200);
/// For how many writers fetched data is kept.
const BODIES_MAX: usize = 8;
/// How many logs of writers that seem gone are checked again in one look.
const DOUBTED_MAX: usize = 32;
/// How often in a row a file may vanish before this is an error.
const VANISHED_MAX: usize = 16;

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowFrom {
    /// At the first record.
    Start,
    /// At the next new record.
    Now,
    /// After what was reported before.
    Behind(Position),
}

/// A new record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Followed {
    /// The writer in whose log it is.
    pub writer: Id,
    /// What it belongs to.
    pub bind: Bind,
    /// The record, or a mark that it cannot be read.
    pub item: Item,
}

/// Follows a store, or one attempt in it.
pub(crate) struct Follow {
    catalog: Catalog,
    watch: Box<dyn Watch>,
    wanted: Wanted,
    /// True if nothing is reported that its writer could still give up.
    only_settled: bool,
    /// Writers of whom everything is reported all the same: their logs cannot be closed from here.
    trusted: BTreeSet<Id>,
    from: FollowFrom,
    has_begun: bool,
    /// True if a look failed half-way: the catalog is then of no single moment, and nothing may be concluded from it.
    is_stale: bool,
    position: Position,
    /// How far each segment was reported, by writer and number.
    told_to: BTreeMap<(Id, u64), u64>,
    moved: Moved,
    next_seq: HashMap<(Id, Bind), u32>,
    queue: VecDeque<Pointer>,
    bodies: HashMap<Id, LogBodies>,
    /// The record that was reported last, and the state before it.
    last: Option<Rewind>,
    /// The log that was checked last.
    doubted: Id,
    stop: Stopper,
}

/// Ends the wait of a follower, from any thread. The follower reports nothing more.
#[derive(Debug, Clone, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Ends the wait for good.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether a record stays in its writer's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It does.
    Yes,
    /// It is not there, and never will be.
    No,
    /// Its writer may still give it up, or write it again.
    Open,
}

/// The state before a record was reported.
#[derive(Debug, Clone, Copy)]
struct Rewind {
    pointer: Pointer,
    origin: Option<Origin>,
    next_seq: Option<u32>,
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Follow, {} records ready>", self.queue.len())
    }
}

impl Follow {
    /// Follows all records of the store.
    pub(crate) fn store(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
    ) -> Result<Self> {
        Self::new(storage, scan, from, Wanted::default(), false)
    }

    /// Follows all records of some kinds. Gaps between them are not reported. With `only_settled`, they are reported
    /// once their writers cannot give them up any more; [`Follow::left_by_the_gone`] tells who left others.
    pub(crate) fn kinds(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
        kinds: &[Kind],
        only_settled: bool,
    ) -> Result<Self> {
        let kinds = kinds.iter().map(|&kind| kind as u8).collect();
        Self::new(storage, scan, from, Wanted { only: None, kinds }, only_settled)
    }

    /// Follows one attempt, which need not have begun yet.
    pub(crate) fn attempt(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
        episode: Id,
        attempt: u32,
    ) -> Result<Self> {
        let bind = Bind { what: What::Attempt, id: episode, attempt };
        Self::new(storage, scan, from, Wanted { only: Some(bind), kinds: Vec::new() }, false)
    }

    fn new(
        storage: Arc<Storage>,
        scan: Arc<dyn ScanUnsealed>,
        from: FollowFrom,
        wanted: Wanted,
        only_settled: bool,
    ) -> Result<Self> {
        let watch = storage.disk().watch(&[String::new(), WRITERS.to_owned()]).doing("watch", WRITERS)?;
        let position = match &from {
            FollowFrom::Behind(position) => position.clone(),
            FollowFrom::Start | FollowFrom::Now => Position::default(),
        };
        let mut follow = Self {
            catalog: Catalog::unread(storage, scan),
            watch,
            wanted,
            only_settled,
            trusted: BTreeSet::new(),
            position,
            from,
            has_begun: false,
            is_stale: true,
            told_to: BTreeMap::new(),
            moved: Moved::default(),
            next_seq: HashMap::new(),
            queue: VecDeque::new(),
            bodies: HashMap::new(),
            last: None,
            doubted: Id::NONE,
            stop: Stopper::default(),
        };
        follow.look()?;
        Ok(follow)
    }

    /// A handle that ends the wait, from any thread.
    pub(crate) fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// How far it has reported.
    pub(crate) fn position(&self) -> &Position {
        &self.position
    }

    /// The next record. Waits for one up to `timeout`; `None` if none came, or if it was stopped.
    pub(crate) fn next(&mut self, timeout: Duration) -> Result<Option<Followed>> {
        self.catalog.storage().check_process()?;
        let started = Instant::now();
        let mut looked = Instant::now();
        let mut vanished = 0;
        let mut has_looked_last = false;
        loop {
            if self.stop.is_stopped() {
                return Ok(None);
            }
            if self.is_stale {
                self.look()?;
            }
            match self.tell_next() {
                Ok(Some(followed)) => return Ok(Some(followed)),
                Ok(None) => {}
                // `compact` moved it; the newest manifest says where.
                Err(error) if error.is_gone() && vanished < VANISHED_MAX => {
                    vanished += 1;
                    self.begin_again()?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.note_what_is_done();
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                if std::mem::replace(&mut has_looked_last, true) {
                    return Ok(None);
                }
                // One last look, so that a timeout of zero still sees what is there.
                self.look()?;
                continue;
            }
            let something = self.watch.wait(left.min(STOP_LATENCY)).doing("watch", WRITERS)?;
            if something || looked.elapsed() >= LOOK_AGAIN {
                looked = Instant::now();
                self.look()?;
            }
        }
    }

    /// Takes the last record back: it is reported again. For a caller that cannot handle it yet. A gap stays reported.
    pub(crate) fn take_back(&mut self) {
        let Some(Rewind { pointer, origin, next_seq }) = self.last.take() else { return };
        let Pointer { writer, bind, seq, .. } = pointer;
        match origin {
            Some(origin) => self.position.writers.insert(writer, origin),
            None => self.position.writers.remove(&writer),
        };
        match next_seq {
            Some(next) => self.next_seq.insert((writer, bind), next),
            None => self.next_seq.remove(&(writer, bind)),
        };
        self.position.settle(&writer, &bind, seq);
        self.queue.push_front(pointer);
    }

    /// Writers that do not seem alive, and left records that are wanted and that they could still give up.
    pub(crate) fn left_by_the_gone(&self) -> Result<Vec<Id>> {
        let mut left = Vec::new();
        for log in self.catalog.logs().filter(|log| log.liveness() != Liveness::Live) {
            for segment in log.segments() {
                let (from, to) = (self.visible_to(log, segment), visible_to(log, segment, false));
                if from < to && !new_records(log, segment, from..to, &self.wanted, &self.catalog)?.is_empty()
                {
                    left.push(*log.writer());
                    break;
                }
            }
        }
        Ok(left)
    }

    /// Reads what is there now.
    pub(crate) fn look_again(&mut self) -> Result<()> {
        self.look()
    }

    /// Reports all that a writer left: it has been gone for long, and this process may not close its log.
    pub(crate) fn trust(&mut self, writer: Id) {
        self.trusted.insert(writer);
    }

    /// Whether a writer's own record counts as recorded in its log, whatever copies there are.
    pub(crate) fn is_kept(&self, writer: &Id, bind: &Bind, seq: u32) -> Result<Kept> {
        let wanted = Wanted { only: Some(*bind), kinds: Vec::new() };
        let Some(log) = self.catalog.log(writer).filter(|log| log.segments().next().is_some()) else {
            return self.is_kept_by_compact(writer, bind, seq);
        };
        for segment in log.segments() {
            let to = self.visible_to(log, segment);
            let found = new_records(log, segment, FIRST_FRAME..to, &wanted, &self.catalog)?;
            if found.iter().any(|it| it.seq == seq) {
                return Ok(Kept::Yes);
            }
        }
        Ok(if log.is_closed() { Kept::No } else { Kept::Open })
    }

    fn is_kept_by_compact(&self, writer: &Id, bind: &Bind, seq: u32) -> Result<Kept> {
        let mut reader = match self.catalog.bind_reader(writer, bind) {
            Err(Error::NotFound { .. }) => return Ok(Kept::No),
            reader => reader?,
        };
        for item in reader.records() {
            let found = match item? {
                Item::Record(record) => record.seq,
                Item::Damaged(lost) => lost.seq,
                Item::Gap(_) => continue,
            };
            if found == seq {
                return Ok(Kept::Yes);
            }
        }
        Ok(Kept::No)
    }

    fn visible_to(&self, log: &Log, segment: &Segment) -> u64 {
        visible_to(log, segment, self.only_settled && !self.trusted.contains(log.writer()))
    }

    /// The first record of a subject in a writer's log, wherever it is by now.
    pub(crate) fn first_of(&mut self, writer: &Id, bind: &Bind) -> Result<Option<Item>> {
        let mut vanished = 0;
        loop {
            let first = self.catalog.bind_reader(writer, bind);
            match first.and_then(|mut reader| reader.records().next().transpose()) {
                Err(error) if error.is_gone() && vanished < VANISHED_MAX => {
                    vanished += 1;
                    self.begin_again()?;
                }
                first => return first,
            }
        }
    }

    /// The next record that is there; `None` if all known records were reported.
    fn tell_next(&mut self) -> Result<Option<Followed>> {
        loop {
            while let Some(&pointer) = self.queue.front() {
                // It stays at the front of the queue until it is reported: if reading fails now, it is tried again.
                let told = self.tell(&pointer)?;
                if !matches!(&told, Some(Followed { item: Item::Gap(_), .. })) {
                    self.queue.pop_front();
                }
                if told.is_some() {
                    return Ok(told);
                }
            }
            if !self.gather()? {
                return Ok(None);
            }
        }
    }

    /// Starts the watches, then reads.
    fn look(&mut self) -> Result<()> {
        self.is_stale = true;
        let storage = Arc::clone(self.catalog.storage());
        self.watch.add(WRITERS).doing("watch", WRITERS)?;
        self.watch.add(GROUPED).doing("watch", GROUPED)?;
        self.doubt_some()?;
        for writer in list_writers(storage.disk())? {
            if self.catalog.log(&writer).is_none_or(|log| !log.is_finished()) {
                let dir = writer_dir(&writer);
                self.watch.add(&dir).doing("watch", &dir)?;
            }
        }
        self.catalog.refresh()?;
        if !self.has_begun {
            match self.from {
                FollowFrom::Start => {}
                FollowFrom::Now => self.pass_over_all()?,
                FollowFrom::Behind(_) => self.doubt_what_is_done(),
            }
        }
        self.has_begun = true;
        self.is_stale = false;
        Ok(())
    }

    /// Checks some logs of writers that seem gone: a writer that is still alive may have recorded more.
    fn doubt_some(&mut self) -> Result<()> {
        let finished = || self.catalog.logs().filter(|log| log.is_finished()).map(|log| *log.writer());
        let behind = finished().filter(|writer| *writer > self.doubted);
        // After the last one, begin with the first again.
        let all_round = behind.chain(finished().filter(|writer| *writer <= self.doubted));
        let some: Vec<Id> = all_round.take(DOUBTED_MAX).collect();
        self.doubted = some.last().copied().unwrap_or(Id::NONE);
        some.iter().try_for_each(|writer| self.catalog.doubt(writer))
    }

    /// Reads everything again; what was reported is not reported twice.
    fn begin_again(&mut self) -> Result<()> {
        self.queue.clear();
        self.told_to.clear();
        self.bodies.clear();
        self.moved = Moved::default();
        self.catalog.forget();
        self.look()
    }

    /// A cursor of 0.1 says that a writer is done although it only seemed gone. While its log exists, what is in it
    /// now counts as reported, and later records do not.
    fn doubt_what_is_done(&mut self) {
        for (writer, next) in self.position.writers.iter_mut().filter(|(_, next)| **next == ALL) {
            let log = self.catalog.log(writer);
            if let Some((log, last)) = log.and_then(|log| Some((log, log.segments().next_back()?))) {
                *next = (last.number, visible_to(log, last, false));
            }
        }
    }

    /// Called when everything is reported: logs that were replaced by now need not be remembered.
    fn note_what_is_done(&mut self) {
        let manifest = self.catalog.manifest().number;
        let grouped = self.catalog.grouped();
        let is_whole = grouped.segments().all(|it| matches!(it.contents(), Contents::Sealed(_)));
        if !is_whole || self.moved.as_of != Some(manifest) {
            return;
        }
        self.position.replaced_by = self.position.replaced_by.max(manifest);
        let (catalog, undated) = (&self.catalog, &self.moved.undated);
        let log_of = |writer: &Id| catalog.log(writer).filter(|log| log.segments().next().is_some());
        self.position.writers.retain(|writer, next| {
            let is_there = log_of(writer).is_some();
            let is_undated = undated.contains(writer);
            if !is_there && is_undated {
                *next = ALL;
            }
            is_there || is_undated
        });
        self.position.unsettled.retain(|it| {
            let (number, offset) = it.origin;
            let segment = |log: &'_ Log| {
                log.segment(number).is_some_and(|it| is_settled_at(it, offset) && it.exists_at(offset))
            };
            log_of(&it.writer).is_some_and(|log| !segment(log))
        });
        self.next_seq.retain(|(writer, _), _| log_of(writer).is_some());
    }

    /// Sequence numbers are noted too: a record may be written again elsewhere, and is still not new.
    fn pass_over_all(&mut self) -> Result<()> {
        self.position.replaced_by = self.catalog.manifest().number;
        for log in self.catalog.logs().chain([self.catalog.grouped()]) {
            for segment in log.segments() {
                let to = self.visible_to(log, segment);
                if *log.writer() != Id::NONE {
                    self.told_to.insert((*log.writer(), segment.number), to);
                    self.position.writers.insert(*log.writer(), (segment.number, to));
                }
                for (writer, bind, next) in next_seqs(log, segment) {
                    let known = self.next_seq.entry((writer, bind)).or_default();
                    *known = next.max(*known);
                }
            }
        }
        for writer in Moved::list(&self.catalog, &self.position, &self.wanted)?.undated {
            self.position.writers.insert(writer, ALL);
        }
        Ok(())
    }

    /// Queues new records: of one writer whose log was replaced, or of one segment. True if there were any.
    fn gather(&mut self) -> Result<bool> {
        if self.moved.as_of != Some(self.catalog.manifest().number) {
            self.moved = Moved::list(&self.catalog, &self.position, &self.wanted)?;
        }
        // Moved records come first: they were recorded before those that are still in their writer's log.
        let moved = self.moved.take(&self.catalog, &self.position, &self.wanted)?;
        let found = if moved.is_empty() { self.gather_from_logs()? } else { moved };
        self.queue.extend(&found);
        Ok(!found.is_empty())
    }

    fn gather_from_logs(&mut self) -> Result<Vec<Pointer>> {
        for log in self.catalog.logs() {
            let writer = *log.writer();
            let next = self.position.writers.get(&writer).copied().unwrap_or_default();
            for segment in log.segments().filter(|segment| segment.number >= next.0) {
                if why_not_yet(segment).is_some() {
                    // Later records would be reported first, and this segment would then count as reported.
                    break;
                }
                let key = (writer, segment.number);
                let told = self.told_to.get(&key).copied().unwrap_or(FIRST_FRAME);
                let from = if segment.number == next.0 { told.max(next.1) } else { told };
                let to = self.visible_to(log, segment);
                if to <= from {
                    continue;
                }
                // Damage may be reported from behind what is whole.
                let is_all = to == visible_to(log, segment, false);
                let part = from..if is_all { u64::MAX } else { to };
                let found = new_records(log, segment, part, &self.wanted, &self.catalog)?;
                self.told_to.insert(key, to);
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
        Ok(Vec::new())
    }

    fn tell(&mut self, pointer: &Pointer) -> Result<Option<Followed>> {
        let Pointer { writer, log, bind, seq, kind, place, origin, is_lost, is_settled } = *pointer;
        if self.position.is_told(&writer, origin) {
            // `compact` moved it while it was queued, and it was reported from there.
            return Ok(None);
        }
        // If only some kinds are reported, gaps between them mean nothing.
        let first = (self.from == FollowFrom::Start && self.wanted.kinds.is_empty()).then_some(0);
        let known = self.next_seq.get(&(writer, bind)).copied().or(first);
        let was_told = self.position.settle(&writer, &bind, seq);
        if was_told || known.is_some_and(|next| seq < next) {
            // It was written again after its segment was given up.
            self.position.pass(writer, origin);
            return Ok(None);
        }
        if let Some(from) = known.filter(|next| *next < seq && self.wanted.kinds.is_empty()) {
            self.next_seq.insert((writer, bind), seq);
            // Or taking it back would take back the record before it.
            self.last = None;
            return Ok(Some(Followed { writer, bind, item: Item::Gap(Gap { from, to: seq }) }));
        }
        let item = if is_lost {
            Item::Damaged(DamagedRecord { seq, kind, place })
        } else {
            self.read(log, pointer)?
        };
        let before = Rewind {
            pointer: *pointer,
            origin: self.position.writers.get(&writer).copied(),
            next_seq: self.next_seq.get(&(writer, bind)).copied(),
        };
        self.last = Some(before);
        self.position.pass(writer, origin);
        self.next_seq.insert((writer, bind), seq.saturating_add(1));
        if !is_settled {
            self.position.unsettled.push(Unsettled { writer, origin, bind, seq });
        }
        Ok(Some(Followed { writer, bind, item }))
    }

    fn read(&mut self, log: Id, pointer: &Pointer) -> Result<Item> {
        let Pointer { seq, kind, place, .. } = *pointer;
        if !self.bodies.contains_key(&log) && self.bodies.len() >= BODIES_MAX {
            self.bodies.clear();
        }
        let found = if log == Id::NONE { Some(self.catalog.grouped()) } else { self.catalog.log(&log) };
        let found = found.filter(|found| found.segment(place.segment).is_some());
        let Some(found) = found else {
            // It was moved since it was queued: no later record may be reported before it.
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::io("read", segment_path(&log, place.segment), gone));
        };
        let bodies = self.bodies.entry(log).or_insert_with(|| found.bodies());
        bodies.renew(found.readable());
        read_record(bodies, seq, kind, place)
    }
}
