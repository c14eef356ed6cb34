//! Makes chosen calls fail, and the disk full.
//!
//! Faults belong to the running disk: what a power cut or a kill leaves behind starts without them.

use std::io;

use super::SimDisk;

/// Which calls a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// `File::write_at`.
    Write,
    /// `File::sync`. What was dirty is then called clean, as Linux does: only writing it again can make it safe.
    Sync,
    /// `Disk::sync_dir`. The names stay un-synced; a later sync that works covers them.
    SyncDir,
    /// `Disk::create_new`.
    Create,
    /// `Disk::create_dir`.
    CreateDir,
    /// `Disk::link`.
    Link,
    /// `Disk::rename`.
    Rename,
    /// `Disk::remove`.
    Remove,
    /// `Disk::open` and `Disk::open_rw`.
    Open,
    /// `File::read_at`.
    Read,
    /// `Disk::list`.
    List,
    /// `Disk::exists`.
    Exists,
    /// `File::bytes` and `File::links`.
    Stat,
    /// `File::try_lock` and `Disk::lock_state`.
    Lock,
    /// `Disk::watch`, `Watch::add` and `Watch::wait`.
    Watch,
    /// `Disk::random`.
    Random,
    /// Every call that changes something: writes, creations, links, renames and removals, not syncs.
    Change,
    /// Every call that can fail.
    Any,
}

impl On {
    fn covers(self, call: Self) -> bool {
        use On::{Any, Change, Create, CreateDir, Link, Remove, Rename, Write};
        match self {
            Any => true,
            Change => matches!(call, Write | Create | CreateDir | Link | Rename | Remove),
            _ => self == call,
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// The device is broken.
    Eio,
    /// The disk is full.
    Enospc,
    /// The file system went read-only.
    Erofs,
    /// The directory has vanished.
    Enoent,
    /// Too many files are open.
    Emfile,
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::Eio => rustix::io::Errno::IO,
            Errno::Enospc => rustix::io::Errno::NOSPC,
            Errno::Erofs => rustix::io::Errno::ROFS,
            Errno::Enoent => rustix::io::Errno::NOENT,
            Errno::Emfile => rustix::io::Errno::MFILE,
        }
        .into()
    }
}

/// A plan to make calls fail.
#[derive(Debug, Clone)]
pub struct Fault {
    on: On,
    errno: Errno,
    skipped: u64,
    /// None: until cleared.
    left: Option<u64>,
    short_bytes: usize,
    path_part: String,
}

impl Fault {
    /// Fails the next such call, once.
    pub fn new(on: On, errno: Errno) -> Self {
        Self { on, errno, skipped: 0, left: Some(1), short_bytes: 0, path_part: String::new() }
    }

    /// Lets this many calls pass first.
    pub fn after(mut self, calls: u64) -> Self {
        self.skipped = calls;
        self
    }

    /// Fails this many calls, one after the other.
    pub fn times(mut self, calls: u64) -> Self {
        self.left = Some(calls);
        self
    }

    /// Fails until [`Faults::clear`].
    pub fn until_cleared(mut self) -> Self {
        self.left = None;
        self
    }

    /// A write puts down this many bytes before it fails.
    pub fn short(mut self, bytes: usize) -> Self {
        self.short_bytes = bytes;
        self
    }

    /// Counts and fails only calls on paths with this in them. A file has every path that leads to it, and the one
    /// that it was opened by.
    pub fn at(mut self, path_part: &str) -> Self {
        path_part.clone_into(&mut self.path_part);
        self
    }
}

/// What a planned failure does.
pub(super) struct Hit {
    pub(super) errno: Errno,
    pub(super) short_bytes: usize,
}

#[derive(Default)]
pub(super) struct Plan {
    faults: Vec<Fault>,
    hits: u64,
    pub(super) capacity_bytes: Option<u64>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Counts a call, and says whether it fails. `paths` is asked for only if it matters.
    pub(super) fn hit(&mut self, call: On, paths: impl Fn() -> Vec<String>) -> Option<Hit> {
        let mut hit = None;
        for fault in &mut self.faults {
            if !fault.on.covers(call) || fault.left == Some(0) {
                continue;
            }
            if !fault.path_part.is_empty() && !paths().iter().any(|path| path.contains(&fault.path_part)) {
                continue;
            }
            if fault.skipped > 0 {
                fault.skipped -= 1;
                continue;
            }
            if hit.is_none() {
                fault.left = fault.left.map(|left| left - 1);
                hit = Some(Hit { errno: fault.errno, short_bytes: fault.short_bytes });
            }
        }
        self.hits += u64::from(hit.is_some());
        hit
    }
}

/// The faults of a disk.
#[derive(Clone)]
pub struct Faults {
    pub(super) disk: SimDisk,
}

impl Faults {
    /// Adds a fault. Where two would hit one call, the first planned does.
    pub fn plan(&self, fault: Fault) {
        self.disk.inner().plan.faults.push(fault);
    }

    /// Forgets all planned faults. The capacity stays.
    pub fn clear(&self) {
        self.disk.inner().plan.faults.clear();
    }

    /// How many calls have failed by plan; a full disk does not count.
    pub fn hits(&self) -> u64 {
        self.disk.inner().plan.hits
    }

    /// Limits the bytes of all files together; None is no limit. A write that does not fit puts down what fits.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk.inner().plan.capacity_bytes = bytes;
    }

    /// The bytes of all files together.
    pub fn used_bytes(&self) -> u64 {
        self.disk.inner().model.used_bytes()
    }
}
