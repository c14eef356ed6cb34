//! What all readers of a store share: its disk, its id, open files, dictionaries, healed values.
//!
//! Nothing here writes to a writer's folder. A store has one bounded pool of open files, however many readers it has:
//! a reader takes a file from the pool each time, and keeps none.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::Id;
use keepstep_format::hash::{ContentKey, Hash};
use keepstep_format::record::Dictionary;
use keepstep_format::value::Value;

use super::heals::Heals;
use super::lru::Lru;
use super::manifest::Manifest;
use super::names::segment_path;
use super::record::Unreadable;
use super::window::Window;
use crate::disk::{Disk, ReadLog};
use crate::error::{Doing, Result};
use crate::process::Process;

/// How many segments are kept open for all readers of a store. Each costs a file descriptor.
const FILES_MAX: usize = 128;
/// How many bytes of index lists are kept in memory.
const LISTS_BYTES_MAX: usize = 32 << 20;
/// How many dictionaries are kept ready; each takes about ten times its length.
const DICTIONARIES_MAX: usize = 16;

/// Where a dictionary is: writer, segment, offset.
type DictionaryPlace = (Id, u64, u64);
/// What is kept of segments, by writer and number.
type BySegment<T> = Mutex<Lru<(Id, u64), Arc<T>>>;

/// What is cached of segments, which never change once they are written.
struct Pool {
    files: BySegment<dyn ReadLog>,
    lists: BySegment<Vec<u8>>,
    dictionaries: Mutex<HashMap<DictionaryPlace, Arc<Dictionary>>>,
}

/// A store, as its readers see it.
pub(crate) struct Storage {
    process: Process,
    disk: Arc<dyn Disk>,
    store: Id,
    key: ContentKey,
    pool: Arc<Pool>,
    heals: Mutex<Heals>,
    manifest: Mutex<Option<Arc<Manifest>>>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Storage of store {}>", self.store)
    }
}

impl Storage {
    /// A store with this id on this disk.
    pub(crate) fn new(disk: Arc<dyn Disk>, store: Id) -> Self {
        Self {
            process: Process::this(),
            disk,
            store,
            key: ContentKey::new(&store.0),
            pool: Arc::new(Pool {
                files: Mutex::new(Lru::new(FILES_MAX)),
                lists: Mutex::new(Lru::new(LISTS_BYTES_MAX)),
                dictionaries: Mutex::default(),
            }),
            heals: Mutex::default(),
            manifest: Mutex::default(),
        }
    }

    /// The same store for another reader, with the same files open. The reader looks itself which segments are in
    /// force.
    #[must_use]
    pub(crate) fn for_another(&self) -> Self {
        Self {
            process: self.process,
            disk: Arc::clone(&self.disk),
            store: self.store,
            key: self.key.clone(),
            pool: Arc::clone(&self.pool),
            heals: Mutex::default(),
            manifest: Mutex::default(),
        }
    }

    /// An error in a forked child: threads that do not exist there may hold the locks here.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The store's id.
    pub(crate) fn store(&self) -> &Id {
        &self.store
    }

    /// The key of its hashes.
    pub(crate) fn key(&self) -> &ContentKey {
        &self.key
    }

    /// A segment, open for reading.
    pub(crate) fn file(&self, writer: &Id, number: u64) -> Result<Arc<dyn ReadLog>> {
        self.check_process()?;
        self.open(writer, number).doing("open", &segment_path(writer, number))
    }

    /// A segment, open for reading, or the error of the system.
    pub(super) fn open(&self, writer: &Id, number: u64) -> io::Result<Arc<dyn ReadLog>> {
        if let Some(file) = lock(&self.pool.files).get(&(*writer, number)) {
            return Ok(file);
        }
        let file = self.disk.open(&segment_path(writer, number))?;
        lock(&self.pool.files).put((*writer, number), Arc::clone(&file), 1);
        Ok(file)
    }

    /// A segment, to be read in windows of at least `ahead_bytes`.
    pub(crate) fn window(&self, writer: &Id, number: u64, ahead_bytes: usize) -> Result<Window> {
        Ok(Window::new(self.file(writer, number)?, ahead_bytes))
    }

    /// The lists of a sealed segment, read by `read` if they are not cached.
    pub(super) fn lists(
        &self,
        writer: &Id,
        number: u64,
        read: impl FnOnce() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Arc<Vec<u8>>>> {
        self.check_process()?;
        if let Some(lists) = lock(&self.pool.lists).get(&(*writer, number)) {
            return Ok(Some(lists));
        }
        let Some(lists) = read()? else { return Ok(None) };
        let lists = Arc::new(lists);
        lock(&self.pool.lists).put((*writer, number), Arc::clone(&lists), lists.len());
        Ok(Some(lists))
    }

    /// A dictionary, read by `read` if it is not cached.
    pub(super) fn dictionary(
        &self,
        place: DictionaryPlace,
        read: impl FnOnce() -> Result<Vec<u8>, Unreadable>,
    ) -> Result<Arc<Dictionary>, Unreadable> {
        self.check_process().map_err(Unreadable::Io)?;
        if let Some(dictionary) = lock(&self.pool.dictionaries).get(&place) {
            return Ok(Arc::clone(dictionary));
        }
        let dictionary = Arc::new(Dictionary::new(read()?));
        let mut dictionaries = lock(&self.pool.dictionaries);
        if dictionaries.len() >= DICTIONARIES_MAX {
            dictionaries.clear();
        }
        dictionaries.insert(place, Arc::clone(&dictionary));
        Ok(dictionary)
    }

    /// Which segments are in force, as of the last look.
    pub(crate) fn manifest(&self) -> Result<Arc<Manifest>> {
        self.check_process()?;
        if let Some(manifest) = &*lock(&self.manifest) {
            return Ok(Arc::clone(manifest));
        }
        self.renew_manifest()
    }

    /// Checks whether other segments are in force now.
    pub(crate) fn renew_manifest(&self) -> Result<Arc<Manifest>> {
        self.check_process()?;
        let mut held = lock(&self.manifest);
        if let Some(manifest) = &*held
            && !manifest.is_outdated(self)?
        {
            return Ok(Arc::clone(manifest));
        }
        let manifest = Arc::new(Manifest::newest(self)?);
        *held = Some(Arc::clone(&manifest));
        Ok(manifest)
    }

    /// A value that was lost here and found elsewhere.
    pub(crate) fn healed(&self, hash: &Hash) -> Option<Value> {
        // In a forked child, opening the file is refused; here the answer can only be `None`.
        if self.process.is_this() { lock(&self.heals).get(self, hash) } else { None }
    }

    /// Looks for new healed values when the next one is needed.
    pub(crate) fn look_for_heals(&self) {
        if self.process.is_this() {
            lock(&self.heals).look_again();
        }
    }

    /// The cards of healed values that cannot be read, known after a value was asked for.
    pub(crate) fn bad_heals(&self) -> Vec<String> {
        if self.process.is_this() { lock(&self.heals).bad().to_vec() } else { Vec::new() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // These locks guard caches only: a panic elsewhere leaves them usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
