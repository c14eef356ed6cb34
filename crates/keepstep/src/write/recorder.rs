//! Records one attempt at an episode, step by step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::kind::{Effect, Kind};
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::handoff::WhenFull;
use super::log::Pending;
use super::receipt::Receipt;
use super::step::Step;
use super::subject::Subject;
use super::writer::Writer;
use crate::counted;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::options::Level;

/// Records one attempt at an episode. Shared by threads; steps keep the order of the calls.
pub struct Recorder {
    writer: Arc<Writer>,
    subject: Arc<Subject>,
    disk: Arc<dyn Disk>,
    level: Level,
    /// Who this is: recorded first, and again if that failed.
    begin: Vec<(u8, Value)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u32,
    /// BEGIN was handed over in this epoch.
    begin_sent: Option<u32>,
    next_index: u64,
    /// Step 0 was the first observation.
    has_first: bool,
    /// A turn was said and has no result.
    is_pending: bool,
    /// How many of the inherited steps failed, and which of its own: they are no turns.
    failed_before: u64,
    failed: Vec<u64>,
    ended: Option<String>,
    /// Whoever recorded it is done with it, also if its end was not recorded.
    is_left: bool,
    /// Its store was closed while it was open.
    is_closed: bool,
    /// One step more than the queue holds is let through; this is it.
    passed: Option<Receipt>,
}

/// A record that is encoded and has not been handed over.
pub struct Prepared {
    pending: Pending,
    kind: Kind,
    index: Option<u64>,
    level: Level,
    /// It completes a step with an error instead of a result.
    fails: bool,
}

/// A call that was made: which, with what, in which turn.
#[derive(Debug, Clone, PartialEq)]
pub struct CallMade {
    /// What it is called.
    pub name: String,
    /// Which call of its turn.
    pub key: CallKey,
    /// What it was called with.
    pub arguments: Value,
    /// The turn in which it began, if that is known; else it is of the present one.
    pub turn: Option<u64>,
    /// What it gave was awaited.
    pub awaited: bool,
}

/// Which call of a turn: by a key of the caller's, or by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKey {
    /// The caller's own.
    Key(String),
    /// Its number among the calls of the turn that have no key.
    Ordinal(u64),
}

impl State {
    /// Something was handed over.
    fn note(&mut self, kind: Kind, fails: bool) {
        if fails {
            self.failed.push(self.next_index);
        }
        self.has_first |= kind == Kind::First;
        self.next_index += u64::from(kind.completes_a_step());
        match kind.effect() {
            Effect::OpensTurn => self.is_pending = true,
            Effect::CompletesTurn | Effect::ClosesTurn => self.is_pending = false,
            Effect::CompletesStep | Effect::None => {}
        }
    }

    fn has_step(&self, index: u64) -> bool {
        index < self.next_index || (self.is_pending && index == self.next_index)
    }

    /// A note on a step that is not there would be seen by nobody.
    fn check_step(&self, index: u64, called: &str) -> Result<()> {
        if self.has_step(index) {
            return Ok(());
        }
        let hint = format!("{} were recorded so far, numbered from 0", self.next_index);
        Err(Error::Unknown { what: format!("step {index} of {called}"), hint })
    }

