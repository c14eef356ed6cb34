//! What the engine asks of storage, in four parts: time and randomness, cards, logs, presence.
//!
//! The storage keeps the promises: what is put is whole and durable when the call returns, a name is given once, and
//! what a log has synced survives. How it does so (temporary files, links, directory syncs; a conditional put) is up
//! to the storage. A [`super::Directory`] uses files; another kind of storage is another implementation of these
//! traits. `tests/toy.rs` says how to run the engine's tests on one of your own.
//!
//! # Errors
//!
//! The engine acts on these kinds of [`io::ErrorKind`]; every other error is reported as it is.
//!
//! - `NotFound`: nothing has this name. A card that is not found counts as never made, and a log as removed, so no
//!   other failure may have this kind: a storage that cannot be reached is not empty.
//! - `InvalidData`: what has this name cannot be what is asked for. It counts as damage.
//! - `StorageFull`, `QuotaExceeded`: there is no room. Writers wait for it, or report it as a full disk.
//! - `NotADirectory`: something that is not a folder has the name that is listed.
//! - `WouldBlock`, `Deadlock`: of locks; see [`Presence::enter`] and [`Cards::get`].
//!
//! Paths are relative to the store, with `/` between parts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Time and randomness.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970. Within a process each answer is later than the one before, even if the machine's
    /// clock was set back meanwhile. Use it for times that are recorded; measure durations by [`Clock::uptime_us`].
    fn now_us(&self) -> i64;
    /// Microseconds of a clock that cannot be set. Only differences mean something.
    fn uptime_us(&self) -> i64 {
        self.now_us()
    }
    /// Waits. On the simulated disk, the time passes at once.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Fills `out` with random bytes.
    fn random(&self, out: &mut [u8]) -> io::Result<()>;
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The last part of the path.
    pub name: String,
    /// True for a folder.
    pub is_dir: bool,
}

/// A small file to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewCard<'c> {
    /// Its path.
    pub path: &'c str,
    /// Its whole content.
    pub content: &'c [u8],
}

