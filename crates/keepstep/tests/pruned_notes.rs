//! Notes on a pruned episode go with it: nothing of what they say is left in the store, whoever wrote them and wherever their
//! log is by then; and nothing else is lost by it. (Their bytes survived `prune` and `compact`, and no reader showed them.)
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::path::Path;
use std::time::Duration;

use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, EpisodeName, Id, NoteTarget, Run, Step, Value};
use scratch::Scratch;

/// Bytes that nothing can compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..6_000).map(next).collect()
}

/// Which files below a folder have these bytes, or a long part of them.
fn files_with(dir: &Path, wanted: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("lists").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, wanted, found);
        } else {
            let bytes = std::fs::read(&path).expect("reads");
            if bytes.windows(64).any(|window| window == &wanted[100..164]) {
                found.push(path.display().to_string());
            }
        }
    }
}

fn record(run: &Run, task: &str) -> Id {
    let episode = run.episode(EpisodeName::task(task)).expect("begins");
    episode.step(Step::new().action(task).reward(1.0)).expect("records");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    run.episode_id(&EpisodeName::task(task))
}

fn compact(scratch: &Scratch) {
    let none = CompactOptions::default().grace(Duration::ZERO);
    // What the first call replaces, the second deletes.
    for _ in 0..2 {
        scratch.store().compact(none.clone(), &mut |_| {}).expect("compacts");
    }
}

/// Which processes wrote the notes, and what happened to their logs before the episode is pruned.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    /// The recorder itself wrote them.
    Alone,
    /// Another process did, and has left.
    Judged,
    /// The same, and both logs were compacted.
    Compacted,
    /// The process that wrote them is still there: they go when it has left.
    Judging,
}

#[test]
fn what_notes_on_a_pruned_episode_said_is_gone() {
    for when in [When::Alone, When::Judged, When::Compacted, When::Judging] {
        let scratch = Scratch::new(&format!("notes-{when:?}"));
        let recorder = scratch.run();
        let [pruned, kept] = ["pruned", "kept"].map(|task| record(&recorder, task));
        let judge = if when == When::Alone { recorder.clone() } else { scratch.run() };
        let note = |target: NoteTarget, name: &str, value: Vec<u8>| {
            let note = judge.annotate(target, name, Value::bytes(value), "judge");
            note.expect("is taken").wait().expect("is durable");
        };
        let [on_pruned, on_kept] = [pruned, kept].map(NoteTarget::episode);
        note(on_pruned, "secret", noise(1));
        note(on_pruned.attempt(0).step(0), "on a step", noise(2));
        // The second of these refers to the first.
        note(on_pruned, "shared", noise(3));
        note(on_kept, "shared", noise(3));
        note(on_kept, "own", noise(4));
        drop(recorder);
        let judging = (when == When::Judging).then_some(judge);
        if when == When::Compacted {
            compact(&scratch);
        }
        let filter = PruneFilter::default().episodes([pruned]).reason("a secret").grace(Duration::ZERO);
        let store = scratch.store();
        store.prune(&filter, false, &mut |_| {}).expect("prunes");
        drop((store, judging));
        compact(&scratch);
        for seed in [1, 2] {
            let mut found = Vec::new();
            files_with(&scratch.0, &noise(seed), &mut found);
            assert!(found.is_empty(), "{when:?}: secret {seed} is in {found:?}");
        }
        let run = scratch.run();
        let index = run.notes().expect("reads");
        assert!(index.lost().is_empty(), "{when:?}: {:?}", index.lost());
        let (notes, lost) = index.episode(&kept).expect("reads");
        assert!(lost.is_empty(), "{when:?}: {lost:?}");
        let told: Vec<(&str, &Value)> =
            notes.iter().map(|(key, said)| (&*key.name, &said.last().unwrap().value)).collect();
        let (own, shared) = (Value::bytes(noise(4)), Value::bytes(noise(3)));
        assert_eq!(told, [("own", &own), ("shared", &shared)], "{when:?}");
        let report = run.store().verify(&mut |_| {}).expect("verifies");
        assert!(report.is_whole(), "{when:?}: {report:?}");
        assert_eq!(run.store().orphan_notes().expect("looks"), [], "{when:?}");
    }
}
