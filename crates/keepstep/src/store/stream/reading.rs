//! Reads a stream from where it was read last.
//!
//! What was settled at an earlier look is not read again, and stays as it was read. A stream that has lost something
//! or has a conflict is read from the start at each look, so that the answer is that of a first look.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::value::Value;

use super::Stream;
use super::view::{All, Conflict, conflicts_of};
use crate::error::Result;
use crate::own::streams::PUT;
use crate::read::{EntrySet, KnownEntries, LostEntry, StreamEntry, WriterEntries, stream_bind};

/// Reads a stream again and again, each time only what is new.
///
/// It has an id and a hash of each entry in memory, and no values.
#[derive(Debug)]
pub struct StreamReader {
    stream: Stream,
    reading: Reading,
}

/// What a look at a stream found, beside what earlier looks of the same reader have found.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamNews {
    /// The entries that are new, ordered by time.
    pub entries: Vec<(String, Value)>,
    /// True if something that an earlier look found is not in the stream any more: an entry whose writer gave it up, or
    /// a conflict, or it was frozen without it, or dropped. Then `entries` are all that there are.
    pub is_from_start: bool,
    /// All ids that were put with several values, new or not.
    pub conflicts: Vec<Conflict>,
    /// All entries that cannot be read, and places where entries may be lost, new or not.
    pub lost: Vec<LostEntry>,
    /// True if the stream is frozen and cannot change any more.
    pub is_frozen: bool,
    /// True if the stream was dropped.
    pub is_hidden: bool,
}

/// How far a stream was read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) known: KnownEntries,
    as_of: AsOf,
}

/// What the last look found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum AsOf {
    /// Nothing that one could go on from.
    #[default]
    Nowhere,
    /// Entries; the next look goes on from there.
    Open,
    /// All that there will ever be, without a conflict or a loss.
    Frozen,
}

/// What a look found.
pub(super) enum Looked {
    /// New entries, in order. The others stand as they were.
    New(Vec<StreamEntry>),
    /// Everything there is.
    All(Box<All>),
}

impl Stream {
    /// A reader that has read nothing yet. Its first look finds all entries.
    pub fn reader(&self) -> StreamReader {
        StreamReader { stream: self.clone(), reading: Reading::default() }
    }

    /// The logs of all writers of the stream, including parts that may not be synced.
    pub(super) fn logs(&self) -> Result<Vec<(Id, Option<WriterEntries>)>> {
        let writers = self.shared.files.claimants(&self.shared.storage)?;
        let mut logs =
            self.store.inner.streams.logs_of(&self.store, &writers, &stream_bind(&self.id(), PUT))?;
        if self.store.inner.place.options.is_broken_read_trusts_unsettled() {
            logs.iter_mut().filter_map(|(_, log)| log.as_mut()).for_each(WriterEntries::trust_all);
        }
        Ok(logs)
    }
}

impl StreamReader {
    /// What is new since the last look.
    pub fn look(&mut self) -> Result<StreamNews> {
        self.stream.store.check_process()?;
        let looked = self.reading.look(&self.stream)?;
        let told = |entries: Vec<StreamEntry>| entries.into_iter().map(|it| (it.id, it.value)).collect();
        let All { before, mut entries, conflicts, lost, is_frozen, is_hidden } = match looked {
            Looked::New(entries) => {
                let is_frozen = self.reading.as_of == AsOf::Frozen;
                return Ok(StreamNews { entries: told(entries), is_frozen, ..StreamNews::default() });
            }
            Looked::All(all) => *all,
        };
        let is_from_start = !before.is_part_of(&self.reading.known);
        if !is_from_start {
            entries.retain(|entry| !before.has(&entry.id, &entry.hash));
        }
        let (entries, conflicts) = (told(entries), conflicts_of(conflicts));
        Ok(StreamNews { entries, is_from_start, conflicts, lost, is_frozen, is_hidden })
    }

    /// How many entries the stream had at the last look.
    pub fn entry_count(&self) -> usize {
        self.reading.known.len()
    }

    /// Forgets what was read: the next look finds all entries again.
    pub fn forget(&mut self) {
        self.reading = Reading::default();
    }
}

impl Reading {
    /// Reads what is new. If that fails, nothing is noted.
    pub(super) fn look(&mut self, stream: &Stream) -> Result<Looked> {
        let (files, storage) = (&stream.shared.files, &stream.shared.storage);
        if files.is_dropped(storage)? {
            let hidden = All { is_hidden: true, ..All::of(Vec::new(), Vec::new(), Vec::new()) };
            return Ok(self.replaced_by(hidden, BTreeMap::new(), AsOf::Nowhere));
        }
        if self.as_of == AsOf::Frozen {
            return Ok(Looked::New(Vec::new()));
        }
        if let Some(card) = files.read_freeze(storage)? {
            let frozen = stream.frozen(&card)?;
            let is_whole = frozen.lost.is_empty() && frozen.conflicts.is_empty();
            let as_of = if is_whole { AsOf::Frozen } else { AsOf::Nowhere };
            return Ok(self.replaced_by(frozen, BTreeMap::new(), as_of));
        }
        if self.as_of == AsOf::Open
            && let Some(found) = self.known.look(stream.logs()?)?
        {
            stream.note_settled(found.settled, self.known.next_seqs());
            return Ok(Looked::New(found.new));
        }
        self.read_all(stream)
    }

    fn read_all(&mut self, stream: &Stream) -> Result<Looked> {
        let mut read = ReadAll::of(stream)?;
        if !read.lost.is_empty() {
            // It may be whole again by now: what was found in the logs before does not count.
            let writers: Vec<Id> = read.next_seq.keys().copied().collect();
            stream.store.inner.streams.forget_logs_of(&writers);
            read = ReadAll::of(stream)?;
        }
        let ReadAll { set, lost, next_seq } = read;
        let (entries, conflicts) = set.finish();
        let is_whole = lost.is_empty() && conflicts.is_empty();
        if is_whole {
            let settled = entries.iter().filter(|entry| entry.is_settled);
            stream.note_settled(settled.map(|entry| (entry.id.clone(), entry.hash)).collect(), &next_seq);
        }
        let as_of = if is_whole { AsOf::Open } else { AsOf::Nowhere };
        Ok(self.replaced_by(All::of(entries, conflicts, lost), next_seq, as_of))
    }

    fn replaced_by(&mut self, mut all: All, next_seq: BTreeMap<Id, u32>, as_of: AsOf) -> Looked {
        self.as_of = as_of;
        all.before = std::mem::replace(&mut self.known, KnownEntries::of(&all.entries, next_seq));
        Looked::All(Box::new(all))
    }
}

/// All entries that were put, from the start.
#[derive(Default)]
struct ReadAll {
    set: EntrySet,
    lost: Vec<LostEntry>,
    next_seq: BTreeMap<Id, u32>,
}

impl ReadAll {
    fn of(stream: &Stream) -> Result<Self> {
        let mut all = Self::default();
        for (writer, log) in stream.logs()? {
            let Some(log) = log else { continue };
            let read = log.read(0, &mut |entry| all.set.add(entry))?;
            all.lost.extend(read.lost);
            all.next_seq.insert(writer, read.next_seq);
        }
        Ok(all)
    }
}
