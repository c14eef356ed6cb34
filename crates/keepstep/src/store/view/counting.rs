//! Follows records, and reports those that count.
//!
//! Between the claim and the base of the next attempt it is open which of the newest records count. Those are held
//! back, in order, and asked about again; nothing may be concluded while some are held.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use keepstep_format::commit::What;

use crate::error::{Doing, Result};
use crate::read::{AttemptKey, Follow, Followed, Item, Position, Stopper};
use crate::segment::chain::{Chain, claim_path};
use crate::store::Store;

/// How often it is checked whether records that are held back count.
const DECIDE_AGAIN: Duration = Duration::from_millis(200);
/// How many records of a store are held back at most; then no more are read until some are decided.
const HELD_MAX: usize = 1024;

/// Follows the records of a store, or of one attempt, that count.
#[derive(Debug)]
pub struct RecordFollow {
    store: Store,
    follow: Follow,
    /// Records of which it is open whether they count, in order.
    held: BTreeMap<AttemptKey, VecDeque<Followed>>,
    held_max: usize,
    /// Records that were held back, and count.
    ready: VecDeque<Followed>,
    decided: Instant,
}

impl RecordFollow {
    pub(super) fn of_store(store: &Store, follow: Follow) -> Self {
        Self::new(store, follow, HELD_MAX)
    }

    /// Records of one attempt come in order, so there is nothing to read behind one that is held back.
    pub(super) fn of_attempt(store: &Store, follow: Follow) -> Self {
        Self::new(store, follow, 1)
    }

    fn new(store: &Store, follow: Follow, held_max: usize) -> Self {
        let (store, held, ready) = (store.clone(), BTreeMap::new(), VecDeque::new());
        Self { store, follow, held, held_max, ready, decided: Instant::now() }
    }

    /// A handle that ends the wait, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.follow.stopper()
    }

    /// How far it has reported; `None` while records are held back, since a position cannot leave them out.
    pub fn position(&self) -> Option<&Position> {
        (self.held.is_empty() && self.ready.is_empty()).then(|| self.follow.position())
    }

    /// The next record that counts. Waits for one up to `timeout`; `None` if none came, or if it was stopped.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Followed>> {
        self.store.check_process()?;
        let started = Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() || self.decided.elapsed() >= DECIDE_AGAIN {
                self.decide()?;
            }
            if let Some(followed) = self.ready.pop_front() {
                return Ok(Some(followed));
            }
            if self.stopper().is_stopped() {
                return Ok(None);
            }
            let patience = if self.is_open() { left.min(DECIDE_AGAIN) } else { left };
            let is_full = self.held.values().map(VecDeque::len).sum::<usize>() >= self.held_max;
            let came = if is_full {
                self.store.disk().sleep(patience);
                None
            } else {
                self.follow.next(patience)?
            };
            match came {
                Some(followed) => {
                    if let Some(followed) = self.take_in(followed)? {
                        return Ok(Some(followed));
                    }
                }
                None if left.is_zero() || (left <= patience && !self.is_open()) => return Ok(None),
                None => {}
            }
        }
    }

    /// True if there are records of which it is open whether they count.
    pub(super) fn is_open(&self) -> bool {
        !self.held.is_empty()
    }

    /// A new record, if it counts.
    fn take_in(&mut self, followed: Followed) -> Result<Option<Followed>> {
        if followed.bind.what != What::Attempt {
            return Ok(Some(followed));
        }
        let key =
            AttemptKey { episode: followed.bind.id, attempt: followed.bind.attempt, writer: followed.writer };
        if let Some(before) = self.held.get_mut(&key) {
            before.push_back(followed);
            return Ok(None);
        }
        match self.store.counts(&key, &followed.item) {
            Ok(Some(counts)) => Ok(counts.then_some(followed)),
            // It is held back also if the question failed: then it is asked again.
            undecided => {
                self.held.insert(key, VecDeque::from([followed]));
                undecided.map(|_| None)
            }
        }
    }

    /// Asks again about what is held back.
    fn decide(&mut self) -> Result<()> {
        for (key, held) in &mut self.held {
            while let Some(first) = held.front() {
                let Some(counts) = self.store.counts(key, &first.item)? else { break };
                self.ready.extend(held.pop_front().filter(|_| counts));
            }
        }
        self.held.retain(|_, held| !held.is_empty());
        self.decided = Instant::now();
        Ok(())
    }
}

impl Store {
    /// Whether a record that an attempt made itself counts: what its owner wrote after another process had taken the
    /// episode, or found the owner dead, was refused. `None` if that is open, because another process is about to
    /// take the episode.
    pub fn counts(&self, key: &AttemptKey, item: &Item) -> Result<Option<bool>> {
        let AttemptKey { episode, attempt, .. } = *key;
        let seq = match item {
            Item::Record(record) => record.seq,
            Item::Damaged(lost) => lost.seq,
            Item::Gap(gap) => gap.from,
        };
        let next = claim_path(&episode, attempt.saturating_add(1));
        let is_claimed = self.disk().exists(&next).doing("look for", &next)?;
        if !is_claimed && self.found_end(&episode, attempt)?.is_none() {
            // Nobody took it over or found it dead, and whoever does so later finds this record.
            return Ok(Some(true));
        }
        let chain = Chain::read_from(self.cards(), &episode, attempt)?;
        let chain = chain.with_found_ends(self.cards(), &episode)?;
        self.own_record_counts(&episode, &chain, attempt, seq)
    }
}
