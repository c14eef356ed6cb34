//! Which episodes this process has open: it cannot open one twice, and when the store closes they end.
//!
//! A store that closes first lets nobody begin any more, waits for those who are just beginning, and ends all that there are
//! then: so none escapes between the look and the end of the log.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::process::Process;
use crate::write::Recorder;

/// The episodes that are open here.
#[derive(Default)]
pub(in crate::store) struct OpenEpisodes {
    process: Process,
    taken: Arc<Register>,
}

/// The right to open an episode in this process; given back when it is dropped.
pub(in crate::store) struct Reservation {
    episode: Id,
    number: u64,
    process: Process,
    taken: Arc<Register>,
}

#[derive(Default)]
struct Register {
    taken: Mutex<Taken>,
    /// Somebody opened an episode, or left one.
    changed: Condvar,
}

#[derive(Default)]
struct Taken {
    by_episode: HashMap<Id, OpenEpisode>,
    next_number: u64,
    /// Nobody begins any more.
    is_closed: bool,
}

struct OpenEpisode {
    /// Whose reservation it is now: one whose episode is over may be taken before it is given back.
    number: u64,
    /// Its recorder is being made.
    is_beginning: bool,
    /// Whoever had it open has left, whatever became of its end: the next one takes over as from anybody.
    is_left: bool,
    recorder: Option<Weak<Recorder>>,
}

impl OpenEpisodes {
    /// Reserves an episode for whoever opens it.
    pub(in crate::store) fn take(&self, episode: Id, what: &str) -> Result<Reservation> {
        self.process.check()?;
        let mut taken = lock(&self.taken);
        if taken.is_closed {
            return Err(Error::Closed);
        }
        if taken.by_episode.get(&episode).is_some_and(|open| !open.is_over()) {
            let why = "this process has it open already; close that one first".to_owned();
            return Err(Error::Busy { what: what.to_owned(), why });
        }
        let number = taken.next_number;
        taken.next_number += 1;
        taken
            .by_episode
            .insert(episode, OpenEpisode { number, is_beginning: false, is_left: false, recorder: None });
        Ok(Reservation { episode, number, process: self.process, taken: Arc::clone(&self.taken) })
    }

    /// Who records an episode in this process now.
    pub(in crate::store) fn recorder(&self, episode: &Id) -> Option<Arc<Recorder>> {
        lock(&self.taken).by_episode.get(episode).filter(|open| !open.is_over())?.recorder()
    }

    /// True if somebody of this process has the episode open, or opens it.
    pub(in crate::store) fn is_taken(&self, episode: &Id) -> bool {
        lock(&self.taken).by_episode.get(episode).is_some_and(|open| !open.is_over())
    }

    /// To be asked before the recorder of an episode whose reservation is taken is made: from here on [`OpenEpisodes::close`] waits
    /// until it is made, or the reservation was given back.
    pub(in crate::store) fn begin(&self, episode: &Id) -> Result<()> {
        let mut taken = lock(&self.taken);
        if taken.is_closed {
            return Err(Error::Closed);
        }
        if let Some(open) = taken.by_episode.get_mut(episode) {
            open.is_beginning = true;
        }
        Ok(())
    }

    /// Nobody begins from here on. Gives all that record now.
    pub(in crate::store) fn close(&self) -> Vec<Arc<Recorder>> {
        let mut taken = lock(&self.taken);
        taken.is_closed = true;
        while taken.by_episode.values().any(|open| open.is_beginning) {
            taken = self.taken.changed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.by_episode.values().filter_map(OpenEpisode::recorder).collect()
    }

    /// True if the store was closed, or is being closed.
    pub(in crate::store) fn is_closed(&self) -> bool {
        lock(&self.taken).is_closed
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Reservation of episode {}>", self.episode)
    }
}

impl OpenEpisode {
    fn recorder(&self) -> Option<Arc<Recorder>> {
        self.recorder.as_ref()?.upgrade()
    }

    /// Its end is durable, or its recorder is gone, which said its end before it went: nobody can record there any more.
    fn is_over(&self) -> bool {
        if self.is_left {
            return true;
        }
        let Some(recorder) = &self.recorder else { return false };
        recorder.upgrade().is_none_or(|recorder| recorder.is_over())
    }
}

impl Reservation {
    /// This records it.
    pub(in crate::store) fn attach(&self, recorder: &Arc<Recorder>) {
        let recorder = Some(Arc::downgrade(recorder));
        let open = OpenEpisode { number: self.number, is_beginning: false, is_left: false, recorder };
        lock(&self.taken).by_episode.insert(self.episode, open);
        self.taken.changed.notify_all();
    }

    /// Lets others of this process have the episode, although its recorder is still there.
    pub(in crate::store) fn leave(&self) {
        let mut taken = lock(&self.taken);
        if let Some(open) = taken.by_episode.get_mut(&self.episode)
            && open.number == self.number
        {
            open.is_left = true;
        }
        self.taken.changed.notify_all();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A forked child has nothing to give back, and the lock may be held by a thread that it does not have.
        if !self.process.is_this() {
            return;
        }
        let mut taken = lock(&self.taken);
        if taken.by_episode.get(&self.episode).is_some_and(|open| open.number == self.number) {
            taken.by_episode.remove(&self.episode);
            self.taken.changed.notify_all();
        }
    }
}

fn lock(register: &Register) -> MutexGuard<'_, Taken> {
    // A map that is whole at every moment.
    register.taken.lock().unwrap_or_else(PoisonError::into_inner)
}
