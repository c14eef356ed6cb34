//! Publishes files in a directory. Each is written and synced under a temporary name. Then a link gives it its name,
//! and fails if the name is taken. It counts only when the folder of that name is synced too.
//!
//! Many at once share their syncs, and are as safe as if they had been published one by one.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::files::{File, Files};
use super::{NewCard, join, parent};

/// How many threads wait for the syncs of one batch, and how many syncs make a thread worth while. For few syncs,
/// threads cost more than they save (8 processes with 8 workers each claimed half as fast).
const THREADS_MAX: usize = 16;
const SYNCS_EACH: usize = 4;
/// How often a temporary file may be deleted by another process before this is an error.
const SWEPT_MAX: u32 = 16;

/// Folders that are known to exist and to be synced.
#[derive(Default)]
pub(super) struct Folders(Mutex<BTreeSet<String>>);

impl Folders {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // A panic cannot leave this set half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a folder and its parents, unless they are known, so that they survive a power cut.
    pub(super) fn ensure(&self, files: &dyn Files, folder: &str) -> io::Result<()> {
        if folder.is_empty() || self.lock().contains(folder) {
            return Ok(());
        }
        self.ensure(files, parent(folder))?;
        make(files, folder)?;
        // The process that made it may not have synced it yet. A name in it must not vanish.
        files.sync_dir(parent(folder))?;
        self.lock().insert(folder.to_owned());
        Ok(())
    }

    /// Makes the folders that a batch needs, with one sync for all. An error is ignored here: making its file reports
    /// it.
    fn ensure_all(&self, files: &dyn Files, cards: &[NewCard<'_>]) {
        let wanted: BTreeSet<&str> = cards.iter().map(|card| parent(card.path)).collect();
        let missing: Vec<&str> = wanted.into_iter().filter(|folder| !self.lock().contains(*folder)).collect();
        let siblings = missing.first().map_or("", |first| parent(first));
        if missing.len() < 2
            || missing.iter().any(|folder| parent(folder) != siblings)
            || self.ensure(files, siblings).is_err()
        {
            return;
        }
        let made: Vec<&str> = missing.into_iter().filter(|folder| make(files, folder).is_ok()).collect();
        if !made.is_empty() && files.sync_dir(siblings).is_ok() {
            self.lock().extend(made.into_iter().map(str::to_owned));
        }
    }

    /// The folder was deleted, and perhaps its parents too.
    fn forget(&self, folder: &str) {
        let is_above = |known: &str| folder.strip_prefix(known).is_some_and(|rest| rest.starts_with('/'));
        self.lock().retain(|known| known != folder && !is_above(known));
    }
}

/// Makes a folder that may exist already.
fn make(files: &dyn Files, folder: &str) -> io::Result<()> {
    match files.create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Publishes one; false if its name is taken.
pub(super) fn publish(files: &dyn Files, folders: &Folders, card: &NewCard<'_>) -> io::Result<bool> {
    let mut swept = 0;
    loop {
        let published = write(files, folders, card).and_then(|temporary| {
            temporary.file.sync()?;
            temporary.publish(card.path, true)
        });
        match published {
            // A process that deletes leftovers without a grace period may have deleted the temporary file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && swept < SWEPT_MAX => {
                folders.forget(parent(card.path));
                swept += 1;
            }
            published => return published,
        }
    }
}

/// Publishes each file under a name that is free; false if the name is taken. Writes all, syncs all, links all, and
/// syncs each folder once.
pub(super) fn publish_all(
    files: &dyn Files,
    folders: &Folders,
    cards: &[NewCard<'_>],
) -> Vec<io::Result<bool>> {
    if let [only] = cards {
        return vec![publish(files, folders, only)];
    }
    folders.ensure_all(files, cards);
    let made = write_all(files, folders, cards).into_iter().zip(cards);
    let mut outcomes: Vec<io::Result<bool>> =
        made.map(|(made, card)| give_name(files, folders, made, card)).collect();
    let won = outcomes.iter().zip(cards).filter(|(outcome, _)| matches!(outcome, Ok(true)));
    let named: BTreeSet<&str> = won.map(|(_, card)| parent(card.path)).collect();
    let named: Vec<&str> = named.into_iter().collect();
    let synced = side_by_side(&named, |folder| files.sync_dir(folder));
    for (folder, synced) in named.iter().zip(synced) {
        let Err(error) = synced else { continue };
        // A name that a power cut may remove does not count yet.
        for (outcome, card) in outcomes.iter_mut().zip(cards) {
            if matches!(outcome, Ok(true)) && parent(card.path) == *folder {
                *outcome = Err(io::Error::new(error.kind(), error.to_string()));
            }
        }
    }
    outcomes
}

/// Writes and syncs temporary files. Syncs at the same time share one commit of the file system, so they run in
/// parallel.
fn write_all<'f>(
    files: &'f dyn Files,
    folders: &Folders,
    cards: &[NewCard<'_>],
) -> Vec<io::Result<Temporary<'f>>> {
    let written: Vec<_> = cards.iter().map(|card| write(files, folders, card)).collect();
    let synced = side_by_side(&written, |made| match made {
        Ok(temporary) => temporary.file.sync(),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    });
    written.into_iter().zip(synced).map(|(made, synced)| synced.and(made)).collect()
}

fn write<'f>(files: &'f dyn Files, folders: &Folders, card: &NewCard<'_>) -> io::Result<Temporary<'f>> {
    let folder = parent(card.path);
    folders.ensure(files, folder)?;
    let temporary = Temporary::create(files, folder)?;
    temporary.file.write_at(card.content, 0)?;
    Ok(temporary)
}

fn give_name(
    files: &dyn Files,
    folders: &Folders,
    made: io::Result<Temporary<'_>>,
    card: &NewCard<'_>,
) -> io::Result<bool> {
    match made.and_then(|temporary| temporary.publish(card.path, false)) {
        // Another process deleted it as a leftover, or the folder was deleted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            folders.forget(parent(card.path));
            publish(files, folders, card)
        }
        published => published,
    }
}

