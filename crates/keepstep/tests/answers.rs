//! The same question has the same answer, whoever asks, in whichever way, and whenever.
//!
//! `KEEPSTEP_SEED` repeats a run, `KEEPSTEP_CASES` says how many histories.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "answers/ask.rs"]
mod ask;
#[path = "answers/history.rs"]
mod history;
#[path = "answers/old.rs"]
mod old;
#[path = "answers/paper.rs"]
mod paper;
mod scratch;

use std::time::Duration;

use keepstep::disk::Files;
use keepstep::disk::sim::SimDisk;
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, Entry, EpisodeName, Level, NoteTarget, Opening, Run, Step, WhenBusy};

use ask::differences;
use history::{History, run_on, text};
use paper::Paper;

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Another process that looks.
fn reader(sim: &SimDisk, run: &str) -> Run {
    run_on(sim.process(), run, 1 << 20)
}

fn compact(run: &Run) {
    let options = CompactOptions::default().grace(Duration::ZERO).block_bytes_max(600).subjects_max(2);
    for _ in 0..2 {
        run.store().compact(options.clone(), &mut |_| {}).expect("compacts");
    }
}

/// Deletes an episode that shares its log with the others.
fn prune_around(run: &Run) {
    let other = run.store().run("other", keepstep::Value::Null).expect("opens");
    let what = PruneFilter::default()
        .episodes([other.episode_id(&EpisodeName::task("other"))])
        .reason("a test")
        .grace(Duration::ZERO);
    let pruned = run.store().prune(&what, false, &mut |_| {}).expect("prunes");
    assert_eq!(pruned.episodes.len(), 1, "{pruned:?}");
    compact(run);
}

/// Breaks the index of all that `compact` made: it has to be made again, and all summaries with it.
fn break_indexes(sim: &SimDisk) {
    let disk = sim.process();
    for (path, content) in sim.files() {
        if path.starts_with("grouped/") && path.ends_with(".seg") {
            let at = content.len() - 60;
            let file = disk.open_rw(&path).expect("opens");
            file.write_at(&[content[at] ^ 1], at as u64).expect("writes");
        }
    }
}

/// The files of the catalog, with what is in them.
fn catalog_files(sim: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let mut files = sim.files();
    files.retain(|(path, _)| path.ends_with(".catalog"));
    assert!(!files.is_empty(), "there is no catalog");
    files
}

/// Puts other files in the place of the catalog.
fn replace_catalog(sim: &SimDisk, with: &[(String, Vec<u8>)]) {
    let disk = sim.process();
    for (path, _) in catalog_files(sim) {
        disk.remove(&path).expect("removes");
    }
    for (path, content) in with {
        let file = disk.create_new(path).expect("creates");
        file.write_at(content, 0).expect("writes");
    }
}

/// Asks with the catalog as it was before something was pruned, with a damaged one, and without any.
fn ask_with_catalogs(
    sim: &SimDisk,
    name: &str,
    before: &[(String, Vec<u8>)],
    paper: &Paper,
    found: &mut Vec<String>,
) {
    replace_catalog(sim, before);
    ask("with a catalog of before", &reader(sim, name), paper, true, found);
    let damaged: Vec<(String, Vec<u8>)> = before
        .iter()
        .map(|(path, content)| {
            let mut content = content.clone();
            let at = content.len() / 2;
            content[at] ^= 1;
            (path.clone(), content)
        })
        .collect();
    replace_catalog(sim, &damaged);
    ask("with a damaged catalog", &reader(sim, name), paper, false, found);
    replace_catalog(sim, &[]);
    ask("without a catalog", &reader(sim, name), paper, true, found);
}

/// Asks at one stage; verifying is asking, too.
fn ask(stage: &str, run: &Run, paper: &Paper, is_whole: bool, found: &mut Vec<String>) {
    found.extend(differences(run, paper).into_iter().map(|it| format!("{stage}: {it}")));
    let report = run.store().verify(&mut |_| {}).expect("verifies");
    if report.is_whole() != is_whole {
        found.push(format!("{stage}: verify says {report:?}"));
    }
}

