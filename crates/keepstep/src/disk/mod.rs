//! The only door to storage: files, directories, locks, the clock and chance.
//!
//! Everything above it is the same code on a real disk and on a simulated one that loses power at every point.

mod clock;
mod held;
mod made;
#[cfg(target_os = "linux")]
pub mod mount;
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
    /// A local disk, mounted so that a sync does not reach it: its name, and why not.
    Unsynced(&'static str, &'static str),
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

/// Who holds a lock. Evidence, never proof: a lock is freed when its process closes any descriptor of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Nobody: its process is gone, most likely.
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
    /// Opens a file for reading. One that this process has locked is not opened: closing it would free the lock.
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
    /// Who has a file locked: also this process itself, which is known without opening the file.
    fn lock_state(&self, path: &str) -> io::Result<LockState>;
    /// False if we may not make anything in this directory. One that is not there says nothing: true.
    fn can_write(&self, path: &str) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
    /// What the directory is on.
    fn file_system(&self) -> io::Result<FileSystem>;
    /// Begins to notice changes in these directories, and in those that are added later.
    ///
    /// Whoever follows a log makes the watch first, then looks at the files, then waits: nothing falls in between.
    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>>;
    /// Microseconds since 1970. Within a process each answer is later than the one before, also if somebody set the
    /// machine's clock back meanwhile. For times that are recorded; how long something took is told by [`Disk::uptime_us`].
    fn now_us(&self) -> i64;
    /// Microseconds by a clock that nobody sets: only differences mean something.
    fn uptime_us(&self) -> i64 {
        self.now_us()
    }
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
    /// Locks it for this process until this is dropped, or the process ends. False if another process has it. Locking it
    /// again is how a lock is renewed that was freed behind our back.
    fn try_lock(&self) -> io::Result<bool>;
}

/// Notices changes in directories, from the moment that each was added.
pub trait Watch: Send {
    /// Watches one more directory. One that does not exist is passed over: add it again when it does.
    fn add(&mut self, dir: &str) -> io::Result<()>;
    /// Waits until a name or a file in one of them has changed since the last wait, or the time is over.
    /// True if something may have changed.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;
}

/// How long a small file may be that is no card.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;
/// How long a card may be, with its header.
pub(crate) const CARD_FILE_BYTES_MAX: u64 = keepstep_format::card::CARD_BODY_MAX as u64 + 1024;

/// How long a file may be that is read whole: whoever made a longer one was not keepstep.
fn file_bytes_max(path: &str) -> u64 {
    match path.rsplit('/').next() {
        Some(STORE_FILE | "lock" | "beat") => SMALL_FILE_BYTES_MAX,
        _ => CARD_FILE_BYTES_MAX,
    }
}

/// Reads a whole file: a card, a lock, a beat, `keepstep.json`. One that is longer than its kind can be is an error
/// (`InvalidData`), as is what is no regular file.
pub fn read_file(disk: &dyn Disk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let (bytes, bytes_max) = (file.bytes()?, file_bytes_max(path));
    if bytes > bytes_max {
        let why = format!("it has {bytes} bytes, and no file of its kind has more than {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut data = vec![0; bytes as usize];
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

/// The file that makes a directory a store.
pub(crate) const STORE_FILE: &str = "keepstep.json";

/// True if this failed because the whole store was deleted: waiting brings nothing back.
pub(crate) fn store_is_deleted(disk: &dyn Disk, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && matches!(disk.exists(STORE_FILE), Ok(false))
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

/// How often a file in the making may be swept away before that counts as trouble.
const SWEPT_MAX: u32 = 16;

/// Publishes a file under a name that nobody has yet: written, synced, linked, the directory synced.
///
/// False if the name is taken. Whoever deletes what others left behind, and gives it no time, may take the file in the making
/// for that: then it is made again.
pub fn publish(disk: &dyn Disk, path: &str, content: &[u8]) -> io::Result<bool> {
    let mut swept = 0;
    loop {
        let temporary = Temporary::create(disk, parent(path))?;
        temporary.file.write_at(content, 0)?;
        temporary.file.sync()?;
        match temporary.publish(path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && swept < SWEPT_MAX => swept += 1,
            published => return published,
        }
    }
}

/// A file in the making: nobody sees it before it is published.
pub(crate) struct Temporary<'d> {
    disk: &'d dyn Disk,
    path: String,
    pub(crate) file: Arc<dyn File>,
}

impl<'d> Temporary<'d> {
    /// Makes one in a directory.
    pub(crate) fn create(disk: &'d dyn Disk, dir: &str) -> io::Result<Self> {
        let mut random = [0; 8];
        disk.random(&mut random)?;
        let path = join(dir, &format!(".tmp-{:016x}", u64::from_le_bytes(random)));
        let file = disk.create_new(&path)?;
        Ok(Self { disk, path, file })
    }

    /// Gives it a name that nobody has yet; its content must be synced. False if the name is taken.
    pub(crate) fn publish(self, path: &str, syncs_directory: bool) -> io::Result<bool> {
        let is_linked = match self.disk.link(&self.path, path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        if is_linked && syncs_directory {
            // The directory is synced too, or the new name may vanish with the power.
            self.disk.sync_dir(parent(path))?;
        }
        Ok(is_linked)
    }

    /// Gives it a name, taking that away from what had it. Nothing exclusive may rest on this.
    pub(crate) fn replace(self, path: &str) -> io::Result<()> {
        self.disk.rename(&self.path, path)?;
        self.disk.sync_dir(parent(path))
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // A temporary name that stays behind is only untidy.
        let _ = self.disk.remove(&self.path);
    }
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

/// The directory that a path is in.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Puts two parts of a path together.
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
