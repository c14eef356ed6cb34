//! The segment that is being written, and the bytes of its next batch.
//!
//! No offset is written twice: after an error the whole segment is given up.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use keepstep_format::commit::{Bind, Listed, What, put_commit_body};
use keepstep_format::footer::{Footer, FooterEntry, put_index, put_list};
use keepstep_format::frame::{
    FIRST_FRAME, FRAME_BODY_MAX, Flags, FrameSpec, Kind, Reference, put_frame, put_head,
};
use keepstep_format::hash::ContentKey;
use keepstep_format::segment::TRAILER_BYTES;
use keepstep_format::{Id, encode::Fresh};

use super::encoded_record::EncodedRecord;
use super::index::FirstBytes;
use super::subject::{Progress, Subject, SubjectKey};
use crate::disk::GrowingLog;
use crate::segment::Summary;
use crate::segment::summary::has_summary;

/// A record whose references are decided. It can be written, and written again elsewhere if that fails.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) subject: Option<Arc<Subject>>,
    pub(crate) kind: Kind,
    pub(crate) seq: u32,
    pub(crate) encoded: EncodedRecord,
    pub(crate) references: Vec<Reference>,
    /// References to records of the same batch, whose places are known only after these are written.
    pub(crate) siblings: Vec<Sibling>,
    pub(crate) dictionary: Option<(u64, u64)>,
    pub(crate) progress: Progress,
    /// Where it was written last.
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// Where other records believe it to be: its place when it was acknowledged.
    pub(crate) known_at: (u64, u64),
}

/// A reference to a value in an earlier record of the same batch.
#[derive(Debug)]
pub(crate) struct Sibling {
    /// Which reference.
    pub(crate) reference: usize,
    /// Which record of the batch.
    pub(crate) record: usize,
}

impl Placed {
    pub(crate) fn fresh(&self) -> &[Fresh] {
        &self.encoded.fresh
    }
}

/// A subject's records in this segment.
struct SubjectRecords {
    key: SubjectKey,
    slot: u32,
    first_seq: u32,
    records: Vec<(u64, u8)>,
    summary: Summary,
}

/// The segment that is being written.
pub(crate) struct OpenSegment {
    pub(crate) log: Box<dyn GrowingLog>,
    pub(crate) path: String,
    pub(crate) number: u64,
    pub(crate) salt: u64,
    /// Where the next frame goes.
    pub(crate) end: u64,
    /// Everything before this is synced.
    pub(crate) synced_to: u64,
    /// Everything before this is synced and was acknowledged. If the segment is given up, it is void from here on.
    pub(crate) kept_to: u64,
    /// The `synced_to` of the newest commit that was written.
    pub(crate) said_synced_to: u64,
    entries: Vec<SubjectRecords>,
    slots: HashMap<SubjectKey, usize, BuildHasherDefault<FirstBytes>>,
    log_frames: Vec<(u64, u8)>,
    depends_on: BTreeSet<u64>,
    buffer: Vec<u8>,
    listed: Vec<Listed>,
    head: Vec<u8>,
}

impl OpenSegment {
    pub(crate) fn new(log: Box<dyn GrowingLog>, path: String, number: u64, salt: u64) -> Self {
        Self {
            log,
            path,
            number,
            salt,
            end: FIRST_FRAME,
            synced_to: FIRST_FRAME,
            kept_to: FIRST_FRAME,
            said_synced_to: FIRST_FRAME,
            entries: Vec::new(),
            slots: HashMap::default(),
            log_frames: Vec::new(),
            depends_on: BTreeSet::new(),
            buffer: Vec::new(),
            listed: Vec::new(),
            head: Vec::new(),
        }
    }

    fn offset(&self) -> u64 {
        self.end + self.buffer.len() as u64
    }

    /// Adds a record to the batch. `lone` if it is the only one: then it is its own commit.
    pub(crate) fn add(&mut self, placed: &mut Placed, lone: Option<u64>) {
        let entry = placed.subject.as_ref().map(|subject| self.entry(subject, placed.seq));
        let slot = entry.map_or(0, |entry| self.entries[entry].slot);
        let offset = self.offset();
        (placed.segment, placed.offset) = (self.number, offset);
        self.head.clear();
        if !placed.references.is_empty() || placed.dictionary.is_some() {
            put_head(&mut self.head, self.number, placed.dictionary, &placed.references);
            let backs = placed.references.iter().map(|reference| reference.place.segment);
            self.depends_on.extend(backs.chain(placed.dictionary.map(|(segment, _)| segment)));
        }
        let encoded = &placed.encoded;
        let head = std::mem::take(&mut self.head);
        let base = FrameSpec {
            kind: placed.kind,
            flags: encoded.flags,
            slot,
            seq: placed.seq,
            synced_to: None,
            head: &head,
        };
        if let Some(crc) = encoded.crcs.only() {
            let spec = FrameSpec { synced_to: lone, ..base };
            put_frame(&mut self.buffer, self.salt, offset, &spec, &encoded.stored, crc);
        } else {
            self.add_chunks(&base, encoded);
        }
        self.head = head;
        self.listed.push(Listed { offset, kind: placed.kind as u8, slot, seq: placed.seq });
        let records = match entry {
            None => &mut self.log_frames,
            Some(entry) => {
                let entry = &mut self.entries[entry];
                entry.summary.add(&placed.progress.part);
                &mut entry.records
            }
        };
        records.push((offset, placed.kind as u8));
    }

