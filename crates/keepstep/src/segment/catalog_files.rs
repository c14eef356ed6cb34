//! The catalog of what `compact` made: which of its segments have records of an episode, a stream or a run.
//!
//! It is derived from the indexes of these segments, which never change: each file says which segments it knows, and all
//! that is in them. So a catalog is never wrong. If one is missing, damaged or of another copy of the store, its segments
//! are opened like any others, which takes longer. No file stays open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use keepstep_format::Id;
use keepstep_format::bytes::{Cursor, put_varint};
use keepstep_format::sorted::{
    BlockPlace, SORTED_HEADER_BYTES, SORTED_TRAILER_BYTES, SortedBlock, SortedHeader, SortedTrailer,
    sorted_kind,
};

use super::manifest::Manifest;
use super::names::{catalog_path, list_catalogs};
use super::storage::Storage;
use crate::disk::{ReadLog, read_exact_at};

/// What keys begin with: of segments, and of what has records in them.
const OF_SEGMENTS: u8 = 0;
const OF_SUBJECTS: u8 = 1;

/// The key under which a catalog has a segment.
pub(crate) fn segment_key(number: u64) -> Vec<u8> {
    [&[OF_SEGMENTS][..], &number.to_be_bytes()].concat()
}

/// The key under which a catalog has an episode, a stream or a run.
pub(crate) fn subject_key(id: &Id) -> Vec<u8> {
    [&[OF_SUBJECTS][..], &id.0].concat()
}

/// The id of a key, if it is that of an episode, a stream or a run.
pub(crate) fn subject_of(key: &[u8]) -> Option<Id> {
    let [OF_SUBJECTS, id @ ..] = key else { return None };
    Some(Id(id.try_into().ok()?))
}

/// Numbers of segments, rising, as the value of a key.
pub(crate) fn encode_numbers(numbers: &BTreeSet<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut before = 0;
    for number in numbers {
        put_varint(&mut out, number - before);
        before = *number;
    }
    out
}

/// Reads what [`encode_numbers`] wrote.
pub(crate) fn decode_numbers(value: &[u8]) -> Option<BTreeSet<u64>> {
    let mut cursor = Cursor::new(value);
    let (mut numbers, mut before) = (BTreeSet::new(), 0_u64);
    while !cursor.is_at_end() {
        before = before.checked_add(cursor.varint().ok()?)?;
        numbers.insert(before);
    }
    Some(numbers)
}

/// Is passed a key and its value. False ends the walk; `None` says that the file cannot be used.
pub(crate) type Each<'e> = dyn FnMut(&[u8], &[u8]) -> Option<bool> + 'e;

/// One file of the catalog.
#[derive(Debug, Clone)]
pub(crate) struct CatalogFile {
    /// Its number.
    pub(crate) number: u64,
    salt: u64,
    root: BlockPlace,
    /// How many entries it has.
    pub(crate) entries: u64,
    /// The segments that it knows, and their salts: another segment of that number has another one.
    pub(crate) segments: BTreeMap<u64, u64>,
}

impl CatalogFile {
    /// Reads what a file says of itself. `None` if it cannot be used: it is gone or damaged, or none of this store.
    pub(crate) fn read(storage: &Storage, number: u64) -> Option<Self> {
        let file = storage.disk().open(&catalog_path(number)).ok()?;
        let bytes = file.bytes().ok()?;
        let head = read_exact_at(&*file, 0, SORTED_HEADER_BYTES).ok()?;
        let head = SortedHeader::decode(&head).ok()?;
        let is_ours =
            (head.kind, head.store, head.number) == (sorted_kind::CATALOG, *storage.store(), number);
        let at = bytes.checked_sub(SORTED_TRAILER_BYTES as u64).filter(|_| is_ours)?;
        let last = read_exact_at(&*file, at, SORTED_TRAILER_BYTES).ok()?;
        let SortedTrailer { root, entries } = SortedTrailer::decode(&last, head.salt, bytes).ok()?;
        let mut found = Self { number, salt: head.salt, root, entries, segments: BTreeMap::new() };
        let mut segments = BTreeMap::new();
        found.walk(&*file, root, &[], &mut |key, value| {
            let [OF_SEGMENTS, number @ ..] = key else { return Some(false) };
            let salt = u64::from_le_bytes(value.try_into().ok()?);
            segments.insert(u64::from_be_bytes(number.try_into().ok()?), salt);
            Some(true)
        })?;
        found.segments = segments;
        Some(found)
    }

