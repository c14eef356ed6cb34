//! The writer of a process: callers, the committer's thread, and which of them commits when.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keepstep_format::Id;
use keepstep_format::encode::Encoder;
use keepstep_format::frame::Kind;
use keepstep_format::hash::{ContentKey, Hash};
use keepstep_format::value::Value;

use super::buffer_pool::BufferPool;
use super::dictionary::Trainer;
use super::encoded_record::EncodedRecord;
use super::event::Stage;
use super::handoff::{Batch, Handoff, NotTaken, Ticket, WhenFull};
use super::index::Index;
use super::log::{Identity, LogWriter, LookUp, QueuedRecord};
use super::role::{Commit, Role};
use super::stats::{Counters, WriterStats};
use super::subject::{Progress, Subject, SubjectKey};
use super::wakers::Wakers;
use crate::error::{Error, Result};
use crate::options::{Level, Options};
use crate::process::Process;

/// Shows that this process is alive; called now and then.
pub(crate) type Beat = Box<dyn FnMut() + Send>;

/// Longer steps are compressed by their callers: otherwise the committer would keep all callers waiting.
const LATE_BYTES_MAX: usize = 4 << 10;
/// Entries of streams are put by event loops, and no caller waits for a single one: the loop's time is more valuable.
const LATE_ENTRY_BYTES_MAX: usize = 32 << 10;

/// How often a waiting caller is asked whether it still wants to wait.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// The writer of one process.
pub(crate) struct Writer {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    id: Id,
    role: Role<QueuedRecord, LogWriter>,
    index: Arc<Index>,
    key: ContentKey,
    options: Options,
    counters: Arc<Counters>,
    trainer: Trainer,
    buffer_pool: Arc<BufferPool>,
    process: Process,
    /// True if another process has closed its log.
    is_closed: Arc<AtomicBool>,
    strongest: Level,
}

impl Writer {
    pub(crate) fn start(
        identity: Identity,
        key: ContentKey,
        options: &Options,
        look_up: LookUp,
        beat: Beat,
        wakers: Arc<Wakers>,
    ) -> Result<Self> {
        let index = Arc::new(Index::new(options.index_bytes_max));
        let counters = Arc::new(Counters::default());
        let buffer_pool = Arc::new(BufferPool::default());
        let is_closed = Arc::new(AtomicBool::new(false));
        let (id, strongest) = (identity.writer, identity.strongest);
        let log = LogWriter::new(
            identity,
            key.clone(),
            Arc::clone(&index),
            options.clone(),
            Arc::clone(&counters),
            look_up,
        )
        .with_buffer_pool(Arc::clone(&buffer_pool))
        .with_wakers(wakers)
        .with_closed_flag(Arc::clone(&is_closed));
        let inner = Arc::new(Inner {
            id,
            role: Role::new(Handoff::new(options.queue_bytes_max), log),
            index,
            key,
            options: options.clone(),
            counters,
            trainer: Trainer::new(options.dictionary),
            buffer_pool,
            process: Process::this(),
            is_closed,
            strongest,
        });
        let thread = if options.background { Some(spawn(Arc::clone(&inner), beat)?) } else { None };
        Ok(Self { inner, thread: Mutex::new(thread) })
    }

    /// Its id in the store.
    pub(crate) fn id(&self) -> Id {
        self.inner.id
    }

    /// The level that a sync reaches here.
    pub(crate) fn strongest(&self) -> Level {
        self.inner.strongest
    }

    /// Encodes a record on the caller's thread. The caller has checked that the process is still the same.
    pub(crate) fn prepare(
        &self,
        subject: &Arc<Subject>,
        epoch: u32,
        kind: Kind,
        fields: impl IntoIterator<Item = (u8, impl Borrow<Value>)>,
        level: Level,
    ) -> Result<QueuedRecord> {
        self.prepare_and_hash(subject, epoch, kind, fields, level).map(|(pending, _)| pending)
    }

