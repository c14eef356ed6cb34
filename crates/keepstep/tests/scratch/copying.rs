//! Copies a store as it is, as whoever makes a backup of it does.
//!
//! The store may be in use: what vanishes between the listing and the copy (a temporary name that was just published
//! or swept) is left out. Every test that copies a store copies it by this, those of the command too.

use std::io::ErrorKind;
use std::path::Path;

/// Copies a directory and all that is in it.
pub(crate) fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let Some(entries) = if_there(std::fs::read_dir(from)) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match if_there(entry.file_type()) {
            Some(kind) if kind.is_dir() => copy_all(&entry.path(), &target),
            Some(_) => drop(if_there(std::fs::copy(entry.path(), target))),
            None => {}
        }
    }
}

fn if_there<T>(found: std::io::Result<T>) -> Option<T> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found.unwrap()),
    }
}
