//! Reads a file piece by piece, so that memory stays bounded however long the file is.

use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::scan::Walk;

use super::Storage;
use crate::disk::ReadLog;

/// How many bytes are read at a time for a whole segment. A frame of any length fits.
pub(crate) const SCAN_BYTES: usize = 8 << 20;
/// How many bytes are read at a time for one record: most are shorter.
pub(crate) const RECORD_BYTES: usize = 16 << 10;
/// How many at a place that is far from the last one: between the records of an episode stand those of others that were
/// recorded beside it, and nobody wants them.
const APART_BYTES: usize = 4 << 10;

/// Where a window reads.
enum Source {
    Open(Arc<dyn ReadLog>),
    /// A segment, taken from the pool each time, so that a window keeps no file open.
    Pooled(Arc<Storage>, Id, u64),
}

/// The part of a file that was read last.
pub(crate) struct Window {
    source: Source,
    data: Vec<u8>,
    start: u64,
    ahead_bytes: usize,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Window of {} bytes from {} on>", self.data.len(), self.start)
    }
}

impl Window {
    /// Reads at least `ahead_bytes` at a time.
    pub(crate) fn new(file: Arc<dyn ReadLog>, ahead_bytes: usize) -> Self {
        Self { source: Source::Open(file), data: Vec::new(), start: 0, ahead_bytes }
    }

    /// A window on a segment, without keeping it open.
    pub(super) fn pooled(storage: Arc<Storage>, writer: Id, number: u64, ahead_bytes: usize) -> Self {
        let source = Source::Pooled(storage, writer, number);
        Self { source, data: Vec::new(), start: 0, ahead_bytes }
    }

    fn file(&self) -> std::io::Result<Arc<dyn ReadLog>> {
        match &self.source {
            Source::Open(file) => Ok(Arc::clone(file)),
            Source::Pooled(storage, writer, number) => storage.open(writer, *number),
        }
    }

    /// The bytes from `offset` on: at least `bytes`, unless the file ends before.
    pub(crate) fn at(&mut self, offset: u64, bytes: usize) -> std::io::Result<&[u8]> {
        let is_there = offset >= self.start
            && (offset - self.start).saturating_add(bytes as u64) <= self.data.len() as u64;
        if !is_there {
            let file = self.file()?;
            let left = file.bytes()?.saturating_sub(offset);
            let ahead_bytes = if self.is_near(offset) { self.ahead_bytes } else { self.apart_bytes() };
            let bytes = bytes.max(ahead_bytes).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.fill(&*file, offset, bytes)?;
        }
        Ok(&self.data[(offset - self.start) as usize..])
    }

    /// True if reading goes on where it was, or begins.
    fn is_near(&self, offset: u64) -> bool {
        let end = self.start + self.data.len() as u64;
        self.data.is_empty() || (self.start..=end + APART_BYTES as u64).contains(&offset)
    }

    /// Windows on single records read less at a place of its own; whoever reads a file whole does not.
    fn apart_bytes(&self) -> usize {
        if self.ahead_bytes > RECORD_BYTES { self.ahead_bytes } else { self.ahead_bytes.min(APART_BYTES) }
    }

    fn fill(&mut self, file: &dyn ReadLog, offset: u64, bytes: usize) -> std::io::Result<()> {
        self.start = offset;
        self.data.resize(bytes, 0);
        let read = file.read_at(&mut self.data, offset);
        self.data.truncate(*read.as_ref().unwrap_or(&0));
        read.map(|_| ())
    }
}

/// Feeds a walk with the file up to its end, `file_bytes` at the time of the call. `passed` is told the progress.
pub(crate) fn feed(
    walk: &mut Walk,
    file: &Arc<dyn ReadLog>,
    file_bytes: u64,
    is_end: bool,
    passed: &mut dyn FnMut(u64),
) -> std::io::Result<()> {
    let mut data = Vec::new();
    while let Some(wants) = walk.wants() {
        if wants.offset >= file_bytes {
            break;
        }
        let left = usize::try_from(file_bytes - wants.offset).unwrap_or(usize::MAX);
        if wants.bytes > left && !is_end {
            break;
        }
        data.resize(wants.bytes.max(SCAN_BYTES).min(left), 0);
        let read = file.read_at(&mut data, wants.offset)?;
        // Fewer bytes than before: the file was cut just now, and this is its end.
        let reaches_end = read == left || read < data.len();
        walk.feed(&data[..read], wants.offset, is_end && reaches_end);
        passed(wants.offset + read as u64);
        if reaches_end {
            break;
        }
    }
    Ok(())
}
