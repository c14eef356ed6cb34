//! Writes the new segments: each is whole and sealed before it gets its name.

use std::io;

use crc32c::crc32c;
use keepstep_format::Id;
use keepstep_format::block::Block;
use keepstep_format::commit::{Bind, Listed, put_commit_body};
use keepstep_format::footer::{FooterEntry, put_index_of};
use keepstep_format::frame::{FIRST_FRAME, FRAME_BODY_MAX, Flags, FrameSpec, Kind, put_record, record_bytes};
use keepstep_format::grouped;
use keepstep_format::record::compress_block;
use keepstep_format::segment::SegmentHeader;

use super::blocks::Filling;
use super::shared::Shared;
use super::sources::Sources;
use super::units::{Unit, Units};
use super::{CompactReport, CompactSetup, Failed};
use crate::disk::GrowingLog;
use crate::error::{Doing, Error, Result};
use crate::segment::grouped::log_entry;
use crate::segment::names::{GROUPED, list_segments, parse_segment_path, segment_path};
use crate::segment::{Manifest, Storage};
use crate::tend::report::Progress;

/// How many frames one commit lists.
const COMMIT_FRAMES_MAX: usize = 4096;
/// How many bytes are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What was made in a round.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The segments, and their lengths.
    pub(super) segments: Vec<(u64, u64)>,
    records: u64,
    blocks: u64,
    /// True if another process took a number.
    pub(super) lost_race: bool,
}

impl Made {
    pub(super) fn tell(&self, report: &mut CompactReport) {
        report.segments_made += self.segments.len() as u64;
        report.bytes_after += self.segments.iter().map(|(_, bytes)| bytes).sum::<u64>();
        report.records += self.records;
        report.blocks += self.blocks;
    }

    /// Removes segments that no manifest names and no process reads. If one stays, the next round names it for
    /// deletion.
    pub(super) fn remove(&self, storage: &Storage) {
        for (number, _) in &self.segments {
            let _ = storage.disk().remove(&segment_path(&Id::NONE, *number));
        }
    }
}

/// Writes all units, batch by batch; each batch becomes one segment.
pub(super) fn write_all(
    storage: &Storage,
    manifest: &Manifest,
    sources: &mut Sources,
    units: Units,
    options: &CompactSetup,
    made: &mut Made,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Failed> {
    let bytes_total = sources.segments().map(|(_, segment)| segment.file_bytes).sum::<u64>();
    let mut pace = Pace { tell: progress, bytes_done: 0, bytes_total };
    let mut number = next_number(storage, manifest)?;
    let mut rest = &units.list[..];
    while !rest.is_empty() && !made.lost_race {
        let (batch, shared, behind) = next_batch(storage, manifest, sources, rest, options, &mut pace)?;
        let mut output = Output::create(storage, number)?;
        let mut filling = Filling::new(storage, manifest, &mut output, options.block_bytes_max);
        filling.put_shared(sources, &shared)?;
        for unit in batch {
            filling.put_unit(sources, unit)?;
            pace.passed(std::mem::take(&mut filling.output.bytes_passed) / 2);
        }
        output.finish(storage, made)?;
        number += 1;
        rest = behind;
    }
    Ok(())
}

/// Progress: reading is half of the work, writing the other half.
struct Pace<'p> {
    tell: &'p mut dyn FnMut(Progress),
    bytes_done: u64,
    bytes_total: u64,
}

impl Pace<'_> {
    fn passed(&mut self, bytes: u64) {
        self.bytes_done = (self.bytes_done + bytes).min(self.bytes_total);
        (self.tell)(Progress { bytes_done: self.bytes_done, bytes_total: self.bytes_total });
    }
}

/// A number that no segment ever had: a reader with an old manifest must not find new records under it.
fn next_number(storage: &Storage, manifest: &Manifest) -> Result<u64> {
    let there = list_segments(storage.disk(), &Id::NONE)?.into_iter().chain(manifest.held.keys().copied());
    let doomed = manifest.to_delete.iter().filter_map(|it| parse_segment_path(&it.path));
    let doomed = doomed.filter(|(writer, _)| *writer == Id::NONE).map(|(_, number)| number);
    Ok(there.chain(doomed).max().map_or(0, |last| last + 1))
}

/// As many units as fit one segment, and whose shared values fit one block; and the remaining units.
fn next_batch<'u>(
    storage: &Storage,
    manifest: &Manifest,
    sources: &mut Sources,
    units: &'u [Unit],
    options: &CompactSetup,
    pace: &mut Pace<'_>,
) -> Result<(&'u [Unit], Shared, &'u [Unit]), Failed> {
    let mut shared = Shared::default();
    let mut bytes = 0;
    for (count, unit) in units.iter().enumerate() {
        let look = shared.look_at(storage, manifest, sources, unit)?;
        let is_too_much = count >= options.subjects_max
            || bytes + look.bytes > options.segment_bytes_max
            || shared.bytes + look.shared_bytes > options.block_bytes_max;
        if count > 0 && is_too_much {
            let (batch, behind) = units.split_at(count);
            return Ok((batch, shared, behind));
        }
        bytes += look.bytes;
        pace.passed(look.bytes / 2);
        shared.take(look);
    }
    Ok((units, shared, &[]))
}

/// A segment that is being written.
pub(super) struct Output {
    log: Box<dyn GrowingLog>,
    number: u64,
    salt: u64,
    /// Bytes that are not written yet, and their offset.
    buffer: Vec<u8>,
    written_to: u64,
    /// Frames since the last commit.
    uncommitted: Vec<Listed>,
    log_frames: Vec<(u64, u8)>,
    pub(super) entries: Vec<(Id, FooterEntry)>,
    pub(super) lists: Vec<u8>,
    slots: u32,
    blocks: u64,
    /// Bytes of the sources that were moved since the last report.
    pub(super) bytes_passed: u64,
}

