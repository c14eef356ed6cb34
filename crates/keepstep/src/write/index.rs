//! Which values are in this writer's log already, and where.
//!
//! Bounded: values that were not used for a long time are forgotten. If one comes again, it is stored again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::encode::{Fresh, InLog, Known, Link, SlideList, Slides, Stored};
use keepstep_format::frame::Place;
use keepstep_format::hash::Hash;

use super::chain::ListChain;

const SHARDS: usize = 16;
/// A value that this many records refer to is stored a second time, so that damage in one place does not cost them
/// all.
const USES_OF_ONE_COPY: u32 = 256;
/// About how many bytes an entry takes in memory: hash, place, table overhead.
const ENTRY_BYTES: usize = 112;
const CHAIN_BYTES: usize = 128;
/// Lists that others may slide from take this part of the memory on top.
const SLIDES_SHARE: usize = 4;

/// A hash is random already, so its first bytes are enough.
#[derive(Default)]
pub(crate) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut first = [0; 8];
        let length = bytes.len().min(8);
        first[..length].copy_from_slice(&bytes[..length]);
        self.0 = self.0.rotate_left(17) ^ u64::from_le_bytes(first);
    }

    fn write_usize(&mut self, _: usize) {
        // The length of an array that is always 16.
    }
}

type Table = HashMap<Hash, IndexSlot, BuildHasherDefault<FirstBytes>>;

#[derive(Debug)]
enum IndexSlot {
    /// A record that has it is in the queue.
    Pending,
    Stored(Copy),
}

#[derive(Debug)]
struct Copy {
    place: Place,
    take: u64,
    uses: u32,
    chain: Option<Arc<ListChain>>,
}

#[derive(Default)]
struct Shard {
    young: Table,
    old: Table,
    young_bytes: usize,
}

/// Lists that others may slide from, by what they end with. Two generations, as of the values.
#[derive(Default)]
struct SlideTable {
    young: HashMap<[Hash; 2], Arc<SlideList>>,
    old: HashMap<[Hash; 2], Arc<SlideList>>,
    young_bytes: usize,
}

/// The index of one writer.
pub(crate) struct Index {
    shards: Vec<Mutex<Shard>>,
    slides: Mutex<SlideTable>,
    slides_bytes_max: usize,
    shard_bytes_max: usize,
    forgotten: AtomicU64,
    second_copies: AtomicU64,
    found: AtomicU64,
    /// Rises when places were given up and forgotten.
    generation: AtomicU64,
}

impl Index {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            // Two generations share the memory.
            shard_bytes_max: bytes_max / SHARDS / 2,
            slides: Mutex::default(),
            slides_bytes_max: bytes_max / SLIDES_SHARE / 2,
            forgotten: AtomicU64::new(0),
            second_copies: AtomicU64::new(0),
            found: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        }
    }

    fn shard(&self, hash: &Hash) -> MutexGuard<'_, Shard> {
        // The last byte chooses the shard, the first ones the bucket.
        let shard = &self.shards[usize::from(hash[15]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces values that a queued record will store.
    pub(crate) fn announce(&self, fresh: &[Fresh]) {
        for fresh in fresh.iter().filter(|fresh| fresh.heavy) {
            let mut shard = self.shard(&fresh.hash);
            if shard.get(&fresh.hash).is_none() {
                self.insert(&mut shard, fresh.hash, IndexSlot::Pending);
            }
        }
    }

    /// Remembers values that are in the log now, `record` being the place of the record that has them.
    pub(crate) fn remember(&self, fresh: &[Fresh], segment: u64, offset: u64) {
        for fresh in fresh {
            let place = Place { segment, offset, inner: fresh.inner, base: fresh.base };
            let chain = fresh.growth.as_ref().map(|growth| {
                let before = growth.prefix.and_then(|(prefix, _)| self.chain_of(&prefix));
                ListChain::extended(growth, &fresh.hash, place, before.as_ref())
            });
            let mut shard = self.shard(&fresh.hash);
            self.insert(
                &mut shard,
                fresh.hash,
                IndexSlot::Stored(Copy { place, take: fresh.take, uses: 0, chain }),
            );
            drop(shard);
            if let Some(slides) = fresh.growth.as_ref().and_then(|growth| growth.slides.as_ref()) {
                self.remember_slide(fresh.hash, slides);
            }
        }
    }

    /// Remembers a list that others may slide from, in place of the one that it slid from itself. One that alone takes
    /// more than the memory is not remembered: a list that slides from it is stored as a new one.
    fn remember_slide(&self, hash: Hash, slides: &Slides) {
        let list = SlideList { hash, items: Arc::clone(&slides.items) };
        let Some(ending) = list.ending() else { return };
        let bytes = |list: &SlideList| list.items.len() * size_of::<Hash>() + ENTRY_BYTES;
        let new = bytes(&list);
        if new > self.slides_bytes_max {
            return;
        }
        let mut table = self.slides.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(from) = &slides.from {
            table.old.remove(from);
            let freed = table.young.remove(from).map_or(0, |list| bytes(&list));
            table.young_bytes = table.young_bytes.saturating_sub(freed);
        }
        let replaced = table.young.remove(&ending).map_or(0, |list| bytes(&list));
        table.young_bytes = table.young_bytes.saturating_sub(replaced);
        if table.young_bytes + new > self.slides_bytes_max {
            table.old = std::mem::take(&mut table.young);
            table.young_bytes = 0;
        }
        table.young_bytes += new;
        table.young.insert(ending, Arc::new(list));
    }

    /// Forgets everything at or after a place in a segment that was given up.
    pub(crate) fn forget_from(&self, segment: u64, offset: u64) {
        let gone = |entry: &IndexSlot| matches!(entry, IndexSlot::Stored(copy) if copy.place.segment == segment && copy.place.offset >= offset);
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.retain(|_, entry| !gone(entry));
            shard.old.retain(|_, entry| !gone(entry));
        }
    }

    /// Ask for it before a record is encoded: the record then names no place that was given up before.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Call this after [`Index::forget_from`]. Returns the generation that is over: records encoded in it may name
    /// forgotten places.
    pub(crate) fn begin_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel)
    }

    /// Where a value is, for the committer: never "pending".
    pub(crate) fn place_of(&self, hash: &Hash) -> Option<(Place, u64)> {
        match self.shard(hash).get(hash) {
            Some(IndexSlot::Stored(copy)) => Some((copy.place, copy.take)),
            _ => None,
        }
    }

    fn chain_of(&self, hash: &Hash) -> Option<Arc<ListChain>> {
        match self.shard(hash).get(hash) {
            Some(IndexSlot::Stored(copy)) => copy.chain.clone(),
            _ => None,
        }
    }

    fn insert(&self, shard: &mut Shard, hash: Hash, entry: IndexSlot) {
        shard.young_bytes += ENTRY_BYTES
            + if matches!(&entry, IndexSlot::Stored(copy) if copy.chain.is_some()) { CHAIN_BYTES } else { 0 };
        shard.young.insert(hash, entry);
        if shard.young_bytes > self.shard_bytes_max {
            self.forgotten.fetch_add(shard.old.len() as u64, Ordering::Relaxed);
            // The forgotten table becomes the new one: it has grown already.
            shard.old.clear();
            let Shard { young, old, young_bytes } = shard;
            std::mem::swap(young, old);
            *young_bytes = 0;
        }
    }

    /// Values that were found again, values that were forgotten, and values that were stored a second time on purpose.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.found), load(&self.forgotten), load(&self.second_copies))
    }
}

