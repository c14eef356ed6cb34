//! Summarizes records by reading them: those of unsealed logs, and those whose index has no summary, or a wrong one.
//!
//! Records that cannot be read are left out: readers of the records are told what is lost.

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::commit::Bind;
use keepstep_format::decode::{NoBodies, read_fields_of};
use keepstep_format::footer::FooterEntry;
use keepstep_format::frame::Kind;

use super::bodies::{LogBodies, ReadableSegments};
use super::log::{Contents, Log, Segment};
use super::record::StoredRecord;
use super::scanned::{Scanned, ScannedEntry, ScannedRecord};
use super::sealed::SealedIndex;
use super::storage::Storage;
use super::summary::{Stored, Summary, SummaryPart, WHY_IS_LOST, completes_a_step, has_summary};
use super::window::RECORD_BYTES;
use crate::error::Result;

/// Records are read once and in order, so the cache is small.
const CACHE_BYTES_MAX: usize = 1 << 20;

/// The records of one segment, read to be summarized.
#[derive(Debug)]
pub(crate) struct SegmentRecords {
    bodies: LogBodies,
    number: u64,
}

impl SegmentRecords {
    /// The records of segment `number` of a writer, read `ahead_bytes` at a time. They may refer to any of
    /// `readable`.
    pub(crate) fn new(
        storage: &Arc<Storage>,
        (writer, number): (Id, u64),
        readable: &Arc<ReadableSegments>,
        ahead_bytes: usize,
    ) -> Self {
        let bodies = LogBodies::new(Arc::clone(storage), writer, Arc::clone(readable));
        Self { bodies: bodies.caching(CACHE_BYTES_MAX).reading_ahead(ahead_bytes), number }
    }

    /// What a record adds to the summary.
    pub(crate) fn part_of(&mut self, record: &ScannedRecord) -> Option<SummaryPart> {
        let found = self.bodies.record(self.number, record.offset, record.seq).ok()?;
        let fields = if SummaryPart::has_text(record.kind) {
            self.bodies.fields(&found).ok()?
        } else {
            // Numbers are in the record itself; its prompt is not needed here.
            read_fields_of(&found.body, &found.part, &mut NoBodies).ok()?
        };
        Some(SummaryPart::of(record.kind, &fields))
    }

    /// A record as it is stored.
    pub(super) fn stored(&mut self, offset: u64) -> Option<StoredRecord> {
        self.bodies.stored(0, self.number, offset).ok()
    }
}

/// The records of one attempt that add to its summary. Those before `from` are summarized already.
pub(super) fn to_be_summed(records: &[ScannedRecord], from: usize) -> impl Iterator<Item = &ScannedRecord> {
    let is_first_or_last = |at: usize| at == 0 || at + 1 == records.len();
    let numbered = records.iter().enumerate().skip(from);
    numbered
        .filter(move |(at, record)| is_first_or_last(*at) || SummaryPart::is_more_than_a_time(record.kind))
        .map(|(_, record)| record)
}

/// The records of a writer and a subject in one segment, summarized.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summed {
    /// The writer.
    pub writer: Id,
    /// The subject.
    pub bind: Bind,
    /// How many records.
    pub records: u64,
    /// One more than the highest known sequence number, lost records included: so many records there were.
    pub end_seq: u32,
    /// Their summary, if it is an attempt.
    pub summary: Summary,
    /// The manifest that replaced the log of its writer, if `compact` moved it here and recorded that.
    pub moved_by: Option<u64>,
}

impl Log {
    /// The summaries of a segment, of all subjects or of one episode. [`Log::sum_up`] must come first.
    pub(crate) fn summed(&self, segment: &Segment, only: Option<&Id>) -> Result<Vec<Summed>> {
        let index = match segment.contents() {
            Contents::Sealed(index) => index,
            Contents::Open(scanned) => {
                let entries = scanned.entries.iter().filter(|it| only.is_none_or(|only| *only == it.bind.id));
                return Ok(entries.map(|it| self.summed_entry(scanned, it)).collect());
            }
            Contents::Unreadable(_) => return Ok(Vec::new()),
        };
        let entries: Vec<(Id, &FooterEntry)> = match only {
            Some(only) => index.owned_entries_at(only).collect(),
            None => index.owned_entries().collect(),
        };
        let whose = |(writer, it): &(Id, &FooterEntry)| {
            (*writer, Bind { what: it.what, id: it.id, attempt: it.attempt })
        };
        let mut out = Vec::with_capacity(entries.len());
        // If sequence numbers are missing, an attempt has several entries, and the first has the summary of all.
        for entries in entries.chunk_by(|a, b| whose(a) == whose(b)) {
            let (writer, bind) = whose(&entries[0]);
            let records = entries.iter().map(|(_, entry)| u64::from(entry.count)).sum();
            let summary = self.summary_of(segment.number, index, (writer, bind), entries)?;
            let moved_by = entries.iter().find_map(|(_, entry)| SealedIndex::moved_by(entry));
            let ends = entries.iter().map(|(_, entry)| entry.first_seq.saturating_add(entry.count));
            let end_seq = ends.max().unwrap_or(0);
            out.push(Summed { writer, bind, records, end_seq, summary, moved_by });
        }
        Ok(out)
    }