impl Output {
    fn create(storage: &Storage, number: u64) -> Result<Self> {
        let mut random = [0; 8];
        storage.disk().random(&mut random).doing("find a salt for", GROUPED)?;
        let salt = u64::from_le_bytes(random);
        let log = storage.disk().begin(GROUPED).doing("create", GROUPED)?;
        let header = SegmentHeader {
            store: *storage.store(),
            writer: Id::NONE,
            number,
            salt,
            created: storage.disk().now_us(),
            voids: None,
            sealed: None,
        };
        Ok(Self {
            log,
            number,
            salt,
            buffer: header.encode().to_vec(),
            written_to: 0,
            uncommitted: Vec::new(),
            log_frames: Vec::new(),
            entries: Vec::new(),
            lists: Vec::new(),
            slots: 0,
            blocks: 0,
            bytes_passed: 0,
        })
    }

    /// Where the next frame will be.
    pub(super) fn offset(&self) -> u64 {
        self.written_to + self.buffer.len() as u64
    }

    pub(super) fn passed(&mut self, bytes: u64) {
        self.bytes_passed += bytes;
    }

    /// Assigns a slot to the records of a writer and a subject.
    pub(super) fn bind(&mut self, writer: &Id, bind: &Bind) -> Result<u32> {
        self.slots += 1;
        let mut body = Vec::new();
        grouped::put_bind(&mut body, writer, bind);
        self.log_frames.push((self.offset(), Kind::Bind as u8));
        self.frame(Kind::Bind, Flags::NONE, (self.slots, 0), &body)?;
        Ok(self.slots)
    }

    /// Puts a block.
    pub(super) fn block(&mut self, block: &Block, slot: u32, first_seq: u32) -> Result<()> {
        self.blocks += 1;
        if slot == 0 {
            self.log_frames.push((self.offset(), Kind::Block as u8));
        }
        let body = block.encode(self.offset());
        match compress_block(&body) {
            Some(packed) => self.frame(Kind::Block, Flags::ZSTD, (slot, first_seq), &packed),
            None => self.frame(Kind::Block, Flags::NONE, (slot, first_seq), &body),
        }?;
        if self.uncommitted.len() >= COMMIT_FRAMES_MAX { self.commit() } else { Ok(()) }
    }

    fn frame(&mut self, kind: Kind, flags: Flags, (slot, seq): (u32, u32), body: &[u8]) -> Result<()> {
        let offset = self.offset();
        let spec = FrameSpec { kind, flags, slot, seq, synced_to: None, head: &[] };
        let crcs: Vec<u32> = body.chunks(FRAME_BODY_MAX).map(crc32c).collect();
        self.buffer.reserve(record_bytes(0, body.len(), false));
        put_record(&mut self.buffer, self.salt, offset, &spec, body, &crcs);
        self.uncommitted.push(Listed { offset, kind: kind as u8, slot, seq });
        if self.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
        let mut body = Vec::new();
        put_commit_body(&mut body, &std::mem::take(&mut self.uncommitted));
        let synced_to = Some(FIRST_FRAME);
        let kind = Kind::Commit;
        let spec = FrameSpec { kind, flags: Flags::NONE, slot: 0, seq: 0, synced_to, head: &[] };
        let offset = self.offset();
        put_record(&mut self.buffer, self.salt, offset, &spec, &body, &[crc32c(&body)]);
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let path = segment_path(&Id::NONE, self.number);
        self.log.append(&self.buffer).doing("write", &path)?;
        self.written_to += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Seals it, and gives it its name.
    fn finish(mut self, storage: &Storage, made: &mut Made) -> Result<()> {
        self.commit()?;
        let log = (Id::NONE, log_entry(&self.log_frames, &mut self.lists));
        self.entries.push(log);
        self.entries.sort_by_key(grouped::sort_key);
        let footer = grouped::encode_footer(&self.entries);
        put_index_of(&mut self.buffer, self.salt, self.written_to, &footer, &self.lists);
        self.write()?;
        let path = segment_path(&Id::NONE, self.number);
        self.log.sync().doing("sync", &path)?;
        let records = self.entries.iter().filter(|(writer, _)| *writer != Id::NONE);
        let records: u64 = records.map(|(_, entry)| u64::from(entry.count)).sum();
        match self.log.publish(&path) {
            Ok(true) => {}
            // A process that deletes leftovers without a grace period deleted this file: it is made again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => made.lost_race = true,
            published => made.lost_race = !published.doing("publish", &path)?,
        }
        if made.lost_race {
            return Ok(());
        }
        made.segments.push((self.number, self.written_to));
        made.blocks += self.blocks;
        made.records += records;
        match check_again(storage, self.number, self.written_to) {
            // It was deleted after it got its name. The process that did so has published a manifest, so ours would
            // be too late.
            Err(error) if error.is_gone() => made.lost_race = true,
            checked => checked?,
        }
        Ok(())
    }
}

/// Reads the segment back before anything depends on it.
fn check_again(storage: &Storage, number: u64, bytes: u64) -> Result<()> {
    let path = segment_path(&Id::NONE, number);
    // Not from the files that are kept open: those are in force, and the number of a removed segment is used again.
    let file = storage.disk().open(&path).doing("open", &path)?;
    let found = file.bytes().doing("measure", &path)?;
    if found == bytes {
        return Ok(());
    }
    Err(Error::Damaged {
        path,
        offset: found,
        found: format!("{bytes} bytes were written, {found} are there"),
    })
}
