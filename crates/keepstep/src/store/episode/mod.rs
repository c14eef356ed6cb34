//! An episode that is being recorded: its inherited steps, turns, calls, and how it ends.

mod calling;
pub(in crate::store) mod endings;
pub(in crate::store) mod open_episodes;
pub(in crate::store) mod opening;
pub(in crate::store) mod options;
pub(in crate::store) mod policy;
mod present_turn;
pub(in crate::store) mod recording;
pub(in crate::store) mod retry;
pub(in crate::store) mod same;
pub(in crate::store) mod state;
pub(in crate::store) mod takeover;
mod turn_calls;

pub use turn_calls::{CalledFunction, Known};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use crate::error::{Error, Result};
use crate::read::{self, Lineage, LineagePart};
use crate::store::episode::open_episodes::Reservation;
use crate::store::episode::present_turn::Inherited;
use crate::store::run::Run;
use crate::write::{Entry, Receipt, Recorder, Step};

/// An attempt at an episode, open for recording. It can read the steps that it inherited.
///
/// If it is dropped without [`Episode::end`], it ends as `aborted`, in a panic as `errored`.
pub struct Episode {
    recorder: Arc<Recorder>,
    run: Run,
    resumed: Option<u32>,
    inherited: u64,
    before: Mutex<Inherited>,
    reservation: Reservation,
}

/// A turn whose intent was handed over or adopted.
#[derive(Debug)]
#[non_exhaustive]
pub struct SaidTurn {
    /// Its index.
    pub index: u64,
    /// The recorded intent, if this turn was pending.
    pub adopted: Option<read::RecordedStep>,
    /// The receipt of the intent; `None` if the intent was durable already.
    pub receipt: Option<Receipt>,
    /// The number of the turn, for [`Entry::of_turn`].
    pub number: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Ending {
    /// Which limit was reached, if one was.
    pub limit: Option<String>,
    /// What was raised: a map of type, message and traceback, or a text.
    pub error: Option<Value>,
    /// Who recorded the end.
    pub said_by: Option<String>,
}

impl std::fmt::Debug for Episode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.recorder.fmt(f)
    }
}

impl Episode {
    pub(in crate::store) fn new(
        run: &Run,
        recorder: Arc<Recorder>,
        prefix: Option<(u32, Lineage)>,
        pending: Option<read::RecordedStep>,
        reservation: Reservation,
    ) -> Self {
        reservation.attach(&recorder);
        let (resumed, mut lineage) = prefix.unzip();
        // An attempt that inherits nothing did not resume anything.
        let resumed = resumed.filter(|_| lineage.as_ref().is_some_and(|lineage| !lineage.lines().is_empty()));
        let inherited = lineage.as_ref().map_or(0, Lineage::steps);
        // If the failed steps cannot be counted, opening does not fail: reading them reports the damage.
        recorder.inherit_failed(lineage.as_mut().and_then(|lineage| lineage.failed().ok()).unwrap_or(0));
        let before = Mutex::new(Inherited { lineage, pending, ..Inherited::default() });
        Self { recorder, run: run.clone(), resumed, inherited, before, reservation }
    }

    /// The run that it is in.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The attempt that it resumed, if it did.
    pub fn resumed(&self) -> Option<u32> {
        self.resumed
    }

    /// How many steps it inherited, FIRST counted.
    pub fn inherited(&self) -> u64 {
        self.inherited
    }

    /// How many turns are completed: steps without the first observation, and without those that failed.
    pub fn turns(&self) -> u64 {
        let inherits_first =
            self.lock().is_ok_and(|before| before.lineage.as_ref().is_some_and(Lineage::has_first));
        let has_first = u64::from(inherits_first || self.recorder.has_first());
        self.recorder.steps().saturating_sub(has_first + self.recorder.failed())
    }

    /// Which inherited steps come from which attempt and writer.
    pub fn lineage(&self) -> Vec<LineagePart> {
        let parts = |before: MutexGuard<'_, Inherited>| Some(before.lineage.as_ref()?.parts().to_vec());
        self.lock().ok().and_then(parts).unwrap_or_default()
    }