impl Shard {
    /// Looks a hash up, and leaves it where it is.
    fn peek(&mut self, hash: &Hash) -> Option<&mut IndexSlot> {
        self.young.get_mut(hash).or_else(|| self.old.get_mut(hash))
    }

    /// Looks a hash up, and marks it as used.
    fn get(&mut self, hash: &Hash) -> Option<&mut IndexSlot> {
        if !self.young.contains_key(hash) {
            let entry = self.old.remove(hash)?;
            self.young_bytes += ENTRY_BYTES;
            self.young.insert(*hash, entry);
        }
        self.young.get_mut(hash)
    }
}

impl Index {
    /// Marks the values that a record really refers to as used. A look-up alone does not: a long history looks up
    /// every message at every step, and would push out the one entry that the next step of each other episode needs.
    pub(crate) fn keep_young(&self, links: &[Link]) {
        for link in links {
            if let Link::Placed(reference) = link {
                self.shard(&reference.hash).get(&reference.hash);
            }
        }
    }
}

impl Known for Index {
    fn list_that_ends_with(&self, items: &[Hash; 2]) -> Option<Arc<SlideList>> {
        let table = self.slides.lock().unwrap_or_else(PoisonError::into_inner);
        table.young.get(items).or_else(|| table.old.get(items)).cloned()
    }

    fn decides(&self) -> bool {
        true
    }

    fn find(&self, hash: &Hash) -> InLog {
        match self.shard(hash).peek(hash) {
            None => InLog::No,
            Some(IndexSlot::Pending) => InLog::Pending,
            Some(IndexSlot::Stored(copy)) => {
                copy.uses += 1;
                if copy.uses == USES_OF_ONE_COPY {
                    self.second_copies.fetch_add(1, Ordering::Relaxed);
                    return InLog::No;
                }
                self.found.fetch_add(1, Ordering::Relaxed);
                let spans = copy.chain.as_ref().map_or_else(Vec::new, ListChain::spans_when_due);
                let depth = copy.chain.as_ref().map_or(0, |chain| chain.depth());
                InLog::At(Box::new(Stored { place: copy.place, take: copy.take, spans, depth }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> Hash {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    /// What the table of lists really holds.
    fn held(index: &Index) -> usize {
        let table = index.slides.lock().unwrap();
        let lists = table.young.values().chain(table.old.values());
        lists.map(|list| list.items.len() * size_of::<Hash>() + ENTRY_BYTES).sum()
    }

    /// One list of any length was remembered, and then kept beside the next ones: a list of 2^26 items took 1 GB. Whatever
    /// the lengths, all of them together take the part of the memory that is theirs.
    #[test]
    fn lists_to_slide_from_stay_within_their_memory() {
        let (bytes_max, mut first) = (1 << 20, 0);
        let index = Index::new(bytes_max);
        let longest = index.slides_bytes_max / size_of::<Hash>();
        for length in [10, longest / 2, longest - 10, longest, longest * 4, 10, longest - 10, longest / 3, 10]
        {
            let items: Arc<_> = (first..first + length).map(hash).collect::<Vec<_>>().into();
            first += length;
            index.remember_slide(hash(first), &Slides { items, from: None });
            assert!(held(&index) <= bytes_max / SLIDES_SHARE, "{length} items: {} bytes", held(&index));
        }
        assert!(index.list_that_ends_with(&[hash(first - 2), hash(first - 1)]).is_some());
    }
}
