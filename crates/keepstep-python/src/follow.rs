//! What comes in: the steps of an attempt, the episodes and groups of a run.
//!
//! Each call waits for a moment only, with the interpreter released, so that Ctrl-C is heard between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keepstep::read::Catalog;
use keepstep::{EpisodeFilter, Error, Id, Listed, Member, Result, RunEvent, StepNews, Stopper};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::episode::step_dict;
use crate::errors::OrRaise;
use crate::receipt::seconds_of;
use crate::view::{NoteShelf, View};

/// Follows the steps of one attempt.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct StepFollow {
    store: keepstep::Store,
    inner: Mutex<keepstep::StepFollow>,
    stop: Stopper,
    is_over: AtomicBool,
}

impl StepFollow {
    pub(crate) fn new(inner: keepstep::StepFollow, store: &keepstep::Store) -> Self {
        let stop = inner.stopper();
        Self { store: store.clone(), inner: Mutex::new(inner), stop, is_over: AtomicBool::new(false) }
    }
}

#[pymethods]
impl StepFollow {
    /// The next step, if one comes in time.
    fn next<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let timeout = seconds_of("timeout_s", timeout_s).or_raise(py)?;
        let wait = || {
            // A forked child does not have the thread that may hold the lock.
            self.store.check_process()?;
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).next(timeout)
        };
        match py.detach(wait).or_raise(py)? {
            StepNews::Step(step) => step_dict(py, &step).map(Some),
            StepNews::Nothing => Ok(None),
            StepNews::Over => {
                self.is_over.store(true, Ordering::Release);
                Ok(None)
            }
        }
    }

    /// True if nothing more comes.
    #[getter]
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends a wait in another thread.
    fn stop(&self) {
        self.stop.stop();
    }
}

/// What happens in a run, in the order in which it is told.
#[pyclass(frozen, module = "keepstep._core")]
pub(crate) struct RunFollow {
    run: keepstep::Run,
    filter: EpisodeFilter,
    notes: Arc<NoteShelf>,
    inner: Mutex<Inner>,
}

struct Inner {
    follow: keepstep::RunFollow,
    catalog: Catalog,
    /// What is wrong, and was not told yet.
    troubles: Vec<String>,
}

/// What a short wait gave.
enum News<T> {
    Came(T),
    /// Something happened that is not wanted, or not decided: there may be more.
    Busy,
    /// Nothing happened.
    Quiet,
}

/// What came, whether nothing happened at all, and what is wrong that was found on the way.
type Heard<T> = (Option<T>, bool, Vec<String>);

/// A sealed group, for Python: ref, members and their rewards, who is missing and why, source, time, cursor.
type GroupParts = (String, Vec<(View, Option<f64>)>, Vec<(i64, String)>, String, f64, String);

impl RunFollow {
    pub(crate) fn new(run: &keepstep::Run, filter: EpisodeFilter, after: Option<&str>) -> Result<Self> {
        let (follow, catalog) = (run.follow(after)?, run.store().catalog()?);
        let troubles = catalog.troubles().into_iter().map(|trouble| trouble.error.to_string()).collect();
        let inner = Inner { follow, catalog, troubles };
        let notes = Arc::new(NoteShelf::live());
        Ok(Self { run: run.clone(), filter, notes, inner: Mutex::new(inner) })
    }

    /// Waits for something that `take` wants, no longer than it is told.
    fn wait<T>(
        &self,
        timeout: Duration,
        mut take: impl FnMut(&mut Inner, RunEvent, String) -> Result<Option<T>>,
    ) -> Result<Heard<T>> {
        self.run.store().check_process()?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let news = loop {
            let left = timeout.saturating_sub(started.elapsed());
            let Some((event, cursor)) = inner.follow.next(left)? else { break News::Quiet };
            if let RunEvent::Unreadable { why } = event {
                inner.troubles.push(why);
            } else if let Some(taken) = take(&mut inner, event, cursor)? {
                break News::Came(taken);
            }
            if left.is_zero() {
                break News::Busy;
            }
        };
        let troubles = std::mem::take(&mut inner.troubles);
        Ok(match news {
            News::Came(came) => (Some(came), false, troubles),
            News::Busy => (None, false, troubles),
            News::Quiet => (None, true, troubles),
        })
    }

