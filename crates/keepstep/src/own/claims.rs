//! Claims: which writer has an attempt. A claim is exclusive and durable when it is made, and is never deleted or
//! reused.
//!
//! Many threads of a process claim at once. The first one does the work for all that wait, so that many claims share
//! their syncs.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;
use keepstep_format::{Id, card, fields};

use super::encode_fields;
use crate::disk::{self, Disk, NewCard};
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::segment::chain::claim_path;

const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// A claim that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewClaim<'c> {
    /// The episode.
    pub(crate) episode: &'c Id,
    /// Which attempt of it.
    pub(crate) attempt: u32,
    /// Who claims it.
    pub(crate) writer: &'c Id,
    /// The id of the run's generation.
    pub(crate) generation_id: &'c Id,
    /// How many samples its group has, if it is claimed as a slot of one.
    pub(crate) group_size: Option<u64>,
}

/// Makes the claims of a process, in batches.
pub(crate) struct ClaimBatcher {
    disk: Arc<dyn Disk>,
    store: Id,
    key: ContentKey,
    /// How long a claim waits for a disk that is full or fails.
    stall: Duration,
    /// Tells whether the waiting caller wants to stop.
    interrupt: Option<fn() -> bool>,
    queue: Mutex<Queue>,
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Arc<WantedClaim>>,
    is_served: bool,
}

/// A claim that a thread waits for.
struct WantedClaim {
    path: String,
    content: Vec<u8>,
    outcome: Mutex<Option<Result<bool>>>,
}

impl ClaimBatcher {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: Id, key: ContentKey, options: &Options) -> Self {
        let stall = options.stall;
        let interrupt = options.interrupt;
        Self { disk, store, key, stall, interrupt, queue: Mutex::default(), done: Condvar::new() }
    }

    /// Claims an attempt for a writer. False if another writer has it; durable otherwise.
    pub(crate) fn claim(&self, new: &NewClaim<'_>) -> Result<bool> {
        self.claim_at(&claim_path(new.episode, new.attempt), new)
    }

    /// As [`ClaimBatcher::claim`], for any path.
    pub(crate) fn claim_at(&self, path: &str, new: &NewClaim<'_>) -> Result<bool> {
        let mut said = vec![
            (fields::TIME, Value::Int(self.disk.now_us())),
            (fields::GENERATION_ID, Value::bytes(new.generation_id.0)),
            (fields::WRITER, Value::bytes(new.writer.0)),
            (fields::ATTEMPT, Value::Int(i64::from(new.attempt))),
            (fields::EPISODE, Value::bytes(new.episode.0)),
        ];
        said.extend(new.group_size.map(|size| (fields::GROUP_SIZE, Value::Int(size as i64))));
        let body = encode_fields(&self.key, &said);
        let content = card::Card::encode(&self.store, path, card::kind::CLAIM, &body);
        self.insist(path, &content)
    }

    /// Tries again while the disk is full or fails, for as long as a step would wait.
    fn insist(&self, path: &str, content: &[u8]) -> Result<bool> {
        let started_us = self.disk.uptime_us();
        let (mut backoff, mut has_failed) = (BACKOFF_FIRST, false);
        loop {
            let tried = match self.wait_for(Arc::new(WantedClaim {
                path: path.to_owned(),
                content: content.to_vec(),
                outcome: Mutex::new(None),
            })) {
                // An earlier try that failed may have made the name all the same.
                Ok(false) if has_failed => self.is_ours(path, content).doing("claim", path),
                tried => tried,
            };
            let Err(error) = tried else { return tried };
            if matches!(&error, Error::Io { source, .. } if disk::store_is_deleted(&*self.disk, source)) {
                return Err(Error::Vanished { path: path.to_owned() });
            }
            let waited = Duration::from_micros((self.disk.uptime_us() - started_us).max(0) as u64);
            if waited >= self.stall {
                return Err(told(error, content.len(), waited));
            }
            if self.interrupt.is_some_and(|is_interrupted| is_interrupted()) {
                return Err(Error::Interrupted);
            }
            has_failed = true;
            self.disk.sleep(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// True if the name is taken by this very claim, which is then durable.
    fn is_ours(&self, path: &str, content: &[u8]) -> io::Result<bool> {
        let is_ours = self.disk.get(path)? == content;
        if is_ours {
            self.disk.settle(disk::parent(path))?;
        }
        Ok(is_ours)
    }

    fn wait_for(&self, wish: Arc<WantedClaim>) -> Result<bool> {
        let mut queue = lock(&self.queue);
        queue.waiting.push(Arc::clone(&wish));
        loop {
            if let Some(outcome) = lock(&wish.outcome).take() {
                return outcome;
            }
            if queue.is_served {
                queue = self.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_served = true;
            let wishes = std::mem::take(&mut queue.waiting);
            drop(queue);
            self.serve(&wishes);
            queue = lock(&self.queue);
            queue.is_served = false;
            self.done.notify_all();
        }
    }

    fn serve(&self, wishes: &[Arc<WantedClaim>]) {
        let cards = wishes.iter().map(|wish| NewCard { path: &wish.path, content: &wish.content });
        let outcomes = self.disk.put_all(&cards.collect::<Vec<_>>());
        for (wish, outcome) in wishes.iter().zip(outcomes) {
            let told = outcome.map_err(|error| Error::io("claim", &wish.path, error));
            *lock(&wish.outcome) = Some(told);
        }
    }
}

/// Turns an error into the one that tells the caller what to do.
fn told(error: Error, bytes: usize, waited: Duration) -> Error {
    let Error::Io { path, source, .. } = &error else { return error };
    if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        let (path, bytes) = (path.clone(), bytes as u64);
        return Error::DiskFull { path, bytes, waited_s: waited.as_secs() };
    }
    error
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave these values half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
