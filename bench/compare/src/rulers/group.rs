//! Many threads append; one of them at a time writes and syncs for all who came meanwhile.
//!
//! This is the hand-off that the raw limit and every batched peer share, so that they differ in the storage alone:
//! - A batch is what arrived during the last sync. Nobody lingers for more.
//! - Those who wait for a batch share one futex word, and one wake-all ends it.
//! - A caller that finds nobody committing takes the role itself, so a lone writer never switches threads. When
//!   records are left over after that, the committer's own thread takes them.
//!
//! The rule that must stay true: a record that is queued when the role is given up is seen by whoever gives it up,
//! or else its caller finds the role free. Both look in the same order (queue's lock, then role), so one of them does.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use atomic_wait::{wait, wake_all, wake_one};

use super::Ruler;

/// Room for 512 writers of 2 KB without growing while a measurement runs.
const BATCH_BYTES_EXPECTED: usize = 2 << 20;

/// Records that become durable together.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn new() -> Self {
        Batch { bytes: Vec::with_capacity(BATCH_BYTES_EXPECTED), ends: Vec::with_capacity(1024) }
    }

    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// All records, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Where a batch goes. Back from `commit`, it survives a power cut.
pub trait Sink: Send + 'static {
    fn commit(&mut self, batch: &Batch);
}

/// Keeps what different threads write to on different cache lines.
#[repr(align(128))]
struct Apart<T>(T);

struct Filling {
    batch: Batch,
    number: u32,
}

/// Whoever holds this commits.
struct Role<S> {
    sink: S,
    /// The batch in flight; otherwise empty, to be swapped with the one that fills.
    flying: Batch,
}

struct Shared<S> {
    filling: Apart<Mutex<Filling>>,
    role: Apart<Mutex<Role<S>>>,
    /// The newest durable batch of even and of odd number. While one is waited for, the other fills, so two words do.
    durable: [Apart<AtomicU32>; 2],
    /// 1 when the committer's thread is called for.
    call: Apart<AtomicU32>,
    closing: AtomicBool,
}

impl<S: Sink> Shared<S> {
    fn new(sink: S) -> Self {
        Shared {
            filling: Apart(Mutex::new(Filling { batch: Batch::new(), number: 1 })),
            role: Apart(Mutex::new(Role { sink, flying: Batch::new() })),
            durable: [Apart(AtomicU32::new(0)), Apart(AtomicU32::new(0))],
            call: Apart(AtomicU32::new(0)),
            closing: AtomicBool::new(false),
        }
    }

    fn durable(&self, number: u32) -> &AtomicU32 {
        &self.durable[number as usize % 2].0
    }

    fn queue(&self, record: &[u8]) -> u32 {
        let mut filling = self.filling.0.lock().unwrap();
        filling.batch.push(record);
        filling.number
    }

    fn anything_queued(&self) -> bool {
        self.filling.0.lock().unwrap().batch.len() > 0
    }

    /// Makes durable what is queued; false if nothing was. `own` of the records have nobody asleep behind them.
    fn commit(&self, role: &mut Role<S>, own: usize) -> bool {
        let number = {
            let mut filling = self.filling.0.lock().unwrap();
            if filling.batch.len() == 0 {
                return false;
            }
            mem::swap(&mut filling.batch, &mut role.flying);
            filling.number += 1;
            filling.number - 1
        };
        role.sink.commit(&role.flying);
        let waiting = role.flying.len() - own;
        role.flying.clear();

        let durable = self.durable(number);
        durable.store(number, Ordering::Release);
        if waiting > 0 {
            wake_all(durable);
        }
        true
    }

    fn append(&self, record: &[u8]) {
        let number = self.queue(record);
        let durable = self.durable(number);
        if let Ok(mut role) = self.role.0.try_lock() {
            if durable.load(Ordering::Acquire) < number {
                self.commit(&mut role, 1);
            }
            drop(role);
            if self.anything_queued() {
                self.call_committer();
            }
        }
        loop {
            let newest = durable.load(Ordering::Acquire);
            if newest >= number {
                return;
            }
            wait(durable, newest);
        }
    }

    fn call_committer(&self) {
        self.call.0.store(1, Ordering::Release);
        wake_one(&self.call.0);
    }

    fn run_committer(&self) {
        while !self.closing.load(Ordering::Acquire) {
            if self.call.0.swap(0, Ordering::AcqRel) == 0 {
                wait(&self.call.0, 0);
                continue;
            }
            while self.anything_queued() {
                let mut role = self.role.0.lock().unwrap();
                while self.commit(&mut role, 0) {}
            }
        }
    }
}

/// A sink with the hand-off in front of it.
pub struct Group<S: Sink> {
    shared: Arc<Shared<S>>,
    committer: Option<JoinHandle<()>>,
}

impl<S: Sink> Group<S> {
    pub fn new(sink: S) -> Self {
        let shared = Arc::new(Shared::new(sink));
        let theirs = Arc::clone(&shared);
        let committer = thread::spawn(move || theirs.run_committer());
        Group { shared, committer: Some(committer) }
    }
}

impl<S: Sink> Ruler for Group<S> {
    fn append(&self, _writer: usize, record: &[u8]) {
        self.shared.append(record);
    }
}

impl<S: Sink> Drop for Group<S> {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.call_committer();
        if let Some(committer) = self.committer.take() {
            let _ = committer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Remember(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Sink for Remember {
        fn commit(&mut self, batch: &Batch) {
            thread::yield_now();
            self.0.lock().unwrap().extend(batch.records().map(<[u8]>::to_vec));
        }
    }

    /// Back from `append`, a record is in the sink; at the end each is there once, and each writer's are in order.
    #[test]
    fn every_record_is_committed_once_before_its_append_returns() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let group = Group::new(Remember(Arc::clone(&kept)));
        thread::scope(|scope| {
            for writer in 0..16_u64 {
                let (group, kept) = (&group, &kept);
                scope.spawn(move || {
                    for turn in 0..200_u64 {
                        let record = [writer.to_be_bytes(), turn.to_be_bytes()].concat();
                        group.append(0, &record);
                        assert!(kept.lock().unwrap().contains(&record), "{writer}/{turn} returned too early");
                    }
                });
            }
        });
        let mut kept = kept.lock().unwrap().clone();
        assert_eq!(kept.len(), 16 * 200);
        kept.sort_by_key(|record| record[..8].to_vec());
        assert!(kept.is_sorted(), "a writer's records are out of order");
    }

    /// With the last caller gone, nobody is left waiting for a wake-up.
    #[test]
    fn closing_an_idle_group_ends_its_thread() {
        for _ in 0..200 {
            drop(Group::new(Remember(Arc::default())));
        }
    }
}
