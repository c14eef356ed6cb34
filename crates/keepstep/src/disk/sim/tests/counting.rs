//! The numbers of states, events and cuts.

use super::*;

fn count(sim: &SimDisk) -> u64 {
    sim.trace().state_count(sim.operations())
}

/// No two numbers give the same disk, and nothing that is settled is counted.
#[test]
fn every_number_is_a_different_disk() {
    let (sim, disk) = start(1);
    assert_eq!(count(&sim), 1);
    disk.create_new("a").unwrap();
    assert_eq!(count(&sim), 2, "the name");
    let file = disk.open_rw("a").unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(count(&sim), 1 + 1 + 2, "no name; no length; length with and without the byte");
    disk.link("a", "b").unwrap();
    assert_eq!(count(&sim), 1 + 3 * 3, "no name, or any of three sets of names with any of three contents");
    file.write_at(&[b'y'; 600], 1).unwrap();
    let states: Vec<_> = every_state(&sim.trace()).map(|state| state.files()).collect();
    assert!(states.len() > 50);
    assert_eq!(states.iter().collect::<BTreeSet<_>>().len(), states.len());
    file.sync().unwrap();
    assert_eq!(count(&sim), 4);
    disk.sync_dir("").unwrap();
    assert_eq!(count(&sim), 1);
}

/// State 0 has lost everything that was not synced.
#[test]
fn state_zero_has_lost_everything() {
    let (sim, disk) = start(2);
    let file = safe(&disk, "log", &[b'a'; 700]);
    file.write_at(&[b'b'; 2000], 300).unwrap();
    disk.create_new("new").unwrap();
    let state = sim.trace().state(sim.operations(), 0);
    assert_eq!(state.files(), [("log".to_owned(), vec![b'a'; 700])]);
}

/// A number of states that is too large is `u64::MAX`, and any number still gives a state.
#[test]
fn large_numbers_saturate() {
    let (sim, disk) = start(3);
    let file = safe(&disk, "log", b"safe");
    file.write_at(&vec![b'x'; 200 * 512], 4).unwrap();
    for number in 0..12 {
        disk.create_new(&format!("{number}")).unwrap().write_at(&vec![b'y'; 50 * 512], 0).unwrap();
    }
    assert_eq!(count(&sim), u64::MAX);
    let trace = sim.trace();
    for index in [0, 1, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
        let state = trace.state(sim.operations(), index);
        assert_eq!(content(&state, "log").unwrap()[..4], *b"safe");
    }
}

/// What chance finds, a fine enough count has too: neither invents states of its own.
#[test]
fn chance_stays_inside_what_can_be_counted() {
    let (sim, disk) = start(4);
    let file = safe(&disk, "a", b"abc");
    file.write_at(b"XYZW", 1).unwrap();
    disk.rename("a", "b").unwrap();
    disk.create_new("c").unwrap();
    // With so few bytes these are all there is, but for lengths in mid-write.
    let trace = sim.trace().with_detail(Detail { tears: 511, stale: 9, lengths: 9 });
    let counted: BTreeSet<_> = every_state(&trace).map(|state| state.files()).collect();
    let names: BTreeSet<_> = every_state(&trace).map(|state| names(&state)).collect();
    let whole = |files: &Vec<(String, Vec<u8>)>| files.iter().all(|(_, bytes)| bytes.len() != 4);
    let random: BTreeSet<_> = random_states(&trace).map(|state| state.files()).filter(whole).collect();
    assert!(random.is_subset(&counted), "{:?}", random.difference(&counted).next());
    let random_names: BTreeSet<_> = random_states(&trace).map(|state| super::names(&state)).collect();
    assert_eq!(random_names, names);
}

/// Events stand in the trace where they were said, and change no disk.
#[test]
fn events_are_known_at_each_cut() {
    let (sim, disk) = start(5);
    sim.event(10);
    named(&disk, "a");
    sim.event(20);
    let trace = sim.trace();
    sim.event(30);
    assert_eq!((trace.cuts(), sim.operations()), (5, 5));
    let seen: Vec<&[u64]> = (0..trace.cuts()).map(|cut| trace.events_before(cut)).collect();
    assert_eq!(seen, [&[][..], &[10], &[10], &[10], &[10, 20]]);
    let new: Vec<bool> = (0..trace.cuts()).map(|cut| trace.is_new(cut)).collect();
    assert_eq!(new, [true, false, true, true, false]);
    assert_eq!(trace.operation_before(2), "create file a in #0");
    assert_eq!(trace.events(), [10, 20]);
}

/// A cut is the same whether one comes to it forwards, backwards or at random.
#[test]
fn cuts_do_not_depend_on_the_way_to_them() {
    let (sim, disk) = start(6);
    let file = named(&disk, "log");
    for step in 0..300_u64 {
        file.write_at(&step.to_le_bytes(), step * 8).unwrap();
        if step % 7 == 0 {
            file.sync().unwrap();
        }
    }
    let view = |cut: usize, trace: &Trace| (trace.random_state(cut, 1).files(), trace.killed(cut).files());
    let forwards = sim.trace();
    let cuts = forwards.cuts();
    let seen: Vec<_> = (0..cuts).map(|cut| view(cut, &forwards)).collect();
    let backwards = sim.trace();
    assert!((0..cuts).rev().all(|cut| view(cut, &backwards) == seen[cut]));
    let jumping = sim.trace();
    assert!((0..cuts).map(|cut| cut * 89 % cuts).all(|cut| view(cut, &jumping) == seen[cut]));
}

/// A cut can follow a cut: what the first left is safe in the second.
#[test]
fn what_a_cut_left_survives_the_next() {
    let (sim, disk) = start(7);
    let file = disk.create_new("log").unwrap();
    file.write_at(&[b'x'; 2000], 0).unwrap();
    let trace = sim.trace();
    for seed in 0..200 {
        let once = trace.random_state(2, seed);
        let left = once.files();
        once.process().create_new("new").unwrap().write_at(&[b'z'; 700], 0).unwrap();
        for again in random_states(&once.trace()).take(20) {
            let files: Vec<_> = again.files().into_iter().filter(|(path, _)| path != "new").collect();
            assert_eq!(files, left);
        }
    }
}

/// What broke a test is said in words, also after the test has written to the state.
#[test]
fn a_state_is_explained() {
    let (sim, disk) = start(8);
    let file = safe(&disk, "log", &[b'a'; 600]);
    file.write_at(&[b'b'; 600], 600).unwrap();
    disk.create_new("new").unwrap();
    let trace = sim.trace();
    let state = trace.state(6, 0);
    state.process().create_new("later").unwrap();
    assert_eq!(
        trace.explain(6, &state),
        "cut 6, after \"create file new in #0\":\n  new (#2): the name is lost\n  log (#1): 600 of 1200 bytes (synced: 600)\n"
    );
    assert!(trace.explain(6, &trace.killed(6)).ends_with("nothing is lost\n"));
    let words: String = random_states(&trace).map(|state| trace.explain(6, &state)).collect();
    for word in ["is as synced", "is zeros", "is torn", "has stale bytes"] {
        assert!(words.contains(word), "{word}");
    }
}
