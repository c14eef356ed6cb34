//! An attempt, as it is read: what a list says of it at once, its steps and notes when they are asked for.
//!
//! Everything that reads the disk does so with the interpreter released.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use keepstep::read::{AttemptKey, Call, Catalog, NoteIndex, NoteKey, NoteSaid};
use keepstep::{Error, Id, Listed, Result, Store, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::episode::step_dict;
use crate::errors::{OrRaise, bad_input};
use crate::follow::StepFollow;
use crate::listing::warn;
use crate::values::from_value;

/// The notes of a run, read once for all views that came from one look.
#[derive(Default)]
pub(crate) struct NoteShelf {
    index: Mutex<Option<NoteIndex>>,
    /// Views that come in live each look at what is new.
    is_live: bool,
    /// What was said to be unread: each once.
    told: Mutex<HashSet<String>>,
}

impl NoteShelf {
    pub(crate) fn live() -> Self {
        Self { is_live: true, ..Self::default() }
    }

    /// The newest notes on one attempt at an episode, sorted by what they are about. Says in the log where more may have been.
    fn of(
        &self,
        store: &Store,
        generation_id: Id,
        view: &keepstep::View,
    ) -> Result<Vec<(NoteKey, NoteSaid)>> {
        let mut shelf = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match &mut *shelf {
            Some(index) => {
                if self.is_live {
                    index.refresh()?;
                }
                index
            }
            none => none.insert(store.notes(generation_id)?),
        };
        let (notes, lost) = index.episode(&view.id())?;
        let mut unread = index.unread();
        unread.extend(lost.iter().map(ToString::to_string));
        drop(shelf);
        unread.retain(|it| self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(it.clone()));
        warn(unread);
        Ok(view.counting(&notes))
    }
}

/// What views of one list share.
pub(crate) struct Look {
    pub(crate) catalog: Catalog,
    pub(crate) notes: Arc<NoteShelf>,
}

/// An attempt at an episode, with what it inherited.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct View {
    store: Store,
    listed: Listed,
    reference: String,
    cursor: String,
    look: Option<Arc<Look>>,
    notes: Arc<NoteShelf>,
    opened: Mutex<Option<keepstep::View>>,
}

impl View {
    /// One of a list: opened when something of it is asked for.
    pub(crate) fn of_list(store: &Store, listed: Listed, look: &Arc<Look>) -> Self {
        let notes = Arc::clone(&look.notes);
        Self { look: Some(Arc::clone(look)), ..Self::alone(store, listed, String::new(), notes) }
    }

    /// One that came in: opened now, since the catalog goes on.
    pub(crate) fn of_event(
        store: &Store,
        mut listed: Listed,
        catalog: &Catalog,
        cursor: String,
        notes: &Arc<NoteShelf>,
    ) -> Result<Self> {
        let (opened, unread) = match store.view_of(catalog, &listed.key) {
            // Whoever asks for what is in it is told then.
            Err(error) if error.is_of_one_file() => (None, Some(error)),
            opened => (Some(opened?), None),
        };
        listed.trouble = listed.trouble.or(unread);
        let opened = Mutex::new(opened);
        Ok(Self { opened, ..Self::alone(store, listed, cursor, Arc::clone(notes)) })
    }

    fn alone(store: &Store, listed: Listed, cursor: String, notes: Arc<NoteShelf>) -> Self {
        let reference = keepstep::refs::reference_of(&listed).to_string();
        Self { store: store.clone(), listed, reference, cursor, look: None, notes, opened: Mutex::default() }
    }

    fn key(&self) -> &AttemptKey {
        &self.listed.key
    }

    fn open(&self) -> Result<keepstep::View> {
        match &self.look {
            Some(look) => self.store.view_of(&look.catalog, self.key()),
            None => self.open_anew(),
        }
    }

    fn open_anew(&self) -> Result<keepstep::View> {
        self.store.view_of(&self.store.catalog()?, self.key())
    }

    /// Asks the engine, with the interpreter released.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl Fn(&keepstep::View) -> Result<T> + Send + Sync,
    ) -> PyResult<T> {
        py.detach(|| self.ask_engine(ask)).or_raise(py)
    }

    fn ask_engine<T>(&self, ask: impl Fn(&keepstep::View) -> Result<T>) -> Result<T> {
        // A forked child does not have the thread that may hold the lock.
        self.store.check_process()?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match &*opened {
            Some(view) => ask(view),
            None => self.open().and_then(|view| ask(opened.insert(view))),
        };
        match answer {
            // `compact` moved it since: another look finds it where it is now.
            Err(error) if was_moved(&error) => ask(opened.insert(self.open_anew()?)),
            answer => answer,
        }
    }

    fn generation_id(&self) -> Id {
        self.listed.summary.generation_id.unwrap_or_default()
    }
}

