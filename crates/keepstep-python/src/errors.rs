//! Which Python exception an error becomes: one match.
//!
//! The classes themselves are Python's (`keepstep/errors.py`), so that they can have builtin second parents.

use std::io::ErrorKind;

use keepstep::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The name of the exception.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::DiskFull { .. } => "DiskFull",
        Error::Io { .. } if error.is_out_of_files() => "OutOfFiles",
        Error::Io { source, .. } | Error::Stalled { source, .. } => class_of_io(source.kind()),
        Error::Vanished { .. } => "Poisoned",
        Error::EarlierFailed(cause) => class_of(cause),
        Error::Closed => "Closed",
        Error::Forked { .. } => "Forked",
        Error::Busy { .. } => "Busy",
        Error::BadInput { .. } | Error::NotAStore { .. } => "BadInput",
        Error::ConfigChanged { .. } => "ConfigChanged",
        Error::LevelOutOfReach { .. } => "LevelOutOfReach",
        Error::NewerFormat { .. } => "NewerFormat",
        Error::Fenced { .. } | Error::LogClosed { .. } => "Fenced",
        Error::Ended { .. } | Error::ResumeRefused { .. } => "Ended",
        Error::Diverged { .. } => "Diverged",
        Error::Pruned { .. } | Error::NotFound { .. } | Error::Unknown { .. } => "NotFound",
        Error::Damaged { .. } => "Damaged",
        _ => "KeepstepError",
    }
}

/// What the system refused, by what the caller can do about it: what is not allowed, or is not what it should be, is so however
/// often the store is opened.
fn class_of_io(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "DiskFull",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "NotAllowed",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::InvalidFilename => "BadInput",
        _ => "Poisoned",
    }
}

/// `keepstep/errors.py`.
pub(crate) fn module<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("keepstep.errors").map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// An exception of `keepstep.errors`, by its name.
pub(crate) fn exception(py: Python<'_>, class: &str, message: String) -> PyErr {
    let found = module(py)
        .and_then(|module| module.getattr(class))
        .and_then(|class| Ok(class.cast_into::<PyType>()?));
    match found {
        Ok(class) => PyErr::from_type(class, message),
        Err(error) => error,
    }
}

/// Turns an error of the engine into its exception.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    // What the signal's handler raised is what the caller hears of.
    if matches!(error, Error::Interrupted)
        && let Some(raised) = crate::interrupt::take_raised()
    {
        return raised;
    }
    let fix = fix_of(error).map_or_else(String::new, |fix| format!(": {fix}"));
    exception(py, class_of(error), format!("{error}{fix}"))
}

/// What to do, in the words of Python, if the error itself does not say it.
fn fix_of(error: &Error) -> Option<&'static str> {
    match error {
        // That another process has claimed the episode is told with its time; the others who are busy say what to do.
        Error::Busy { why, .. } if why.ends_with(" s ago)") => {
            Some("busy=\"wait\" waits for it, busy=\"take\" takes it over")
        }
        Error::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied => Some("check who may write there, or give another directory"),
            ErrorKind::ReadOnlyFilesystem => Some("mount it for writing, or give another directory"),
            _ => None,
        },
        _ => None,
    }
}

/// Wrong input, told as the engine tells it.
pub(crate) fn bad_input(field: &str, value: &str, fix: &str) -> Error {
    Error::BadInput { field: field.to_owned(), value: value.to_owned(), fix: fix.to_owned() }
}

/// The result of the engine, as Python sees it.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for keepstep::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}
