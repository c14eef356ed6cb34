//! Keeps the catalog: which segments have records of what, so that one episode is found without reading all indexes.
//!
//! What is new becomes a file of its own, together with the older files that are not much larger: so there are few
//! files, and an entry is written again only a few times, however often a store is compacted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use keepstep_format::Id;
use keepstep_format::sorted::{SortedHeader, SortedWriter, sorted_kind};

use crate::disk::GrowingLog;
use crate::error::{Doing, Result};
use crate::segment::catalog_files::{
    CatalogFile, CatalogFiles, decode_numbers, encode_numbers, segment_key, subject_key, subject_of,
};
use crate::segment::names::{GROUPED, catalog_path, list_catalogs};
use crate::segment::{Contents, Log, Segment, Storage};

/// An older file is merged into a new one that has at least a half as many entries.
const MERGE_RATIO: u64 = 2;
/// How many bytes are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The subjects that have records in a segment, rising.
struct Known {
    number: u64,
    salt: u64,
    subjects: Vec<Id>,
}

/// Adds what no file of the catalog knows yet, and removes files that are not needed any more. `grouped` is what
/// `compact` made, as it is now.
pub(super) fn renew(storage: &Storage, grouped: &Log) -> Result<()> {
    let there = list_catalogs(storage.disk())?;
    let files = CatalogFiles::of(storage);
    let salt_of = |segment: &Segment| segment.head().filter(|head| !head.is_damaged).map(|head| head.salt);
    let salts: BTreeMap<u64, u64> =
        grouped.segments().filter_map(|segment| Some((segment.number, salt_of(segment)?))).collect();
    let is_new = |segment: &&Segment| salt_of(segment).is_some_and(|salt| !files.cover(segment.number, salt));
    let new: Vec<Known> = grouped.segments().filter(is_new).filter_map(known).collect();
    let (merged, kept) = split(files.files(), &new, &salts);
    if !new.is_empty() {
        match entries(storage, &new, &merged, &salts) {
            Ok(entries) if entries.fit() => {
                if !write(storage, &entries)? {
                    return Ok(());
                }
            }
            Ok(_) => return Ok(()),
            // What this file knew is new without it.
            Err(unreadable) => {
                remove(storage, unreadable)?;
                return renew(storage, grouped);
            }
        }
    }
    // Only files that were there before: another process may have added one since.
    there.iter().filter(|number| !kept.contains(number)).try_for_each(|number| remove(storage, *number))
}

/// What is in a segment, if its index can be relied on.
fn known(segment: &Segment) -> Option<Known> {
    let Contents::Sealed(index) = segment.contents() else { return None };
    let salt = segment.head().filter(|_| !index.is_rebuilt())?.salt;
    let mut subjects: Vec<Id> = index.entries().map(|entry| entry.id).collect();
    subjects.dedup();
    Some(Known { number: segment.number, salt, subjects })
}

/// Which files become a part of the new one, and which stay beside it. A file is neither if newer ones know all that
/// counts of it.
fn split<'f>(
    files: &'f [CatalogFile],
    new: &[Known],
    salts: &BTreeMap<u64, u64>,
) -> (Vec<&'f CatalogFile>, BTreeSet<u64>) {
    let (mut merged, mut kept, mut covered) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut entries: u64 = new.iter().map(|it| it.subjects.len() as u64 + 1).sum();
    for file in files.iter().rev() {
        let counts = |(number, salt): &(&u64, &u64)| salts.get(number) == Some(salt);
        let before = covered.len();
        covered.extend(file.segments.iter().filter(counts).map(|(number, _)| *number));
        if covered.len() == before {
            continue;
        }
        if !new.is_empty() && file.entries <= entries.saturating_mul(MERGE_RATIO) {
            entries += file.entries;
            merged.push(file);
        } else {
            kept.insert(file.number);
        }
    }
    (merged, kept)
}

/// All entries of the new file. If a file cannot be read to its end, its number.
fn entries(
    storage: &Storage,
    new: &[Known],
    merged: &[&CatalogFile],
    salts: &BTreeMap<u64, u64>,
) -> Result<Entries, u64> {
    let mut entries = Entries::default();
    for Known { number, salt, subjects } in new {
        entries.segments.insert(*number, *salt);
        entries.subjects.extend(subjects.iter().map(|id| (*id, *number)));
    }
    for file in merged {
        let still = |(number, salt): &(&u64, &u64)| salts.get(number) == Some(salt);
        let there: BTreeMap<u64, u64> =
            file.segments.iter().filter(still).map(|(n, salt)| (*n, *salt)).collect();
        let read = file.each(storage, &mut |key, value| {
            if let Some(id) = subject_of(key) {
                let numbers = decode_numbers(value)?;
                let counting = numbers.into_iter().filter(|number| there.contains_key(number));
                entries.subjects.extend(counting.map(|number| (id, number)));
            }
            Some(true)
        });
        read.ok_or(file.number)?;
        entries.segments.extend(there);
    }
    entries.subjects.sort_unstable();
    entries.subjects.dedup();
    Ok(entries)
}

/// What a file of the catalog will say.
#[derive(Default)]
struct Entries {
    /// The segments that it knows, and their salts.
    segments: BTreeMap<u64, u64>,
    /// Which subject has records in which segment.
    subjects: Vec<(Id, u64)>,
}

impl Entries {
    /// By the keys of subjects, in order.
    fn by_subject(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        self.subjects.chunk_by(|a, b| a.0 == b.0).map(|same| {
            let numbers: BTreeSet<u64> = same.iter().map(|(_, number)| *number).collect();
            (subject_key(&same[0].0), encode_numbers(&numbers))
        })
    }

    /// False if a subject is in more segments than an entry can name. Such a catalog would leave it out.
    fn fit(&self) -> bool {
        self.by_subject().all(|(key, value)| SortedWriter::takes(&key, &value))
    }
}

/// Writes the new file. False if another process took its number: then that one keeps the catalog.
fn write(storage: &Storage, entries: &Entries) -> Result<bool> {
    let number = list_catalogs(storage.disk())?.last().map_or(0, |last| last + 1);
    let path = catalog_path(number);
    let mut random = [0; 8];
    storage.disk().random(&mut random).doing("find a salt for", &path)?;
    let header = SortedHeader {
        kind: sorted_kind::CATALOG,
        store: *storage.store(),
        number,
        created: storage.disk().now_us(),
        salt: u64::from_le_bytes(random),
    };
    let mut log = storage.disk().begin(GROUPED).doing("create", GROUPED)?;
    let mut writer = SortedWriter::new(&header);
    let put = |log: &mut Box<dyn GrowingLog>, bytes: &[u8]| log.append(bytes).doing("write", &path);
    let mut made = Vec::new();
    for (number, salt) in &entries.segments {
        writer.push(&segment_key(*number), &salt.to_le_bytes());
    }
    for (key, value) in entries.by_subject() {
        writer.push(&key, &value);
        made.append(&mut writer.take());
        if made.len() >= WRITE_BYTES {
            put(&mut log, &made)?;
            made.clear();
        }
    }
    made.append(&mut writer.finish());
    put(&mut log, &made)?;
    log.sync().doing("sync", &path)?;
    match log.publish(&path) {
        // A process that deletes leftovers without a grace period deleted it: the next `compact` makes it again.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        published => published.doing("publish", &path),
    }
}

fn remove(storage: &Storage, number: u64) -> Result<()> {
    let path = catalog_path(number);
    match storage.disk().remove(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A directory under a file's name is none of ours, and stays.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
        removed => removed.doing("delete", &path),
    }
}
