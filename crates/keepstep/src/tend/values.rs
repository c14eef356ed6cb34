//! Decodes every record of a segment, and hashes every value again that a record refers to.
//!
//! Loss is reported for each value: a step whose prompt is damaged keeps its action and reward.

use keepstep_format::Id;
use keepstep_format::commit::Bind;
use keepstep_format::fields;
use keepstep_format::frame::{Kind, Place, Reference};
use keepstep_format::grouped;
use keepstep_format::value::Value;

use super::frames::{Checked, Known};
use super::report::{Lost, Wrong};
use super::verify::{LogState, Verifier};
use crate::segment::bodies::OpenRecord;
use crate::segment::cards::Fields;
use crate::segment::record::Unreadable;
use crate::segment::{Segment, SegmentHead};

/// How many followed references are remembered: histories refer to the same values again and again.
const CHECKED_MAX: usize = 1 << 18;

impl Verifier<'_> {
    /// Checks all records of a segment, in the order of the file, including lost ones.
    pub(super) fn check_values(&mut self, state: &mut LogState<'_>, segment: &Segment, checked: &Checked) {
        let Some(head) = segment.head() else { return };
        let mut lost = checked.lost.iter().peekable();
        for record in &checked.records {
            while let Some((writer, lost)) = lost.next_if(|(_, lost)| lost.offset < record.offset) {
                self.lose_record(state, head, (*writer, lost.bind), (lost.seq, lost.kind, lost.offset));
            }
            self.note_sequence(state, head, record);
            self.check_record(state, head, record);
            self.progress.passed(record.offset);
        }
        for (writer, lost) in lost {
            self.lose_record(state, head, (*writer, lost.bind), (lost.seq, lost.kind, lost.offset));
        }
    }

    fn note_sequence(&mut self, state: &mut LogState<'_>, head: &SegmentHead, record: &Known) {
        if let Some(bind) = &record.bind
            && !state.subjects.note(&record.writer, bind, record.seq)
        {
            let detail = format!("sequence {} of {} was there before", record.seq, bind.id);
            self.damaged(head, record.offset, 0, Wrong::Disagrees, &detail);
        }
    }

    /// Reports a record that cannot be read. Of values and dictionaries, the loss is reported where they are used.
    fn lose_record(
        &mut self,
        state: &mut LogState<'_>,
        head: &SegmentHead,
        (writer, bind): (Id, Option<Bind>),
        (seq, kind, offset): (u32, u8, u64),
    ) {
        if kind < Kind::Begin as u8 && kind != Kind::Chunk as u8 {
            return;
        }
        let step = bind.and_then(|bind| {
            state.subjects.note(&writer, &bind, seq);
            state.subjects.step(&writer, &bind, kind, None)
        });
        let segment = head.number;
        self.report.lost.push(Lost {
            writer,
            bind,
            seq,
            kind,
            step,
            field: None,
            segment,
            offset,
            healed: false,
        });
    }

    fn check_record(&mut self, state: &mut LogState<'_>, head: &SegmentHead, known: &Known) {
        let opened = match state.bare.record(head.number, known.offset, known.seq) {
            Ok(opened) => opened,
            Err(reason) => return self.undecodable(state, head, known, &reason),
        };
        match Kind::from_u8(known.kind) {
            Some(Kind::Block) => return self.check_shared(state, head, known),
            Some(Kind::Bind) if !binds_something(head, opened.raw()) => {
                self.damaged(head, known.offset, opened.bytes, Wrong::Undecodable, "it binds nothing known");
            }
            Some(Kind::Value) => self.check_value(state, head, known, &opened),
            Some(kind) if kind >= Kind::Begin && opened.kind != known.kind => {
                self.damaged(
                    head,
                    known.offset,
                    0,
                    Wrong::Disagrees,
                    "a block has another record than is listed",
                );
            }
            Some(kind) if kind >= Kind::Begin => self.check_fields(state, head, known, &opened),
            _ => {}
        }
        self.check_references(state, head, known, &opened);
    }

    /// The values of a block that several attempts refer to.
    fn check_shared(&mut self, state: &mut LogState<'_>, head: &SegmentHead, known: &Known) {
        let count = state.bare.count_at(head.number, known.offset).unwrap_or(0);
        for at in 0..count as u32 {
            let opened = match state.bare.record(head.number, known.offset, at) {
                Ok(opened) => opened,
                Err(reason) => return self.undecodable(state, head, known, &reason),
            };
            self.check_value(state, head, known, &opened);
            self.check_references(state, head, known, &opened);
        }
    }

    fn check_value(
        &mut self,
        state: &mut LogState<'_>,
        head: &SegmentHead,
        known: &Known,
        opened: &OpenRecord,
    ) {
        match state.bare.value(opened) {
            Ok(_) => self.wanted.extend(state.bare.missing().iter().copied()),
            Err(reason) => self.undecodable(state, head, known, &reason),
        }
    }

    fn undecodable(
        &mut self,
        state: &mut LogState<'_>,
        head: &SegmentHead,
        known: &Known,
        reason: &Unreadable,
    ) {
        let detail = match reason {
            Unreadable::Io(error) => error.to_string(),
            _ => "its checksums are right, but it cannot be decoded, or its dictionary is lost".to_owned(),
        };
        let wrong = if matches!(reason, Unreadable::Io(_)) { Wrong::Unreadable } else { Wrong::Undecodable };
        self.damaged(head, known.offset, 0, wrong, &detail);
        self.lose_record(state, head, (known.writer, known.bind), (known.seq, known.kind, known.offset));
    }

    fn check_fields(
        &mut self,
        state: &mut LogState<'_>,
        head: &SegmentHead,
        known: &Known,
        opened: &OpenRecord,
    ) {
        let found = match state.bare.fields(opened) {
            Ok(found) => Fields(found),
            Err(reason) => return self.undecodable(state, head, known, &reason),
        };
        if let Some(bind) = &known.bind {
            self.rests.note_record(bind, Kind::from_u8(known.kind), &found);
        }
        let index = found.get(fields::INDEX).and_then(Value::as_int);
        let step = known.bind.and_then(|bind| state.subjects.step(&known.writer, &bind, known.kind, index));
        let lost: Vec<u8> = lost_fields(&found.0);
        if lost.is_empty() {
            return;
        }
        let missing: Vec<_> = state.bare.missing().to_vec();
        let healed = state.healing.fields(opened);
        let still_lost = healed.map_or_else(|_| lost.clone(), |healed| lost_fields(&healed));
        if !still_lost.is_empty() {
            let not_healed = missing.into_iter().filter(|hash| self.storage.healed(hash).is_none());
            self.wanted.extend(not_healed);
        }
        for number in lost {
            self.report.lost.push(Lost {
                writer: known.writer,
                bind: known.bind,
                seq: known.seq,
                kind: known.kind,
                step,
                field: Some(fields::name(number).unwrap_or("field")),
                segment: head.number,
                offset: known.offset,
                healed: !still_lost.contains(&number),
            });
        }
    }

    /// Follows every reference of a record, and compares the hash of its target.
    fn check_references(
        &mut self,
        state: &mut LogState<'_>,
        head: &SegmentHead,
        known: &Known,
        opened: &OpenRecord,
    ) {
        for reference in opened.references() {
            self.report.counts.references += 1;
            let Place { segment, offset, inner, base } = reference.place;
            if state.checked.len() >= CHECKED_MAX {
                state.checked.clear();
            }
            if !state.checked.insert((segment, offset, inner, base, reference.take, reference.hash)) {
                continue;
            }
            if hash_of(state, reference).is_some_and(|hash| hash != reference.hash) {
                let detail =
                    format!("a reference to byte {offset} of segment {segment} leads to another value");
                self.damaged(head, known.offset, opened.bytes, Wrong::Disagrees, &detail);
            }
        }
    }
}

/// In segments that `compact` made, a binding also names the writer.
fn binds_something(head: &SegmentHead, body: &[u8]) -> bool {
    if head.writer == Id::NONE { grouped::read_bind(body).is_ok() } else { Bind::decode(body).is_ok() }
}

fn lost_fields(found: &[(u8, Value)]) -> Vec<u8> {
    found.iter().filter(|(_, value)| value.has_lost()).map(|(number, _)| *number).collect()
}

/// The hash of the target of a reference; `None` if that is lost.
fn hash_of(state: &mut LogState<'_>, reference: &Reference) -> Option<[u8; 16]> {
    if reference.take == 0 {
        let value = state.bare.reference(reference)?;
        return state.rehash.value(&value);
    }
    // A prefix of an array has no shape, so it is cut from the whole. Of other values, only the prefix may be left.
    let prefix = state.bare.reference(reference);
    let value = match prefix {
        Some(value) => value,
        None => state.bare.reference(&Reference { take: 0, ..*reference })?,
    };
    state.rehash.prefix(&value, reference.take)
}
