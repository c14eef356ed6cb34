//! A file system that does not do what it says: the negative control for promises that depend on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Clock, DirEntry, File, FileSystem, Files, LockState, Watch};
use crate::options::Broken;

/// The files; they lie if a store is to be broken in this way.
pub(crate) fn lying(files: Arc<dyn Files>, broken: Option<Broken>) -> Arc<dyn Files> {
    let lie = match broken {
        Some(Broken::AcknowledgeBeforeSync) => Lie::SkipsSyncs,
        Some(Broken::SkipDirectorySync) => Lie::SkipsSyncsOf(LOGS),
        Some(Broken::ManifestWithoutSync) => Lie::SkipsSyncsOf("grouped"),
        Some(Broken::RenameInsteadOfLink) => Lie::Renames,
        Some(Broken::NoSalt) => Lie::SaltsAlike,
        _ => return files,
    };
    Arc::new(Lying { files, lie })
}

/// Where writers have their logs. Only these are lied about. If all files were, the tests would catch a store that
/// cannot be opened, and not a step that was acknowledged too early.
const LOGS: &str = "writers/";

#[derive(Clone, Copy)]
enum Lie {
    /// A sync of a log does nothing, and reports success.
    SkipsSyncs,
    /// So does a sync of directories whose path begins like this.
    SkipsSyncsOf(&'static str),
    /// A name is given to the last process that wants it, and the first one is not told.
    Renames,
    /// What is to be random in the header of a segment is the same in all of them.
    SaltsAlike,
}

struct Lying {
    files: Arc<dyn Files>,
    lie: Lie,
}

impl Lying {
    fn file(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        let lies = matches!(self.lie, Lie::SkipsSyncs) && path.starts_with(LOGS);
        if lies { Arc::new(NeverSynced(file)) } else { file }
    }
}

impl Clock for Lying {
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
        // Salts have 8 bytes; names and ids have more.
        if matches!(self.lie, Lie::SaltsAlike) && out.len() == 8 {
            out.fill(0);
            return Ok(());
        }
        self.files.random(out)
    }
}

impl Files for Lying {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.files.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        match self.lie {
            Lie::SkipsSyncsOf(these) if path.starts_with(these) => Ok(()),
            _ => self.files.sync_dir(path),
        }
    }

    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.files.create_new(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.files.open(path)?))
    }

    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path, self.files.open_rw(path)?))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        match self.lie {
            Lie::Renames => self.files.rename(from, to),
            _ => self.files.link(from, to),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.remove(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        self.files.list(path)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        self.files.lock_state(path)
    }

    fn can_write(&self, path: &str) -> io::Result<bool> {
        self.files.can_write(path)
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        self.files.file_system()
    }

    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        self.files.watch(dirs)
    }

    fn boot_id(&self) -> String {
        self.files.boot_id()
    }
}

struct NeverSynced(Arc<dyn File>);

impl File for NeverSynced {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn links(&self) -> io::Result<u64> {
        self.0.links()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }
}
