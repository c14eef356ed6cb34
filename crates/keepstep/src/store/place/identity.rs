//! The id of a store: read from `keepstep.json`, or from the logs if that file is missing or damaged.
//!
//! A new id is made only where nothing was recorded. A new id over old recordings would make them unreadable.

use std::collections::BTreeMap;
use std::io;

use keepstep_format::card::{self, Card, StoreJsonError};
use keepstep_format::segment::{HEADER_BYTES, SegmentHeader};
use keepstep_format::{FORMAT_VERSION, Id};

use crate::disk::{self, DirEntry, Disk, join};
use crate::error::{Doing, Error, Result};
use crate::segment::names::{
    GROUPED, GROUPS, HEALS, MAIL, RUNS, SCANS, WRITERS, list_segments, list_writers, parse_number,
    segment_path,
};

const PATH: &str = disk::STORE_FILE;
/// Folders of a store that contain folders named by ids.
const BY_ID: [&str; 3] = [WRITERS, "mail", "runs"];
/// Folders whose cards can confirm an id.
const CARDS: [&str; 2] = ["runs", WRITERS];

/// The id of the store, and how it was found.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Identity {
    pub(in crate::store) id: Id,
    /// True if `keepstep.json` is damaged and the id was read from the logs.
    pub(in crate::store) is_recovered: bool,
}

/// The state of `keepstep.json`.
enum StoreFile {
    Nothing,
    Whole(Id),
    /// The bytes are not what was written. The text holds what can be read of them.
    Damaged(String),
}

/// The id in `keepstep.json`, which is made if nothing is there. If many processes try at once, one wins.
pub(in crate::store) fn find_or_make(disk: &dyn Disk) -> Result<Identity> {
    for _ in 0..8 {
        match find(disk)? {
            Some(identity) => return Ok(identity),
            None if has_recordings(disk)? => {
                // Another process may have made the store in between. It makes this file before all others.
                if !disk.exists(PATH).doing("look for", PATH)? {
                    return Err(gone());
                }
                continue;
            }
            None => {}
        }
        refuse_store_inside(disk)?;
        let mut random = [0; 16];
        disk.random(&mut random).doing("find an id for", "the store")?;
        let made = Identity { id: Id(random), is_recovered: false };
        let text = card::store_json(&made.id, disk.now_us());
        if disk.put(PATH, text.as_bytes()).doing("create", PATH)? {
            return Ok(made);
        }
    }
    Err(Error::NotAStore { path: PATH.to_owned(), why: "it comes and goes".to_owned() })
}

/// A store called `runs` is in the folder that a new store here would use for its runs: both would be damaged.
fn refuse_store_inside(disk: &dyn Disk) -> Result<()> {
    for folder in [RUNS, WRITERS, MAIL, GROUPED, GROUPS, SCANS, HEALS] {
        let inside = join(folder, PATH);
        if disk.exists(&inside).doing("look for", &inside)? {
            let why = format!(
                "there is a store in its folder {folder:?}, which a new store here would write into: open that one, or \
                 give another directory"
            );
            return Err(Error::NotAStore { path: "the directory".to_owned(), why });
        }
    }
    Ok(())
}

/// The identity of an existing store; `None` if there is no `keepstep.json`.
fn find(disk: &dyn Disk) -> Result<Option<Identity>> {
    match read(disk)? {
        StoreFile::Nothing => Ok(None),
        StoreFile::Whole(id) => Ok(Some(Identity { id, is_recovered: false })),
        StoreFile::Damaged(text) => {
            let (id, _) = recover(disk, &text)?;
            Ok(Some(Identity { id, is_recovered: true }))
        }
    }
}

fn read(disk: &dyn Disk) -> Result<StoreFile> {
    if !disk.exists(PATH).doing("look for", PATH)? {
        return Ok(StoreFile::Nothing);
    }
    // The process that made the file may have died before it synced the name.
    disk.settle("").doing("sync", "the store's directory")?;
    let data = match disk.get(PATH) {
        // No regular file, or one of absurd length.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Ok(StoreFile::Damaged(String::new()));
        }
        other => other.doing("read", PATH)?,
    };
    let text = String::from_utf8_lossy(&data).into_owned();
    match card::parse_store_json(&text) {
        Ok((id, _)) => Ok(StoreFile::Whole(id)),
        Err(StoreJsonError::Newer { found, .. }) => Err(Error::NewerFormat {
            path: PATH.to_owned(),
            found: found as u32,
            known: u32::from(FORMAT_VERSION),
        }),
        Err(StoreJsonError::Damaged(_)) => Ok(StoreFile::Damaged(text)),
    }
}