/// Plays a history, and asks at every stage of it.
fn play(seed: u64, lies: bool) -> Vec<String> {
    let mut history = History::new(seed);
    let mut found = Vec::new();
    let name = history.paper.run.clone();
    for process in 0..3 {
        let recording = history.record();
        ask(&format!("{process} records"), &recording.run, &history.paper, true, &mut found);
        let stage = format!("{process} is looked at");
        ask(&stage, &reader(&history.sim, &name), &history.paper, true, &mut found);
        history.leave(recording);
        let stage = format!("{process} left");
        ask(&stage, &reader(&history.sim, &name), &history.paper, true, &mut found);
    }
    history.kill_all();
    let History { sim, mut paper, .. } = history;
    if lies {
        paper.lie();
    }
    ask("scanned", &reader(&sim, &name), &paper, true, &mut found);
    let tending = reader(&sim, &name);
    tending.store().reap().expect("reaps");
    paper.reap();
    ask("reaped", &reader(&sim, &name), &paper, true, &mut found);
    compact(&tending);
    ask("compacted, by whoever did it", &tending, &paper, true, &mut found);
    ask("compacted", &reader(&sim, &name), &paper, true, &mut found);
    let before = catalog_files(&sim);
    prune_around(&tending);
    ask("pruned around", &reader(&sim, &name), &paper, true, &mut found);
    ask_with_catalogs(&sim, &name, &before, &paper, &mut found);
    break_indexes(&sim);
    ask("without indexes", &reader(&sim, &name), &paper, false, &mut found);
    found
}

/// Whatever was recorded: everybody is told the same, at every stage, and it is what stands on paper.
#[test]
fn the_same_question_has_the_same_answer() {
    let (seed, cases) = (number_from("KEEPSTEP_SEED", 20_261_116), number_from("KEEPSTEP_CASES", 24));
    for seed in seed..seed + cases {
        let found = play(seed, false);
        assert!(
            found.is_empty(),
            "KEEPSTEP_SEED={seed}: {} answers differ:\n{}",
            found.len(),
            found.join("\n")
        );
    }
    println!("{cases} histories, from seed {seed}");
}

/// A model that sums up by another rule is told from one that keeps to it.
#[test]
fn another_rule_is_caught() {
    let caught = (20_261_116..20_261_126).find_map(|seed| {
        let found = play(seed, true);
        found.first().map(|first| format!("seed {seed}: {first}"))
    });
    println!("caught: {}", caught.expect("goes unnoticed"));
}

/// No reward was `None` while a segment was written, and 0.0 once it was sealed.
#[test]
fn no_reward_stays_none_when_a_store_is_closed() {
    let sim = SimDisk::new(1);
    let run = reader(&sim, "run");
    let episode = run.episode(EpisodeName::task("task")).expect("begins");
    episode.step(Step::new().action(1)).expect("records");
    episode.step(Step::new().action(2).reward(None)).expect("records");
    episode.end("finished", Ending::default()).and_then(|receipt| receipt.wait()).expect("ends");
    let total = || {
        let run = reader(&sim, "run");
        run.episodes(&keepstep::EpisodeFilter::default()).expect("lists")[0].summary.total_reward
    };
    assert_eq!(total(), None);
    drop(episode);
    run.store().close();
    assert_eq!(total(), None, "closed");
    compact(&reader(&sim, "run"));
    assert_eq!(total(), None, "compacted");
}

/// A name that is long enough to be stored once was empty for all but the first episode.
#[test]
fn long_names_are_told_for_every_episode() {
    let sim = SimDisk::new(2);
    let (name, task) = (text(1, 256), text(2, 9000));
    let process = sim.process();
    let run = run_on(process.clone(), &name, 1 << 20);
    let mut held = Vec::new();
    for sample in 0..3 {
        let episode = run.episode(EpisodeName::task(task.clone()).sample(sample)).expect("begins");
        episode.step(Step::new().action(sample)).expect("records");
        held.push(episode);
    }
    let check = |stage: &str| {
        let filter = keepstep::EpisodeFilter::default().task(task.clone());
        let found = reader(&sim, &name).episodes(&filter).expect("lists");
        assert_eq!(found.len(), 3, "{stage}");
        assert!(found.iter().all(|it| it.summary.run.as_ref() == Some(&name)), "{stage}");
    };
    check("live");
    process.kill();
    drop(held);
    check("killed");
    check("scanned");
    compact(&reader(&sim, &name));
    check("compacted");
}

