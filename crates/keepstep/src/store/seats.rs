//! Which episodes this process has open: it cannot open one twice, and when the store closes they end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::write::Recorder;

/// The episodes that are open here.
#[derive(Default)]
pub(super) struct Seats {
    taken: Arc<Mutex<Taken>>,
}

/// The right to open an episode in this process; given back when it is dropped.
pub(super) struct Seat {
    episode: Id,
    taken: Arc<Mutex<Taken>>,
}

impl Seats {
    /// Takes the seat of an episode.
    pub(super) fn take(&self, episode: Id, what: &str) -> Result<Seat> {
        let mut taken = lock(&self.taken);
        if taken.contains_key(&episode) {
            let why = "this process has it open already; close that one first".to_owned();
            return Err(Error::Busy { what: what.to_owned(), why });
        }
        taken.insert(episode, None);
        Ok(Seat { episode, taken: Arc::clone(&self.taken) })
    }

    /// All that record now.
    pub(super) fn recorders(&self) -> Vec<Arc<Recorder>> {
        lock(&self.taken).values().filter_map(|recorder| recorder.as_ref()?.upgrade()).collect()
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Seat of episode {}>", self.episode)
    }
}

impl Seat {
    /// This records it.
    pub(super) fn sit(&self, recorder: &Arc<Recorder>) {
        lock(&self.taken).insert(self.episode, Some(Arc::downgrade(recorder)));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.taken).remove(&self.episode);
    }
}

type Taken = HashMap<Id, Option<Weak<Recorder>>>;

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // A map that is whole at every moment.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}
