//! Calls that fail by plan, and a disk that is full.

use std::io::ErrorKind;

use super::super::{Errno, Fault, On};
use super::*;

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// After a failed sync the new bytes are still read, but no later sync makes them safe.
#[test]
fn a_failed_sync_is_not_mended_by_the_next() {
    let (sim, disk) = start(1);
    let file = safe(&disk, "log", &[b'a'; 512]);
    file.write_at(&[b'b'; 512], 0).unwrap();
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio));
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().unwrap();
    assert_eq!(content(&sim, "log").unwrap(), [b'b'; 512]);
    for left in contents(&sim, "log") {
        assert!(left.contains(&Some(vec![b'a'; 512])) && left.contains(&Some(vec![b'b'; 512])));
        assert!(left.len() > 2, "torn");
    }
}

/// Growth that a failed sync dropped: the next sync saves the length, which then shows stale bytes.
#[test]
fn after_a_failed_sync_a_safe_length_may_show_stale_bytes() {
    let (sim, disk) = start(2);
    safe(&disk, "other", &[b's'; 1024]);
    let file = named(&disk, "log");
    file.write_at(&[b'a'; 512], 0).unwrap();
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).at("log"));
    file.sync().unwrap_err();
    file.write_at(&[b'b'; 512], 512).unwrap();
    file.sync().unwrap();
    for left in contents(&sim, "log") {
        assert!(left.iter().flatten().all(|left| left.len() == 1024 && left[512..] == [b'b'; 512]));
        let first: BTreeSet<&[u8]> = left.iter().flatten().map(|left| &left[..512]).collect();
        assert!([0, b'a', b's'].iter().all(|&byte| first.contains(&[byte; 512][..])));
    }
}

/// Written again and synced, it is safe.
#[test]
fn writing_again_mends_a_failed_sync() {
    let (sim, disk) = start(3);
    let file = named(&disk, "log");
    file.write_at(&[b'a'; 512], 0).unwrap();
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio));
    file.sync().unwrap_err();
    file.write_at(&[b'a'; 512], 0).unwrap();
    file.sync().unwrap();
    for left in contents(&sim, "log") {
        assert_eq!(left, BTreeSet::from([Some(vec![b'a'; 512])]));
    }
}

/// A failed directory sync leaves the names in danger, and the next one saves them.
#[test]
fn a_failed_directory_sync_saves_no_name() {
    let (sim, disk) = start(4);
    disk.create_new("a").unwrap();
    sim.faults().plan(Fault::new(On::SyncDir, Errno::Eio));
    disk.sync_dir("").unwrap_err();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["", "a"]));
    }
    disk.sync_dir("").unwrap();
    for left in all_names(&sim) {
        assert_eq!(left, set(&["a"]));
    }
}

/// The n-th call fails, as often as planned; calls on other paths do not count.
#[test]
fn the_planned_call_fails() {
    let (sim, disk) = start(5);
    let (log, other) = (disk.create_new("dir-log").unwrap(), disk.create_new("other").unwrap());
    sim.faults().plan(Fault::new(On::Write, Errno::Erofs).after(1).times(2).at("log"));
    let kinds: Vec<_> =
        (0..5).map(|_| (kind(other.write_at(b"x", 0)), kind(log.write_at(b"x", 0)))).collect();
    let failed = (None, Some(ErrorKind::ReadOnlyFilesystem));
    assert_eq!(kinds, [(None, None), failed, failed, (None, None), (None, None)]);
    assert_eq!(sim.faults().hits(), 2);
}

/// A file that was published under a second name is found by either.
#[test]
fn a_fault_finds_a_file_by_any_of_its_names() {
    let (sim, disk) = start(6);
    let file = disk.create_new("tmp").unwrap();
    disk.link("tmp", "1.seg").unwrap();
    disk.remove("tmp").unwrap();
    sim.faults().plan(Fault::new(On::Sync, Errno::Eio).at(".seg"));
    sim.faults().plan(Fault::new(On::Write, Errno::Eio).at("tmp"));
    assert!(file.sync().is_err() && file.write_at(b"x", 0).is_err());
}

/// Every kind of call can be made to fail, until it is cleared, and changes nothing then.
#[test]
fn every_call_can_fail() {
    let (sim, disk) = start(7);
    let file = safe(&disk, "a", b"1");
    let operations = sim.operations();
    sim.faults().plan(Fault::new(On::Any, Errno::Eio).until_cleared());
    let calls: [std::io::Result<()>; 13] = [
        disk.create_dir("d"),
        disk.sync_dir(""),
        disk.create_new("b").map(drop),
        disk.open("a").map(drop),
        disk.open_rw("a").map(drop),
        disk.link("a", "b"),
        disk.rename("a", "b"),
        disk.remove("a"),
        disk.list("").map(drop),
        disk.exists("a").map(drop),
        disk.random(&mut [0; 4]),
        file.write_at(b"x", 0),
        file.read_at(&mut [0; 4], 0).map(drop),
    ];
    assert!(calls.iter().all(Result::is_err), "{calls:?}");
    assert!(
        file.bytes().is_err()
            && file.links().is_err()
            && file.try_lock().is_err()
            && disk.lock_state("a").is_err()
    );
    assert_eq!(sim.operations(), operations);
    sim.faults().clear();
    sim.faults().plan(Fault::new(On::Change, Errno::Erofs).until_cleared());
    assert!(disk.create_new("b").is_err() && file.sync().is_ok() && disk.exists("a").unwrap());
}

/// A short write puts down its front, then fails.
#[test]
fn a_short_write_leaves_its_front() {
    let (sim, disk) = start(8);
    let file = disk.create_new("log").unwrap();
    sim.faults().plan(Fault::new(On::Write, Errno::Eio).short(3));
    assert!(file.write_at(b"abcdef", 0).is_err());
    assert_eq!(content(&sim, "log").unwrap(), b"abc");
}

/// A full disk takes what fits, refuses new names, lets old bytes be overwritten, and goes on when it has grown.
#[test]
fn a_full_disk_takes_what_fits() {
    let (sim, disk) = start(9);
    let file = disk.create_new("log").unwrap();
    sim.faults().set_capacity(Some(1000));
    file.write_at(&[1; 600], 0).unwrap();
    assert_eq!(kind(file.write_at(&[2; 600], 600)), Some(ErrorKind::StorageFull));
    assert_eq!(file.bytes().unwrap(), 1000);
    file.write_at(&[3; 1000], 0).unwrap();
    assert_eq!(kind(disk.create_new("b")), Some(ErrorKind::StorageFull));
    assert_eq!(kind(disk.link("log", "b")), Some(ErrorKind::StorageFull));
    assert_eq!(kind(disk.create_dir("b")), Some(ErrorKind::StorageFull));
    sim.faults().set_capacity(Some(1100));
    disk.create_new("b").unwrap().write_at(&[4; 100], 0).unwrap();
    assert_eq!(sim.faults().used_bytes(), 1100);
    disk.remove("log").unwrap();
    disk.open_rw("b").unwrap().write_at(&[5; 1000], 100).unwrap();
    let state = sim.trace().killed(sim.operations());
    state.process().open_rw("b").unwrap().write_at(&[6; 5000], 0).unwrap();
}
