//! SQLite in WAL mode with synchronous=FULL: a commit per append, or one transaction per natural batch.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

use super::Ruler;
use super::group::{Batch, Group, Sink};

/// SQLite's default. One record of 2 KB fits a page, two do not.
const PAGE_BYTES: u32 = 4096;
/// Fifteen records fit.
const PAGE_BYTES_BIG: u32 = 32768;

const INSERT: &str = "INSERT INTO log (record) VALUES (?1)";

/// One connection for all: whoever has the lock commits.
struct Shared(Mutex<Connection>);

impl Ruler for Shared {
    fn append(&self, _writer: usize, record: &[u8]) {
        insert(&self.0.lock().unwrap(), record);
    }
}

/// A connection for every writer: SQLite's own lock says whose turn it is.
struct PerWriter(Vec<Mutex<Connection>>);

impl Ruler for PerWriter {
    fn append(&self, writer: usize, record: &[u8]) {
        insert(&self.0[writer].lock().unwrap(), record);
    }
}

struct Batched(Connection);

impl Sink for Batched {
    fn commit(&mut self, batch: &Batch) {
        let transaction =
            self.0.transaction_with_behavior(TransactionBehavior::Immediate).expect("could not begin");
        {
            let mut insert = transaction.prepare_cached(INSERT).expect("could not prepare");
            for record in batch.records() {
                insert.execute(params![record]).expect("could not insert");
            }
        }
        transaction.commit().expect("could not commit");
    }
}

pub fn open_shared(dir: &Path, _writers: usize) -> Box<dyn Ruler> {
    Box::new(Shared(Mutex::new(connect(dir, PAGE_BYTES))))
}

pub fn open_per_writer(dir: &Path, writers: usize) -> Box<dyn Ruler> {
    Box::new(PerWriter((0..writers).map(|_| Mutex::new(connect(dir, PAGE_BYTES))).collect()))
}

pub fn open_batched(dir: &Path, _writers: usize) -> Box<dyn Ruler> {
    Box::new(Group::new(Batched(connect(dir, PAGE_BYTES))))
}

/// Not what the bars are held against, but what somebody who knows SQLite and these records would set.
pub fn open_batched_big_pages(dir: &Path, _writers: usize) -> Box<dyn Ruler> {
    Box::new(Group::new(Batched(connect(dir, PAGE_BYTES_BIG))))
}

fn insert(connection: &Connection, record: &[u8]) {
    let mut insert = connection.prepare_cached(INSERT).expect("could not prepare");
    insert.execute(params![record]).expect("could not insert and commit");
}

fn connect(dir: &Path, page_bytes: u32) -> Connection {
    let connection = Connection::open(dir.join("log.sqlite")).expect("could not open SQLite");
    connection.busy_timeout(Duration::from_secs(60)).expect("could not set the timeout");
    connection.pragma_update(None, "page_size", page_bytes).expect("could not set the page size");
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .expect("could not set the journal mode");
    assert_eq!(mode, "wal");
    connection.pragma_update(None, "synchronous", "full").expect("could not set synchronous");
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        .expect("could not create the table");
    connection
}
