//! What a cut may do to the names in directories.

use super::*;
use crate::disk::Cards;

/// A name that was not synced may vanish, also if its file was synced.
#[test]
fn an_unsynced_name_can_vanish_with_its_synced_file() {
    let (sim, disk) = start(1);
    let file = disk.create_new("log").unwrap();
    file.write_at(b"step", 0).unwrap();
    file.sync().unwrap();
    for left in contents(&sim, "log") {
        assert_eq!(left, BTreeSet::from([None, Some(b"step".to_vec())]));
    }
}

/// A name may survive although its file's data did not.
#[test]
fn a_name_can_outlive_its_data() {
    let (sim, disk) = start(2);
    disk.create_new("log").unwrap().write_at(b"step", 0).unwrap();
    disk.sync_dir("").unwrap();
    for left in contents(&sim, "log") {
        assert!(left.contains(&Some(Vec::new())) && !left.contains(&None), "{left:?}");
    }
}

/// A synced name stays, whatever is done to others after it.
#[test]
fn a_synced_name_stays() {
    let (sim, disk) = start(3);
    named(&disk, "a");
    disk.create_new("b").unwrap();
    disk.rename("b", "c").unwrap();
    for left in all_names(&sim) {
        assert!(left.iter().all(|names| names.starts_with('a')), "{left:?}");
    }
}

/// A removal that was not synced may be undone; one that was, never.
#[test]
fn an_unsynced_removal_can_be_undone() {
    let (sim, disk) = start(4);
    safe(&disk, "a", b"1");
    disk.remove("a").unwrap();
    for left in contents(&sim, "a") {
        assert_eq!(left, BTreeSet::from([None, Some(b"1".to_vec())]));
    }
    disk.sync_dir("").unwrap();
    for left in contents(&sim, "a") {
        assert_eq!(left, BTreeSet::from([None]));
    }
}

/// A file that was removed before it was synced may come back without its data.
#[test]
fn a_removed_file_can_come_back_torn() {
    let (sim, disk) = start(16);
    let file = safe(&disk, "a", &[b'1'; 512]);
    file.write_at(&[b'2'; 512], 0).unwrap();
    disk.remove("a").unwrap();
    for left in contents(&sim, "a") {
        let whole = |byte: u8| Some(vec![byte; 512]);
        assert!(left.len() > 3 && left.is_superset(&BTreeSet::from([None, whole(b'1'), whole(b'2')])));
    }
}

/// Operations on different names of a directory are lost independently, the earlier without the later too.
#[test]
fn names_are_lost_in_every_combination() {
    let (sim, disk) = start(5);
    for name in ["a", "b", "c"] {
        disk.create_new(name).unwrap();
    }
    for left in all_names(&sim) {
        assert_eq!(left, set(&["", "a", "b", "c", "a b", "a c", "b c", "a b c"]));
    }
}

/// What a name has stood for since the last sync, it may stand for after a cut.
#[test]
fn a_name_used_twice_may_stand_for_either() {
    let (sim, disk) = start(6);
    safe(&disk, "a", b"old");
    disk.remove("a").unwrap();
    let new = disk.create_new("a").unwrap();
    new.write_at(b"new", 0).unwrap();
    new.sync().unwrap();
    for left in contents(&sim, "a") {
        assert_eq!(left, BTreeSet::from([None, Some(b"old".to_vec()), Some(b"new".to_vec())]));
    }
}

/// A rename in one directory: the old name, the new name, or both; never neither.
#[test]
fn an_unsynced_rename_may_show_either_name_or_both() {
    let (sim, disk) = start(7);
    safe(&disk, "a", b"1");
    disk.rename("a", "b").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["a", "b", "a b"]));
    }
    disk.sync_dir("").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["b"]));
    }
}

/// A rename onto a name that is taken shows the old file or the new one there.
#[test]
fn an_unsynced_rename_may_not_have_replaced() {
    let (sim, disk) = start(8);
    safe(&disk, "current", b"old");
    safe(&disk, "next", b"new");
    disk.rename("next", "current").unwrap();
    for left in contents(&sim, "current") {
        assert_eq!(left, BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]));
    }
    let file = disk.open("current").unwrap();
    assert_eq!((file.links().unwrap(), content(&sim, "current").unwrap()), (1, b"new".to_vec()));
}

/// Temporary file, rename, no sync: the temporary name alone, the final name alone, both, or nothing at all.
#[test]
fn an_unsynced_creation_and_rename_combine() {
    let (sim, disk) = start(9);
    disk.create_new("tmp").unwrap();
    disk.rename("tmp", "log").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["", "tmp", "log", "log tmp"]));
    }
}

