//! The units of a rewrite: everything that one writer recorded of one episode, and where its records are.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};

use super::sources::Sources;
use crate::error::{Error, Result};
use crate::segment::summing::Summed;
use crate::segment::{Contents, Log, Storage, Summary};

/// Everything that one writer recorded of one episode, stream or run.
#[derive(Debug)]
pub(super) struct Unit {
    /// The log that it is read from; `Id::NONE` if `compact` made it.
    pub(super) log: Id,
    pub(super) subjects: Vec<Subject>,
}

/// What one writer recorded of one attempt.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) writer: Id,
    pub(super) bind: Bind,
    pub(super) summary: Summary,
    /// The manifest that replaced the log of its writer; `None` if that is the next one, or if it is unknown.
    pub(super) moved_by: Option<u64>,
    segments: Vec<u64>,
}

/// A record, and where it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) seq: u32,
    pub(super) kind: u8,
    /// Where it was in the log of its writer. `None` if 0.1 moved it, which did not record that.
    pub(super) origin: Option<(u64, u64)>,
}

/// All units of a round; samples of one task are next to one another.
#[derive(Debug, Default)]
pub(super) struct Units {
    pub(super) list: Vec<Unit>,
}

/// Who recorded what: log, writer, id.
type Key = (Id, Id, Id);

impl Units {
    pub(super) fn of(sources: &Sources, is_pruned: &dyn Fn(&Id) -> bool) -> Result<Self> {
        let mut units: BTreeMap<Key, Vec<Subject>> = BTreeMap::new();
        for (id, segment) in sources.segments() {
            let Some(log) = sources.log(&id) else { continue };
            for Summed { writer, bind, records, summary, moved_by, .. } in log.summed(segment, None)? {
                let is_of_an_episode = matches!(bind.what, What::Attempt | What::Copied { .. });
                if records > 0 && !(is_of_an_episode && is_pruned(&bind.id)) {
                    let subjects = units.entry((id, writer, bind.id)).or_default();
                    note(subjects, writer, bind, (&summary, moved_by), segment.number);
                }
            }
        }
        let unit = |((log, ..), mut subjects): (Key, Vec<Subject>)| {
            subjects.sort_by_key(|it| (it.bind.attempt, it.bind.what.number()));
            Unit { log, subjects }
        };
        let mut list: Vec<Unit> = units.into_iter().map(unit).collect();
        list.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        Ok(Self { list })
    }
}

fn note(
    subjects: &mut Vec<Subject>,
    writer: Id,
    bind: Bind,
    (summary, moved_by): (&Summary, Option<u64>),
    segment: u64,
) {
    let known = subjects.iter_mut().find(|it| it.writer == writer && it.bind == bind);
    match known {
        Some(subject) => {
            subject.summary.merge(summary);
            if subject.segments.last() != Some(&segment) {
                subject.segments.push(segment);
            }
        }
        None => {
            let (summary, segments) = (summary.clone(), vec![segment]);
            subjects.push(Subject { writer, bind, summary, moved_by, segments });
        }
    }
}

impl Unit {
    /// Samples of one task have the same prompt, so they are placed next to one another.
    fn sort_key(&self) -> impl Ord + '_ {
        let first = self.subjects.first();
        let name = first.map(|it| {
            let Summary { generation_id, task, iteration, sample, .. } = &it.summary;
            (*generation_id, task.as_deref(), *iteration, *sample, it.bind.id, it.writer)
        });
        (name, self.log)
    }
}

impl Subject {
    /// Its records that count, in order of their sequence numbers.
    pub(super) fn records(&self, storage: &Storage, log: &Log) -> Result<Vec<At>> {
        let mut records: Vec<At> = Vec::new();
        for &number in &self.segments {
            let Some(segment) = log.segment(number) else { continue };
            let from = records.len();
            match segment.contents() {
                Contents::Sealed(index) => {
                    for entry in index.entries_by(&self.writer, &self.bind) {
                        let places =
                            index.places(storage, entry)?.ok_or_else(|| lists_damaged(log, number))?;
                        let moved = (*log.writer() == Id::NONE).then(|| index.origins(storage, entry));
                        let moved = moved.transpose()?;
                        let numbered = (entry.first_seq..).zip(places).enumerate();
                        records.extend(numbered.map(|(nth, (seq, (offset, kind)))| {
                            let moved =
                                moved.as_ref().map(|it| it.as_ref().and_then(|it| it.get(nth).copied()));
                            let origin = moved.unwrap_or(Some((number, offset)));
                            At { segment: number, offset, seq, kind, origin }
                        }));
                    }
                }
                Contents::Open(scanned) => {
                    let found = scanned.records_of(&self.bind);
                    records.extend(found.iter().map(|it| At {
                        segment: number,
                        offset: it.offset,
                        seq: it.seq,
                        kind: it.kind,
                        origin: Some((number, it.offset)),
                    }));
                }
                Contents::Unreadable(_) => {}
            }
            let mut at = 0;
            records.retain(|record| {
                at += 1;
                at <= from || segment.exists_at(record.offset)
            });
        }
        // A record that was written again after a segment was given up counts at its last place.
        records.sort_by_key(|record| (record.seq, record.segment, record.offset));
        records.reverse();
        records.dedup_by_key(|record| record.seq);
        records.reverse();
        Ok(records)
    }
}

fn lists_damaged(log: &Log, number: u64) -> Error {
    let path = crate::segment::names::segment_path(log.writer(), number);
    Error::Damaged { path, offset: 0, found: "its lists do not validate".to_owned() }
}
