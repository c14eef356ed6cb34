//! The mailbox of a writer: where others tell it that an episode is no longer its own.

use std::io;
use std::sync::Arc;

use keepstep_format::{Id, card, fields};

use super::decode_fields;
use crate::disk::{self, Disk};

/// Reads one's own mail, in order of its numbers.
pub(crate) struct Mailbox {
    disk: Arc<dyn Disk>,
    store: Id,
    dir: String,
    next: u64,
    /// The next number's path, so that a look-up makes none.
    next_path: String,
}

impl Mailbox {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: Id, writer: Id) -> Self {
        let dir = format!("mail/{writer}");
        Self { disk, store, next: 0, next_path: format!("{dir}/0"), dir }
    }

    /// What came since the last look: usually one look-up that finds nothing.
    pub(crate) fn look(&mut self) -> io::Result<Vec<(Id, u32)>> {
        let mut letters = Vec::new();
        while self.disk.exists(&self.next_path)? {
            letters.push(self.read()?);
            self.next += 1;
            self.next_path = format!("{}/{}", self.dir, self.next);
        }
        Ok(letters)
    }

    /// A letter that cannot be read is an error: it may be the one that takes an episode away.
    fn read(&self) -> io::Result<(Id, u32)> {
        let path = &self.next_path;
        let data = disk::read_file(&*self.disk, path)?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("{path} cannot be read"));
        let card = card::Card::decode(&data, &self.store, path).map_err(|_| bad())?;
        let letter = decode_fields(card.body).ok_or_else(bad)?;
        let find = |number: u8| letter.iter().find(|(found, _)| *found == number).map(|(_, value)| value);
        let id = find(fields::EPISODE).and_then(|value| value.as_bytes()?.try_into().ok().map(Id));
        let attempt = find(fields::ATTEMPT).and_then(|value| u32::try_from(value.as_int()?).ok());
        id.zip(attempt).ok_or_else(bad)
    }
}
