//! Python objects as recorded values, and back.
//!
//! What a walk gives is the value of this moment: nothing that the caller could change later is kept.

mod arrays;
mod decode;
mod differing;
mod encode;
mod met;
mod past;
mod place;
mod plan;
mod redact;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use keepstep::Value;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

pub(crate) use decode::from_value;
pub(crate) use differing::difference;
pub(crate) use past::PastCell;
pub(crate) use plan::or_forgotten_await;

use met::Met;
use past::Past;
use place::Place;
use redact::Redact;

use crate::errors::bad_input;

/// So many classes are warned about: programs that make classes without end exist.
const WARNED_MAX: usize = 1024;

/// How a store takes values: what it refuses, hides and leaves out.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Context {
    /// What cannot be recorded is an error, not a marked text.
    strict: bool,
    /// What hides secrets, before anything is hashed or stored.
    redact: Redact,
    /// Fields of steps that are not recorded.
    skip: Vec<String>,
    /// How many objects were recorded as a marked text.
    reprs: AtomicU64,
    /// How many items of lists were known again by what they are made of, and not read.
    recalled: AtomicU64,
    /// The classes that were warned about, each with the field that it was met in.
    warned: Mutex<HashSet<(String, String)>>,
}

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (*, strict = false, redact = None, skip = Vec::new()))]
    fn new(strict: bool, redact: Option<&Bound<'_, PyAny>>, skip: Vec<String>) -> PyResult<Self> {
        let redact = Redact::new(redact)?;
        Ok(Self {
            strict,
            redact,
            skip,
            reprs: AtomicU64::new(0),
            recalled: AtomicU64::new(0),
            warned: Mutex::default(),
        })
    }

    /// How many objects were recorded as a marked text, since nothing better could be recorded of them.
    #[getter]
    fn reprs(&self) -> u64 {
        self.reprs.load(Ordering::Relaxed)
    }

    /// How many items of lists were known again by what they are made of, and not read.
    #[getter]
    fn recalled(&self) -> u64 {
        self.recalled.load(Ordering::Relaxed)
    }
}

impl Context {
    /// One that takes everything as it is.
    pub(crate) fn plain() -> Self {
        Self {
            strict: false,
            redact: Redact::Nothing,
            skip: Vec::new(),
            reprs: AtomicU64::new(0),
            recalled: AtomicU64::new(0),
            warned: Mutex::default(),
        }
    }

    /// True if a field is not recorded.
    pub(crate) fn skips(&self, field: &str) -> bool {
        self.skip.iter().any(|skipped| skipped == field)
    }

    /// Counts an object that is recorded as a marked text. True if its class is met for the first time in this field.
    fn count_repr(&self, class: &str, field: &str) -> bool {
        self.reprs.fetch_add(1, Ordering::Relaxed);
        self.is_first(class, field)
    }

    /// True once for each thing in a field that is to be warned about.
    fn is_first(&self, thing: &str, field: &str) -> bool {
        let met = (thing.to_owned(), field.to_owned());
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        !warned.contains(&met) && warned.len() < WARNED_MAX && warned.insert(met)
    }
}

/// What is recorded so that a program goes on from it.
#[derive(Clone, Copy)]
enum ComesBack {
    State,
    Result,
    Config,
}

/// A walk through the arguments of one call.
pub(crate) struct Walk<'c> {
    context: &'c Context,
    /// How many bytes were met, about: what is large is worked on with the interpreter released.
    pub(crate) bytes: usize,
    /// What the last calls of the same episode recorded.
    past: Past,
    /// Inside an item that is remembered as a whole, or will be.
    in_item: bool,
    /// In an error: texts are looked through for what is to be hidden.
    in_error: bool,
    /// What must come back as it is: a marked text would not.
    comes_back: Option<ComesBack>,
    /// How many objects became a marked text.
    reprs: usize,
    /// Long objects that this walk has met: one that comes again is the same value.
    met: Met,
}

