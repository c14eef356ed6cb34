//! Whether an owner is dead: by its lock where that can be trusted, else by a heartbeat that stands still.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keepstep_format::card::{self, Beat};
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::{decode_fields, liveness};
use crate::disk::{self, Disk};
use crate::segment::Liveness;

/// What is known of an owner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Standing {
    /// It lives.
    Live,
    /// It is gone, and this shows it.
    Dead(Value),
    /// Nothing was heard of it for so long; it counts as dead after the rest of the lease.
    Silent { heard: Duration, left: Duration },
}

/// Watches the heartbeats of others, by this process's own clock.
pub(crate) struct Leases {
    disk: Arc<dyn Disk>,
    store: Id,
    lease: Duration,
    seen: Mutex<HashMap<Id, Seen>>,
}

/// The counter of a heartbeat, and since when it stands there.
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
    pub(crate) fn standing(&self, writer: &Id) -> Standing {
        match liveness(&*self.disk, &self.store, writer) {
            Liveness::Live => Standing::Live,
            Liveness::Dead => Standing::Dead(self.evidence(writer, "its lock is free, in the same boot")),
            Liveness::Unknown => self.by_heartbeat(writer),
        }
    }

    fn by_heartbeat(&self, writer: &Id) -> Standing {
        let counter = self.beat(writer).map(|beat| beat.counter);
        let now_us = self.disk.uptime_us();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.entry(*writer).or_insert(Seen { counter, since_us: now_us });
        // A beat that cannot be read counts as unchanged.
        if counter.is_some() && counter != known.counter {
            *known = Seen { counter, since_us: now_us };
        }
        let heard = Duration::from_micros((now_us - known.since_us).max(0) as u64);
        drop(seen);
        if heard >= self.lease {
            let why = format!("its heartbeat stood still for {} s", heard.as_secs());
            return Standing::Dead(self.evidence(writer, &why));
        }
        Standing::Silent { heard, left: self.lease - heard }
    }

    fn beat(&self, writer: &Id) -> Option<Beat> {
        Beat::decode(&disk::read_file(&*self.disk, &format!("writers/{writer}/beat")).ok()?)
    }

    /// What shows that a writer is gone, for people.
    fn evidence(&self, writer: &Id, why: &str) -> Value {
        let mut out = vec![("owner", Value::from(self.describe(writer))), ("why", Value::from(why))];
        if let Some(beat) = self.beat(writer) {
            out.push(("last_beat", Value::Int(beat.time)));
        }
        Value::map(out)
    }

    /// Who a writer is, for people: its process and host as it told them, and since when.
    pub(crate) fn describe(&self, writer: &Id) -> String {
        let path = format!("writers/{writer}/lock");
        let told = disk::read_file(&*self.disk, &path)
            .ok()
            .and_then(|data| card::Card::decode(&data, &self.store, &path).ok())
            .and_then(|card| decode_fields(card.body))
            .unwrap_or_default();
        let get = |number: u8| told.iter().find(|(found, _)| *found == number).map(|(_, value)| value);
        let process = get(fields::PROCESS).and_then(Value::as_int);
        let host = get(fields::HOST).and_then(|value| value.as_str());
        match (process, host) {
            (Some(process), Some(host)) => format!("process {process} on {host} (writer {writer})"),
            _ => format!("writer {writer}"),
        }
    }
}
