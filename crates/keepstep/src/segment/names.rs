//! The names of folders and files in a store.
//!
//! A name that keepstep would not have given is ignored. A name of a file counts whatever stands under it: a directory
//! there is damage, and is never taken for nothing.

use std::collections::BTreeSet;

use keepstep_format::{Id, ids};

use crate::disk::{Disk, join};
use crate::error::{Doing, Result};

/// The folder that has one folder for each writer.
pub(crate) const WRITERS: &str = "writers";
/// The folder of the mailboxes of writers.
pub(crate) const MAIL: &str = "mail";
/// The folder of SCAN cards: what was found in segments of dead writers.
pub(crate) const SCANS: &str = "scans";
/// The folder of values that were found elsewhere after damage.
pub(crate) const HEALS: &str = "heals";
/// The folder of the segments that `compact` made.
pub(crate) const GROUPED: &str = "grouped";
/// The folder that has one folder for each name of a run.
pub(crate) const RUNS: &str = "runs";
/// The folder of all seals.
pub(crate) const GROUPS: &str = "groups";
/// The name of the note that comes before a seal.
pub(crate) const SEAL_NOTE: &str = "keepstep.seal";
/// The name of what is left of a note on a pruned episode.
pub(crate) const PRUNED_NOTE: &str = "keepstep.pruned";
/// The prefix of temporary names.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// The folder of a writer. `Id::NONE` is that of the segments that `compact` made.
pub(crate) fn writer_dir(writer: &Id) -> String {
    if *writer == Id::NONE { GROUPED.to_owned() } else { format!("{WRITERS}/{writer}") }
}

/// A segment of a writer, or of `Id::NONE`: then `compact` made it.
pub(crate) fn segment_path(writer: &Id, number: u64) -> String {
    format!("{}/{number}.seg", writer_dir(writer))
}

/// The writer and number of the segment at a path.
pub(crate) fn parse_segment_path(path: &str) -> Option<(Id, u64)> {
    let (dir, name) = path.rsplit_once('/')?;
    let writer = if dir == GROUPED { Id::NONE } else { dir.strip_prefix("writers/")?.parse().ok()? };
    Some((writer, parse_number(name.strip_suffix(".seg")?)?))
}

/// The note in a writer's folder that its log was compacted. It is made before the first file of the log is deleted.
pub(crate) fn compacted_path(writer: &Id) -> String {
    format!("{}/compacted", writer_dir(writer))
}

/// A manifest: which segments are in force.
pub(crate) fn manifest_path(number: u64) -> String {
    format!("{GROUPED}/{number}.manifest")
}

/// Its copy, in case the first is damaged.
pub(crate) fn manifest_copy_path(number: u64) -> String {
    format!("{GROUPED}/{number}.copy")
}

/// A file of the catalog of what `compact` made.
pub(crate) fn catalog_path(number: u64) -> String {
    format!("{GROUPED}/{number}.catalog")
}

/// True for the path of a file of the catalog.
pub(crate) fn is_catalog(path: &str) -> bool {
    let name = path.strip_prefix(GROUPED).and_then(|it| it.strip_prefix('/'));
    name.and_then(|it| parse_number(it.strip_suffix(".catalog")?)).is_some()
}

/// The SCAN card of a segment of a dead writer.
pub(crate) fn scan_path(writer: &Id, number: u64) -> String {
    format!("{SCANS}/{writer}.{number}")
}

/// The segment of a SCAN card.
pub(crate) fn parse_scan(name: &str) -> Option<(Id, u64)> {
    let (writer, number) = name.split_once('.')?;
    Some((writer.parse().ok()?, parse_number(number)?))
}

/// A card of values that were found elsewhere.
pub(crate) fn heal_path(number: u64) -> String {
    format!("{HEALS}/{number}")
}

/// The folder of a run. Its name is a hash, since a run's name may not fit a path.
pub(crate) fn run_folder(name: &str) -> String {
    format!("{RUNS}/{}", ids::run_folder(name))
}

/// A generation of a run.
pub(crate) fn run_path(folder: &str, generation: u64) -> String {
    format!("{folder}/{generation}.run")
}

/// The config of a generation that was made without one.
pub(crate) fn run_config_path(folder: &str, generation: u64) -> String {
    format!("{folder}/{generation}.config")
}

/// The seal of a group.
pub(crate) fn seal_path(group: &Id) -> String {
    let hex = group.to_string();
    format!("{GROUPS}/{}/{hex}.seal", &hex[..2])
}

/// A card of a stream: the claim of a writer ends with its id, the others with their purpose.
pub(crate) fn stream_path(stream: &Id, ending: &str) -> String {
    let hex = stream.to_string();
    format!("streams/{}/{hex}.{ending}", &hex[..2])
}

