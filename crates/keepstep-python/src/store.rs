//! A store, as Python opens it.

use std::collections::BTreeMap;

use keepstep::{Options, RunOptions, Value};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::listing::warn;
use crate::receipt::{parse_level, seconds_of};
use crate::run::Run;
use crate::values::{Context, Walk, from_value};

/// A directory that steps are recorded to.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Store {
    pub(crate) inner: keepstep::Store,
    pub(crate) context: Py<Context>,
}

/// Closes a store that somebody still uses, and keeps none.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Closer {
    inner: keepstep::WeakStore,
}

#[pymethods]
impl Closer {
    /// True if nobody uses the store any more.
    #[getter]
    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    /// As `Store.close`, if somebody uses the store.
    fn close(&self, py: Python<'_>) {
        let unheard = py.detach(|| self.inner.upgrade().map(|store| store.close()));
        tell_unheard(unheard.unwrap_or_default());
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, *, level, lease_s, stall_s, context, create = true))]
    fn new(
        py: Python<'_>,
        path: &str,
        level: Option<&str>,
        lease_s: f64,
        stall_s: f64,
        context: Py<Context>,
        create: bool,
    ) -> PyResult<Self> {
        let options = Options::default()
            .level(level.map(parse_level).transpose().or_raise(py)?)
            .lease(seconds_of("lease_s", lease_s).or_raise(py)?)
            .stall(seconds_of("stall_s", stall_s).or_raise(py)?)
            // Callers share the interpreter.
            .compress_late(true)
            .interrupt(crate::interrupt::is_interrupted);
        let open = || match create {
            true => keepstep::Store::open(path, options),
            false => keepstep::Store::open_existing(path, options),
        };
        let inner = py.detach(open).or_raise(py)?;
        Ok(Self { inner, context })
    }

    #[getter]
    fn level(&self) -> &'static str {
        self.inner.level().name()
    }

    /// What a record that was synced survives, if this much is asked for.
    fn reach(&self, py: Python<'_>, level: &str) -> PyResult<&'static str> {
        let level = parse_level(level).or_raise(py)?;
        Ok(py.detach(|| self.inner.reach(level)).or_raise(py)?.name())
    }

    /// What whoever opened it should be told.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.inner.warnings().to_vec()
    }

    #[getter]
    fn id(&self) -> String {
        self.inner.id().to_string()
    }

    /// Opens a run, or begins it.
    #[pyo3(signature = (name, *, config, links, new, generation = None))]
    fn run(
        &self,
        py: Python<'_>,
        name: &str,
        config: Option<&Bound<'_, PyAny>>,
        links: BTreeMap<String, String>,
        new: bool,
        generation: Option<u64>,
    ) -> PyResult<Run> {
        let config = match config {
            Some(config) => Walk::new(self.context.get()).config(config)?,
            None => Value::Null,
        };
        let mut walk = Walk::new(self.context.get());
        let hide = |(name, link): (String, String)| {
            let link = walk.text(py, &link, &format!("links.{name}"))?;
            Ok((name, link))
        };
        let links = links.into_iter().map(hide).collect::<PyResult<BTreeMap<_, _>>>()?;
        let options = RunOptions::default().config(config).links(links).new(new).generation(generation);
        let inner = py.detach(|| self.inner.open_run(name, options)).or_raise(py)?;
        Ok(Run { inner, context: self.context.clone_ref(py) })
    }

    /// The runs of the store, all generations, and what could not be read of them.
    fn runs(&self, py: Python<'_>) -> PyResult<Vec<Run>> {
        let found = py.detach(|| self.inner.runs()).or_raise(py)?;
        let (mut runs, mut troubles) = (Vec::with_capacity(found.len()), Vec::new());
        for info in found {
            // One that cannot be read does not keep the others from being listed.
            match info {
                Err(error) if error.is_of_one_file() => troubles.push(error.to_string()),
                info => {
                    let inner = self.inner.run_of(info.or_raise(py)?);
                    runs.push(Run { inner, context: self.context.clone_ref(py) });
                }
            }
        }
        py.detach(|| warn(troubles));
        Ok(runs)
    }

    /// Records `crashed` for the dead. How many there were. Says in the log which could not be marked.
    fn reap(&self, py: Python<'_>) -> PyResult<usize> {
        let marked = py.detach(|| self.inner.reap()).or_raise(py)?;
        let left = marked.left_alone.iter().map(|left| format!("writer {}: {}", left.writer, left.why));
        let troubles = left.collect();
        py.detach(|| warn(troubles));
        Ok(marked.crashed.len())
    }

    /// What this process has recorded to it.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.inner.check_process().or_raise(py)?;
        let stats = self.inner.writer_stats();
        let count = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let fields = stats.named().map(|(name, number)| (name, count(number)));
        from_value(py, &Value::map(fields))
    }

    /// What closes it when the process exits: episodes and runs use it also when this object is gone.
    fn closer(&self) -> Closer {
        Closer { inner: self.inner.downgrade() }
    }

    /// Writes all that waits; open episodes end as aborted.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.inner.clone();
        crate::interrupt::wait(py, move || tell_unheard(store.close()))
    }
}

/// Logs of which episodes an entry is missing that nobody has heard of: nobody is left who could be told otherwise.
fn tell_unheard(unheard: Vec<(String, keepstep::Error)>) {
    if unheard.is_empty() {
        return;
    }
    let told: Vec<_> = unheard.into_iter().map(|(what, why)| (what, why.to_string())).collect();
    // That it cannot be told is no reason not to close.
    let _ = Python::try_attach(|py| -> PyResult<()> {
        py.import("keepstep._log")?.getattr("tell_unheard")?.call1((told,)).map(|_| ())
    });
}

/// Refuses what has a scheme, such as `s3://bucket`: it would become a folder called `s3:`.
#[pyfunction]
pub(crate) fn refuse_address(py: Python<'_>, place: &str) -> PyResult<()> {
    keepstep::refuse_address(place).or_raise(py)
}

/// Refuses a name of a note or a call that is empty or reserved, for the null store too.
#[pyfunction]
pub(crate) fn check_name(py: Python<'_>, field: &str, name: &str) -> PyResult<()> {
    keepstep::check_name(field, name).or_raise(py)
}
