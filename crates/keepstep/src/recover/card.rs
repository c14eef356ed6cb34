//! The SCAN card of a segment of a dead writer: an index, and what could not be read.
//!
//! Its summaries cover this segment only, as in a footer.

use keepstep_format::card::kind;
use keepstep_format::commit::{Bind, What};
use keepstep_format::footer::{Footer, FooterEntry, put_list, read_list};
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use crate::error::{Error, Result};
use crate::segment::cards::{CardFound, Fields, read_card};
use crate::segment::names::scan_path;
use crate::segment::scanned::{LostRange, LostRecord, ScannedRecord};
use crate::segment::summary::{Stored, has_summary};
use crate::segment::{Scanned, SegmentHead, Storage, UnsealedFacts};

/// What the SCAN card of a segment says.
pub(super) enum CardSays {
    /// Nothing that fits the segment as it is now.
    Nothing,
    /// A process scanned the segment, and found this.
    Scanned(Box<Scanned>),
    /// Its writer closed it normally, and it had this length.
    Closed(u64),
    /// The bytes differ from what was published.
    Damaged,
}

/// Reads the card of a segment.
pub(super) fn read(storage: &Storage, head: &SegmentHead, facts: &UnsealedFacts) -> Result<CardSays> {
    let path = scan_path(&head.writer, head.number);
    let card = match read_card(storage, &path, kind::SCAN) {
        Ok(CardFound::Card(card)) => card,
        Ok(CardFound::Nothing) => return Ok(CardSays::Nothing),
        Err(error @ Error::NewerFormat { .. }) => return Err(error),
        // The segment can be scanned without the card.
        Ok(CardFound::Damaged) | Err(_) => return Ok(CardSays::Damaged),
    };
    if card.get(fields::FOOTER).is_none() {
        return Ok(card.number(fields::FILE_BYTES).map_or(CardSays::Damaged, CardSays::Closed));
    }
    Ok(match scanned(&card, head) {
        Some((found, file_bytes)) if fits(&found, file_bytes, facts) => CardSays::Scanned(Box::new(found)),
        // The segment has grown since, or more of it was voided: then the card is useless, but no contradiction.
        Some(_) => CardSays::Nothing,
        None => CardSays::Damaged,
    })
}

/// If the segment is shorter now, it was cut, and the card knows what is missing.
fn fits(found: &Scanned, file_bytes: u64, facts: &UnsealedFacts) -> bool {
    facts.file_bytes <= file_bytes && facts.voided_from.is_none_or(|from| found.valid_to <= from)
}

/// The fields of the card. `None` if the findings cannot be written as an index.
pub(super) fn fields(
    storage: &Storage,
    head: &SegmentHead,
    facts: &UnsealedFacts,
    found: &Scanned,
) -> Option<Vec<(u8, Value)>> {
    let mut lists = Vec::new();
    let mut entries = vec![log_entry(found, &mut lists)];
    for entry in &found.entries {
        let mut summary = has_summary(entry.bind.what).then(|| entry.summary.encode(storage.key()));
        for run in entry.records.chunk_by(|a, b| a.seq.checked_add(1) == Some(b.seq)) {
            let Bind { what, id, attempt } = entry.bind;
            let list_position = put_list(&mut lists, run.iter().map(|record| (record.offset, record.kind)));
            entries.push(FooterEntry {
                what,
                id,
                attempt,
                slot: entry.slot,
                first_seq: run[0].seq,
                count: u32::try_from(run.len()).ok()?,
                list_position,
                // Once per attempt, otherwise its rewards would count twice.
                summary: summary.take().unwrap_or_default(),
            });
        }
    }
    entries.sort_by_key(FooterEntry::sort_key);
    if !entries.is_sorted_by(|a, b| a.sort_key() < b.sort_key()) {
        return None;
    }
    let footer = Footer { entries, depends_on: found.depends_on.clone() }.encode();
    let number = |number: u64| i64::try_from(number).ok().map(Value::Int);
    Some(vec![
        (fields::TIME, Value::Int(storage.disk().now_us())),
        (fields::WRITER, Value::bytes(head.writer.0)),
        (fields::SEGMENT, number(head.number)?),
        (fields::SYNCED_TO, number(found.synced_to)?),
        (fields::VALID_TO, number(found.valid_to)?),
        (fields::FILE_BYTES, number(facts.file_bytes)?),
        (fields::HOLES, Value::list(found.lost.iter().map(hole_value))),
        (fields::FOOTER, Value::bytes(footer)),
        (fields::LISTS, Value::bytes(lists)),
    ])
}

