//! The only door to storage: files, directories, locks, the clock and chance.
//!
//! Everything above it is the same code on a real disk and on a simulated one that loses power at every point.

mod real;
#[cfg(feature = "simulate")]
pub mod sim;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use real::RealDisk;

/// What kind of storage a path is on, and so what it can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// A local disk: a sync reaches it.
    Local(&'static str),
    /// Memory: gone with the power.
    Memory(&'static str),
    /// Anything else counts as a network: locks and caches there are not to be trusted. The number is from `statfs`.
    Network(u64),
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The last part of the path.
    pub name: String,
    /// True for a directory.
    pub is_dir: bool,
}

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Nobody: its process is gone.
    Free,
    /// A process that is alive.
    Held,
}

/// One directory of storage. Paths are relative to it, with `/` between parts.
pub trait Disk: Send + Sync {
    /// Creates a directory; an error if it exists.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory survive a power cut. `""` is the root.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Creates a file for reading and writing; an error if the name exists.
    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading and writing.
    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Gives a file one more name; an error if that name exists.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file another name, replacing what had it. Nothing exclusive may rest on this.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// The names in a directory, sorted; none if it does not exist.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;
    /// True if the name exists.
    fn exists(&self, path: &str) -> io::Result<bool>;
    /// What the directory is on.
    fn file_system(&self) -> io::Result<FileSystem>;
    /// Begins to notice changes in these directories, and in those that are added later.
    ///
    /// Whoever follows a log makes the watch first, then looks at the files, then waits: nothing falls in between.
    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>>;
    /// Microseconds since 1970.
    fn now_us(&self) -> i64;
    /// Fills with randomness.
    fn random(&self, out: &mut [u8]) -> io::Result<()>;
    /// Names this boot of this machine: locks are trusted only within it.
    fn boot_id(&self) -> String;
    /// Waits: the simulated disk's time passes at once.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// An open file.
pub trait File: Send + Sync {
    /// Reads into `out` from `offset`; fewer bytes only at the end of the file.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`, or fails; then any part of it may have been written.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes data and length survive a power cut.
    fn sync(&self) -> io::Result<()>;
    /// Its length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// How many names it has; 0 if it was deleted under us.
    fn links(&self) -> io::Result<u64>;
    /// Locks it for this process until the process ends. False if another process has it.
    fn try_lock(&self) -> io::Result<bool>;
    /// Who has it locked. Never to be asked of a file that this process has locked: closing it would free the lock.
    fn lock_state(&self) -> io::Result<LockState>;
}

/// Notices changes in directories, from the moment that each was added.
pub trait Watch: Send {
    /// Watches one more directory. One that does not exist is passed over: add it again when it does.
    fn add(&mut self, dir: &str) -> io::Result<()>;
    /// Waits until a name or a file in one of them has changed since the last wait, or the time is over.
    /// True if something may have changed.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;
}

/// Reads a whole file.
pub fn read_file(disk: &dyn Disk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let mut data = vec![0; file.bytes()? as usize];
    let read = file.read_at(&mut data, 0)?;
    data.truncate(read);
    Ok(data)
}

/// Reads exactly this range, or fails.
pub fn read_exact_at(file: &dyn File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    if file.read_at(&mut data, offset)? < bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it was"));
    }
    Ok(data)
}

/// Creates a directory if it is not there, so that it survives a power cut.
pub fn ensure_dir(disk: &dyn Disk, path: &str) -> io::Result<()> {
    match disk.create_dir(path) {
        Ok(()) => disk.sync_dir(parent(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Whoever made it may not have synced it yet; a name that rests on it must not vanish.
            disk.sync_dir(parent(path))
        }
        Err(error) => Err(error),
    }
}

/// Publishes a file under a name that nobody has yet: written, synced, linked, the directory synced.
///
/// False if the name is taken.
pub fn publish(disk: &dyn Disk, path: &str, content: &[u8]) -> io::Result<bool> {
    Ok(publish_file(disk, path, content)?.is_some())
}

/// As [`publish`], and gives the open file.
pub fn publish_file(disk: &dyn Disk, path: &str, content: &[u8]) -> io::Result<Option<Arc<dyn File>>> {
    let file = publish_without_directory_sync(disk, path, content)?;
    if file.is_some() {
        // The directory is synced too, or the new name may vanish with the power.
        disk.sync_dir(parent(path))?;
    }
    Ok(file)
}

/// The first half of [`publish_file`]; on its own it is not enough.
pub(crate) fn publish_without_directory_sync(
    disk: &dyn Disk,
    path: &str,
    content: &[u8],
) -> io::Result<Option<Arc<dyn File>>> {
    let mut random = [0; 8];
    disk.random(&mut random)?;
    let temporary = join(parent(path), &format!(".tmp-{:016x}", u64::from_le_bytes(random)));
    let file = disk.create_new(&temporary)?;
    let linked = file.write_at(content, 0).and_then(|()| file.sync()).and_then(|()| link_new(disk, &temporary, path));
    // A temporary name that stays behind is only untidy.
    let _ = disk.remove(&temporary);
    Ok(linked?.then_some(file))
}

/// How not to do it: whoever comes last wins, and the first does not know.
pub(crate) fn publish_by_rename(disk: &dyn Disk, path: &str, content: &[u8]) -> io::Result<()> {
    let mut random = [0; 8];
    disk.random(&mut random)?;
    let temporary = join(parent(path), &format!(".tmp-{:016x}", u64::from_le_bytes(random)));
    let file = disk.create_new(&temporary)?;
    file.write_at(content, 0)?;
    file.sync()?;
    disk.rename(&temporary, path)?;
    disk.sync_dir(parent(path))
}

fn link_new(disk: &dyn Disk, from: &str, to: &str) -> io::Result<bool> {
    match disk.link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The directory that a path is in.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Puts two parts of a path together.
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
