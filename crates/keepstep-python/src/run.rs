//! A run: opens episodes, plans them, hands out what remains.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keepstep::{
    EpisodeName, Id, Jobs, NewPolicy, Next, Opening, PlanOptions, PolicyName, RemainingOptions, Resume,
    WhenBusy, format,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::episode::Episode;
use crate::errors::{OrRaise, bad_input, raise};
use crate::group::Group;
use crate::receipt::Receipt;
use crate::stream::Stream;
use crate::values::{Context, Walk, from_value};

/// A named set of episodes with one config.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Run {
    pub(crate) inner: keepstep::Run,
    pub(crate) context: Py<Context>,
}

/// How an episode is opened, from keyword arguments.
pub(crate) fn opening_of(given: &Bound<'_, PyDict>, context: &Context) -> PyResult<Opening> {
    let py = given.py();
    let mut how = Opening::default();
    for (name, value) in given.iter() {
        // A name that no UTF-8 has is not known here either.
        let name = name.extract::<String>().or_else(|_| name.repr().map(|shown| shown.to_string()))?;
        let wrong = |fix: &str| bad_input(&name, &format!("is {}", crate::fields::kind_of(&value)), fix);
        let text = || value.extract::<String>().ok();
        if value.is_none() {
            continue;
        }
        match name.as_str() {
            "resume" => {
                how.resume = match text().as_deref() {
                    Some("continue") => Resume::Continue,
                    Some("restart") => Resume::Restart,
                    Some("refuse") => Resume::Refuse,
                    _ => return Err(wrong("give \"continue\", \"restart\" or \"refuse\"")).or_raise(py),
                }
            }
            "busy" => {
                how.busy = match text().as_deref() {
                    Some("raise") => WhenBusy::Raise,
                    Some("wait") => WhenBusy::Wait(Duration::MAX),
                    Some("take") => WhenBusy::Take,
                    _ => return Err(wrong("give \"raise\", \"wait\" or \"take\"")).or_raise(py),
                }
            }
            "at" => {
                let at =
                    value.extract::<u64>().map_err(|_| wrong("give how many steps to inherit, 0 or more"));
                how.at = Some(at.or_raise(py)?);
            }
            "policy" => {
                let fix = "give an integer of 64 bits, or a string";
                how.policy = Some(policy_of(&value).ok_or_else(|| wrong(fix)).or_raise(py)?)
            }
            "new_policy" => {
                how.new_policy = match text().as_deref() {
                    Some("continue") => NewPolicy::Continue,
                    Some("restart") => NewPolicy::Restart,
                    Some("refuse") => NewPolicy::Refuse,
                    _ => return Err(wrong("give \"continue\", \"restart\" or \"refuse\"")).or_raise(py),
                }
            }
            "retry" => {
                let retry = value
                    .extract::<Vec<String>>()
                    .map_err(|_| wrong("give a list of endings, such as [\"truncated\"]"));
                how.retry = retry.or_raise(py)?;
            }
            "parent" => how.parent = Some(text().ok_or_else(|| wrong("give a ref")).or_raise(py)?),
            "meta" => how.meta = Some(Walk::new(context).value(&value, "meta")?),
            _ => {
                let fix = "give some of resume, at, busy, policy, new_policy, retry, parent, meta, on_error";
                return Err(bad_input(&name, "is not known here", fix)).or_raise(py);
            }
        }
    }
    Ok(how)
}

/// Refuses a parent that names nothing: whoever looks for it later would not find it either. A whole name costs a look-up.
pub(crate) fn check_parent(run: &keepstep::Run, how: &Opening) -> keepstep::Result<()> {
    let Some(parent) = how.parent.as_deref() else { return Ok(()) };
    let named = |error: keepstep::Error| match error {
        error @ (keepstep::Error::BadInput { .. }
        | keepstep::Error::NotFound { .. }
        | keepstep::Error::Unknown { .. }
        | keepstep::Error::Pruned { .. }) => {
            let value = format!("is {parent:?}, which names no episode that began: {error}");
            bad_input("parent", &value, "give the ref of an episode of this store")
        }
        error => error,
    };
    let of = run_of(run, parent).map_err(named)?;
    let look = || of.check_note_target(&keepstep::refs::address(&of, parent)?, parent);
    // An id may be of any run.
    let anywhere = |error| match parent.parse::<format::Id>() {
        Ok(_) => keepstep::refs::find(run.store(), parent).map(|_| ()),
        Err(_) => Err(keepstep::refs::explain(run.store(), parent, error)),
    };
    look().or_else(anywhere).map_err(named)
}

