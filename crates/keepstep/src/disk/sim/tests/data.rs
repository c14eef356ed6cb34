//! What a cut may do to the bytes of a file.

use super::*;

fn filled(byte: u8, bytes: usize) -> Vec<u8> {
    vec![byte; bytes]
}

/// Whatever happens later to other bytes and other files, a synced sector reads as it was synced.
#[test]
fn synced_sectors_never_change() {
    let (sim, disk) = start(1);
    let file = safe(&disk, "log", &filled(b'a', 1024));
    file.write_at(&filled(b'b', 3000), 1024).unwrap();
    let other = disk.create_new("other").unwrap();
    other.write_at(&filled(b'c', 1024), 0).unwrap();
    let trace = sim.trace();
    for cut in 0..trace.cuts() {
        // Once it is synced: the directory, the file.
        if cut < 4 {
            continue;
        }
        for seed in 0..RANDOM {
            let state = trace.random_state(cut, seed);
            let left = content(&state, "log").unwrap();
            assert_eq!(left[..1024], filled(b'a', 1024), "{}", trace.explain(cut, &state));
        }
    }
    for state in every_state(&trace) {
        assert_eq!(content(&state, "log").unwrap()[..1024], filled(b'a', 1024));
    }
}

/// An overwritten sector may be as before, as after, or cut between the two in either order.
#[test]
fn an_overwritten_sector_may_be_kept_lost_or_torn() {
    let (sim, disk) = start(2);
    let file = safe(&disk, "log", &filled(b'a', 512));
    file.write_at(&filled(b'b', 512), 0).unwrap();
    for left in contents(&sim, "log") {
        let left: Vec<Vec<u8>> = left.into_iter().map(Option::unwrap).collect();
        assert!(left.contains(&filled(b'a', 512)), "lost");
        assert!(left.contains(&filled(b'b', 512)), "kept");
        let torn = |first: u8, last: u8| {
            left.iter().any(|left| {
                left[0] == first
                    && left[511] == last
                    && left.iter().filter(|&&byte| byte == first).count()
                        + left.iter().filter(|&&byte| byte == last).count()
                        == 512
                    && left.windows(2).filter(|pair| pair[0] != pair[1]).count() == 1
            })
        };
        assert!(torn(b'b', b'a'), "the front is new");
        assert!(torn(b'a', b'b'), "the back is new");
    }
}

/// Chance tears at every byte, and so does counting if it is asked to.
#[test]
fn a_sector_can_be_torn_at_every_byte() {
    let (sim, disk) = start(3);
    let file = safe(&disk, "log", &filled(b'a', 512));
    file.write_at(&filled(b'b', 512), 0).unwrap();
    let trace = sim.trace().with_detail(Detail { tears: 511, ..Detail::default() });
    assert_eq!(trace.state_count(trace.cuts() - 1), 2 + 2 * 511);
    let tears = |states: &mut dyn Iterator<Item = SimDisk>| -> BTreeSet<usize> {
        let left = states.map(|state| content(&state, "log").unwrap());
        left.filter(|left| left[0] == b'b')
            .map(|left| left.iter().filter(|&&byte| byte == b'b').count())
            .collect()
    };
    assert_eq!(tears(&mut every_state(&trace)), (1..=512).collect());
    let cut = trace.cut(trace.cuts() - 1);
    let found = tears(&mut (0..40_000).map(|seed| cut.random_state(seed)));
    assert!(found.len() > 500, "torn in {} places only", found.len());
}

/// A sector that was written three times since its sync may hold any of the versions.
#[test]
fn versions_in_between_may_be_what_is_left() {
    let (sim, disk) = start(4);
    let file = safe(&disk, "log", &filled(b'a', 512));
    for byte in [b'b', b'c', b'd'] {
        file.write_at(&filled(byte, 512), 0).unwrap();
    }
    for left in contents(&sim, "log") {
        for byte in [b'a', b'b', b'c', b'd'] {
            assert!(left.contains(&Some(filled(byte, 512))), "{}", byte as char);
        }
    }
}

/// Sectors of one write are lost independently: every combination is possible, the later without the earlier too.
#[test]
fn sectors_are_lost_in_every_combination() {
    let (sim, disk) = start(5);
    let file = safe(&disk, "log", &filled(b'a', 512 * 4));
    file.write_at(&filled(b'b', 512 * 4), 0).unwrap();
    for left in contents(&sim, "log") {
        let whole = |left: Vec<u8>| -> Option<Vec<u8>> {
            left.chunks(512)
                .map(|sector| sector.iter().all(|&byte| byte == sector[0]).then_some(sector[0]))
                .collect()
        };
        let combinations: BTreeSet<Vec<u8>> =
            left.into_iter().map(Option::unwrap).filter_map(whole).collect();
        assert_eq!(combinations.len(), 16, "{combinations:?}");
    }
}

/// The length may be kept without the data: then zeros are read, where nothing else was.
#[test]
fn a_length_may_outlive_its_data() {
    let (sim, disk) = start(6);
    named(&disk, "log").write_at(&filled(b'x', 512), 0).unwrap();
    for left in contents(&sim, "log") {
        assert!(left.contains(&Some(Vec::new())), "length lost");
        assert!(left.contains(&Some(filled(0, 512))), "length kept, data lost");
        assert!(left.contains(&Some(filled(b'x', 512))), "both kept");
    }
}

