//! A disk that says what it is about to do, so that another process can do something at just that point.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepstep::disk::{Clock, DirEntry, File, FileSystem, Files, LockState, Watch};

/// Is called before each operation, with its name and path.
type Hook = Box<dyn Fn(&str) + Send + Sync>;

/// A disk whose operations can be gone before. What is done to a file that is open is its owner's alone.
pub struct HookedDisk {
    disk: Arc<dyn Files>,
    before: Hook,
    /// It seems to run since this boot of the machine, whatever the disk says.
    boot: Option<&'static str>,
    /// This process may only read.
    is_read_only: AtomicBool,
}

impl HookedDisk {
    #[allow(dead_code, reason = "most of the tests that share this file ask for it")]
    pub fn new(disk: Arc<dyn Files>, before: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Self::booted(disk, None, before)
    }

    pub fn booted(
        disk: Arc<dyn Files>,
        boot: Option<&'static str>,
        before: impl Fn(&str) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { disk, before: Box::new(before), boot, is_read_only: AtomicBool::new(false) })
    }

    /// From now on this process may not write, as another user or in a container that mounts the store read-only.
    #[allow(dead_code, reason = "one of the tests that share this file asks for it")]
    pub fn forbid_writing(&self) {
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    fn may_write(&self) -> io::Result<()> {
        match self.is_read_only.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }

    fn tell(&self, call: &str, path: &str) {
        (self.before)(&format!("{call} {path}"));
    }
}

impl Clock for HookedDisk {
    fn now_us(&self) -> i64 {
        self.disk.now_us()
    }

    fn uptime_us(&self) -> i64 {
        self.disk.uptime_us()
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.disk.random(out)
    }

    fn sleep(&self, time: Duration) {
        self.tell("sleep", "");
        self.disk.sleep(time);
    }
}

impl Files for HookedDisk {
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.tell("link", to);
        self.may_write()?;
        self.disk.link(from, to)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.tell("create_dir", path);
        self.may_write()?;
        self.disk.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.tell("sync_dir", path);
        self.disk.sync_dir(path)
    }

    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.tell("create_new", path);
        self.may_write()?;
        self.disk.create_new(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.tell("open", path);
        self.disk.open(path)
    }

    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.tell("open_rw", path);
        self.may_write()?;
        self.disk.open_rw(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.tell("rename", to);
        self.may_write()?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.tell("remove", path);
        self.may_write()?;
        self.disk.remove(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        self.tell("list", path);
        self.disk.list(path)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.tell("exists", path);
        self.disk.exists(path)
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        self.tell("lock_state", path);
        self.disk.lock_state(path)
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        self.disk.file_system()
    }

    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        self.disk.watch(dirs)
    }

    fn boot_id(&self) -> String {
        self.boot.map_or_else(|| self.disk.boot_id(), str::to_owned)
    }
}
