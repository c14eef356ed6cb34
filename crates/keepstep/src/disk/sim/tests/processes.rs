//! Processes, locks, the clock and chance.

use std::time::Duration;

use super::*;
use crate::disk::{FileSystem, LockState};

/// A lock belongs to a process: others see it, it is free when the process is killed, and the dead can do nothing.
#[test]
fn a_lock_ends_with_its_process() {
    let (sim, first) = start(1);
    let second = sim.process();
    let held = named(&first, "lock");
    let seen = second.open_rw("lock").unwrap();
    assert!(held.try_lock().unwrap() && held.try_lock().unwrap());
    assert_eq!((seen.try_lock().unwrap(), second.lock_state("lock").unwrap()), (false, LockState::Held));
    first.kill();
    assert_eq!((second.lock_state("lock").unwrap(), seen.try_lock().unwrap()), (LockState::Free, true));
    assert!(held.try_lock().is_err() && held.sync().is_err() && held.write_at(b"x", 0).is_err());
    assert!(first.exists("lock").is_err() && first.open("lock").is_err() && first.create_new("b").is_err());
    assert!(second.exists("lock").unwrap() && !second.exists("b").unwrap());
}

/// The trap of fcntl: closing any handle to a file frees the process's lock on it. So one's own lock is known without
/// opening the file, which is refused; what others do in the process frees it all the same, and it can be renewed.
#[test]
fn a_locked_file_is_not_opened_twice() {
    let (sim, first) = start(2);
    let held = named(&first, "lock");
    assert!(held.try_lock().unwrap());
    let second = sim.process();
    assert_eq!(first.open("lock").err().unwrap().kind(), std::io::ErrorKind::Deadlock);
    assert!(first.open_rw("lock").is_err());
    let states = || (first.lock_state("lock").unwrap(), second.lock_state("lock").unwrap());
    assert_eq!(states(), (LockState::Held, LockState::Held));
    first.lose_locks();
    assert_eq!(states(), (LockState::Free, LockState::Free));
    assert!(held.try_lock().unwrap());
    assert_eq!(states(), (LockState::Held, LockState::Held));
}

/// A file opened for reading can be neither written nor locked.
#[test]
fn a_file_opened_for_reading_is_only_read() {
    let (_, disk) = start(3);
    safe(&disk, "a", b"1");
    let file = disk.open("a").unwrap();
    assert!(file.write_at(b"2", 0).is_err() && file.try_lock().is_err());
}

/// A kill leaves all that was written, still in danger of the power, and no locks; the machine was not restarted.
#[test]
fn a_kill_leaves_the_cache() {
    let (sim, disk) = start(4);
    let file = disk.create_new("log").unwrap();
    file.write_at(b"step", 0).unwrap();
    assert!(file.try_lock().unwrap());
    let killed = sim.trace().killed(sim.operations());
    let next = killed.process();
    assert_eq!(read_file(&*next, "log").unwrap(), b"step");
    assert_eq!(next.lock_state("log").unwrap(), LockState::Free);
    assert_eq!(next.boot_id(), disk.boot_id());
    let [counted, random] = contents(&killed, "log");
    assert!(counted.contains(&None) && random.contains(&None));
    // Whoever syncs it saves it, whoever wrote it.
    next.open_rw("log").unwrap().sync().unwrap();
    next.sync_dir("").unwrap();
    for left in contents(&killed, "log") {
        assert_eq!(left, BTreeSet::from([Some(b"step".to_vec())]));
    }
}

/// A power cut is a new boot, later, without locks, with randomness that does not repeat.
#[test]
fn a_power_cut_is_a_new_boot() {
    let (sim, disk) = start(5);
    let file = named(&disk, "lock");
    assert!(file.try_lock().unwrap());
    let random = |disk: &SimProcess| {
        let mut out = [0; 16];
        disk.random(&mut out).unwrap();
        out
    };
    let trace = sim.trace();
    let states = [
        trace.state(2, 0),
        trace.random_state(2, 0),
        trace.state(1, 0),
        trace.state(2, 0).trace().state(0, 0),
    ];
    let mut drawn = BTreeSet::from([random(&disk)]);
    for state in &states {
        let after = state.process();
        assert!(after.now_us() > disk.now_us() && after.boot_id() != disk.boot_id());
        drawn.insert(random(&after));
    }
    assert_eq!(drawn.len(), 5);
    assert_ne!(states[3].process().boot_id(), states[0].process().boot_id());
    assert_eq!(states[0].process().lock_state("lock").unwrap(), LockState::Free);
}

