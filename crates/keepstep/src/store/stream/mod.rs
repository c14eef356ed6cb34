//! A stream: an append-only set of entries that many processes share, frozen once.
//!
//! Putting the same entry again is harmless. Another value under the same id is refused if this process can see the
//! first one; otherwise [`Stream::freeze`] reports it.

pub(in crate::store) mod freeze;
mod kept;
mod open_streams;
pub(in crate::store) mod reading;
pub(in crate::store) mod view;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use keepstep_format::commit::What;
use keepstep_format::frame::Kind;
use keepstep_format::hash::Hash;
use keepstep_format::rehash::Rehash;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields, ids};

use crate::error::{Error, Result};
use crate::options::Level;
use crate::own::streams::{COPIED, PUT, StreamFiles};
use crate::read::{Catalog, stream_bind, stream_entries};
use crate::recover::Recovery;
use crate::segment::{Liveness, Storage};
use crate::store::{Run, Store};
use crate::write::{Putter, Receipt, SubjectKey, SubjectName, Writer};

use kept::KeptValues;
pub(in crate::store) use open_streams::OpenStreams;

/// How often a process that puts entries looks at those of other processes. Looking more often costs more than it
/// finds.
const LOOK_EVERY_US: i64 = 100_000;

/// An open stream. Clones, and handles of the same stream from the same store, share one state.
#[derive(Clone)]
pub struct Stream {
    pub(in crate::store) store: Store,
    pub(in crate::store) shared: Arc<Shared>,
}

/// What all handles of one stream share. The store keeps it for later handles.
pub(in crate::store) struct Shared {
    pub(in crate::store) files: StreamFiles,
    pub(in crate::store) storage: Arc<Storage>,
    run: String,
    state: Mutex<State>,
    /// What was read last, with its values. Locked before `state`.
    kept: Mutex<KeptValues>,
}

#[derive(Default)]
struct State {
    /// Made with the first entry, after the claim is durable.
    putter: Option<Arc<Putter>>,
    /// Entries that this process put or saw.
    seen: HashMap<String, Seen>,
    /// Entries that this process put and that are not durable yet.
    in_flight: VecDeque<(String, Receipt)>,
    others: Others,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    hash: Hash,
    is_durable: bool,
}

/// How far the entries of other processes were seen, by whoever read them here.
#[derive(Default)]
struct Others {
    next_seq: HashMap<Id, u32>,
    looked_us: Option<i64>,
}

impl Run {
    /// A stream of this run, by name. Nothing is written before the first entry.
    pub fn stream(&self, name: &str) -> Stream {
        let id = ids::stream(&self.generation_id(), name);
        if self.store.check_process().is_err() {
            // A forked child: the handle is refused when it is used. The list must not be locked, since a thread that
            // does not exist here may hold the lock.
            return Stream { store: self.store.clone(), shared: self.shared_stream(id, name) };
        }
        let shared = self.store.inner.streams.get_or_make(id, || self.shared_stream(id, name));
        Stream { store: self.store.clone(), shared }
    }

    fn shared_stream(&self, id: Id, name: &str) -> Arc<Shared> {
        let files = StreamFiles { stream: id, generation_id: self.generation_id(), name: name.to_owned() };
        let (storage, run) = (self.store.storage(), self.name().to_owned());
        Arc::new(Shared { files, storage, run, state: Mutex::default(), kept: Mutex::default() })
    }
}

impl Stream {
    /// Its id. Every machine computes the same one.
    pub fn id(&self) -> Id {
        self.shared.files.stream
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.files.name
    }

