//! Lists the records of a segment by name: writer, subject, and where each was first recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use keepstep_format::Id;
use keepstep_format::commit::Bind;

use super::super::catalog::Catalog;
use super::super::places::RecordPlace;
use super::position::{Origin, Position, unknown_origin};
use crate::error::{Error, Result};
use crate::segment::scanned::ScannedEntry;
use crate::segment::{Contents, Log, Scanned, SealedIndex, Segment};

/// How many moved records are listed at a time.
const MOVED_MAX: usize = 1 << 16;

/// A record to report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pointer {
    pub(super) writer: Id,
    /// The log to read it from: the writer's own, or `Id::NONE` if `compact` moved it.
    pub(super) log: Id,
    pub(super) bind: Bind,
    pub(super) seq: u32,
    pub(super) kind: u8,
    pub(super) place: RecordPlace,
    pub(super) origin: Origin,
    pub(super) is_lost: bool,
    /// True if its writer cannot give it up and write it elsewhere any more.
    pub(super) is_settled: bool,
}

/// Which records are wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) only: Option<Bind>,
    /// Only records of these kinds, if any are named; the others are not even read.
    pub(super) kinds: Vec<u8>,
}

impl Wanted {
    fn is_of(&self, bind: &Bind) -> bool {
        self.only.is_none_or(|only| only == *bind)
    }

    fn fits(&self, pointer: &Pointer, catalog: &Catalog) -> bool {
        self.is_of(&pointer.bind)
            && (self.kinds.is_empty() || self.kinds.contains(&pointer.kind))
            && !catalog.is_pruned(&pointer.bind)
    }
}

/// How far a segment can be reported: all that is whole, or only what its writer cannot give up any more.
pub(super) fn visible_to(log: &Log, segment: &Segment, only_settled: bool) -> u64 {
    let to = match segment.contents() {
        Contents::Sealed(index) => index.trailer.lists,
        Contents::Open(scanned) if only_settled && !stays_as_it_is(log, segment, scanned) => {
            scanned.synced_to.min(scanned.valid_to)
        }
        Contents::Open(scanned) => scanned.valid_to,
        Contents::Unreadable(_) => 0,
    };
    segment.voided_from.map_or(to, |from| to.min(from))
}

/// True if all that is whole in an unsealed segment stays there: its log is closed, or goes on in the next segment.
fn stays_as_it_is(log: &Log, segment: &Segment, scanned: &Scanned) -> bool {
    let goes_on = scanned.looked_at.is_some_and(|facts| facts.complete);
    log.is_closed() || goes_on || segment.voided_from.is_some() || segment.sealed_bytes.is_some()
}

/// Why a segment could not be read this time, if a later try may succeed: until then, no later record can be
/// reported. What is damaged, deleted, or unreadable on its disk is lost; `verify` reports it.
pub(super) fn why_not_yet(segment: &Segment) -> Option<&Error> {
    let Contents::Unreadable(error) = segment.contents() else { return None };
    let is_lost = match error {
        Error::Damaged { .. } => true,
        Error::Io { source, .. } => source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()),
        _ => false,
    };
    (!is_lost && !error.is_gone()).then_some(error)
}

/// True if the record at this place stays there. Only a sync proves that.
pub(super) fn is_settled_at(segment: &Segment, offset: u64) -> bool {
    match segment.contents() {
        Contents::Sealed(_) => true,
        Contents::Open(scanned) => offset < scanned.synced_to,
        Contents::Unreadable(_) => false,
    }
}

/// The records of a part of a writer's own segment, in the order of the file.
pub(super) fn new_records(
    log: &Log,
    segment: &Segment,
    part: Range<u64>,
    wanted: &Wanted,
    catalog: &Catalog,
) -> Result<Vec<Pointer>> {
    let named = match segment.contents() {
        Contents::Unreadable(_) => Vec::new(),
        Contents::Open(scanned) => scanned_names(scanned, &part, wanted),
        Contents::Sealed(index) => match sealed_names(index, wanted, catalog)? {
            Some(names) => names,
            None => scanned_names(&rescan(log, segment.number, catalog)?, &part, wanted),
        },
    };
    let is_new = |name: &Named| part.contains(&name.offset) && segment.exists_at(name.offset);
    let pointer = |name: Named| Pointer {
        writer: *log.writer(),
        log: *log.writer(),
        bind: name.bind,
        seq: name.seq,
        kind: name.kind,
        place: RecordPlace { segment: segment.number, offset: name.offset },
        origin: (segment.number, name.offset),
        is_lost: name.is_lost,
        is_settled: log.is_closed() || is_settled_at(segment, name.offset),
    };
    let found = named.into_iter().filter(is_new).map(pointer);
    let mut found: Vec<Pointer> = found.filter(|it| wanted.fits(it, catalog)).collect();
    found.sort_by_key(|pointer| pointer.origin);
    Ok(found)
}

