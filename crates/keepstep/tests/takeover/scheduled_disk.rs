//! The disk as one actor sees it. Every operation is sorted: can another actor make a difference here, or not?
//!
//! Not a decision, and why that loses nothing: what is in the making (only its maker knows the name), directories
//! (whoever finds one goes on as if it had made it), beats, locks, chance and the clock (each actor has its own).
//! Nor is what nobody can change any more: names are create-only, so one that is there stays there and keeps its content, and a
//! link to it fails for ever; segments are only appended to (asserted below), so bytes below the length stay as they are.
//! Nor is a look at what only one other can change, if that one has nothing left to do. Such an operation gives the same
//! result now or later and is seen by nobody, so to let it run first leaves out no outcome.
//!
//! Of one look at a log, one measure counts: `UnsealedFacts::file_bytes`. What is fetched afterwards lies below it and never
//! changes, so the measures that only say how far to read ahead repeat that answer. `at_every_measure` believes
//! nothing of this and decides at each.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keepstep::disk::{Clock, DirEntry, File, FileSystem, Files, LockState, Watch};

use super::shelf::{Shelf, digest};
use super::stage::{Rules, Scene, Stage};

/// What `compact` makes; where nobody does, which is asserted, looks for it are no decisions.
const TENDED: &str = "grouped";

/// An actor's disk.
#[derive(Clone)]
pub struct ScheduledDisk {
    stage: Arc<Stage>,
    actor: usize,
    seed: u64,
    clock: Arc<AtomicU64>,
    drawn: Arc<AtomicU64>,
    /// How often this actor began to look at a log.
    looks: Arc<AtomicU64>,
}

impl ScheduledDisk {
    /// The same seed gives the same chance to the same actor, whatever the others do.
    pub fn new(stage: &Arc<Stage>, actor: usize, seed: u64) -> Self {
        let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000 + (actor as u64) * 1_000_000_000));
        Self { stage: Arc::clone(stage), actor, seed, clock, drawn: Arc::default(), looks: Arc::default() }
    }

    fn local<T>(&self, what: impl FnOnce(&mut Shelf) -> T) -> io::Result<T> {
        self.stage.local(self.actor, what)
    }

    /// True if a look for this name may have another answer later.
    fn may_appear(&self, scene: &Scene, path: &str) -> bool {
        if path.starts_with(TENDED) && !self.stage.rules.tends {
            return false;
        }
        let Rules { names_change, scans_appear, .. } = self.stage.rules;
        if names_change && path.starts_with("claims/") {
            return scene.has_others(self.actor);
        }
        // A base is published by whoever has the claim.
        let claim = path.strip_suffix(".base").map(|attempt| format!("{attempt}.claim"));
        let claimant = claim.and_then(|claim| scene.shelf.maker_of(&claim));
        let by_others = claimant.is_none_or(|claimant| self.is_anothers(scene, claimant));
        let may_be_made = by_others && (scans_appear || !path.starts_with("scans/"));
        may_be_made && scene.has_others(self.actor) && !scene.shelf.exists(path)
    }

    /// True if another may still change what it made.
    fn is_anothers(&self, scene: &Scene, maker: usize) -> bool {
        maker != self.actor && scene.can_act(maker)
    }

    /// Whoever has won a claim reads everything afresh, and goes on by its attempt alone; whoever has published a base goes on by
    /// what stands in it. What was seen before decides nothing more, so runs that differ only in that are one.
    fn forget(&self, published: &str) {
        let drawn = self.drawn.load(Ordering::Relaxed);
        if !self.stage.rules.remembers_all {
            self.stage.forget_all_but(self.actor, digest((published, drawn)));
        }
    }

    fn open_file(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let is_visible = |scene: &Scene| self.may_appear(scene, path);
        let about_to = || format!("look for {path}");
        let file = self.stage.act(self.actor, about_to, is_visible, |shelf| shelf.file(path))?;
        self.stage.tell(self.actor, digest((path, file.as_ref().ok())));
        self.handle(file?, path)
    }

    fn handle(&self, file: usize, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Handle { door: self.clone(), file, path: path.to_owned(), measured: Mutex::default() }))
    }
}

