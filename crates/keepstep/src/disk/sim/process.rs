//! The simulated disk as one process sees it: the calls of [`Disk`] and [`File`].
//!
//! A call checks everything first; what it then records cannot fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;

use super::faults::{Errno as Failure, Hit, On};
use super::model::{Ino, Op};
use super::watch::SimWatch;
use super::{Inner, SimDisk};
use crate::disk::clock::LastSaid;
use crate::disk::{Clock, DirEntry, File, FileSystem, Files, LockState, Watch};

/// One process on a simulated disk.
pub struct SimProcess {
    disk: SimDisk,
    id: u64,
    last_said: LastSaid,
}

/// Who has locked what, and who is dead.
#[derive(Default)]
pub(super) struct Processes {
    started: u64,
    killed: Vec<u64>,
    locks: BTreeMap<Ino, u64>,
}

struct SimFile {
    disk: SimDisk,
    process: u64,
    ino: Ino,
    path: String,
    writable: bool,
}

/// Lets a process that is alive in, unless the call is planned to fail.
pub(super) fn enter<'a>(
    disk: &'a SimDisk,
    process: u64,
    call: On,
    paths: &[&str],
) -> io::Result<MutexGuard<'a, Inner>> {
    let mut inner = enter_alive(disk, process)?;
    match inner.plan.hit(call, || paths.iter().map(|&path| path.to_owned()).collect()) {
        Some(hit) => Err(hit.errno.into()),
        None => Ok(inner),
    }
}

fn enter_alive(disk: &SimDisk, process: u64) -> io::Result<MutexGuard<'_, Inner>> {
    let inner = disk.inner();
    if inner.processes.killed.contains(&process) {
        return Err(io::Error::other("this process was killed"));
    }
    Ok(inner)
}

impl SimProcess {
    pub(super) fn start(disk: &SimDisk) -> Self {
        let mut inner = disk.inner();
        inner.processes.started += 1;
        let id = inner.processes.started;
        drop(inner);
        Self { disk: disk.clone(), id, last_said: LastSaid::nothing() }
    }

    /// Ends the process as SIGKILL does: its locks are free, what it wrote stays cached, its handles are of no use.
    pub fn kill(&self) {
        let mut inner = self.disk.inner();
        inner.processes.locks.retain(|_, owner| *owner != self.id);
        inner.processes.killed.push(self.id);
    }

    /// As if other code of this process had opened and closed its locked files, as a copy of the store does: fcntl frees
    /// all locks that the process has on them.
    pub fn lose_locks(&self) {
        self.disk.inner().processes.locks.retain(|_, owner| *owner != self.id);
    }

    /// The disk that it is on.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    fn enter(&self, call: On, paths: &[&str]) -> io::Result<MutexGuard<'_, Inner>> {
        enter(&self.disk, self.id, call, paths)
    }

    fn file(&self, ino: Ino, path: &str, writable: bool) -> Arc<dyn File> {
        let (disk, path) = (self.disk.clone(), path.to_owned());
        Arc::new(SimFile { disk, process: self.id, ino, path, writable })
    }

    fn open_as(&self, path: &str, writable: bool) -> io::Result<Arc<dyn File>> {
        let inner = self.enter(On::Open, &[path])?;
        let ino = inner.model.look_up(path)?;
        inner.model.file(ino).ok_or(Errno::ISDIR)?;
        if inner.processes.locks.get(&ino) == Some(&self.id) {
            return Err(crate::disk::held::refusal());
        }
        Ok(self.file(ino, path, writable))
    }
}

impl Inner {
    /// A new name needs a block too.
    fn check_room(&self) -> io::Result<()> {
        match self.plan.capacity_bytes {
            Some(capacity) if self.model.used_bytes() >= capacity => Err(Failure::Enospc.into()),
            _ => Ok(()),
        }
    }

    /// How many of the bytes that would be written there fit on the disk.
    fn fitting(&self, ino: Ino, offset: u64, bytes: usize) -> usize {
        let Some(capacity) = self.plan.capacity_bytes else { return bytes };
        let length = self.model.file(ino).map_or(0, |file| file.content.bytes());
        let end_max = length + capacity.saturating_sub(self.model.used_bytes());
        end_max.saturating_sub(offset).min(bytes as u64) as usize
    }
}

impl Clock for SimProcess {
    fn now_us(&self) -> i64 {
        let mut inner = self.disk.inner();
        let now_us = inner.tick() + inner.origin.skew_us;
        self.last_said.say(now_us)
    }

    fn uptime_us(&self) -> i64 {
        self.disk.inner().tick()
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.enter(On::Random, &[])?.chance.fill(out);
        Ok(())
    }

    fn sleep(&self, time: Duration) {
        self.disk.inner().pass(time);
        // A loop that waits for another thread must let it run.
        std::thread::yield_now();
    }
}

