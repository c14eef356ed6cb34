//! Lists and exports: each attempt with what it inherited, and a step a line for others to read.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use std::time::Duration;

use keepstep::export::{ExportCounts, Jsonl, JsonlOptions};
use keepstep::read::EpisodeEvent;
use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{Ending, EpisodeName, Error, Listed, NoteTarget, Opening, Resume, Run, Step, Value, WhenBusy};

use scratch::Scratch;

/// Others see what a living process wrote a moment after it is durable.
fn until(is_seen: impl Fn() -> bool) {
    while !is_seen() {
        std::thread::yield_now();
    }
}

fn taking() -> Opening {
    Opening::default().busy(WhenBusy::Take)
}

/// Others see that an attempt has ended a moment after it has.
fn patient() -> Opening {
    Opening::default().busy(WhenBusy::Wait(Duration::from_secs(60)))
}

fn step(number: i64) -> Step {
    let prompt = (0..=number).map(|it| Value::from(format!("message {it}")));
    Step::new().prompt(Value::list(prompt.collect::<Vec<_>>())).action(number).reward(number as f64)
}

fn list(run: &Run) -> Vec<Listed> {
    let mut catalog = run.store().catalog().expect("reads");
    run.store().list(&mut catalog).expect("lists")
}

/// Task, attempt, state, steps, return, attempts, in force.
type Row = (String, u32, String, u64, Option<f64>, u32, bool);

fn rows(run: &Run) -> Vec<Row> {
    let mut rows: Vec<Row> = list(run)
        .iter()
        .map(|it| {
            assert!(it.trouble.is_none(), "{it:?}");
            let summary = &it.summary;
            let task = summary.task.clone().expect("has a name");
            (
                task,
                it.key.attempt,
                it.state().to_owned(),
                summary.steps,
                summary.total_reward,
                it.attempts,
                it.is_in_force,
            )
        })
        .collect();
    rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    rows
}

fn row(
    task: &str,
    attempt: u32,
    state: &str,
    steps: u64,
    total: Option<f64>,
    attempts: u32,
    force: bool,
) -> Row {
    (task.to_owned(), attempt, state.to_owned(), steps, total, attempts, force)
}

/// Each way to go on: all steps and return of a lineage are listed with the attempt that counts, and only one counts.
#[test]
fn a_list_has_what_each_attempt_inherited() {
    let scratch = Scratch::new("list");
    let (one, two) = (scratch.run(), scratch.run());
    let name = EpisodeName::task;
    let record = |episode: &keepstep::Episode, numbers: std::ops::Range<i64>| {
        numbers.for_each(|number| drop(episode.step(step(number)).expect("records")));
    };
    let end = |episode: keepstep::Episode| {
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    };
    // Taken over while alive, and finished by the taker.
    let old = one.episode(name("a-taken")).expect("begins");
    record(&old, 0..4);
    let new = two.open(name("a-taken"), taking()).expect("takes over");
    record(&new, 4..6);
    end(new);
    // Gone back to the second step, by its own process.
    let first = one.episode(name("b-rewound")).expect("begins");
    record(&first, 0..5);
    drop(first);
    let again = one.open(name("b-rewound"), patient().at(2)).expect("rewinds");
    record(&again, 2..3);
    // Begun anew, and nothing recorded yet: it still counts, with nothing inherited.
    let first = one.episode(name("c-restarted")).expect("begins");
    record(&first, 0..3);
    drop(first);
    let fresh = patient().resume(Resume::Restart);
    let anew = one.open(name("c-restarted"), fresh).expect("restarts");
    // Never taken over.
    let alone = one.episode(name("d-alone")).expect("begins");
    record(&alone, 0..2);
    until(|| rows(&two).last().map(|row| row.3) == Some(2));
    assert_eq!(
        rows(&two),
        [
            row("a-taken", 0, "superseded", 4, Some(6.0), 2, false),
            row("a-taken", 1, "finished", 6, Some(15.0), 2, true),
            row("b-rewound", 0, "aborted", 5, Some(10.0), 2, false),
            row("b-rewound", 1, "running", 3, Some(3.0), 2, true),
            row("c-restarted", 0, "aborted", 3, Some(3.0), 2, false),
            row("c-restarted", 1, "running", 0, None, 2, true),
            row("d-alone", 0, "running", 2, Some(1.0), 1, true),
        ]
    );
    // Whatever the one that was taken over says now is not how its attempt ended.
    drop((old, again, anew, alone));
    let old = &rows(&scratch.run())[0];
    assert_eq!(*old, row("a-taken", 0, "superseded", 4, Some(6.0), 2, false));
    let view = two.view(&name("a-taken")).expect("reads").attempt(0).expect("reads");
    assert_eq!(view.ending().expect("reads").expect("is known").why.as_deref(), Some("superseded"));
}

