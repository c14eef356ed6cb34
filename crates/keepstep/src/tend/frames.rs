//! Checks the bytes of one segment: every frame, and whether its index agrees.

use std::collections::BTreeMap;

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What, read_commit_body};
use keepstep_format::frame::Kind;
use keepstep_format::scan::{FrameRef, Hole, SegmentScan, Walk};
use keepstep_format::segment::HEADER_BYTES;

use super::report::{Torn, Wrong};
use super::verify::Verifier;
use crate::counted;
use crate::error::{Doing, Error, Result};
use crate::segment::names::segment_path;
use crate::segment::record::load;
use crate::segment::scanned::{LostRecord, ScannedRecord};
use crate::segment::window::{SCAN_BYTES, feed};
use crate::segment::{Contents, Liveness, Log, Scanned, SealedIndex, Segment, SegmentHead};

/// A record that is there, and its subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) offset: u64,
    pub(super) kind: u8,
    pub(super) seq: u32,
    pub(super) writer: Id,
    pub(super) bind: Option<Bind>,
}

/// The records of a segment.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Records that are there.
    pub(super) records: Vec<Known>,
    /// Records that are known to be lost.
    pub(super) lost: Vec<(Id, LostRecord)>,
}

/// Frames by their offset: kind, slot, sequence.
pub(super) type Frames = BTreeMap<u64, (u8, u32, u32)>;

