//! Finds what a directory really lies on: through its mount, the layers of an overlay, and loop devices.
//!
//! `statfs` alone says "overlay" for a layer in memory, and "ext4" for an image in memory. A sync there reaches no
//! disk, so `power` must not be promised. Layers that cannot be seen from here (those of a container's host) count as
//! a disk.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::FileSystem;

/// How many layers are followed. Even an overlay over a loop device over an overlay is rare.
const STOREYS_MAX: usize = 8;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: String,
    /// The file system's name.
    pub kind: String,
    /// What was mounted.
    pub source: String,
    /// Options of the mount and of the file system, separated by commas.
    pub options: String,
    id: u64,
    device: (u32, u32),
}

/// The mount that holds a directory.
pub fn of(path: &Path) -> Option<Mount> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    mount_of(rustix::fs::open(path, flags, Mode::empty()).ok()?.as_fd())
}

/// What an open directory lies on.
pub(super) fn storage_of(dir: BorrowedFd<'_>) -> io::Result<FileSystem> {
    look(dir, STOREYS_MAX)
}

fn look(dir: BorrowedFd<'_>, storeys: usize) -> io::Result<FileSystem> {
    let by_number = by_number(rustix::fs::fstatfs(dir)?.f_type as u64 & 0xffff_ffff);
    let FileSystem::Local(name) = by_number else { return Ok(by_number) };
    let Some(mount) = mount_of(dir).filter(|_| storeys > 0) else { return Ok(by_number) };
    if let Some(why) = mount.skips_syncs() {
        return Ok(FileSystem::Unsynced(name, why));
    }
    let below = mount.upper_layer().or_else(|| mount.loop_file());
    let below = below.and_then(|path| look_at(&path, storeys - 1));
    Ok(match below {
        Some(FileSystem::Memory(_)) if name == "overlay" => {
            FileSystem::Memory("an overlay whose upper layer is in memory")
        }
        Some(FileSystem::Memory(_)) => FileSystem::Memory("a loop device whose file is in memory"),
        Some(FileSystem::Unsynced(_, why)) => FileSystem::Unsynced(name, why),
        _ if mount.is_memory_device() => FileSystem::Memory("a block device in memory"),
        _ => by_number,
    })
}

fn look_at(path: &Path, storeys: usize) -> Option<FileSystem> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    look(found.as_fd(), storeys).ok()
}

fn by_number(found: u64) -> FileSystem {
    match found {
        0xef53 => FileSystem::Local("ext4"),
        0x5846_5342 => FileSystem::Local("xfs"),
        0x9123_683e => FileSystem::Local("btrfs"),
        0x2fc1_2fc1 => FileSystem::Local("zfs"),
        0x794c_7630 => FileSystem::Local("overlay"),
        0x0102_1994 => FileSystem::Memory("tmpfs"),
        0x8584_58f6 => FileSystem::Memory("ramfs"),
        other => FileSystem::Network(other),
    }
}

fn mount_of(dir: BorrowedFd<'_>) -> Option<Mount> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", dir.as_raw_fd())).ok()?;
    let id: u64 = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().filter_map(parse).find(|mount| mount.id == id)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let (id, device) = (before.next()?.parse().ok()?, before.nth(1)?);
    let (point, options) = (before.nth(1)?, before.next()?);
    let (major, minor) = device.split_once(':')?;
    let mut after = after.split(' ');
    let (kind, source, more) = (after.next()?, after.next()?, after.next().unwrap_or(""));
    let mut all: Vec<&str> = options.split(',').collect();
    all.extend(
        more.split(',').filter(|option| !option.is_empty() && !options.split(',').any(|had| had == *option)),
    );
    Some(Mount {
        point: unescape(point),
        kind: kind.to_owned(),
        source: unescape(source),
        options: all.join(","),
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
    })
}

/// Spaces and similar characters are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = text.to_owned();
    for (escaped, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(escaped, plain);
    }
    out
}