/// The run that a reference names an episode of; this one where it names none.
fn run_of(run: &keepstep::Run, reference: &str) -> keepstep::Result<keepstep::Run> {
    let Ok(wanted) = reference.parse::<keepstep::refs::Ref>() else { return Ok(run.clone()) };
    let keepstep::refs::Name::Episode { run: name, .. } = &wanted.name else { return Ok(run.clone()) };
    let is_meant = |info: &keepstep::RunInfo| {
        info.name == *name && wanted.generation.map_or(info.is_newest, |number| number == info.generation)
    };
    if is_meant(run.info()) {
        return Ok(run.clone());
    }
    let other = run.store().runs()?.into_iter().flatten().find(is_meant);
    Ok(other.map_or_else(|| run.clone(), |info| run.store().run_of(info)))
}

/// The version of a policy: a number or a name.
fn policy_of(given: &Bound<'_, PyAny>) -> Option<PolicyName> {
    let number = || given.extract::<i64>().ok().map(PolicyName::Number);
    given.extract::<String>().ok().map(PolicyName::Name).or_else(number)
}

/// Which endings are tried again, how often, and whether it is for those who score.
fn remaining_of(retry: Vec<String>, max_attempts: u32, pause_s: f64, scores: bool) -> RemainingOptions {
    let jobs = if scores { Jobs::ToScore } else { Jobs::ToRun };
    let pause = Duration::try_from_secs_f64(pause_s).unwrap_or(Duration::MAX);
    RemainingOptions::default().retry(retry).max_attempts(max_attempts).pause(pause).jobs(jobs)
}

/// Episodes that were given up: ref, attempts, errors, and the last error of the first ones.
type GivenUp = Vec<(String, u32, u32, Option<String>)>;

/// As Python has it, with the last error of so many.
fn told_given_up(
    run: &keepstep::Run,
    given_up: &[keepstep::GivenUp],
    errors_max: usize,
) -> keepstep::Result<GivenUp> {
    let told = |(index, it): (usize, &keepstep::GivenUp)| {
        let last = || match run.last_error(&it.name) {
            // One that cannot be read does not keep the others from being told.
            Err(error) if error.is_of_one_file() => Ok(Some(error.to_string())),
            error => error,
        };
        let error = if index < errors_max { last()? } else { None };
        Ok((keepstep::refs::reference(run, &it.name).to_string(), it.attempts, it.errors, error))
    };
    given_up.iter().enumerate().map(told).collect()
}

