//! The index of a sealed segment: read instead of the data.
//!
//! Opening reads the trailer and FOOTER. The lists of places are read when the records of an attempt are needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use keepstep_format::commit::{Bind, What};
use keepstep_format::footer::{Footer, FooterEntry, read_list};
use keepstep_format::frame::{FIRST_FRAME, Flags, Kind, join};
use keepstep_format::grouped;
use keepstep_format::segment::{TRAILER_BYTES, Trailer};
use keepstep_format::{Id, fields};

use super::cards::decode_fields;
use super::head::SegmentHead;
use super::storage::Storage;
use super::summary::Summary;
use crate::disk::{ReadLog, read_exact_at};
use crate::error::{Doing, Result};

/// A longer index is not valid: no writer makes one.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// If a footer says that an attempt has more records than this in one segment, it is not trusted without its lists.
const RECORDS_MAX: u32 = 1 << 24;

/// The index of a sealed segment.
#[derive(Debug, Clone)]
pub(crate) struct SealedIndex {
    writer: Id,
    number: u64,
    salt: u64,
    /// Where the index is, which is where data ends.
    pub trailer: Trailer,
    /// The footer: what has records here.
    pub footer: Footer,
    /// In a segment that `compact` made: the writers of the footer's entries, one by one. Empty in a writer's own
    /// segment.
    writers: Vec<Id>,
    /// The lists, if they were rebuilt from the frames.
    rebuilt: Option<Arc<Vec<u8>>>,
    /// Where something is damaged or cut off that a rebuilt index therefore lacks.
    holes: Vec<u64>,
    /// Summaries that were made again, since the footer lacks them or has them wrong.
    amended: Arc<Mutex<Amended>>,
}

/// Summaries by writer and subject.
type Amended = HashMap<(Id, Bind), Summary>;

/// The trailer of a segment, if it has one.
pub(crate) fn read_trailer(
    file: &dyn ReadLog,
    file_bytes: u64,
    salt: u64,
    path: &str,
) -> Result<Option<Trailer>> {
    let Some(at) = file_bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let last = read_exact_at(file, at, TRAILER_BYTES).doing("read", path)?;
    Ok(Trailer::decode(&last, file_bytes, salt))
}

impl SealedIndex {
    /// Reads FOOTER. `None` if it is damaged.
    pub(crate) fn read(
        file: &dyn ReadLog,
        file_bytes: u64,
        trailer: Trailer,
        (writer, number, salt): (Id, u64, u64),
        path: &str,
    ) -> Result<Option<Self>> {
        let end = file_bytes.saturating_sub(TRAILER_BYTES as u64);
        let body = read_joined(file, (trailer.footer, end), salt, Kind::Footer, path)?;
        let Some(body) = body else { return Ok(None) };
        let (footer, writers) = if writer == Id::NONE {
            let Ok(entries) = grouped::decode_footer(&body) else { return Ok(None) };
            let (writers, entries) = entries.into_iter().unzip();
            (Footer { entries, depends_on: Vec::new() }, writers)
        } else {
            let Ok(footer) = Footer::decode(&body) else { return Ok(None) };
            (footer, Vec::new())
        };
        Ok(Some(Self {
            writer,
            number,
            salt,
            trailer,
            footer,
            writers,
            rebuilt: None,
            holes: Vec::new(),
            amended: Arc::default(),
        }))
    }

    /// An index that was rebuilt from the frames of a segment that `compact` made; its data ends at `lists`.
    pub(super) fn rebuilt(
        head: &SegmentHead,
        lists: u64,
        holes: Vec<u64>,
        (entries, bytes): (Vec<(Id, FooterEntry)>, Vec<u8>),
    ) -> Self {
        let (writers, entries) = entries.into_iter().unzip();
        let footer = Footer { entries, depends_on: Vec::new() };
        let trailer = Trailer { lists, footer: lists };
        let (writer, number, salt) = (head.writer, head.number, head.salt);
        let rebuilt = Some(Arc::new(bytes));
        Self { writer, number, salt, trailer, footer, writers, rebuilt, holes, amended: Arc::default() }
    }

    /// Where something was that a rebuilt index lacks; it is unknown what it belonged to.
    pub(crate) fn holes(&self) -> &[u64] {
        &self.holes
    }

    /// A summary that has to be made from the records, once.
    pub(super) fn amended(
        &self,
        whose: (Id, Bind),
        make: impl FnOnce() -> Result<Summary>,
    ) -> Result<Summary> {
        // This lock guards a cache only: a panic elsewhere leaves it usable.
        let amended = || self.amended.lock().unwrap_or_else(PoisonError::into_inner);
        let known = amended().get(&whose).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = make()?;
        amended().insert(whose, made.clone());
        Ok(made)
    }

    /// True if the index could not be read, and was rebuilt.
    pub(crate) fn is_rebuilt(&self) -> bool {
        self.rebuilt.is_some()
    }

    /// The writer of an entry of the footer, by its position.
    fn writer_of(&self, at: usize) -> Id {
        self.writers.get(at).copied().unwrap_or(self.writer)
    }

    /// True if the lists can be read as they were written.
    pub(crate) fn has_lists(&self, storage: &Storage) -> Result<bool> {
        Ok(self.rebuilt.is_none() && self.read_lists(storage)?.is_some())
    }

    /// All entries, and their writers; that of the log itself has `Id::NONE`.
    pub(crate) fn all_entries(&self) -> impl Iterator<Item = (Id, &FooterEntry)> {
        self.footer.entries.iter().enumerate().map(|(at, entry)| (self.writer_of(at), entry))
    }