    fn add_chunks(&mut self, first: &FrameSpec<'_>, encoded: &EncodedRecord) {
        let last = encoded.crcs.len() - 1;
        for (index, (chunk, crc)) in
            encoded.stored.chunks(FRAME_BODY_MAX).zip(encoded.crcs.iter()).enumerate()
        {
            let more = if index < last { Flags::MORE.0 } else { 0 };
            let spec = if index == 0 {
                FrameSpec { flags: Flags(first.flags.0 | more), ..*first }
            } else {
                FrameSpec { kind: Kind::Chunk, flags: Flags(more), head: &[], ..*first }
            };
            let offset = self.offset();
            put_frame(&mut self.buffer, self.salt, offset, &spec, chunk, crc);
        }
    }

    /// The subject's entry in this segment. It is bound to a slot at its first use.
    fn entry(&mut self, subject: &Subject, seq: u32) -> usize {
        if let Some(&index) = self.slots.get(&subject.key) {
            return index;
        }
        let slot = self.entries.len() as u32 + 1;
        self.slots.insert(subject.key, self.entries.len());
        // A copy has the name of its original, if the BEGIN is among the copied records.
        let is_named = subject.key.what == What::Attempt;
        let summary = if is_named { subject.name.summary(subject.steps()) } else { Summary::default() };
        self.entries.push(SubjectRecords {
            key: subject.key,
            slot,
            first_seq: seq,
            records: Vec::new(),
            summary,
        });
        let bind = Bind { what: subject.key.what, id: subject.key.id, attempt: subject.key.attempt }.encode();
        let offset = self.offset();
        let spec =
            FrameSpec { kind: Kind::Bind, flags: Flags::NONE, slot, seq: 0, synced_to: None, head: &[] };
        put_frame(&mut self.buffer, self.salt, offset, &spec, &bind, crc32c::crc32c(&bind));
        self.listed.push(Listed { offset, kind: Kind::Bind as u8, slot, seq: 0 });
        self.log_frames.push((offset, Kind::Bind as u8));
        self.entries.len() - 1
    }

    /// Ends the batch with a commit that lists it. An empty commit only says how far the log is synced.
    pub(crate) fn add_commit(&mut self, synced_to: u64) {
        let mut body = Vec::new();
        if !self.listed.is_empty() {
            put_commit_body(&mut body, &self.listed);
        }
        self.listed.clear();
        // A batch of very many records is listed in several commits, all in one write.
        let spec = FrameSpec {
            kind: Kind::Commit,
            flags: Flags::NONE,
            slot: 0,
            seq: 0,
            synced_to: Some(synced_to),
            head: &[],
        };
        let offset = self.offset();
        put_frame(&mut self.buffer, self.salt, offset, &spec, &body, crc32c::crc32c(&body));
        self.said_synced_to = synced_to;
    }

    /// True if the list of the next commit would soon not fit a frame.
    pub(crate) fn list_is_long(&self) -> bool {
        self.listed.len() >= FRAME_BODY_MAX / 32
    }

    /// The batch was committed by its only record.
    pub(crate) fn commit_was_inline(&mut self, synced_to: u64) {
        self.listed.clear();
        self.said_synced_to = synced_to;
    }

    /// Writes what was added. After an error the segment must be given up.
    pub(crate) fn write(&mut self) -> std::io::Result<()> {
        self.log.append(&self.buffer)?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        // One step of 100 MB must not hold 100 MB for ever.
        self.buffer.shrink_to(4 << 20);
        Ok(())
    }

    /// Bytes that were added and not written yet.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Syncs what was written. After an error the segment must be given up.
    pub(crate) fn sync(&mut self) -> std::io::Result<()> {
        let end = self.end;
        self.log.sync()?;
        self.synced_to = end;
        Ok(())
    }

    /// Appends the index and syncs it. Everything else must be synced already.
    pub(crate) fn seal(&mut self, key: &ContentKey) -> std::io::Result<()> {
        assert_eq!(self.synced_to, self.end, "a sealed segment has nothing that is not synced");
        let (lists, footer) = self.index(key);
        put_index(&mut self.buffer, self.salt, self.end, &footer, &lists);
        // The trailer says that everything before it is synced, the index too. So it is written last, by itself.
        let trailer = self.buffer.split_off(self.buffer.len() - TRAILER_BYTES);
        self.write()?;
        self.sync()?;
        self.buffer.extend_from_slice(&trailer);
        self.write()?;
        self.sync()
    }

    /// The content of LISTS and FOOTER.
    fn index(&mut self, key: &ContentKey) -> (Vec<u8>, Footer) {
        let mut lists = Vec::new();
        let mut entries = Vec::with_capacity(self.entries.len() + 1);
        let mut add = |key: SubjectKey, slot, first_seq, records: &[(u64, u8)], summary: Vec<u8>| {
            let list_position = put_list(&mut lists, records.iter().copied());
            entries.push(FooterEntry {
                what: key.what,
                id: key.id,
                attempt: key.attempt,
                slot,
                first_seq,
                count: records.len() as u32,
                list_position,
                summary,
            });
        };
        let log = SubjectKey { what: What::Log, id: Id::NONE, attempt: 0 };
        add(log, 0, 0, &self.log_frames, Vec::new());
        for entry in &mut self.entries {
            let summary = if has_summary(entry.key.what) { entry.summary.encode(key) } else { Vec::new() };
            add(entry.key, entry.slot, entry.first_seq, &entry.records, summary);
        }
        let own = self.number;
        let depends_on = self.depends_on.iter().filter(|&&number| number != own).map(|number| own - number);
        let mut depends_on: Vec<u64> = depends_on.collect();
        depends_on.sort_unstable();
        entries.sort_by_key(FooterEntry::sort_key);
        (lists, Footer { entries, depends_on })
    }

    /// True if nothing was ever added.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == FIRST_FRAME
    }
}
