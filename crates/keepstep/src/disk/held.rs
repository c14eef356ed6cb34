//! Which files this process has locked. They are never opened a second time: closing any descriptor of a file frees every
//! POSIX lock that its process has on it.
//!
//! There is no mutex here: one that another thread holds while the process forks would be held in the child for ever.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// How many files a process can have locked at a time: one for each store that it records to.
const SLOTS_MAX: usize = 4096;
const FREE: u32 = 0;
/// A thread is about to fill the slot. If the process forks just then, its child loses one slot.
const FILLING: u32 = u32::MAX;

struct Slot {
    /// The process that has the lock: what a child inherits of this table is not its own.
    process: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
}

static SLOTS: [Slot; SLOTS_MAX] =
    [const { Slot { process: AtomicU32::new(FREE), device: AtomicU64::new(0), inode: AtomicU64::new(0) } };
        SLOTS_MAX];

/// One more than the highest slot that was ever filled: every file that is opened is compared with the slots before
/// it.
static FILLED: AtomicUsize = AtomicUsize::new(0);

/// This process has a file locked, until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    slot: usize,
    process: u32,
}

impl Held {
    /// Notes that this process is about to lock a file.
    pub(super) fn note(device: u64, inode: u64) -> io::Result<Self> {
        let process = std::process::id();
        for (slot, it) in SLOTS.iter().enumerate() {
            let owner = it.process.load(Ordering::Acquire);
            let is_taken = owner == process || owner == FILLING;
            if is_taken
                || it.process.compare_exchange(owner, FILLING, Ordering::AcqRel, Ordering::Relaxed).is_err()
            {
                continue;
            }
            it.device.store(device, Ordering::Relaxed);
            it.inode.store(inode, Ordering::Relaxed);
            FILLED.fetch_max(slot + 1, Ordering::AcqRel);
            it.process.store(process, Ordering::Release);
            return Ok(Self { slot, process });
        }
        Err(io::Error::other(format!("this process has {SLOTS_MAX} stores open: close some")))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a forked child the slot may be the child's own by now.
        let process = &SLOTS[self.slot].process;
        let _ = process.compare_exchange(self.process, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// True if this process has the file locked.
pub(super) fn is_ours(device: u64, inode: u64) -> bool {
    let process = std::process::id();
    let filled = &SLOTS[..FILLED.load(Ordering::Acquire)];
    filled.iter().any(|slot| {
        slot.process.load(Ordering::Acquire) == process
            && slot.device.load(Ordering::Relaxed) == device
            && slot.inode.load(Ordering::Relaxed) == inode
    })
}

/// What opening a file gives that this process has locked.
pub(super) fn refusal() -> io::Error {
    io::Error::new(
        io::ErrorKind::Deadlock,
        "this process has it locked, and closing it again would free the lock",
    )
}
