//! Says in words what a power cut did to a disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::content::{SECTOR_BYTES, ZEROS};
use super::file::FileNode;
use super::model::{Ino, Model};

/// What differs between the disk that everyone saw and the one that was left, a line each.
pub(super) fn difference(seen: &Model, left: &Model) -> String {
    let mut text = String::new();
    let before: BTreeMap<String, Ino> = seen.paths().into_iter().collect();
    let after: BTreeMap<String, Ino> = left.paths().into_iter().collect();
    for (path, ino) in &before {
        match after.get(path) {
            None => _ = writeln!(text, "  {path} (#{ino}): the name is lost"),
            Some(now) if now != ino => _ = writeln!(text, "  {path}: #{now} in place of #{ino}"),
            Some(_) => {}
        }
    }
    for (path, ino) in &after {
        if !before.contains_key(path) {
            _ = writeln!(text, "  {path} (#{ino}): the name is back");
        }
        if let (Some(seen), Some(left)) = (seen.file(*ino), left.file(*ino)) {
            describe_file(&mut text, path, *ino, seen, left);
        }
    }
    if text.is_empty() {
        text.push_str("  nothing is lost\n");
    }
    text
}

fn describe_file(text: &mut String, path: &str, ino: Ino, seen: &FileNode, left: &FileNode) {
    let (was, is) = (seen.content.bytes(), left.content.bytes());
    let mut words = Vec::new();
    if was != is {
        words.push(format!("{is} of {was} bytes (synced: {})", seen.synced_bytes));
    }
    for (&sector, unsynced) in &seen.unsynced {
        let start = sector * SECTOR_BYTES as u64;
        let visible = is.saturating_sub(start).min(SECTOR_BYTES as u64) as usize;
        let (was, is) = (seen.content.sector(sector), left.content.sector(sector));
        let same = |other: &[u8; SECTOR_BYTES]| is[..visible] == other[..visible];
        if visible == 0 || same(was) {
            continue;
        }
        let what = if unsynced.safe.as_deref().is_some_and(same) {
            "is as synced"
        } else if same(&ZEROS) {
            "is zeros"
        } else if unsynced.older.iter().any(|older| same(older)) {
            "is an older version"
        } else if (0..visible)
            .all(|at| is[at] == was[at] || is[at] == unsynced.safe.as_deref().unwrap_or(&ZEROS)[at])
        {
            "is torn"
        } else {
            "has stale bytes"
        };
        words.push(format!("sector {sector} (byte {start}) {what}"));
    }
    if !words.is_empty() {
        _ = writeln!(text, "  {path} (#{ino}): {}", words.join(", "));
    }
}
