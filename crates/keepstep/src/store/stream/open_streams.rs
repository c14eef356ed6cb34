//! The streams of a store that are in use, and those that were used last.
//!
//! What this process has put must be known to the next handle of the stream, also if no handle is left in between: or
//! another value under the same id would be acknowledged. So the store keeps the streams that were used last. One that
//! it has forgotten reads this process's log again with its first entry ([`Stream::recall`]).
//!
//! [`Stream::recall`]: super::Stream

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use keepstep_format::Id;
use keepstep_format::commit::Bind;

use super::Shared;
use super::kept::VALUES_BYTES_MAX;
use crate::error::Result;
use crate::read::{Catalog, WriterEntries};
use crate::recover::Recovery;
use crate::store::Store;

/// How many streams without a handle are kept.
const STREAMS_MAX: usize = 256;
/// How many entries they may have together: an id and a hash of each is in memory. The newest is kept whatever it has.
const ENTRIES_MAX: usize = 100_000;

/// The logs of how many writers are known, unless one stream has more: an index of each is in memory.
const LOGS_MAX: usize = 256;

/// The streams that a store knows.
#[derive(Default)]
pub(in crate::store) struct OpenStreams {
    known: Mutex<Known>,
    /// The logs of the writers of streams, as far as they were read, for all streams.
    catalog: Mutex<Option<Catalog>>,
}

#[derive(Default)]
struct Known {
    open: HashMap<Id, Weak<Shared>>,
    /// The newest first.
    kept: VecDeque<Arc<Shared>>,
    /// Which streams have their values in memory, and how many bytes; those that were read last first.
    with_values: VecDeque<(Weak<Shared>, usize)>,
}

impl OpenStreams {
    /// The stream with this id: the one that is known, or a new one.
    pub(super) fn get_or_make(&self, id: Id, make: impl FnOnce() -> Arc<Shared>) -> Arc<Shared> {
        let mut known = self.lock();
        let shared = known.open.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            known.open.retain(|_, shared| shared.strong_count() > 0);
            let shared = make();
            known.open.insert(id, Arc::downgrade(&shared));
            shared
        });
        known.keep(&shared);
        shared
    }

    /// Forgets a stream that takes no more entries.
    pub(super) fn forget(&self, shared: &Arc<Shared>) {
        self.lock().kept.retain(|kept| !Arc::ptr_eq(kept, shared));
        shared.forget_values();
    }

    /// Notes how many bytes of values a stream has in memory now. Those that were read longest ago are forgotten.
    pub(super) fn keep_values(&self, shared: &Arc<Shared>, bytes: usize) {
        let forgotten = self.lock().keep_values(shared, bytes);
        forgotten.iter().for_each(|shared| shared.forget_values());
    }

    /// The entries of each of these writers as they are now, including parts of their logs that may not be synced. Of
    /// logs that grew, only what is new is read.
    pub(super) fn logs_of(
        &self,
        store: &Store,
        writers: &[Id],
        bind: &Bind,
    ) -> Result<Vec<(Id, Option<WriterEntries>)>> {
        let mut held = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        // If this look fails, the next one begins again.
        let known = held.take();
        let mut catalog =
            known.unwrap_or_else(|| Catalog::unread(store.storage(), Arc::new(Recovery::dirty_again())));
        catalog.refresh_of(writers)?;
        let found = writers.iter().map(|writer| Ok((*writer, WriterEntries::find(&catalog, writer, bind)?)));
        let found = found.collect::<Result<_>>()?;
        if catalog.logs().count() <= LOGS_MAX.max(writers.len()) {
            *held = Some(catalog);
        }
        Ok(found)
    }

    /// Forgets what was found in the logs of these writers.
    pub(super) fn forget_logs_of(&self, writers: &[Id]) {
        if let Some(catalog) = &mut *self.catalog.lock().unwrap_or_else(PoisonError::into_inner) {
            catalog.forget_logs_of(writers);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes the bytes of a stream, and returns the streams that have to be forgotten.
    fn keep_values(&mut self, shared: &Arc<Shared>, bytes: usize) -> Vec<Arc<Shared>> {
        let is_it = |it: &Weak<Shared>| std::ptr::eq(it.as_ptr(), Arc::as_ptr(shared));
        self.with_values.retain(|(it, _)| it.strong_count() > 0 && !is_it(it));
        if bytes > 0 {
            self.with_values.push_front((Arc::downgrade(shared), bytes));
        }
        let mut total = 0;
        let mut is_within = |(_, bytes): &(Weak<Shared>, usize)| {
            total += *bytes;
            total <= VALUES_BYTES_MAX
        };
        let stay = self.with_values.iter().take_while(|it| is_within(it)).count();
        self.with_values.drain(stay..).filter_map(|(it, _)| it.upgrade()).collect()
    }

    fn keep(&mut self, shared: &Arc<Shared>) {
        if self.kept.front().is_some_and(|newest| Arc::ptr_eq(newest, shared)) {
            return;
        }
        self.kept.retain(|kept| !Arc::ptr_eq(kept, shared));
        let (mut streams, mut entries) = (0, shared.entries_at_rest().unwrap_or(0));
        self.kept.retain(|kept| {
            // One that has entries in flight is in no log yet.
            let Some(at_rest) = kept.entries_at_rest() else { return true };
            (streams, entries) = (streams + 1, entries + at_rest);
            streams < STREAMS_MAX && entries <= ENTRIES_MAX
        });
        self.kept.push_front(Arc::clone(shared));
    }
}
