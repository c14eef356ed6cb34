//! Scans a segment that was never sealed: finds where its writer stopped, and what is whole before that.
//!
//! Nothing is changed: the folder of another writer is only read. The findings about a dead writer's segment are
//! published outside of it, so that it is scanned once.

mod card;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::scan::Walk;

use crate::error::{Doing, Error, Result};
use crate::segment::bodies::ReadableSegments;
use crate::segment::names::{scan_path, segment_path};
use crate::segment::summing::SegmentRecords;
use crate::segment::window::{RECORD_BYTES, SCAN_BYTES, Window, feed};
use crate::segment::{Liveness, ScanUnsealed, Scanned, SegmentHead, Storage, UnsealedFacts};

/// Tells whether a writer is alive.
pub(crate) type AskLiveness = Box<dyn Fn(&Id) -> Liveness + Send + Sync>;

/// Scans segments that were never sealed.
pub(crate) struct Recovery {
    liveness: AskLiveness,
    publishes: bool,
    /// True if a log that grew is read from where it was read last, also what may not be synced.
    goes_on: bool,
}

impl std::fmt::Debug for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<Recovery>")
    }
}

impl Recovery {
    /// Scans, and publishes the findings about logs of dead writers.
    pub(crate) fn new(liveness: AskLiveness) -> Self {
        Self { liveness, publishes: true, goes_on: false }
    }

    /// Scans, and publishes nothing.
    pub(crate) fn read_only(liveness: AskLiveness) -> Self {
        Self { liveness, publishes: false, goes_on: false }
    }

    /// Scans every log as if its writer had just stopped, and publishes nothing: a dirty read.
    ///
    /// It has everything that a writer ever acknowledged, even if the log does not say so yet. What comes after
    /// [`Scanned::synced_to`] may still be lost, by a power cut or when its writer gives the segment up. A caller
    /// that depends on it copies it first.
    pub(crate) fn dirty() -> Self {
        Self::read_only(Box::new(|_| Liveness::Unknown))
    }

    /// As [`Recovery::dirty`], for a catalog that looks again and again: of a log that grew, only what is new is read.
    /// What was whole once is not checked again.
    pub(crate) fn dirty_again() -> Self {
        Self { goes_on: true, ..Self::dirty() }
    }
}

impl ScanUnsealed for Recovery {
    fn liveness(&self, writer: &Id) -> Liveness {
        (self.liveness)(writer)
    }

    fn scan(
        &self,
        storage: &Arc<Storage>,
        head: &SegmentHead,
        readable: &Arc<ReadableSegments>,
        facts: &UnsealedFacts,
        known: &mut Scanned,
    ) -> Result<()> {
        if facts.liveness == Liveness::Live && !facts.is_settled() {
            return go_on(storage, head, facts, known);
        }
        if self.goes_on && !facts.is_settled() && go_on_to_the_end(storage, head, facts, known)? {
            return Ok(());
        }
        let mut facts = *facts;
        let mut card_is_damaged = false;
        let mut name_is_taken = false;
        if facts.liveness != Liveness::Live {
            // A cache, not proof: it says what a scan would find, while the file has this length.
            match card::read(storage, head, &facts)? {
                card::CardSays::Nothing => {}
                card::CardSays::Scanned(found) => {
                    *known = *found;
                    return Ok(());
                }
                card::CardSays::Closed(bytes) => {
                    facts.sealed_bytes = Some(bytes);
                    // The segment may have been written and closed since it was measured; that is not a cut.
                    let path = segment_path(&head.writer, head.number);
                    let file_bytes = storage.file(&head.writer, head.number)?.bytes();
                    facts.file_bytes = file_bytes.doing("measure", &path)?.max(facts.file_bytes);
                    name_is_taken = true;
                }
                card::CardSays::Damaged => (card_is_damaged, name_is_taken) = (true, true),
            }
        }
        *known = scan_all(storage, head, &facts)?;
        known.card_is_damaged = card_is_damaged;
        // A result that depends on a header that may come back is not final.
        let is_final = facts.liveness == Liveness::Dead && !facts.void_is_unknown;
        if is_final && self.publishes && !name_is_taken {
            publish(storage, head, readable, &facts, known)?;
        }
        Ok(())
    }
}

/// Scans a whole segment, window by window.
fn scan_all(storage: &Storage, head: &SegmentHead, facts: &UnsealedFacts) -> Result<Scanned> {
    let path = segment_path(&head.writer, head.number);
    let file = storage.file(&head.writer, head.number)?;
    let mut walk = Walk::new(&head.header(), facts.rules());
    feed(&mut walk, &file, facts.file_bytes, true, &mut |_| {}).doing("read", &path)?;
    let mut found = walk.finish();
    facts.give_up_what_is_uncertain(&mut found);
    refuse_newer(found.newer, &path)?;
    let mut scanned = Scanned::new();
    let mut window = Window::new(file, RECORD_BYTES);
    scanned.add(&mut window, head, &found.frames)?;
    scanned.lose(&found.holes);
    (scanned.synced_to, scanned.valid_to) = (found.synced_to, found.valid_to);
    scanned.sealed_bytes = facts.sealed_bytes;
    Ok(scanned)
}

