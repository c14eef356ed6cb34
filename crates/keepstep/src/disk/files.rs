//! Files and directories of an operating system: a [`super::Directory`] is built on them.
//!
//! Implemented by the real disk, by the simulated one, and by test disks that stop, fail or lie.

use std::io;
use std::sync::Arc;

use super::{Clock, DirEntry, FileSystem, LockState, Watch};

/// One directory of a file system. Paths are relative to it, with `/` between parts.
pub trait Files: Clock {
    /// Creates a directory; an error if it exists.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory survive a power cut. `""` is the root.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Creates a file for reading and writing; an error if the name exists.
    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading. One that this process has locked is not opened: closing it would free the lock.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading and writing.
    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Gives a file one more name; an error if that name exists.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file another name, and replaces what had it. Nothing exclusive may depend on this.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// The names in a directory, sorted; empty if it does not exist.
    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>>;
    /// True if the name exists.
    fn exists(&self, path: &str) -> io::Result<bool>;
    /// Whether a file is locked, by another process or by this one; the latter is known without opening the file.
    fn lock_state(&self, path: &str) -> io::Result<LockState>;
    /// False if this process may not make anything in this directory. True if the directory does not exist.
    fn can_write(&self, path: &str) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
    /// The kind of storage that the directory is on.
    fn file_system(&self) -> io::Result<FileSystem>;
    /// Watches these directories, and those that are added later, for changes.
    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>>;
    /// The id of this boot of this machine. Locks are trusted only within it.
    fn boot_id(&self) -> String;
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
    /// How many names it has; 0 if it was deleted.
    fn links(&self) -> io::Result<u64>;
    /// Locks it for this process until the file is dropped, or the process ends. False if another process has the
    /// lock. Locking again renews a lock that was freed unnoticed.
    fn try_lock(&self) -> io::Result<bool>;
}