/// `verify` missed the beginning of a copy that never had one: only a tail that nobody had synced was copied.
#[test]
fn a_copied_tail_is_whole() {
    let sim = SimDisk::new(3);
    let run = reader(&sim, "run");
    let before = run.episode(EpisodeName::task("task")).expect("begins");
    before.step(Step::new().action(1)).expect("records");
    before
        .record(Entry::step(Step::new().action(2)).at(Level::Kill))
        .and_then(|it| it.wait())
        .expect("records");
    let next = reader(&sim, "run");
    let taking = Opening::default().busy(WhenBusy::Take);
    let episode = next.open(EpisodeName::task("task"), taking).expect("takes over");
    assert_eq!(episode.inherited(), 2);
    let view = next.view(&EpisodeName::task("task")).expect("reads");
    let is_tail = |part: &keepstep::read::LineagePart| part.span.copied.is_some() && part.span.from > 0;
    assert!(view.parts().iter().any(is_tail), "{:?}", view.parts());
    let verify = || reader(&sim, "run").store().verify(&mut |_| {}).expect("verifies");
    assert!(verify().is_whole(), "{:?}", verify());
    drop((episode, before));
    next.store().close();
    run.store().close();
    assert!(verify().is_whole(), "{:?}", verify());
    // What the base names has to be there: without the log that has the copy, verify says what is missing.
    let writer = view.writer();
    sim.process().remove(&format!("writers/{writer}/0.seg")).expect("removes");
    let missing = verify().missing;
    assert!(missing.iter().any(|it| (it.writer, it.from, it.to) == (writer, 2, 3)), "{missing:?}");
}

/// An attempt whose owner stopped before its log said that anything is synced was in no list, and could not be found,
/// while the next one inherited its steps; a note on it was accepted, and `verify` called it an orphan.
#[test]
fn an_attempt_that_was_inherited_is_there() {
    let sim = SimDisk::new(4);
    let run = reader(&sim, "run");
    let before = run.episode(EpisodeName::task("task")).expect("begins");
    for action in 0..3 {
        let step = Entry::step(Step::new().action(action).reward(1.0)).at(Level::Kill);
        before.record(step).and_then(|it| it.wait()).expect("records");
    }
    let next = reader(&sim, "run");
    let taking = Opening::default().busy(WhenBusy::Take);
    let episode = next.open(EpisodeName::task("task"), taking).expect("takes over");
    assert_eq!(episode.inherited(), 3);
    let target = NoteTarget::episode(episode.id()).attempt(0);
    next.annotate(target, "score", 1.into(), "judge").and_then(|it| it.wait()).expect("notes");
    let check = |stage: &str| {
        let run = reader(&sim, "run");
        let store = run.store();
        let mut catalog = store.catalog().expect("reads");
        let all = store.list(&mut catalog).expect("lists");
        let one = store.list_one(&mut catalog, &episode.id()).expect("lists");
        for listed in [all, one] {
            let rows: Vec<_> = listed.iter().map(|it| (it.key.attempt, it.summary.steps)).collect();
            assert_eq!(rows, [(0, 3), (1, 3)], "{stage}");
            let old = &listed[0];
            assert!(old.trouble.is_none(), "{stage}: {old:?}");
            assert_eq!((old.state(), old.summary.total_reward), ("superseded", Some(3.0)), "{stage}");
            assert_eq!(old.summary.task.as_deref(), Some("task"), "{stage}");
            assert_eq!(store.view_of(&catalog, &old.key).expect("reads").steps(), 3, "{stage}");
        }
        let found = keepstep::refs::find(store, "run/task#0.0~0").expect("is found");
        assert_eq!((found.listed.key.attempt, found.listed.summary.steps), (0, 3), "{stage}");
        let view = run.view(&EpisodeName::task("task")).expect("reads");
        assert_eq!(view.attempt(0).expect("reads").steps(), 3, "{stage}");
        assert_eq!(store.orphan_notes().expect("looks"), [], "{stage}");
    };
    check("its owner is there");
    episode.step(Step::new().action(3)).expect("records");
    let _ = before.step(Step::new().action(9)).expect_err("is fenced");
    let view = reader(&sim, "run").view(&EpisodeName::task("task")).expect("reads");
    assert_eq!(
        (view.steps(), view.attempt(0).expect("reads").steps()),
        (4, 3),
        "what was refused is not there"
    );
}
