//! Notices changes on a simulated disk, only as far as inotify does: a name that appears, a file that is written to.
//!
//! No wait sleeps: if nothing has changed, the time is over at once.

use std::io;
use std::time::Duration;

use super::SimDisk;
use super::faults::On;
use super::model::{Ino, Model, Op};
use super::process::enter;
use crate::disk::Watch;

pub(super) struct SimWatch {
    disk: SimDisk,
    process: u64,
    /// Each with the number of operations that came before it was watched.
    dirs: Vec<(Ino, usize)>,
    /// How many operations were looked at.
    seen: usize,
}

impl SimWatch {
    pub(super) fn new(disk: SimDisk, process: u64) -> Self {
        Self { disk, process, dirs: Vec::new(), seen: 0 }
    }
}

/// True if a watch of the directory sees the operation.
fn shows(op: &Op, watched: Ino, model: &Model) -> bool {
    match op {
        Op::Create { dir, .. } | Op::CreateDir { dir, .. } | Op::Link { dir, .. } => *dir == watched,
        Op::Rename { to_dir, .. } => *to_dir == watched,
        Op::Write { ino, .. } => {
            model.dir(watched).is_some_and(|dir| dir.names.values().any(|named| named == ino))
        }
        Op::Remove { .. } | Op::Sync { .. } | Op::SyncFailed { .. } | Op::SyncDir { .. } | Op::Event(_) => {
            false
        }
    }
}

impl Watch for SimWatch {
    fn add(&mut self, dir: &str) -> io::Result<()> {
        let inner = enter(&self.disk, self.process, On::Watch, &[dir])?;
        let Ok(ino) = inner.model.look_up(dir) else { return Ok(()) };
        if !self.dirs.iter().any(|(watched, _)| *watched == ino) {
            self.dirs.push((ino, inner.ops.len()));
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let mut inner = enter(&self.disk, self.process, On::Watch, &[])?;
        let new = inner.ops.iter().enumerate().skip(self.seen);
        let changed = new.into_iter().any(|(at, recorded)| {
            let since = |(dir, added): &(Ino, usize)| at >= *added && shows(&recorded.op, *dir, &inner.model);
            self.dirs.iter().any(since)
        });
        self.seen = inner.ops.len();
        if !changed {
            inner.pass(timeout);
            drop(inner);
            // A loop that waits for another thread must let it run.
            std::thread::yield_now();
        }
        Ok(changed)
    }
}
