//! A directory of files as storage: cards by link, logs by append and sync, presence by locks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::files::{File, Files};
use super::publish::{self, Folders, Temporary, temporary_path};
use super::{
    Beat, Cards, Clock, DirEntry, FileSystem, GrowingLog, HeldLock, LockState, Logs, NewCard, Presence,
    ReadLog, Watch, file_bytes_max, parent,
};

/// A directory, and which of its folders are known to exist.
pub struct Directory {
    files: Arc<dyn Files>,
    folders: Folders,
}

impl Directory {
    /// The storage interface over a directory of any file system.
    pub fn over(files: Arc<dyn Files>) -> Arc<Self> {
        Arc::new(Self { files, folders: Folders::default() })
    }
}

/// Reads a whole file: a card, a lock, a beat, `keepstep.json`. A file that is longer than its kind allows is an
/// error (`InvalidData`), and so is anything that is not a regular file.
pub fn read_file(files: &dyn Files, path: &str) -> io::Result<Vec<u8>> {
    let file = files.open(path)?;
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

impl Clock for Directory {
    fn now_us(&self) -> i64 {
        self.files.now_us()
    }

    fn uptime_us(&self) -> i64 {
        self.files.uptime_us()
    }

    fn sleep(&self, time: Duration) {
        self.files.sleep(time);
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.files.random(out)
    }
}

impl Cards for Directory {
    fn put_all(&self, cards: &[NewCard<'_>]) -> Vec<io::Result<bool>> {
        publish::publish_all(&*self.files, &self.folders, cards)
    }

    fn replace(&self, path: &str, content: &[u8]) -> io::Result<()> {
        let temporary = Temporary::create(&*self.files, parent(path))?;
        temporary.file.write_at(content, 0)?;
        temporary.file.sync()?;
        temporary.replace(path)
    }

    fn get(&self, path: &str) -> io::Result<Vec<u8>> {
        read_file(&*self.files, path)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>> {
        self.files.list(dir)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.remove(path)
    }

    fn settle(&self, dir: &str) -> io::Result<()> {
        self.files.sync_dir(dir)
    }

    fn make_folder(&self, dir: &str) -> io::Result<()> {
        self.folders.ensure(&*self.files, dir)
    }

    fn can_write(&self, dir: &str) -> io::Result<bool> {
        self.files.can_write(dir)
    }
}

impl Logs for Directory {
    fn begin(&self, dir: &str) -> io::Result<Box<dyn GrowingLog>> {
        self.folders.ensure(&*self.files, dir)?;
        let temporary = temporary_path(&*self.files, dir)?;
        let file = self.files.create_new(&temporary)?;
        Ok(Box::new(FileLog { files: Arc::clone(&self.files), file, end: 0, temporary: Some(temporary) }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadLog>> {
        Ok(Arc::new(FileRead(self.files.open(path)?)))
    }

    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        self.files.watch(dirs)
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        self.files.file_system()
    }
}

impl Presence for Directory {
    fn enter(&self, lock: &str, about: &[u8], beat: &str) -> io::Result<(Arc<dyn HeldLock>, Box<dyn Beat>)> {
        self.folders.ensure(&*self.files, parent(lock))?;
        let file = self.files.create_new(lock)?;
        if !file.try_lock()? {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process has locked it"));
        }
        file.write_at(about, 0)?;
        file.sync()?;
        let beating = self.files.create_new(beat)?;
        self.files.sync_dir(parent(lock))?;
        Ok((Arc::new(FileLock(file)), Box::new(FileBeat(beating))))
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        self.files.lock_state(path)
    }

    fn boot_id(&self) -> String {
        self.files.boot_id()
    }
}

/// A log in a file: no offset is ever written twice.
struct FileLog {
    files: Arc<dyn Files>,
    file: Arc<dyn File>,
    end: u64,
    /// Its temporary name, until it is published.
    temporary: Option<String>,
}

impl GrowingLog for FileLog {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_at(data, self.end)?;
        self.end += data.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn publish(&mut self, path: &str) -> io::Result<bool> {
        let Some(temporary) = self.temporary.take() else {
            return Err(io::Error::other("it has its name already"));
        };
        let published = publish::link(&*self.files, &temporary, path, true);
        // A temporary file that is left behind does no harm.
        let _ = self.files.remove(&temporary);
        published
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(self.file.links()? > 0)
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = self.files.remove(&temporary);
        }
    }
}

struct FileRead(Arc<dyn File>);

impl ReadLog for FileRead {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

struct FileLock(Arc<dyn File>);

impl HeldLock for FileLock {
    fn renew(&self) -> io::Result<bool> {
        self.0.try_lock()
    }
}

struct FileBeat(Arc<dyn File>);

impl Beat for FileBeat {
    fn say(&self, content: &[u8]) -> io::Result<()> {
        self.0.write_at(content, 0)
    }
}
