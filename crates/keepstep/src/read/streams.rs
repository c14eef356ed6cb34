//! The entries of a stream, read from the logs of all its writers.
//!
//! One id with one value is one entry, however often it was put. One id with several values is a conflict: it is
//! reported with all values, and never resolved here.

use std::collections::BTreeMap;
use std::sync::Arc;

use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::Kind;
use keepstep_format::hash::Hash;
use keepstep_format::rehash::Rehash;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::attempt::AttemptReader;
use super::catalog::Catalog;
use super::item::{Item, Record, RecordPlace};
use crate::error::{Error, Result};
use crate::segment::names::segment_path;
use crate::segment::{Contents, Segment, Storage};

/// An entry, as one process put it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StreamEntry {
    /// Its id. Putting the same id and value again is harmless.
    pub id: String,
    /// Its value.
    pub value: Value,
    /// The hash of the value.
    pub hash: Hash,
    /// When it was put.
    pub time: i64,
    /// The writer in whose log it is.
    pub writer: Id,
    /// Its sequence number among that writer's entries.
    pub seq: u32,
    /// True if it is known to be synced: neither its writer nor a power cut can remove it.
    pub is_settled: bool,
}

/// A part of a writer's log that cannot be read: an entry, or perhaps several.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEntry {
    /// The writer in whose log it was.
    pub writer: Id,
    /// The file.
    pub path: String,
    /// Where it begins in the file.
    pub offset: u64,
    /// What is known of it.
    pub found: String,
}

impl LostEntry {
    /// As an error, for callers that cannot continue without it.
    pub(crate) fn to_error(&self) -> Error {
        Error::Damaged { path: self.path.clone(), offset: self.offset, found: self.found.clone() }
    }
}

/// The subject of a stream's records: attempt 0 has what was put, attempt 1 what a freeze copied.
pub(crate) fn stream_bind(stream: &Id, attempt: u32) -> Bind {
    Bind { what: What::Stream, id: *stream, attempt }
}

/// Passes one writer's entries from a sequence number on to `each`, in order, and returns what is lost.
pub(crate) fn stream_entries(
    catalog: &Catalog,
    writer: &Id,
    bind: &Bind,
    from_seq: u32,
    each: &mut dyn FnMut(StreamEntry),
) -> Result<Vec<LostEntry>> {
    match WriterEntries::find(catalog, writer, bind)? {
        Some(entries) => Ok(entries.read(from_seq, each)?.lost),
        None => Ok(Vec::new()),
    }
}

/// The entries of one writer, as they stand in a catalog. Reading them needs the catalog no more.
#[derive(Debug)]
pub(crate) struct WriterEntries {
    writer: Id,
    storage: Arc<Storage>,
    reader: AttemptReader,
    /// Up to where each segment is known to be synced.
    settled: BTreeMap<u64, u64>,
    unreadable: Vec<LostEntry>,
    nameless: Vec<RecordPlace>,
}

/// What reading found, beside the entries.
#[derive(Debug)]
pub(crate) struct EntriesRead {
    pub(crate) lost: Vec<LostEntry>,
    /// Where to go on: everything before this is settled.
    pub(crate) next_seq: u32,
}

impl WriterEntries {
    /// Finds the entries of a writer. `None` if there is no log with any.
    pub(crate) fn find(catalog: &Catalog, writer: &Id, bind: &Bind) -> Result<Option<Self>> {
        let Some(log) = catalog.log_with(writer, bind)? else { return Ok(None) };
        let segments = log.segments_with(&bind.id)?;
        Ok(Some(Self {
            writer: *writer,
            storage: Arc::clone(catalog.storage()),
            reader: catalog.bind_reader(writer, bind)?,
            settled: segments.iter().map(|segment| (segment.number, segment.settled_to())).collect(),
            unreadable: unreadable_parts(&segments, log.writer(), writer),
            nameless: nameless_damage(&segments).collect(),
        }))
    }

    /// Takes all entries for settled: a rule that tests break.
    pub(crate) fn trust_all(&mut self) {
        self.settled.values_mut().for_each(|to| *to = u64::MAX);
    }