    /// The segments that have records of a subject, of those that this file knows. `None` if it cannot be read.
    fn segments_with(&self, storage: &Storage, id: &Id) -> Option<BTreeSet<u64>> {
        let file = storage.disk().open(&catalog_path(self.number)).ok()?;
        let key = subject_key(id);
        let mut numbers = BTreeSet::new();
        self.walk(&*file, self.root, &key, &mut |found, value| {
            if found == key.as_slice() {
                numbers = decode_numbers(value)?;
            }
            Some(false)
        })?;
        Some(numbers)
    }

    /// Passes all its entries to `each`, in order of their keys. `None` if it cannot be read, or `each` says so.
    pub(crate) fn each(&self, storage: &Storage, each: &mut Each<'_>) -> Option<()> {
        let file = storage.disk().open(&catalog_path(self.number)).ok()?;
        self.walk(&*file, self.root, &[], each).map(drop)
    }

    /// Passes the entries from a key on to `each`, until it says false. `None` if the file cannot be read.
    fn walk(&self, file: &dyn ReadLog, place: BlockPlace, from: &[u8], each: &mut Each<'_>) -> Option<bool> {
        if !place.is_readable() {
            return None;
        }
        let bytes = read_exact_at(file, place.offset, place.bytes as usize).ok()?;
        let block = SortedBlock::decode(&bytes, self.salt, place).ok()?;
        if block.is_index() {
            for below in block.all_below(from) {
                if !self.walk(file, below.ok()?, from, each)? {
                    return Some(false);
                }
            }
            return Some(true);
        }
        for (key, value) in block.entries_from(from) {
            if !each(key, value)? {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// All files of the catalog, as of one manifest.
#[derive(Debug, Default)]
pub(crate) struct CatalogFiles {
    files: Vec<CatalogFile>,
    as_of: Option<u64>,
    /// What was found last: whoever looks for an episode asks several times.
    last: Mutex<Option<(Id, BTreeSet<u64>)>>,
}

impl CatalogFiles {
    /// Reads which files there are. That a folder cannot be listed is found by whoever depends on it.
    pub(crate) fn of(storage: &Storage) -> Self {
        let numbers = list_catalogs(storage.disk()).unwrap_or_default();
        let files = numbers.into_iter().filter_map(|number| CatalogFile::read(storage, number)).collect();
        Self { files, ..Self::default() }
    }

    /// Looks again, if there is another manifest: its segments may be known to other files.
    pub(super) fn look(&mut self, storage: &Storage, manifest: &Manifest) {
        if self.as_of != manifest.number {
            *self = Self { as_of: manifest.number, ..Self::of(storage) };
        }
    }

    /// The files, by number.
    pub(crate) fn files(&self) -> &[CatalogFile] {
        &self.files
    }

    /// True if a file knows this segment.
    pub(crate) fn cover(&self, number: u64, salt: u64) -> bool {
        self.files.iter().any(|file| file.segments.get(&number) == Some(&salt))
    }

    /// The segments that have records of a subject, of those that are covered. `None` if a file cannot be read any more.
    pub(super) fn segments_with(&self, storage: &Storage, id: &Id) -> Option<BTreeSet<u64>> {
        // This lock guards a cache only: a panic elsewhere leaves it usable.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, numbers)) = last.as_ref().filter(|(found, _)| found == id) {
            return Some(numbers.clone());
        }
        let mut numbers = BTreeSet::new();
        for file in &self.files {
            numbers.extend(file.segments_with(storage, id)?);
        }
        *last = Some((*id, numbers.clone()));
        Some(numbers)
    }
}