#[pymethods]
impl Run {
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    #[getter]
    fn generation_id(&self) -> String {
        self.inner.generation_id().to_string()
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.inner.info().generation
    }

    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let now = py.detach(|| self.inner.look_again()).or_raise(py)?;
        from_value(py, &now.config)
    }

    #[getter]
    fn links(&self, py: Python<'_>) -> PyResult<std::collections::BTreeMap<String, String>> {
        Ok(py.detach(|| self.inner.look_again()).or_raise(py)?.links)
    }

    /// Opens an episode; one without a task is unnamed. Waits for the disk, and for its owner if that is asked for.
    #[pyo3(signature = (task, iteration, sample, options))]
    fn open(
        &self,
        py: Python<'_>,
        task: Option<String>,
        iteration: i64,
        sample: i64,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Episode> {
        let how = opening_of(options, self.context.get())?;
        py.detach(|| check_parent(&self.inner, &how)).or_raise(py)?;
        let opened = match task {
            Some(task) => {
                let name = EpisodeName::task(task).iteration(iteration).sample(sample);
                let opened = wait_patiently(py, how, |how| self.inner.open(name.clone(), how))?;
                return Ok(Episode::new(py, opened, &name, &self.context));
            }
            None => py.detach(|| self.inner.unnamed(how)).or_raise(py)?,
        };
        let name = EpisodeName::task(String::new());
        Ok(Episode::new(py, opened, &name, &self.context))
    }

    fn group(&self, py: Python<'_>, task: &str, iteration: i64, size: usize) -> Group {
        Group::new(
            self.inner.group(task, iteration, size),
            &self.inner,
            task,
            iteration,
            self.context.clone_ref(py),
        )
    }

    fn stream(&self, py: Python<'_>, name: &str) -> Stream {
        Stream::new(self.inner.stream(name), &self.inner, self.context.clone_ref(py))
    }

    fn plan(
        &self,
        py: Python<'_>,
        tasks: Vec<String>,
        samples: u32,
        iteration: i64,
        needs: Vec<String>,
    ) -> PyResult<()> {
        let options = PlanOptions::default().samples(samples).iteration(iteration).needs(needs);
        py.detach(|| self.inner.plan(tasks, options)).or_raise(py)
    }

    fn remaining(
        &self,
        py: Python<'_>,
        retry: Vec<String>,
        max_attempts: u32,
        pause_s: f64,
        scores: bool,
    ) -> PyResult<Remaining> {
        let options = remaining_of(retry, max_attempts, pause_s, scores);
        let inner = py.detach(|| self.inner.remaining(options)).or_raise(py)?;
        Ok(Remaining {
            inner: Mutex::new(inner),
            run: self.inner.clone(),
            context: self.context.clone_ref(py),
        })
    }

    /// What remains, without claiming anything: task, iteration, sample and why.
    fn remaining_list(
        &self,
        py: Python<'_>,
        retry: Vec<String>,
        max_attempts: u32,
    ) -> PyResult<Vec<(String, i64, i64, String)>> {
        let options = RemainingOptions::default().retry(retry).max_attempts(max_attempts);
        let list = py.detach(|| self.inner.remaining_list(&options)).or_raise(py)?;
        let shown = |(name, why): (EpisodeName, std::sync::Arc<str>)| {
            (name.task, name.iteration, name.sample, why.to_string())
        };
        Ok(list.into_iter().map(shown).collect())
    }

    /// How far the plan is: counts by name, those that ended by ending, and what was given up.
    fn progress<'py>(&self, py: Python<'py>, max_attempts: u32) -> PyResult<Bound<'py, PyDict>> {
        let options = RemainingOptions::default().max_attempts(max_attempts).jobs(Jobs::ToRun);
        let (progress, given_up) = py
            .detach(|| {
                let progress = self.inner.progress(&options)?;
                let given_up = told_given_up(&self.inner, &progress.given_up, usize::MAX)?;
                Ok((progress, given_up))
            })
            .or_raise(py)?;
        let told = PyDict::new(py);
        let counts = [
            ("planned", progress.planned),
            ("not_begun", progress.not_begun),
            ("running", progress.running),
            ("interrupted", progress.interrupted),
            ("unscored", progress.unscored),
            ("pruned", progress.pruned),
            ("damaged", progress.damaged),
            ("done", progress.done()),
            ("left", progress.left()),
        ];
        for (name, count) in counts {
            told.set_item(name, count)?;
        }
        let ended = PyDict::new(py);
        for (why, count) in &progress.ended {
            ended.set_item(&**why, count)?;
        }
        told.set_item("ended", ended)?;
        told.set_item("given_up", given_up)?;
        let absent =
            progress.absent.iter().map(|name| keepstep::refs::reference(&self.inner, name).to_string());
        told.set_item("absent", absent.collect::<Vec<_>>())?;
        Ok(told)
    }

    /// How people and commands name an episode of this run.
    fn ref_of(&self, task: String, iteration: i64, sample: i64) -> String {
        keepstep::refs::reference(&self.inner, &EpisodeName::task(task).iteration(iteration).sample(sample))
            .to_string()
    }

    /// The id of the episode that a reference names.
    fn episode_id(&self, py: Python<'_>, reference: &str) -> PyResult<String> {
        let target = py.detach(|| keepstep::refs::address(&self.inner, reference)).or_raise(py)?;
        Ok(target.episode.to_string())
    }

    /// Adds a note to an episode, an attempt at it, or a step: what is there.
    #[pyo3(signature = (reference, step, name, value, source))]
    fn annotate(
        &self,
        py: Python<'_>,
        reference: &str,
        step: Option<u64>,
        name: &str,
        value: &Bound<'_, PyAny>,
        source: &str,
    ) -> PyResult<Receipt> {
        let mut walk = Walk::new(self.context.get());
        let instead = format!("give None if there is no {name}");
        walk.warn_of_nan(py, name, value.extract::<f64>().ok(), &instead)?;
        let (value, source) = (walk.value(value, name)?, walk.text(py, source, "source")?);
        let mut target = py.detach(|| keepstep::refs::address(&self.inner, reference)).or_raise(py)?;
        if let (Some(named), Some(given)) = (target.step, step.filter(|given| Some(*given) != target.step)) {
            let fix = format!("leave it out, or leave @{named} out of the ref {reference:?}");
            return Err(raise(py, &bad_input("step", &format!("is {given}"), &fix)));
        }
        target.step = target.step.or(step);
        let note = || {
            let noted = self.inner.annotate_called(target, reference, name, value, &source);
            noted.map_err(|error| keepstep::refs::explain(self.inner.store(), reference, error))
        };
        let receipt = py.detach(note).or_raise(py)?;
        Ok(Receipt::new(receipt, self.inner.store(), &format!("{name} on {reference}").into()))
    }
}

/// An id from its 32 hexadecimal digits.
pub(crate) fn id_of(py: Python<'_>, field: &str, text: &str) -> PyResult<Id> {
    let wrong = |_| bad_input(field, &format!("is {text:?}"), "give the 32 hexadecimal digits of an id");
    text.parse::<format::Id>().map_err(wrong).or_raise(py)
}