    /// Opens an attempt, and notes what is wrong with it.
    fn open(&self, inner: &mut Inner, listed: Listed, cursor: String) -> Result<View> {
        let name = keepstep::refs::name_of(&listed).to_string();
        let view = View::of_event(self.run.store(), listed, &inner.catalog, cursor, &self.notes)?;
        inner.troubles.extend(view.trouble().map(|trouble| format!("{name}: {trouble}")));
        Ok(view)
    }

    /// An attempt that ended, if it is wanted.
    fn ended(&self, inner: &mut Inner, episode: &Id, attempt: u32, cursor: String) -> Result<Option<View>> {
        // Lists show the attempt that took over an end, and so does whoever asks for the last attempt only.
        let attempt = match self.filter.all_attempts {
            true => Some(attempt),
            false => self.run.store().last_with_end_of(episode, attempt)?,
        };
        let Some(attempt) = attempt else { return Ok(None) };
        let Some(listed) = self.attempt(inner, episode, attempt)? else { return Ok(None) };
        let is_wanted = match self.run.wants(&inner.catalog, &listed, &self.filter) {
            // What cannot be read may be what is wanted.
            Err(error) if error.is_of_one_file() => true,
            wants => wants?,
        };
        if is_wanted { self.open(inner, listed, cursor).map(Some) } else { Ok(None) }
    }

    /// What a list says of an attempt; nothing if it is not there any more.
    fn attempt(&self, inner: &mut Inner, episode: &Id, attempt: u32) -> Result<Option<Listed>> {
        let listed = match self.run.store().list_one(&mut inner.catalog, episode) {
            Err(Error::NotFound { .. } | Error::Pruned { .. }) => return Ok(None),
            listed => listed?,
        };
        let mut of_it = listed.into_iter().filter(|it| it.key.attempt == attempt);
        Ok(of_it.clone().find(|it| it.is_in_force).or_else(|| of_it.next()))
    }

    fn sealed(&self, inner: &mut Inner, group: &Id, cursor: String) -> Result<Option<GroupParts>> {
        let sealed = match self.run.sealed_group(group) {
            Err(error) if error.is_of_one_file() => {
                inner.troubles.push(error.to_string());
                return Ok(None);
            }
            sealed => sealed?,
        };
        let Some(sealed) = sealed else { return Ok(None) };
        let mut missing: Vec<(i64, String)> = sealed.missing.into_iter().collect();
        let mut members = Vec::new();
        for Member { episode, attempt, sample, reward, .. } in sealed.members {
            match self.attempt(inner, &episode, attempt)? {
                Some(listed) => members.push((self.open(inner, listed, cursor.clone())?, reward)),
                None if inner.catalog.pruned(&episode).is_some() => {
                    missing.push((sample, "pruned".to_owned()));
                }
                None => {
                    let why = format!(
                        "damaged: attempt {attempt} at episode {episode} is sealed, and is in no log"
                    );
                    inner.troubles.push(why.clone());
                    missing.push((sample, why));
                }
            }
        }
        let reference =
            keepstep::refs::group_reference(&self.run, &sealed.task, sealed.iteration).to_string();
        Ok(Some((reference, members, missing, sealed.source, sealed.time as f64 / 1e6, cursor)))
    }
}

#[pymethods]
impl RunFollow {
    /// The next episode that ended, whether nothing happened at all, and what is wrong.
    fn next_episode(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Heard<View>> {
        let timeout = seconds_of("timeout_s", timeout_s).or_raise(py)?;
        let wait = || {
            self.wait(timeout, |inner, event, cursor| match event {
                RunEvent::Ended { episode, attempt, .. } => self.ended(inner, &episode, attempt, cursor),
                RunEvent::Sealed { .. } | RunEvent::Unreadable { .. } => Ok(None),
            })
        };
        py.detach(wait).or_raise(py)
    }

    /// The next group that was sealed, whether nothing happened at all, and what is wrong.
    fn next_group(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Heard<GroupParts>> {
        let timeout = seconds_of("timeout_s", timeout_s).or_raise(py)?;
        let wait = || {
            self.wait(timeout, |inner, event, cursor| match event {
                RunEvent::Sealed { group } => self.sealed(inner, &group, cursor),
                RunEvent::Ended { .. } | RunEvent::Unreadable { .. } => Ok(None),
            })
        };
        py.detach(wait).or_raise(py)
    }
}
