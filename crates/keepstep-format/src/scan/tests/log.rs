//! A small log, and where everything in it was put.

use crc32c::crc32c;

use crate::Id;
use crate::commit::{Listed, put_commit_body};
use crate::footer::{Footer, put_index};
use crate::frame::{Flags, FrameSpec, Kind, join, put_frame};
use crate::scan::{FrameRef, Rules, SegmentScan, scan_segment};
use crate::segment::SegmentHeader;

pub(super) const SALT: u64 = 0x0bad_5eed_cafe_f00d;

/// A frame as it was written.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) name: Listed,
    pub(super) body_at: u64,
    pub(super) end: u64,
    pub(super) synced_to: Option<u64>,
    /// The first frame of its record; chunks have another.
    pub(super) first: usize,
}

#[derive(Debug, Clone)]
pub(super) struct TestLog {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Written>,
    /// What the next commit carries: the end of the last commit when `sync` was called.
    pub(super) synced_to: u64,
    batch: Vec<Listed>,
    next_seq: u32,
}

impl TestLog {
    pub(super) fn new() -> Self {
        let bytes = header().encode().to_vec();
        Self { bytes, frames: Vec::new(), synced_to: 128, batch: Vec::new(), next_seq: 0 }
    }

    pub(super) fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A record without a commit.
    pub(super) fn record(&mut self, body: &[u8]) -> Listed {
        self.chunked(&[body])
    }

    /// A record in so many frames.
    pub(super) fn chunked(&mut self, pieces: &[&[u8]]) -> Listed {
        let first = self.frames.len();
        let seq = self.take_seq();
        for (index, piece) in pieces.iter().enumerate() {
            let flags = if index + 1 < pieces.len() { Flags::MORE } else { Flags::NONE };
            let kind = if index == 0 { Kind::Step } else { Kind::Chunk };
            self.put(&FrameSpec { kind, flags, slot: 1, seq, synced_to: None, head: &[] }, piece, first);
        }
        self.batch.push(self.frames[first].name);
        self.frames[first].name
    }

    /// A record with a head.
    pub(super) fn with_head(&mut self, head: &[u8], body: &[u8]) -> Listed {
        let (first, seq) = (self.frames.len(), self.take_seq());
        let spec = FrameSpec { kind: Kind::Step, flags: Flags::NONE, slot: 1, seq, synced_to: None, head };
        self.put(&spec, body, first);
        self.batch.push(self.frames[first].name);
        self.frames[first].name
    }

    /// A record that is its own commit.
    pub(super) fn lone(&mut self, body: &[u8]) -> Listed {
        let (first, seq) = (self.frames.len(), self.take_seq());
        let synced_to = Some(self.synced_to);
        let spec = FrameSpec { kind: Kind::Step, flags: Flags::NONE, slot: 1, seq, synced_to, head: &[] };
        self.put(&spec, body, first);
        self.batch.clear();
        self.frames[first].name
    }

    /// Commits what was written since the last commit; gives where the commit stands.
    pub(super) fn commit(&mut self) -> Listed {
        let mut body = Vec::new();
        put_commit_body(&mut body, &std::mem::take(&mut self.batch));
        let (first, synced_to) = (self.frames.len(), Some(self.synced_to));
        let spec =
            FrameSpec { kind: Kind::Commit, flags: Flags::NONE, slot: 0, seq: 0, synced_to, head: &[] };
        self.put(&spec, &body, first);
        self.frames[first].name
    }

    /// Everything up to the last commit is on the disk now; the next commit says so.
    pub(super) fn sync(&mut self) {
        let last = self.frames.iter().rfind(|frame| frame.synced_to.is_some());
        self.synced_to = last.map_or(128, |frame| frame.end);
    }

    /// Appends the index; gives where it starts.
    pub(super) fn seal(&mut self) -> u64 {
        let lists = self.end();
        put_index(&mut self.bytes, SALT, lists, &Footer::default(), &[]);
        lists
    }

    pub(super) fn put(&mut self, spec: &FrameSpec<'_>, body: &[u8], first: usize) {
        let offset = self.end();
        put_frame(&mut self.bytes, SALT, offset, spec, body, crc32c(body));
        let name = Listed { offset, kind: spec.kind as u8, slot: spec.slot, seq: spec.seq };
        let head = if spec.head.is_empty() { 0 } else { 4 + spec.head.len() as u64 };
        let body_at = offset + 24 + head + if spec.synced_to.is_some() { 8 } else { 0 };
        self.frames.push(Written { name, body_at, end: self.end(), synced_to: spec.synced_to, first });
    }

    fn take_seq(&mut self) -> u32 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// The records (the first frame of each, and where each ends), in order.
    pub(super) fn records(&self) -> Vec<(Listed, u64)> {
        let firsts = (0..self.frames.len()).filter(|&index| self.frames[index].first == index);
        firsts.map(|first| (self.frames[first].name, self.record_end(first))).collect()
    }

    fn record_end(&self, first: usize) -> u64 {
        self.frames.iter().filter(|frame| frame.first == first).map(|frame| frame.end).max().unwrap()
    }

    /// A copy in which every byte of this frame's body is another.
    pub(super) fn with_damaged_body(&self, name: &Listed) -> Vec<u8> {
        let frame = self.frame(name);
        self.changed(frame.body_at, frame.end)
    }

    /// A copy in which every byte of this frame is another.
    pub(super) fn with_damaged_head(&self, name: &Listed) -> Vec<u8> {
        let frame = self.frame(name);
        self.changed(frame.name.offset, frame.end)
    }

    /// A copy in which every byte of a range is another.
    pub(super) fn changed(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[from as usize..to as usize].iter_mut().for_each(|byte| *byte ^= 0xff);
        bytes
    }

    pub(super) fn frame(&self, name: &Listed) -> &Written {
        self.frames.iter().find(|frame| frame.name.offset == name.offset).unwrap()
    }
}

pub(super) fn header() -> SegmentHeader {
    let (store, writer) = (Id([1; 16]), Id([2; 16]));
    SegmentHeader { store, writer, number: 0, salt: SALT, created: 0, voids: None, sealed: None }
}

pub(super) fn scan(bytes: &[u8]) -> SegmentScan {
    scan_segment(bytes, &header(), Rules::default())
}

pub(super) fn scan_complete(bytes: &[u8]) -> SegmentScan {
    scan_segment(bytes, &header(), Rules { complete: true, ..Rules::default() })
}

pub(super) fn scan_voided(bytes: &[u8], voided_from: u64) -> SegmentScan {
    scan_segment(bytes, &header(), Rules { voided_from: Some(voided_from), ..Rules::default() })
}

/// The names of the frames that a scan found.
pub(super) fn names(frames: &[FrameRef]) -> Vec<Listed> {
    frames.iter().map(FrameRef::listed).collect()
}

/// What is reported as whole has, byte for byte, the body that was written there.
pub(super) fn assert_unchanged(log: &TestLog, bytes: &[u8], frames: &[FrameRef], case: &str) {
    for frame in frames {
        let found = join(bytes, frame.offset as usize, 0, SALT);
        let written = join(&log.bytes, frame.offset as usize, 0, SALT);
        assert!(written.is_ok() && found == written, "{case}: {frame:?}");
    }
}
