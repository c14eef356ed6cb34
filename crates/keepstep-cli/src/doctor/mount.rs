//! Where a directory is mounted from, and what its disk says about its cache. All of it is for people only.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[cfg(target_os = "linux")]
pub(crate) use keepstep::disk::mount::{Mount, of};

/// On other systems nothing is known of mounts.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) options: String,
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn of(_path: &Path) -> Option<Mount> {
    None
}

/// Whether the layer that an overlay writes to is hidden from here.
pub(crate) fn hides_its_layer(mount: &Mount) -> bool {
    #[cfg(target_os = "linux")]
    return mount.kind == "overlay" && !mount.upper_layer().is_some_and(|upper| upper.is_dir());
    #[cfg(not(target_os = "linux"))]
    return mount.kind == "overlay";
}

/// What the disk under a directory says about its cache: `write back` (a sync must flush it) or `write through`.
pub(crate) fn write_cache(path: &Path) -> Option<String> {
    let device = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has its queue in the directory of its disk.
    let queues = [block.join("queue/write_cache"), block.parent()?.join("queue/write_cache")];
    queues.iter().find_map(|queue| std::fs::read_to_string(queue).ok()).map(|text| text.trim().to_owned())
}
