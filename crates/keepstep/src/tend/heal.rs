//! Looks for lost values elsewhere in the store, and publishes those that it finds, so that readers get them again.
//!
//! A value is recognised by its hash, so a found value is the lost one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use keepstep_format::card::{CARD_BODY_MAX, kind};
use keepstep_format::commit::What;
use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::hash::Hash;
use keepstep_format::rehash::Rehash;
use keepstep_format::value::Value;

use super::report::Progress;
use super::verify::{open_logs, verify_all};
use crate::error::Result;
use crate::segment::cards::{Published, encode_fields, publish_card};
use crate::segment::names::{HEALS, heal_path, list_numbered};
use crate::segment::{Contents, Log, LogBodies, ScanUnsealed, Storage};

/// About how many bytes go into one card; a longer value has a card of its own.
const CARD_BYTES: u64 = 16 << 20;

/// What healing did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealReport {
    /// How many values were looked for.
    pub wanted: u64,
    /// How many were found.
    pub found: u64,
    /// How many of these are too long for a card.
    pub too_long: u64,
    /// The cards that were published.
    pub cards: Vec<String>,
}

/// Looks for all values that are lost, and publishes those that it finds.
pub(crate) fn heal(
    storage: &Arc<Storage>,
    scan: &dyn ScanUnsealed,
    progress: &mut dyn FnMut(Progress),
) -> Result<HealReport> {
    let (_, wanted) = verify_all(storage, scan, progress)?;
    let mut report = HealReport { wanted: wanted.len() as u64, ..HealReport::default() };
    if wanted.is_empty() {
        return Ok(report);
    }
    let mut search = Search { wanted, found: HashMap::new() };
    let logs = open_logs(storage, scan)?;
    let bytes_total = logs.iter().flat_map(Log::segments).map(|segment| segment.file_bytes).sum();
    let mut bytes_done = 0;
    for log in &logs {
        search.look_into(log);
        bytes_done += log.segments().map(|segment| segment.file_bytes).sum::<u64>();
        progress(Progress { bytes_done, bytes_total });
    }
    report.found = search.found.len() as u64;
    publish(storage, search.found, &mut report)?;
    storage.look_for_heals();
    Ok(report)
}

struct Search {
    wanted: HashSet<Hash>,
    found: HashMap<Hash, Value>,
}

impl Search {
    fn look_into(&mut self, log: &Log) {
        let storage = Arc::clone(log.storage());
        let mut rehash = Rehash::new(storage.key());
        let mut bodies = log.bodies();
        for segment in log.segments() {
            for (offset, seq, kind) in offsets(log.storage(), segment.contents()) {
                if self.wanted.is_empty() {
                    return;
                }
                let is_shared = kind == Kind::Block as u8;
                let count = if is_shared { bodies.count_at(segment.number, offset).unwrap_or(0) } else { 1 };
                for at in (0..count as u32).filter(|_| segment.exists_at(offset)) {
                    let kind = if is_shared { Kind::Value as u8 } else { kind };
                    self.look_at(&mut rehash, &mut bodies, (segment.number, offset, seq + at), kind);
                }
            }
        }
    }

    fn look_at(&mut self, rehash: &mut Rehash<'_>, bodies: &mut LogBodies, at: (u64, u64, u32), kind: u8) {
        let Ok(record) = bodies.record(at.0, at.1, at.2) else { return };
        let values = if kind == Kind::Value as u8 {
            bodies.value(&record).map(|value| vec![value])
        } else {
            bodies.fields(&record).map(|fields| fields.into_iter().map(|(_, value)| value).collect())
        };
        for value in values.unwrap_or_default() {
            let found = &mut self.found;
            rehash.find(&value, &self.wanted, &mut |hash, value| {
                found.insert(hash, value);
            });
        }
        self.wanted.retain(|hash| !self.found.contains_key(hash));
    }
}

/// All records of a segment that hold values, in the order of the file: offset, sequence number, kind. Shared blocks
/// are listed once.
fn offsets(storage: &Storage, contents: &Contents) -> Vec<(u64, u32, u8)> {
    let mut all = Vec::new();
    match contents {
        Contents::Sealed(index) => {
            for (_, entry) in index.all_entries() {
                // Damaged lists were reported; their values are looked for in the other segments.
                let places = index.places(storage, entry).ok().flatten().unwrap_or_default();
                let is_log = entry.what == What::Log;
                let numbered = (entry.first_seq..).zip(places);
                all.extend(
                    numbered.map(|(seq, (offset, kind))| (offset, if is_log { 0 } else { seq }, kind)),
                );
            }
        }
        Contents::Open(scanned) => {
            all.extend(scanned.log_frames.iter().map(|&(offset, kind)| (offset, 0, kind)));
            let records = scanned.entries.iter().flat_map(|entry| &entry.records);
            all.extend(records.map(|record| (record.offset, record.seq, record.kind)));
        }
        Contents::Unreadable(_) => {}
    }
    let holds_values =
        |kind: u8| kind == Kind::Value as u8 || kind == Kind::Block as u8 || kind >= Kind::Begin as u8;
    all.retain(|(_, _, kind)| holds_values(*kind));
    all.sort_unstable();
    all
}

fn publish(storage: &Storage, found: HashMap<Hash, Value>, report: &mut HealReport) -> Result<()> {
    let mut found: Vec<(Hash, Value)> = found.into_iter().collect();
    found.sort_by_key(|(hash, _)| *hash);
    let mut batch = Vec::new();
    let mut bytes = 0;
    for (hash, value) in found {
        let entry = Value::map([("hash", Value::bytes(hash)), ("value", value)]);
        let Some(size) = encoded_bytes(storage, &entry) else {
            report.too_long += 1;
            continue;
        };
        if bytes + size > CARD_BYTES && !batch.is_empty() {
            publish_batch(storage, std::mem::take(&mut batch), report)?;
            bytes = 0;
        }
        bytes += size;
        batch.push(entry);
    }
    if batch.is_empty() { Ok(()) } else { publish_batch(storage, batch, report) }
}

/// How many bytes an entry takes in a card; `None` if it does not fit one.
fn encoded_bytes(storage: &Storage, entry: &Value) -> Option<u64> {
    let body = encode_fields(storage, &[(fields::HEALED, Value::list([entry.clone()]))])?;
    (body.len() < CARD_BODY_MAX - 1024).then_some(body.len() as u64)
}

fn publish_batch(storage: &Storage, batch: Vec<Value>, report: &mut HealReport) -> Result<()> {
    let count = batch.len() as u64;
    let card = [(fields::TIME, Value::Int(storage.disk().now_us())), (fields::HEALED, Value::list(batch))];
    let mut number = list_numbered(storage.disk(), HEALS)?.last().map_or(0, |last| last + 1);
    loop {
        let path = heal_path(number);
        match publish_card(storage, &path, kind::HEAL, &card)? {
            Published::Done => {
                report.cards.push(path);
                return Ok(());
            }
            // Another process heals at the same time: one of the next numbers is free.
            Published::Taken => number += 1,
            Published::Unfit => {
                report.too_long += count;
                return Ok(());
            }
        }
    }
}
