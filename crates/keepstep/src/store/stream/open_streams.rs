//! The streams of a store that are in use, and those that were used last.
//!
//! What this process has put must be known to the next handle of the stream, also if no handle is left in between: or
//! another value under the same id would be acknowledged. So the store keeps the streams that were used last. One that
//! it has forgotten reads this process's log again with its first entry ([`Stream::recall`]).
//!
//! [`Stream::recall`]: super::Stream

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use keepstep_format::Id;

use super::Shared;

/// How many streams without a handle are kept.
const STREAMS_MAX: usize = 256;
/// How many entries they may have together: an id and a hash of each is in memory. The newest is kept whatever it has.
const ENTRIES_MAX: usize = 100_000;

/// The streams that a store knows.
#[derive(Default)]
pub(in crate::store) struct OpenStreams(Mutex<Known>);

#[derive(Default)]
struct Known {
    open: HashMap<Id, Weak<Shared>>,
    /// The newest first.
    kept: VecDeque<Arc<Shared>>,
}

impl OpenStreams {
    /// The stream with this id: the one that is known, or a new one.
    pub(super) fn get_or_make(&self, id: Id, make: impl FnOnce() -> Arc<Shared>) -> Arc<Shared> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.kept.retain(|kept| !Arc::ptr_eq(kept, shared));
    }
}

impl Known {
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