    /// As [`Writer::prepare`], with the hash of the last field if that is long enough to have one.
    pub(crate) fn prepare_and_hash(
        &self,
        subject: &Arc<Subject>,
        epoch: u32,
        kind: Kind,
        fields: impl IntoIterator<Item = (u8, impl Borrow<Value>)>,
        level: Level,
    ) -> Result<(QueuedRecord, Option<Hash>)> {
        let inner = &*self.inner;
        let generation = inner.index.generation();
        let mut encoder = Encoder::fields_into(&inner.key, &*inner.index, inner.buffer_pool.get());
        let mut progress = Progress::of(kind);
        // A value that was passed by value is dropped before its bytes are compressed, so that a large array is not
        // in memory twice.
        for (number, value) in fields {
            progress.part.field(kind as u8, number, value.borrow());
            encoder.field(number);
            encoder.put(value.borrow()).map_err(|error| {
                let name = keepstep_format::fields::name(number).unwrap_or("a field");
                let fix = error.to_string();
                Error::BadInput { field: name.to_owned(), value: "cannot be recorded".to_owned(), fix }
            })?;
        }
        let hash = encoder.last_hash();
        let encoded = encoder.finish();
        inner.index.announce(&encoded.fresh);
        inner.index.keep_young(&encoded.links);
        inner.trainer.sample(&encoded.body);
        let mut encoded = EncodedRecord::new(encoded, inner.trainer.current());
        encoded.generation = generation;
        let last = kind == Kind::End;
        Ok((
            QueuedRecord { subject: Some(Arc::clone(subject)), epoch, kind, encoded, level, progress, last },
            hash,
        ))
    }

    /// Hands a record over and returns at once.
    pub(crate) fn submit(&self, mut pending: QueuedRecord, when_full: WhenFull) -> Result<Ticket> {
        let late_bytes_max = if pending.kind == Kind::Put { LATE_ENTRY_BYTES_MAX } else { LATE_BYTES_MAX };
        if !self.inner.options.compress_late || pending.encoded.stored.len() > late_bytes_max {
            pending.encoded.compress();
        }
        let bytes = pending.encoded.queue_bytes();
        let ticket = self.push(pending, bytes, when_full, true)?;
        if !self.inner.options.background {
            self.inner.role.commit_all();
        }
        self.train();
        Ok(ticket)
    }

    /// Hands a record over without waking a thread, also if the queue is full: [`Writer::wait_for_room`] comes before,
    /// and [`Writer::commit_if_idle`] must follow.
    pub(crate) fn push_only(&self, mut pending: QueuedRecord) -> Result<Ticket> {
        pending.encoded.compress();
        let bytes = pending.encoded.queue_bytes();
        self.push(pending, bytes, WhenFull::Pass, false)
    }

