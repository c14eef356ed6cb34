//! Makes directories and files so that they survive a power cut, and so that the store's owner can keep using them.
//!
//! Everything that is made in a store gets the owner of the store, and at least the access of its group: a `reap` by
//! root must not leave folders that the user's own recorder cannot write to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, Uid};

/// The owner of a store, and who else may write there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belonging {
    /// Set if this process is another user, which may give files away.
    give_to: Option<(Uid, Gid)>,
    /// With the bits by which a folder's files keep its group, and only their owner may delete them.
    mode: Mode,
}

impl Belonging {
    /// As the directory of the store has it.
    pub(super) fn of(root: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(root)?;
        let is_root = rustix::process::geteuid().is_root();
        let give_to =
            (is_root && stat.st_uid != 0).then(|| (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        Ok(Self { give_to, mode: Mode::from_raw_mode(stat.st_mode & 0o3777) })
    }

    /// The mode of a new directory: never more than the store itself allows.
    pub(super) fn dir_mode(self) -> Mode {
        self.mode | Mode::RWXU
    }

    /// The mode of a new file.
    pub(super) fn file_mode(self) -> Mode {
        self.dir_mode() & Mode::from_raw_mode(0o666)
    }

    /// A store that its group may write to stays so, whatever the umask of this process is.
    fn is_shared(self) -> bool {
        self.mode.contains(Mode::WGRP)
    }

    /// Gives a new directory to the owner of the store. If that is not permitted, it stays ours, and recording
    /// continues.
    pub(super) fn adopt_dir(self, root: BorrowedFd<'_>, path: &str) {
        if let Some((user, group)) = self.give_to {
            let _ = rustix::fs::chownat(root, path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        }
        if self.is_shared() {
            let _ = rustix::fs::chmodat(root, path, self.dir_mode(), AtFlags::empty());
        }
    }

    /// As [`Belonging::adopt_dir`], for a new file.
    pub(super) fn adopt_file(self, file: impl AsFd) {
        if let Some((user, group)) = self.give_to {
            let _ = rustix::fs::fchown(&file, Some(user), Some(group));
        }
        if self.is_shared() {
            let _ = rustix::fs::fchmod(&file, self.file_mode());
        }
    }
}

/// Makes a directory and all its parents, and syncs every directory in which one was made.
pub(super) fn create_all(path: &Path) -> io::Result<()> {
    create_all_with(path, &mut |dir| std::fs::File::open(dir)?.sync_all())
}

fn create_all_with(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut at = path.to_path_buf();
    while !at.is_dir() {
        missing.push(at.clone());
        at = parent_of(&at);
        if missing.last() == Some(&at) {
            break;
        }
    }
    if missing.is_empty() {
        // The process that made it may not have synced its name. A directory that we may not open was not made by us.
        return match sync(&parent_of(path)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        };
    }
    for dir in missing.iter().rev() {
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // Another process may make the same store: a process that depends on a name syncs it.
            _ => sync(&parent_of(dir))?,
        }
    }
    Ok(())
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        Some(_) => PathBuf::from("."),
        None => path.to_path_buf(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    /// A power cut after the first acknowledgement took the whole store away: only the last parent was synced.
    #[test]
    fn every_directory_in_which_one_was_made_is_synced() {
        let base = std::env::temp_dir().join(format!("keepstep-made-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let synced = |path: &Path| {
            let mut synced = Vec::new();
            let mut sync = |dir: &Path| {
                synced.push(dir.to_path_buf());
                Ok(())
            };
            create_all_with(path, &mut sync).unwrap();
            synced
        };
        let deep = base.join("a/b/c");
        assert_eq!(synced(&deep), [base.clone(), base.join("a"), base.join("a/b")]);
        assert_eq!(synced(&deep), [base.join("a/b")], "it is there, and may be new all the same");
        assert_eq!(synced(&base.join("a/b/d/e")), [base.join("a/b"), base.join("a/b/d")]);
        assert_eq!(parent_of(Path::new("runs")), Path::new("."));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