    /// Reads an inherited step.
    pub fn history(&self, index: u64) -> Result<read::RecordedStep> {
        match &mut self.lock()?.lineage {
            Some(lineage) if index < self.inherited => lineage.step(index),
            _ => Err(Error::NotFound { what: format!("step {index} of {} inherited ones", self.inherited) }),
        }
    }

    /// The newest state of that name: recorded by this attempt, or inherited.
    pub fn state(&self, name: &str) -> Result<Option<Value>> {
        if let Some(own) = self.recorder.named(name)? {
            return Ok(Some(own));
        }
        self.lock()?.inherited_state(name)
    }

    /// The pending turn: its intent was recorded before the attempt was interrupted, and it has no result.
    pub fn pending(&self) -> Option<read::RecordedStep> {
        self.lock().ok()?.pending.clone()
    }

    /// The pending turn, and its number ([`Episode::turn_number`]).
    pub fn pending_turn(&self) -> Option<(read::RecordedStep, u64)> {
        let before = self.lock().ok()?;
        Some((before.pending.clone()?, before.number))
    }

    /// The intent of the present turn, recorded by this attempt or inherited.
    pub fn said(&self) -> Option<read::RecordedStep> {
        self.lock().ok()?.said.clone()
    }

    /// Discards the present or pending turn. The reason is recorded.
    pub fn discard(&self, reason: &str) -> Result<Receipt> {
        self.record_and_wait(Entry::discard(reason))
    }

    /// Completes the present or pending turn. Durable when it returns.
    pub fn result(&self, result: Step) -> Result<Receipt> {
        self.record_and_wait(Entry::result(result))
    }