impl Mount {
    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|had| had == option)
    }

    /// Why a sync does not reach the disk here, if it was mounted so. (`data=writeback` is no reason: a sync still
    /// covers data and length, and unsynced data has checksums.)
    pub fn skips_syncs(&self) -> Option<&'static str> {
        if self.kind == "overlay" && (self.has("volatile") || self.has("fsync=volatile")) {
            return Some("it is mounted volatile: its syncs do nothing");
        }
        let upper = self.upper().filter(|upper| self.kind == "overlay" && !upper.is_absolute());
        if upper.is_some() {
            return Some("its upper layer was mounted by a relative path, so it is unknown what it lies on");
        }
        let skips = self.has("nobarrier") || self.has("barrier=0");
        skips.then_some("it is mounted so that a sync does not flush the disk's cache")
    }

    /// Where an overlay keeps its changes, if that can be seen from here.
    pub fn upper_layer(&self) -> Option<PathBuf> {
        self.upper().filter(|path| self.kind == "overlay" && path.is_absolute())
    }

    fn upper(&self) -> Option<PathBuf> {
        let upper = self.options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
        Some(PathBuf::from(unescape(upper)))
    }

    /// The file behind a loop device.
    fn loop_file(&self) -> Option<PathBuf> {
        let file = std::fs::read_to_string(self.block_device()?.join("loop/backing_file")).ok()?;
        Some(PathBuf::from(file.trim_end_matches('\n')))
    }

    fn is_memory_device(&self) -> bool {
        let name = self.block_device().and_then(|block| Some(block.file_name()?.to_str()?.to_owned()));
        name.is_some_and(|name| {
            let number = name.strip_prefix("zram").or_else(|| name.strip_prefix("ram"));
            number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
        })
    }

    /// The device, by its number. A file system over several devices (btrfs) has a number of its own; then by its
    /// name.
    fn block_device(&self) -> Option<PathBuf> {
        let (major, minor) = match self.device {
            (0, _) => {
                let device = rustix::fs::stat(self.source.as_str()).ok()?.st_rdev;
                (rustix::fs::major(device), rustix::fs::minor(device))
            }
            device => device,
        };
        std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line = r"36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 - ext4 /dev/root rw,barrier=0";
        let mount = parse(line).unwrap();
        assert_eq!((&*mount.point, &*mount.kind, &*mount.source), ("/mnt/my disk", "ext4", "/dev/root"));
        assert_eq!((mount.options.as_str(), mount.id, mount.device), ("rw,noatime,barrier=0", 36, (98, 0)));
        assert!(mount.skips_syncs().is_some());
        assert_eq!(parse("nonsense"), None);
    }

    /// Both notations of kernels are known, and harmless options are not reported.
    #[test]
    fn mounts_that_skip_syncs_are_known() {
        let mount = |kind: &str, options: &str| {
            parse(&format!("1 1 0:1 / /x rw - {kind} none rw,{options}")).unwrap()
        };
        for (kind, options) in [
            ("overlay", "lowerdir=/l,upperdir=/u,workdir=/w,volatile"),
            ("overlay", "lowerdir=/l,upperdir=u,workdir=w"),
            ("overlay", "uuid=on,fsync=volatile"),
            ("ext4", "nobarrier"),
            ("xfs", "nobarrier"),
            ("btrfs", "ssd,nobarrier"),
        ] {
            assert!(mount(kind, options).skips_syncs().is_some(), "{kind} {options}");
        }
        for (kind, options) in [("ext4", "data=writeback,discard"), ("overlay", "upperdir=/u,uuid=on")] {
            assert_eq!(mount(kind, options).skips_syncs(), None, "{kind} {options}");
        }
        let upper = |options: &str| mount("overlay", options).upper_layer();
        assert_eq!(upper(r"upperdir=/a\040b,workdir=/w"), Some(PathBuf::from("/a b")));
        assert_eq!(upper("upperdir=tm/u"), None, "nobody knows relative to what");
    }
}
