//! The `keepstep` command, inside the wheel.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the command with these arguments, the program's name first. Gives the exit code.
#[pyfunction]
pub(crate) fn command(
    py: Python<'_>,
    program: PathBuf,
    program_arguments: Vec<OsString>,
    arguments: Vec<OsString>,
) -> u8 {
    let program = keepstep_cli::Program { path: program, arguments: program_arguments };
    py.detach(|| keepstep_cli::run(&program, arguments))
}
