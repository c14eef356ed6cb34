//! A directory on a real disk.
//!
//! It is held open by a descriptor, so that a writer keeps the right directory if the store is moved.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::clock::LastSaid;
use super::held::{self, Held};
use super::made::{Belonging, create_all};
#[cfg(target_os = "linux")]
use super::mount;
use super::watch::RealWatch;
use super::{Clock, DirEntry, File, FileSystem, Files, LockState, Watch};

/// A directory on a real disk.
#[derive(Debug)]
pub struct RealDisk {
    root: OwnedFd,
    path: PathBuf,
    belonging: Belonging,
}

struct RealFile {
    fd: OwnedFd,
    /// Set once the file is locked. Declared after the descriptor, so that the note is removed after the lock.
    held: OnceLock<Held>,
}

pub(super) const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl RealDisk {
    /// Opens a directory that exists.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, DIR, Mode::empty())?;
        let belonging = Belonging::of(&root)?;
        Ok(Self { root, path: path.to_path_buf(), belonging })
    }

    /// Opens a directory, creating it and its parents.
    pub fn create(path: &Path) -> io::Result<Self> {
        create_all(path)?;
        Self::open(path)
    }

    /// The path it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file, or a link to one. A pipe or a device under its name must not hang the process or have an
    /// effect. So the type is checked first, and opening never waits.
    fn file(&self, path: &str, flags: OFlags) -> io::Result<Arc<dyn File>> {
        let stat = rustix::fs::statat(&self.root, path, AtFlags::empty())?;
        let found = FileType::from_raw_mode(stat.st_mode);
        if found != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is {}", kind_of(found))));
        }
        if held::is_ours(stat.st_dev, stat.st_ino) {
            return Err(held::refusal());
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.root, path, flags, Mode::empty())?;
        Ok(Arc::new(RealFile { fd, held: OnceLock::new() }))
    }
}

/// The type of what is there instead of a file, for people.
fn kind_of(found: FileType) -> &'static str {
    match found {
        FileType::Directory => "a directory, and not a file",
        FileType::Fifo => "a pipe, and not a file",
        FileType::Socket => "a socket, and not a file",
        FileType::CharacterDevice | FileType::BlockDevice => "a device, and not a file",
        _ => "no regular file",
    }
}

pub(super) fn or_dot(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

impl Clock for RealDisk {
    fn now_us(&self) -> i64 {
        /// One for the whole process: times keep their order across several handles.
        static LAST: LastSaid = LastSaid::nothing();
        LAST.say(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as i64))
    }

    fn uptime_us(&self) -> i64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        getrandom::fill(out).map_err(|error| io::Error::other(error.to_string()))
    }
}

impl Files for RealDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        rustix::fs::mkdirat(&self.root, path, self.belonging.dir_mode())?;
        self.belonging.adopt_dir(self.root.as_fd(), path);
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let dir = rustix::fs::openat(&self.root, or_dot(path), DIR, Mode::empty())?;
        Ok(rustix::fs::fsync(&dir)?)
    }

    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.root, path, flags, self.belonging.file_mode())?;
        self.belonging.adopt_file(&fd);
        Ok(Arc::new(RealFile { fd, held: OnceLock::new() }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.file(path, OFlags::RDONLY)
    }

    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>> {
        // Nothing is ever written through a link.
        self.file(path, OFlags::RDWR | OFlags::NOFOLLOW)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.root, from, &self.root, to, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        let dir = match rustix::fs::openat(&self.root, or_dot(path), DIR, Mode::empty()) {
            Ok(dir) => dir,
            Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            // Names that keepstep makes are ASCII; others are not ours.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                let is_dir = match entry.file_type() {
                    FileType::Unknown => self.list_is_dir(&super::join(path, name)),
                    known => known == FileType::Directory,
                };
                entries.push(DirEntry { name: name.to_owned(), is_dir });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        match rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        let stat = rustix::fs::statat(&self.root, path, AtFlags::empty())?;
        if held::is_ours(stat.st_dev, stat.st_ino) {
            return Ok(LockState::Held);
        }
        // For reading only: closing a file that was open for writing wakes all watches of its folder.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.root, path, flags, Mode::empty())?;
        let wanted = rustix::process::Flock::from(rustix::process::FlockType::WriteLock);
        let held = rustix::process::fcntl_getlk(&file, &wanted)?;
        Ok(if held.is_some() { LockState::Held } else { LockState::Free })
    }

    fn can_write(&self, path: &str) -> io::Result<bool> {
        use rustix::fs::Access;
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        // If the system cannot tell, writing is allowed: the write itself will fail.
        match rustix::fs::accessat(&self.root, or_dot(path), wanted, AtFlags::EACCESS) {
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Ok(false),
            Err(error @ rustix::io::Errno::ROFS) => Err(error.into()),
            _ => Ok(true),
        }
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        #[cfg(target_os = "linux")]
        {
            let store = mount::storage_of(self.root.as_fd())?;
            // Logs may be elsewhere: on a mount of their own, or behind a link.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let logs = rustix::fs::openat(&self.root, "writers", flags, Mode::empty());
            match (&store, logs) {
                (FileSystem::Local(_), Ok(logs)) => mount::storage_of(logs.as_fd()),
                _ => Ok(store),
            }
        }
        #[cfg(target_os = "macos")]
        {
            Ok(FileSystem::Local("apfs"))
        }
    }

    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        let mut watch = RealWatch::new(self.root.try_clone()?);
        for dir in dirs {
            watch.add(dir)?;
        }
        Ok(Box::new(watch))
    }

    fn boot_id(&self) -> String {
        #[cfg(target_os = "linux")]
        {
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
        }
        #[cfg(not(target_os = "linux"))]
        {
            String::new()
        }
    }
}

impl RealDisk {
    fn list_is_dir(&self, path: &str) -> bool {
        rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }
}

impl File for RealFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match rustix::io::pread(&self.fd, &mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&self.fd, &data[done..], offset + done as u64) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::WriteZero, "the disk took no bytes")),
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // An interrupted sync neither happened nor failed.
        loop {
            #[cfg(target_os = "macos")]
            let result = rustix::fs::fcntl_fullfsync(&self.fd);
            #[cfg(not(target_os = "macos"))]
            let result = rustix::fs::fdatasync(&self.fd);
            match result {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_size as u64)
    }

    fn links(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_nlink)
    }

    fn try_lock(&self) -> io::Result<bool> {
        if self.held.get().is_none() {
            let stat = rustix::fs::fstat(&self.fd)?;
            // Noted before it is locked: in between, this process must not open it.
            let _ = self.held.set(Held::note(stat.st_dev, stat.st_ino)?);
        }
        match rustix::fs::fcntl_lock(&self.fd, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