    /// Puts an entry. Returns at once; every process sees the entry once its receipt says that it is durable.
    ///
    /// The same value under the same id is fine. Another value is refused with `BadInput` if this process put the
    /// entry, through whatever handle, or can see it; otherwise [`Stream::freeze`] reports it. After a freeze or a drop
    /// it is `Fenced`. The ids of all entries and a hash of each are in memory while a handle is open; the store also
    /// keeps those of the streams that were used last, up to a limit.
    pub fn put(&self, id: &str, value: Value) -> Result<Receipt> {
        let putter = self.putter()?;
        self.look_at_others(&mut self.lock())?;
        // Encoded outside of the lock, so that threads that put large values do not wait for one another.
        let time = self.store.disk().now_us();
        let entry =
            [(fields::TIME, Value::Int(time)), (fields::NAME, Value::from(id)), (fields::VALUE, value)];
        let (pending, hash) = putter.prepare(Kind::Put, &entry)?;
        // The encoder does not hash short values, so they are hashed here.
        let hash = hash.or_else(|| Rehash::new(self.store.key()).value(&entry[2].1));
        let hash = hash.ok_or_else(|| Error::BadInput {
            field: format!("entry {id:?}"),
            value: "has a part that was lost to damage".to_owned(),
            fix: "put a whole value".to_owned(),
        })?;
        drop(entry);
        let mut state = self.lock();
        if let Some(receipt) = state.known(id, &hash, &putter)? {
            return Ok(receipt);
        }
        let receipt = putter.hand_over(pending)?;
        state.seen.insert(id.to_owned(), Seen { hash, is_durable: false });
        state.in_flight.push_back((id.to_owned(), receipt.clone()));
        Ok(receipt)
    }

    /// The putter of this process. It is made after the claim is durable, and after a check that the stream is still
    /// open.
    fn putter(&self) -> Result<Arc<Putter>> {
        // The process is checked first: in a forked child, a thread of the parent may hold the lock for ever.
        let writer = self.store.writer()?;
        let mut state = self.lock();
        if let Some(putter) = state.putter.as_ref().filter(|putter| putter.is_of(&writer)) {
            return Ok(Arc::clone(putter));
        }
        let (files, storage) = (&self.shared.files, &*self.shared.storage);
        let what = || format!("stream {:?} of run {:?}", files.name, self.shared.run);
        let (mine, attempt, is_stream) = (PUT, COPIED, true);
        let fenced = || Error::Fenced { what: what(), episode: files.stream, mine, attempt, is_stream };
        let looks_first = self.store.inner.place.options.is_broken_put_looks_first();
        if looks_first && files.is_closing(storage)? {
            return Err(fenced());
        }
        files.claim(storage, &writer.id())?;
        if !looks_first && files.is_closing(storage)? {
            return Err(fenced());
        }
        self.recall(&mut state, &writer)?;
        let putter = Arc::new(self.new_putter(writer, PUT, self.store.level()));
        state.putter = Some(Arc::clone(&putter));
        Ok(putter)
    }

    /// Reads what this process put through handles that the store has forgotten since.
    fn recall(&self, state: &mut State, writer: &Writer) -> Result<()> {
        let key = SubjectKey { what: What::Stream, id: self.id(), attempt: PUT };
        if writer.next_seq(&key).is_none() {
            return Ok(());
        }
        let storage = Arc::clone(&self.shared.storage);
        // What is acknowledged is written, and its log may not say yet that it is synced.
        let mut catalog = Catalog::unread(storage, Arc::new(Recovery::dirty()));
        catalog.refresh_of(&[writer.id()])?;
        let bind = stream_bind(&self.id(), PUT);
        stream_entries(&catalog, &writer.id(), &bind, 0, &mut |entry| {
            state.see(entry.id, entry.hash, entry.is_settled);
        })?;
        Ok(())
    }

    /// A putter that appends to an attempt of this stream in this process's log.
    pub(in crate::store) fn new_putter(&self, writer: Arc<Writer>, attempt: u32, level: Level) -> Putter {
        let files = &self.shared.files;
        let key = SubjectKey { what: What::Stream, id: files.stream, attempt };
        let (run, generation_id, task) = (self.shared.run.clone(), files.generation_id, files.name.clone());
        let name = SubjectName { run, generation_id, task, ..SubjectName::default() };
        Putter::new(writer, key, name, level)
    }

