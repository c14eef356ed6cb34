//! Records one attempt at an episode, entry by entry.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::ending::Why;
use keepstep_format::kind::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::attempt_state::{AttemptState, Change};
use super::entry::Entry;
use super::handoff::{Ticket, WhenFull};
use super::log::QueuedRecord;
use super::receipt::Receipt;
use super::subject::Subject;
use super::writer::Writer;
use crate::counted;
use crate::disk::Disk;
use crate::error::{Error, Remedy, Result};
use crate::options::Level;

/// Records one attempt at an episode. Threads may share it; entries keep the order of the calls.
pub(crate) struct Recorder {
    writer: Arc<Writer>,
    subject: Arc<Subject>,
    disk: Arc<dyn Disk>,
    level: Level,
    /// The fields of BEGIN: recorded first, and again if that failed.
    begin: Vec<(u8, Value)>,
    state: Mutex<AttemptState>,
}

/// A record that is encoded, and what its receipt needs.
#[cfg_attr(not(feature = "simulate"), allow(unreachable_pub))]
pub struct Encoded {
    record: QueuedRecord,
    index: Option<u64>,
    change: Change,
}

impl Recorder {
    /// A recorder of an attempt that begins with these fields.
    pub(crate) fn begin(
        writer: Arc<Writer>,
        subject: Subject,
        disk: Arc<dyn Disk>,
        level: Level,
        begin: Vec<(u8, Value)>,
    ) -> Result<Self> {
        let state = Mutex::new(AttemptState::of(&subject));
        let recorder = Self { writer, subject: Arc::new(subject), disk, level, begin, state };
        recorder.send_begin(&mut *recorder.lock()?)?;
        Ok(recorder)
    }

    /// Hands BEGIN over, unless it is recorded or in flight.
    fn send_begin(&self, state: &mut AttemptState) -> Result<()> {
        if self.subject.has_begun() || state.begin_sent == Some(state.epoch) {
            return Ok(());
        }
        state.begin_sent = Some(state.epoch);
        let mut fields = vec![(fields::TIME, Value::Int(self.disk.now_us()))];
        fields.extend(self.begin.iter().cloned());
        let record = self.writer.prepare(&self.subject, state.epoch, Kind::Begin, fields, self.level)?;
        self.writer.submit(record, WhenFull::Pass).map(|_| ())
    }