/// A record of a writer's own segment.
struct Named {
    bind: Bind,
    seq: u32,
    kind: u8,
    offset: u64,
    is_lost: bool,
}

/// The records that an index lists; `None` if its lists are damaged.
fn sealed_names(index: &SealedIndex, wanted: &Wanted, catalog: &Catalog) -> Result<Option<Vec<Named>>> {
    let mut names = Vec::new();
    for entry in index.entries() {
        let bind = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
        if !wanted.is_of(&bind) {
            continue;
        }
        let Some(places) = index.places(catalog.storage(), entry)? else { return Ok(None) };
        let numbered = (entry.first_seq..).zip(places);
        names.extend(numbered.map(|(seq, (offset, kind))| Named { bind, seq, kind, offset, is_lost: false }));
    }
    Ok(Some(names))
}

/// The wanted records of a part. The others are not listed: the last part of a log is looked at again and again.
fn scanned_names(scanned: &Scanned, part: &Range<u64>, wanted: &Wanted) -> Vec<Named> {
    let mut names = Vec::new();
    for ScannedEntry { bind, records, .. } in scanned.entries.iter().filter(|it| wanted.is_of(&it.bind)) {
        let named =
            |seq: u32, kind: u8, offset: u64| Named { bind: *bind, seq, kind, offset, is_lost: false };
        let [from, to] = [part.start, part.end].map(|at| records.partition_point(|it| it.offset < at));
        let of_part = records.get(from..to).unwrap_or_default();
        names.extend(of_part.iter().map(|it| named(it.seq, it.kind, it.offset)));
    }
    let damage = scanned.lost.iter().filter(|range| range.damage);
    for lost in damage.flat_map(|range| &range.records).filter(|lost| part.contains(&lost.offset)) {
        if let Some(bind) = lost.bind {
            let (seq, kind, offset) = (lost.seq, lost.kind, lost.offset);
            names.push(Named { bind, seq, kind, offset, is_lost: true });
        }
    }
    names
}

fn rescan(log: &Log, number: u64, catalog: &Catalog) -> Result<Scanned> {
    let mut scanned = Scanned::new();
    if let Some((head, facts)) = log.rescan(number) {
        catalog.scan().scan(catalog.storage(), &head, log.readable(), &facts, &mut scanned)?;
    }
    Ok(scanned)
}

/// For each attempt in a segment: its writer, its subject, and the next sequence number.
pub(super) fn next_seqs(log: &Log, segment: &Segment) -> Vec<(Id, Bind, u32)> {
    match segment.contents() {
        Contents::Unreadable(_) => Vec::new(),
        Contents::Sealed(index) => {
            let entries = index.owned_entries();
            let next = entries.map(|(writer, it)| {
                let bind = Bind { what: it.what, id: it.id, attempt: it.attempt };
                (writer, bind, it.first_seq.saturating_add(it.count))
            });
            next.collect()
        }
        Contents::Open(scanned) => {
            let last = |entry: &ScannedEntry| entry.records.iter().map(|record| record.seq).max();
            let entries = scanned.entries.iter();
            let next =
                entries.filter_map(|entry| Some((*log.writer(), entry.bind, last(entry)?.saturating_add(1))));
            next.collect()
        }
    }
}

/// Records that `compact` moved and that are not reported yet. All records of a writer are moved at once.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The manifest that this is read from.
    pub(super) as_of: Option<Option<u64>>,
    /// For each writer: the segment, and the entry of its footer.
    entries: BTreeMap<Id, Vec<(u64, usize)>>,
    /// Writers whose logs 0.1 compacted: it is not known by which manifest.
    pub(super) undated: BTreeSet<Id>,
}