    /// Looks at the entries of other processes, now and then. What a handle has read here is not read again.
    fn look_at_others(&self, state: &mut State) -> Result<()> {
        let now_us = self.store.disk().uptime_us();
        if state.others.looked_us.is_some_and(|at| (at..at + LOOK_EVERY_US).contains(&now_us)) {
            return Ok(());
        }
        let own = self.store.writer()?.id();
        let mut writers = self.shared.files.claimants(&self.shared.storage)?;
        writers.retain(|writer| *writer != own);
        state.others.looked_us = Some(now_us);
        if writers.is_empty() {
            return Ok(());
        }
        let bind = stream_bind(&self.id(), PUT);
        for (writer, log) in self.store.inner.streams.logs_of(&self.store, &writers, &bind)? {
            let Some(log) = log else { continue };
            // What a live writer has not synced yet, it may still give up and put otherwise.
            let is_live = self.store.liveness(&writer) == Liveness::Live;
            let from = state.others.next_seq.get(&writer).copied().unwrap_or(0);
            // Lost entries are reported to readers; they are no reason to stop recording.
            let read = log.read(from, &mut |entry| {
                if entry.is_settled || !is_live {
                    state.see(entry.id, entry.hash, entry.is_settled);
                }
            })?;
            state.others.next_seq.insert(writer, read.next_seq);
        }
        Ok(())
    }

    /// Notes what a reader of this stream found settled, so that a put need not read it.
    fn note_settled(&self, settled: Vec<(String, Hash)>, next_seqs: &BTreeMap<Id, u32>) {
        let mut state = self.lock();
        for (id, hash) in settled {
            state.see(id, hash, true);
        }
        for (writer, next) in next_seqs {
            let known = state.others.next_seq.entry(*writer).or_insert(0);
            *known = (*known).max(*next);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The handle, and the store. If another one is dropped or made just now, the values are read again, or kept until later.
        const WITHOUT_HANDLES: usize = 2;
        if Arc::strong_count(&self.shared) <= WITHOUT_HANDLES {
            self.shared.forget_values();
        }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, KeptValues> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the values that were read, unless they are being read just now.
    fn forget_values(&self) {
        if let Ok(mut kept) = self.kept.try_lock() {
            kept.clear();
        }
    }

    /// How many entries are known, if none of them is in flight.
    fn entries_at_rest(&self) -> Option<usize> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            // It is in use.
            Err(TryLockError::WouldBlock) => return None,
        };
        state.sweep();
        state.in_flight.is_empty().then_some(state.seen.len())
    }
}

impl Seen {
    fn become_durable_with(&mut self, same: &Seen) {
        self.is_durable |= same.is_durable && self.hash == same.hash;
    }
}

impl State {
    /// Notes an entry that was read.
    fn see(&mut self, id: String, hash: Hash, is_durable: bool) {
        let seen = Seen { hash, is_durable };
        self.seen.entry(id).or_insert(seen).become_durable_with(&seen);
    }

    /// A receipt for an entry that is recorded or in flight; an error if its value differs.
    fn known(&mut self, id: &str, hash: &Hash, putter: &Putter) -> Result<Option<Receipt>> {
        self.sweep();
        let Some(seen) = self.seen.get(id) else { return Ok(None) };
        if seen.hash != *hash {
            return Err(Error::BadInput {
                field: format!("entry {id:?}"),
                value: "is in the stream with another value".to_owned(),
                fix: "put it under another id; an entry never changes".to_owned(),
            });
        }
        if seen.is_durable {
            return Ok(Some(putter.already_durable()));
        }
        // An entry of another process that may still be lost is put here too.
        let in_flight = self.in_flight.iter().find(|(in_flight, _)| in_flight == id);
        Ok(in_flight.map(|(_, receipt)| receipt.clone()))
    }

    /// Notes which entries became durable, and forgets those that were not recorded; these can be put again.
    fn sweep(&mut self) {
        while let Some((id, receipt)) = self.in_flight.front() {
            if receipt.has_failed() {
                self.seen.remove(id);
            } else if receipt.is_synced() {
                if let Some(seen) = self.seen.get_mut(id) {
                    seen.is_durable = true;
                }
            } else {
                return;
            }
            self.in_flight.pop_front();
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Stream {:?} of run {:?}>", self.shared.files.name, self.shared.run)
    }
}
