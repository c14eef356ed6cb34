//! The raw limit: the group committer with a memcpy in place of a format, one write and one fdatasync per batch.
//!
//! What any log with acknowledgements to waiting threads could reach on this machine. It has no checksum, no index,
//! no recovery: it is a ceiling, not a competitor.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::fs::fdatasync;

use super::Ruler;
use super::bare::create_log;
use super::group::{Batch, Group, Sink};

struct Log(File);

impl Sink for Log {
    fn commit(&mut self, batch: &Batch) {
        self.0.write_all(batch.bytes()).expect("could not write to the raw log");
        fdatasync(&self.0).expect("could not sync the raw log");
    }
}

pub fn open(dir: &Path, _writers: usize) -> Box<dyn Ruler> {
    open_log(dir)
}

pub fn open_log(dir: &Path) -> Box<dyn Ruler + Send> {
    Box::new(Group::new(Log(create_log(dir))))
}
