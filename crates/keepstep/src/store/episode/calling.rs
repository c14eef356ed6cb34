//! Calls whose results are recorded: whether one is on record, and what is recorded of one that is made.

use keepstep_format::value::Value;

use crate::error::{Error, Result};
use crate::store::episode::present_turn::Inherited;
use crate::store::episode::turn_calls::{CalledFunction, Known, Recorded};
use crate::store::episode::{Episode, same};
use crate::write::{CallKey, CallMade, Entry, check_name};

impl Episode {
    /// Which turn it is, and which try of it: calls without a key are numbered from the first on in each. Rises when a
    /// turn is settled, left or discarded.
    pub fn turn_try(&self) -> Result<(u64, u64)> {
        let mut before = self.lock()?;
        let turn = self.recorder.steps();
        self.at_turn(&mut before, turn)?;
        Ok((turn, before.tried))
    }

    pub(super) fn at_turn(&self, before: &mut Inherited, turn: u64) -> Result<()> {
        before.at_turn(turn, self.recorder.durable_steps(), turn == self.inherited)
    }

    /// As [`Episode::known`], for a call that was made before and has no result that its caller knows of: it failed, or
    /// its caller stopped waiting. It keeps its key or its ordinal.
    pub fn known_again(&self, made: &CallMade) -> Result<Known> {
        let mut before = self.lock()?;
        if let Some(found) = before.calls.find(&made.key, &made.name) {
            return Ok(found.known());
        }
        self.recorder.check_not_ended()?;
        if let CallKey::Ordinal(ordinal) = made.key
            && made.tried.is_none_or(|tried| tried == before.tried)
        {
            before.calls.failed.remove(&ordinal);
        }
        Ok(Known::New(made.key.clone()))
    }

    /// Checks whether a call of the present turn is recorded. Calls without a key are told apart by their order.
    ///
    /// If an earlier call had failed when this one was recorded, and has not now, the program may go another way: then
    /// only its function would show that it is the same call ([`Episode::begin_call`]), and this is
    /// [`Error::Diverged`].
    pub fn known(&self, name: &str, key: Option<&str>, arguments: &Value) -> Result<Known> {
        self.begin_call(name, key, arguments.clone(), None).map(|(known, _)| known)
    }

    /// As [`Episode::known`], for a call of that function; and what to record it with, if it is made.
    pub fn begin_call(
        &self,
        name: &str,
        key: Option<&str>,
        arguments: Value,
        function: Option<&CalledFunction>,
    ) -> Result<(Known, CallMade)> {
        // Refused before the call is made, not after it.
        check_name("name", name)?;
        let mut before = self.lock()?;
        let turn = self.recorder.steps();
        self.at_turn(&mut before, turn)?;
        let ordinal = before.calls.next_ordinal;
        let by = key.map_or(CallKey::Ordinal(ordinal), |key| CallKey::Key(key.to_owned()));
        let mut made = CallMade::new(name, by, arguments).turn(turn);
        made.tried = Some(before.tried);
        if key.is_none() {
            made.made_by = Some((function.map(|it| it.name.clone()), before.calls.failed_now()));
            before.calls.next_ordinal += 1;
        }
        let Some(found) = before.calls.find(&made.key, name) else {
            // So is a call that comes after the end.
            self.recorder.check_not_ended()?;
            return Ok((Known::New(made.key.clone()), made));
        };
        match check_same_call(&before, found, &made, function) {
            Ok(()) => Ok((found.known(), made)),
            Err(diverged) => {
                // The program may take this for a failure of the call, and make another one.
                before.fail_call(&made);
                Err(diverged)
            }
        }
    }

    /// A call raised, was cancelled, or its result could not be recorded. The calls that begin after it say so: whoever
    /// resumes the attempt may go another way.
    pub fn call_failed(&self, made: &CallMade) -> Result<()> {
        self.lock()?.fail_call(made);
        Ok(())
    }

    /// Makes a call and records its result, or returns the recorded result. An `Err` of `make` is what the call
    /// raised.
    pub fn call_once(
        &self,
        name: &str,
        key: Option<&str>,
        arguments: Value,
        make: impl FnOnce() -> std::result::Result<Value, Value>,
    ) -> Result<std::result::Result<Value, Value>> {
        let (known, made) = self.begin_call(name, key, arguments, None)?;
        if let Known::Result(value) | Known::Awaited(value) = known {
            return Ok(Ok(value));
        }
        let came = make();
        let recorded = self.record_and_wait(Entry::call(&made, came.clone()));
        if came.is_err() || recorded.is_err() {
            self.call_failed(&made)?;
        }
        recorded.map(|_| came)
    }
}

impl Inherited {
    /// Notes that a call has failed, if it is one of the present try.
    fn fail_call(&mut self, made: &CallMade) {
        if let CallKey::Ordinal(ordinal) = made.key
            && made.tried == Some(self.tried)
        {
            self.calls.failed.insert(ordinal);
        }
    }
}

/// An error if a recorded call is not the one that begins now.
fn check_same_call(
    before: &Inherited,
    found: &Recorded,
    made: &CallMade,
    function: Option<&CalledFunction>,
) -> Result<()> {
    let (step, name) = (before.calls.turn, made.name.as_str());
    if found.name != name {
        let (recorded, now) = (found.name.clone(), name.to_owned());
        return Err(Error::Diverged { step, field: format!("call {name:?}, name"), recorded, now });
    }
    same::check(step, &format!("call {name:?}, arguments"), &found.arguments, &made.arguments)?;
    if before.calls.is_surely(found, function) {
        return Ok(());
    }
    let said =
        |function: Option<&str>| function.map_or("an unknown function".to_owned(), |it| format!("{it:?}"));
    Err(Error::Diverged {
        step,
        field: format!("call {name:?}, function"),
        recorded: format!(
            "an answer of {} after other calls had failed than now",
            said(found.function.as_deref())
        ),
        now: said(function.map(|it| it.name.as_str())),
    })
}
