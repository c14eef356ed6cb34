//! Walks a segment from front to back, and reports what is whole, what is damaged, and where the log ends.
//!
//! A frame is reported only if its every byte was checked at its place. What cannot be read is reported as a hole
//! with its place and length; nothing is skipped silently.

mod verdict;
mod walk;

#[cfg(test)]
mod tests;

use crate::frame::{ALIGN, FIRST_FRAME, FRAME_FIXED_BYTES, Frame, FrameHeader, Parsed, glance, parse};

pub use verdict::{FrameRef, Hole, Rules, Seen, SegmentScan, scan_segment};
pub use walk::{Walk, Wants};

/// Enough bytes to see how long a head is.
const GLANCE_BYTES: usize = FRAME_FIXED_BYTES + 8 + 4;

/// How many bytes of heads may be checksummed after bad places, to begin with; each byte that is passed adds more.
///
/// After a bad place, every multiple of 8 may be the start of a frame with a head of a mebibyte. Bytes that are made
/// to look so would cost hours. With this limit they cost a small multiple of their length; honest logs stay far
/// below it. When it is used up, frames with long heads are not found: the hole is reported as longer, and nothing
/// else changes.
const HEAD_ALLOWANCE_BYTES: u64 = 16 << 20;
const HEAD_ALLOWANCE_PER_BYTE: u64 = 16;

/// The next thing in a segment. All events together cover every byte once, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole frame.
    Frame {
        /// Where it is.
        offset: u64,
        /// The frame.
        frame: Frame<'a>,
    },
    /// A frame whose header is valid, and whose body is damaged or cut off by the end of the file.
    Damaged {
        /// Where it is.
        offset: u64,
        /// Its header.
        header: FrameHeader,
        /// How many bytes of it there are.
        bytes: u64,
    },
    /// Bytes in which no frame starts.
    Hole {
        /// Where a frame should have started.
        offset: u64,
        /// The distance to the next valid header, or to the end.
        bytes: u64,
    },
    /// A frame that only a newer version understands: the segment must be refused.
    Newer {
        /// Where it is.
        offset: u64,
        /// Its kind.
        kind: u8,
    },
}

/// Finds the frames of a segment in windows of its bytes. It keeps an offset and no bytes.
///
/// After a valid header, its length is trusted, and the next frame is looked for after it. Otherwise each following
/// multiple of 8 is tried until one is a frame.
#[derive(Debug, Clone)]
pub struct Scanner {
    salt: u64,
    at: u64,
    hole_from: Option<u64>,
    synced_to: u64,
    needs: usize,
    head_allowance: u64,
}

impl Scanner {
    /// Starts after the header of a segment with this salt.
    pub fn new(salt: u64) -> Self {
        Self::from(salt, FIRST_FRAME)
    }

    /// Starts at a `synced_to` of the segment.
    pub fn from(salt: u64, synced_to: u64) -> Self {
        let needs = FRAME_FIXED_BYTES;
        let head_allowance = HEAD_ALLOWANCE_BYTES;
        Self { salt, at: synced_to, hole_from: None, synced_to, needs, head_allowance }
    }

    /// Where it continues: the next window must start here or before.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// How many bytes it needs from [`Scanner::offset`] on; never more than
    /// [`FRAME_BYTES_MAX`](crate::frame::FRAME_BYTES_MAX).
    pub fn needs(&self) -> usize {
        self.needs
    }

    /// The highest `synced_to` of all headers seen so far.
    pub fn synced_to(&self) -> u64 {
        self.synced_to
    }

    /// Where the present hole began, if it is in one.
    pub fn hole_from(&self) -> Option<u64> {
        self.hole_from
    }

    /// The next event; `None` if more bytes are needed.
    ///
    /// `window` is the part of the file from `window_offset` on; `is_end` means that the file ends with it. In a file
    /// that still grows, nothing is decided about an incomplete frame.
    pub fn next<'a>(&mut self, window: &'a [u8], window_offset: u64, is_end: bool) -> Option<Event<'a>> {
        assert!(window_offset <= self.at, "a window from {window_offset} on skips bytes from {} on", self.at);
        let end = window_offset + window.len() as u64;
        while self.at < end {
            let at = (self.at - window_offset) as usize;
            if self.hole_from.is_some() {
                match self.look(&window[at..], is_end) {
                    Look::Closer => {}
                    Look::On => {
                        self.pass_over(end);
                        continue;
                    }
                    Look::Short { needs } => return self.wait(needs),
                }
            }
            match parse(window, at, window_offset, self.salt) {
                Parsed::Short { needs } if !is_end => return self.wait(needs),
                Parsed::Bad | Parsed::Short { .. } => {
                    self.hole_from.get_or_insert(self.at);
                    self.pass_over(end);
                }
                // The frame itself is the next event; this one only closes the hole.
                _ if self.hole_from.is_some() => return self.close_hole(self.at),
                Parsed::Cut(_, needs) if !is_end => return self.wait(needs),
                Parsed::Whole(frame) => return Some(self.whole(frame)),
                Parsed::BodyDamaged(header, bytes) => return Some(self.damaged(header, bytes as u64)),
                Parsed::Cut(header, _) => return Some(self.damaged(header, end - self.at)),
                Parsed::Newer { kind, bytes } => {
                    let offset = self.at;
                    self.at += bytes as u64;
                    return Some(Event::Newer { offset, kind });
                }
            }
        }
        if is_end { self.close_hole(end) } else { self.wait(FRAME_FIXED_BYTES) }
    }

    fn wait<'a>(&mut self, needs: usize) -> Option<Event<'a>> {
        self.needs = needs;
        None
    }

    fn close_hole<'a>(&mut self, to: u64) -> Option<Event<'a>> {
        self.hole_from.take().map(|offset| Event::Hole { offset, bytes: to - offset })
    }

    fn whole<'a>(&mut self, frame: Frame<'a>) -> Event<'a> {
        let offset = self.at;
        self.step_behind(&frame.header, frame.header.bytes() as u64);
        Event::Frame { offset, frame }
    }

    fn damaged<'a>(&mut self, header: FrameHeader, bytes: u64) -> Event<'a> {
        let offset = self.at;
        self.step_behind(&header, bytes);
        Event::Damaged { offset, header, bytes }
    }

    // `synced_to` is under the header's checksum, so it can be trusted even if the body is damaged.
    fn step_behind(&mut self, header: &FrameHeader, bytes: u64) {
        self.synced_to = self.synced_to.max(header.synced_to.unwrap_or(0));
        self.at += bytes;
    }

    fn pass_over(&mut self, end: u64) {
        self.at = (self.at + ALIGN as u64).min(end);
        self.head_allowance += ALIGN as u64 * HEAD_ALLOWANCE_PER_BYTE;
    }

    /// Whether a place after a bad one is worth a checksum.
    fn look(&mut self, rest: &[u8], is_end: bool) -> Look {
        if rest.len() < GLANCE_BYTES && !is_end {
            return Look::Short { needs: GLANCE_BYTES };
        }
        let Some(bytes) = glance(rest) else { return Look::On };
        if bytes > rest.len() {
            return if is_end { Look::On } else { Look::Short { needs: bytes } };
        }
        match self.head_allowance.checked_sub(bytes.saturating_sub(GLANCE_BYTES) as u64) {
            Some(left) => {
                self.head_allowance = left;
                Look::Closer
            }
            None => Look::On,
        }
    }
}

enum Look {
    Closer,
    On,
    Short { needs: usize },
}