    /// Records the intent of a turn; durable when it returns. If a turn is pending, adopts it; then the intent must
    /// be the same.
    ///
    /// ```
    /// use keepstep::{EpisodeName, Step};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-turn-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// let episode = run.episode(EpisodeName::task("shop-17"))?;
    /// let turn = episode.turn(Step::new().action("buy"))?;
    /// // Act here: whoever goes on after a crash finds what was said, and adopts it.
    /// turn.result(Step::new().observation("bought").reward(1.0))?;
    /// assert_eq!(episode.turns(), 1);
    /// # drop((episode, run));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn turn(&self, said: Step) -> Result<Turn<'_>> {
        let (index, adopted) = self.adopt_same(&said, None)?;
        if adopted.is_none()
            && let Err(error) = self.record_and_wait(Entry::turn(said))
        {
            // If the caller stopped waiting, the intent is still written, and nobody has the turn.
            if matches!(error, Error::Interrupted) {
                self.leave_turn(self.turn_number()?)?;
            }
            return Err(error);
        }
        Ok(Turn { episode: self, index, adopted, number: self.turn_number()? })
    }

    /// Which turn is under way or pending. It is another number for each turn, and for each time that one is entered
    /// or left: with [`Entry::of_turn`], nothing is recorded for another turn than the one that is meant.
    pub fn turn_number(&self) -> Result<u64> {
        Ok(self.lock()?.number)
    }

    /// As [`Episode::turn`], but returns at once: wait for the receipt, if there is one, before you take the action.
    pub fn say(&self, said: Step) -> Result<SaidTurn> {
        let (index, adopted) = self.adopt_same(&said, None)?;
        let receipt = if adopted.is_some() { None } else { Some(self.record(Entry::turn(said))?) };
        Ok(SaidTurn { index, adopted, receipt, number: self.turn_number()? })
    }

    /// The index of the turn, and the pending turn, if there is one. Its intent must be the same.
    fn adopt_same(&self, said: &Step, number: Option<u64>) -> Result<(u64, Option<read::RecordedStep>)> {
        // An adopted turn records nothing, so no refusal would stop an attempt that is over or has lost its episode.
        if self.pending().is_some() {
            self.recorder.check_may_record()?;
        }
        let mut before = self.lock()?;
        number.map_or(Ok(()), |number| check_number(&before, number))?;
        let index = self.recorder.steps();
        if let Some(pending) = &before.pending {
            check_same(index, pending, said)?;
        }
        self.at_turn(&mut before, index)?;
        Ok((index, before.adopt()))
    }

    /// Adopts the pending turn with its recorded intent. Calls without a key are numbered after those made before the
    /// intent.
    pub fn adopt(&self) -> Result<Option<read::RecordedStep>> {
        self.adopt_same(&Step::new(), None).map(|(_, adopted)| adopted)
    }

    /// As [`Episode::adopt`], if that turn is still the pending one. Returns its number from now on.
    pub fn adopt_turn(&self, number: u64) -> Result<u64> {
        self.adopt_same(&Step::new(), Some(number))?;
        self.turn_number()
    }

    /// Records that a try of the turn failed, and leaves the turn pending. The next try gets the recorded intent and
    /// the results of its calls. Returns at once.
    pub fn keep(&self, error: Value) -> Result<Receipt> {
        self.keep_turn(self.turn_number()?, error)
    }

    /// As [`Episode::keep`], if that turn is still under way.
    pub fn keep_turn(&self, number: u64, error: Value) -> Result<Receipt> {
        let before = self.lock()?;
        check_number(&before, number)?;
        drop(before);
        if !self.recorder.is_pending() {
            let (field, value) = ("turn".to_owned(), "has not been said".to_owned());
            return Err(Error::BadInput { field, value, fix: "say the turn first".to_owned() });
        }
        let receipt = self.record(Entry::failed_try(error).of_turn(number))?;
        self.leave_turn(number)?;
        Ok(receipt)
    }

    /// Leaves a turn pending, without a record: whoever makes it again gets the recorded intent and the results of its
    /// calls. Does nothing if that turn is not under way any more.
    pub fn leave_turn(&self, number: u64) -> Result<()> {
        let mut before = self.lock()?;
        if before.number == number {
            before.leave();
        }
        Ok(())
    }

    /// Records how the attempt ended. Nothing can be recorded after it. Returns at once: wait for the receipt to know
    /// that the end is durable.
    ///
    /// `why` is a [`Why`] or its name. Some endings are only found by other processes, and are refused here.
    ///
    /// ```
    /// use keepstep::{Ending, EpisodeName, Why};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-end-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// let episode = run.episode(EpisodeName::task("shop-17"))?;
    /// episode.end(Why::Truncated, Ending::default().limit("turns"))?.wait()?;
    /// assert_eq!(episode.ended().as_deref(), Some("truncated"));
    /// # drop((episode, run));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn end(&self, why: impl AsRef<str>, ending: Ending) -> Result<Receipt> {
        let given = why.as_ref();
        let Some(why) = Why::named(given).filter(|why| why.is_said()) else {
            return Err(Error::BadInput {
                field: "why".to_owned(),
                value: format!("is {given:?}"),
                fix: format!("give one of {}", Why::names(Why::is_said)),
            });
        };
        if ending.limit.is_some() && why != Why::Truncated {
            return Err(Error::BadInput {
                field: "limit".to_owned(),
                value: format!("cannot come with {given:?}"),
                fix: format!("a limit belongs to `{}`", Why::Truncated),
            });
        }
        let Ending { limit, error, said_by } = ending;
        let mut more = Step::new();
        for (number, value) in [
            (fields::LIMIT, limit.map(Value::from)),
            (fields::ERROR, error),
            (fields::SAID_BY, said_by.map(Value::from)),
        ] {
            if let Some(value) = value {
                more = more.with(number, value);
            }
        }
        self.record(Entry::end(why.name(), more))
    }

    /// Closes this handle: nothing more can be recorded with it, and the episode can be opened again in this process,
    /// even if its end could not be recorded. Records in flight are still written. They count unless another process
    /// takes the episode over first.
    pub fn leave(&self) -> Result<()> {
        self.run.store().check_process()?;
        self.recorder.leave();
        self.reservation.leave();
        Ok(())
    }

    /// The recorder. It is private to `store`, so that nothing is recorded that the episode does not know of.
    pub(in crate::store) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Its id.
    pub fn id(&self) -> Id {
        self.recorder.episode()
    }

    /// The process is checked first: in a forked child, a thread of the parent may hold the lock for ever.
    fn lock(&self) -> Result<MutexGuard<'_, Inherited>> {
        self.run.store().check_process()?;
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.take_back();
        Ok(before)
    }
}

