//! Puts records into blocks, and adjusts their references to the new places.

use keepstep_format::block::Block;
use keepstep_format::commit::Bind;
use keepstep_format::decode::{Bodies, Part};
use keepstep_format::footer::FooterEntry;
use keepstep_format::frame::{Kind, Reference};
use keepstep_format::grouped;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::Failed;
use super::notes::without_content;
use super::output::Output;
use super::shared::{Moves, Shared, open, records_of};
use super::sources::Sources;
use super::units::{At, Subject, Unit};
use crate::segment::cards::encode_fields;
use crate::segment::summary::has_summary;
use crate::segment::{Manifest, Storage};

/// Fills one segment.
pub(super) struct Filling<'f> {
    pub(super) storage: &'f Storage,
    manifest: &'f Manifest,
    pub(super) output: &'f mut Output,
    pub(super) block_bytes_max: usize,
    /// The manifest that will name this.
    moved_by: u64,
    /// The shared values at the front of the segment.
    shared: Moves,
}

impl<'f> Filling<'f> {
    pub(super) fn new(
        storage: &'f Storage,
        manifest: &'f Manifest,
        output: &'f mut Output,
        block_bytes_max: usize,
    ) -> Self {
        let moved_by = manifest.next_number();
        Self { storage, manifest, output, block_bytes_max, moved_by, shared: Moves::default() }
    }

    /// Puts the shared values at the front.
    pub(super) fn put_shared(&mut self, sources: &mut Sources, shared: &Shared) -> Result<(), Failed> {
        let mut block = Block::default();
        shared.each(|log, place, part| {
            let bodies = sources.bodies(&log).ok_or(Failed::Damaged(log))?;
            let body = bodies.body(place.segment, place.offset).ok_or(Failed::Damaged(log))?;
            // One block, so that an episode needs one other place to be read; more only for huge values.
            if block.bytes() > 0 && block.bytes() + part.bytes.len() > 2 * self.block_bytes_max {
                self.flush(&mut block, 0, 0)?;
            }
            let references = moved(&[&self.shared], log, &body.references[part.references.clone()])?;
            let kind = Kind::Value as u8;
            let new = block.push(kind, &body.raw[part.bytes.clone()], references).part.clone();
            self.shared.note(log, (place.segment, place.offset), part, (self.output.offset(), &new));
            Ok(())
        })?;
        self.flush(&mut block, 0, 0)
    }

    /// Puts everything that a writer recorded of an episode.
    pub(super) fn put_unit(&mut self, sources: &mut Sources, unit: &Unit) -> Result<(), Failed> {
        let mut own = Moves::default();
        for subject in &unit.subjects {
            self.put_subject(sources, unit, subject, &mut own)?;
        }
        Ok(())
    }

    fn put_subject(
        &mut self,
        sources: &mut Sources,
        unit: &Unit,
        subject: &Subject,
        own: &mut Moves,
    ) -> Result<(), Failed> {
        let records = records_of(self.storage, sources, unit, subject)?;
        if records.is_empty() {
            return Ok(());
        }
        let slot = self.output.bind(&subject.writer, &subject.bind)?;
        let mut listed = Vec::with_capacity(records.len());
        let is_summed = has_summary(subject.bind.what);
        let mut summary = if is_summed { subject.summary.to_fields() } else { Vec::new() };
        for run in records.chunk_by(|a, b| a.seq.checked_add(1) == Some(b.seq)) {
            let mut block = Block::default();
            let mut block_seq = run[0].seq;
            listed.clear();
            for at in run {
                let record = open(sources, unit.log, at)?;
                if block.bytes() > 0 && block.bytes() + record.raw().len() > self.block_bytes_max {
                    self.flush(&mut block, slot, block_seq)?;
                    block_seq = at.seq;
                }
                match without_content(self.storage, self.manifest, &subject.bind, &record) {
                    Some(raw) => {
                        block.push(at.kind, &raw, Vec::new());
                    }
                    None => {
                        let references = moved(&[own, &self.shared], unit.log, record.references())?;
                        let new: Part = block.push(at.kind, record.raw(), references).part.clone();
                        let to = (self.output.offset(), &new);
                        own.note(unit.log, (at.segment, at.offset), &record.part, to);
                    }
                }
                listed.push((self.output.offset(), at.kind));
                self.output.passed(record.bytes);
            }
            self.flush(&mut block, slot, block_seq)?;
            let Bind { what, id, attempt } = subject.bind;
            let list_position = grouped::put_list(&mut self.output.lists, listed.iter().copied());
            let (first_seq, count) = (run[0].seq, run.len() as u32);
            let mut said = std::mem::take(&mut summary);
            said.extend(self.put_origins(unit, subject, run));
            let summary = if said.is_empty() { None } else { encode_fields(self.storage, &said) };
            let summary = summary.unwrap_or_default();
            let entry = FooterEntry { what, id, attempt, slot, first_seq, count, list_position, summary };
            self.output.entries.push((subject.writer, entry));
        }
        Ok(())
    }

    /// Records where the records were in the log of their writer, and which manifest replaced it, so that a follower
    /// knows which ones it has reported. Records that 0.1 moved have lost their places.
    fn put_origins(&mut self, unit: &Unit, subject: &Subject, run: &[At]) -> Vec<(u8, Value)> {
        let moved_by = if unit.log == Id::NONE { subject.moved_by } else { Some(self.moved_by) };
        let origins: Option<Vec<(u64, u64)>> = run.iter().map(|at| at.origin).collect();
        let (Some(moved_by), Some(origins)) = (moved_by, origins) else { return Vec::new() };
        let position = grouped::put_origins(&mut self.output.lists, origins);
        [(fields::ORIGINS, position), (fields::MOVED_BY, moved_by)]
            .map(|(field, number)| (field, Value::Int(number as i64)))
            .into()
    }

    fn flush(&mut self, block: &mut Block, slot: u32, first_seq: u32) -> Result<(), Failed> {
        let block = std::mem::take(block);
        if block.records.is_empty() { Ok(()) } else { Ok(self.output.block(&block, slot, first_seq)?) }
    }
}

/// The references, adjusted to the new places.
fn moved(moves: &[&Moves], log: Id, references: &[Reference]) -> Result<Vec<Reference>, Failed> {
    let translate = |reference: &Reference| {
        let place = moves.iter().find_map(|moves| moves.find(log, &reference.place));
        place.map(|place| Reference { place, ..*reference }).ok_or(Failed::Damaged(log))
    };
    references.iter().map(translate).collect()
}
