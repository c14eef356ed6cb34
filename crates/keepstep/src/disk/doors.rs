//! What the engine asks of storage, split by what is needed: time and chance, cards, logs, presence.
//!
//! Each promise is the storage's to keep: what is put is durable and whole when that returns, a name is given once, what a log
//! says is synced survives. How it keeps them (files in the making, links, syncs of directories; a conditional put) is its
//! own business. A [`super::Directory`] keeps them with files; another storage is another implementation of these.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Time and chance.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970. Within a process each answer is later than the one before, also if somebody set the
    /// machine's clock back meanwhile. For times that are recorded; how long something took is told by [`Clock::uptime_us`].
    fn now_us(&self) -> i64;
    /// Microseconds by a clock that nobody sets: only differences mean something.
    fn uptime_us(&self) -> i64 {
        self.now_us()
    }
    /// Waits: the simulated disk's time passes at once.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Fills with randomness.
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

/// A small file that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewCard<'c> {
    /// Where.
    pub path: &'c str,
    /// All of it.
    pub content: &'c [u8],
}

/// Small files that are made once, whole, and never changed. Folders are made as they are needed.
pub trait Cards: Clock {
    /// Makes each under a name that nobody has; false where the name is taken. Durable when it returns. They share what it
    /// costs to make them so.
    fn put_all(&self, cards: &[NewCard<'_>]) -> Vec<io::Result<bool>>;
    /// As [`Cards::put_all`], all in one folder, in order, up to the first name that is taken: how many that were. Nothing
    /// behind one that fails is there, so that numbered names have no hole.
    fn put_in_order(&self, cards: &[NewCard<'_>]) -> io::Result<usize>;
    /// Makes one.
    fn put(&self, path: &str, content: &[u8]) -> io::Result<bool> {
        self.put_all(&[NewCard { path, content }]).pop().unwrap_or(Ok(false))
    }
    /// Takes a name away from what has it. Nothing exclusive may rest on this.
    fn replace(&self, path: &str, content: &[u8]) -> io::Result<()>;
    /// All of a card. One that is longer than any card can be is an error (`InvalidData`), as is what is no file.
    fn get(&self, path: &str) -> io::Result<Vec<u8>>;
    /// True if the name is there.
    fn exists(&self, path: &str) -> io::Result<bool>;
    /// The names in a folder, sorted; none if it is not there.
    fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>>;
    /// Takes a name away; durable after [`Cards::settle`].
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes what was given and taken away in a folder survive a power cut, whoever did it: who rests on a name that
    /// somebody else gave, and may have died before it was safe, asks for this first. `""` is the root.
    fn settle(&self, dir: &str) -> io::Result<()>;
    /// Makes a folder, where folders are something that is made.
    fn make_folder(&self, dir: &str) -> io::Result<()>;
    /// False if we may not make anything in this folder. One that is not there says nothing: true.
    fn can_write(&self, dir: &str) -> io::Result<bool>;
}

/// Files that grow at their end, by one process, and are read by all.
pub trait Logs: Clock {
    /// Begins a log in a folder. Nobody sees it before it is published.
    fn begin(&self, dir: &str) -> io::Result<Box<dyn GrowingLog>>;
    /// Opens a log for reading.
    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadLog>>;
    /// Begins to notice changes in these folders, and in those that are added later.
    ///
    /// Whoever follows a log makes the watch first, then looks at the logs, then waits: nothing falls in between.
    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>>;
    /// What the storage is, and so what it can promise.
    fn file_system(&self) -> io::Result<FileSystem>;
}

/// A log that this process writes. After an error nothing more may be appended.
pub trait GrowingLog: Send + Sync {
    /// Puts bytes behind what is there; a reader may see them. After an error any part of them may be there.
    fn append(&mut self, data: &[u8]) -> io::Result<()>;
    /// Makes all that was appended survive a power cut.
    fn sync(&mut self) -> io::Result<()>;
    /// Gives it its name, durably; all that was appended must be synced. False if the name is taken.
    fn publish(&mut self, path: &str) -> io::Result<bool>;
    /// False if it was deleted under us: then it takes every byte, and keeps none.
    fn is_there(&self) -> io::Result<bool>;
}

/// A log as it is read.
pub trait ReadLog: Send + Sync {
    /// Reads into `out` from `offset`; fewer bytes only at the end.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
    /// How long it is.
    fn bytes(&self) -> io::Result<u64>;
    /// Makes what can be read survive a power cut, whoever wrote it. Proof of nothing where a sync has failed before.
    fn sync(&self) -> io::Result<()>;
}

/// Notices changes in folders, from the moment that each was added.
pub trait Watch: Send {
    /// Watches one more folder. One that does not exist is passed over: add it again when it does.
    fn add(&mut self, dir: &str) -> io::Result<()>;
    /// Waits until a name or a file in one of them has changed since the last wait, or the time is over.
    /// True if something may have changed.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;
}

/// What kind of storage a path is on, and so what it can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// A local disk: a sync reaches it.
    Local(&'static str),
    /// Memory: gone with the power.
    Memory(&'static str),
    /// A local disk, mounted so that a sync does not reach it: its name, and why not.
    Unsynced(&'static str, &'static str),
    /// Anything else counts as a network: locks and caches there are not to be trusted. The number is from `statfs`.
    Network(u64),
}

/// Who holds a lock. Evidence, never proof: a lock is freed when its process closes any descriptor of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Nobody: its process is gone, most likely.
    Free,
    /// A process that is alive.
    Held,
}

/// Who is there. All of it is evidence, and safety never rests on it.
pub trait Presence: Clock {
    /// Shows that this process is there: `lock` holds what it says about itself, and is locked until it is dropped or the
    /// process ends; `beat` is written to again and again. `WouldBlock` if somebody else has the lock.
    fn enter(&self, lock: &str, about: &[u8], beat: &str) -> io::Result<(Arc<dyn HeldLock>, Box<dyn Beat>)>;
    /// Who has a lock: also this process itself.
    fn lock_state(&self, path: &str) -> io::Result<LockState>;
    /// Names this boot of this machine: locks are trusted only within it.
    fn boot_id(&self) -> String;
}

/// A lock that is held until this is dropped, or the process ends.
pub trait HeldLock: Send + Sync {
    /// Takes it again, if it was freed behind our back. False if somebody else has it.
    fn renew(&self) -> io::Result<bool>;
}

/// Says that a process is alive.
pub trait Beat: Send + Sync {
    /// The newest word takes the place of the one before. Not durable: it is of no use after a power cut.
    fn say(&self, content: &[u8]) -> io::Result<()>;
}

/// All that a store stands on.
pub trait Disk: Cards + Logs + Presence {}

impl<T: Cards + Logs + Presence> Disk for T {}
