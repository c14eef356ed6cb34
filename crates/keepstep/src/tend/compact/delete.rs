//! Deletes files that a manifest has named for long enough.
//!
//! The name of that manifest is synced first. If a power cut removed it, the replaced logs would count again.

use std::collections::BTreeSet;
use std::io;

use keepstep_format::Id;

use super::{CompactReport, CompactSetup};
use crate::disk::{NewCard, parent};
use crate::error::{Doing, Error, Result};
use crate::segment::manifest::Doomed;
use crate::segment::names::{GROUPED, SCANS, TEMPORARY, compacted_path, parse_segment_path};
use crate::segment::{Manifest, Storage};

/// Deletes what is due, and returns which files are gone for good.
pub(super) fn delete_due(
    storage: &Storage,
    manifest: &Manifest,
    options: &CompactSetup,
    report: &mut CompactReport,
) -> Result<BTreeSet<String>> {
    let now = storage.disk().now_us();
    let grace = i64::try_from(options.grace.as_micros()).unwrap_or(i64::MAX);
    let is_due = |it: &&Doomed| now.saturating_sub(it.time) >= grace && may_go(manifest, &it.path);
    let due: Vec<&Doomed> = manifest.to_delete.iter().filter(is_due).collect();
    let mut gone = BTreeSet::new();
    if due.is_empty() {
        return Ok(gone);
    }
    storage.disk().settle(GROUPED).doing("sync", GROUPED)?;
    say_compacted(storage, manifest, &due)?;
    let mut dirs = BTreeSet::new();
    for doomed in due {
        if let Some(bytes) = remove(storage, &doomed.path)? {
            report.files_deleted += 1;
            report.bytes_deleted += bytes;
        }
        dirs.insert(parent(&doomed.path).to_owned());
        gone.insert(doomed.path.clone());
    }
    for dir in dirs {
        // Only now may a manifest forget them: a file that comes back would count again.
        match storage.disk().settle(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            synced => synced.doing("sync", &dir)?,
        }
    }
    Ok(gone)
}

/// Before the files of a writer are deleted, a card in its folder says that its log was compacted. In a copy of the
/// store without `grouped/` and manifests, it would otherwise look as if the writer had never recorded.
fn say_compacted(storage: &Storage, manifest: &Manifest, due: &[&Doomed]) -> Result<()> {
    let writers: BTreeSet<Id> = due.iter().filter_map(|it| Some(parse_segment_path(&it.path)?.0)).collect();
    // Manifests keep the names of closed logs for ever, so only those need the card.
    let closed = writers.iter().filter(|it| manifest.closed.contains_key(it));
    let paths: Vec<String> = closed.map(compacted_path).collect();
    let mut new = Vec::new();
    for path in &paths {
        if !storage.disk().exists(path).doing("look for", path)? {
            new.push(NewCard { path, content: WAS_COMPACTED.as_bytes() });
        }
    }
    let made = storage.disk().put_all(&new);
    new.iter().zip(made).try_for_each(|(card, made)| made.doing("write", card.path).map(drop))
}

/// For people: the name of the file says it.
const WAS_COMPACTED: &str = "What was recorded here is in the folder `grouped` of the store.\n";

/// Deletes only what `compact` may replace, whatever a manifest says, and nothing that counts.
fn may_go(manifest: &Manifest, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_clean = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let is_ours = match parse_segment_path(path) {
        Some((Id::NONE, number)) => !manifest.held.contains_key(&number),
        Some(_) => true,
        None => parent(path) == SCANS || name.starts_with(TEMPORARY),
    };
    is_clean && is_ours
}

/// Deletes a file; returns its length, if it was there.
fn remove(storage: &Storage, path: &str) -> Result<Option<u64>> {
    let not_there = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let bytes = match storage.disk().open(path) {
        Err(error) if not_there(&error) => return Ok(None),
        Err(_) => 0,
        Ok(file) => file.bytes().unwrap_or(0),
    };
    match storage.disk().remove(path) {
        Err(error) if not_there(&error) => Ok(None),
        // A directory under a file's name is none of ours, and stays.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(None),
        Err(error) => Err(Error::io("delete", path, error)),
        Ok(()) => Ok(Some(bytes)),
    }
}
