//! fjall behind the group committer: one write batch per natural batch, its journal synced by fdatasync.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::Ruler;
use super::group::{Batch, Group, Sink};

struct Fjall {
    database: Database,
    log: Keyspace,
    next: u64,
}

impl Sink for Fjall {
    fn commit(&mut self, batch: &Batch) {
        let mut write = self.database.batch().durability(Some(PersistMode::SyncData));
        for record in batch.records() {
            write.insert(&self.log, self.next.to_be_bytes(), record);
            self.next += 1;
        }
        write.commit().expect("could not commit to fjall");
    }
}

pub fn open(dir: &Path, _writers: usize) -> Box<dyn Ruler> {
    // The records are random bytes: compressing them would cost fjall time and win it nothing.
    let database = Database::builder(dir.join("fjall"))
        .journal_compression(CompressionType::None)
        .open()
        .expect("could not open fjall");
    let options =
        || KeyspaceCreateOptions::default().data_block_compression_policy(CompressionPolicy::disabled());
    let log = database.keyspace("log", options).expect("could not create the keyspace");
    Box::new(Group::new(Fjall { database, log, next: 0 }))
}