/// Tries in slices, so that Ctrl-C is heard while another process has the episode.
pub(crate) fn wait_patiently<T: Send>(
    py: Python<'_>,
    how: Opening,
    open: impl Fn(Opening) -> keepstep::Result<T> + Sync,
) -> PyResult<T> {
    const SLICE: Duration = Duration::from_millis(200);
    let WhenBusy::Wait(_) = how.busy else { return py.detach(|| open(how)).or_raise(py) };
    loop {
        let how = how.clone().busy(WhenBusy::Wait(SLICE));
        match py.detach(|| open(how)) {
            Err(keepstep::Error::Busy { .. }) => py.check_signals()?,
            opened => return opened.or_raise(py),
        }
    }
}

/// Gives jobs until nothing remains that this process could do now.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Remaining {
    inner: Mutex<keepstep::Remaining>,
    run: keepstep::Run,
    context: Py<Context>,
}

impl Remaining {
    fn ref_of(&self, name: &EpisodeName) -> String {
        keepstep::refs::reference(&self.run, name).to_string()
    }
}

#[pymethods]
impl Remaining {
    /// The next job; or in how many seconds to ask again, since what errored rests; or nothing.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        // A forked child does not have the thread that may hold the lock.
        self.run.store().check_process().or_raise(py)?;
        let next = py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).try_next());
        Ok(match next.or_raise(py)? {
            Next::Job(job) => Py::new(py, Job::new(*job, &self.run, self.context.clone_ref(py)))?.into_any(),
            Next::Rest(time) => time.as_secs_f64().into_pyobject(py)?.into_any().unbind(),
            Next::Nothing => py.None(),
        })
    }

    /// What this process let go unopened as often as an episode may fail, with how often that was.
    fn returned(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        self.run.store().check_process().or_raise(py)?;
        let returned = py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).returned());
        Ok(returned.into_iter().map(|(name, times)| (self.ref_of(&name), times)).collect())
    }

    /// What this process left without an end as often as it may, with how often that was.
    fn left(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        self.run.store().check_process().or_raise(py)?;
        let left = py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).left());
        Ok(left.into_iter().map(|(name, times)| (self.ref_of(&name), times)).collect())
    }

    /// What this process scored again and again, and the notes that the plan needs of it.
    fn scored_in_vain(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<String>)>> {
        self.run.store().check_process().or_raise(py)?;
        let found = py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).scored_in_vain());
        Ok(found.into_iter().map(|(name, needs)| (self.ref_of(&name), needs)).collect())
    }

    /// Where notes may have been that cannot be read.
    fn unread_notes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run.store().check_process().or_raise(py)?;
        Ok(py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).unread_notes()))
    }

    /// What lacks a note, and was not given since somebody of this process has it.
    fn held_here(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run.store().check_process().or_raise(py)?;
        let held =
            py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).held_here().to_vec());
        Ok(held.iter().map(|name| self.ref_of(name)).collect())
    }

    /// What was given up and not told yet by this process, with the last error of so many of them.
    fn given_up(&self, py: Python<'_>, errors_max: usize) -> PyResult<GivenUp> {
        self.run.store().check_process().or_raise(py)?;
        let told = || {
            let given_up = self.inner.lock().unwrap_or_else(PoisonError::into_inner).given_up()?;
            told_given_up(&self.run, &given_up, errors_max)
        };
        py.detach(told).or_raise(py)
    }
}

/// An episode that remains, claimed for this process.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct Job {
    inner: Mutex<Option<keepstep::Job>>,
    name: EpisodeName,
    #[pyo3(get)]
    attempts: u32,
    #[pyo3(get)]
    why: String,
    reference: String,
    run: keepstep::Run,
    context: Py<Context>,
}

impl Job {
    fn new(job: keepstep::Job, run: &keepstep::Run, context: Py<Context>) -> Self {
        let (name, attempts, why) = (job.name.clone(), job.attempts, job.why.to_string());
        let reference = keepstep::refs::reference(run, &name).to_string();
        Self { inner: Mutex::new(Some(job)), name, attempts, why, reference, run: run.clone(), context }
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn task(&self) -> &str {
        &self.name.task
    }

    #[getter]
    fn iteration(&self) -> i64 {
        self.name.iteration
    }

    #[getter]
    fn sample(&self) -> i64 {
        self.name.sample
    }

    #[getter(r#ref)]
    fn reference(&self) -> &str {
        &self.reference
    }

    /// Opens the episode with the claim that the job holds: once.
    fn open(&self, py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Episode> {
        let how = opening_of(options, self.context.get())?;
        py.detach(|| check_parent(&self.run, &how)).or_raise(py)?;
        self.run.store().check_open().or_raise(py)?;
        let job = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(job) = job else {
            let fix = "ask for what remains again";
            return Err(bad_input("job", &format!("{} was opened before", self.reference), fix)).or_raise(py);
        };
        let opened = py.detach(|| job.episode(how)).or_raise(py)?;
        Ok(Episode::new(py, opened, &self.name, &self.context))
    }
}
