//! redb behind the group committer: one durable write transaction per natural batch.

use std::path::Path;

use redb::{Database, Durability, TableDefinition};

use super::Ruler;
use super::group::{Batch, Group, Sink};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");

struct Redb {
    database: Database,
    next: u64,
}

impl Sink for Redb {
    fn commit(&mut self, batch: &Batch) {
        let mut write = self.database.begin_write().expect("could not begin");
        write.set_durability(Durability::Immediate).expect("could not ask for durability");
        {
            let mut log = write.open_table(LOG).expect("could not open the table");
            for record in batch.records() {
                log.insert(self.next, record).expect("could not insert");
                self.next += 1;
            }
        }
        write.commit().expect("could not commit to redb");
    }
}

pub fn open(dir: &Path, _writers: usize) -> Box<dyn Ruler> {
    let database = Database::create(dir.join("log.redb")).expect("could not create the redb file");
    Box::new(Group::new(Redb { database, next: 0 }))
}