    /// What may not come now.
    fn check(&self, kind: Kind) -> Result<()> {
        let bad = |field: &str, value: String, fix: &str| {
            Err(Error::BadInput { field: field.to_owned(), value, fix: fix.to_owned() })
        };
        if kind == Kind::First && self.next_index > 0 {
            let value = format!("cannot come after {}", counted(self.next_index, "step"));
            return bad("first", value, "record the first observation before any step, and once");
        }
        match kind.effect() {
            Effect::CompletesStep | Effect::OpensTurn if self.is_pending => {
                let value = format!("cannot begin while turn {} has no result", self.next_index);
                bad("step", value, "give the turn its result, or discard it")
            }
            Effect::CompletesTurn | Effect::ClosesTurn if !self.is_pending => {
                bad("turn", "has not been said".to_owned(), "say the turn first, then give its result")
            }
            Effect::CompletesStep
            | Effect::OpensTurn
            | Effect::CompletesTurn
            | Effect::ClosesTurn
            | Effect::None => Ok(()),
        }
    }
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
        let (next_index, is_pending) = (subject.steps(), subject.is_pending());
        let state = Mutex::new(State { next_index, is_pending, ..State::default() });
        let recorder = Self { writer, subject: Arc::new(subject), disk, level, begin, state };
        recorder.send_begin(&mut *recorder.lock()?)?;
        Ok(recorder)
    }

    /// Hands BEGIN over, unless it is there or on its way.
    fn send_begin(&self, state: &mut State) -> Result<()> {
        if self.subject.has_begun() || state.begin_sent == Some(state.epoch) {
            return Ok(());
        }
        state.begin_sent = Some(state.epoch);
        let mut fields = vec![(fields::TIME, Value::Int(self.disk.now_us()))];
        fields.extend(self.begin.iter().cloned());
        let pending = self.writer.prepare(&self.subject, state.epoch, Kind::Begin, fields, self.level)?;
        self.writer.submit(pending, WhenFull::Pass).map(|_| ())
    }

    /// The episode's id.
    pub fn episode(&self) -> Id {
        self.subject.key.id
    }

    /// Which attempt this is.
    pub fn attempt(&self) -> u32 {
        self.subject.key.attempt
    }

    /// How many steps were handed over, FIRST counted.
    pub fn steps(&self) -> u64 {
        self.lock().map_or(0, |state| state.next_index)
    }

    /// How many steps are acknowledged, FIRST counted: after an error, recording goes on behind them.
    pub fn durable_steps(&self) -> u64 {
        self.subject.steps()
    }

    /// Records the first observation. Returns at once.
    pub fn first(&self, step: Step) -> Result<Receipt> {
        self.hand_over(Kind::First, step, self.level)
    }

    /// Records a step, and returns when it is durable.
    pub fn step(&self, step: Step) -> Result<Receipt> {
        self.append_and_wait(Kind::Step, step)
    }

    /// Says a turn: returns when that is durable, and the action may be taken.
    pub fn intent(&self, said: Step) -> Result<Receipt> {
        self.append_and_wait(Kind::Intent, said)
    }

    /// Completes the turn that was said, and returns when that is durable.
    pub fn result(&self, result: Step) -> Result<Receipt> {
        self.append_and_wait(Kind::Result, result)
    }

    /// As [`Recorder::intent`], but returns at once: wait for the receipt before the action is taken.
    pub fn submit_intent(&self, said: Step) -> Result<Receipt> {
        self.hand_over(Kind::Intent, said, self.level)
    }

    /// As [`Recorder::result`], but returns at once.
    pub fn submit_result(&self, result: Step) -> Result<Receipt> {
        self.hand_over(Kind::Result, result, self.level)
    }

    /// Gives up the turn that was said, on record.
    pub fn discard(&self, reason: &str) -> Result<Receipt> {
        self.append_and_wait(Kind::Discard, Step::new().with(fields::REASON, Value::from(reason)))
    }

    /// Records what a call returned, or the error that it raised, and returns when that is durable.
    pub fn call(&self, made: &CallMade, came: Result<Value, Value>) -> Result<Receipt> {
        self.append_and_wait(Kind::Call, call_step(made, came))
    }

    /// As [`Recorder::call`], but returns at once.
    pub fn submit_call(&self, made: &CallMade, came: Result<Value, Value>) -> Result<Receipt> {
        self.hand_over(Kind::Call, call_step(made, came), self.level)
    }

    /// Appends to the recording list, and returns when that is durable.
    pub fn item(&self, value: Value) -> Result<Receipt> {
        self.append_and_wait(Kind::Item, Step::new().with(fields::VALUE, value))
    }

    /// Adds a note on this attempt, or on one of its steps. Returns at once.
    ///
    /// What is noted after the end is a note of the run.
    pub fn note(&self, name: &str, value: Value, source: &str, step: Option<u64>) -> Result<Receipt> {
        let mut note = Step::new();
        for (number, value) in super::note::note_fields(name, value, source)? {
            note.set(number, value);
        }
        let mut state = self.lock()?;
        if let Some(index) = step {
            state.check_step(index, &self.called())?;
            note.set(fields::INDEX, Value::Int(index as i64));
        }
        self.hand_over_in(&mut state, Kind::Note, note, self.level)
    }

    /// Lets nothing more be recorded here.
    pub(crate) fn leave(&self) {
        if let Ok(mut state) = self.lock() {
            state.is_left = true;
        }
    }

    /// Its store is being closed: whoever goes on recording is told so, and not that somebody ended it.
    pub(crate) fn close(&self) {
        if let Ok(mut state) = self.lock() {
            state.is_closed = state.ended.is_none();
        }
    }

    /// True if a step, or a turn without a result, of this number was handed over.
    pub(crate) fn has_step(&self, index: u64) -> bool {
        self.lock().is_ok_and(|state| state.has_step(index))
    }

    /// What people call it.
    fn called(&self) -> String {
        self.subject.called()
    }

    /// True if a turn was said and has no result.
    pub fn is_pending(&self) -> bool {
        self.lock().is_ok_and(|state| state.is_pending)
    }

    /// True if this attempt recorded the first observation.
    pub fn has_first(&self) -> bool {
        self.lock().is_ok_and(|state| state.has_first)
    }

    /// How many of its steps failed, those that it inherited counted.
    pub fn failed(&self) -> u64 {
        self.lock().map_or(0, |state| state.failed_before + state.failed.len() as u64)
    }

    /// Says how many of the steps that it inherited failed.
    pub(crate) fn inherit_failed(&self, count: u64) {
        if let Ok(mut state) = self.lock() {
            state.failed_before = count;
        }
    }

    /// Refuses if nothing can be recorded any more, since it has ended.
    pub(crate) fn check_not_ended(&self) -> Result<()> {
        self.not_ended(&*self.lock()?)
    }

    fn not_ended(&self, state: &State) -> Result<()> {
        match state.ended.as_deref().or(state.is_left.then_some("it was left")) {
            None => Ok(()),
            Some(_) if state.is_closed => Err(Error::Closed),
            Some(why) => Err(Error::Ended { what: self.called(), why: why.to_owned() }),
        }
    }

    /// True once it is known that nothing more can be recorded here: another attempt owns the episode, or others closed the log.
    pub fn is_fenced(&self) -> bool {
        self.writer.is_closed_by_others() || self.subject.is_fenced()
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<String> {
        self.lock().ok().and_then(|state| state.ended.clone())
    }

    /// True if nothing can be recorded any more: it ended, and that is durable, or it was refused as somebody else's.
    pub fn is_over(&self) -> bool {
        if self.is_fenced() {
            return true;
        }
        let state = self.lock();
        state.is_ok_and(|state| {
            let last = state.passed.as_ref();
            state.ended.is_some() && last.is_some_and(|end| end.poll().is_some_and(|came| came.is_ok()))
        })
    }

    fn append_and_wait(&self, kind: Kind, step: Step) -> Result<Receipt> {
        let mut state = self.lock()?;
        let prepared = self.prepare_with(&mut state, kind, step, self.level)?;
        // Pushed under the lock, so that steps reach the log in the order of their numbers; committed outside of it.
        let receipt = self.append(prepared, state)?;
        self.writer.wait(&receipt.ticket, self.level, None)?;
        Ok(receipt)
    }

    /// Records a step, and returns at once.
    pub fn submit(&self, step: Step) -> Result<Receipt> {
        self.hand_over(Kind::Step, step, self.level)
    }

    /// As [`Recorder::submit`], but waits while the queue is full.
    pub fn submit_waiting(&self, step: Step) -> Result<Receipt> {
        let mut state = self.lock()?;
        let prepared = self.prepare_with(&mut state, Kind::Step, step, self.level)?;
        let Prepared { pending, kind, index, level, fails } = prepared;
        let ticket = self.writer.submit(pending, WhenFull::Wait)?;
        state.note(kind, fails);
        Ok(self.receipt(ticket, index, level))
    }

    /// As [`Recorder::submit`], with a level of its own.
    pub fn submit_at(&self, step: Step, level: Level) -> Result<Receipt> {
        self.hand_over(Kind::Step, step, level)
    }

    /// Encodes a step without handing it over: the two halves of `submit`, for those who schedule them.
    pub fn prepare(&self, step: Step) -> Result<Prepared> {
        let mut state = self.lock()?;
        let prepared = self.prepare_with(&mut state, Kind::Step, step, self.level)?;
        state.note(Kind::Step, prepared.fails);
        Ok(prepared)
    }

    /// Hands a prepared step over. Steps must be handed over in the order in which they were prepared.
    pub fn submit_prepared(&self, prepared: Prepared) -> Result<Receipt> {
        self.writer.check_process()?;
        let ticket = self.writer.submit(prepared.pending, WhenFull::Wait)?;
        Ok(self.receipt(ticket, prepared.index, prepared.level))
    }

    /// Says how the attempt ended. Nothing can be recorded after it.
    pub fn end(&self, why: &str, more: Step) -> Result<Receipt> {
        let mut step = more;
        step.set(fields::WHY, Value::from(why));
        let mut state = self.lock()?;
        let receipt = self.hand_over_in(&mut state, Kind::End, step, self.level)?;
        // Under the same lock: nothing may slip in behind the end.
        state.ended = Some(why.to_owned());
        Ok(receipt)
    }

    fn hand_over(&self, kind: Kind, step: Step, level: Level) -> Result<Receipt> {
        let mut state = self.lock()?;
        self.hand_over_in(&mut state, kind, step, level)
    }

    fn hand_over_in(&self, state: &mut State, kind: Kind, step: Step, level: Level) -> Result<Receipt> {
        let prepared = self.prepare_with(state, kind, step, level)?;
        // While the queue is full each episode may have one more step in flight, then it is told. Its end always passes: it
        // comes once, and one that was refused when a process exits would never be said again.
        let may_pass =
            kind == Kind::End || state.passed.as_ref().is_none_or(|receipt| receipt.level().is_some());
        let when_full = if may_pass { WhenFull::Pass } else { WhenFull::Refuse };
        let Prepared { pending, kind, index, level, fails } = prepared;
        let ticket = self.writer.submit(pending, when_full)?;
        let receipt = self.receipt(ticket, index, level);
        state.note(kind, fails);
        state.passed = Some(receipt.clone());
        Ok(receipt)
    }

    fn append(&self, prepared: Prepared, mut state: MutexGuard<'_, State>) -> Result<Receipt> {
        let Prepared { pending, kind, index, level, fails } = prepared;
        // One that was not taken, since its caller did not want to wait, is no step.
        let ticket = self.writer.push_only(pending)?;
        state.note(kind, fails);
        drop(state);
        self.writer.commit_if_idle();
        Ok(self.receipt(ticket, index, level))
    }

    fn prepare_with(&self, state: &mut State, kind: Kind, mut step: Step, level: Level) -> Result<Prepared> {
        step.check()?;
        self.catch_up(state);
        let epoch = state.epoch;
        self.not_ended(state)?;
        state.check(kind)?;
        self.send_begin(state)?;
        // A call may come to its end after its turn did: it says itself which one that was.
        let said = step.get(fields::INDEX).and_then(Value::as_int).map(|index| index as u64);
        let said = said.filter(|_| kind == Kind::Call);
        let index = kind.is_about_a_step().then_some(said.unwrap_or(state.next_index));
        step.set(fields::TIME, Value::Int(self.disk.now_us()));
        if let Some(index) = index {
            step.set(fields::INDEX, Value::Int(index as i64));
        }
        let fails = kind == Kind::Result && step.get(fields::ERROR).is_some();
        let failed = state.failed_before + state.failed.len() as u64 + u64::from(fails);
        if failed > 0 && kind.completes_a_step() {
            step.set(fields::FAILED, Value::Int(failed as i64));
        }
        let pending = self.writer.prepare(&self.subject, epoch, kind, step.fields, level)?;
        Ok(Prepared { pending, kind, index, level, fails })
    }

    fn receipt(&self, ticket: super::handoff::Ticket, index: Option<u64>, level: Level) -> Receipt {
        Receipt { writer: Arc::clone(&self.writer), ticket, episode: self.subject.key.id, index, level }
    }

    /// In a forked child another thread of the parent may hold the lock for ever: so the process is looked at first.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        self.writer.check_process()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.catch_up(&mut state);
        Ok(state)
    }

    /// Something may not have been recorded, perhaps the end: whoever asks is told of what was, and goes on behind it.
    fn catch_up(&self, state: &mut State) {
        let epoch = self.subject.epoch();
        if epoch == state.epoch {
            return;
        }
        state.epoch = epoch;
        state.next_index = self.subject.steps();
        state.has_first &= state.next_index > 0;
        state.is_pending = self.subject.is_pending();
        let next_index = state.next_index;
        state.failed.retain(|&index| index < next_index);
        state.ended = None;
    }
}

fn call_step(made: &CallMade, came: Result<Value, Value>) -> Step {
    let step = Step::new().with(fields::NAME, Value::from(made.name.as_str()));
    let mut step = step.with(fields::ARGUMENTS, made.arguments.clone());
    match &made.key {
        CallKey::Key(key) => step.set(fields::KEY, Value::from(key.as_str())),
        CallKey::Ordinal(ordinal) => step.set(fields::ORDINAL, Value::Int(*ordinal as i64)),
    }
    if let Some(turn) = made.turn {
        step.set(fields::INDEX, Value::Int(turn as i64));
    }
    if made.awaited {
        step.set(fields::AWAITED, Value::Bool(true));
    }
    match came {
        Ok(result) => step.with(fields::RESULT, result),
        Err(error) => step.with(fields::ERROR, error),
    }
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
