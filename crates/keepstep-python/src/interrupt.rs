//! Ctrl-C while something waits for the disk: heard at once, though the interpreter is released.
//!
//! Signals are handled by the main thread, between two instructions of Python, and there are none while the engine waits. So
//! the engine asks now and then, on the thread that waits. What the handler raises is kept until the engine has come back.

use std::cell::RefCell;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

thread_local! {
    /// What the handler of a signal raised while this thread waited.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// How often a wait is interrupted to look for signals.
const EVERY: Duration = Duration::from_millis(50);

/// True if a signal came whose handler raised.
pub(crate) fn is_interrupted() -> bool {
    // While the interpreter is ending nobody is left to hear of it.
    let checked = Python::try_attach(|py| py.check_signals());
    let Some(Err(raised)) = checked else { return false };
    RAISED.set(Some(raised));
    true
}

/// What the handler raised.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Where nothing can be raised, the signal comes again when something can.
pub(crate) fn put_back(py: Python<'_>) {
    if take_raised().is_some() {
        let again = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
        if let Err(error) = again {
            error.write_unraisable(py, None);
        }
    }
}

/// Waits for work that may take as long as the disk is full. If a signal comes, it goes on without the caller.
pub(crate) fn wait(py: Python<'_>, work: impl FnOnce() + Send + 'static) -> PyResult<()> {
    let (done, came) = channel();
    let run = move || {
        work();
        let _ = done.send(());
    };
    let thread = std::thread::Builder::new().name("keepstep-close".to_owned()).spawn(run);
    if let Err(error) = thread {
        return Err(error.into());
    }
    let came = Mutex::new(came);
    let look = || came.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(EVERY);
    loop {
        match py.detach(look) {
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}