    /// Waits while the queue is full. Callers hold no lock that another thread may need.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        self.check_process()?;
        self.inner.role.handoff.wait_for_room(self.interrupt()).map_err(|error| self.not_taken(&error))
    }

    /// If no thread has the role, commits what waits.
    pub(crate) fn commit_if_idle(&self) {
        self.inner.role.commit_if_idle();
        self.train();
    }

    fn push(&self, pending: QueuedRecord, bytes: usize, when_full: WhenFull, wake: bool) -> Result<Ticket> {
        let pushed = self.inner.role.handoff.push_unless(pending, bytes, when_full, wake, self.interrupt());
        pushed.map_err(|error| self.not_taken(&error))
    }

    /// How often a caller that waits is asked whether it still wants to, and by what.
    fn interrupt(&self) -> Option<(Duration, fn() -> bool)> {
        self.inner.options.interrupt.map(|interrupt| (INTERRUPT_EVERY, interrupt))
    }

    fn not_taken(&self, why: &NotTaken) -> Error {
        match why {
            NotTaken::Closed => Error::Closed,
            NotTaken::Interrupted => Error::Interrupted,
            NotTaken::Full => Error::Busy {
                what: "the queue".to_owned(),
                why: format!(
                    "{} bytes wait for the disk; wait for a receipt, or record with step()",
                    self.inner.options.queue_bytes_max
                ),
            },
        }
    }

    /// Waits until a record has reached a level. False if the time was over first.
    pub(crate) fn wait(&self, ticket: &Ticket, level: Level, timeout: Option<Duration>) -> Result<bool> {
        let stage = if level >= Level::Power { Stage::Power } else { Stage::Kill };
        if stage == Stage::Power && ticket.event.stage() == Stage::Kill {
            self.inner.role.handoff.want_sync();
            if !self.inner.options.background {
                self.inner.role.sync();
            }
        }
        if !self.wait_for(ticket, Stage::Kill, timeout)? {
            return Ok(false);
        }
        if let Some(error) = ticket.event.failure(ticket.index) {
            return Err(error);
        }
        if stage == Stage::Power && ticket.event.stage() == Stage::Kill {
            // It was written without a sync, at `kill`; now a caller wants more.
            self.inner.role.handoff.want_sync();
        }
        let has_come = self.wait_for(ticket, stage, timeout)?;
        if has_come && ticket.event.stage() < stage {
            return Err(self.left());
        }
        Ok(has_come)
    }

    /// The error of a record that was handed over and will not be written.
    fn left(&self) -> Error {
        if self.is_closed_by_others() { Error::LogClosed { writer: self.id() } } else { Error::Closed }
    }

    /// As [`super::event::Event::wait`]; the caller is asked now and then whether it still wants to wait.
    fn wait_for(&self, ticket: &Ticket, stage: Stage, timeout: Option<Duration>) -> Result<bool> {
        let Some(is_interrupted) = self.inner.options.interrupt else {
            return Ok(ticket.event.wait(stage, timeout));
        };
        let began = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            let slice = left.map_or(INTERRUPT_EVERY, |left| left.min(INTERRUPT_EVERY));
            if ticket.event.wait(stage, Some(slice)) {
                return Ok(true);
            }
            if left.is_some_and(|left| left <= slice) {
                return Ok(false);
            }
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Checks whether a record has reached a level, or will not.
    pub(crate) fn poll(&self, ticket: &Ticket, level: Level) -> Option<Result<()>> {
        // Event loops ask for many at once: the process is checked only if a lock has to be taken.
        if ticket.event.has_failures() {
            if let Err(forked) = self.check_process() {
                return Some(Err(forked));
            }
            if let Some(error) = ticket.event.failure(ticket.index) {
                return Some(Err(error));
            }
        }
        let stage = if level >= Level::Power { Stage::Power } else { Stage::Kill };
        if ticket.event.has_come(stage) {
            return Some(if ticket.event.stage() < stage { Err(self.left()) } else { Ok(()) });
        }
        if ticket.event.stage() == Stage::Kill {
            if let Err(forked) = self.check_process() {
                return Some(Err(forked));
            }
            self.inner.role.handoff.want_sync();
        }
        None
    }

    /// Starts to train a dictionary when there are enough samples.
    fn train(&self) {
        if let Some(samples) = self.inner.trainer.take_samples() {
            let inner = Arc::clone(&self.inner);
            let work = move || {
                if let Some(dictionary) = super::dictionary::train(&samples) {
                    inner.add_dictionary(dictionary);
                }
            };
            if self.inner.options.background {
                // Without a thread for it, recording continues without a dictionary.
                let _ = std::thread::Builder::new().name("keepstep-dictionary".to_owned()).spawn(work);
            } else {
                work();
            }
        }
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        self.inner.process.check()
    }

    /// Lets readers see everything that is acknowledged by now, rather than a moment later. A busy committer does so
    /// itself with its next batch; nobody waits for one that waits for the disk.
    pub(crate) fn show(&self) {
        const TRIES: u32 = 20;
        // No later batch makes records visible that were acknowledged at `kill`, so a background sync is worth
        // waiting for.
        const TRIES_AT_KILL: u32 = 2_000;
        const BETWEEN: Duration = Duration::from_micros(100);
        let is_kill = self.inner.options.level == Some(Level::Kill);
        for _ in 0..if is_kill { TRIES_AT_KILL } else { TRIES } {
            if self.check_process().is_err() {
                return;
            }
            let shown = self.inner.role.try_with(|log| {
                // At `kill` a record is acknowledged before it is synced, and only synced records can be read.
                log.sync();
                log.say_synced();
            });
            if shown.is_some() {
                return;
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// Looks for letters now, and returns the error of a subject that another process has by then. If the disk keeps
    /// the committer busy, nothing is looked for: what is recorded next is refused all the same.
    pub(crate) fn check_mail(&self, subject: &Subject) -> Result<()> {
        self.check_process()?;
        let fence = self.inner.role.try_with(|log| {
            // A look-up that fails tells nothing, and nothing is acknowledged here.
            log.answer();
            log.fence_of(subject)
        });
        fence.flatten().map_or(Ok(()), Err)
    }

    /// True once another process has closed its log: recording continues with a new writer.
    pub(crate) fn is_closed_by_others(&self) -> bool {
        self.inner.is_closed.load(Ordering::Acquire)
    }

    /// The sequence number of the next record of a subject, if it has any here.
    pub(crate) fn next_seq(&self, key: &SubjectKey) -> Option<u32> {
        self.inner.role.with(|log| log.subjects.get(key).copied())
    }

    pub(crate) fn stats(&self) -> WriterStats {
        self.inner.counters.snapshot(self.inner.index.counts())
    }

    /// Writes everything that waits, seals the segment, and stops. A forked child changes nothing.
    pub(crate) fn close(&self) {
        if self.check_process().is_err() {
            return;
        }
        self.inner.role.handoff.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let mut log = self.inner.role.take();
        while let Some(batch) = self.inner.role.handoff.take() {
            log.commit(batch);
        }
        log.close();
        log.wakers.ring();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.check_process().is_ok() {
            self.close();
        } else if let Ok(mut thread) = self.thread.try_lock() {
            // The thread exists only in the parent; there is nothing to join here.
            std::mem::forget(thread.take());
        }
    }
}

impl Commit<QueuedRecord> for LogWriter {
    fn commit(&mut self, batch: Batch<QueuedRecord>) {
        LogWriter::commit(self, batch);
        self.wakers.ring();
    }

    fn try_commit(&mut self, batch: Batch<QueuedRecord>) -> bool {
        let is_done = if self.has_thread() {
            LogWriter::try_commit(self, batch)
        } else {
            LogWriter::commit(self, batch);
            true
        };
        self.wakers.ring();
        is_done
    }

    fn is_held(&self) -> bool {
        LogWriter::is_held(self)
    }

    fn idle(&mut self) {
        self.say_synced();
    }

    fn sync(&mut self) {
        LogWriter::sync(self);
        self.wakers.ring();
    }

    fn has_unsynced(&self) -> bool {
        LogWriter::has_unsynced(self)
    }
}

impl Inner {
    /// Puts a dictionary into the log. Callers use it when it is durable.
    fn add_dictionary(&self, bytes: Vec<u8>) {
        let pending = QueuedRecord {
            subject: None,
            epoch: 0,
            kind: Kind::Dict,
            encoded: EncodedRecord::plain(bytes.clone()),
            level: Level::Power,
            progress: Progress::default(),
            last: false,
        };
        let Ok(ticket) = self.role.handoff.push_unless(pending, bytes.len(), WhenFull::Pass, true, None)
        else {
            return;
        };
        if !self.options.background {
            self.role.commit_all();
        }
        ticket.event.wait(Stage::Power, None);
        if ticket.event.failure(ticket.index).is_none()
            && let Some((segment, offset)) = self.role.with(|log| log.dictionary_place())
        {
            self.trainer.use_dictionary(bytes, segment, offset);
        }
    }
}

/// The committer's thread: works while there is work, otherwise sleeps, and writes a heartbeat now and then.
fn spawn(inner: Arc<Inner>, mut beat: Beat) -> Result<JoinHandle<()>> {
    let beat_every = inner.options.lease / 3;
    let run = move || {
        let mut beaten = Instant::now();
        beat();
        while inner.role.work(inner.options.background_sync, beat_every) {
            if beaten.elapsed() >= beat_every {
                beat();
                // The holder of the role looks for mail itself.
                inner.role.try_with(LogWriter::answer);
                beaten = Instant::now();
            }
        }
    };
    let thread = std::thread::Builder::new().name("keepstep-commit".to_owned()).spawn(run);
    thread.map_err(|error| Error::io("start the thread that writes to", "the log", error))
}