/// True if something was recorded here. A folder called `runs` alone proves nothing.
pub(in crate::store) fn has_recordings(disk: &dyn Disk) -> Result<bool> {
    for folder in BY_ID {
        let entries = list(disk, folder)?;
        if entries.iter().any(|entry| entry.is_dir && entry.name.parse::<Id>().is_ok()) {
            return Ok(true);
        }
    }
    let is_grouped = |name: &str| {
        let number = name.strip_suffix(".manifest").or_else(|| name.strip_suffix(".seg"));
        number.is_some_and(|number| parse_number(number).is_some())
    };
    Ok(list(disk, GROUPED)?.iter().any(|entry| is_grouped(&entry.name)))
}

/// A folder that cannot be listed is an error, since it may be full of recordings. A file of that name is not part of
/// a store.
fn list(disk: &dyn Disk, folder: &str) -> Result<Vec<DirEntry>> {
    match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        other => other.doing("list", folder),
    }
}

/// The error of a store whose `keepstep.json` was deleted.
pub(in crate::store) fn gone() -> Error {
    damaged(
        "it is gone, and there are recordings here: restore it from a copy, or let `keepstep verify --heal` write it again from the logs",
    )
}

fn damaged(found: &str) -> Error {
    Error::Damaged { path: PATH.to_owned(), offset: 0, found: found.to_owned() }
}

/// The id that the logs were written under, and the time of the first header: each header has both, with a checksum.
/// Without logs, an id is taken from `text` if a card confirms it.
fn recover(disk: &dyn Disk, text: &str) -> Result<(Id, i64)> {
    let mut found: BTreeMap<Id, i64> = BTreeMap::new();
    for writer in list_writers(disk)?.into_iter().chain([Id::NONE]) {
        let numbers = list_segments(disk, &writer)?;
        let header = numbers.into_iter().find_map(|number| header_of(disk, &writer, number));
        if let Some(header) = header {
            let first = found.entry(header.store).or_insert(header.created);
            *first = header.created.min(*first);
        }
    }
    if found.is_empty() {
        let vouched = ids_in(text).into_iter().find(|id| is_vouched_for(disk, id));
        found.extend(vouched.map(|id| (id, disk.now_us())));
    }
    match (found.len(), found.pop_first()) {
        (1, Some(found)) => Ok(found),
        (0, _) if !has_recordings(disk)? => Err(Error::NotAStore {
            path: PATH.to_owned(),
            why: "it is damaged, or another program's, and nothing is recorded here: delete it to begin a store".to_owned(),
        }),
        (0, _) => Err(damaged(
            "its checksum is wrong, and no log here has the id of the store: restore it from a copy",
        )),
        (count, _) => Err(damaged(&format!(
            "its checksum is wrong, and the logs here are of {count} different stores: restore it from a copy"
        ))),
    }
}

/// The header of a segment, if it is whole and names this place.
fn header_of(disk: &dyn Disk, writer: &Id, number: u64) -> Option<SegmentHeader> {
    let file = disk.open(&segment_path(writer, number)).ok()?;
    let mut bytes = [0; HEADER_BYTES];
    let read = file.read_at(&mut bytes, 0).ok()?;
    let header = SegmentHeader::decode(&bytes[..read]).ok()?;
    ((header.writer, header.number) == (*writer, number)).then_some(header)
}

/// All that could be an id in a text.
fn ids_in(text: &str) -> Vec<Id> {
    text.split(|c: char| !c.is_ascii_hexdigit()).filter_map(|part| part.parse().ok()).collect()
}

/// True if a card was published under this id: the id is part of the card's checksum.
fn is_vouched_for(disk: &dyn Disk, id: &Id) -> bool {
    for folder in CARDS {
        for inner in disk.list(folder).unwrap_or_default().iter().filter(|entry| entry.is_dir) {
            let dir = join(folder, &inner.name);
            for entry in disk.list(&dir).unwrap_or_default().iter().filter(|entry| !entry.is_dir) {
                let path = join(&dir, &entry.name);
                if disk.get(&path).is_ok_and(|data| Card::decode(&data, id, &path).is_ok()) {
                    return true;
                }
            }
        }
    }
    false
}

/// Writes `keepstep.json` again if it is missing or damaged and the id can be found. True if it did.
pub(in crate::store) fn heal(disk: &dyn Disk) -> Result<bool> {
    let (text, is_there) = match read(disk)? {
        StoreFile::Whole(_) => return Ok(false),
        StoreFile::Nothing if !has_recordings(disk)? => return Ok(false),
        StoreFile::Nothing => (String::new(), false),
        StoreFile::Damaged(text) => (text, true),
    };
    let (id, created) = recover(disk, &text)?;
    let content = card::store_json(&id, created);
    if !is_there {
        disk.put(PATH, content.as_bytes()).doing("create", PATH)?;
        return Ok(true);
    }
    // By rename: it replaces a file that is not valid, and a process that does the same at once writes the same id.
    disk.replace(PATH, content.as_bytes()).doing("replace", PATH)?;
    Ok(true)
}