fn was_moved(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

fn seconds(time_us: Option<i64>) -> Option<f64> {
    time_us.map(|time| time as f64 / 1e6)
}

#[pymethods]
impl View {
    #[getter(r#ref)]
    fn reference(&self) -> &str {
        &self.reference
    }

    #[getter]
    fn id(&self) -> String {
        self.key().episode.to_string()
    }

    #[getter]
    fn run(&self) -> Option<&str> {
        self.listed.summary.run.as_deref()
    }

    #[getter]
    fn task(&self) -> &str {
        self.listed.summary.task.as_deref().unwrap_or_default()
    }

    #[getter]
    fn iteration(&self) -> i64 {
        self.listed.summary.iteration.unwrap_or(0)
    }

    #[getter]
    fn sample(&self) -> i64 {
        self.listed.summary.sample.unwrap_or(0)
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.key().attempt
    }

    #[getter]
    fn state(&self) -> &str {
        self.listed.state()
    }

    /// What is wrong with it, for people: a card that it rests on cannot be read, or is not there.
    #[getter]
    pub(crate) fn trouble(&self) -> Option<String> {
        self.listed.trouble.as_ref().map(ToString::to_string)
    }

    #[getter]
    fn counts(&self) -> bool {
        self.listed.is_in_force
    }

    #[getter]
    fn reward(&self) -> Option<f64> {
        self.listed.summary.total_reward
    }

    #[getter]
    fn first_time(&self) -> Option<f64> {
        seconds(self.listed.summary.first_time)
    }

    #[getter]
    fn last_time(&self) -> Option<f64> {
        seconds(self.listed.summary.last_time)
    }

    #[getter]
    fn cursor(&self) -> &str {
        &self.cursor
    }

    /// How many steps the list says it has: nothing is opened for this.
    #[getter]
    fn listed_steps(&self) -> u64 {
        self.listed.summary.steps
    }

    /// How many steps it has.
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, |view| Ok(view.steps()))
    }

    /// One step, as a dictionary of its fields.
    fn step<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyDict>> {
        let step = self.ask(py, move |view| view.step(index))?;
        step_dict(py, &step)
    }

    /// A turn that was said and has no result.
    fn pending<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let step = self.ask(py, keepstep::View::pending)?;
        step.map(|step| step_dict(py, &step)).transpose()
    }

    /// How it ended: why, limit, error, who said so. None if it had not when it was listed.
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(why) = self.listed.summary.why.as_deref() else { return Ok(None) };
        let end = self.ask(py, keepstep::View::ending)?.unwrap_or_default();
        let error = end.error.map_or_else(|| Ok(py.None().into_bound(py)), |error| from_value(py, &error))?;
        let why = end.why.as_deref().unwrap_or(why);
        (why, end.limit, error, end.said_by).into_pyobject(py).map(Some)
    }

    /// The policies that acted in it, in the order in which they came.
    fn policies<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let policies = self.ask(py, policies_of)?;
        policies.iter().map(|policy| from_value(py, policy)).collect()
    }

    /// What it belongs to, and what was given along with it.
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<(Option<String>, Option<Bound<'py, PyAny>>)> {
        let begin = self.ask(py, keepstep::View::begin)?.unwrap_or_default();
        Ok((begin.parent, begin.meta.map(|meta| from_value(py, &meta)).transpose()?))
    }

    /// What is missing in it, for people.
    fn missing(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.ask(py, |view| Ok(view.missing()))
    }

    /// The calls that were made in it: step, name, key, arguments, result, error, time and what is damaged, as a dictionary.
    fn calls<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let calls = self.ask(py, keepstep::View::calls)?;
        let shown = |call: Call| {
            let told = PyDict::new(py);
            told.set_item("step", call.index)?;
            told.set_item("name", call.name)?;
            told.set_item("key", call.key)?;
            for (field, value) in
                [("arguments", call.arguments), ("result", call.result), ("error", call.error)]
            {
                told.set_item(field, value.map(|value| from_value(py, &value)).transpose()?)?;
            }
            told.set_item("time", call.time.map(|time| seconds(Some(time))))?;
            told.set_item("damaged", PyTuple::new(py, call.damaged)?)?;
            Ok(told)
        };
        calls.into_iter().map(shown).collect()
    }

    /// Its notes, the newest of each: step, name, source, time, value.
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let notes = self.ask(py, |view| self.notes.of(&self.store, self.generation_id(), view))?;
        let shown = |(key, said): &(NoteKey, NoteSaid)| {
            let value = from_value(py, &said.value)?;
            (key.target.step, &key.name, &key.source, seconds(Some(said.time)), value).into_pyobject(py)
        };
        notes.iter().map(shown).collect()
    }

    /// All attempts at the episode that really began, in order.
    fn attempts(&self, py: Python<'_>) -> PyResult<Vec<View>> {
        let all = py.detach(|| {
            let (catalog, listed) = self.store.look_up(&self.key().episode)?;
            let began: Vec<AttemptKey> =
                self.store.began(&self.key().episode)?.iter().map(|it| it.key).collect();
            let look = Arc::new(Look { catalog, notes: Arc::clone(&self.notes) });
            let counting = listed.into_iter().filter(|it| began.is_empty() || began.contains(&it.key));
            Ok(counting.map(|it| Self::of_list(&self.store, it, &look)).collect())
        });
        all.or_raise(py)
    }

    /// Follows its steps, from the first on.
    fn follow(&self, py: Python<'_>) -> PyResult<StepFollow> {
        let follow = py.detach(|| self.open_anew()?.follow()).or_raise(py)?;
        Ok(StepFollow::new(follow, &self.store))
    }
}

/// The policies that acted in the steps of an attempt, each once.
pub(crate) fn policies_of(view: &keepstep::View) -> Result<Vec<Value>> {
    let mut policies = Vec::new();
    for index in 0..view.steps() {
        let policy = view.step(index)?.policy;
        policies.extend(policy.filter(|policy| !policies.contains(policy)));
    }
    Ok(policies)
}

/// The attempt that a reference names.
#[pyfunction]
pub(crate) fn find(py: Python<'_>, store: &crate::store::Store, text: &str) -> PyResult<View> {
    let found = py.detach(|| keepstep::refs::find(&store.inner, text)).or_raise(py)?;
    if let Some(step) = found.step {
        let fix = format!("leave @{step} away, and take steps[{step}] of what you get");
        return Err(bad_input("ref", &format!("is {text:?}, which names a step"), &fix)).or_raise(py);
    }
    let look = Arc::new(Look { catalog: found.catalog, notes: Arc::default() });
    Ok(View::of_list(&store.inner, found.listed, &look))
}