/// Time goes up with every look, and waiting passes it at once.
#[test]
fn time_passes_without_waiting() {
    let (sim, disk) = start(6);
    let first = disk.now_us();
    assert!(disk.now_us() > first);
    let hour = Duration::from_secs(3600);
    disk.sleep(hour);
    let slept = disk.now_us();
    assert!(slept - first > 3_600_000_000);
    assert_eq!(disk.file_system().unwrap(), FileSystem::Local("simulated"));
    sim.set_file_system(FileSystem::Memory("tmpfs"));
    assert_eq!(disk.file_system().unwrap(), FileSystem::Memory("tmpfs"));
}

/// A watch shows names that appear and files that are written to, once, from the moment that it was made; nothing else.
#[test]
fn a_watch_shows_each_change_once() {
    let (sim, disk) = start(8);
    disk.create_dir("dir").unwrap();
    let file = safe(&disk, "dir/a", b"1");
    let other = disk.create_new("other").unwrap();
    let mut watch = sim.process().watch(&["dir".to_owned(), "none".to_owned()]).unwrap();
    let mut shows = || watch.wait(Duration::from_secs(1)).unwrap();
    assert!(!shows(), "all that was before");
    let before = disk.now_us();
    assert!(!shows() && disk.now_us() - before >= 1_000_000, "the time is over at once");
    for change in 0..4 {
        match change {
            0 => file.write_at(b"2", 0).unwrap(),
            1 => disk.create_new("dir/b").map(drop).unwrap(),
            2 => disk.link("other", "dir/c").unwrap(),
            _ => disk.rename("other", "dir/d").unwrap(),
        }
        let before = disk.now_us();
        assert_eq!((shows(), disk.now_us() - before < 1000, shows()), (true, true, false), "change {change}");
    }
    other.write_at(b"3", 0).unwrap();
    assert!(shows(), "it has a name there now");
    disk.create_new("other").unwrap().write_at(b"4", 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir("dir").unwrap();
    disk.remove("dir/b").unwrap();
    sim.event(1);
    assert!(!shows());
    watch.add("").unwrap();
    assert!(!watch.wait(Duration::ZERO).unwrap());
    disk.create_dir("none").unwrap();
    assert!(watch.wait(Duration::ZERO).unwrap());
}

/// One seed, one history: randomness, clock, states by number and states by seed.
#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed: u64| {
        let (sim, disk) = start(seed);
        let mut random = vec![0; 700];
        disk.random(&mut random).unwrap();
        let file = disk.create_new("log").unwrap();
        file.write_at(&random, 0).unwrap();
        disk.link("log", "b").unwrap();
        let trace = sim.trace();
        let counted: Vec<_> = every_state(&trace).map(|state| state.files()).collect();
        let by_seed: Vec<_> = (0..200).map(|seed| trace.random_state(3, seed).files()).collect();
        (counted, by_seed, disk.now_us())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let (_, by_seed, _) = run(1);
    assert!(by_seed.iter().collect::<BTreeSet<_>>().len() > 50);
}

/// Many threads may use one disk, and one trace, at once.
#[test]
fn threads_share_a_disk_and_a_trace() {
    let (sim, disk) = start(7);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let disk = Arc::clone(&disk);
            scope.spawn(move || {
                let file = disk.create_new(&format!("{thread}")).unwrap();
                for step in 0..50 {
                    file.write_at(&[thread; 100], step * 100).unwrap();
                }
            });
        }
    });
    let trace = sim.trace();
    assert_eq!(trace.cuts(), 4 * 51 + 1);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let trace = &trace;
            scope.spawn(move || {
                for cut in (thread..trace.cuts()).rev().step_by(4) {
                    let killed = trace.killed(cut).files();
                    assert_eq!(
                        killed.iter().map(|(_, bytes)| bytes.len().div_ceil(100) + 1).sum::<usize>(),
                        cut
                    );
                }
            });
        }
    });
}