impl Files for SimProcess {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut inner = self.enter(On::CreateDir, &[path])?;
        let (dir, name) = inner.model.new_place(path)?;
        inner.check_room()?;
        inner.record(Op::CreateDir { dir, name });
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut inner = self.enter(On::SyncDir, &[path])?;
        let dir = inner.model.look_up(path)?;
        inner.model.dir(dir).ok_or(Errno::NOTDIR)?;
        inner.record(Op::SyncDir { dir });
        Ok(())
    }

    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let mut inner = self.enter(On::Create, &[path])?;
        let (dir, name) = inner.model.new_place(path)?;
        inner.check_room()?;
        let ino = inner.model.nodes.len();
        inner.record(Op::Create { dir, name });
        Ok(self.file(ino, path, true))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_as(path, false)
    }

    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_as(path, true)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.enter(On::Link, &[from, to])?;
        let ino = inner.model.look_up(from)?;
        inner.model.file(ino).ok_or(Errno::PERM)?;
        let (dir, name) = inner.model.new_place(to)?;
        inner.check_room()?;
        inner.record(Op::Link { dir, name, ino });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.enter(On::Rename, &[from, to])?;
        let ino = inner.model.look_up(from)?;
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(Errno::INVAL.into());
        }
        let (from_dir, from) = inner.model.place(from)?;
        let (to_dir, to) = inner.model.place(to)?;
        match inner.model.child(to_dir, &to) {
            // Two names of one file: POSIX does nothing and calls it a success.
            Some(target) if target == ino => return Ok(()),
            Some(target) if inner.model.dir(target).is_some() => return Err(Errno::ISDIR.into()),
            Some(_) if inner.model.dir(ino).is_some() => return Err(Errno::NOTDIR.into()),
            _ => {}
        }
        inner.record(Op::Rename { from_dir, from, to_dir, to });
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut inner = self.enter(On::Remove, &[path])?;
        let ino = inner.model.look_up(path)?;
        inner.model.file(ino).ok_or(Errno::ISDIR)?;
        let (dir, name) = inner.model.place(path)?;
        inner.record(Op::Remove { dir, name });
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        let inner = self.enter(On::List, &[path])?;
        let ino = match inner.model.look_up(path) {
            Ok(ino) => ino,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let dir = inner.model.dir(ino).ok_or(Errno::NOTDIR)?;
        let entry = |(name, &ino): (&Arc<str>, &Ino)| DirEntry {
            name: name.as_ref().to_owned(),
            is_dir: inner.model.dir(ino).is_some(),
        };
        Ok(dir.names.iter().map(entry).collect())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let inner = self.enter(On::Exists, &[path])?;
        match inner.model.look_up(path) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        let inner = self.enter(On::Lock, &[path])?;
        let ino = inner.model.look_up(path)?;
        let is_held = inner.processes.locks.contains_key(&ino);
        Ok(if is_held { LockState::Held } else { LockState::Free })
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        Ok(enter_alive(&self.disk, self.id)?.origin.file_system)
    }

    fn watch(&self, dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        let mut watch = SimWatch::new(self.disk.clone(), self.id);
        for dir in dirs {
            watch.add(dir)?;
        }
        Ok(Box::new(watch))
    }

    fn boot_id(&self) -> String {
        self.disk.inner().boot_id()
    }
}

impl SimFile {
    fn hit(&self, inner: &mut Inner, call: On) -> Option<Hit> {
        let Inner { plan, model, .. } = inner;
        if plan.is_empty() {
            return None;
        }
        plan.hit(call, || {
            let now = model.paths().into_iter().filter(|&(_, ino)| ino == self.ino);
            now.map(|(path, _)| path).chain([self.path.clone()]).collect()
        })
    }

    fn enter(&self, call: On) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = enter_alive(&self.disk, self.process)?;
        match self.hit(&mut inner, call) {
            Some(hit) => Err(hit.errno.into()),
            None => Ok(inner),
        }
    }
}

impl File for SimFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let inner = self.enter(On::Read)?;
        Ok(inner.model.file(self.ino).map_or(0, |file| file.content.read(out, offset)))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = enter_alive(&self.disk, self.process)?;
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        let (bytes, failure) = match self.hit(&mut inner, On::Write) {
            Some(hit) => (hit.short_bytes.min(data.len()), Some(hit.errno)),
            None => (data.len(), None),
        };
        let fitting = inner.fitting(self.ino, offset, bytes);
        if fitting > 0 {
            inner.record(Op::Write { ino: self.ino, offset, data: Arc::from(&data[..fitting]) });
        }
        match failure {
            Some(errno) => Err(errno.into()),
            None if fitting < bytes => Err(Failure::Enospc.into()),
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = enter_alive(&self.disk, self.process)?;
        if let Some(hit) = self.hit(&mut inner, On::Sync) {
            inner.record(Op::SyncFailed { ino: self.ino });
            return Err(hit.errno.into());
        }
        inner.record(Op::Sync { ino: self.ino });
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        let inner = self.enter(On::Stat)?;
        Ok(inner.model.file(self.ino).map_or(0, |file| file.content.bytes()))
    }

    fn links(&self) -> io::Result<u64> {
        Ok(u64::from(self.enter(On::Stat)?.model.links[self.ino]))
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut inner = self.enter(On::Lock)?;
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        Ok(*inner.processes.locks.entry(self.ino).or_insert(self.process) == self.process)
    }
}

impl Drop for SimFile {
    /// As fcntl does: closing any handle to a file frees the lock that this process has on it.
    fn drop(&mut self) {
        let mut inner = self.disk.inner();
        if inner.processes.locks.get(&self.ino) == Some(&self.process) {
            inner.processes.locks.remove(&self.ino);
        }
    }
}