impl<'c> Walk<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self {
            context,
            bytes: 0,
            past: Past::forgetful(),
            in_item: false,
            in_error: false,
            comes_back: None,
            reprs: 0,
            met: Met::default(),
        }
    }

    /// A walk that knows again what the last ones met; [`Walk::remember`] gives it back.
    pub(crate) fn with_past(context: &'c Context, past: &PastCell) -> Self {
        let past = if context.redact.is_steady() { past.take() } else { Past::forgetful() };
        Self { past, ..Self::new(context) }
    }

    /// Keeps what this walk met for the next one.
    pub(crate) fn remember(self, past: &PastCell) {
        past.put_back(self.past);
    }

    /// True if a field is not recorded.
    pub(crate) fn skips(&self, field: &str) -> bool {
        self.context.skips(field)
    }

    /// True if what was given may have been replaced by something else.
    pub(crate) fn may_hide(&self) -> bool {
        !self.context.redact.is_nothing()
    }

    /// A number that is none survives, and is nearly always a mistake: said once for each field. `instead` is what to
    /// do if there is no number, and must be accepted there.
    pub(crate) fn warn_of_nan(
        &self,
        py: Python<'_>,
        field: &str,
        number: Option<f64>,
        instead: &str,
    ) -> PyResult<()> {
        if !number.is_some_and(f64::is_nan) || !self.context.is_first("NaN", field) {
            return Ok(());
        }
        let message = format!(
            "{field} is NaN: it is recorded as it is, and so is every sum that it is part of; {instead}"
        );
        warn_caller(py, &message, py.get_type::<pyo3::exceptions::PyRuntimeWarning>().as_any())
    }

    /// True if the same object is recorded alike wherever it stands.
    fn may_know_again(&self) -> bool {
        !self.in_error && self.context.redact.is_steady()
    }

    /// A text that stands by itself, such as a link, a reason or a source: hidden, or looked through, as values are.
    pub(crate) fn text(&mut self, py: Python<'_>, given: &str, path: &str) -> PyResult<String> {
        if self.context.redact.is_nothing() {
            return Ok(given.to_owned());
        }
        let hidden = self.value(PyString::new(py, given).as_any(), path)?;
        let hidden = hidden.as_str().map(str::to_owned);
        hidden.map(|text| self.context.redact.text(&text).unwrap_or(text)).ok_or_else(|| {
            let error = bad_input(
                path,
                "was redacted to something that is no string",
                "let the function return a string",
            );
            crate::errors::raise(py, &error)
        })
    }

    /// The value of a state: refused if it could not come back.
    pub(crate) fn state(&mut self, given: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
        self.comes_back = Some(ComesBack::State);
        let value = self.value(given, path);
        self.comes_back = None;
        value
    }

    /// The value of a config: refused if it could not be compared with the same one later.
    pub(crate) fn config(&mut self, given: &Bound<'_, PyAny>) -> PyResult<Value> {
        self.comes_back = Some(ComesBack::Config);
        self.value(given, "config")
    }

    /// The value of what a call gave: refused if it could not come back.
    pub(crate) fn result(&mut self, given: &Bound<'_, PyAny>, call: &str) -> PyResult<Value> {
        self.comes_back = Some(ComesBack::Result);
        self.value(given, call)
    }

    /// The value of an object; `path` names it in messages and to `redact`.
    pub(crate) fn value(&mut self, given: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
        if self.context.redact.hides_argument(path) {
            return Ok(Value::from(redact::REDACTED));
        }
        self.in_error = path == "error";
        encode::value(self, given, &Place::root(path, given))
    }
}

/// The Python half of this: `keepstep/_values.py`.
pub(crate) fn python_half<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("keepstep._values").map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// A warning at the line of whoever called this package, however deep it is met.
fn warn_caller(py: Python<'_>, message: &str, category: &Bound<'_, PyAny>) -> PyResult<()> {
    py.import("keepstep._loops")?.call_method1("warn_caller", (message, category)).map(|_| ())
}

/// The value of an object, and the object of that value, without a store between them: for tests.
#[pyfunction]
#[pyo3(signature = (given, context, path = "value"))]
fn _roundtrip<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    context: &Bound<'py, Context>,
    path: &str,
) -> PyResult<Bound<'py, PyAny>> {
    from_value(py, &Walk::new(context.get()).value(given, path)?)
}

/// How the value of an object looks, with the names of its types: for tests.
#[pyfunction]
#[pyo3(signature = (given, context, path = "value"))]
fn _shown(given: &Bound<'_, PyAny>, context: &Bound<'_, Context>, path: &str) -> PyResult<String> {
    Ok(format!("{:?}", Walk::new(context.get()).value(given, path)?))
}

/// Forgets how classes are recorded: something was registered.
#[pyfunction]
fn _forget_plans(py: Python<'_>) {
    plan::forget_all(py);
}

/// Adds what Python needs of this.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Context>()?;
    module.add_function(wrap_pyfunction!(_roundtrip, module)?)?;
    module.add_function(wrap_pyfunction!(_shown, module)?)?;
    module.add_function(wrap_pyfunction!(_forget_plans, module)?)
}
