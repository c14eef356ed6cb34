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
    number: u64,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    by_episode: HashMap<Id, Sitting>,
    next_number: u64,
}

struct Sitting {
    /// Whose seat it is now: one whose episode is over may be taken before it is given back.
    number: u64,
    recorder: Option<Weak<Recorder>>,
}

impl Seats {
    /// Takes the seat of an episode.
    pub(super) fn take(&self, episode: Id, what: &str) -> Result<Seat> {
        let mut taken = lock(&self.taken);
        if taken.by_episode.get(&episode).is_some_and(|sitting| !sitting.is_over()) {
            let why = "this process has it open already; close that one first".to_owned();
            return Err(Error::Busy { what: what.to_owned(), why });
        }
        let number = taken.next_number;
        taken.next_number += 1;
        taken.by_episode.insert(episode, Sitting { number, recorder: None });
        Ok(Seat { episode, number, taken: Arc::clone(&self.taken) })
    }

    /// True if somebody of this process has the episode open, or opens it.
    pub(super) fn is_taken(&self, episode: &Id) -> bool {
        lock(&self.taken).by_episode.get(episode).is_some_and(|sitting| !sitting.is_over())
    }

    /// All that record now.
    pub(super) fn recorders(&self) -> Vec<Arc<Recorder>> {
        lock(&self.taken).by_episode.values().filter_map(Sitting::recorder).collect()
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Seat of episode {}>", self.episode)
    }
}

impl Sitting {
    fn recorder(&self) -> Option<Arc<Recorder>> {
        self.recorder.as_ref()?.upgrade()
    }

    /// Its end is durable, or its recorder is gone, which said its end before it went: nobody can record there any more.
    fn is_over(&self) -> bool {
        let Some(recorder) = &self.recorder else { return false };
        recorder.upgrade().is_none_or(|recorder| recorder.is_over())
    }
}

impl Seat {
    /// This records it.
    pub(super) fn sit(&self, recorder: &Arc<Recorder>) {
        let sitting = Sitting { number: self.number, recorder: Some(Arc::downgrade(recorder)) };
        lock(&self.taken).by_episode.insert(self.episode, sitting);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if taken.by_episode.get(&self.episode).is_some_and(|sitting| sitting.number == self.number) {
            taken.by_episode.remove(&self.episode);
        }
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // A map that is whole at every moment.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}
