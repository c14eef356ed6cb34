//! Where the records of one attempt are, in order of their sequence numbers, across the segments of its log.
//!
//! Lists of places are read when the iteration needs them. A record that was written again after a segment was given
//! up appears once, at its last place.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::Bind;
use keepstep_format::footer::FooterEntry;

use super::attempt::AttemptReader;
use super::catalog::Catalog;
pub(super) use super::item::RecordPlace;
use crate::error::Result;
use crate::segment::bodies::ReadableSegments;
use crate::segment::scanned::{LostRecord, ScannedRecord};
use crate::segment::summary::Stored;
use crate::segment::{
    Contents, Log, ScanUnsealed, Scanned, SealedIndex, SegmentHead, Storage, UnsealedFacts,
};

/// The next place, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Here {
        seq: u32,
        kind: u8,
        place: RecordPlace,
    },
    /// It was there, and cannot be read.
    Lost {
        seq: u32,
        kind: u8,
        place: RecordPlace,
    },
    /// Sequence numbers from `from` up to, not including, `to` are not in the log.
    Gap {
        from: u32,
        to: u32,
    },
}

impl Next {
    /// The sequence number after its last one.
    pub(super) fn end(&self) -> u32 {
        match self {
            Self::Here { seq, .. } | Self::Lost { seq, .. } => seq.saturating_add(1),
            Self::Gap { to, .. } => *to,
        }
    }
}

/// The part of an attempt that is in one segment.
#[derive(Debug, Clone)]
struct Part {
    segment: u64,
    voided_from: Option<u64>,
    first_seq: u32,
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    Sealed { index: Arc<SealedIndex>, entry: Box<FooterEntry>, rescan: Option<(SegmentHead, UnsealedFacts)> },
    Open(Arc<Vec<ScannedRecord>>),
}

/// All parts of an attempt, as they were when it was opened.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    storage: Arc<Storage>,
    scan: Arc<dyn ScanUnsealed>,
    readable: Arc<ReadableSegments>,
    writer: Id,
    bind: Bind,
    parts: Vec<Part>,
    lost: BTreeMap<u32, (RecordPlace, u8)>,
    /// How it ended, according to an earlier scan of a segment.
    scanned_why: Option<String>,
}

impl Parts {
    /// The records of `writer`. `log` is its own log, or the one that `compact` made.
    pub(super) fn new(log: &Log, writer: &Id, bind: Bind, scan: Arc<dyn ScanUnsealed>) -> Result<Self> {
        let (storage, readable) = (Arc::clone(log.storage()), Arc::clone(log.readable()));
        let mut parts = Vec::new();
        let mut lost = BTreeMap::new();
        let mut scanned_why = None;
        for segment in log.segments_with(&bind.id)? {
            let (number, voided_from) = (segment.number, segment.voided_from);
            let mut add =
                |first_seq, source| parts.push(Part { segment: number, voided_from, first_seq, source });
            match segment.contents() {
                Contents::Sealed(index) => {
                    for entry in index.entries_by(writer, &bind).filter(|entry| entry.count > 0) {
                        let source = Source::Sealed {
                            index: Arc::clone(index),
                            entry: Box::new(entry.clone()),
                            rescan: log.rescan(number),
                        };
                        add(entry.first_seq, source);
                    }
                }
                Contents::Open(scanned) => {
                    let (records, names) = open_records(scanned, &bind);
                    if let Some(first) = records.first() {
                        add(first.seq, Source::Open(Arc::new(records)));
                    }
                    let of_it = scanned.entries.iter().filter(|entry| entry.bind == bind);
                    scanned_why = of_it.filter_map(|it| it.summary.why.clone()).next().or(scanned_why);
                    lost.extend(names.iter().map(|lost| (lost.seq, (at(number, lost.offset), lost.kind))));
                }
                Contents::Unreadable(_) => {}
            }
        }
        Ok(Self { storage, scan, readable, writer: *writer, bind, parts, lost, scanned_why })
    }

    /// A new reader of the same records, which looks again where they are: `compact` may have moved them, and the
    /// newest manifest says where. Names and sequence numbers are the same there.
    pub(super) fn find_again(&self) -> Result<AttemptReader> {
        let mut catalog = Catalog::unread(Arc::clone(&self.storage), Arc::clone(&self.scan));
        catalog.refresh_of(&[self.writer])?;
        catalog.bind_reader(&self.writer, &self.bind)
    }

    /// How it ended, according to an index.
    pub(super) fn said_why(&self) -> Option<String> {
        let indexed = self.parts.iter().rev().find_map(|part| match &part.source {
            Source::Sealed { entry, .. } => Stored::decode(&entry.summary)?.summary.why,
            Source::Open(_) => None,
        });
        indexed.or_else(|| self.scanned_why.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.lost.is_empty()
    }

    /// Iterates from a sequence number on.
    pub(super) fn places(&self, from_seq: u32) -> Places<'_> {
        Places {
            parts: self,
            next_part: 0,
            here: VecDeque::new(),
            next_seq: from_seq,
            ready: VecDeque::new(),
            is_over: false,
        }
    }

