//! An attempt at an episode that is being recorded.

use std::sync::Arc;

use keepstep::read::RecordedStep;
use keepstep::{CallMade, CalledFunction, Ending, Entry, EpisodeName, Known, Turn, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::OrRaise;
use crate::fields::{Call as FieldsOf, step_of};
use crate::receipt::Receipt;
use crate::values::{Context, PastCell, Walk, difference, from_value};

/// From this many bytes on, encoding is worth giving the interpreter to others.
const LARGE_BYTES: usize = 32 << 10;

/// An attempt, open for recording.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Episode {
    inner: Option<keepstep::Episode>,
    reference: Arc<str>,
    context: Py<Context>,
    past: PastCell,
}

impl Episode {
    pub(crate) fn new(
        py: Python<'_>,
        inner: keepstep::Episode,
        name: &EpisodeName,
        context: &Py<Context>,
    ) -> Self {
        let reference = if name.task.is_empty() {
            inner.id().to_string()
        } else {
            format!("{}~{}", keepstep::refs::reference(inner.run(), name), inner.attempt())
        };
        Self {
            inner: Some(inner),
            reference: reference.into(),
            context: context.clone_ref(py),
            past: PastCell::default(),
        }
    }

    fn engine(&self) -> keepstep::Result<&keepstep::Episode> {
        self.inner.as_ref().ok_or(keepstep::Error::Closed)
    }

    /// The same for those who ask how it stands: in a forked child nobody knows.
    fn own(&self) -> keepstep::Result<&keepstep::Episode> {
        let engine = self.engine()?;
        engine.run().store().check_process()?;
        Ok(engine)
    }

    fn receipt(&self, receipt: keepstep::Receipt) -> keepstep::Result<Receipt> {
        Ok(Receipt::new(receipt, self.engine()?.run().store(), &self.reference))
    }

    /// Converts the arguments, and hands them over with the interpreter released if there are many.
    fn record(
        &self,
        py: Python<'_>,
        fields: FieldsOf,
        given: &Bound<'_, PyDict>,
        waits: bool,
        record: impl FnOnce(&keepstep::Episode, keepstep::Step) -> keepstep::Result<keepstep::Receipt> + Send,
    ) -> PyResult<Receipt> {
        let mut walk = Walk::with_past(self.context.get(), &self.past);
        let step = step_of(fields, given, &mut walk)?;
        let bytes = walk.bytes;
        walk.remember(&self.past);
        let engine = self.engine().or_raise(py)?;
        let done = if waits || bytes > LARGE_BYTES {
            py.detach(|| record(engine, step))
        } else {
            record(engine, step)
        };
        self.receipt(done.or_raise(py)?).or_raise(py)
    }
}

/// Whether a call was made before, for Python: whether its result was awaited, and the result; or None, and what it is
/// recorded with.
fn told<'py>(py: Python<'py>, known: Known, made: CallMade) -> PyResult<(Option<bool>, Bound<'py, PyAny>)> {
    match known {
        Known::Result(result) => Ok((Some(false), from_value(py, &result)?)),
        Known::Awaited(result) => Ok((Some(true), from_value(py, &result)?)),
        Known::New(_) => Ok((None, Bound::new(py, Call(made))?.into_any())),
    }
}