impl Drop for Episode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Value::map([("type", Value::from("panic"))]);
            let ending = Ending { error: Some(error), said_by: Some("panic".to_owned()), limit: None };
            if self.recorder.ended().is_none() {
                let _ = self.end(Why::Errored, ending);
            }
            return;
        }
        abort(&self.recorder, "dropped without end()");
    }
}

/// Ends an attempt that has no end. If this cannot be recorded, another process will find the end.
pub(in crate::store) fn abort(recorder: &Recorder, said_by: &str) {
    if recorder.ended().is_some() {
        return;
    }
    let more = Step::new().with(fields::SAID_BY, Value::from(said_by));
    if let Ok(receipt) = recorder.record(Entry::end(Why::Aborted.name(), more)) {
        let _ = receipt.wait();
    }
}

/// A turn whose intent is durable and whose result is missing.
#[derive(Debug)]
pub struct Turn<'e> {
    episode: &'e Episode,
    index: u64,
    adopted: Option<read::RecordedStep>,
    number: u64,
}

impl Turn<'_> {
    /// Its index.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The recorded intent, if this turn was pending.
    pub fn adopted(&self) -> Option<&read::RecordedStep> {
        self.adopted.as_ref()
    }

    /// Keeps the turn under way without its handle: its index, whether it was pending, and its number, by which it is
    /// completed ([`Entry::of_turn`]) or left ([`Episode::leave_turn`]).
    pub fn entered(mut self) -> (u64, bool, u64) {
        let number = std::mem::replace(&mut self.number, NO_TURN);
        (self.index, self.adopted.is_some(), number)
    }

    /// Completes the turn. Durable when it returns.
    pub fn result(self, result: Step) -> Result<Receipt> {
        self.episode.record_and_wait(Entry::result(result).of_turn(self.number))
    }

    /// Completes the turn as failed, with the error.
    pub fn fail(self, error: Value) -> Result<Receipt> {
        let failed = Entry::result(Step::new().error(error));
        self.episode.record_and_wait(failed.of_turn(self.number))
    }

    /// Leaves the turn pending, and records the error. Returns at once.
    pub fn keep(self, error: Value) -> Result<Receipt> {
        self.episode.keep_turn(self.number, error)
    }

    /// Discards the turn. The reason is recorded.
    pub fn discard(self, reason: &str) -> Result<Receipt> {
        self.episode.record_and_wait(Entry::discard(reason).of_turn(self.number))
    }
}

/// The number of no turn.
const NO_TURN: u64 = u64::MAX;

/// A turn that was left without a result is pending.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Fails in a forked child, which has no turn.
        let _ = self.episode.leave_turn(self.number);
    }
}

/// An error if a turn is not the one that is under way or pending.
fn check_number(before: &Inherited, number: u64) -> Result<()> {
    if before.number == number {
        return Ok(());
    }
    Err(Error::BadInput {
        field: "turn".to_owned(),
        value: "is not under way: it was left, has its result, or was discarded".to_owned(),
        fix: "make it again with `episode.pending` or `episode.turn(...)`, if it is pending".to_owned(),
    })
}

/// The given fields of an adopted turn must equal the recorded intent.
fn check_same(index: u64, recorded: &read::RecordedStep, said: &Step) -> Result<()> {
    for (number, now) in said.fields() {
        let field = fields::name(*number).unwrap_or("field");
        match recorded.get(*number) {
            Some(before) => same::check(index, field, &before, now)?,
            None => return Err(same::diverged(index, field.to_owned(), "nothing".to_owned(), now)),
        }
    }
    Ok(())
}