/// A rename between directories is two changes: syncing one directory does not save the other's half.
#[test]
fn a_rename_between_directories_can_lose_the_file() {
    let (sim, disk) = start(10);
    disk.create_dir("from").unwrap();
    disk.create_dir("to").unwrap();
    disk.sync_dir("").unwrap();
    safe(&disk, "from/a", b"1");
    disk.rename("from/a", "to/a").unwrap();
    disk.sync_dir("from").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["", "to/a"]));
    }
    disk.sync_dir("to").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["to/a"]));
    }
}

/// A directory that was not synced into its parent takes with it all that was synced inside.
#[test]
fn an_unsynced_directory_takes_its_files_with_it() {
    let (sim, disk) = start(11);
    disk.create_dir("dir").unwrap();
    safe(&disk, "dir/a", b"1");
    for left in all_names(&sim) {
        assert_eq!(left, set(&["", "dir/a"]));
    }
    disk.sync_dir("").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["dir/a"]));
    }
}

/// Publishing by link: the name appears only with the content, as `publish` does it.
#[test]
fn a_published_file_is_whole_or_absent() {
    let (sim, disk) = start(12);
    let publishing = crate::disk::Directory::over(disk);
    assert!(publishing.put("card", b"whole").unwrap());
    assert!(!publishing.put("card", b"late").unwrap());
    let trace = sim.trace();
    let mut absent = 0;
    for cut in 0..trace.cuts() {
        for index in 0..trace.state_count(cut) {
            match content(&trace.state(cut, index), "card") {
                None => absent += 1,
                Some(left) => assert_eq!(left, b"whole", "{}", trace.explain(cut, &trace.state(cut, index))),
            }
        }
    }
    assert!(absent > 0);
    for left in contents(&sim, "card") {
        assert_eq!(left, BTreeSet::from([Some(b"whole".to_vec())]));
    }
}

/// A long chain of renames is more than can be counted; still each name of it may be what is left.
#[test]
fn a_long_chain_of_renames_shows_any_of_its_names() {
    let (sim, disk) = start(13);
    safe(&disk, "0", b"1");
    for step in 0..12 {
        disk.rename(&step.to_string(), &(step + 1).to_string()).unwrap();
    }
    for left in all_names(&sim) {
        for name in 0..=12 {
            assert!(left.contains(&name.to_string()), "{name} in {left:?}");
        }
        assert!(!left.contains(""));
    }
}

/// Names are what POSIX says: exclusive, in directories that exist, and a link is one more name for the same bytes.
#[test]
fn names_are_checked() {
    let (_, disk) = start(14);
    let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());
    use std::io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound};
    let file = disk.create_new("a").unwrap();
    disk.create_dir("dir").unwrap();
    assert_eq!(kind(disk.create_new("a").map(drop)), Err(AlreadyExists));
    assert_eq!(kind(disk.create_dir("a")), Err(AlreadyExists));
    assert_eq!(kind(disk.create_new("none/a").map(drop)), Err(NotFound));
    assert_eq!(kind(disk.create_new("a/b").map(drop)), Err(NotADirectory));
    assert_eq!(kind(disk.open("b").map(drop)), Err(NotFound));
    assert_eq!(kind(disk.sync_dir("none")), Err(NotFound));
    assert_eq!(kind(disk.remove("dir")), Err(IsADirectory));
    assert_eq!(kind(disk.rename("dir", "dir/dir").map(drop)), Err(std::io::ErrorKind::InvalidInput));
    disk.link("a", "dir/b").unwrap();
    assert_eq!(kind(disk.link("a", "dir/b")), Err(AlreadyExists));
    file.write_at(b"x", 0).unwrap();
    assert_eq!(read_file(&*disk, "dir/b").unwrap(), b"x");
    assert_eq!(file.links().unwrap(), 2);
    disk.rename("a", "dir/b").unwrap();
    assert!(disk.exists("a").unwrap(), "a rename between two names of one file does nothing");
    disk.remove("a").unwrap();
    disk.remove("dir/b").unwrap();
    assert_eq!(file.links().unwrap(), 0);
    file.write_at(b"still open", 0).unwrap();
    assert_eq!(disk.list("").unwrap().len(), 1);
    assert!(disk.list("").unwrap()[0].is_dir);
    assert!(disk.list("none").unwrap().is_empty());
}

/// After a cut the count of a file's names is that of the names that are left.
#[test]
fn links_are_counted_after_a_cut() {
    let (sim, disk) = start(15);
    safe(&disk, "a", b"1");
    disk.link("a", "b").unwrap();
    disk.link("a", "c").unwrap();
    disk.remove("a").unwrap();
    for state in every_state(&sim.trace()).chain(random_states(&sim.trace())) {
        let names = state.files();
        for (path, _) in &names {
            assert_eq!(state.process().open(path).unwrap().links().unwrap(), names.len() as u64);
        }
    }
}
