//! The episodes of a run that fit: what stands in a list now, or what comes in.

use std::sync::{Arc, Mutex, PoisonError};

use keepstep::read::Catalog;
use keepstep::{EpisodeFilter, Listed, Value};
use pyo3::prelude::*;

use crate::errors::{OrRaise, bad_input};
use crate::fields::kind_of;
use crate::follow::RunFollow;
use crate::run::Run;
use crate::view::{Look, View};

/// Which episodes are wanted, from Python: task, iteration, ends, reward, policy, since, all attempts.
#[derive(FromPyObject)]
pub(crate) struct Wanted<'py> {
    #[pyo3(item)]
    task: Option<String>,
    #[pyo3(item)]
    iteration: Option<i64>,
    #[pyo3(item)]
    ends: Option<Vec<String>>,
    #[pyo3(item)]
    reward: Option<(f64, f64)>,
    #[pyo3(item)]
    policy: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    since: Option<f64>,
    #[pyo3(item)]
    all_attempts: bool,
}

/// Makes the names of the items above once, when the module is imported: made on first use, a process that forks meanwhile
/// would leave its child waiting for them for ever.
pub(crate) fn make_names(py: Python<'_>) -> PyResult<()> {
    let nothing = pyo3::types::PyDict::new(py);
    for name in ["task", "iteration", "ends", "reward", "policy", "since"] {
        nothing.set_item(name, py.None())?;
    }
    nothing.set_item("all_attempts", false)?;
    nothing.extract::<Wanted<'_>>().map(|_| ())
}

impl Wanted<'_> {
    fn filter(self, py: Python<'_>) -> PyResult<EpisodeFilter> {
        let policy = self.policy.map(|policy| policy_of(py, &policy)).transpose()?;
        let since = self.since.map(|seconds| (seconds * 1e6).ceil() as i64);
        let mut filter =
            EpisodeFilter::default().iteration(self.iteration).since(since).all_attempts(self.all_attempts);
        (filter.task, filter.ends) = (self.task, self.ends);
        (filter.reward, filter.policy) = (self.reward, policy);
        Ok(filter)
    }
}

/// A version of a policy: a number or a name.
fn policy_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(number) = given.extract::<i64>() {
        return Ok(Value::Int(number));
    }
    let wrong =
        |_| bad_input("policy", &format!("is {}", kind_of(given)), "give an integer of 64 bits, or a name");
    given.extract::<String>().map(Value::from).map_err(wrong).or_raise(py)
}

/// Episodes as they stood when they were asked for, given one by one.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Listing {
    store: keepstep::Store,
    look: Arc<Look>,
    listed: Mutex<std::vec::IntoIter<Listed>>,
    troubles: Vec<String>,
}

/// What is wrong with what was found: with files that could not be read, and with which episodes. Each once.
pub(crate) fn troubles_of(catalog: &Catalog, listed: &[Listed]) -> Vec<String> {
    let unread = catalog.troubles().into_iter().map(|trouble| trouble.error.to_string());
    let wrong = |it: &Listed| {
        let trouble = it.trouble.as_ref()?;
        Some(format!("{}: {trouble}", keepstep::refs::name_of(it)))
    };
    let mut told: Vec<String> = unread.chain(listed.iter().filter_map(wrong)).collect();
    let mut had = std::collections::HashSet::new();
    told.retain(|said| had.insert(said.clone()));
    told
}

#[pymethods]
impl Listing {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self) -> Option<View> {
        let next = self.listed.lock().unwrap_or_else(PoisonError::into_inner).next();
        next.map(|listed| View::of_list(&self.store, listed, &self.look))
    }

    /// What is wrong with what was found, for people.
    #[getter]
    fn troubles(&self) -> Vec<String> {
        self.troubles.clone()
    }

    fn __length_hint__(&self) -> usize {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The episodes of a run that fit, sorted by task, iteration, sample and attempt.
#[pyfunction]
pub(crate) fn list_episodes(py: Python<'_>, run: &Run, wanted: Wanted<'_>) -> PyResult<Listing> {
    let filter = wanted.filter(py)?;
    let list = || {
        let store = run.inner.store().clone();
        let mut catalog = store.catalog()?;
        let listed = run.inner.episodes_in(&mut catalog, &filter)?;
        let troubles = troubles_of(&catalog, &listed);
        let look = Arc::new(Look { catalog, notes: Arc::default() });
        Ok(Listing { store, look, listed: Mutex::new(listed.into_iter()), troubles })
    };
    py.detach(list).or_raise(py)
}

/// What happens in a run, from the beginning or behind a cursor.
#[pyfunction]
#[pyo3(signature = (run, wanted, after))]
pub(crate) fn follow_run(
    py: Python<'_>,
    run: &Run,
    wanted: Wanted<'_>,
    after: Option<&str>,
) -> PyResult<RunFollow> {
    let filter = wanted.filter(py)?;
    py.detach(|| RunFollow::new(&run.inner, filter, after)).or_raise(py)
}

/// Says in the log what could not be read. Whoever reads may be any thread, of a process that ends.
pub(crate) fn warn(troubles: Vec<String>) {
    if troubles.is_empty() {
        return;
    }
    // That it cannot be told is no reason not to give the rows.
    let _ = Python::try_attach(|py| -> PyResult<()> {
        py.import("keepstep._log")?.getattr("warn_of_troubles")?.call1((troubles,)).map(|_| ())
    });
}
