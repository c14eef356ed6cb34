//! Proof that a step is durable, or the way to wait for it, from threads and from event loops.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use keepstep::Level;
use keepstep::export::json::shown;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors::{OrRaise, bad_input, raise};
use crate::waker::LoopBell;

/// A record on its way, or there.
#[pyclass(frozen, module = "keepstep")]
pub(crate) struct Receipt {
    inner: keepstep::Receipt,
    store: keepstep::Store,
    reference: Arc<str>,
}

thread_local! {
    /// The event loop of this thread that was used last, with its waker: looked up once, not once per step.
    static LOOP: RefCell<Option<(Py<PyAny>, Py<LoopBell>)>> = const { RefCell::new(None) };
}

impl Receipt {
    pub(crate) fn new(inner: keepstep::Receipt, store: &keepstep::Store, reference: &Arc<str>) -> Self {
        Self { inner, store: store.clone(), reference: Arc::clone(reference) }
    }

    pub(crate) fn poll(&self) -> Option<keepstep::Result<()>> {
        self.inner.poll()
    }
}

#[pymethods]
impl Receipt {
    /// What it survives by now: None while it is on its way.
    #[getter]
    fn level(&self) -> Option<&'static str> {
        self.inner.level().map(Level::name)
    }

    /// What it belongs to.
    #[getter(r#ref)]
    fn reference(&self) -> &str {
        &self.reference
    }

    /// The index of the step, or None for what is not a step.
    #[getter]
    fn step(&self) -> Option<u64> {
        self.inner.step()
    }

    /// Waits until it is durable at the level that was asked for, or at a higher one. Raises TimeoutError.
    #[pyo3(signature = (timeout = None, *, level = None))]
    fn wait<'py>(
        slf: Bound<'py, Self>,
        py: Python<'py>,
        timeout: Option<f64>,
        level: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        let level = level.map(|level| level_of(&level)).transpose()?.unwrap_or(this.inner.wanted());
        let timeout = timeout.map(|seconds| seconds_of("timeout", seconds)).transpose().or_raise(py)?;
        if level == this.inner.wanted()
            && let Some(outcome) = this.inner.poll()
        {
            outcome.or_raise(py)?;
            return Ok(slf);
        }
        warn_if_on_loop(py)?;
        if py.detach(|| this.inner.wait_for(level, timeout)).or_raise(py)? {
            return Ok(slf);
        }
        let message = format!("{} is not durable yet; it goes on being written", this.reference);
        Err(pyo3::exceptions::PyTimeoutError::new_err(message))
    }

    /// Waits for it on the running event loop. Cancelling that does not withdraw the step.
    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let future = future_of(&slf)?;
        future.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let what = match self.inner.step() {
            Some(step) => format!("{}@{step}", self.reference),
            None => self.reference.to_string(),
        };
        let what = shown(&what);
        match (self.inner.level(), self.inner.peek()) {
            (Some(level), _) => format!("<Receipt {what}: survives {}>", level.name()),
            (None, Some(Err(error))) => format!("<Receipt {what}: not recorded: {error}>"),
            (None, _) => format!("<Receipt {what}: on its way>"),
        }
    }
}

/// A future of the running loop that is done when the receipt has come.
fn future_of<'py>(receipt: &Bound<'py, Receipt>) -> PyResult<Bound<'py, PyAny>> {
    let py = receipt.py();
    // A forked child would wait for ever: nobody there commits.
    receipt.get().store.check_process().or_raise(py)?;
    let (event_loop, waker) = running_loop(py, &receipt.get().store)?;
    let future = event_loop.call_method0("create_future")?;
    match receipt.get().poll() {
        Some(Ok(())) => {
            future.call_method1("set_result", (receipt,))?;
        }
        Some(Err(error)) => {
            future.call_method1("set_exception", (raise(py, &error),))?;
        }
        None => {
            let waker = waker.get();
            waker.add(receipt.clone().unbind(), future.clone().unbind());
            if receipt.get().poll().is_some() {
                waker.ring_now();
            }
        }
    }
    Ok(future)
}

/// The running loop, and its waker, which the store rings.
fn running_loop<'py>(
    py: Python<'py>,
    store: &keepstep::Store,
) -> PyResult<(Bound<'py, PyAny>, Py<LoopBell>)> {
    let event_loop = get_running_loop(py)?.call0()?;
    let known = LOOP.with_borrow(|last| match last {
        Some((last, waker)) if last.is(&event_loop) => Some(waker.clone_ref(py)),
        _ => None,
    });
    let waker = match known {
        Some(waker) => waker,
        None => {
            let waker = bell_of(py)?.call1((&event_loop,))?.cast_into::<LoopBell>()?.unbind();
            LOOP.set(Some((event_loop.clone().unbind(), waker.clone_ref(py))));
            waker
        }
    };
    store.add_waker(waker.get().waker());
    Ok((event_loop, waker))
}

/// Waiting on an event loop's thread stops all its tasks: said once.
pub(crate) fn warn_if_on_loop(py: Python<'_>) -> PyResult<()> {
    warning(py)?.call0().map(|_| ())
}

/// What is looked up in Python once. Done when the package is imported ([`look_up_all`]): a look-up runs code of Python's,
/// so a fork in the middle of one would leave it unfinished for ever in the child.
macro_rules! looked_up {
    ($($function:ident => $module:literal, $name:literal;)*) => {
        $(fn $function<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
            static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let found = FOUND.get_or_try_init(py, || py.import($module)?.getattr($name).map(Bound::unbind))?;
            Ok(found.bind(py))
        })*
        fn look_up_names(py: Python<'_>) -> PyResult<()> {
            $($function(py)?;)*
            Ok(())
        }
    };
}

looked_up! {
    get_running_loop => "asyncio", "get_running_loop";
    bell_of => "keepstep._loops", "bell_of";
    warning => "keepstep._loops", "warn_if_on_loop";
}

/// Looks up all that the border needs of Python: at the end of the package's import.
#[pyfunction]
pub(crate) fn look_up_all(py: Python<'_>) -> PyResult<()> {
    crate::errors::module(py)?;
    crate::values::python_half(py)?;
    look_up_names(py)
}

const LEVELS: &str = "give \"kill\", \"power\" or \"machine\"";

/// A level that a caller gave, whatever that is.
fn level_of(given: &Bound<'_, PyAny>) -> PyResult<Level> {
    let Ok(name) = given.extract::<&str>() else {
        let value = format!("is {}", given.repr()?);
        return Err(bad_input("level", &value, LEVELS)).or_raise(given.py());
    };
    parse_level(name).or_raise(given.py())
}

/// A level by its name.
pub(crate) fn parse_level(name: &str) -> keepstep::Result<Level> {
    match name {
        "kill" => Ok(Level::Kill),
        "power" => Ok(Level::Power),
        "machine" => Ok(Level::Machine),
        other => Err(bad_input("level", &format!("is {other:?}"), LEVELS)),
    }
}

/// A time in seconds that can be waited for.
pub(crate) fn seconds_of(field: &str, seconds: f64) -> keepstep::Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| bad_input(field, &format!("is {seconds}"), "give seconds, 0 or more"))
}