fn log_entry(found: &Scanned, lists: &mut Vec<u8>) -> FooterEntry {
    FooterEntry {
        what: What::Log,
        id: Id::NONE,
        attempt: 0,
        slot: 0,
        first_seq: 0,
        count: found.log_frames.len() as u32,
        list_position: put_list(lists, found.log_frames.iter().copied()),
        summary: Vec::new(),
    }
}

fn hole_value(range: &LostRange) -> Value {
    let int = |number: u64| Value::Int(number as i64);
    Value::map([
        ("offset", int(range.offset)),
        ("length", int(range.bytes)),
        ("damage", Value::Bool(range.damage)),
        ("records", Value::list(range.records.iter().map(record_value))),
        ("certain", Value::Bool(range.certain)),
    ])
}

fn record_value(lost: &LostRecord) -> Value {
    let mut entries = vec![
        ("offset", Value::Int(lost.offset as i64)),
        ("kind", Value::Int(i64::from(lost.kind))),
        ("slot", Value::Int(i64::from(lost.slot))),
        ("sequence", Value::Int(i64::from(lost.seq))),
    ];
    if let Some(bind) = lost.bind {
        // As in a BIND frame.
        entries.push(("bind", Value::bytes(bind.encode())));
    }
    Value::map(entries)
}

/// The findings of a card, and how long the file was.
fn scanned(card: &Fields, head: &SegmentHead) -> Option<(Scanned, u64)> {
    let is_ours = card.id(fields::WRITER)? == head.writer && card.number(fields::SEGMENT)? == head.number;
    if !is_ours {
        return None;
    }
    let mut found = Scanned::new();
    found.synced_to = card.number(fields::SYNCED_TO)?;
    found.valid_to = card.number(fields::VALID_TO)?;
    let footer = Footer::decode(card.get(fields::FOOTER)?.as_bytes()?).ok()?;
    let lists = card.get(fields::LISTS)?.as_bytes()?;
    for entry in &footer.entries {
        add_entry(&mut found, entry, lists)?;
    }
    found.depends_on = footer.depends_on;
    found.is_from_card = true;
    for hole in card.get(fields::HOLES)?.as_list()? {
        found.lost.push(lost_range(hole)?);
    }
    Some((found, card.number(fields::FILE_BYTES)?))
}

fn add_entry(found: &mut Scanned, entry: &FooterEntry, lists: &[u8]) -> Option<()> {
    let places = read_list(lists, entry.list_position, entry.count).ok()?;
    if entry.what == What::Log {
        found.log_frames = places;
        return Some(());
    }
    let FooterEntry { what, id, attempt, slot, first_seq, .. } = *entry;
    let target = found.entry(slot, Bind { what, id, attempt });
    for (seq, (offset, kind)) in (first_seq..).zip(places) {
        target.records.push(ScannedRecord { offset, seq, kind });
    }
    let is_summed = if entry.summary.is_empty() {
        // The first entry of an attempt has the summary of all; other subjects have none.
        target.summed > 0 || !has_summary(what)
    } else {
        let stored = Stored::decode(&entry.summary)?;
        // Findings of 0.1 are summarized again from the records.
        if stored.is_by_rule {
            target.summary.merge(&stored.summary);
        }
        stored.is_by_rule
    };
    if is_summed {
        target.summed = target.records.len();
    }
    Some(())
}

fn lost_range(value: &Value) -> Option<LostRange> {
    let truth = |key: &str| matches!(value.get(key), Some(Value::Bool(true)));
    let records = value.get("records")?.as_list()?.iter().map(lost_record).collect::<Option<Vec<_>>>()?;
    let (offset, bytes) = (number(value, "offset")?, number(value, "length")?);
    Some(LostRange { offset, bytes, damage: truth("damage"), records, certain: truth("certain") })
}

fn lost_record(value: &Value) -> Option<LostRecord> {
    let bind = match value.get("bind") {
        Some(bind) => Some(Bind::decode(bind.as_bytes()?).ok()?),
        None => None,
    };
    let small = |key: &str| u32::try_from(number(value, key)?).ok();
    let (slot, seq, kind) = (small("slot")?, small("sequence")?, u8::try_from(number(value, "kind")?).ok()?);
    Some(LostRecord { bind, slot, seq, kind, offset: number(value, "offset")? })
}

fn number(value: &Value, key: &str) -> Option<u64> {
    u64::try_from(value.get(key)?.as_int()?).ok()
}
