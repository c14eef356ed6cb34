//! Values that several episodes refer to. They are stored once, at the front, so that reading an episode never leads
//! into another one.
//!
//! A value is moved byte by byte; only its own references are rewritten.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::decode::{Bodies, Part, part_of_value};
use keepstep_format::frame::{Place, Reference};

use super::Failed;
use super::notes::without_content;
use super::sources::Sources;
use super::units::{At, Unit};
use crate::segment::bodies::OpenRecord;
use crate::segment::record::Unreadable;
use crate::segment::{Manifest, Storage};

/// Where the beginning of something moved was: segment, offset, start in the body.
type Start = (u64, u64, u64);

/// What was moved, and where it is now.
#[derive(Debug, Default)]
pub(super) struct Moves {
    moved: BTreeMap<(Id, Start), Moved>,
}

/// A piece of a body that was moved.
#[derive(Debug, Clone, Copy)]
struct Moved {
    end: u64,
    base: u64,
    /// The block that it is in now.
    offset: u64,
    new_start: u64,
    new_base: u64,
}

impl Moves {
    /// Notes that a part of the body at (segment, offset) was moved.
    pub(super) fn note(&mut self, log: Id, (segment, offset): (u64, u64), part: &Part, to: (u64, &Part)) {
        let (new_offset, new) = to;
        let moved = Moved {
            end: part.bytes.end as u64,
            base: part.references.start as u64,
            offset: new_offset,
            new_start: new.bytes.start as u64,
            new_base: new.references.start as u64,
        };
        self.moved.insert((log, (segment, offset, part.bytes.start as u64)), moved);
    }

    /// Where a place is now; `None` if it was not moved.
    pub(super) fn find(&self, log: Id, place: &Place) -> Option<Place> {
        let Place { segment, offset, inner, base } = *place;
        let ((found, start), moved) = self.moved.range(..=(log, (segment, offset, inner))).next_back()?;
        let is_inside = (*found, start.0, start.1) == (log, segment, offset) && inner < moved.end;
        let base = (moved.new_base + u64::from(base)).checked_sub(moved.base).filter(|_| is_inside)?;
        let (inner, base) = (moved.new_start + (inner - start.2), u32::try_from(base).ok()?);
        Some(Place { segment: 0, offset: moved.offset, inner, base })
    }
}

/// The values that a batch of units shares.
#[derive(Debug, Default)]
pub(super) struct Shared {
    wanted: BTreeMap<(Id, Place), Part>,
    pub(super) bytes: usize,
}

/// What is known of a unit before it is moved.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// How many bytes its records take.
    pub(super) bytes: u64,
    /// The values of other units that it refers to.
    wanted: BTreeMap<(Id, Place), Part>,
    /// How many bytes these have.
    pub(super) shared_bytes: usize,
}

impl Shared {
    /// Measures a unit, and finds the values that it needs and that are not shared yet.
    pub(super) fn look_at(
        &self,
        storage: &Storage,
        manifest: &Manifest,
        sources: &mut Sources,
        unit: &Unit,
    ) -> Result<Look, Failed> {
        let mut look = Look::default();
        let mut own = Moves::default();
        for subject in &unit.subjects {
            for at in records_of(storage, sources, unit, subject)? {
                let record = open(sources, unit.log, &at)?;
                look.bytes += record.bytes;
                // What others refer to in it is theirs too: it is stored as a shared value.
                if without_content(storage, manifest, &subject.bind, &record).is_some() {
                    continue;
                }
                for reference in record.references() {
                    if own.find(unit.log, &reference.place).is_none() {
                        self.want(sources, unit.log, reference.place, &mut look)?;
                    }
                }
                own.note(unit.log, (at.segment, at.offset), &record.part, (0, &record.part));
            }
        }
        Ok(look)
    }

    /// Adds a value, and everything that it refers to.
    fn want(&self, sources: &mut Sources, log: Id, place: Place, look: &mut Look) -> Result<(), Failed> {
        let mut places = vec![place];
        while let Some(place) = places.pop() {
            if self.wanted.contains_key(&(log, place)) || look.wanted.contains_key(&(log, place)) {
                continue;
            }
            let bodies = sources.bodies(&log).ok_or(Failed::Damaged(log))?;
            let body = bodies.body(place.segment, place.offset).ok_or(Failed::Damaged(log))?;
            let part = part_of_value(&body, place.inner, place.base).map_err(|_| Failed::Damaged(log))?;
            places.extend(body.references[part.references.clone()].iter().map(|reference| reference.place));
            look.shared_bytes += part.bytes.len() + part.references.len() * size_of::<Reference>();
            look.wanted.insert((log, place), part);
        }
        Ok(())
    }

    /// Adds the values that a unit needs.
    pub(super) fn take(&mut self, look: Look) {
        self.bytes += look.shared_bytes;
        self.wanted.extend(look.wanted);
    }

    /// Passes all values to `each`, in order: each comes after those that it refers to. Values inside of others are
    /// left out.
    pub(super) fn each(
        &self,
        mut give: impl FnMut(Id, &Place, &Part) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut outer: Option<(Id, u64, u64, usize)> = None;
        for ((log, place), part) in &self.wanted {
            let is_inside = outer.is_some_and(|(in_log, segment, offset, end)| {
                (in_log, segment, offset) == (*log, place.segment, place.offset) && part.bytes.end <= end
            });
            if !is_inside {
                outer = Some((*log, place.segment, place.offset, part.bytes.end));
                give(*log, place, part)?;
            }
        }
        Ok(())
    }
}

/// The records of a subject, in order.
pub(super) fn records_of(
    storage: &Storage,
    sources: &Sources,
    unit: &Unit,
    subject: &super::units::Subject,
) -> Result<Vec<At>, Failed> {
    let log = sources.log(&unit.log).ok_or(Failed::Damaged(unit.log))?;
    subject.records(storage, log).map_err(|error| match error {
        crate::Error::Damaged { .. } => Failed::Damaged(unit.log),
        other => Failed::Error(other),
    })
}

/// A record, unpacked.
pub(super) fn open(sources: &mut Sources, log: Id, at: &At) -> Result<OpenRecord, Failed> {
    let bodies = sources.bodies(&log).ok_or(Failed::Damaged(log))?;
    let record = bodies.record(at.segment, at.offset, at.seq).map_err(|reason| match reason {
        Unreadable::Io(error) => Failed::Error(error),
        _ => Failed::Damaged(log),
    })?;
    // If the index names another record than the one that is there, it cannot be trusted.
    if (record.kind, record.seq) == (at.kind, at.seq) { Ok(record) } else { Err(Failed::Damaged(log)) }
}
