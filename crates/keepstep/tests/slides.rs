//! Histories that slide: a window over a long chat, with and without a first message that stays, or summed up in the middle.
//! Each version comes back, whoever reads it and whenever; and a step costs what is new in it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::time::Duration;

use keepstep::tend::CompactOptions;
use keepstep::{Ending, EpisodeName, Options, Run, Step, Store, Value};
use scratch::Scratch;

/// Numbers by chance, from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn message(&mut self, bytes: u64) -> Value {
        let content: Vec<u8> = (0..bytes).map(|_| self.below(256) as u8).collect();
        Value::map([("role", Value::from("user")), ("content", Value::bytes(content))])
    }
}

/// Where the files of a store end, summed up.
fn bytes_of(scratch: &Scratch) -> u64 {
    let segments = scratch.files(".seg");
    segments.iter().map(|path| std::fs::metadata(path).expect("is there").len()).sum()
}

/// Records a window of 400 messages that moves by one a step, and tells how many bytes a step took.
fn bytes_a_step(keeps_first: bool, moves: bool) -> u64 {
    let scratch = Scratch::new(&format!("window-{keeps_first}-{moves}"));
    let run = scratch.open(Options::default().dictionary(false)).run("run", Value::Null).expect("opens");
    let episode = run.episode(EpisodeName::task("task")).expect("begins");
    let mut chance = Chance(7);
    let mut window: Vec<Value> = (0..400).map(|_| chance.message(300)).collect();
    let tell = |window: &[Value]| episode.step(Step::new().prompt(Value::list(window.iter().cloned())));
    tell(&window).expect("records");
    let before = bytes_of(&scratch);
    let steps = 330;
    for _ in 0..steps {
        if moves {
            window.remove(usize::from(keeps_first));
        }
        window.push(chance.message(300));
        tell(&window).expect("records");
    }
    (bytes_of(&scratch) - before) / steps
}

/// A window that moves costs at most 1.2 KB a step for a new message of 300 bytes, where it kept a reference for each of its
/// messages: 9 KB. A history that only grows costs what it did.
#[test]
fn a_window_that_moves_costs_what_is_new() {
    for (keeps_first, moves, limit) in [(false, true, 1_200), (true, true, 1_200), (false, false, 700)] {
        let each = bytes_a_step(keeps_first, moves);
        assert!(each <= limit, "keeps the first {keeps_first}, moves {moves}: {each} bytes a step");
    }
}

/// Changes a history as agents do.
fn change(history: &mut Vec<Value>, chance: &mut Chance) {
    let bytes = [20, 100, 300, 6_000][chance.below(4) as usize];
    for _ in 0..chance.below(3) {
        history.push(chance.message(bytes));
    }
    let length = history.len() as u64;
    let count = chance.below(5).min(length) as usize;
    match chance.below(5) {
        0 => drop(history.drain(..count)),
        1 if length > 1 => drop(history.drain(1..(1 + count).min(history.len()))),
        2 => {
            let from = chance.below(length + 1) as usize;
            let to = (from + chance.below(12) as usize).min(history.len());
            let summary = chance.message(400);
            history.splice(from..to, [summary]);
        }
        3 => history.truncate(history.len() - count.min(2)),
        _ => {}
    }
}

/// The prompts of a run's episodes, as they are read.
fn read(run: &Run, episodes: usize) -> Vec<Vec<Value>> {
    let prompts = |at: usize| {
        let view = run.view(&EpisodeName::task(format!("t{at}"))).expect("reads");
        let attempt = view.read().expect("reads");
        assert!(attempt.is_whole(), "{attempt:?}");
        attempt.steps.iter().map(|step| step.prompt.clone().unwrap().plain().clone()).collect()
    };
    (0..episodes).map(prompts).collect()
}

fn verify(store: &Store) {
    let report = store.verify(&mut |_| {}).expect("verifies");
    assert!(report.is_whole(), "{report:?}");
}

/// Any history, told anew at every step by several episodes at once, comes back: while it is recorded, closed, compacted.
#[test]
fn histories_that_slide_come_back_at_every_stage() {
    let seed = std::env::var("KEEPSTEP_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(20_261_117);
    eprintln!("KEEPSTEP_SEED={seed}");
    let mut chance = Chance(seed);
    let scratch = Scratch::new("stages");
    let options = || Options::default().segment_bytes_max(256 << 10).index_bytes_max(64 << 10);
    let (episodes, steps) = (4, 120);
    let run = scratch.open(options()).run("run", Value::Null).expect("opens");
    let open: Vec<_> =
        (0..episodes).map(|at| run.episode(EpisodeName::task(format!("t{at}"))).expect("begins")).collect();
    let mut histories: Vec<Vec<Value>> =
        (0..episodes).map(|_| (0..30).map(|_| chance.message(300)).collect()).collect();
    let mut told: Vec<Vec<Value>> = vec![Vec::new(); episodes];
    for step in 0..steps {
        for (at, episode) in open.iter().enumerate() {
            change(&mut histories[at], &mut chance);
            let prompt = Value::list(histories[at].iter().cloned());
            episode.step(Step::new().prompt(prompt.clone())).expect("records");
            told[at].push(prompt);
        }
        if step % 40 == 0 {
            assert_eq!(read(&scratch.run(), episodes), told, "while it is recorded");
        }
    }
    for episode in &open {
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    drop((open, run));
    let run = scratch.run();
    assert_eq!(read(&run, episodes), told, "closed");
    verify(run.store());
    run.store().compact(CompactOptions::default().grace(Duration::ZERO), &mut |_| {}).expect("compacts");
    assert_eq!(read(&scratch.run(), episodes), told, "compacted");
    verify(run.store());
}
