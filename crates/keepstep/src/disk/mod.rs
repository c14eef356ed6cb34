//! All access to storage: [`Disk`], and a directory of files that implements it.
//!
//! All other code is the same on a real disk, on a simulated one that loses power at every point, and on any other
//! implementation of these traits.

mod clock;
mod directory;
mod doors;
mod files;
mod held;
mod made;
#[cfg(target_os = "linux")]
pub mod mount;
mod publish;
mod real;
#[cfg(feature = "simulate")]
pub mod sim;
mod watch;

use std::io;

#[doc(hidden)]
pub use directory::Directory;
pub use directory::read_file;
pub use doors::{
    Beat, Cards, Clock, DirEntry, Disk, FileSystem, GrowingLog, HeldLock, LockState, Logs, NewCard, Presence,
    ReadLog, Watch,
};
pub use files::{File, Files};
pub use real::RealDisk;

/// The maximal length of a small file that is not a card.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;
/// The maximal length of a card, with its header.
pub(crate) const CARD_FILE_BYTES_MAX: u64 = keepstep_format::card::CARD_BODY_MAX as u64 + 1024;

/// The maximal length of a file that is read whole. keepstep never makes a longer one.
fn file_bytes_max(path: &str) -> u64 {
    match path.rsplit('/').next() {
        Some(STORE_FILE | "lock" | "beat") => SMALL_FILE_BYTES_MAX,
        _ => CARD_FILE_BYTES_MAX,
    }
}

/// Reads exactly this range, or fails.
pub(crate) fn read_exact_at(file: &dyn ReadLog, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    if file.read_at(&mut data, offset)? < bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it was"));
    }
    Ok(data)
}

/// The file that makes a directory a store.
pub(crate) const STORE_FILE: &str = "keepstep.json";

/// True if this failed because the whole store was deleted. Then waiting does not help.
pub(crate) fn store_is_deleted(disk: &dyn Disk, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && matches!(disk.exists(STORE_FILE), Ok(false))
}

/// The directory that a path is in.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Puts two parts of a path together.
pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}