impl Verifier<'_> {
    /// Checks all bytes of a segment.
    pub(super) fn check_segment(&mut self, log: &Log, segment: &Segment) -> Result<Checked> {
        let Some(head) = segment.head() else {
            self.note_unreadable(log, segment);
            return Ok(Checked::default());
        };
        if head.is_damaged {
            self.damaged(
                head,
                0,
                HEADER_BYTES as u64,
                Wrong::Header,
                "it does not validate; it is unknown what it voids",
            );
        }
        let Some(scan) = self.walk(log, segment, head)? else { return Ok(Checked::default()) };
        self.note_holes(head, &scan);
        self.note_end(log, segment, head, &scan);
        self.check_commits(head, &scan)?;
        match segment.contents() {
            Contents::Sealed(index) if head.writer == Id::NONE => {
                self.check_grouped(segment, head, &scan, index)
            }
            Contents::Sealed(index) => self.check_sealed(segment, head, &scan, index),
            _ => self.check_open(segment, head, &scan),
        }
    }

    fn note_unreadable(&mut self, log: &Log, segment: &Segment) {
        let Contents::Unreadable(error) = segment.contents() else { return };
        let (wrong, detail) = match error {
            Error::Damaged { found, .. } => (Wrong::Header, found.clone()),
            other => (Wrong::Unreadable, other.to_string()),
        };
        let path = segment_path(log.writer(), segment.number);
        // The header itself, all that is there, and all that is known to have been there.
        let bytes = segment.file_bytes.max(HEADER_BYTES as u64).max(segment.sealed_bytes.unwrap_or(0));
        self.damage(path, Some((*log.writer(), segment.number)), (0, bytes), wrong, detail);
    }

    /// Reads the segment from front to back. `None` if there is nothing to check yet.
    fn walk(&mut self, log: &Log, segment: &Segment, head: &SegmentHead) -> Result<Option<SegmentScan>> {
        let path = segment_path(&head.writer, head.number);
        let Some((_, mut standing)) = log.rescan(segment.number) else { return Ok(None) };
        if let Some(looked_at) = segment.scanned().and_then(|scanned| scanned.looked_at) {
            standing.complete = looked_at.complete;
        }
        if let Some(scanned) = segment.scanned() {
            standing.sealed_bytes = standing.sealed_bytes.or(scanned.sealed_bytes);
            if scanned.is_from_card {
                // All of this was whole at the last scan, and what comes after it never counted.
                let to = standing.voided_from.map_or(scanned.valid_to, |from| from.min(scanned.valid_to));
                standing.voided_from = Some(to);
            }
        }
        let file = self.storage.file(&head.writer, head.number)?;
        let is_live = standing.liveness == Liveness::Live && !standing.is_settled();
        let mut walk = Walk::new(&head.header(), standing.rules());
        let mut passed = |offset: u64| self.progress.passed(offset);
        feed(&mut walk, &file, standing.file_bytes, !is_live, &mut passed).doing("read", &path)?;
        let found = if is_live {
            // What is not synced yet is not checked.
            let seen = walk.take();
            let (synced_to, holes, newer) = (seen.synced_to, seen.holes, seen.newer);
            let (frames, torn) = (seen.frames, None);
            SegmentScan { frames, synced_to, valid_to: synced_to, data_end: synced_to, holes, torn, newer }
        } else {
            let mut found = walk.finish();
            standing.give_up_what_is_uncertain(&mut found);
            found
        };
        if found.newer.is_some() {
            let known = u32::from(keepstep_format::FORMAT_VERSION);
            return Err(Error::NewerFormat { path, found: known + 1, known });
        }
        self.report.counts.records += found.frames.len() as u64;
        Ok(Some(found))
    }

    fn note_holes(&mut self, head: &SegmentHead, scan: &SegmentScan) {
        for hole in &scan.holes {
            if hole.damage {
                let named = hole.lost.len() as u64;
                let whose = if hole.certain { "all of it is named" } else { "there may have been more" };
                let are = if named == 1 { "is" } else { "are" };
                let detail = format!("{} {are} known to have been there; {whose}", counted(named, "record"));
                self.damaged(head, hole.offset, hole.len, Wrong::Records, &detail);
            } else {
                self.note_torn(head, hole);
            }
        }
    }

    fn note_torn(&mut self, head: &SegmentHead, hole: &Hole) {
        let records = hole.lost.iter().filter(|lost| is_record(lost.kind)).count() as u64;
        let (writer, segment, offset, bytes) = (head.writer, head.number, hole.offset, hole.len);
        self.report.torn.push(Torn { writer, segment, offset, bytes, records });
    }

    /// Checks what comes after the data: an index, or nothing.
    fn note_end(&mut self, log: &Log, segment: &Segment, head: &SegmentHead, scan: &SegmentScan) {
        let scanned = segment.scanned();
        let sealed_bytes = segment.sealed_bytes.or(scanned.and_then(|scanned| scanned.sealed_bytes));
        let Some(scanned) = scanned else {
            let end = sealed_bytes.unwrap_or(segment.file_bytes);
            self.note_surplus(head, end, segment.file_bytes);
            return;
        };
        let looked_at = scanned.looked_at;
        let complete = looked_at.is_some_and(|at| at.complete && !at.void_is_unknown);
        let is_live = log.liveness() == Liveness::Live;
        if let Some(trailer) = segment.trailer() {
            let bytes = segment.file_bytes.saturating_sub(trailer.lists);
            self.damaged(head, trailer.lists, bytes, Wrong::Index, "the trailer is valid, the index is not");
        } else if let Some(sealed_bytes) = sealed_bytes {
            self.note_lost_seal(head, scan.data_end, segment.file_bytes, sealed_bytes);
        } else if segment.voided_from.is_some() || is_live {
            // What comes after it does not count, or not yet.
        } else if scanned.is_from_card {
            self.note_behind_card(head, scanned, segment.file_bytes);
        } else if complete {
            let detail = "the log continues in a later segment, but this one was neither sealed nor given up";
            let bytes = segment.file_bytes.saturating_sub(scan.data_end);
            self.damaged(head, scan.data_end, bytes, Wrong::Cut, detail);
        } else if scan.data_end < segment.file_bytes {
            let (writer, number, offset) = (head.writer, head.number, scan.data_end);
            let bytes = segment.file_bytes - offset;
            self.report.torn.push(Torn { writer, segment: number, offset, bytes, records: 0 });
        }
    }

    /// What was torn when the segment was scanned is still torn.
    fn note_behind_card(&mut self, head: &SegmentHead, scanned: &Scanned, file_bytes: u64) {
        let (writer, segment, offset) = (head.writer, head.number, scanned.valid_to);
        let torn = scanned.lost.iter().filter(|range| !range.damage);
        let records =
            torn.flat_map(|range| &range.records).filter(|lost| is_record(lost.kind)).count() as u64;
        if offset < file_bytes {
            self.report.torn.push(Torn { writer, segment, offset, bytes: file_bytes - offset, records });
        }
    }

    /// It was sealed before, and is not any more.
    fn note_lost_seal(&mut self, head: &SegmentHead, data_end: u64, file_bytes: u64, sealed_bytes: u64) {
        // If data was cut off too, a hole reaches up to there and was reported.
        if file_bytes < sealed_bytes && data_end <= file_bytes {
            let detail = format!("it was sealed with {sealed_bytes} bytes");
            self.damaged(head, file_bytes, sealed_bytes - file_bytes, Wrong::Cut, &detail);
        }
        if data_end < file_bytes.min(sealed_bytes) {
            let bytes = file_bytes.min(sealed_bytes) - data_end;
            self.damaged(
                head,
                data_end,
                bytes,
                Wrong::Index,
                "it was sealed, and its trailer does not validate",
            );
        }
        self.note_surplus(head, sealed_bytes, file_bytes);
    }

    fn note_surplus(&mut self, head: &SegmentHead, end: u64, file_bytes: u64) {
        if end < file_bytes {
            let detail = "bytes were appended after it was sealed";
            self.damaged(head, end, file_bytes - end, Wrong::Surplus, detail);
        }
    }

    /// Every commit must list frames that are there, or in a hole.
    fn check_commits(&mut self, head: &SegmentHead, scan: &SegmentScan) -> Result<()> {
        let frames = frames_of(scan);
        let mut window = self.storage.window(&head.writer, head.number, SCAN_BYTES)?;
        for frame in scan.frames.iter().filter(|frame| frame.header.is(Kind::Commit)) {
            let Ok(commit) = load(&mut window, head.salt, head.number, frame.offset) else { continue };
            let listed = read_commit_body(&commit.stored);
            let fits = listed.is_ok_and(|listed| {
                listed.iter().all(|it| match frames.get(&it.offset) {
                    Some(found) => *found == (it.kind, it.slot, it.seq),
                    None => in_hole(&scan.holes, it.offset),
                })
            });
            if !fits {
                let detail = "a commit lists frames that are not there";
                self.damaged(head, frame.offset, frame.bytes, Wrong::Disagrees, detail);
            }
        }
        Ok(())
    }

    fn check_sealed(
        &mut self,
        segment: &Segment,
        head: &SegmentHead,
        scan: &SegmentScan,
        index: &SealedIndex,
    ) -> Result<Checked> {
        self.report.counts.sealed += 1;
        let mut frames = frames_of(scan);
        let mut checked = Checked::default();
        for entry in &index.footer.entries {
            let Some(places) = index.places(self.storage, entry)? else {
                let bytes = index.trailer.footer - index.trailer.lists;
                self.damaged(head, index.trailer.lists, bytes, Wrong::Index, "its lists do not validate");
                self.report.counts.sealed -= 1;
                return self.check_open(segment, head, scan);
            };
            let bind = (entry.what != What::Log).then_some(Bind {
                what: entry.what,
                id: entry.id,
                attempt: entry.attempt,
            });
            for (seq, (offset, kind)) in (entry.first_seq..).zip(places) {
                let is_log = entry.what == What::Log;
                match frames.remove(&offset) {
                    Some((found_kind, slot, found_seq))
                        if found_kind == kind && (is_log || (slot, found_seq) == (entry.slot, seq)) =>
                    {
                        let writer = head.writer;
                        checked.records.push(Known { offset, kind, seq: found_seq, writer, bind });
                    }
                    None if in_hole(&scan.holes, offset) => {
                        let slot = entry.slot;
                        let lost = LostRecord { bind, slot, seq, kind, offset };
                        checked.lost.push((head.writer, lost));
                    }
                    None if !segment.exists_at(offset) => {}
                    _ => self.disagrees(head, offset, "the index lists a record that is not there"),
                }
            }
        }
        for (&offset, (kind, ..)) in &frames {
            if *kind != Kind::Commit as u8 && *kind < keepstep_format::frame::KIND_SKIPPABLE {
                self.disagrees(head, offset, "the index does not list a record that is there");
            }
        }
        checked.records.sort_by_key(|record| record.offset);
        checked.lost.sort_by_key(|(_, lost)| lost.offset);
        Ok(checked)
    }

    pub(super) fn disagrees(&mut self, head: &SegmentHead, offset: u64, detail: &str) {
        self.damaged(head, offset, 0, Wrong::Disagrees, detail);
    }

    /// Without an index, the BIND frames name the subjects of the records.
    fn check_open(&mut self, segment: &Segment, head: &SegmentHead, scan: &SegmentScan) -> Result<Checked> {
        let mut scanned = Scanned::new();
        // A card, or a footer whose lists are damaged, names the subjects without BIND frames.
        match segment.contents() {
            Contents::Open(known) if known.is_from_card => {
                known.entries.iter().for_each(|it| {
                    scanned.entry(it.slot, it.bind);
                });
            }
            Contents::Sealed(index) => index.entries().for_each(|it| {
                scanned.entry(it.slot, Bind { what: it.what, id: it.id, attempt: it.attempt });
            }),
            _ => {}
        }
        let mut window = self.storage.window(&head.writer, head.number, SCAN_BYTES)?;
        scanned.add(&mut window, head, &scan.frames)?;
        let orphans: Vec<(u64, u64)> = scanned.lost.iter().map(|range| (range.offset, range.bytes)).collect();
        for (offset, bytes) in orphans {
            self.damaged(
                head,
                offset,
                bytes,
                Wrong::Records,
                "it is whole, but it is unknown what it belongs to",
            );
        }
        scanned.lose(&scan.holes);
        let mut checked = Checked::default();
        let log_frames = scanned.log_frames.iter();
        let writer = head.writer;
        let known = |&(offset, kind): &(u64, u8)| Known { offset, kind, seq: 0, writer, bind: None };
        checked.records.extend(log_frames.map(known));
        for entry in &scanned.entries {
            let bind = Some(entry.bind);
            let records = entry.records.iter();
            checked.records.extend(records.map(|it| Known {
                offset: it.offset,
                kind: it.kind,
                seq: it.seq,
                writer,
                bind,
            }));
        }
        checked.records.sort_by_key(|record| record.offset);
        let damage = scanned.lost.iter().filter(|range| range.damage);
        let lost = damage.flat_map(|range| range.records.iter().copied());
        checked.lost.extend(lost.map(|lost| (writer, lost)));
        self.check_what_is_known(segment, head, &scanned, &mut checked);
        checked.lost.sort_by_key(|(_, lost)| lost.offset);
        checked.lost.dedup_by_key(|(_, lost)| lost.offset);
        Ok(checked)
    }

    /// What readers use (perhaps the card of an earlier scan) must agree with the frames, or be reported as lost.
    fn check_what_is_known(
        &mut self,
        segment: &Segment,
        head: &SegmentHead,
        found: &Scanned,
        checked: &mut Checked,
    ) {
        let Some(known) = segment.scanned() else { return };
        for entry in &known.entries {
            let now = found.entries.iter().find(|it| it.slot == entry.slot && it.bind == entry.bind);
            for record in &entry.records {
                let is_there = now.is_some_and(|now| {
                    now.records.binary_search_by_key(&record.offset, |it| it.offset).is_ok()
                });
                if is_there {
                    continue;
                }
                let ScannedRecord { offset, seq, kind } = *record;
                let damage = found.lost.iter().filter(|range| range.damage);
                if !damage.into_iter().any(|range| covers(range.offset, range.bytes, offset)) {
                    self.disagrees(head, offset, "a card lists a record that is not there");
                }
                checked.lost.retain(|(_, lost)| lost.offset != offset);
                let lost = LostRecord { bind: Some(entry.bind), slot: entry.slot, seq, kind, offset };
                checked.lost.push((head.writer, lost));
            }
        }
    }
}

fn is_record(kind: u8) -> bool {
    kind >= Kind::Begin as u8
}

pub(super) fn frames_of(scan: &SegmentScan) -> Frames {
    let name = |frame: &FrameRef| (frame.offset, (frame.header.kind, frame.header.slot, frame.header.seq));
    scan.frames.iter().map(name).collect()
}

pub(super) fn in_hole(holes: &[Hole], offset: u64) -> bool {
    holes.iter().any(|hole| covers(hole.offset, hole.len, offset))
}

fn covers(from: u64, bytes: u64, offset: u64) -> bool {
    offset >= from && offset - from < bytes
}
