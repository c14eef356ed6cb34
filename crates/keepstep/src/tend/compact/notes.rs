//! Notes on pruned episodes: what they say is left out, and a note without content keeps their number.
//!
//! Such a note is among the records of a run, so it does not go with the records of its episode. Its number stays,
//! since a gap in the numbers would mean that something was lost.

use std::collections::BTreeSet;

use keepstep_format::commit::{Bind, What};
use keepstep_format::decode::{NoBodies, read_fields_of};
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use crate::error::{Error, Result};
use crate::segment::bodies::{LogBodies, OpenRecord};
use crate::segment::cards::{as_id, encode_fields};
use crate::segment::names::PRUNED_NOTE;
use crate::segment::record::Unreadable;
use crate::segment::{Contents, Log, Manifest, Segment, Storage};

/// What takes the place of a record, if it is a note on a pruned episode.
pub(super) fn without_content(
    storage: &Storage,
    manifest: &Manifest,
    bind: &Bind,
    record: &OpenRecord,
) -> Option<Vec<u8>> {
    if bind.what != What::Run || record.kind != Kind::Note as u8 || manifest.pruned.is_empty() {
        return None;
    }
    let (target, time, _) = note(record)?;
    manifest.pruned(&target)?;
    let said = [
        (fields::TIME, time),
        (fields::NAME, Value::from(PRUNED_NOTE)),
        (fields::VALUE, Value::Null),
        (fields::SOURCE, Value::from("keepstep")),
        (fields::TARGET, Value::bytes(target.0)),
    ];
    encode_fields(storage, &said)
}

/// True if a segment has a note on one of these episodes, and not only the number of one.
pub(super) fn has_note_on(log: &Log, segment: &Segment, episodes: &BTreeSet<Id>) -> Result<bool> {
    if episodes.is_empty() {
        return Ok(false);
    }
    let mut bodies = log.bodies();
    match segment.contents() {
        Contents::Sealed(index) => {
            for entry in index.entries().filter(|entry| entry.what == What::Run) {
                // Lists that cannot be read are damage, and then the log stays as it is.
                let places = index.places(log.storage(), entry)?.unwrap_or_default();
                let notes =
                    (entry.first_seq..).zip(places).filter(|(_, (_, kind))| *kind == Kind::Note as u8);
                for (seq, (offset, _)) in notes {
                    if is_on(&mut bodies, segment.number, (offset, seq), episodes)? {
                        return Ok(true);
                    }
                }
            }
        }
        Contents::Open(scanned) => {
            for entry in scanned.entries.iter().filter(|entry| entry.bind.what == What::Run) {
                for at in entry.records.iter().filter(|it| it.kind == Kind::Note as u8) {
                    if is_on(&mut bodies, segment.number, (at.offset, at.seq), episodes)? {
                        return Ok(true);
                    }
                }
            }
        }
        Contents::Unreadable(_) => {}
    }
    Ok(false)
}

fn is_on(
    bodies: &mut LogBodies,
    segment: u64,
    (offset, seq): (u64, u32),
    episodes: &BTreeSet<Id>,
) -> Result<bool> {
    match bodies.record(segment, offset, seq) {
        Ok(record) => {
            Ok(note(&record)
                .is_some_and(|(target, _, has_content)| has_content && episodes.contains(&target)))
        }
        Err(Unreadable::Io(error)) if !matches!(error, Error::Damaged { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

/// The target and the time of a note, and whether it has its content.
fn note(record: &OpenRecord) -> Option<(Id, Value, bool)> {
    // Ids and times are short, so they are never references.
    let said = read_fields_of(&record.body, &record.part, &mut NoBodies).ok()?;
    let get = |field| said.iter().find(|(number, _)| *number == field).map(|(_, value)| value);
    let has_content = get(fields::NAME).and_then(Value::as_str) != Some(PRUNED_NOTE);
    Some((as_id(get(fields::TARGET)?)?, get(fields::TIME)?.clone(), has_content))
}