/// A temporary name.
pub(super) fn temporary_path(files: &dyn Files, dir: &str) -> io::Result<String> {
    let mut random = [0; 16];
    files.random(&mut random)?;
    Ok(join(dir, &format!(".tmp-{:032x}", u128::from_le_bytes(random))))
}

/// A temporary file: other processes do not use it before it is published.
pub(super) struct Temporary<'f> {
    files: &'f dyn Files,
    path: String,
    pub(super) file: Arc<dyn File>,
}

impl<'f> Temporary<'f> {
    /// Makes one in a directory.
    pub(super) fn create(files: &'f dyn Files, dir: &str) -> io::Result<Self> {
        let path = temporary_path(files, dir)?;
        let file = files.create_new(&path)?;
        Ok(Self { files, path, file })
    }

    /// Gives it a name that is free. Its content must be synced. False if the name is taken.
    fn publish(self, path: &str, syncs_directory: bool) -> io::Result<bool> {
        link(self.files, &self.path, path, syncs_directory)
    }

    /// Gives it a name, and replaces what had it. Nothing exclusive may depend on this.
    pub(super) fn replace(self, path: &str) -> io::Result<()> {
        self.files.rename(&self.path, path)?;
        self.files.sync_dir(parent(path))
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // A temporary file that is left behind does no harm.
        let _ = self.files.remove(&self.path);
    }
}

/// Gives a file its name, if the name is free.
pub(super) fn link(files: &dyn Files, from: &str, to: &str, syncs_directory: bool) -> io::Result<bool> {
    match files.link(from, to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(error),
    }
    if syncs_directory {
        // The directory is synced too, or the new name may vanish with the power.
        files.sync_dir(parent(to))?;
    }
    Ok(true)
}

/// Does the same with all items, with some threads if there are many.
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