    /// The records of a part that count: not voided, and not written again in a later segment.
    fn records(&self, index: usize) -> Result<Vec<ScannedRecord>> {
        let part = &self.parts[index];
        let mut records = match &part.source {
            Source::Open(records) => records.to_vec(),
            Source::Sealed { index, entry, rescan } => match index.places(&self.storage, entry)? {
                Some(places) => (entry.first_seq..)
                    .zip(places)
                    .map(|(seq, (offset, kind))| ScannedRecord { offset, seq, kind })
                    .collect(),
                None => self.scan_instead(rescan.as_ref(), entry)?,
            },
        };
        let later = self.parts[index + 1..].iter().filter(|later| later.segment > part.segment);
        // If a record was written again and lost there, it is lost: the one here was never acknowledged.
        let lost_later = self.lost.iter().filter(|(_, (place, _))| place.segment > part.segment);
        let seqs = later.map(|later| later.first_seq).chain(lost_later.map(|(seq, _)| *seq));
        let written_again_from = seqs.min().unwrap_or(u32::MAX);
        records.retain(|record| {
            record.seq < written_again_from && part.voided_from.is_none_or(|from| record.offset < from)
        });
        Ok(records)
    }

    /// The lists of an index are damaged; a scan of the frames replaces them.
    fn scan_instead(
        &self,
        rescan: Option<&(SegmentHead, UnsealedFacts)>,
        entry: &FooterEntry,
    ) -> Result<Vec<ScannedRecord>> {
        // Segments that `compact` made are not scanned: their lists were rebuilt from their blocks, as far as
        // possible.
        let rescan = rescan.filter(|(head, _)| head.writer != Id::NONE);
        let Some((head, facts)) = rescan else { return Ok(Vec::new()) };
        let mut scanned = Scanned::new();
        self.scan.scan(&self.storage, head, &self.readable, facts, &mut scanned)?;
        let (mut records, _) = open_records(&scanned, &self.bind);
        let to = entry.first_seq.saturating_add(entry.count);
        records.retain(|record| (entry.first_seq..to).contains(&record.seq));
        Ok(records)
    }
}

fn at(segment: u64, offset: u64) -> RecordPlace {
    RecordPlace { segment, offset }
}

fn open_records(scanned: &Scanned, bind: &Bind) -> (Vec<ScannedRecord>, Vec<LostRecord>) {
    let mut records = scanned.records_of(bind);
    records.sort_by_key(|record| record.seq);
    (records, scanned.lost_of(bind))
}

/// Places in order of their sequence numbers.
#[derive(Debug)]
pub(super) struct Places<'p> {
    parts: &'p Parts,
    next_part: usize,
    here: VecDeque<(u64, ScannedRecord)>,
    next_seq: u32,
    ready: VecDeque<Next>,
    is_over: bool,
}

impl Places<'_> {
    /// The next sequence number.
    pub(super) fn next_seq(&self) -> u32 {
        self.next_seq
    }

    /// A new reader of the same records, as they are now.
    pub(super) fn find_again(&self) -> Result<AttemptReader> {
        self.parts.find_again()
    }

    pub(super) fn next(&mut self) -> Result<Option<Next>> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(Some(next));
            }
            if let Some((segment, record)) = self.here.pop_front() {
                if record.seq < self.next_seq {
                    continue;
                }
                self.fill_up_to(record.seq);
                let place = at(segment, record.offset);
                self.ready.push_back(Next::Here { seq: record.seq, kind: record.kind, place });
                self.next_seq = record.seq.saturating_add(1);
            } else if self.next_part < self.parts.parts.len() {
                self.load_part()?;
            } else if !std::mem::replace(&mut self.is_over, true) {
                self.fill_to_the_last_name();
            } else {
                return Ok(None);
            }
        }
    }

    fn load_part(&mut self) -> Result<()> {
        let index = self.next_part;
        self.next_part += 1;
        let part = &self.parts.parts[index];
        let (segment, is_before) = match &part.source {
            Source::Sealed { entry, .. } => (
                part.segment,
                u64::from(entry.first_seq) + u64::from(entry.count) <= u64::from(self.next_seq),
            ),
            Source::Open(_) => (part.segment, false),
        };
        if !is_before {
            self.here.extend(self.parts.records(index)?.into_iter().map(|record| (segment, record)));
        }
        Ok(())
    }

    /// Reports what is missing before `seq`: by name if it is known.
    fn fill_up_to(&mut self, seq: u32) {
        let mut next = self.next_seq;
        for (&lost, &(place, kind)) in self.parts.lost.range(next..seq.max(next)) {
            if next < lost {
                self.ready.push_back(Next::Gap { from: next, to: lost });
            }
            self.ready.push_back(Next::Lost { seq: lost, kind, place });
            next = lost.saturating_add(1);
        }
        if next < seq {
            self.ready.push_back(Next::Gap { from: next, to: seq });
        }
        self.next_seq = seq.max(next);
    }

    fn fill_to_the_last_name(&mut self) {
        let last = self.parts.lost.last_key_value().map(|(&seq, _)| seq);
        if let Some(last) = last.filter(|last| *last >= self.next_seq) {
            self.fill_up_to(last.saturating_add(1));
        }
    }
}
