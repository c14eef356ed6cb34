//! The records of an attempt, decoded one by one.
//!
//! If a value that a record refers to cannot be fetched, only that value is lost; the others stay. A record whose own
//! bytes are damaged is reported by name and place.

use std::collections::VecDeque;

use keepstep_format::decode::Wanted;

pub(super) use super::item::{DamagedRecord, Gap, Item, Record};
use super::places::{Next, Places, RecordPlace};
use crate::error::{Error, Result};
use crate::segment::LogBodies;
use crate::segment::names::segment_path;
use crate::segment::record::Unreadable;

/// How often in a row records may be moved before this is an error.
pub(super) const MOVED_MAX: usize = 16;

/// Iterates over the records of an attempt. If `compact` moves them meanwhile, it continues at their new place.
#[derive(Debug)]
pub struct Records<'r> {
    places: Places<'r>,
    bodies: &'r mut LogBodies,
    next_seq: u32,
    /// The remaining records, and what fetches them, after they were moved.
    moved: Option<(VecDeque<Next>, LogBodies)>,
    has_failed: bool,
}

impl<'r> Records<'r> {
    pub(super) fn new(places: Places<'r>, bodies: &'r mut LogBodies) -> Self {
        let next_seq = places.next_seq();
        Self { places, bodies, next_seq, moved: None, has_failed: false }
    }

    fn step(&mut self) -> Result<Option<Item>> {
        let next = match &mut self.moved {
            Some((rest, _)) => rest.pop_front(),
            None => self.places.next()?,
        };
        let Some(next) = next else { return Ok(None) };
        let bodies = self.moved.as_mut().map_or(&mut *self.bodies, |(_, bodies)| bodies);
        let (item, behind) = match next {
            Next::Gap { from, to } => (Item::Gap(Gap { from, to }), to),
            Next::Lost { seq, kind, place } => {
                (Item::Damaged(DamagedRecord { seq, kind, place }), seq.saturating_add(1))
            }
            Next::Here { seq, kind, place } => {
                (read_record(bodies, seq, kind, place)?, seq.saturating_add(1))
            }
        };
        self.next_seq = behind;
        Ok(Some(item))
    }

    /// Continues where the records are now.
    fn find_again(&mut self) -> Result<()> {
        let reader = self.places.find_again()?;
        let rest = reader.outline(self.next_seq).collect::<Result<_>>()?;
        self.moved = Some((rest, reader.into_bodies()));
        Ok(())
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Item>;

    /// After an error nothing more comes: an unreadable record is never skipped.
    fn next(&mut self) -> Option<Result<Item>> {
        if self.has_failed {
            return None;
        }
        let mut step = self.step();
        for _ in 0..MOVED_MAX {
            match &step {
                Err(error) if error.is_gone() => step = self.find_again().and_then(|()| self.step()),
                _ => break,
            }
        }
        self.has_failed = step.is_err();
        step.transpose()
    }
}

/// Reads the record that an index says is at a place.
pub(super) fn read_record(bodies: &mut LogBodies, seq: u32, kind: u8, place: RecordPlace) -> Result<Item> {
    read_wanted(bodies, seq, kind, place, &Wanted::ALL)
}

/// As [`read_record`], but only these fields of it. What is lost of the others is not known then.
pub(super) fn read_wanted(
    bodies: &mut LogBodies,
    seq: u32,
    kind: u8,
    place: RecordPlace,
    wanted: &Wanted,
) -> Result<Item> {
    let read = bodies.record(place.segment, place.offset, seq).and_then(|record| {
        // If the index names another record than the one that is there, it cannot be trusted.
        if (record.kind, record.seq) != (kind, seq) {
            return Err(Unreadable::Damaged);
        }
        let fields = bodies.wanted_fields(&record, wanted)?;
        Ok((record.bytes, fields))
    });
    match read {
        Ok((bytes, fields)) => {
            let lost =
                fields.iter().filter(|(_, value)| value.has_lost()).map(|(number, _)| *number).collect();
            Ok(Item::Record(Box::new(Record { seq, kind, place, bytes, fields, lost })))
        }
        Err(Unreadable::Damaged | Unreadable::Missing) => {
            Ok(Item::Damaged(DamagedRecord { seq, kind, place }))
        }
        Err(Unreadable::Newer) => {
            let path = segment_path(bodies.writer(), place.segment);
            let known = u32::from(keepstep_format::FORMAT_VERSION);
            Err(Error::NewerFormat { path, found: known + 1, known })
        }
        Err(Unreadable::Io(error)) => Err(error),
    }
}
