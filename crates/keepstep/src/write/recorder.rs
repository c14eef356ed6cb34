//! Records one attempt at an episode, step by step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::handoff::WhenFull;
use super::log::Pending;
use super::receipt::Receipt;
use super::step::Step;
use super::subject::{Progress, Subject};
use super::writer::Writer;
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
    ended: Option<String>,
    /// One step more than the queue holds is let through; this is it.
    passed: Option<Receipt>,
}

/// A record that is encoded and has not been handed over.
pub struct Prepared {
    pending: Pending,
    index: Option<u64>,
    level: Level,
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
        let recorder =
            Self { writer, subject: Arc::new(subject), disk, level, begin, state: Mutex::default() };
        recorder.send_begin(&mut *recorder.lock()?)?;
        Ok(recorder)
    }

    /// Hands BEGIN over, unless it is there or on its way.
    fn send_begin(&self, state: &mut State) -> Result<()> {
        if self.subject.has_begun() || state.begin_sent == Some(state.epoch) {
            return Ok(());
        }
        state.begin_sent = Some(state.epoch);
        let time = self.disk.now_us();
        let mut fields = vec![(fields::TIME, Value::Int(time))];
        fields.extend(self.begin.iter().cloned());
        let progress = Progress { time, ..Progress::default() };
        let pending =
            self.writer.prepare(&self.subject, state.epoch, Kind::Begin, &fields, progress, self.level)?;
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
        let mut state = self.lock()?;
        let prepared = self.prepare_with(&mut state, Kind::Step, step, self.level)?;
        state.next_index += 1;
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
        let Prepared { pending, index, level } = prepared;
        let ticket = self.writer.submit(pending, WhenFull::Wait)?;
        state.next_index += 1;
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
        state.next_index += 1;
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
        let receipt = self.hand_over(Kind::End, step, self.level)?;
        self.lock()?.ended = Some(why.to_owned());
        Ok(receipt)
    }

    fn hand_over(&self, kind: Kind, step: Step, level: Level) -> Result<Receipt> {
        let mut state = self.lock()?;
        let prepared = self.prepare_with(&mut state, kind, step, level)?;
        let is_step = prepared.index.is_some();
        // While the queue is full each episode may have one more step in flight, then it is told.
        let may_pass = state.passed.as_ref().is_none_or(|receipt| receipt.level().is_some());
        let when_full = if may_pass { WhenFull::Pass } else { WhenFull::Refuse };
        let Prepared { pending, index, level } = prepared;
        let ticket = self.writer.submit(pending, when_full)?;
        let receipt = self.receipt(ticket, index, level);
        if is_step {
            state.next_index += 1;
        }
        state.passed = Some(receipt.clone());
        Ok(receipt)
    }

    fn append(&self, prepared: Prepared, state: MutexGuard<'_, State>) -> Result<Receipt> {
        let Prepared { pending, index, level } = prepared;
        let ticket = self.writer.push_only(pending)?;
        drop(state);
        self.writer.commit_if_idle();
        Ok(self.receipt(ticket, index, level))
    }

    fn prepare_with(&self, state: &mut State, kind: Kind, mut step: Step, level: Level) -> Result<Prepared> {
        step.check()?;
        let epoch = self.subject.epoch();
        if epoch != state.epoch {
            // Something was not recorded, perhaps the end: go on behind what was.
            state.epoch = epoch;
            state.next_index = self.subject.steps();
            state.ended = None;
        }
        if let Some(why) = &state.ended {
            let name = &self.subject.name;
            let what = format!("episode {}#{}.{}", name.task, name.iteration, name.sample);
            return Err(Error::Ended { what, why: why.clone() });
        }
        self.send_begin(state)?;
        let is_step = matches!(kind, Kind::First | Kind::Step);
        let index = is_step.then_some(state.next_index);
        let time = self.disk.now_us();
        step.set(fields::TIME, Value::Int(time));
        if let Some(index) = index {
            step.set(fields::INDEX, Value::Int(index as i64));
        }
        let why = step.fields.iter().find(|(number, _)| *number == fields::WHY);
        let why = why.and_then(|(_, value)| value.as_str()).map(str::to_owned);
        let progress = Progress { time, step: index, reward: step.reward_value(), why };
        let pending = self.writer.prepare(&self.subject, epoch, kind, &step.fields, progress, level)?;
        Ok(Prepared { pending, index, level })
    }

    fn receipt(&self, ticket: super::handoff::Ticket, index: Option<u64>, level: Level) -> Receipt {
        Receipt { writer: Arc::clone(&self.writer), ticket, episode: self.subject.key.id, index, level }
    }

    /// In a forked child another thread of the parent may hold the lock for ever: so the process is looked at first.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        self.writer.check_process()?;
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.subject.name;
        let steps = self.steps();
        write!(
            f,
            "<Episode {}#{}.{}, attempt {}: {steps} steps>",
            name.task,
            name.iteration,
            name.sample,
            self.attempt()
        )
    }
}
