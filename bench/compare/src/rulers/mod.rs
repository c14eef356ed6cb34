//! What keepstep is measured against: the raw limit of the disk, and its peers.
//!
//! Every ruler makes each record durable (it survives a power cut) before `append` returns. One that did less would be
//! no ruler.

pub mod bare;
pub mod fjall;
pub mod group;
pub mod raw;
pub mod redb;
pub mod sqlite;

use std::path::Path;

/// Something that makes one record durable per call, from many threads at once.
pub trait Ruler: Sync {
    /// Returns when the record would survive a power cut. `writer` is the caller's own number, from 0.
    fn append(&self, writer: usize, record: &[u8]);
}

/// A ruler by name, opened anew in an empty directory for every measurement.
#[derive(Clone, Copy)]
pub struct Contender<'a> {
    pub name: &'a str,
    pub open: &'a (dyn Fn(&Path, usize) -> Box<dyn Ruler> + Sync),
}

pub const RAW: Contender = Contender { name: "raw limit", open: &raw::open };
pub const BARE: Contender = Contender { name: "bare append + fdatasync", open: &bare::open };
pub const SQLITE_COMMIT: Contender = Contender { name: "SQLite, a commit each", open: &sqlite::open_shared };
pub const SQLITE_BATCHED: Contender = Contender { name: "SQLite, batched", open: &sqlite::open_batched };
pub const FJALL: Contender = Contender { name: "fjall, batched", open: &fjall::open };
pub const REDB: Contender = Contender { name: "redb, batched", open: &redb::open };

// Variants that no bar is held against; `keepstep-compare rulers` shows how they compare.
pub const SQLITE_PER_WRITER: Contender =
    Contender { name: "SQLite, a commit and a connection each", open: &sqlite::open_per_writer };
pub const SQLITE_BIG_PAGES: Contender =
    Contender { name: "SQLite, batched, 32 KB pages", open: &sqlite::open_batched_big_pages };
