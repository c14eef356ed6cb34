//! What was read of a stream, so that the next look reads only what is new.
//!
//! An entry that is settled stays: it is not read again. What is not settled is read again at each look, since its
//! writer may give it up. Whatever does not fit what was read before (another value, a loss, an entry that is gone) is
//! not interpreted here: then the caller reads everything again.

use std::collections::{BTreeMap, HashMap};

use keepstep_format::Id;
use keepstep_format::hash::Hash;

use super::streams::{Rank, StreamEntry, WriterEntries, rank};
use crate::error::Result;

/// The entries of a stream that were read: a hash of each, and where to go on in the log of each writer.
#[derive(Debug, Default)]
pub(crate) struct KnownEntries {
    next_seq: BTreeMap<Id, u32>,
    entries: HashMap<String, Known>,
    /// Those that are not settled.
    open: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    hash: Hash,
    rank: Rank,
}

/// What a look found.
pub(crate) struct Found {
    /// Entries that were not known, in order.
    pub(crate) new: Vec<StreamEntry>,
    /// The id and hash of each that is settled now and was not when it was read last.
    pub(crate) settled: Vec<(String, Hash)>,
}

/// What one look sees, by id: of equal entries the one that counts.
#[derive(Debug, Default)]
struct Look {
    seen: BTreeMap<String, StreamEntry>,
    next_seq: BTreeMap<Id, u32>,
}

impl KnownEntries {
    /// What is new. `None` if what was read before does not hold any more, or does not suffice; then
    /// nothing is noted. `logs` has all writers of the stream; those that have recorded nothing have no entries.
    pub(crate) fn look(&mut self, logs: Vec<(Id, Option<WriterEntries>)>) -> Result<Option<Found>> {
        let is_there = |writer: &Id| logs.iter().any(|(there, log)| there == writer && log.is_some());
        if !self.next_seq.keys().all(is_there) {
            return Ok(None);
        }
        let mut look = Look::default();
        for (writer, log) in logs {
            let Some(log) = log else { continue };
            if !self.look_into(&writer, log, &mut look)? {
                return Ok(None);
            }
        }
        if !self.open.iter().all(|id| look.seen.contains_key(id)) {
            return Ok(None);
        }
        Ok(Some(self.take(look)))
    }

    /// Notes entries that were all read, and where to go on.
    pub(crate) fn of<'e>(
        entries: impl IntoIterator<Item = &'e StreamEntry>,
        next_seq: BTreeMap<Id, u32>,
    ) -> Self {
        let mut known = Self { next_seq, ..Self::default() };
        for entry in entries {
            known.note(entry);
        }
        known
    }

    /// True if an entry of this id and value was read.
    pub(crate) fn has(&self, id: &str, hash: &Hash) -> bool {
        self.entries.get(id).is_some_and(|known| known.hash == *hash)
    }

    /// True if all that was read is among these.
    pub(crate) fn is_part_of(&self, others: &Self) -> bool {
        self.entries.iter().all(|(id, known)| others.has(id, &known.hash))
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What orders an entry among the others: its time, its writer, its sequence number.
    pub(crate) fn order_of(&self, id: &str) -> Option<(i64, Id, u32)> {
        self.entries.get(id).map(|known| (known.rank.1, known.rank.2, known.rank.3))
    }

    /// The settled entries of each writer end here.
    pub(crate) fn next_seqs(&self) -> &BTreeMap<Id, u32> {
        &self.next_seq
    }

    /// False if something does not fit.
    fn look_into(&self, writer: &Id, log: WriterEntries, look: &mut Look) -> Result<bool> {
        let from = self.next_seq.get(writer).copied().unwrap_or(0);
        let mut fits = true;
        let read = log.read(from, &mut |entry| {
            fits &= self.entries.get(&entry.id).is_none_or(|known| known.hash == entry.hash);
            match look.seen.get_mut(&entry.id) {
                Some(other) => {
                    fits &= other.hash == entry.hash;
                    if rank(&entry) < rank(other) {
                        *other = entry;
                    }
                }
                None => drop(look.seen.insert(entry.id.clone(), entry)),
            }
        })?;
        look.next_seq.insert(*writer, read.next_seq);
        Ok(fits && read.lost.is_empty())
    }

    fn take(&mut self, look: Look) -> Found {
        self.next_seq = look.next_seq;
        for id in std::mem::take(&mut self.open) {
            // All of its records that are not settled were read again: they say who counts now.
            if let (Some(known), Some(seen)) = (self.entries.get_mut(&id), look.seen.get(&id)) {
                known.rank = rank(seen);
            }
        }
        let (mut new, mut settled) = (Vec::new(), Vec::new());
        for entry in look.seen.into_values() {
            if entry.is_settled {
                settled.push((entry.id.clone(), entry.hash));
            }
            if self.note(&entry) {
                new.push(entry);
            }
        }
        new.sort_by_key(|entry| (entry.time, entry.writer, entry.seq));
        Found { new, settled }
    }

    /// Notes an entry. True if it is new.
    fn note(&mut self, entry: &StreamEntry) -> bool {
        let (hash, found) = (entry.hash, rank(entry));
        let is_new = !self.entries.contains_key(&entry.id);
        let known = self.entries.entry(entry.id.clone()).or_insert(Known { hash, rank: found });
        known.rank = known.rank.min(found);
        if known.rank.0 {
            self.open.push(entry.id.clone());
        }
        is_new
    }
}
