//! The size of a store.

use keepstep_format::Id;
use keepstep_format::encode::{Encoder, NothingKnown};

use super::{Catalog, Record};
use crate::segment::names::{TEMPORARY, writer_dir};
use crate::segment::{Contents, Liveness, Log, Pruned};

/// The files and writers of a store, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// How many bytes its segments have.
    pub bytes: u64,
    /// Segments that are sealed.
    pub sealed: u64,
    /// Segments that are not sealed: they are being written, or their writer is gone.
    pub open: u64,
    /// Segments that cannot be read.
    pub unreadable: u64,
    /// Writers that are alive.
    pub live: u64,
    /// Writers that are gone.
    pub dead: u64,
    /// Writers whose state cannot be told from here.
    pub unknown: u64,
}

impl Sizes {
    fn add(&mut self, log: &Log) {
        for segment in log.segments() {
            self.bytes += segment.file_bytes;
            *match segment.contents() {
                Contents::Sealed(_) => &mut self.sealed,
                Contents::Open(_) => &mut self.open,
                Contents::Unreadable(_) => &mut self.unreadable,
            } += 1;
        }
    }
}

/// True if a writer's folder has nothing but perhaps a lock that nobody holds and that does not say whose it is: its
/// process was killed just as it made the folder. No beat and no segment will ever come to say more about it.
///
/// Only for counting. A process that is stopped at that moment looks the same, and begins its log when it goes on: for
/// whoever acts, it is as silent as any other.
fn owns_nothing(log: &Log) -> bool {
    let is_nothing = |name: &str| name == "lock" || name.starts_with(TEMPORARY);
    let there = log.storage().disk().list(&writer_dir(log.writer()));
    there.is_ok_and(|there| there.iter().all(|entry| is_nothing(&entry.name)))
}

impl Catalog {
    /// Counts the files and writers of the store.
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for log in self.logs() {
            *match log.liveness() {
                Liveness::Live => &mut sizes.live,
                Liveness::Dead => &mut sizes.dead,
                Liveness::Unknown if owns_nothing(log) => &mut sizes.dead,
                Liveness::Unknown => &mut sizes.unknown,
            } += 1;
            sizes.add(log);
        }
        sizes.add(self.grouped());
        sizes
    }

    /// How many bytes a record would take without references and compression.
    pub fn full_bytes(&self, record: &Record) -> u64 {
        let mut encoder = Encoder::fields(self.storage().key(), &NothingKnown);
        for (number, value) in &record.fields {
            encoder.field(*number);
            // A value that was lost to damage has no length; the rest counts.
            let _ = encoder.put(value);
        }
        encoder.finish().full_bytes
    }

    /// When and why an episode was pruned, if it was.
    pub fn pruned(&self, episode: &Id) -> Option<&Pruned> {
        self.manifest().pruned(episode)
    }
}