/// An attempt whose taker died right behind the base has no record of its own, and counts all the same.
#[test]
fn a_base_without_records_is_listed() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("base");
    let (one, two) = (scratch.run(), scratch.run());
    let name = || EpisodeName::task("task");
    let old = one.episode(name()).expect("begins");
    (0..3).for_each(|number| drop(old.step(step(number)).expect("records")));
    let new = two.open(name(), taking()).expect("takes over");
    let writer = list(&two).iter().find(|it| it.is_in_force).expect("is listed").key.writer;
    drop((old, new));
    one.store().close();
    two.store().close();
    // As if the power had gone before the taker's own log was there.
    let folder = scratch.0.join(format!("writers/{writer}"));
    for entry in std::fs::read_dir(&folder).expect("lists") {
        let path = entry.expect("lists").path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            std::fs::remove_file(path).expect("removes");
        }
    }
    std::fs::remove_dir_all(scratch.0.join("scans")).expect("removes");
    let reader = scratch.run();
    assert_eq!(
        rows(&reader),
        [
            row("task", 0, "superseded", 3, Some(3.0), 2, false),
            row("task", 1, "interrupted", 3, Some(3.0), 2, true),
        ]
    );
    // `prune` took the end of the earlier attempt for that of the episode.
    let chosen = |ending: &str| {
        let filter = PruneFilter::default().endings([ending]).reason("a test");
        let report = reader.store().prune(&filter, true, &mut |_| {}).expect("looks");
        report.episodes.len() + report.refused.len()
    };
    assert_eq!((chosen("superseded"), chosen("crashed")), (0, 0));
    // It is found dead like any other, and looking for the dead records nothing.
    for _ in 0..2 {
        let dead = reader.store().find_dead().expect("looks").dead;
        assert_eq!(dead.iter().map(|it| (it.attempt, it.steps)).collect::<Vec<_>>(), [(1, 3)]);
    }
    assert_eq!(reader.store().reap().expect("reaps").crashed.len(), 1);
    assert_eq!(reader.store().reap().expect("reaps").crashed.len(), 0);
    assert_eq!(rows(&reader)[1], row("task", 1, "crashed", 3, Some(3.0), 2, true));
    assert_eq!((chosen("superseded"), chosen("crashed")), (0, 1));
    let ending = reader.view(&name()).expect("reads").ending().expect("reads").expect("is known");
    assert_eq!(ending.said_by.as_deref(), Some("whoever found it"));
    assert!(ending.evidence.is_some() && ending.time.is_some());
}

/// A base that cannot be read hides neither its episode nor the others.
#[test]
fn a_damaged_base_is_told() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("damaged");
    let run = scratch.run();
    for task in ["a", "b"] {
        let episode = run.episode(EpisodeName::task(task)).expect("begins");
        episode.step(step(0)).expect("records");
    }
    let again = run.open(EpisodeName::task("a"), patient()).expect("goes on");
    again.step(step(1)).expect("records");
    let id = again.id().to_string();
    drop(again);
    let base = scratch.0.join(format!("claims/{}/{id}.1.base", &id[..2]));
    let mut bytes = std::fs::read(&base).expect("is there");
    bytes[40] ^= 1;
    std::fs::write(&base, bytes).expect("writes");
    let listed = list(&run);
    assert_eq!(listed.len(), 3);
    for it in &listed {
        let is_hit = it.summary.task.as_deref() == Some("a");
        assert_eq!(matches!(it.trouble, Some(Error::Damaged { .. })), is_hit, "{it:?}");
    }
}

