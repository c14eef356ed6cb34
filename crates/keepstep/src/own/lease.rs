//! Whether an owner is dead: by its lock if that tells, otherwise by a heartbeat that has stopped.
//!
//! A failed look is no evidence: a heartbeat has stopped only if it was read, and read again after the lease.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keepstep_format::Id;
use keepstep_format::card::Beat;
use keepstep_format::value::Value;

use super::{LockTells, SAME_BOOT, describe, look_at_lock};
use crate::disk::Disk;

/// What is known of an owner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OwnerState {
    /// It is alive.
    Live,
    /// It is dead, with the evidence.
    Dead(Value),
    /// It was silent for `heard`; it counts as dead after `left` more.
    Silent { heard: Duration, left: Duration },
}

/// Watches the heartbeats of other writers, by this process's own clock.
pub(crate) struct Leases {
    disk: Arc<dyn Disk>,
    store: Id,
    lease: Duration,
    seen: Mutex<HashMap<Id, Seen>>,
}

/// The counter of a heartbeat, and since when it has not changed.
#[derive(Clone, Copy)]
struct Seen {
    counter: Option<u64>,
    since_us: i64,
}

impl Leases {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: Id, lease: Duration) -> Self {
        Self { disk, store, lease, seen: Mutex::default() }
    }

    /// What is known of a writer now.
    pub(crate) fn state(&self, writer: &Id) -> OwnerState {
        match look_at_lock(&*self.disk, &self.store, writer) {
            LockTells::Live => {
                self.lock().remove(writer);
                OwnerState::Live
            }
            LockTells::Dead(why) => OwnerState::Dead(self.evidence(writer, why)),
            LockTells::Nothing => self.by_heartbeat(writer),
            LockTells::Failed => self.unheard(),
        }
    }

    /// How long ago a writer was heard of whose lock is free, if that was within a lease. Other code in its process
    /// may have freed the lock, and it renews the lock with its beat. Only a caller that deletes data has to wait for
    /// that.
    pub(crate) fn heard_lately(&self, writer: &Id) -> Option<Duration> {
        match look_at_lock(&*self.disk, &self.store, writer) {
            LockTells::Dead(why) if why == SAME_BOOT => {}
            _ => return None,
        }
        let beat = Beat::decode(&self.disk.get(&beat_path(writer)).ok()?)?;
        let ago = Duration::from_micros((self.disk.now_us() - beat.time).max(0) as u64);
        (ago < self.lease).then_some(ago)
    }

    /// True if a writer counts as gone also for a caller that cannot ask it: its machine was started again since, or its
    /// lock is free and its heartbeat stood still for a lease while this process watched. A live one renews its lock
    /// with its beat. Each call is a look at the heartbeat, and the first one begins the lease.
    pub(crate) fn is_gone_for_long(&self, writer: &Id) -> bool {
        match look_at_lock(&*self.disk, &self.store, writer) {
            LockTells::Dead(why) if why != SAME_BOOT => true,
            LockTells::Dead(_) | LockTells::Nothing => {
                matches!(self.by_heartbeat(writer), OwnerState::Dead(_))
            }
            LockTells::Live => {
                self.lock().remove(writer);
                false
            }
            LockTells::Failed => false,
        }
    }

    /// How long a writer may be silent.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    fn by_heartbeat(&self, writer: &Id) -> OwnerState {
        let counter = match self.disk.get(&beat_path(writer)) {
            Ok(data) => Beat::decode(&data).map(|beat| beat.counter),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => return self.unheard(),
        };
        let now_us = self.disk.uptime_us();
        let mut seen = self.lock();
        let known = seen.entry(*writer).or_insert(Seen { counter, since_us: now_us });
        if counter != known.counter {
            *known = Seen { counter, since_us: now_us };
        }
        let heard = Duration::from_micros((now_us - known.since_us).max(0) as u64);
        drop(seen);
        if heard >= self.lease {
            let why = format!("its heartbeat stood still for {} s", heard.as_secs());
            return OwnerState::Dead(self.evidence(writer, &why));
        }
        OwnerState::Silent { heard, left: self.lease - heard }
    }

    /// Nothing is known of it, so it has the whole lease left.
    fn unheard(&self) -> OwnerState {
        OwnerState::Silent { heard: Duration::ZERO, left: self.lease }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The evidence that a writer is gone, for people.
    fn evidence(&self, writer: &Id, why: &str) -> Value {
        let mut out = vec![("owner", Value::from(self.describe(writer))), ("why", Value::from(why))];
        let beat = self.disk.get(&beat_path(writer)).ok();
        if let Some(beat) = beat.and_then(|data| Beat::decode(&data)) {
            out.push(("last_beat", Value::Int(beat.time)));
        }
        Value::map(out)
    }

    /// A writer as a text for people.
    pub(crate) fn describe(&self, writer: &Id) -> String {
        describe(&*self.disk, &self.store, writer)
    }
}

fn beat_path(writer: &Id) -> String {
    format!("writers/{writer}/beat")
}
