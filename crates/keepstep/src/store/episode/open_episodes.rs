//! Which episodes are open in this process: none can be opened twice, and all end when the store closes.
//!
//! A store that closes first refuses new episodes, then waits for those that are just beginning, then ends all open
//! ones. So no episode is missed.

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

/// The right to open an episode in this process. Dropping it gives the right back.
pub(in crate::store) struct Reservation {
    episode: Id,
    number: u64,
    process: Process,
    taken: Arc<Register>,
}

#[derive(Default)]
struct Register {
    taken: Mutex<Taken>,
    /// An episode was opened or left.
    changed: Condvar,
}

#[derive(Default)]
struct Taken {
    by_episode: HashMap<Id, OpenEpisode>,
    next_number: u64,
    /// True if no episode may begin any more.
    is_closed: bool,
}

struct OpenEpisode {
    /// The number of the present reservation. After its episode is over, another one may replace it before it is
    /// dropped.
    number: u64,
    /// True while its recorder is being made.
    is_beginning: bool,
    /// True if the handle was left, whether or not its end was recorded. The next one takes the episode over.
    is_left: bool,
    recorder: Option<Weak<Recorder>>,
}

impl OpenEpisodes {
    /// Reserves an episode for a caller that opens it.
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

    /// The recorder of an episode in this process.
    pub(in crate::store) fn recorder(&self, episode: &Id) -> Option<Arc<Recorder>> {
        lock(&self.taken).by_episode.get(episode).filter(|open| !open.is_over())?.recorder()
    }

    /// True if the episode is open in this process, or is being opened.
    pub(in crate::store) fn is_taken(&self, episode: &Id) -> bool {
        lock(&self.taken).by_episode.get(episode).is_some_and(|open| !open.is_over())
    }

    /// Call this before the recorder of a reserved episode is made. From then on [`OpenEpisodes::close`] waits until
    /// it is made, or the reservation is dropped.
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

    /// Refuses new episodes from now on. Returns all recorders that there are.
    pub(in crate::store) fn close(&self) -> Vec<Arc<Recorder>> {
        let mut taken = lock(&self.taken);
        taken.is_closed = true;
        while taken.by_episode.values().any(|open| open.is_beginning) {
            taken = self.taken.changed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.by_episode.values().filter_map(OpenEpisode::recorder).collect()
    }

    /// True if the store was closed or is closing.
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

    /// True if nobody can record there any more: its end is durable, or its recorder was dropped, which recorded an
    /// end.
    fn is_over(&self) -> bool {
        if self.is_left {
            return true;
        }
        let Some(recorder) = &self.recorder else { return false };
        recorder.upgrade().is_none_or(|recorder| recorder.is_over())
    }
}

impl Reservation {
    /// Sets the recorder of the episode.
    pub(in crate::store) fn attach(&self, recorder: &Arc<Recorder>) {
        let recorder = Some(Arc::downgrade(recorder));
        let open = OpenEpisode { number: self.number, is_beginning: false, is_left: false, recorder };
        lock(&self.taken).by_episode.insert(self.episode, open);
        self.taken.changed.notify_all();
    }

    /// Lets other callers of this process open the episode, although its recorder still exists.
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
        // A forked child has nothing to give back, and a thread that does not exist there may hold the lock.
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
    // A panic cannot leave this map half-changed.
    register.taken.lock().unwrap_or_else(PoisonError::into_inner)
}