    /// Waits while the queue is full. For entries that wait for room, this comes before any lock of the episode is
    /// taken: whoever holds such a lock never waits for another thread.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        self.writer.wait_for_room()
    }

    /// Hands an entry over, and returns at once.
    pub(crate) fn record(&self, entry: Entry) -> Result<Receipt> {
        let mut state = self.lock()?;
        let when_full = when_full(&state, &entry);
        let Encoded { record, index, change } = self.encode(&mut state, entry)?;
        let level = record.level;
        let ticket = self.writer.submit(record, when_full)?;
        let receipt = self.receipt(ticket, index, level, state.epoch);
        state.apply(change, self.subject.steps());
        state.passed = Some(receipt.clone());
        Ok(receipt)
    }

    /// The same, for a caller that then waits ([`Receipt::wait`]): if it is idle, it commits the entry itself,
    /// without waking a thread.
    pub(crate) fn record_to_wait(&self, entry: Entry) -> Result<Receipt> {
        let mut state = self.lock()?;
        let Encoded { record, index, change } = self.encode(&mut state, entry)?;
        let level = record.level;
        // Pushed under the lock, so that steps reach the log in the order of their numbers; committed outside of it.
        let ticket = self.writer.push_only(record)?;
        state.apply(change, self.subject.steps());
        let epoch = state.epoch;
        drop(state);
        self.writer.commit_if_idle();
        Ok(self.receipt(ticket, index, level, epoch))
    }

    /// An error if an earlier entry failed and nobody has heard of that: this one would take its place. Whoever gets
    /// the error has heard of it. An end that does not say that nothing is missing may come all the same, and what can
    /// never be recorded again is refused by other rules.
    fn check_heard(&self, state: &AttemptState, entry: &Entry) -> Result<()> {
        let why = entry.step.get(fields::WHY).and_then(Value::as_str).and_then(Why::named);
        if entry.kind == Kind::End && !why.is_some_and(Why::is_final) {
            return Ok(());
        }
        self.unheard_before(state.epoch).map_or(Ok(()), Err)
    }

    fn unheard_before(&self, epoch: u32) -> Option<Error> {
        let cause = self.subject.take_unheard(epoch).filter(|cause| cause.remedy() == Remedy::Retry)?;
        Some(Error::EarlierFailed(Box::new(cause)))
    }

    /// Why an entry could not be written, if nobody has heard of that. Whoever asks has heard of it.
    pub(crate) fn unheard_failure(&self) -> Option<Error> {
        self.unheard_before(self.subject.epoch())
    }

    /// The name of what it records, for messages.
    pub(crate) fn called(&self) -> String {
        self.subject.called()
    }

    /// Encodes an entry on the caller's thread, if it may come now.
    fn encode(&self, state: &mut AttemptState, entry: Entry) -> Result<Encoded> {
        entry.check()?;
        state.check(&entry, &self.subject)?;
        self.check_heard(state, &entry)?;
        self.send_begin(state)?;
        // A call may return after its turn has ended; it names its turn itself.
        let said = entry.index().filter(|_| entry.kind == Kind::Call);
        let index = entry.kind.is_about_a_step().then_some(said.unwrap_or(state.next_index));
        let change = Change::of(&entry);
        let failed = state.failed() + u64::from(entry.fails());
        let Entry { kind, mut step, level, .. } = entry;
        step.set(fields::TIME, Value::Int(self.disk.now_us()));
        if let Some(index) = index {
            step.set(fields::INDEX, Value::Int(index as i64));
        }
        if failed > 0 && kind.completes_a_step() {
            step.set(fields::FAILED, Value::Int(failed as i64));
        }
        let level = level.unwrap_or(self.level);
        let record = self.writer.prepare(&self.subject, state.epoch, kind, step.fields, level)?;
        Ok(Encoded { record, index, change })
    }

    fn receipt(&self, ticket: Ticket, index: Option<u64>, level: Level, epoch: u32) -> Receipt {
        let (writer, subject) = (Arc::clone(&self.writer), Arc::clone(&self.subject));
        Receipt { writer, ticket, episode: subject.key.id, index, level, subject, epoch }
    }

    /// Encodes a step without handing it over, for tests in which another caller acts in between.
    #[cfg(feature = "simulate")]
    pub(crate) fn encode_only(&self, entry: Entry) -> Result<Encoded> {
        let mut state = self.lock()?;
        self.encode(&mut state, entry)
    }

    /// Hands over an encoded entry.
    #[cfg(feature = "simulate")]
    pub(crate) fn submit_encoded(&self, encoded: Encoded) -> Result<Receipt> {
        let Encoded { record, index, change } = encoded;
        let mut state = self.lock()?;
        let level = record.level;
        let ticket = self.writer.submit(record, WhenFull::Wait)?;
        state.apply(change, self.subject.steps());
        Ok(self.receipt(ticket, index, level, state.epoch))
    }

    /// The episode's id.
    pub(crate) fn episode(&self) -> Id {
        self.subject.key.id
    }

    /// Which attempt this is.
    pub(crate) fn attempt(&self) -> u32 {
        self.subject.key.attempt
    }

    /// How many steps were handed over, FIRST included.
    pub(crate) fn steps(&self) -> u64 {
        self.lock().map_or(0, |state| state.next_index)
    }

    /// How many steps are acknowledged, FIRST included. After an error, recording continues after these.
    pub(crate) fn durable_steps(&self) -> u64 {
        self.subject.steps()
    }

    /// The newest value of this name that this attempt recorded.
    pub(crate) fn named(&self, name: &str) -> Result<Option<Value>> {
        Ok(self.lock()?.named(name).cloned())
    }

    /// From now on nothing more can be recorded here.
    pub(crate) fn leave(&self) {
        if let Ok(mut state) = self.lock() {
            state.is_left = true;
        }
    }

    /// The store is being closed: later calls get `Closed`, not `Ended`.
    pub(crate) fn close(&self) {
        if let Ok(mut state) = self.lock() {
            state.is_closed = state.ended.is_none();
        }
    }

    /// True if a step, or a turn without a result, of this number was handed over.
    pub(crate) fn has_step(&self, index: u64) -> bool {
        self.lock().is_ok_and(|state| state.has_step(index))
    }

    /// True if a turn has an intent and no result.
    pub(crate) fn is_pending(&self) -> bool {
        self.lock().is_ok_and(|state| state.is_pending)
    }

    /// True if this attempt recorded the first observation.
    pub(crate) fn has_first(&self) -> bool {
        self.lock().is_ok_and(|state| state.has_first)
    }

    /// How many of its steps failed, inherited ones included.
    pub(crate) fn failed(&self) -> u64 {
        self.lock().map_or(0, |state| state.failed())
    }

    /// Sets how many of the inherited steps failed.
    pub(crate) fn inherit_failed(&self, count: u64) {
        if let Ok(mut state) = self.lock() {
            state.failed_before = count;
        }
    }

    /// An error if the attempt has ended.
    pub(crate) fn check_not_ended(&self) -> Result<()> {
        self.lock()?.check_not_ended(&self.subject)
    }

    /// An error if nothing more can be recorded here. Asks whether another process has the episode by now.
    pub(crate) fn check_may_record(&self) -> Result<()> {
        self.check_not_ended()?;
        if self.writer.is_closed_by_others() {
            return Err(Error::LogClosed { writer: self.writer.id() });
        }
        if let Some(attempt) = self.subject.fenced_by() {
            return Err(self.subject.fenced_error(attempt));
        }
        self.writer.check_mail(&self.subject)
    }

    /// True once it is known that nothing more can be recorded here: another attempt owns the episode, or another
    /// process closed the log.
    pub(crate) fn is_fenced(&self) -> bool {
        self.writer.is_closed_by_others() || self.subject.fenced_by().is_some()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<String> {
        self.lock().ok().and_then(|state| state.ended.clone())
    }

    /// True if nothing can be recorded any more: its end is durable, or it is fenced.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_fenced() {
            return true;
        }
        let state = self.lock();
        state.is_ok_and(|state| {
            let last = state.passed.as_ref();
            state.ended.is_some() && last.is_some_and(|end| end.peek().is_some_and(|came| came.is_ok()))
        })
    }

    /// The process is checked first: in a forked child, a thread of the parent may hold the lock for ever.
    fn lock(&self) -> Result<MutexGuard<'_, AttemptState>> {
        self.writer.check_process()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The caller sees what was recorded, and continues after that.
        state.catch_up(&self.subject);
        Ok(state)
    }
}

/// While the queue is full, each episode may have one more step in flight; after that it is `Busy`. An end is always
/// accepted: it comes once, and if it were refused when a process exits, it would be lost.
fn when_full(state: &AttemptState, entry: &Entry) -> WhenFull {
    if entry.waits_for_room {
        // There was room a moment ago ([`Recorder::wait_for_room`]).
        return WhenFull::Pass;
    }
    let may_pass =
        entry.kind == Kind::End || state.passed.as_ref().is_none_or(|receipt| receipt.level().is_some());
    if may_pass { WhenFull::Pass } else { WhenFull::Refuse }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.subject.name;
        let steps = counted(self.steps(), "step");
        write!(
            f,
            "<Episode {}#{}.{}, attempt {}: {steps}>",
            name.task,
            name.iteration,
            name.sample,
            self.attempt()
        )
    }
}