fn exported(run: &Run, task: &str, options: JsonlOptions) -> (Vec<String>, ExportCounts) {
    let mut catalog = run.store().catalog().expect("reads");
    let mut jsonl = Jsonl::new(Vec::new(), options);
    let mut after = 0;
    for listed in run.store().list(&mut catalog).expect("lists") {
        if listed.is_in_force && listed.summary.task.as_deref() == Some(task) {
            let view = run.store().view_of(&catalog, &listed.key).expect("reads");
            jsonl.episode(&listed, &view, &mut || after += 1).expect("exports");
        }
    }
    let (out, counts) = jsonl.finish().expect("is written");
    assert_eq!((counts.bytes, counts.steps), (out.len() as u64, after));
    let text = String::from_utf8(out).expect("is text");
    (text.lines().map(str::to_owned).collect(), counts)
}

/// A line has what its step has, from whichever attempt; with `only_new` a prompt is what is new in it.
#[test]
fn a_step_is_a_line() {
    let scratch = Scratch::new("jsonl");
    let (one, two) = (scratch.run(), scratch.run());
    let name = || EpisodeName::task("a \"task\"").iteration(2).sample(1);
    let old = one.episode(name()).expect("begins");
    old.first(Step::new().observation("start")).expect("records").wait().expect("is durable");
    old.step(step(0)).expect("records");
    old.step(step(1)).expect("records");
    let new = two.open(name(), taking()).expect("takes over");
    new.step(Step::new().prompt("other").action(Value::bytes([1, 2])).reward(f64::NAN)).expect("records");
    new.step(Step::new().prompt("others").policy("v2").agent("walker")).expect("records");
    drop(new.turn(Step::new().action("left open")).expect("is said"));
    until(|| two.view(&name()).expect("reads").pending().expect("reads").is_some());
    let (full, counts) = exported(&two, "a \"task\"", JsonlOptions::default());
    assert_eq!((counts.episodes, counts.steps, counts.pending, counts.damaged), (1, 5, 1, 0));
    let id = two.episode_id(&name());
    let start = format!(
        r#"{{"run":"run","generation":0,"task":"a \"task\"","iteration":2,"sample":1,"episode":"{id}","attempt":1,"ending":"running","#
    );
    // Times differ; what stands before and behind them does not.
    let parts = |line: &str| {
        let rest = line.strip_prefix(&*start).unwrap_or_else(|| panic!("{line}"));
        let (before, rest) = rest.split_once(",\"time_us\":").expect("has a time");
        (before.to_owned(), rest.split_once(',').map_or("", |(_, behind)| behind).to_owned())
    };
    let known = [
        (r#""recorded_in":0,"index":0,"kind":"FIRST""#, r#""observation":"start"}"#),
        (r#""recorded_in":0,"index":1,"kind":"MID""#, r#""prompt":["message 0"],"action":0,"reward":0.0}"#),
        (
            r#""recorded_in":0,"index":2,"kind":"MID""#,
            r#""prompt":["message 0","message 1"],"action":1,"reward":1.0}"#,
        ),
        (
            r#""recorded_in":1,"index":3,"kind":"MID""#,
            r#""prompt":"other","action":{"$bytes":"AQI="},"reward":{"$float":"nan"}}"#,
        ),
        (r#""recorded_in":1,"index":4,"kind":"MID""#, r#""prompt":"others","policy":"v2","agent":"walker"}"#),
    ];
    let told: Vec<(String, String)> = full.iter().map(|line| parts(line)).collect();
    assert_eq!(told, known.map(|(before, behind)| (before.to_owned(), behind.to_owned())));
    let (new_only, _) = exported(&two, "a \"task\"", JsonlOptions::default().only_new(true));
    assert_eq!(new_only[..2], full[..2]);
    assert!(
        new_only[2].contains(r#","prompt_repeats":1,"prompt_new":["message 1"],"action":1"#),
        "{new_only:?}"
    );
    assert!(new_only[3].contains(r#","prompt":"other","#), "nothing of a list is in a text: {new_only:?}");
    assert!(new_only[4].contains(r#","prompt_repeats":5,"prompt_new":"s","#), "{new_only:?}");
    drop((old, new));
}

/// What is told one by one is what is read at once, whoever recorded it.
#[test]
fn telling_is_reading() {
    let scratch = Scratch::new("told");
    let runs: Vec<Run> = (0..3).map(|_| scratch.run()).collect();
    let mut open = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let episode = run.open(EpisodeName::task("task"), taking()).expect("takes over");
        for at in 0..3 {
            episode.step(step((number * 3 + at) as i64)).expect("records");
        }
        let called = episode.call_once("look", None, Value::Null, || Ok(Value::from("seen")));
        called.expect("records").expect("returns");
        open.push(episode);
    }
    open[2].end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    let view = || runs[0].view(&EpisodeName::task("task")).expect("reads");
    until(|| view().ending().expect("reads").is_some());
    let view = view();
    let read = view.read().expect("reads");
    let (mut steps, mut calls, mut ends) = (Vec::new(), 0, 0);
    for told in view.events() {
        match told.expect("is read") {
            EpisodeEvent::Step(step) => steps.push(*step),
            EpisodeEvent::Call(_) => calls += 1,
            EpisodeEvent::End(_) => ends += 1,
            EpisodeEvent::Begin(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(steps, read.steps);
    assert_eq!((calls, ends, steps.len()), (read.calls.len(), 1, 9));
    let by: Vec<u32> = (0..9).map(|index| view.attempt_of(index)).collect();
    assert_eq!(by, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    drop(open);
}

/// What stands behind the names of the episode and the time, by the kind of the line.
fn lines_of<'l>(lines: &'l [String], kind: &str) -> Vec<(&'l str, &'l str)> {
    let mark = format!(",\"kind\":\"{kind}\",\"time_us\":");
    let parts = lines.iter().filter_map(|line| line.split_once(&*mark));
    parts
        .map(|(before, behind)| {
            let names = before.find("\"ending\":").expect("has the names of its episode");
            let rest = before[names..].split_once(',').map_or("", |(_, rest)| rest);
            (rest, behind.split_once(',').expect("has more than a time").1)
        })
        .collect()
}

/// Calls and notes are lines of their own, if they are wanted; the lines of steps stay as they are. Notes count from
/// whomever, of each name and source the newest, and those on what the attempt did not inherit are left out.
#[test]
fn calls_and_notes_are_lines_too() {
    let scratch = Scratch::new("kinds");
    let (one, judge) = (scratch.run(), scratch.run());
    let name = || EpisodeName::task("task");
    let id = one.episode_id(&name());
    let old = one.episode(name()).expect("begins");
    let mood = |at: u64, said: &str| {
        let noted = old.note("mood", Value::from(said), "agent", Some(at)).expect("notes");
        noted.wait().expect("is durable");
    };
    for number in 0..4 {
        let called = old.call_once("look", None, Value::Int(number), || Ok(Value::from("seen")));
        called.expect("records").expect("returns");
        old.step(step(number)).expect("records");
        if number == 0 {
            mood(0, "calm");
        }
    }
    // Both are behind the place that the next attempt goes back to.
    mood(1, "late");
    mood(3, "gone");
    drop(old);
    let again = one.open(name(), patient().at(2)).expect("goes back");
    let failed = again.call_once("buy", Some("key"), Value::Null, || Err(Value::from("no money")));
    assert!(failed.expect("records").is_err());
    again.step(step(7)).expect("records");
    again.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(again);
    let say = |target: NoteTarget, name: &str, value: f64| {
        let said = judge.annotate(target, name, Value::Float(value), "judge").expect("notes");
        said.wait().expect("is durable");
    };
    let episode = NoteTarget::episode(id);
    say(episode, "score", 0.25);
    say(episode, "score", 0.75);
    say(episode.attempt(1), "score", 0.5);
    say(episode.step(2), "score", 1.5);
    say(episode.attempt(0).step(2), "score", 2.5);
    judge.store().close();
    one.store().close();
    drop((one, judge));

    let (steps, counts) = exported(&scratch.run(), "task", JsonlOptions::default());
    assert_eq!((counts.steps, counts.calls, counts.notes, steps.len()), (3, 0, 0, 3));
    // As they were recorded, and regrouped.
    for round in 0..2 {
        let run = scratch.run();
        let mut jsonl = Jsonl::new(Vec::new(), JsonlOptions::default().calls(true));
        let mut catalog = run.store().catalog().expect("reads");
        let listed = run.store().list(&mut catalog).expect("lists");
        let listed = listed.iter().find(|it| it.is_in_force).expect("is there");
        let view = run.store().view_of(&catalog, &listed.key).expect("reads");
        jsonl.episode(listed, &view, &mut || {}).expect("exports");
        jsonl.notes(listed, &view, &run.notes().expect("reads")).expect("exports");
        let (out, counts) = jsonl.finish().expect("is written");
        let lines: Vec<String> =
            String::from_utf8(out).expect("is text").lines().map(str::to_owned).collect();
        let notes = (counts.notes, counts.notes_elsewhere);
        assert_eq!((counts.steps, counts.calls, notes), (3, 3, (4, 3)), "round {round}: {lines:#?}");
        assert_eq!(
            lines_of(&lines, "CALL"),
            [
                (r#""index":0"#, r#""name":"look","ordinal":0,"arguments":0,"result":"seen"}"#),
                (r#""index":1"#, r#""name":"look","ordinal":0,"arguments":1,"result":"seen"}"#),
                (r#""index":2"#, r#""name":"buy","key":"key","arguments":null,"error":"no money"}"#),
            ],
            "round {round}"
        );
        assert_eq!(
            lines_of(&lines, "NOTE"),
            [
                ("", r#""name":"score","value":0.75,"source":"judge"}"#),
                (r#""index":2"#, r#""name":"score","value":1.5,"source":"judge"}"#),
                (r#""on_attempt":0,"index":0"#, r#""name":"mood","value":"calm","source":"agent"}"#),
                (r#""on_attempt":1"#, r#""name":"score","value":0.5,"source":"judge"}"#),
            ],
            "round {round}"
        );
        let of_steps: Vec<&String> = lines.iter().filter(|it| it.contains("\"recorded_in\"")).collect();
        assert_eq!(of_steps, steps.iter().collect::<Vec<_>>(), "round {round}: they are as without");
        drop(run);
        let at_once = CompactOptions::default().grace(Duration::ZERO);
        scratch.run().store().compact(at_once, &mut |_| {}).expect("compacts");
    }
}

/// Exports had a note that was made on an earlier attempt from outside, which views and plans did not have; and left out
/// one on an inherited step of this attempt, which they had.
#[test]
fn an_export_has_the_notes_of_the_view() {
    let scratch = Scratch::new("same-notes");
    let (one, judge) = (scratch.run(), scratch.run());
    let name = || EpisodeName::task("task");
    let target = NoteTarget::episode(one.episode_id(&name()));
    let say = |target: NoteTarget, name: &str| {
        let said = judge.annotate(target, name, Value::Int(1), "judge").expect("notes");
        said.wait().expect("is durable");
    };
    let old = one.episode(name()).expect("begins");
    (0..2).for_each(|number| drop(old.step(step(number)).expect("records")));
    old.note("inside", Value::Int(1), "agent", None).expect("notes").wait().expect("is durable");
    until(|| one.view(&name()).is_ok_and(|view| view.steps() == 2));
    say(target.attempt(0), "outside");
    say(target.step(1), "on the episode's step");
    drop(old);
    let again = one.open(name(), patient().at(1)).expect("goes back");
    again.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(again);
    say(target.attempt(1).step(0), "on an inherited step");
    judge.store().close();
    one.store().close();
    let run = scratch.run();
    let (index, mut catalog) = (run.notes().expect("reads"), run.store().catalog().expect("reads"));
    let (notes, _) = index.episode(&target.episode).expect("reads");
    let known: [&[&str]; 2] = [&["on the episode's step", "inside", "outside"], &["on an inherited step"]];
    for (listed, known) in run.store().list(&mut catalog).expect("lists").iter().zip(known) {
        let view = run.store().view_of(&catalog, &listed.key).expect("reads");
        let counting: Vec<String> = view.counting(&notes).into_iter().map(|(key, _)| key.name).collect();
        assert_eq!(counting, known, "attempt {}", view.number());
        let mut jsonl = Jsonl::new(Vec::new(), JsonlOptions::default());
        jsonl.notes(listed, &view, &index).expect("exports");
        let (out, counts) = jsonl.finish().expect("is written");
        let text = String::from_utf8(out).expect("is text");
        let name_of = |line: &str| {
            let rest = line.split_once("\"name\":\"").expect("has one").1;
            rest.split('"').next().expect("ends").to_owned()
        };
        assert_eq!(text.lines().map(name_of).collect::<Vec<_>>(), counting, "attempt {}", view.number());
        assert_eq!(counts.notes + counts.notes_elsewhere, 4);
    }
}