    /// Passes the entries from a sequence number on to `each`, in order.
    pub(crate) fn read(self, from_seq: u32, each: &mut dyn FnMut(StreamEntry)) -> Result<EntriesRead> {
        let Self { writer, storage, mut reader, settled, unreadable: mut lost, nameless } = self;
        let mut rehash = Rehash::new(storage.key());
        let (mut last, mut next_seq) = (at(0, 0), from_seq);
        for item in reader.records_from(from_seq) {
            match item? {
                Item::Record(record) => {
                    let place = record.place;
                    let is_settled = settled.get(&place.segment).is_some_and(|to| place.offset < *to);
                    // What follows one that is not settled may still get another sequence number.
                    if is_settled && record.seq == next_seq {
                        next_seq = next_seq.saturating_add(1);
                    }
                    // Others are of a later version.
                    if record.kind() == Some(Kind::Put) {
                        last = last.max(place);
                        match entry(&record, &writer, is_settled, &mut rehash) {
                            Some(entry) => each(entry),
                            None => lost.push(lost_at(&writer, place, format!("entry {}", record.seq))),
                        }
                    }
                }
                Item::Damaged(damaged) => {
                    lost.push(lost_at(&writer, damaged.place, format!("entry {}", damaged.seq)));
                }
                Item::Gap(gap) => {
                    let found = format!("entries {} to {} are missing", gap.from, gap.to - 1);
                    lost.push(lost_at(&writer, last, found));
                }
            }
        }
        let nameless = nameless.into_iter().filter(|place| *place > last);
        lost.extend(
            nameless
                .map(|place| lost_at(&writer, place, "damage: the bytes here, perhaps entries,".to_owned())),
        );
        Ok(EntriesRead { lost, next_seq })
    }
}

/// Damage that may have hit any record. Damage before the last entry would have left a gap, and is reported as one.
fn nameless_damage(segments: &[&Segment]) -> impl Iterator<Item = RecordPlace> {
    let open = segments.iter().filter_map(|segment| Some((segment.number, segment.scanned()?)));
    open.flat_map(|(number, scanned)| {
        let nameless = scanned.lost.iter().filter(|range| {
            range.damage && (!range.certain || range.records.iter().any(|lost| lost.bind.is_none()))
        });
        nameless.map(move |range| at(number, range.offset))
    })
}

/// Segments that cannot be read at all.
fn unreadable_parts(segments: &[&Segment], log: &Id, writer: &Id) -> Vec<LostEntry> {
    let lost = segments.iter().filter_map(|segment| match segment.contents() {
        Contents::Unreadable(error) => {
            let path = segment_path(log, segment.number);
            let found = format!("{error}: entries of a stream here cannot be read");
            Some(LostEntry { writer: *writer, path, offset: 0, found })
        }
        _ => None,
    });
    lost.collect()
}

fn at(segment: u64, offset: u64) -> RecordPlace {
    RecordPlace { segment, offset }
}

fn lost_at(writer: &Id, place: RecordPlace, found: String) -> LostEntry {
    LostEntry {
        writer: *writer,
        path: segment_path(writer, place.segment),
        offset: place.offset,
        found: format!("{found} of a stream cannot be read"),
    }
}

fn entry(record: &Record, writer: &Id, is_settled: bool, rehash: &mut Rehash<'_>) -> Option<StreamEntry> {
    let value = record.get(fields::VALUE)?.clone();
    Some(StreamEntry {
        id: record.get(fields::NAME)?.as_str()?.to_owned(),
        hash: rehash.value(&value)?,
        value,
        time: record.get(fields::TIME)?.as_int()?,
        writer: *writer,
        seq: record.seq,
        is_settled,
    })
}

/// Collects entries into a set: by id, with one entry for each value.
#[derive(Debug, Default)]
pub(crate) struct EntrySet {
    by_id: BTreeMap<String, Vec<StreamEntry>>,
}

impl EntrySet {
    /// Adds an entry. Of equal ones, one is kept: settled before unsettled, then the first by time, writer and
    /// sequence number.
    pub(crate) fn add(&mut self, entry: StreamEntry) {
        let same_id = self.by_id.entry(entry.id.clone()).or_default();
        match same_id.iter_mut().find(|other| other.hash == entry.hash) {
            Some(other) if rank(&entry) < rank(other) => *other = entry,
            Some(_) => {}
            None => same_id.push(entry),
        }
    }

    /// The entries, and those that are in conflict; each ordered by time, writer and sequence number.
    pub(crate) fn finish(self) -> (Vec<StreamEntry>, Vec<StreamEntry>) {
        let (alone, many): (Vec<_>, Vec<_>) =
            self.by_id.into_values().partition(|same_id| same_id.len() == 1);
        let in_order = |sets: Vec<Vec<StreamEntry>>| {
            let mut entries: Vec<_> = sets.into_iter().flatten().collect();
            entries.sort_by_key(|entry| (entry.time, entry.writer, entry.seq));
            entries
        };
        (in_order(alone), in_order(many))
    }
}

/// Of equal entries, the one with the lowest rank counts.
pub(super) type Rank = (bool, i64, Id, u32);

pub(super) fn rank(entry: &StreamEntry) -> Rank {
    (!entry.is_settled, entry.time, entry.writer, entry.seq)
}