/// A number as keepstep writes it: decimal, without leading zeros.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// No list is so long: a higher number is not one of ours, and the number after the last one stays valid.
const NUMBER_MAX: u64 = 1 << 62;

/// All writers that ever had a folder here, sorted; also those of which only the mailbox is left.
pub(crate) fn list_writers(disk: &dyn Disk) -> Result<Vec<Id>> {
    let mut writers = BTreeSet::new();
    for folder in [WRITERS, MAIL] {
        let entries = disk.list(folder).doing("list", folder)?;
        writers.extend(
            entries.iter().filter(|entry| entry.is_dir).filter_map(|entry| entry.name.parse::<Id>().ok()),
        );
    }
    Ok(writers.into_iter().collect())
}

/// The numbers of a writer's segments, rising.
pub(crate) fn list_segments(disk: &dyn Disk, writer: &Id) -> Result<Vec<u64>> {
    list_with_suffix(disk, &writer_dir(writer), ".seg")
}

/// The numbers of all manifests, rising.
pub(crate) fn list_manifests(disk: &dyn Disk) -> Result<Vec<u64>> {
    list_with_suffix(disk, GROUPED, ".manifest")
}

/// The numbers of all files of the catalog, rising.
pub(crate) fn list_catalogs(disk: &dyn Disk) -> Result<Vec<u64>> {
    list_with_suffix(disk, GROUPED, ".catalog")
}

fn list_with_suffix(disk: &dyn Disk, dir: &str, suffix: &str) -> Result<Vec<u64>> {
    let entries = disk.list(dir).doing("list", dir)?;
    let mut numbers: Vec<u64> =
        entries.iter().filter_map(|entry| parse_number(entry.name.strip_suffix(suffix)?)).collect();
    numbers.retain(|number| *number < NUMBER_MAX);
    numbers.sort_unstable();
    Ok(numbers)
}

/// The numbers that name files of a folder, rising.
pub(crate) fn list_numbered(disk: &dyn Disk, dir: &str) -> Result<Vec<u64>> {
    list_with_suffix(disk, dir, "")
}

/// True if keepstep gives a file this name, in a folder that has no folders: a directory there is none of its own.
pub(crate) fn is_name_of_a_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let ([SCANS | HEALS | GROUPED, name] | [_, _, name]) = parts[..] else { return false };
    let first = name.split('.').next().unwrap_or_default();
    parse_number(first).is_some() || first.parse::<Id>().is_ok()
}

/// The temporary files that were left behind in a folder.
pub(crate) fn list_temporary(disk: &dyn Disk, dir: &str) -> Result<Vec<String>> {
    let entries = disk.list(dir).doing("list", dir)?;
    let left = entries.iter().filter(|entry| !entry.is_dir && entry.name.starts_with(TEMPORARY));
    Ok(left.map(|entry| join(dir, &entry.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number has one name: "007.seg" is not one of ours.
    #[test]
    fn a_number_has_one_spelling() {
        assert_eq!(parse_number("0"), Some(0));
        assert_eq!(parse_number("18446744073709551615"), Some(u64::MAX));
        for text in ["", "00", "07", "+7", "-1", " 1", "1 ", "18446744073709551616", "x"] {
            assert_eq!(parse_number(text), None, "{text:?}");
        }
    }

    /// Folders are called by ids too, and by two digits: where they stand tells them from files.
    #[test]
    fn names_of_files_are_told_from_those_of_folders() {
        let id = Id([0xab; 16]);
        let files = [
            "grouped/0.manifest".to_owned(),
            "heals/7".to_owned(),
            scan_path(&id, 3),
            format!("mail/{id}/0"),
            format!("mail/{id}/0.answer"),
            format!("runs/{id}/0.plan.1"),
            format!("runs/{id}/0.config"),
            seal_path(&id),
            stream_path(&id, "freeze"),
        ];
        for file in files {
            assert!(is_name_of_a_file(&file), "{file}");
        }
        let folders = ["grouped", "grouped/.snapshot", "claims/10", "groups/ab", "mail/ab/.snapshot"];
        for folder in folders.map(str::to_owned).into_iter().chain([format!("mail/{id}")]) {
            assert!(!is_name_of_a_file(&folder), "{folder}");
        }
    }

    /// The path of a segment names its writer and number; other paths name none.
    #[test]
    fn paths_of_segments_are_read_back() {
        for (writer, number) in [(Id([7; 16]), 0), (Id([0xff; 16]), 12), (Id::NONE, 3)] {
            assert_eq!(parse_segment_path(&segment_path(&writer, number)), Some((writer, number)));
        }
        for path in ["", "3.seg", "grouped/03.seg", "grouped/3", "writers/7/3.seg", "grouped/3.manifest"] {
            assert_eq!(parse_segment_path(path), None, "{path}");
        }
    }
}
