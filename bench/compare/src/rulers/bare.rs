//! The bare append: one thread, one write, one fdatasync, no hand-off at all.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::fs::fdatasync;

use super::Ruler;

struct Bare(File);

impl Ruler for Bare {
    fn append(&self, _writer: usize, record: &[u8]) {
        (&self.0).write_all(record).expect("could not write to the bare log");
        fdatasync(&self.0).expect("could not sync the bare log");
    }
}

pub fn open(dir: &Path, writers: usize) -> Box<dyn Ruler> {
    assert_eq!(writers, 1, "a bare append has one writer");
    Box::new(Bare(create_log(dir)))
}

/// An empty log whose name is durable too.
pub fn create_log(dir: &Path) -> File {
    let path = dir.join("log");
    let log = OpenOptions::new().create_new(true).append(true).open(&path).expect("could not create the log");
    log.sync_all().expect("could not sync the new log");
    File::open(dir).and_then(|dir| dir.sync_all()).expect("could not sync its directory");
    log
}
