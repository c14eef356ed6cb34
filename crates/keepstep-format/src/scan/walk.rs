//! Joins the frames of a segment into records, and remembers what it could not read.
//!
//! A chunked record is whole only if all its chunks are; otherwise all of it is a gap with the record's name.

use super::verdict::{FrameRef, Rules};
use super::{Event, Scanner};
use crate::commit::{Listed, read_commit_body};
use crate::frame::{Flags, FrameHeader, Kind, continues};
use crate::segment::SegmentHeader;

/// A walk through one segment, fed with windows of its bytes.
///
/// Feed it until it wants nothing more, then call [`Walk::finish`]. To follow a log that is still being written, feed
/// it what is there, and call [`Walk::take`] for what is known to be durable, again and again.
#[derive(Debug, Clone)]
pub struct Walk {
    pub(super) scanner: Scanner,
    pub(super) salt: u64,
    pub(super) rules: Rules,
    /// Whole records, in order.
    pub(super) records: Vec<FrameRef>,
    /// What could not be read, in order.
    pub(super) gaps: Vec<Gap>,
    /// Names of frames inside gaps, from their own headers and from the lists of commits.
    pub(super) named: Vec<Listed>,
    pub(super) open: Option<Open>,
    /// Where the index starts, which is where data ends.
    pub(super) index_at: Option<u64>,
    pub(super) newer: Option<u8>,
    /// How far it was fed.
    pub(super) seen_to: u64,
}

/// The bytes that a [`Walk`] needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// The next window must start here, or before.
    pub offset: u64,
    /// It must reach at least this far from there; it may be longer.
    pub bytes: usize,
}

/// A range without whole records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    pub(super) offset: u64,
    pub(super) end: u64,
    /// True if every byte belongs to a frame whose name is known.
    pub(super) is_certain: bool,
}

/// A record whose last chunk was not seen yet.
#[derive(Debug, Clone)]
pub(super) struct Open {
    record: FrameRef,
    end: u64,
    pub(super) is_whole: bool,
    is_certain: bool,
}

impl Walk {
    /// Starts after the header.
    pub fn new(header: &SegmentHeader, rules: Rules) -> Self {
        Self::over(Scanner::new(header.salt), header.salt, rules)
    }

    /// Starts at a `synced_to` of the segment: what is before it is known already.
    pub fn from(header: &SegmentHeader, synced_to: u64, rules: Rules) -> Self {
        Self::over(Scanner::from(header.salt, synced_to), header.salt, rules)
    }

    fn over(scanner: Scanner, salt: u64, rules: Rules) -> Self {
        let seen_to = scanner.offset();
        let (records, gaps, named) = (Vec::new(), Vec::new(), Vec::new());
        let (open, index_at, newer) = (None, None, None);
        Self { scanner, salt, rules, records, gaps, named, open, index_at, newer, seen_to }
    }

    /// What it needs next; `None` once data has ended.
    pub fn wants(&self) -> Option<Wants> {
        let offset = self.scanner.offset();
        let has_ended = self.index_at.is_some() || self.rules.limit().is_some_and(|limit| offset >= limit);
        (!has_ended).then(|| Wants { offset, bytes: self.scanner.needs() })
    }

    /// Continues through `window`, the part of the file from `window_offset` on; `is_end` means that the file ends
    /// with it.
    pub fn feed(&mut self, window: &[u8], window_offset: u64, is_end: bool) {
        if self.wants().is_none() {
            return;
        }
        let room = self.rules.limit().map_or(u64::MAX, |limit| limit.saturating_sub(window_offset));
        let reaches_limit = window.len() as u64 >= room;
        let window = if reaches_limit { &window[..room as usize] } else { window };
        while self.index_at.is_none() {
            let Some(event) = self.scanner.next(window, window_offset, is_end || reaches_limit) else {
                break;
            };
            self.note(event);
        }
        self.seen_to = self.seen_to.max(window_offset + window.len() as u64);
    }

    pub(super) fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Frame { offset, frame } => {
                self.placed(offset, &frame.header, frame.header.bytes() as u64, true);
                if frame.header.is(Kind::Commit) && !self.gaps.is_empty() {
                    self.name_lost(frame.body);
                }
            }
            Event::Damaged { offset, header, bytes } => self.placed(offset, &header, bytes, false),
            Event::Hole { offset, bytes } => self.hole(offset, offset + bytes),
            Event::Newer { kind, .. } => {
                self.close_open();
                self.newer.get_or_insert(kind);
            }
        }
    }

    fn placed(&mut self, offset: u64, header: &FrameHeader, bytes: u64, is_whole: bool) {
        if header.is(Kind::Lists) {
            self.close_open();
            self.index_at = Some(offset);
        } else if header.is(Kind::Footer) {
            // Without LISTS before it and without a trailer, a seal was cut short, and it does not tell where data
            // ended.
            self.close_open();
            self.hole(offset, offset + bytes);
        } else if header.is(Kind::Chunk) {
            self.chunk(offset, header, bytes, is_whole);
        } else {
            self.close_open();
            let record = FrameRef { offset, header: *header, bytes, chunks: 0 };
            if header.flags.has(Flags::MORE) {
                self.open = Some(Open { record, end: offset + bytes, is_whole, is_certain: true });
            } else if is_whole {
                self.records.push(record);
            } else {
                self.lose(&record, offset + bytes, true);
            }
        }
    }

    fn chunk(&mut self, offset: u64, header: &FrameHeader, bytes: u64, is_whole: bool) {
        let end = offset + bytes;
        let Some(open) = self.open.as_mut().filter(|open| continues(header, &open.record.header)) else {
            // Its record began in a hole, or never: the rest of it is useless.
            self.close_open();
            return self.lose(&FrameRef { offset, header: *header, bytes, chunks: 0 }, end, true);
        };
        open.record.chunks += 1;
        open.record.bytes = end - open.record.offset;
        open.is_whole &= is_whole;
        open.end = end;
        if header.flags.has(Flags::MORE) {
            return;
        }
        match self.open.take() {
            Some(open) if open.is_whole => self.records.push(open.record),
            Some(open) => self.lose(&open.record, open.end, open.is_certain),
            None => {}
        }
    }

    pub(super) fn hole(&mut self, offset: u64, end: u64) {
        match &mut self.open {
            // Some of its chunks may come after the hole.
            Some(open) => {
                open.is_whole = false;
                open.is_certain = false;
                open.end = end;
            }
            None => self.gaps.push(Gap { offset, end, is_certain: false }),
        }
    }

    /// Closes a record whose last chunk never came.
    pub(super) fn close_open(&mut self) {
        if let Some(open) = self.open.take() {
            self.lose(&open.record, open.end, open.is_certain);
        }
    }

    fn lose(&mut self, record: &FrameRef, end: u64, is_certain: bool) {
        self.gaps.push(Gap { offset: record.offset, end, is_certain });
        self.named.push(record.listed());
    }

    /// A commit lists its frames. Those that are in a gap are lost, and get their names here.
    fn name_lost(&mut self, commit_body: &[u8]) {
        // A body with a right checksum that is not a list was written like this; it names nothing, and the holes stay
        // reported.
        for listed in read_commit_body(commit_body).unwrap_or_default() {
            let behind = self.gaps.partition_point(|gap| gap.offset <= listed.offset);
            if behind > 0 && listed.offset < self.gaps[behind - 1].end {
                self.named.push(listed);
            }
        }
    }
}
