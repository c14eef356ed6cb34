//! References: how people and commands name an episode.

use pyo3::prelude::*;

use crate::errors::{OrRaise, bad_input};

/// `run/task#iteration.sample`, odd characters percent-encoded.
#[pyfunction]
pub(crate) fn reference(run: &str, task: &str, iteration: i64, sample: i64) -> String {
    keepstep_cli::reference(run, task, iteration, sample)
}

/// The parts of a reference: run, task, iteration, sample, attempt, step. Without a task, `run` is an id.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
pub(crate) fn parse_reference(
    py: Python<'_>,
    text: &str,
) -> PyResult<(String, Option<String>, i64, i64, Option<u32>, Option<u64>)> {
    let wrong = |fix: String| bad_input("ref", &format!("is {text:?}"), &fix);
    let named = keepstep_cli::parse_reference(text).map_err(wrong).or_raise(py)?;
    let (iteration, sample) = (named.iteration.unwrap_or(0), named.sample.unwrap_or(0));
    Ok((named.run, named.task, iteration, sample, named.attempt, named.step))
}