    /// An entry by its position in the footer, and its writer.
    pub(crate) fn entry(&self, at: usize) -> Option<(Id, &FooterEntry)> {
        Some((self.writer_of(at), self.footer.entries.get(at)?))
    }

    /// All entries but that of the log itself, and their writers.
    pub(crate) fn owned_entries(&self) -> impl Iterator<Item = (Id, &FooterEntry)> {
        self.all_entries().filter(|(_, entry)| entry.what != What::Log)
    }

    /// The entries of one episode (stream, run), and their writers.
    pub(crate) fn owned_entries_at<'a>(
        &'a self,
        id: &Id,
    ) -> impl Iterator<Item = (Id, &'a FooterEntry)> + use<'a> {
        let id = *id;
        let from = self.footer.entries.partition_point(|entry| entry.id < id);
        let same = self.footer.entries.iter().enumerate().skip(from);
        let same = same.take_while(move |(_, entry)| entry.id == id);
        same.map(|(at, entry)| (self.writer_of(at), entry))
    }

    /// The entries of one writer and subject, in order of their sequence numbers.
    pub(crate) fn entries_by<'a>(
        &'a self,
        writer: &Id,
        bind: &Bind,
    ) -> impl Iterator<Item = &'a FooterEntry> + use<'a> {
        let (writer, bind) = (*writer, *bind);
        let key = |entry: &FooterEntry| (entry.id, entry.attempt);
        let from = self.footer.entries.partition_point(|entry| key(entry) < (bind.id, bind.attempt));
        let same = self.footer.entries.iter().enumerate().skip(from);
        same.take_while(move |(_, entry)| key(entry) == (bind.id, bind.attempt))
            .filter(move |(at, entry)| entry.what == bind.what && self.writer_of(*at) == writer)
            .map(|(_, entry)| entry)
    }

    /// All entries but that of the log itself.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &FooterEntry> {
        self.footer.entries.iter().filter(|entry| entry.what != What::Log)
    }

    /// Where the records of an entry are, and their kinds. `None` if the lists are damaged.
    pub(crate) fn places(&self, storage: &Storage, entry: &FooterEntry) -> Result<Option<Vec<(u64, u8)>>> {
        let lists = match &self.rebuilt {
            Some(lists) => Some(Arc::clone(lists)),
            None => storage.lists(&self.writer, self.number, || self.read_lists(storage))?,
        };
        let read = if self.writer == Id::NONE { grouped::read_list } else { read_list };
        let places = lists.and_then(|lists| read(&lists, entry.list_position, entry.count).ok());
        if places.is_none() && self.writer == Id::NONE && self.rebuilt.is_none() {
            return self.places_again(storage, entry);
        }
        Ok(places.filter(|places| places.last().is_none_or(|(offset, _)| *offset < self.trailer.lists)))
    }

    /// Where the records of an entry were in the log of their writer, if `compact` kept that. These origins identify
    /// records wherever they are moved. `None` if 0.1 made the segment, or the lists are damaged.
    pub(crate) fn origins(&self, storage: &Storage, entry: &FooterEntry) -> Result<Option<Vec<(u64, u64)>>> {
        let number = |field| decode_fields(&entry.summary).and_then(|summary| summary.number(field));
        let Some(position) = number(fields::ORIGINS).filter(|_| self.rebuilt.is_none()) else {
            return Ok(None);
        };
        let lists = storage.lists(&self.writer, self.number, || self.read_lists(storage))?;
        Ok(lists.and_then(|lists| grouped::read_origins(&lists, position, entry.count).ok()))
    }

    /// The manifest that replaced the log of the entry's writer. `None` if 0.1 did it, which did not record that.
    pub(crate) fn moved_by(entry: &FooterEntry) -> Option<u64> {
        decode_fields(&entry.summary)?.number(fields::MOVED_BY)
    }

    /// Rebuilds the places if the lists of a segment that `compact` made are damaged, from its blocks. Records in a
    /// damaged block have no place and no kind then, but the footer knows that they were there.
    fn places_again(&self, storage: &Storage, entry: &FooterEntry) -> Result<Option<Vec<(u64, u8)>>> {
        let whose = self.footer.entries.iter().position(|it| it == entry).map(|at| self.writer_of(at));
        let (Some(writer), true) = (whose, entry.count <= RECORDS_MAX) else { return Ok(None) };
        let head = SegmentHead::read(storage, &self.writer, self.number)?;
        let again = super::grouped::rebuild(storage, &head, self.trailer.lists)?;
        let bind = Bind { what: entry.what, id: entry.id, attempt: entry.attempt };
        let mut places = vec![(FIRST_FRAME, Kind::Chunk as u8); entry.count as usize];
        for found in again.entries_by(&writer, &bind) {
            let found_places = again.places(storage, found)?.unwrap_or_default();
            for (seq, place) in (found.first_seq..).zip(found_places) {
                let at = seq.checked_sub(entry.first_seq).map(|at| at as usize);
                if let Some(known) = at.and_then(|at| places.get_mut(at)) {
                    *known = place;
                }
            }
        }
        Ok(Some(places))
    }

    fn read_lists(&self, storage: &Storage) -> Result<Option<Vec<u8>>> {
        let path = super::names::segment_path(&self.writer, self.number);
        let file = storage.file(&self.writer, self.number)?;
        read_joined(&*file, (self.trailer.lists, self.trailer.footer), self.salt, Kind::Lists, &path)
    }
}

/// The body of a record of this kind that fills this range.
fn read_joined(
    file: &dyn ReadLog,
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