/// Continues in the log of a live writer: only what is known to be synced counts yet.
fn go_on(storage: &Storage, head: &SegmentHead, facts: &UnsealedFacts, known: &mut Scanned) -> Result<()> {
    let path = segment_path(&head.writer, head.number);
    let file = storage.file(&head.writer, head.number)?;
    if known.walk.is_none() {
        *known = Scanned::new();
    }
    let mut walk = known.walk.take().unwrap_or_else(|| Walk::new(&head.header(), facts.rules()));
    feed(&mut walk, &file, facts.file_bytes, false, &mut |_| {}).doing("read", &path)?;
    let seen = walk.take();
    refuse_newer(seen.newer, &path)?;
    let mut window = Window::new(file, RECORD_BYTES);
    known.add(&mut window, head, &seen.frames)?;
    known.lose(&seen.holes);
    (known.synced_to, known.valid_to) = (seen.synced_to, seen.synced_to);
    known.walk = Some(walk);
    Ok(())
}

/// Continues in a log that may still grow, and reads up to its end as if its writer had just stopped. False if a card
/// tells of the segment, or it is not as it was left: then all of it must be scanned.
fn go_on_to_the_end(
    storage: &Storage,
    head: &SegmentHead,
    facts: &UnsealedFacts,
    known: &mut Scanned,
) -> Result<bool> {
    let is_shorter = known.looked_at.is_some_and(|before| facts.file_bytes < before.file_bytes);
    if is_shorter || !matches!(card::read(storage, head, facts)?, card::CardSays::Nothing) {
        return Ok(false);
    }
    let path = segment_path(&head.writer, head.number);
    let file = storage.file(&head.writer, head.number)?;
    let mut walk = match known.walk.take().zip(known.certain.take()) {
        Some((walk, certain)) => {
            known.cut_to(certain);
            walk
        }
        None => {
            *known = Scanned::new();
            Walk::new(&head.header(), facts.rules())
        }
    };
    feed(&mut walk, &file, facts.file_bytes, false, &mut |_| {}).doing("read", &path)?;
    let seen = walk.take();
    let mut to_the_end = walk.clone();
    feed(&mut to_the_end, &file, facts.file_bytes, true, &mut |_| {}).doing("read", &path)?;
    let end = to_the_end.finish();
    let is_as_usual = !seen.is_over && seen.newer.or(end.newer).is_none();
    if !is_as_usual || !seen.holes.is_empty() || end.is_damaged() {
        return Ok(false);
    }
    let mut window = Window::new(file, RECORD_BYTES);
    known.add(&mut window, head, &seen.frames)?;
    let certain = known.certain_to(seen.synced_to);
    known.add(&mut window, head, &end.frames)?;
    if !known.lost.is_empty() {
        // Records whose BIND cannot be read.
        return Ok(false);
    }
    known.lose(&end.holes);
    (known.synced_to, known.valid_to) = (end.synced_to, end.valid_to);
    (known.walk, known.certain) = (Some(walk), Some(certain));
    Ok(true)
}

fn refuse_newer(newer: Option<u8>, path: &str) -> Result<()> {
    let known = u32::from(keepstep_format::FORMAT_VERSION);
    match newer {
        // The frame does not name its version, but this version cannot have written it.
        Some(_) => Err(Error::NewerFormat { path: path.to_owned(), found: known + 1, known }),
        None => Ok(()),
    }
}

/// Publishes the findings about the segment of a dead writer, if possible. A store that cannot be written can still
/// be read; and if another process was faster, it published the same.
fn publish(
    storage: &Arc<Storage>,
    head: &SegmentHead,
    readable: &Arc<ReadableSegments>,
    facts: &UnsealedFacts,
    scanned: &mut Scanned,
) -> Result<()> {
    let file = storage.file(&head.writer, head.number)?;
    // It may have been read from memory only: a power cut must not undo what is published.
    if scanned.valid_to > scanned.synced_to && file.sync().is_err() {
        return Ok(());
    }
    let mut source = SegmentRecords::new(storage, (head.writer, head.number), readable, SCAN_BYTES);
    scanned.sum_all(head.number, &mut source);
    let Some(fields) = card::fields(storage, head, facts, scanned) else { return Ok(()) };
    let path = scan_path(&head.writer, head.number);
    let _ = crate::segment::cards::publish_card(storage, &path, keepstep_format::card::kind::SCAN, &fields);
    Ok(())
}
