//! Claims: whose an attempt is. Exclusive, durable when they are made, never deleted, never used again.
//!
//! Many threads of a process claim at once: whoever comes first does the work for all that wait, so that many claims
//! share their syncs.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;
use keepstep_format::{Id, card, fields};

use super::encode_fields;
use crate::disk::{self, Disk, Temporary};
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::segment::chain::claim_path;

/// How many threads wait for syncs of one batch, and how many syncs make one of them worth while: with few, threads cost
/// more than they spare (8 processes with 8 workers each claimed half as fast).
const THREADS_MAX: usize = 16;
const SYNCS_EACH: usize = 4;

const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Where a process makes its claims.
pub(crate) struct ClaimDesk {
    disk: Arc<dyn Disk>,
    store: Id,
    key: ContentKey,
    by_rename: bool,
    /// How long a claim waits for a disk that is full or fails.
    stall: Duration,
    queue: Mutex<Queue>,
    done: Condvar,
    /// Folders that are known to be there, and safe.
    folders: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Arc<Wish>>,
    is_served: bool,
}

/// A claim that somebody wants.
struct Wish {
    path: String,
    content: Vec<u8>,
    outcome: Mutex<Option<Result<bool>>>,
}

impl ClaimDesk {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: Id, key: ContentKey, options: &Options) -> Self {
        let (queue, folders) = (Mutex::default(), Mutex::default());
        let (by_rename, stall) = (options.is_broken_rename(), options.stall);
        Self { disk, store, key, by_rename, stall, queue, done: Condvar::new(), folders }
    }

    /// Claims an attempt for a writer. False if somebody else has it; durable if not.
    pub(crate) fn claim(&self, episode: &Id, attempt: u32, writer: &Id, birth: &Id) -> Result<bool> {
        let path = claim_path(episode, attempt);
        let body = encode_fields(
            &self.key,
            &[
                (fields::TIME, Value::Int(self.disk.now_us())),
                (fields::BIRTH, Value::bytes(birth.0)),
                (fields::WRITER, Value::bytes(writer.0)),
                (fields::ATTEMPT, Value::Int(i64::from(attempt))),
                (fields::EPISODE, Value::bytes(episode.0)),
            ],
        );
        let content = card::Card::encode(&self.store, &path, card::kind::CLAIM, &body);
        self.insist(&path, &content)
    }

    /// Tries again while the disk is full or fails, for as long as a step would wait.
    fn insist(&self, path: &str, content: &[u8]) -> Result<bool> {
        let started_us = self.disk.uptime_us();
        let (mut backoff, mut has_failed) = (BACKOFF_FIRST, false);
        loop {
            let wish = Wish { path: path.to_owned(), content: content.to_vec(), outcome: Mutex::new(None) };
            let tried = match self.wait_for(Arc::new(wish)) {
                // An earlier try that failed may have given it its name all the same.
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
            has_failed = true;
            self.disk.sleep(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// True if the name is taken by this very claim, which is then safe.
    fn is_ours(&self, path: &str, content: &[u8]) -> io::Result<bool> {
        let is_ours = disk::read_file(&*self.disk, path)? == content;
        if is_ours {
            self.disk.sync_dir(disk::parent(path))?;
        }
        Ok(is_ours)
    }

    fn wait_for(&self, wish: Arc<Wish>) -> Result<bool> {
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

    fn serve(&self, wishes: &[Arc<Wish>]) {
        let outcomes = self.publish_all(wishes);
        for (wish, outcome) in wishes.iter().zip(outcomes) {
            let told = outcome.map_err(|error| Error::io("claim", &wish.path, error));
            *lock(&wish.outcome) = Some(told);
        }
    }

    /// Writes all, syncs all, names all, and syncs each folder once. Syncs that wait at the same time share one commit of
    /// the file system, so they are made side by side.
    fn publish_all(&self, wishes: &[Arc<Wish>]) -> Vec<io::Result<bool>> {
        self.make_folders(wishes);
        let written: Vec<_> = wishes.iter().map(|wish| self.write(wish)).collect();
        let synced = side_by_side(&written, |made| match made {
            Ok(temporary) => temporary.file.sync(),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        });
        let made = written.into_iter().zip(synced).zip(wishes);
        let mut outcomes: Vec<io::Result<bool>> =
            made.map(|((made, synced), wish)| synced.and_then(|()| self.give_name(made?, wish))).collect();
        let won = outcomes.iter().zip(wishes).filter(|(outcome, _)| matches!(outcome, Ok(true)));
        let folders: BTreeSet<&str> = won.map(|(_, wish)| disk::parent(&wish.path)).collect();
        let folders: Vec<&str> = folders.into_iter().collect();
        let synced = side_by_side(&folders, |folder| self.disk.sync_dir(folder));
        for (folder, synced) in folders.iter().zip(synced) {
            let Err(error) = synced else { continue };
            // Whoever has a name that may vanish with the power does not have it yet.
            for (outcome, wish) in outcomes.iter_mut().zip(wishes) {
                if matches!(outcome, Ok(true)) && disk::parent(&wish.path) == *folder {
                    *outcome = Err(io::Error::new(error.kind(), error.to_string()));
                }
            }
        }
        outcomes
    }

    fn write(&self, wish: &Wish) -> io::Result<Temporary<'_>> {
        let folder = disk::parent(&wish.path);
        self.ensure_folder(folder)?;
        let temporary = Temporary::create(&*self.disk, folder)?;
        temporary.file.write_at(&wish.content, 0)?;
        Ok(temporary)
    }

    fn give_name(&self, temporary: Temporary<'_>, wish: &Wish) -> io::Result<bool> {
        if self.by_rename {
            // How not to do it: both claimants win.
            disk::publish_by_rename(&*self.disk, &wish.path, &wish.content)?;
            return Ok(true);
        }
        temporary.publish(&wish.path, false)
    }

    /// Makes the folders that a batch needs, with one sync for all. One that fails is made, and told of, with its claim.
    fn make_folders(&self, wishes: &[Arc<Wish>]) {
        let wanted: BTreeSet<&str> = wishes.iter().map(|wish| disk::parent(&wish.path)).collect();
        let missing: Vec<&str> =
            wanted.into_iter().filter(|folder| !lock(&self.folders).contains(*folder)).collect();
        if missing.len() < 2 || self.ensure_folder(disk::parent(missing[0])).is_err() {
            return;
        }
        let is_there = |folder: &str| match self.disk.create_dir(folder) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
        };
        let made: Vec<&str> = missing.into_iter().filter(|folder| is_there(folder)).collect();
        // Whoever made the others may not have synced them yet; a name that rests on one must not vanish.
        if made.first().is_some_and(|folder| self.disk.sync_dir(disk::parent(folder)).is_ok()) {
            lock(&self.folders).extend(made.into_iter().map(str::to_owned));
        }
    }

    fn ensure_folder(&self, folder: &str) -> io::Result<()> {
        if folder.is_empty() || lock(&self.folders).contains(folder) {
            return Ok(());
        }
        self.ensure_folder(disk::parent(folder))?;
        disk::ensure_dir(&*self.disk, folder)?;
        lock(&self.folders).insert(folder.to_owned());
        Ok(())
    }
}

/// Does the same with all of them, with some threads if there are many.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let each = items.len().div_ceil(THREADS_MAX).max(SYNCS_EACH);
    if items.len() < 3 * SYNCS_EACH {
        return items.iter().map(work).collect();
    }
    std::thread::scope(|scope| {
        let work = &work;
        let start = |part| scope.spawn(move || <[T]>::iter(part).map(work).collect::<Vec<R>>());
        let threads: Vec<_> = items.chunks(each).map(start).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// What went wrong, by what the caller can do about it.
fn told(error: Error, bytes: usize, waited: Duration) -> Error {
    let Error::Io { path, source, .. } = &error else { return error };
    if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        let (path, bytes) = (path.clone(), bytes as u64);
        return Error::DiskFull { path, bytes, waited_s: waited.as_secs() };
    }
    error
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