#[pymethods]
impl Episode {
    #[getter(r#ref)]
    fn reference(&self) -> &str {
        &self.reference
    }

    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.engine().or_raise(py)?.id().to_string())
    }

    #[getter]
    fn attempt(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.engine().or_raise(py)?.attempt())
    }

    /// The attempt that it goes on from, if it does.
    #[getter]
    fn resumed(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        Ok(self.engine().or_raise(py)?.resumed())
    }

    /// How many turns are completed.
    #[getter]
    fn turns(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.own().or_raise(py)?.turns())
    }

    /// How many steps were handed over, FIRST counted.
    #[getter]
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.own().or_raise(py)?.steps())
    }

    /// How many steps were inherited, FIRST counted.
    #[getter]
    fn inherited(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.engine().or_raise(py)?.inherited())
    }

    /// How it ended, if it did.
    #[getter]
    fn ended(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.own().or_raise(py)?.ended())
    }

    /// True once nothing more can be recorded here.
    #[getter]
    fn is_fenced(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.engine().or_raise(py)?.is_fenced())
    }

    /// Raises why an entry could not be written, if nobody has heard of that.
    fn hear_failure(&self, py: Python<'_>) -> PyResult<()> {
        self.engine().or_raise(py)?.unheard_failure().map_or(Ok(()), Err).or_raise(py)
    }

    /// True if a turn was said and has no result.
    #[getter]
    fn is_pending(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.own().or_raise(py)?.is_pending())
    }

    /// An inherited step, as a dictionary of its fields.
    fn history<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.engine().or_raise(py)?;
        let step = py.detach(|| engine.history(index)).or_raise(py)?;
        step_dict(py, &step)
    }

    /// What was said in a turn that never got its result, and the number of the turn.
    #[getter]
    fn pending<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyDict>, u64)>> {
        let engine = self.own().or_raise(py)?;
        let pending = py.detach(|| engine.pending_turn());
        pending.map(|(step, number)| Ok((step_dict(py, &step)?, number))).transpose()
    }

    /// The newest state of that name, as a tuple of one; None if there is none.
    fn state<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let engine = self.own().or_raise(py)?;
        let state = py.detach(|| engine.state(name)).or_raise(py)?;
        state.map(|value| PyTuple::new(py, [from_value(py, &value)?])).transpose()
    }

    fn first(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<Receipt> {
        self.record(py, FieldsOf::First, given, false, |engine, step| engine.first(step))
    }

    fn step(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<Receipt> {
        self.record(py, FieldsOf::Both, given, true, |engine, step| engine.step(step))
    }

    fn submit(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<Receipt> {
        self.record(py, FieldsOf::Both, given, false, |engine, step| engine.record(step))
    }

    /// Says a turn, or adopts the pending one: its index, whether it was pending, what was said, the receipt if there is
    /// one, and its number.
    fn say(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyDict>,
        waits: bool,
    ) -> PyResult<(u64, bool, SaidFields, Option<Receipt>, u64)> {
        let mut walk = Walk::with_past(self.context.get(), &self.past);
        let step = step_of(FieldsOf::Said, given, &mut walk)?;
        walk.remember(&self.past);
        let engine = self.engine().or_raise(py)?;
        if waits {
            let (index, adopted, number) = py.detach(|| engine.turn(step).map(Turn::entered)).or_raise(py)?;
            return Ok((index, adopted, SaidFields(engine.said()), None, number));
        }
        let said = py.detach(|| engine.say(step)).or_raise(py)?;
        let receipt = said.receipt.map(|receipt| self.receipt(receipt)).transpose().or_raise(py)?;
        Ok((said.index, said.adopted.is_some(), SaidFields(engine.said()), receipt, said.number))
    }

    /// Takes the pending turn as it is, if it has that number; returns its number from now on.
    fn adopt(&self, py: Python<'_>, number: u64) -> PyResult<u64> {
        let engine = self.engine().or_raise(py)?;
        py.detach(|| engine.adopt_turn(number)).or_raise(py)
    }

    /// Completes the turn: the one with that number, if one is given.
    #[pyo3(signature = (given, waits, number=None))]
    fn result(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyDict>,
        waits: bool,
        number: Option<u64>,
    ) -> PyResult<Receipt> {
        self.record(py, FieldsOf::Result, given, waits, move |engine, step| {
            let result = Entry::result(step).of_turn(number);
            if waits { engine.record_and_wait(result) } else { engine.record(result) }
        })
    }

    /// Discards the turn: the one with that number, if one is given.
    #[pyo3(signature = (reason, number=None))]
    fn discard(&self, py: Python<'_>, reason: &str, number: Option<u64>) -> PyResult<Receipt> {
        let engine = self.engine().or_raise(py)?;
        let reason = Walk::new(self.context.get()).text(py, reason, "reason")?;
        let discards = || engine.record_and_wait(Entry::discard(&reason).of_turn(number));
        self.receipt(py.detach(discards).or_raise(py)?).or_raise(py)
    }

    /// Puts on record that a try of the turn failed, and leaves the turn pending.
    fn keep(&self, py: Python<'_>, error: &Bound<'_, PyAny>, number: u64) -> PyResult<Receipt> {
        let error = Walk::new(self.context.get()).value(error, "error")?;
        let engine = self.engine().or_raise(py)?;
        self.receipt(py.detach(|| engine.keep_turn(number, error)).or_raise(py)?).or_raise(py)
    }

    /// Leaves the turn pending, if it is still under way.
    fn leave_turn(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        let engine = self.engine().or_raise(py)?;
        py.detach(|| engine.leave_turn(number)).or_raise(py)
    }

    /// Appends to the recording list.
    fn item(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Receipt> {
        let value = Walk::new(self.context.get()).value(value, "item")?;
        let engine = self.engine().or_raise(py)?;
        self.receipt(py.detach(|| engine.record_and_wait(Entry::item(value))).or_raise(py)?).or_raise(py)
    }

    /// Looks whether a call was made before: whether its result was awaited, and the result; or None, and a token to record
    /// it with. `function` is its name, and whether that name is certainly of this function alone.
    fn known<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        key: Option<&str>,
        arguments: &Bound<'py, PyAny>,
        function: Option<(String, bool)>,
    ) -> PyResult<(Option<bool>, Bound<'py, PyAny>)> {
        let arguments = Walk::new(self.context.get()).value(arguments, "arguments")?;
        let engine = self.engine().or_raise(py)?;
        let function = function.map(|(name, is_certain)| CalledFunction::new(name, is_certain));
        let begins = || engine.begin_call(name, key, arguments, function.as_ref());
        let (known, made) = py.detach(begins).or_raise(py)?;
        told(py, known, made)
    }

    /// A call raised, was cancelled, or could not be recorded: calls that begin after it say so.
    fn call_failed(&self, py: Python<'_>, call: &Call) -> PyResult<()> {
        let engine = self.engine().or_raise(py)?;
        py.detach(|| engine.call_failed(&call.0)).or_raise(py)
    }

    /// The same for a call that was made before, and whose result its caller does not know.
    fn known_again<'py>(&self, py: Python<'py>, call: &Call) -> PyResult<(Option<bool>, Bound<'py, PyAny>)> {
        let engine = self.engine().or_raise(py)?;
        let known = py.detach(|| engine.known_again(&call.0)).or_raise(py)?;
        told(py, known, call.0.clone())
    }

    /// The present turn, and which try it is: calls without a key are numbered from the first on in each.
    fn turn_try(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let engine = self.own().or_raise(py)?;
        py.detach(|| engine.turn_try()).or_raise(py)
    }

    /// True if a call that is not recorded was called with these arguments.
    fn is_called_so(&self, call: &Call, arguments: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(Walk::new(self.context.get()).value(arguments, "arguments")? == call.0.arguments)
    }

    /// What is recorded of the result of a call. Refused if it could not come back.
    fn came(&self, call: &Call, result: &Bound<'_, PyAny>) -> PyResult<Came> {
        Ok(Came(Walk::new(self.context.get()).result(result, &call.0.name)?))
    }

    /// Records what a call returned.
    fn record_call(
        &self,
        py: Python<'_>,
        call: &Call,
        came: &Came,
        awaited: bool,
        waits: bool,
    ) -> PyResult<Receipt> {
        let made = call.0.clone().awaited(awaited);
        let came = Ok(came.0.clone());
        let engine = self.engine().or_raise(py)?;
        let record = || match waits {
            true => engine.record_and_wait(Entry::call(&made, came)),
            false => engine.record(Entry::call(&made, came)),
        };
        self.receipt(py.detach(record).or_raise(py)?).or_raise(py)
    }

    /// Records what a call raised. Returns at once.
    fn record_failed_call(&self, py: Python<'_>, call: &Call, error: &Bound<'_, PyAny>) -> PyResult<Receipt> {
        // Under its own name an error is looked through for what is to be hidden.
        let error = Walk::new(self.context.get()).value(error, "error")?;
        let engine = self.engine().or_raise(py)?;
        self.receipt(py.detach(|| engine.record(Entry::call(&call.0, Err(error)))).or_raise(py)?).or_raise(py)
    }

    fn note(
        &self,
        py: Python<'_>,
        name: &str,
        value: &Bound<'_, PyAny>,
        source: &str,
        step: Option<u64>,
    ) -> PyResult<Receipt> {
        let mut walk = Walk::new(self.context.get());
        let (value, source) = (walk.value(value, name)?, walk.text(py, source, "source")?);
        let engine = self.engine().or_raise(py)?;
        self.receipt(py.detach(|| engine.note(name, value, &source, step)).or_raise(py)?).or_raise(py)
    }

    /// It was left, whatever became of its end: this process may open it again.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine().or_raise(py)?;
        py.detach(|| engine.leave()).or_raise(py)
    }

    fn end(
        &self,
        py: Python<'_>,
        why: &str,
        limit: Option<String>,
        error: Option<&Bound<'_, PyAny>>,
        said_by: Option<String>,
    ) -> PyResult<Receipt> {
        let mut walk = Walk::new(self.context.get());
        let error = error.map(|error| walk.value(error, "error")).transpose()?;
        let limit = limit.map(|limit| walk.text(py, &limit, "limit")).transpose()?;
        let said_by = said_by.map(|said_by| walk.text(py, &said_by, "said_by")).transpose()?;
        let engine = self.engine().or_raise(py)?;
        let mut ending = Ending::default();
        (ending.limit, ending.error, ending.said_by) = (limit, error, said_by);
        self.receipt(py.detach(|| engine.end(why, ending)).or_raise(py)?).or_raise(py)
    }
}