impl Moved {
    /// Lists the writers that may have new records.
    pub(super) fn list(catalog: &Catalog, position: &Position, wanted: &Wanted) -> Result<Self> {
        // The records of a writer are reported in order: if a part cannot be read, none is reported.
        if let Some(error) = catalog.grouped().segments().find_map(why_not_yet) {
            return Err(error.clone());
        }
        let as_of = Some(catalog.manifest().number);
        let mut moved = Self { as_of, ..Self::default() };
        for segment in catalog.grouped().segments() {
            let Contents::Sealed(index) = segment.contents() else { continue };
            for (at, (writer, entry)) in index.all_entries().enumerate() {
                let bind = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
                if writer == Id::NONE || !wanted.is_of(&bind) {
                    continue;
                }
                let moved_by = SealedIndex::moved_by(entry);
                if moved_by.is_none() {
                    moved.undated.insert(writer);
                }
                if !position.is_behind(&writer, moved_by) {
                    moved.entries.entry(writer).or_default().push((segment.number, at));
                }
            }
        }
        Ok(moved)
    }

    /// The next records of one writer, ordered by origin; empty if all were listed.
    pub(super) fn take(
        &mut self,
        catalog: &Catalog,
        position: &Position,
        wanted: &Wanted,
    ) -> Result<Vec<Pointer>> {
        while let Some((&writer, entries)) = self.entries.first_key_value() {
            let mut found = Vec::new();
            let mut below = None;
            for &entry in entries {
                let is_new = |it: &Pointer| {
                    below.is_none_or(|below| it.origin < below)
                        && !position.is_told(&writer, it.origin)
                        && wanted.fits(it, catalog)
                };
                found.extend(moved_records(catalog, entry)?.into_iter().filter(is_new));
                // Memory stays bounded: the rest is listed after these were reported.
                if found.len() > 2 * MOVED_MAX {
                    let (_, first_behind, _) =
                        found.select_nth_unstable_by_key(MOVED_MAX, |it: &Pointer| it.origin);
                    below = Some(first_behind.origin);
                    found.truncate(MOVED_MAX);
                }
            }
            let is_all = below.is_none();
            if is_all {
                self.entries.remove(&writer);
            }
            if !found.is_empty() {
                found.sort_by_key(|it| it.origin);
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }
}

/// The records of one footer entry of a segment that `compact` made.
fn moved_records(catalog: &Catalog, (number, at): (u64, usize)) -> Result<Vec<Pointer>> {
    let segment = catalog.grouped().segment(number);
    let Some(Contents::Sealed(index)) = segment.map(|it| it.contents()) else { return Ok(Vec::new()) };
    let Some((writer, entry)) = index.entry(at) else { return Ok(Vec::new()) };
    let bind = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
    let Some(places) = index.places(catalog.storage(), entry)? else { return Ok(Vec::new()) };
    let origins = index.origins(catalog.storage(), entry)?;
    let numbered = (entry.first_seq..).zip(places).enumerate();
    let pointer = |(nth, (seq, (offset, kind)))| {
        let known = origins.as_ref().and_then(|origins: &Vec<Origin>| origins.get(nth).copied());
        Pointer {
            writer,
            log: Id::NONE,
            bind,
            seq,
            kind,
            place: RecordPlace { segment: number, offset },
            origin: known.unwrap_or_else(|| unknown_origin(&bind, seq)),
            is_lost: false,
            is_settled: true,
        }
    };
    Ok(numbered.map(pointer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::scanned::ScannedRecord;
    use crate::segment::testing::attempt;

    /// A follower of a run lists what lies behind the last sync of each killed writer, at every look, and got the whole
    /// segment each time, to find nothing new in it.
    #[test]
    fn of_a_part_of_a_segment_only_that_part_is_listed() {
        let mut scanned = Scanned::new();
        for (slot, bind) in [attempt(1), attempt(2)].into_iter().enumerate() {
            let at = |seq: u32| u64::from(seq) * 10 + slot as u64;
            let record = |seq| ScannedRecord { offset: at(seq), seq, kind: 0x11 };
            let (records, summary) = ((0..1000).map(record).collect(), Default::default());
            scanned.entries.push(ScannedEntry { bind, slot: slot as u32, records, summary, summed: 0 });
        }
        let one = Wanted { only: Some(attempt(2)), kinds: Vec::new() };
        let count = |part: Range<u64>, wanted: &Wanted| scanned_names(&scanned, &part, wanted).len();
        let all = Wanted::default();
        assert_eq!([count(0..u64::MAX, &all), count(0..u64::MAX, &one)], [2000, 1000]);
        assert_eq!([count(9990..u64::MAX, &all), count(9990..u64::MAX, &one)], [2, 1]);
        assert_eq!([count(0..9990, &all), count(9992..u64::MAX, &all)], [1998, 0]);
    }
}
