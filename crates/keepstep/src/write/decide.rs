//! Decides which values are stored in a record, and which are references. Only the committer, which knows the order
//! of the log, can decide that.
//!
//! A caller may only guess that a value is in the log, or will be.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use keepstep_format::commit::What;
use keepstep_format::encode::Fresh;
use keepstep_format::frame::{Kind, Place, Reference};
use keepstep_format::hash::Hash;

use super::encoded_record::{EncodedLink, EncodedRecord};
use super::event::Event;
use super::handoff::Batch;
use super::index::FirstBytes;
use super::log::{LogWriter, QueuedRecord};
use super::open_segment::{Placed, Sibling};
use super::subject::{Progress, Subject, SubjectKey};
use crate::error::Error;
use crate::options::Level;

/// A batch while it is being committed.
pub(super) struct Round {
    pub(super) placed: Vec<Placed>,
    pub(super) members: Vec<Member>,
    /// Values that this batch stores, for later records of the same batch: the record, and the place in it.
    pub(super) stored_here: HashMap<Hash, (usize, Place, u64), BuildHasherDefault<FirstBytes>>,
    pub(super) needs_sync: bool,
    /// True if it is in the log, and synced if necessary: only the look into the mailbox is missing.
    pub(super) is_written: bool,
    pub(super) event: Arc<Event>,
    pub(super) ended: Vec<SubjectKey>,
}

/// A record that a caller waits for.
pub(super) struct Member {
    /// Its index in the batch.
    pub(super) index: u32,
    /// Its index in `placed`.
    pub(super) record: usize,
    pub(super) epoch: u32,
}

impl LogWriter {
    /// Assigns each record its sequence number, and decides which of its values are stored and which are references.
    pub(super) fn decide(&mut self, batch: Batch<QueuedRecord>) -> Round {
        let mut round = Round::new(batch.event, batch.items.len());
        for (index, mut pending) in batch.items.into_iter().enumerate() {
            let index = index as u32;
            if let Some(error) = self.refusal(&pending) {
                if let Some(subject) = &pending.subject {
                    subject.next_epoch(pending.epoch, &error);
                }
                round.event.fail(index, error);
                continue;
            }
            let seq = pending.subject.as_ref().map_or(0, |subject| {
                let next = self.subjects.entry(subject.key).or_insert(subject.first_seq);
                *next += 1;
                *next - 1
            });
            pending.encoded.compress();
            round.needs_sync |= pending.level >= Level::Power;
            round.ended.extend(pending.subject.as_ref().filter(|_| pending.last).map(|subject| subject.key));
            let epoch = pending.epoch;
            let record = self.add_record(
                &mut round,
                pending.subject,
                pending.kind,
                seq,
                pending.encoded,
                pending.progress,
            );
            round.members.push(Member { index, record, epoch });
        }
        round
    }

    fn add_record(
        &self,
        round: &mut Round,
        subject: Option<Arc<Subject>>,
        kind: Kind,
        seq: u32,
        mut encoded: EncodedRecord,
        progress: Progress,
    ) -> usize {
        let mut references = Vec::with_capacity(encoded.links.len());
        let mut siblings = Vec::new();
        for link in std::mem::take(&mut encoded.links) {
            match link {
                EncodedLink::Placed(reference) => references.push(self.moves.settled(reference)),
                EncodedLink::Undecided { hash, take, piece } => {
                    let (record, reference) = self.decide_link(round, hash, take, *piece);
                    siblings.extend(record.map(|record| Sibling { reference: references.len(), record }));
                    references.push(reference);
                }
            }
        }
        // A dictionary is used only after it is synced, so it is never moved.
        let dictionary = encoded.dictionary.as_ref().map(|placed| (placed.segment, placed.offset));
        let record = round.placed.len();
        round.remember(record, &encoded.fresh);
        let (segment, offset) = (0, 0);
        round.placed.push(Placed {
            subject,
            kind,
            seq,
            encoded,
            references,
            siblings,
            dictionary,
            progress,
            segment,
            offset,
            known_at: (0, 0),
        });
        record
    }

    /// A value that another record may have stored meanwhile: becomes a reference to it, or is stored now.
    fn decide_link(
        &self,
        round: &mut Round,
        hash: Hash,
        take: u64,
        piece: EncodedRecord,
    ) -> (Option<usize>, Reference) {
        if let Some((place, stored_take)) = self.index.place_of(&hash) {
            let take = if take > 0 { take } else { stored_take };
            return (None, self.moves.settled(Reference { place, take, hash }));
        }
        if self.options.is_broken_caller_decides() {
            let place = Place { segment: self.next_number.saturating_sub(1), offset: 128, inner: 0, base: 0 };
            return (None, Reference { place, take, hash });
        }
        if !round.stored_here.contains_key(&hash) {
            let record = self.add_record(round, None, Kind::Value, 0, piece, Progress::default());
            let place = Place { segment: 0, offset: 0, inner: 0, base: 0 };
            round.stored_here.entry(hash).or_insert((record, place, 0));
        }
        let (record, place, stored_take) = round.stored_here[&hash];
        (Some(record), Reference { place, take: if take > 0 { take } else { stored_take }, hash })
    }

    /// Why a record must not be written at all.
    fn refusal(&self, pending: &QueuedRecord) -> Option<Error> {
        if let Some(error) = &self.vanished {
            return Some(error.clone());
        }
        let subject = match &pending.subject {
            Some(subject) => subject,
            None => return self.closed(),
        };
        if let Some(error) = self.fence_of(subject) {
            return Some(error);
        }
        if subject.epoch() != pending.epoch {
            let cause = self.last_failure.clone().unwrap_or(Error::Closed);
            return Some(Error::EarlierFailed(Box::new(cause)));
        }
        if !pending.encoded.links.is_empty() && self.moves.has_forgotten(pending.encoded.generation) {
            // It was encoded many faults ago, and handed over only now: it is unknown where its references point by
            // now.
            let cause = self.last_failure.clone().unwrap_or(Error::Closed);
            return Some(Error::EarlierFailed(Box::new(cause)));
        }
        None
    }

    /// The error of everything that is recorded in a log that another process has closed.
    pub(super) fn closed(&self) -> Option<Error> {
        self.is_closed().then_some(Error::LogClosed { writer: self.writer() })
    }

    /// Why an entry is refused, if another process has its subject or its log. The subject remembers it.
    pub(super) fn fence_of(&self, subject: &Subject) -> Option<Error> {
        if let Some(error) = self.closed() {
            return Some(error);
        }
        // A copy counts only by the base that refers to it, whatever was posted about its attempt.
        if matches!(subject.key.what, What::Copied { .. }) {
            return None;
        }
        let attempt = *self.fenced.get(&subject.key.id)?;
        (subject.key.attempt < attempt).then(|| subject.fence(attempt))
    }
}

impl Round {
    pub(super) fn new(event: Arc<Event>, count: usize) -> Self {
        Self {
            placed: Vec::with_capacity(count),
            members: Vec::with_capacity(count),
            stored_here: HashMap::default(),
            needs_sync: false,
            is_written: false,
            event,
            ended: Vec::new(),
        }
    }

    fn remember(&mut self, record: usize, fresh: &[Fresh]) {
        // Only heavy values are announced to other encoders, so only those can be asked for.
        for fresh in fresh.iter().filter(|fresh| fresh.heavy) {
            let place = Place { segment: 0, offset: 0, inner: fresh.inner, base: fresh.base };
            self.stored_here.insert(fresh.hash, (record, place, fresh.take));
        }
    }
}