impl Drop for Episode {
    fn drop(&mut self) {
        let inner = self.inner.take();
        // One that was left without a word records that, and waits for it: not with the interpreter held.
        // While the interpreter is ending it cannot be given away any more, and nobody else wants it.
        let mut inner = Some(inner);
        Python::try_attach(|py| {
            py.detach(|| drop(inner.take()));
            crate::interrupt::put_back(py);
        });
    }
}

/// A call that was not made before.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Call(CallMade);

#[pymethods]
impl Call {
    /// True if the arguments of two calls are the same data.
    fn is_same(&self, other: &Self) -> bool {
        self.0.arguments == other.0.arguments
    }
}

/// What is recorded of the result of a call.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Came(Value);

#[pymethods]
impl Came {
    /// It, as it is read back.
    fn back<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_value(py, &self.0)
    }

    /// Where an object that was made of it is not what was recorded, and what is there instead; None if it is the same.
    fn difference(&self, made: &Bound<'_, PyAny>) -> PyResult<Option<(String, String)>> {
        let made = Walk::new(&Context::plain()).value(made, "result")?;
        Ok(difference(&self.0, &made))
    }
}

/// What was said in a turn.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct SaidFields(Option<RecordedStep>);

#[pymethods]
impl SaidFields {
    /// It, as it is read back.
    fn back<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.as_ref().map_or_else(|| Ok(PyDict::new(py)), |step| step_dict(py, step))
    }
}

/// The fields of a step that are there, by their names.
pub(crate) fn step_dict<'py>(py: Python<'py>, step: &RecordedStep) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("index", step.index)?;
    for (field, value) in step.fields() {
        dict.set_item(field.name, from_value(py, &value)?)?;
    }
    if !step.damaged.is_empty() {
        dict.set_item("damaged", &step.damaged)?;
    }
    dict.set_item("time", step.time.map(|time| time as f64 / 1e6))?;
    dict.set_item("kind", step.kind.name())?;
    Ok(dict)
}
