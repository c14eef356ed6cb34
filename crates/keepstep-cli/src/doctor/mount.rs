//! Where a directory is mounted from, and what its disk says of its own cache. All of it is for people only.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) options: String,
}

/// The mount that holds a directory.
pub(crate) fn of(path: &Path) -> Option<Mount> {
    let path = path.canonicalize().ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // The deepest point that leads there; of several on one point the last covers the others.
    table
        .lines()
        .filter_map(parse)
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.len())
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let (point, options) = (before.next()?, before.next()?);
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
    })
}

/// Spaces and the like stand there as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = text.to_owned();
    for (escaped, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(escaped, plain);
    }
    out
}

impl Mount {
    /// True if syncs were told not to flush the disk's cache.
    pub(crate) fn skips_flushes(&self) -> bool {
        self.options.split(',').any(|option| matches!(option, "nobarrier" | "barrier=0"))
    }
}

/// What the disk under a directory says of its cache: `write back` (a sync must flush it) or `write through`.
pub(crate) fn write_cache(path: &Path) -> Option<String> {
    let device = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has its queue one floor up.
    let queues = [block.join("queue/write_cache"), block.parent()?.join("queue/write_cache")];
    queues.iter().find_map(|queue| std::fs::read_to_string(queue).ok()).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line = r"36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 - ext4 /dev/root rw,barrier=0";
        let mount = parse(line).unwrap();
        assert_eq!((&*mount.point, &*mount.kind, &*mount.source), ("/mnt/my disk", "ext4", "/dev/root"));
        assert_eq!(mount.options, "rw,noatime,barrier=0");
        assert!(mount.skips_flushes());
        assert_eq!(parse("nonsense"), None);
    }
}
