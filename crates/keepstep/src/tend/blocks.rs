//! Checks a segment that `compact` made: its index must list the records of its blocks, and nothing else.

use std::collections::BTreeSet;

use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::Kind;
use keepstep_format::scan::SegmentScan;

use super::frames::{Checked, Known, frames_of, in_hole};
use super::report::Wrong;
use super::verify::Verifier;
use crate::error::Result;
use crate::segment::scanned::LostRecord;
use crate::segment::{SealedIndex, Segment, SegmentHead};

impl Verifier<'_> {
    pub(super) fn check_grouped(
        &mut self,
        segment: &Segment,
        head: &SegmentHead,
        scan: &SegmentScan,
        index: &SealedIndex,
    ) -> Result<Checked> {
        if index.has_lists(self.storage)? {
            self.report.counts.sealed += 1;
        } else {
            let end = segment.sealed_bytes.unwrap_or(segment.file_bytes);
            let bytes = end.saturating_sub(index.trailer.lists);
            let detail = "it does not validate, and was made again from the blocks";
            self.damaged(head, index.trailer.lists, bytes, Wrong::Index, detail);
        }
        let frames = frames_of(scan);
        let mut checked = Checked::default();
        let mut listed = BTreeSet::new();
        for (writer, entry) in index.all_entries() {
            let is_log = entry.what == What::Log;
            let Bind { what, id, attempt } = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
            let bind = (!is_log).then_some(Bind { what, id, attempt });
            for (seq, (offset, kind)) in (entry.first_seq..).zip(self.places(index, entry)?) {
                listed.insert(offset);
                let seq = if is_log { 0 } else { seq };
                match frames.get(&offset) {
                    Some(&(found, slot, first_seq))
                        if fits(is_log, found, kind, slot == entry.slot, seq >= first_seq) =>
                    {
                        checked.records.push(Known { offset, kind, seq, writer, bind });
                    }
                    None if in_hole(&scan.holes, offset) => {
                        let lost = LostRecord { bind, slot: entry.slot, seq, kind, offset };
                        checked.lost.push((writer, lost));
                    }
                    _ => self.disagrees(head, offset, "the index lists a record that is not there"),
                }
            }
        }
        for (&offset, (kind, ..)) in &frames {
            let is_data = *kind == Kind::Block as u8 || *kind == Kind::Bind as u8;
            if is_data && !listed.contains(&offset) {
                self.disagrees(head, offset, "the index does not list a record that is there");
            }
        }
        checked.records.sort_by_key(|record| record.offset);
        checked.lost.sort_by_key(|(_, lost)| lost.offset);
        Ok(checked)
    }

    fn places(
        &self,
        index: &SealedIndex,
        entry: &keepstep_format::footer::FooterEntry,
    ) -> Result<Vec<(u64, u8)>> {
        Ok(index.places(self.storage, entry)?.unwrap_or_default())
    }
}

/// True if the frame at this place can have the listed record.
fn fits(is_log: bool, found: u8, listed: u8, is_slot: bool, is_in_order: bool) -> bool {
    if is_log { found == listed } else { found == Kind::Block as u8 && is_slot && is_in_order }
}