/// Growth may be lost down to any length that the file went through, and chance finds lengths inside a sector.
#[test]
fn growth_may_be_lost_in_part() {
    let (sim, disk) = start(7);
    let file = safe(&disk, "log", &filled(b'a', 100));
    file.write_at(&filled(b'b', 100), 100).unwrap();
    file.write_at(&filled(b'c', 1000), 200).unwrap();
    let [counted, random] = contents(&sim, "log")
        .map(|left| -> BTreeSet<usize> { left.into_iter().map(|left| left.unwrap().len()).collect() });
    assert_eq!(counted, BTreeSet::from([100, 200, 512, 1200]));
    assert!(random.is_superset(&BTreeSet::from([100, 200, 512, 1024, 1200])), "{random:?}");
    assert!(random.len() > 100 && *random.first().unwrap() == 100 && *random.last().unwrap() == 1200);
}

/// What is left past a lost length does not come back when the file grows again.
#[test]
fn growing_again_reads_zeros_between() {
    let (sim, disk) = start(8);
    let file = safe(&disk, "log", b"a");
    file.write_at(&filled(b'b', 3000), 1).unwrap();
    for state in every_state(&sim.trace()).chain(random_states(&sim.trace())) {
        let file = state.process().open_rw("log").unwrap();
        let bytes = file.bytes().unwrap();
        file.write_at(b"z", 3500).unwrap();
        assert!(
            content(&state, "log").unwrap()[bytes as usize..3500].iter().all(|&byte| byte == 0),
            "{bytes}"
        );
    }
}

/// A lost sector may hold what another file has, or had, at the same offset: a deleted one, or one of before an earlier cut.
#[test]
fn a_recycled_block_holds_the_same_offset_of_another_file() {
    let old: Vec<u8> = (0..2048).map(|at| b"SEG1"[at % 4] ^ (at / 512) as u8).collect();
    let (sim, disk) = start(9);
    safe(&disk, "0.seg", &old);
    disk.remove("0.seg").unwrap();
    disk.sync_dir("").unwrap();
    let again = sim.trace().state(sim.operations(), 0);
    assert_eq!(names(&again), "");
    for (sim, disk) in [(sim, disk), (again.clone(), again.process())] {
        let new: Vec<u8> = [b"SEG1".to_vec(), filled(b'n', 2044)].concat();
        named(&disk, "1.seg").write_at(&new, 0).unwrap();
        for left in contents(&sim, "1.seg") {
            assert!(left.contains(&Some(old.clone())), "all of it");
            let mixed = [&new[..1024], &old[1024..]].concat();
            assert!(left.contains(&Some(mixed)), "the end of it");
        }
    }
}

/// With no other file around, stale bytes come from elsewhere in the same one.
#[test]
fn a_recycled_block_holds_the_files_own_bytes() {
    let (sim, disk) = start(10);
    let file = safe(&disk, "log", &filled(b'a', 512));
    file.write_at(&filled(b'b', 512), 512).unwrap();
    for left in contents(&sim, "log") {
        assert!(left.contains(&Some(filled(b'a', 1024))));
    }
}

/// Files that begin alike are the first sources, however many others came later.
#[test]
fn stale_bytes_prefer_files_of_the_same_kind() {
    let (sim, disk) = start(11);
    safe(&disk, "0.seg", &[b"SEG1".to_vec(), filled(b'o', 1020)].concat());
    for number in 0..20 {
        safe(&disk, &format!("{number}.other"), &filled(number, 1024));
    }
    named(&disk, "1.seg").write_at(&[b"SEG1".to_vec(), filled(b'n', 1020)].concat(), 0).unwrap();
    let [counted, _] = contents(&sim, "1.seg");
    let from = |byte: u8| {
        counted.iter().flatten().any(|left| left.len() == 1024 && left[512..] == filled(byte, 512))
    };
    assert!(from(b'o') && !from(19));
}

/// A write past the end leaves a hole that reads as zeros whatever happens, once the length is safe.
#[test]
fn a_hole_is_zeros() {
    let (sim, disk) = start(12);
    let file = named(&disk, "log");
    safe(&disk, "other", &filled(b'o', 8192));
    file.write_at(b"end", 5000).unwrap();
    file.sync().unwrap();
    file.write_at(b"more", 9000).unwrap();
    for left in random_states(&sim.trace()).map(|state| content(&state, "log").unwrap()) {
        assert_eq!(left[..5000], filled(0, 5000));
        assert_eq!(left[5000..5003], *b"end");
    }
}

/// Reads see what was written, across pages, at once and by every process.
#[test]
fn reads_see_the_cache() {
    let (sim, disk) = start(13);
    let data: Vec<u8> = (0..20_000u32).map(|at| (at * 7 % 251) as u8).collect();
    let file = disk.create_new("log").unwrap();
    for (at, piece) in data.chunks(777).enumerate() {
        file.write_at(piece, at as u64 * 777).unwrap();
    }
    let other = sim.process().open("log").unwrap();
    let mut out = vec![0; 9000];
    assert_eq!(other.read_at(&mut out, 4000).unwrap(), 9000);
    assert_eq!(out, data[4000..13_000]);
    assert_eq!(other.read_at(&mut out, 19_990).unwrap(), 10);
    assert_eq!(other.read_at(&mut out, 20_000).unwrap(), 0);
    assert_eq!(content(&sim, "log").unwrap(), data);
}
