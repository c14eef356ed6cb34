//! Counters of a writer.

use std::sync::atomic::{AtomicU64, Ordering};

use super::open_segment::Placed;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    records: AtomicU64,
    values: AtomicU64,
    full_bytes: AtomicU64,
    new_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    batches: AtomicU64,
    syncs: AtomicU64,
    given_up: AtomicU64,
    segment_bytes: AtomicU64,
}

/// What a writer has written since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterStats {
    /// Records that were committed.
    pub records: u64,
    /// Values that were stored on their own, because several queued records had them.
    pub values: u64,
    /// How many bytes the records would take in full.
    pub full_bytes: u64,
    /// How many of these bytes were new.
    pub new_bytes: u64,
    /// How many bytes were left after compression.
    pub stored_bytes: u64,
    /// Batches that were committed.
    pub batches: u64,
    /// Syncs.
    pub syncs: u64,
    /// Segments that were given up after a failed write or sync.
    pub segments_given_up: u64,
    /// Length of the segment that is being written.
    pub segment_bytes: u64,
    /// Values that were found in the index.
    pub found: u64,
    /// Values that the index forgot because it was full.
    pub forgotten: u64,
    /// Values that were stored a second time on purpose.
    pub second_copies: u64,
}

impl Counters {
    pub(crate) fn add_batch(&self, batch: &[Placed]) {
        let sum = |of: fn(&Placed) -> u64| batch.iter().map(of).sum::<u64>();
        let records = sum(|placed| u64::from(placed.subject.is_some()));
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed);
        add(&self.records, records);
        add(&self.values, batch.len() as u64 - records);
        add(&self.full_bytes, sum(|placed| placed.encoded.full_bytes));
        add(&self.new_bytes, sum(|placed| placed.encoded.new_bytes));
        add(&self.stored_bytes, sum(|placed| placed.encoded.stored.len() as u64));
        add(&self.batches, 1);
    }

    pub(crate) fn add_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_given_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, (found, forgotten, second_copies): (u64, u64, u64)) -> WriterStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriterStats {
            records: load(&self.records),
            values: load(&self.values),
            full_bytes: load(&self.full_bytes),
            new_bytes: load(&self.new_bytes),
            stored_bytes: load(&self.stored_bytes),
            batches: load(&self.batches),
            syncs: load(&self.syncs),
            segments_given_up: load(&self.given_up),
            segment_bytes: load(&self.segment_bytes),
            found,
            forgotten,
            second_copies,
        }
    }
}

impl WriterStats {
    /// All counters, with their names.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("records", self.records),
            ("values", self.values),
            ("full_bytes", self.full_bytes),
            ("new_bytes", self.new_bytes),
            ("stored_bytes", self.stored_bytes),
            ("batches", self.batches),
            ("syncs", self.syncs),
            ("segments_given_up", self.segments_given_up),
            ("segment_bytes", self.segment_bytes),
            ("found", self.found),
            ("forgotten", self.forgotten),
            ("second_copies", self.second_copies),
        ]
    }
}