/// Small files that are made once, whole, and never changed. Folders are made when they are needed.
pub trait Cards: Clock {
    /// Makes each card under a name that is free; false if the name is taken. Durable when it returns. The cards
    /// share the cost of the syncs.
    fn put_all(&self, cards: &[NewCard<'_>]) -> Vec<io::Result<bool>>;
    /// Makes one card.
    fn put(&self, path: &str, content: &[u8]) -> io::Result<bool> {
        self.put_all(&[NewCard { path, content }]).pop().unwrap_or(Ok(false))
    }
    /// Replaces what has this name. Nothing exclusive may depend on this.
    fn replace(&self, path: &str, content: &[u8]) -> io::Result<()>;
    /// Reads a whole card, a lock or a beat. `NotFound` if there is none. A file that is longer than any card can be is
    /// `InvalidData`, and so is anything that is not a file. `Deadlock` for a lock of this process, if reading it would
    /// free it; a storage whose locks are safe from that returns the content.
    fn get(&self, path: &str) -> io::Result<Vec<u8>>;
    /// True if the name exists: a card, a log, or a folder with something in it. Whether an empty folder exists is up to
    /// the storage.
    fn exists(&self, path: &str) -> io::Result<bool>;
    /// The names in a folder, sorted; empty if the folder does not exist.
    fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>>;
    /// Removes a name; `NotFound` if it is not there. Durable after [`Cards::settle`].
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a folder survive a power cut, whichever process gave or removed them. Call this before you
    /// depend on a name that another process gave: it may have died before it synced the name. `""` is the root.
    fn settle(&self, dir: &str) -> io::Result<()>;
    /// Makes a folder, if the storage has folders.
    fn make_folder(&self, dir: &str) -> io::Result<()>;
    /// False if this process may not make anything in this folder. True if the folder does not exist.
    fn can_write(&self, dir: &str) -> io::Result<bool>;
}

/// Files that one process appends to and all processes read.
pub trait Logs: Clock {
    /// Begins a log in a folder. Other processes see it after it is published.
    fn begin(&self, dir: &str) -> io::Result<Box<dyn GrowingLog>>;
    /// Opens a log for reading; `NotFound` if there is none. If it is removed later, reading it goes
    /// on, or is `NotFound`.
    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadLog>>;
    /// Watches these folders, and those that are added later, for changes.
    ///
    /// A follower first makes the watch, then reads the logs, then waits, so that it misses no change.
    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>>;
    /// The kind of storage, which decides what it can promise.
    fn file_system(&self) -> io::Result<FileSystem>;
}

/// A log that this process writes. After an error nothing more may be appended.
pub trait GrowingLog: Send + Sync {
    /// Appends bytes; a reader may see them at once. After an error, any part of them may be there.
    fn append(&mut self, data: &[u8]) -> io::Result<()>;
    /// Makes everything that was appended survive a power cut.
    fn sync(&mut self) -> io::Result<()>;
    /// Gives the log its name, durably. Everything that was appended must be synced. False if the name is taken.
    fn publish(&mut self, path: &str) -> io::Result<bool>;
    /// False if the file was deleted: then appended bytes are accepted, and lost.
    fn is_there(&self) -> io::Result<bool>;
}

/// A log for reading.
pub trait ReadLog: Send + Sync {
    /// Reads into `out` from `offset`; fewer bytes only at the end.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
    /// How long it is.
    fn bytes(&self) -> io::Result<u64>;
    /// Makes what can be read survive a power cut, whichever process wrote it. It proves nothing if a sync failed
    /// before.
    fn sync(&self) -> io::Result<()>;
}

/// Notices changes in folders, each from the moment when it was added.
pub trait Watch: Send {
    /// Watches one more folder. A folder that does not exist is skipped: add it again when it does.
    fn add(&mut self, dir: &str) -> io::Result<()>;
    /// Waits until a name or a file in one of them changes, or the time is over. True if something may have changed
    /// since the last wait.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;
}

/// The kind of storage that a path is on, which decides what it can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// A sync makes what was written survive a power cut: level `power`.
    Local(&'static str),
    /// Memory, which outlives processes but no power cut: level `kill`, and a warning unless that was asked for.
    Memory(&'static str),
    /// A local disk, mounted so that a sync does not reach it: its name, and why not. Level `kill`, as for memory.
    Unsynced(&'static str, &'static str),
    /// Everything else counts as network: locks and caches there cannot be trusted, so nothing is recorded there. The
    /// number is from `statfs`.
    Network(u64),
}

/// Whether a lock is held. Evidence, never proof: a lock is freed when its process closes any descriptor of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// No process holds it: its process is most likely gone.
    Free,
    /// A live process holds it.
    Held,
}

/// Which processes are alive. All of it is evidence; safety never depends on it.
pub trait Presence: Clock {
    /// Shows that this process is alive. The file `lock` holds `about`, and is locked until the lock is dropped or
    /// the process ends; `beat` is rewritten again and again. Both names are new: each process has names of its own.
    /// `AlreadyExists` if one of them is taken, `WouldBlock` if another process locked the new file first.
    fn enter(&self, lock: &str, about: &[u8], beat: &str) -> io::Result<(Arc<dyn HeldLock>, Box<dyn Beat>)>;
    /// Whether a lock is held, by another process or by this one; `NotFound` if there is no such file.
    fn lock_state(&self, path: &str) -> io::Result<LockState>;
    /// The id of this boot of this machine. Locks are trusted only within it.
    fn boot_id(&self) -> String;
}

/// A lock that is held until it is dropped, or the process ends.
pub trait HeldLock: Send + Sync {
    /// Takes the lock again if it was freed unnoticed. False if another process has it.
    fn renew(&self) -> io::Result<bool>;
}

/// Shows that a process is alive.
pub trait Beat: Send + Sync {
    /// Replaces the last content. Not durable: it is of no use after a power cut.
    fn say(&self, content: &[u8]) -> io::Result<()>;
}

/// The whole storage of a store.
pub trait Disk: Cards + Logs + Presence {}

impl<T: Cards + Logs + Presence> Disk for T {}