    /// An entry of a segment that was not sealed. Lost records count by name: an END that cannot be read is still an
    /// end.
    fn summed_entry(&self, scanned: &Scanned, entry: &ScannedEntry) -> Summed {
        let lost = scanned.lost_of(&entry.bind);
        let mut summary = entry.summary.clone();
        let last = entry.records.last().map(|last| (last.kind, last.seq));
        let named = lost.iter().map(|lost| (lost.kind, lost.seq)).chain(last);
        if summary.why.is_none() && named.clone().any(|(kind, _)| kind == Kind::End as u8) {
            summary.why = Some(WHY_IS_LOST.to_owned());
        }
        let end_seq = named.map(|(_, seq)| seq.saturating_add(1)).max().unwrap_or(0);
        let (writer, bind, records) = (*self.writer(), entry.bind, entry.records.len() as u64);
        Summed { writer, bind, records, end_seq, summary, moved_by: None }
    }

    /// The summary in the index entries of one attempt, or one made from the records if that cannot be trusted.
    fn summary_of(
        &self,
        number: u64,
        index: &SealedIndex,
        whose: (Id, Bind),
        entries: &[(Id, &FooterEntry)],
    ) -> Result<Summary> {
        let stored = entries.iter().find_map(|(_, entry)| Stored::decode(&entry.summary));
        let doubt = Doubt::about(stored.as_ref(), *self.writer() == Id::NONE, entries);
        if !has_summary(whose.1.what) || doubt == Doubt::None {
            return Ok(stored.unwrap_or_default().summary);
        }
        index.amended(whose, || {
            self.look_up(number, index, entries, stored.unwrap_or_default().summary, doubt)
        })
    }

    fn look_up(
        &self,
        number: u64,
        index: &SealedIndex,
        entries: &[(Id, &FooterEntry)],
        stored: Summary,
        doubt: Doubt,
    ) -> Result<Summary> {
        let mut records = Vec::new();
        for (_, entry) in entries {
            let Some(places) = index.places(self.storage(), entry)? else { return Ok(stored) };
            let numbered = (entry.first_seq..).zip(places);
            records.extend(numbered.map(|(seq, (offset, kind))| ScannedRecord { offset, seq, kind }));
        }
        let mut source =
            SegmentRecords::new(self.storage(), (*self.writer(), number), self.readable(), RECORD_BYTES);
        let last_is_passed_over = records.last().is_some_and(|last| !is_told_by_0_1(last.kind));
        if doubt == Doubt::All || (doubt == Doubt::End && last_is_passed_over) {
            let mut summary = Summary::default();
            for part in to_be_summed(&records, 0).filter_map(|record| source.part_of(record)) {
                summary.add(&part);
            }
            return Ok(summary);
        }
        if stored.total_reward != Some(0.0) {
            return Ok(stored);
        }
        for record in records.iter().filter(|record| completes_a_step(record.kind)) {
            // A lost record may have had a reward.
            if source.part_of(record).is_none_or(|part| part.reward.is_some()) {
                return Ok(stored);
            }
        }
        Ok(Summary { total_reward: None, reward_rest: 0.0, ..stored })
    }
}

/// Which part of a stored summary cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// 0.1 recorded 0.0 also if no reward was given.
    Zero,
    /// A scan by 0.1 skipped the times of the last records, and a long reason.
    End,
    /// There is none, or a scan by 0.1 skipped a long name.
    All,
}

impl Doubt {
    fn about(stored: Option<&Stored>, is_grouped: bool, entries: &[(Id, &FooterEntry)]) -> Self {
        let Some(Stored { summary, is_by_rule }) = stored else { return Self::All };
        let has_begin = entries.first().is_some_and(|(_, entry)| entry.first_seq == 0);
        if *is_by_rule {
            Self::None
        } else if has_begin && (summary.run.is_none() || summary.task.is_none()) {
            Self::All
        } else if is_grouped && summary.why.is_none() {
            Self::End
        } else if summary.total_reward == Some(0.0) {
            Self::Zero
        } else {
            Self::None
        }
    }
}

/// True for records that a scan by 0.1 summarized completely.
fn is_told_by_0_1(kind: u8) -> bool {
    completes_a_step(kind) || kind == Kind::Begin as u8 || kind == Kind::Intent as u8
}
