//! A storage that is no directory: objects in memory, made once, under names that are only text. The engine's tests run on it
//! too (`toy.rs`), so that the doors ask for nothing that only a file system has.
#![allow(dead_code, reason = "each test takes what it needs of this")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keepstep::disk::{
    Beat, Cards, Clock, DirEntry, FileSystem, GrowingLog, HeldLock, LockState, Logs, NewCard, Presence,
    ReadLog, Watch,
};

/// The bytes of an object.
type Object = Arc<Mutex<Vec<u8>>>;

/// The objects of one store.
#[derive(Clone, Default)]
pub(crate) struct Toy(Arc<Objects>);

#[derive(Default)]
struct Objects {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    named: BTreeMap<String, Object>,
    locked: BTreeSet<String>,
    /// How often something changed that whoever follows a log wants to see.
    changes: u64,
    last_us: i64,
}

impl Toy {
    /// The store at a path that is on no disk: the same for all who ask in this process.
    pub(crate) fn at(path: &Path) -> Self {
        static STORES: LazyLock<Mutex<HashMap<PathBuf, Toy>>> = LazyLock::new(Mutex::default);
        locked(&STORES).entry(path.to_owned()).or_default().clone()
    }

    /// All names that end so.
    pub(crate) fn names(&self, ending: &str) -> Vec<String> {
        self.state().named.keys().filter(|name| name.ends_with(ending)).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }

    fn change(&self, state: &mut State) {
        state.changes += 1;
        self.0.changed.notify_all();
    }

    fn find(&self, path: &str) -> io::Result<Object> {
        self.state().named.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn object(bytes: &[u8]) -> Object {
    Arc::new(Mutex::new(bytes.to_vec()))
}

impl Clock for Toy {
    fn now_us(&self) -> i64 {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as i64;
        let mut state = self.state();
        state.last_us = now_us.max(state.last_us + 1);
        state.last_us
    }

    fn uptime_us(&self) -> i64 {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed().as_micros() as i64
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        for part in out.chunks_mut(8) {
            // Each state has keys of its own.
            let number = RandomState::new().hash_one(0).to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
        Ok(())
    }
}

impl Cards for Toy {
    fn put_all(&self, cards: &[NewCard<'_>]) -> Vec<io::Result<bool>> {
        let mut state = self.state();
        let mut outcomes = Vec::new();
        for card in cards {
            let is_free = !state.named.contains_key(card.path);
            if is_free {
                state.named.insert(card.path.to_owned(), object(card.content));
            }
            outcomes.push(Ok(is_free));
        }
        self.change(&mut state);
        outcomes
    }

    fn replace(&self, path: &str, content: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.named.insert(path.to_owned(), object(content));
        self.change(&mut state);
        Ok(())
    }

    fn get(&self, path: &str) -> io::Result<Vec<u8>> {
        Ok(locked(&*self.find(path)?).clone())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.state().named.contains_key(path) || !self.list(path)?.is_empty())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<DirEntry>> {
        let inside = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let state = self.state();
        let below = state.named.range(inside.clone()..).take_while(|(name, _)| name.starts_with(&inside));
        let entry = |name: &str| match name.split_once('/') {
            Some((folder, _)) => DirEntry { name: folder.to_owned(), is_dir: true },
            None => DirEntry { name: name.to_owned(), is_dir: false },
        };
        let entries: BTreeSet<DirEntry> = below.map(|(name, _)| entry(&name[inside.len()..])).collect();
        Ok(entries.into_iter().collect())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.state().named.remove(path).map(|_| ()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn settle(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn make_folder(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn can_write(&self, _dir: &str) -> io::Result<bool> {
        Ok(true)
    }
}

impl Logs for Toy {
    fn begin(&self, _dir: &str) -> io::Result<Box<dyn GrowingLog>> {
        Ok(Box::new(Growing { toy: self.clone(), bytes: Arc::default(), path: None }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadLog>> {
        Ok(Arc::new(Read(self.find(path)?)))
    }

    fn watch(&self, _dirs: &[String]) -> io::Result<Box<dyn Watch>> {
        Ok(Box::new(Watching { toy: self.clone(), seen: self.state().changes }))
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        Ok(FileSystem::Local("a toy"))
    }
}

struct Growing {
    toy: Toy,
    bytes: Object,
    path: Option<String>,
}

impl GrowingLog for Growing {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        locked(&self.bytes).extend_from_slice(data);
        self.toy.change(&mut self.toy.state());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn publish(&mut self, path: &str) -> io::Result<bool> {
        let mut state = self.toy.state();
        if state.named.contains_key(path) {
            return Ok(false);
        }
        state.named.insert(path.to_owned(), Arc::clone(&self.bytes));
        self.toy.change(&mut state);
        self.path = Some(path.to_owned());
        Ok(true)
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(self.path.as_ref().is_none_or(|path| self.toy.state().named.contains_key(path)))
    }
}

struct Read(Object);

impl ReadLog for Read {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = locked(&self.0);
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let read = from.len().min(out.len());
        out[..read].copy_from_slice(&from[..read]);
        Ok(read)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(locked(&self.0).len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Watching {
    toy: Toy,
    seen: u64,
}

impl Watch for Watching {
    fn add(&mut self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let is_old = |state: &mut State| state.changes == self.seen;
        let waited = self.toy.0.changed.wait_timeout_while(self.toy.state(), timeout, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let has_changed = state.changes != self.seen;
        let now = state.changes;
        drop(state);
        self.seen = now;
        Ok(has_changed)
    }
}

impl Presence for Toy {
    fn enter(&self, lock: &str, about: &[u8], beat: &str) -> io::Result<(Arc<dyn HeldLock>, Box<dyn Beat>)> {
        if !self.put(lock, about)? || !self.put(beat, b"")? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.state().locked.insert(lock.to_owned());
        let held = Lock { toy: self.clone(), path: lock.to_owned() };
        Ok((Arc::new(held), Box::new(Beating(self.find(beat)?))))
    }

    fn lock_state(&self, path: &str) -> io::Result<LockState> {
        self.find(path)?;
        Ok(if self.state().locked.contains(path) { LockState::Held } else { LockState::Free })
    }

    fn boot_id(&self) -> String {
        "the only boot".to_owned()
    }
}

struct Lock {
    toy: Toy,
    path: String,
}

impl HeldLock for Lock {
    fn renew(&self) -> io::Result<bool> {
        self.toy.state().locked.insert(self.path.clone());
        Ok(true)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.toy.state().locked.remove(&self.path);
    }
}

struct Beating(Object);

impl Beat for Beating {
    fn say(&self, content: &[u8]) -> io::Result<()> {
        *locked(&self.0) = content.to_vec();
        Ok(())
    }
}