impl Clock for ScheduledDisk {
    fn now_us(&self) -> i64 {
        // It stands still unless somebody sleeps: states that differ only in the time are one.
        self.clock.load(Ordering::Relaxed) as i64
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        for chunk in out.chunks_mut(8) {
            let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
            let bytes = digest((self.seed, self.actor, drawn)).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(())
    }

    fn sleep(&self, time: Duration) {
        self.clock.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Files for ScheduledDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.local(|shelf| shelf.create_dir(path, self.actor))?
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let is_visible = |_: &Scene| self.stage.rules.at_syncs;
        self.stage.act(self.actor, || format!("sync the folder {path}"), is_visible, |_| ())?;
        self.stage.tell(self.actor, 0);
        Ok(())
    }

    fn create_new(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let file = self.local(|shelf| shelf.create(path, self.actor))??;
        self.handle(file, path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(path)
    }

    fn open_rw(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(path)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        // Whose word an attempt's end is does not matter to those who open the episode: nobody looks.
        let is_end = to.starts_with("ends/");
        let is_tended = to.starts_with(TENDED);
        assert!(!is_tended || self.stage.rules.tends, "{to} is made, and looks for it are no decisions");
        let is_visible = |scene: &Scene| !is_end && !scene.shelf.exists(to);
        let done = self.stage.act(
            self.actor,
            || format!("create {to}"),
            is_visible,
            |shelf| shelf.link(from, to),
        )?;
        // Nor does it matter how many numbers were taken.
        if !is_end && !to.starts_with("mail/") {
            self.stage.tell(self.actor, digest((to, done.is_ok())));
        }
        if done.is_ok() && to.starts_with("claims/") {
            self.forget(to);
        }
        done
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let about_to = || format!("rename to {to}");
        let done = self.stage.act(self.actor, about_to, |_| true, |shelf| shelf.rename(from, to))?;
        self.stage.tell(self.actor, 0);
        done
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.local(|shelf| shelf.remove(path))?
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirEntry>> {
        let (is_log, is_mail) = (path.starts_with("writers/"), path.starts_with("mail/"));
        let is_visible = |scene: &Scene| match scene.shelf.maker_of(path) {
            Some(maker) if is_log => self.is_anothers(scene, maker),
            // Whoever tends looks for what was left in the making, which changes nothing that is read.
            _ if self.stage.rules.tends => (is_mail || path == TENDED) && scene.has_others(self.actor),
            // Only where to begin looking for a free number: they are dense, so it makes no difference.
            _ => !is_mail && path != TENDED && scene.has_others(self.actor),
        };
        let about_to = || format!("list {path}");
        let found = self.stage.act(self.actor, about_to, is_visible, |shelf| shelf.list(path))?;
        if is_log {
            // A new look at this log begins.
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
        if !is_mail || self.stage.rules.tends {
            self.stage.tell(self.actor, digest(&found));
        }
        Ok(found.into_iter().map(|(name, is_dir)| DirEntry { name, is_dir }).collect())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let is_visible = |scene: &Scene| self.may_appear(scene, path);
        let about_to = || format!("look whether {path} is there");
        let is_there = self.stage.act(self.actor, about_to, is_visible, |shelf| shelf.exists(path))?;
        self.stage.tell(self.actor, u64::from(is_there));
        Ok(is_there)
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        let is_held = self.local(|shelf| shelf.file(path).map(|file| shelf.locked_by(file).is_some()))??;
        // Where locks slip, evidence is always wrong about the living: nothing may rest on it.
        let is_held = is_held && !self.stage.rules.locks_slip;
        self.stage.tell(self.actor, u64::from(is_held));
        Ok(if is_held { LockState::Held } else { LockState::Free })
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        Ok(FileSystem::Local("shelf"))
    }

    fn watch(&self, _: &[String]) -> io::Result<Box<dyn Watch>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn boot_id(&self) -> String {
        "one boot".to_owned()
    }
}

struct Handle {
    door: ScheduledDisk,
    file: usize,
    path: String,
    /// In which look it was measured, and how long it was.
    measured: Mutex<Option<(u64, u64)>>,
}

impl Handle {
    fn is_segment(&self, shelf: &Shelf) -> bool {
        // A segment is made under a temporary name, which its handle keeps.
        let is_made = self.path.starts_with("writers/") && self.path.contains(".tmp-");
        shelf.is_published(self.file) && (is_made || self.path.ends_with(".seg"))
    }

    /// True if it is a log that another may still append to.
    fn may_grow(&self, scene: &Scene) -> bool {
        self.is_segment(&scene.shelf) && self.door.is_anothers(scene, scene.shelf.maker(self.file))
    }

    fn write(&self, data: &[u8], offset: usize) -> io::Result<()> {
        let ScheduledDisk { stage, actor, .. } = &self.door;
        let about_to = || format!("write {} bytes at {offset} of {}", data.len(), self.path);
        stage.act(
            *actor,
            about_to,
            |scene| self.is_segment(&scene.shelf),
            |shelf| {
                let appends = offset == shelf.data(self.file).len();
                assert!(appends || !self.is_segment(shelf), "{} is written twice at {offset}", self.path);
                shelf.write(self.file, data, offset);
            },
        )?;
        stage.tell(*actor, offset as u64);
        Ok(())
    }
}

impl File for Handle {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let ScheduledDisk { stage, actor, .. } = &self.door;
        let (offset, wanted) = (offset as usize, out.len());
        let is_visible = |scene: &Scene| {
            let is_beyond = offset + wanted > scene.shelf.data(self.file).len();
            is_beyond && self.may_grow(scene)
        };
        let about_to = || format!("read {wanted} bytes at {offset} of {}", self.path);
        let read = stage.act(*actor, about_to, is_visible, |shelf| {
            let data = shelf.data(self.file).get(offset..).unwrap_or_default();
            let read = wanted.min(data.len());
            out[..read].copy_from_slice(&data[..read]);
            read
        })?;
        stage.tell(*actor, digest(&out[..read]));
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let is_split = self.door.stage.rules.splits_writes && data.len() > 1;
        let (front, back) = data.split_at(if is_split { data.len() / 2 } else { 0 });
        if is_split {
            self.write(front, offset as usize)?;
        }
        self.write(back, offset as usize + front.len())
    }

    fn sync(&self) -> io::Result<()> {
        let ScheduledDisk { stage, actor, .. } = &self.door;
        let is_visible = |scene: &Scene| stage.rules.at_syncs && self.is_segment(&scene.shelf);
        stage.act(*actor, || format!("sync {}", self.path), is_visible, |_| ())?;
        stage.tell(*actor, 0);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        let ScheduledDisk { stage, actor, .. } = &self.door;
        let look = self.door.looks.load(Ordering::Relaxed);
        let mut measured = self.measured.lock().expect("no panic");
        if let Some((_, bytes)) = measured.filter(|(at, _)| *at == look && !stage.rules.at_every_measure) {
            return Ok(bytes);
        }
        let about_to = || format!("measure {}", self.path);
        let is_visible = |scene: &Scene| self.may_grow(scene);
        let bytes = stage.act(*actor, about_to, is_visible, |shelf| shelf.data(self.file).len())? as u64;
        stage.tell(*actor, bytes);
        if self.path.ends_with(".seg") {
            *measured = Some((look, bytes));
        }
        Ok(bytes)
    }

    fn links(&self) -> io::Result<u64> {
        self.door.local(|shelf| shelf.links(self.file))
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.door.local(|shelf| shelf.lock(self.file, self.door.actor))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.door.stage.unlock(self.file, self.door.actor);
    }
}
