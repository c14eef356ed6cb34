//! Publishes many small files at once, so that they share their syncs.
//!
//! What is published is as safe as if it had been done one by one: each file is synced before it has its name, and told
//! only when the folder that has the name is synced too.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{self, Disk, Temporary};

/// How many threads wait for syncs of one batch, and how many syncs make one of them worth while: with few, threads cost
/// more than they spare (8 processes with 8 workers each claimed half as fast).
const THREADS_MAX: usize = 16;
const SYNCS_EACH: usize = 4;

/// A file that is to be published.
pub(crate) struct Sheet {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// Where a process publishes.
pub(crate) struct Press {
    disk: Arc<dyn Disk>,
    by_rename: bool,
    /// Folders that are known to be there, and safe.
    folders: Mutex<BTreeSet<String>>,
}

impl Press {
    pub(crate) fn new(disk: Arc<dyn Disk>, by_rename: bool) -> Self {
        Self { disk, by_rename, folders: Mutex::default() }
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Publishes each under a name that nobody has yet; false where the name is taken. Writes all, syncs all, names all, and
    /// syncs each folder once.
    pub(crate) fn publish_all(&self, sheets: &[&Sheet]) -> Vec<io::Result<bool>> {
        self.make_folders(sheets);
        let made = self.write_all(sheets).into_iter().zip(sheets);
        let mut outcomes: Vec<io::Result<bool>> =
            made.map(|(made, sheet)| self.give_name(made?, sheet)).collect();
        let won = outcomes.iter().zip(sheets).filter(|(outcome, _)| matches!(outcome, Ok(true)));
        let folders: BTreeSet<&str> = won.map(|(_, sheet)| disk::parent(&sheet.path)).collect();
        let folders: Vec<&str> = folders.into_iter().collect();
        let synced = side_by_side(&folders, |folder| self.disk.sync_dir(folder));
        for (folder, synced) in folders.iter().zip(synced) {
            let Err(error) = synced else { continue };
            // Whoever has a name that may vanish with the power does not have it yet.
            for (outcome, sheet) in outcomes.iter_mut().zip(sheets) {
                if matches!(outcome, Ok(true)) && disk::parent(&sheet.path) == *folder {
                    *outcome = Err(io::Error::new(error.kind(), error.to_string()));
                }
            }
        }
        outcomes
    }

    /// Publishes as [`Press::publish_all`], all in one folder, in order, up to the first name that is taken: how many that
    /// were. Nothing behind one that fails is there, so that numbered names have no hole.
    pub(crate) fn publish_in_order(&self, sheets: &[&Sheet]) -> io::Result<usize> {
        let mut done = 0;
        let mut outcome = Ok(());
        for (made, sheet) in self.write_all(sheets).into_iter().zip(sheets) {
            match made.and_then(|made| self.give_name(made, sheet)) {
                Ok(true) => done += 1,
                Ok(false) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if let (Some(first), true) = (sheets.first(), done > 0) {
            self.disk.sync_dir(disk::parent(&first.path))?;
        }
        outcome.map(|()| done)
    }

    /// Files in the making, written and synced. Syncs that wait at the same time share one commit of the file system, so
    /// they are made side by side.
    fn write_all(&self, sheets: &[&Sheet]) -> Vec<io::Result<Temporary<'_>>> {
        let written: Vec<_> = sheets.iter().map(|sheet| self.write(sheet)).collect();
        let synced = side_by_side(&written, |made| match made {
            Ok(temporary) => temporary.file.sync(),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        });
        written.into_iter().zip(synced).map(|(made, synced)| synced.and(made)).collect()
    }

    fn write(&self, sheet: &Sheet) -> io::Result<Temporary<'_>> {
        let folder = disk::parent(&sheet.path);
        self.ensure_folder(folder)?;
        let temporary = Temporary::create(&*self.disk, folder)?;
        temporary.file.write_at(&sheet.content, 0)?;
        Ok(temporary)
    }

    fn give_name(&self, temporary: Temporary<'_>, sheet: &Sheet) -> io::Result<bool> {
        if self.by_rename {
            // How not to do it: both claimants win.
            disk::publish_by_rename(&*self.disk, &sheet.path, &sheet.content)?;
            return Ok(true);
        }
        match temporary.publish(&sheet.path, false) {
            // Swept away by somebody who took it for left behind.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk::publish(&*self.disk, &sheet.path, &sheet.content)
            }
            published => published,
        }
    }

    /// Makes the folders that a batch needs, with one sync for all. One that fails is made, and told of, with its file.
    fn make_folders(&self, sheets: &[&Sheet]) {
        let wanted: BTreeSet<&str> = sheets.iter().map(|sheet| disk::parent(&sheet.path)).collect();
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

fn lock(folders: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    // A set that is whole at every moment.
    folders.lock().unwrap_or_else(PoisonError::into_inner)
}
