//! The index of a sealed segment: read instead of the data.
//!
//! Opening reads the trailer and FOOTER; the lists of places are read when somebody wants the records of an attempt.

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};
use keepstep_format::footer::{Footer, FooterEntry, read_list};
use keepstep_format::frame::{Flags, Kind, join};
use keepstep_format::segment::{TRAILER_BYTES, Trailer};

use super::storage::Storage;
use crate::disk::{File, read_exact_at};
use crate::error::{Doing, Result};

/// An index longer than this is none: it would be longer than any that a writer makes.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// The index of a sealed segment.
#[derive(Debug, Clone)]
pub struct SealedIndex {
    writer: Id,
    number: u64,
    salt: u64,
    /// Where the index stands, and so where data ends.
    pub trailer: Trailer,
    /// Who has records here.
    pub footer: Footer,
}

/// The trailer of a segment, if it has one.
pub fn read_trailer(file: &dyn File, file_bytes: u64, salt: u64, path: &str) -> Result<Option<Trailer>> {
    let Some(at) = file_bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let last = read_exact_at(file, at, TRAILER_BYTES).doing("read", path)?;
    Ok(Trailer::decode(&last, file_bytes, salt))
}

impl SealedIndex {
    /// Reads FOOTER. Nothing if it is damaged.
    pub fn read(
        file: &dyn File,
        file_bytes: u64,
        trailer: Trailer,
        (writer, number, salt): (Id, u64, u64),
        path: &str,
    ) -> Result<Option<Self>> {
        let end = file_bytes.saturating_sub(TRAILER_BYTES as u64);
        let body = read_joined(file, (trailer.footer, end), salt, Kind::Footer, path)?;
        let footer = body.and_then(|body| Footer::decode(&body).ok());
        Ok(footer.map(|footer| Self { writer, number, salt, trailer, footer }))
    }

    /// The entries of one attempt, stream or run, in order of their sequences.
    pub fn entries_of<'a>(&'a self, bind: &Bind) -> impl Iterator<Item = &'a FooterEntry> + use<'a> {
        let bind = *bind;
        let key = |entry: &FooterEntry| (entry.id, entry.attempt);
        let from = self.footer.entries.partition_point(|entry| key(entry) < (bind.id, bind.attempt));
        let same = self.footer.entries[from..].iter();
        same.take_while(move |entry| key(entry) == (bind.id, bind.attempt))
            .filter(move |e| e.what == bind.what)
    }

    /// All entries but that of the log itself.
    pub fn entries(&self) -> impl Iterator<Item = &FooterEntry> {
        self.footer.entries.iter().filter(|entry| entry.what != What::Log)
    }

    /// Where the records of an entry stand, and what they are. Nothing if the lists are damaged.
    pub fn places(&self, storage: &Storage, entry: &FooterEntry) -> Result<Option<Vec<(u64, u8)>>> {
        let lists = storage.lists(&self.writer, self.number, || self.read_lists(storage))?;
        let places = lists.and_then(|lists| read_list(&lists, entry.list_position, entry.count).ok());
        Ok(places.filter(|places| places.last().is_none_or(|(offset, _)| *offset < self.trailer.lists)))
    }

    fn read_lists(&self, storage: &Storage) -> Result<Option<Vec<u8>>> {
        let path = super::names::segment_path(&self.writer, self.number);
        let file = storage.file(&self.writer, self.number)?;
        read_joined(&*file, (self.trailer.lists, self.trailer.footer), self.salt, Kind::Lists, &path)
    }
}

/// The body of a record of this kind that fills this range.
fn read_joined(
    file: &dyn File,
    (from, to): (u64, u64),
    salt: u64,
    kind: Kind,
    path: &str,
) -> Result<Option<Vec<u8>>> {
    let bytes = to.saturating_sub(from);
    if bytes == 0 || bytes > INDEX_BYTES_MAX {
        return Ok(None);
    }
    let data = read_exact_at(file, from, bytes as usize).doing("read", path)?;
    let Ok(joined) = join(&data, 0, from, salt) else { return Ok(None) };
    let is_plain = joined.header.flags.0 | Flags::MORE.0 == Flags::MORE.0;
    let fits = joined.header.is(kind) && joined.bytes == data.len() && is_plain;
    Ok(fits.then(|| joined.body.into_owned()))
}
