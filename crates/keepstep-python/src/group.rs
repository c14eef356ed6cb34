//! A group: the samples of one task, sealed together.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::episode::Episode;
use crate::errors::OrRaise;
use crate::run::{check_parent, id_of, opening_of, wait_patiently};
use crate::values::{Context, Walk};

/// The samples of one task and iteration.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Group {
    inner: keepstep::Group,
    run: keepstep::Run,
    task: String,
    iteration: i64,
    context: Py<Context>,
}

impl Group {
    pub(crate) fn new(
        inner: keepstep::Group,
        run: &keepstep::Run,
        task: &str,
        iteration: i64,
        context: Py<Context>,
    ) -> Self {
        Self { inner, run: run.clone(), task: task.to_owned(), iteration, context }
    }

    /// Names its episodes as whoever gave the rewards does: the engine knows their ids.
    fn in_refs(&self, error: keepstep::Error, called: &[(String, String)]) -> keepstep::Error {
        let members = self.members();
        let named = |mut text: String| {
            for (reference, id) in called.iter().chain(&members) {
                text = text.replace(&format!("episode {id}"), reference);
            }
            text
        };
        match error {
            keepstep::Error::BadInput { field, value, fix } => {
                keepstep::Error::BadInput { field: named(field), value: named(value), fix: named(fix) }
            }
            keepstep::Error::Ended { what, why } => keepstep::Error::Ended { what, why: named(why) },
            error => error,
        }
    }

    fn name(&self, sample: i64) -> keepstep::EpisodeName {
        keepstep::EpisodeName::task(self.task.clone()).iteration(self.iteration).sample(sample)
    }
}

#[pymethods]
impl Group {
    #[getter]
    fn id(&self) -> String {
        self.inner.id().to_string()
    }

    /// How people write all its episodes.
    #[getter(r#ref)]
    fn reference(&self) -> String {
        keepstep::refs::group_reference(&self.run, &self.task, self.iteration).to_string()
    }

    /// The refs and ids of its episodes, by sample.
    fn members(&self) -> Vec<(String, String)> {
        let members = self.inner.members().into_iter().enumerate();
        let shown = |(sample, id): (usize, keepstep::Id)| {
            (keepstep::refs::reference(&self.run, &self.name(sample as i64)).to_string(), id.to_string())
        };
        members.map(shown).collect()
    }

    /// Seals the group with rewards by ref and id. Durable when it returns. Gives who is missing, and why.
    #[pyo3(signature = (rewards, source, least))]
    fn seal(
        &self,
        py: Python<'_>,
        rewards: Option<Vec<(String, String, f64)>>,
        source: &str,
        least: Option<usize>,
    ) -> PyResult<BTreeMap<i64, String>> {
        let by_id = |(_, id, reward): &(String, String, f64)| Ok((id_of(py, "rewards", id)?, *reward));
        let called: Vec<(String, String)> =
            rewards.iter().flatten().map(|(reference, id, _)| (reference.clone(), id.clone())).collect();
        let rewards: Option<Vec<(keepstep::Id, f64)>> =
            rewards.map(|rewards| rewards.iter().map(by_id).collect::<PyResult<_>>()).transpose()?;
        let source = Walk::new(self.context.get()).text(py, source, "source")?;
        let sealed = py.detach(|| self.inner.seal(rewards.as_deref(), &source, least));
        Ok(sealed.map_err(|error| self.in_refs(error, &called)).or_raise(py)?.missing)
    }

    /// Says once that a reward is no number: on the thread of whoever gave it.
    fn warn_of_nan(&self, py: Python<'_>, reward: f64) -> PyResult<()> {
        Walk::new(self.context.get()).warn_of_nan(py, "reward", Some(reward), "give a number")
    }

    /// The next of its episodes that needs work, opened; None if there is none now.
    fn claim(&self, py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Option<Episode>> {
        let how = opening_of(options, self.context.get())?;
        py.detach(|| check_parent(&self.run, &how)).or_raise(py)?;
        let claimed = wait_patiently(py, how, |how| self.inner.claim(&how))?;
        let Some(episode) = claimed else { return Ok(None) };
        let sample = self.inner.members().iter().position(|member| *member == episode.id());
        let name = self.name(sample.map_or(0, |sample| sample as i64));
        Ok(Some(Episode::new(py, episode, &name, &self.context)))
    }
}
