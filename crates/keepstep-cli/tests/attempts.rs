//! The verbs on episodes that were taken over: lists, lineages, differences, exports, the dead.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says why it was skipped"
)]

mod program;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use keepstep::{
    Ending, Episode, EpisodeName, NoteTarget, Opening, Options, Run, Step, Store, Value, WhenBusy,
};
use program::{Printed, Scratch, json_lines, program, run};

/// Another opener of the same store: it has a writer of its own, as another process would.
fn opener(scratch: &Scratch) -> Run {
    Store::open(scratch.path("s"), Options::default()).unwrap().run("shop", Value::Null).unwrap()
}

fn taking() -> Opening {
    Opening::default().busy(WhenBusy::Take)
}

/// Others see that an attempt has ended a moment after it has.
fn patient() -> Opening {
    Opening::default().busy(WhenBusy::Wait(Duration::from_secs(60)))
}

fn message(number: i64) -> Value {
    let content = format!("message {number}: {}", "go round the shop once more ".repeat(20));
    Value::map([("role", Value::from("user")), ("content", Value::from(content))])
}

fn step(number: i64, action: &str) -> Step {
    Step::new()
        .prompt(Value::list((0..=number).map(message).collect::<Vec<_>>()))
        .action(action)
        .observation(format!("seen {number}"))
        .reward(0.5)
}

fn record(episode: &Episode, numbers: std::ops::Range<i64>, action: &str) {
    numbers.for_each(|number| drop(episode.step(step(number, action)).unwrap()));
}

fn end(episode: &Episode, why: &str) {
    episode.end(why, Ending::default()).unwrap().wait().unwrap();
}

/// `taken`: three steps by one, taken over, two more by another, finished. `back`: five steps, gone back to the second,
/// one other step, errored. `alone`: two steps, and a turn that is pending; still running.
struct Shop {
    scratch: Scratch,
    alone: Option<Episode>,
}

/// Others see what a living process wrote a moment after it is durable.
fn wait_until_seen(episode: &Episode) {
    let store = episode.run().store();
    while store.view(&episode.id()).unwrap().pending().unwrap().is_none() {
        std::thread::yield_now();
    }
}

impl Shop {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (one, two) = (opener(&scratch), opener(&scratch));
        let old = one.episode(EpisodeName::task("taken")).unwrap();
        record(&old, 0..3, "walk");
        let new = two.open(EpisodeName::task("taken"), taking()).unwrap();
        record(&new, 3..5, "walk");
        end(&new, "finished");
        let first = one.episode(EpisodeName::task("back")).unwrap();
        record(&first, 0..5, "walk");
        drop(first);
        let again = two.open(EpisodeName::task("back"), patient().at(2)).unwrap();
        record(&again, 2..3, "run");
        end(&again, "errored");
        let alone = one.episode(EpisodeName::task("alone")).unwrap();
        record(&alone, 0..2, "walk");
        drop(alone.turn(Step::new().action("buy")).unwrap());
        two.store().close();
        wait_until_seen(&alone);
        Self { scratch, alone: Some(alone) }
    }

    fn run(&self, arguments: &[&str]) -> Printed {
        program()
            .current_dir(self.scratch.dir())
            .env("KEEPSTEP_STORE", "s")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
            .into()
    }

    fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        json_lines(&said).into_iter().map(str::to_owned).collect()
    }
}

/// The text under a key of a flat JSON object.
fn text(line: &str, key: &str) -> String {
    let mark = format!("\"{key}\":\"");
    let from = line.find(&mark).unwrap_or_else(|| panic!("no {key} in {line}")) + mark.len();
    line[from..].split('"').next().unwrap().to_owned()
}

fn number(line: &str, key: &str) -> u64 {
    Printed { code: None, out: line.to_owned(), err: String::new() }.number(key)
}

/// Name, state, steps and attempts of each line.
fn told(lines: &[String]) -> Vec<(String, String, u64, u64)> {
    let tell =
        |it: &String| (text(it, "ref"), text(it, "state"), number(it, "steps"), number(it, "attempts"));
    lines.iter().map(tell).collect()
}

fn known(name: &str, state: &str, steps: u64, attempts: u64) -> (String, String, u64, u64) {
    (name.to_owned(), state.to_owned(), steps, attempts)
}

#[test]
fn an_episode_is_listed_by_the_attempt_that_counts() {
    let shop = Shop::new();
    let (alone, back, taken) = (
        known("shop/alone#0.0", "running", 2, 1),
        known("shop/back#0.0", "errored", 3, 2),
        known("shop/taken#0.0", "finished", 5, 2),
    );
    let all = [alone.clone(), back.clone(), taken.clone()];
    assert_eq!(told(&shop.lines(&["ls", "shop", "--json"])), all);
    assert_eq!(told(&shop.lines(&["ls", "-a", "--json"])), all);
    let lines = shop.lines(&["ls", "shop", "--attempts", "--json"]);
    let known_all = [
        alone.clone(),
        known("shop/back#0.0~0", "aborted", 5, 2),
        back.clone(),
        known("shop/taken#0.0~0", "superseded", 3, 2),
        taken.clone(),
    ];
    assert_eq!(told(&lines), known_all);
    // The return is that of the lineage.
    assert!(lines[4].contains("\"return\":2.5") && lines[2].contains("\"return\":1.5"), "{lines:?}");
    let runs = shop.run(&["ls", "--json"]);
    assert_eq!((runs.number("episodes"), runs.number("steps")), (3, 10), "{runs:?}");
    assert!(runs.out.contains(r#""states":{"errored":1,"finished":1,"running":1}"#), "{runs:?}");
    for (arguments, wanted) in [
        (&["ls", "--ending", "errored,finished"][..], vec![&back, &taken]),
        (&["ls", "--task", "back"], vec![&back]),
        (&["ls", "--run", "shop", "--ending", "running"], vec![&alone]),
        (&["ls", "--since", "1h"], vec![&alone, &back, &taken]),
        (&["ls", "--since", "2999-01-01"], vec![]),
        (&["ls", "shop/taken~1"], vec![&taken]),
    ] {
        let lines = shop.lines(&[arguments, &["--json"]].concat());
        assert_eq!(told(&lines).iter().collect::<Vec<_>>(), wanted, "{arguments:?}");
    }
    let said = shop.run(&["ls", "shop"]);
    assert!(said.err.contains("3 episodes: 1 errored, 1 finished, 1 running"), "{said:?}");
    let stats = shop.run(&["stats", "--json"]);
    assert_eq!((stats.number("episodes"), stats.number("attempts"), stats.number("steps")), (3, 5, 10));
}

#[test]
fn an_episode_is_shown_with_its_lineage() {
    let shop = Shop::new();
    let said = shop.run(&["show", "shop/taken"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let process = std::process::id();
    for part in [
        "shop/taken#0.0  finished, 5 steps, return 2.5".to_owned(),
        ", attempt ~1 of 2 (~0, ~1)".to_owned(),
        "ended   finished".to_owned(),
        format!("steps   0 to 2 from attempt ~0, by process {process}"),
        format!("        3 to 4 from attempt ~1, by process {process}"),
        "    4  LAST".to_owned(),
    ] {
        assert!(said.out.contains(&part), "no {part:?} in {}", said.out);
    }
    let lines = shop.lines(&["show", "shop/taken", "--json"]);
    let indices: Vec<u64> =
        lines.iter().filter(|it| it.contains(r#""what":"step""#)).map(|it| number(it, "index")).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4]);
    let parts: Vec<[u64; 3]> = lines
        .iter()
        .filter(|it| it.contains(r#""what":"lineage""#))
        .map(|it| ["attempt", "from_step", "to_step"].map(|key| number(it, key)))
        .collect();
    assert_eq!(parts, [[0, 0, 3], [1, 3, 5]]);

    let old = shop.run(&["show", "shop/taken~0"]);
    for part in ["shop/taken#0.0~0  superseded, 3 steps", "ended   superseded, by the process that took over"]
    {
        assert!(old.out.contains(part), "no {part:?} in {}", old.out);
    }
    let old = shop.lines(&["show", "shop/taken~0", "--json"]);
    assert!(old.last().unwrap().contains(r#""what":"end""#) && old.last().unwrap().contains("superseded"));
    let inherited = shop.run(&["show", "shop/taken@1"]);
    assert!(inherited.out.contains("from: attempt ~0") && inherited.out.contains("seen 1"), "{inherited:?}");
    let pending = shop.run(&["show", "shop/alone"]);
    assert!(pending.out.lines().last().unwrap().contains("buy"), "{pending:?}");
    let pending = shop.run(&["show", "shop/alone@2"]);
    assert!(pending.code == Some(0) && pending.out.contains("action: buy"), "{pending:?}");
    let nothing = shop.run(&["show", "shop/alone~1"]);
    assert!(nothing.code == Some(1) && nothing.tells_error_and_hint(), "{nothing:?}");
}

#[test]
fn two_attempts_are_compared_step_by_step() {
    let shop = Shop::new();
    let said = shop.run(&["diff", "shop/back~0", "shop/back"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for part in [
        "A  shop/back#0.0~0  5 steps, aborted",
        "B  shop/back#0.0  3 steps, errored",
        "step 2\n  action\n    A \"walk\"\n    B \"run\"\n",
        "the same up to step 1 (2 steps); 3 steps differ in steps 2 to 4, 2 only in A; they ended differently",
    ] {
        assert!(said.out.contains(part), "no {part:?} in {}", said.out);
    }
    assert!(!said.out.contains("step 3\n"), "only the first is shown: {}", said.out);
    let all = shop.run(&["diff", "shop/back~0", "shop/back", "--all"]);
    assert!(all.out.contains("step 4\n  turn\n    A step\n    B (nothing)\n"), "{}", all.out);

    let lines = shop.run(&["diff", "shop/back~0", "shop/back", "--all", "--json"]);
    assert_eq!(lines.code, Some(1));
    let lines = json_lines(&lines).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines[0], r#"{"what":"difference","step":2,"path":"action","a":"walk","b":"run"}"#);
    let summary = lines.last().unwrap();
    assert!(summary.contains(r#""what":"summary""#) && summary.contains(r#""same":false"#), "{summary}");
    let counts =
        ["steps_a", "steps_b", "same_steps", "first_difference", "differing_steps", "only_a", "only_b"];
    assert_eq!(counts.map(|key| number(summary, key)), [5, 3, 2, 2, 3, 2, 0]);

    // What is compared with itself is the same, and so are fields that do not differ.
    let same = shop.run(&["diff", "shop/taken", "shop/taken"]);
    assert!(same.code == Some(0) && same.out.contains("all 5 steps are the same"), "{same:?}");
    let same = shop.run(&["diff", "shop/taken~0", "shop/alone", "--fields", "reward,observation"]);
    assert!(same.code == Some(1) && same.out.contains("the same up to step 1"), "{same:?}");
    let pending = shop.run(&["diff", "shop/taken~0", "shop/alone"]);
    assert!(pending.out.contains("step 2\n  turn\n    A \"step\"\n    B \"pending\"\n"), "{}", pending.out);
}

/// A long text that changed is shown where it changed.
#[test]
fn of_long_texts_the_changed_part_is_shown() {
    let shop = Shop::new();
    let run = opener(&shop.scratch);
    let long = |word: &str| format!("{} {word} {}", "before ".repeat(200), "after ".repeat(200));
    for (sample, word) in [(0, "left"), (1, "right")] {
        let episode = run.episode(EpisodeName::task("long").sample(sample)).unwrap();
        let said = Value::map([("role", Value::from("user")), ("content", Value::from(long(word)))]);
        episode.step(Step::new().prompt(Value::list([said]))).unwrap();
        end(&episode, "finished");
    }
    let said = shop.run(&["diff", "shop/long#0.0", "shop/long#0.1"]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("  prompt[0].content\n"), "{}", said.out);
    assert!(said.out.lines().all(|line| line.chars().count() < 120), "{}", said.out);
    assert!(
        said.out.contains("before  left after") && said.out.contains("before  right after"),
        "{}",
        said.out
    );
}

#[test]
fn episodes_are_exported_a_step_a_line() {
    let shop = Shop::new();
    let said = shop.run(&["export", "jsonl", "shop"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let full = json_lines(&said).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(full.len(), 10);
    assert!(
        said.err.contains("3 episodes, 10 steps, ") && said.err.contains("1 errored, 1 running"),
        "{said:?}"
    );
    assert!(said.err.contains("hint: --ending finished,truncated"), "{said:?}");
    let taken: Vec<_> = full.iter().filter(|it| it.contains(r#""task":"taken""#)).collect();
    assert_eq!(taken.iter().map(|it| number(it, "recorded_in")).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);

    let new = shop.run(&["export", "jsonl", "shop", "--new", "--ending", "finished,truncated"]);
    let lines = json_lines(&new);
    assert_eq!(lines.len(), 5);
    assert!(new.err.contains("left out: 1 errored, 1 running") && !new.err.contains("hint"), "{new:?}");
    let repeats: Vec<u64> = lines[1..].iter().map(|it| number(it, "prompt_repeats")).collect();
    assert_eq!(repeats, [1, 2, 3, 4]);
    assert!(
        lines[0].contains(r#""prompt":[{"#)
            && lines[4].contains(r#""prompt_new":[{"role":"user","content":"message 4:"#)
    );
    assert!(new.out.len() * 2 < taken.iter().map(|it| it.len()).sum(), "what is repeated is left out");

    // To a file: whole, in place of what was there, and what was written is told.
    let file = shop.scratch.path("steps.jsonl");
    std::fs::write(&file, "old").unwrap();
    let said = shop.run(&["export", "jsonl", "--all", "-o", "steps.jsonl", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((said.number("episodes"), said.number("steps")), (3, 10));
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!((written.lines().count(), written.len() as u64), (10, said.number("bytes")));
    let one = shop.run(&["export", "jsonl", "shop/back~0", "-o", "-"]);
    assert_eq!((json_lines(&one).len(), number(&one.out, "attempt")), (5, 0), "{one:?}");
    let names: Vec<String> = std::fs::read_dir(shop.scratch.dir())
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().all(|name| !name.starts_with(".tmp-")), "{names:?}");
}

/// Calls and notes are lines of their own kinds, if they are asked for; what was written is counted.
#[test]
fn calls_and_notes_are_exported_too() {
    let shop = Shop::new();
    let judge = opener(&shop.scratch);
    let target = NoteTarget::episode(judge.episode_id(&EpisodeName::task("taken")));
    judge.annotate(target, "score", Value::Float(0.5), "judge").unwrap().wait().unwrap();
    let called = |alone: &Episode| alone.call_once("look", None, Value::Null, || Ok("seen".into()));
    shop.alone.as_ref().map(called).unwrap().unwrap().unwrap();
    judge.store().close();
    // Others see the call a moment after it is durable.
    let said = || shop.run(&["export", "jsonl", "shop", "--calls", "--notes"]);
    while !said().err.contains("3 episodes, 10 steps, 1 call, 1 note, ") {}
    let all = said();
    let of_kind = |kind: &str| *json_lines(&all).iter().find(|it| text(it, "kind") == kind).unwrap();
    assert!(of_kind("NOTE").contains(r#""task":"taken""#) && text(of_kind("NOTE"), "source") == "judge");
    assert_eq!(text(of_kind("CALL"), "result"), "seen");
}

/// Damage in the middle of an export: the lines say what is lost, the exit code too, and the rest is there.
#[test]
fn a_damaged_episode_is_exported_as_far_as_it_can_be() {
    let mut shop = Shop::new();
    drop(shop.alone.take());
    let mut hit = 0;
    for writer in std::fs::read_dir(shop.scratch.path("s/writers")).unwrap() {
        let path = writer.unwrap().path().join("0.seg");
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        // In the first record behind the header and its bind.
        let at = 128 + 24 + 20 + 24 + 40;
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        hit += 1;
    }
    assert!(hit > 0);
    let said = shop.run(&["export", "jsonl", "shop", "-o", "steps.jsonl"]);
    let verified = shop.run(&["verify"]);
    assert_eq!(verified.code, Some(3), "{verified:?}");
    assert!(matches!(said.code, Some(3)), "{said:?}");
    assert!(said.err.contains("hint: "), "{said:?}");
}

#[test]
fn what_is_wrong_is_told_with_a_hint() {
    let shop = Shop::new();
    std::fs::create_dir(shop.scratch.path("folder")).unwrap();
    let cases: [(&[&str], i32, &str); 18] = [
        (&["ls", "--ending", "exploded"], 2, "no episode ends as \"exploded\""),
        (&["ls", "--since", "soon"], 2, "\"soon\" is no time"),
        (&["ls", "shop/nope"], 1, "no run or episode here is called"),
        (&["diff", "shop/taken", "shop/nope"], 1, "no episode here is called"),
        (&["diff", "shop/taken", "shop"], 1, "may mean any of 3 episodes"),
        (&["diff", "shop/taken", "shop/taken~7"], 1, "there is no attempt 7 of shop/taken"),
        (&["diff", "shop/taken", "shop/taken@1"], 2, "is a step"),
        (&["diff", "shop/taken", "shop/back", "--fields", "smell"], 2, "steps have no field \"smell\""),
        (&["diff", "shop/taken@x", "shop/back"], 2, "is not a number"),
        (&["export", "jsonl", "shop/nope"], 1, "no run or episode here is called"),
        (&["export", "jsonl", "shop/taken@1"], 2, "is a step"),
        (&["export", "jsonl", "shop", "--json"], 2, "--json needs -o"),
        (&["export", "csv", "shop"], 2, "hint: give jsonl, which is the only format"),
        (&["export", "jsonl", "shop", "-o", "folder"], 1, "is a directory\nhint: name a file"),
        (&["export", "jsonl", "shop", "-o", "/dev/null"], 1, "is a device or a pipe"),
        (&["export", "jsonl", "shop", "-o", "nowhere/steps.jsonl"], 1, "could not open"),
        (&["reap", "nowhere"], 1, "there is no store at nowhere"),
        (&["reap", "--lease=-1"], 2, "is no time"),
    ];
    for (arguments, code, words) in cases {
        let said = shop.run(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.tells_error_and_hint() && said.err.contains(words), "{arguments:?}: {}", said.err);
        assert!(said.out.is_empty(), "{arguments:?}: {}", said.out);
    }
    for arguments in [&["diff", "shop/taken"][..], &["export"], &["export", "jsonl"]] {
        let said = shop.run(arguments);
        assert!(said.code == Some(2) && said.out.is_empty(), "{arguments:?}: {said:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let shop = Shop::new();
    let verbs = [&["export", "jsonl", "shop"][..], &["diff", "shop/back~0", "shop/back", "--json"]];
    // What `diff` could write before the reader went away, it did: then it says that they differ.
    for (arguments, codes) in verbs.into_iter().zip([&[Some(0)][..], &[Some(0), Some(1)]]) {
        let mut child = program()
            .current_dir(shop.scratch.dir())
            .args(arguments)
            .env("KEEPSTEP_STORE", "s")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let said = Printed::from(child.wait_with_output().unwrap());
        let is_quiet = !said.err.contains("error:") && !said.err.contains("panicked");
        assert!(codes.contains(&said.code) && is_quiet, "{arguments:?}: {said:?}");
    }
}

/// Records in a process of its own, and kills it once some steps are acknowledged.
fn killed(scratch: &Scratch, task: &str) {
    let mut recorder = program()
        .current_dir(scratch.dir())
        .args(["demo-recorder", "--store", "s", "--run", "killed", "--iteration", "0"])
        .args(["--steps", "1000", "--pause-ms", "5", task])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = BufReader::new(recorder.stdout.take().unwrap()).lines();
    (0..3).for_each(|_| drop(acknowledged.next().unwrap().unwrap()));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}

/// Only what the dead left is recorded as crashed, once; the living keep theirs.
#[test]
fn the_dead_are_reaped() {
    let shop = Shop::new();
    killed(&shop.scratch, "shop-1");
    let state = |shop: &Shop| told(&shop.lines(&["ls", "killed", "--json"]))[0].1.clone();
    assert_eq!(state(&shop), "interrupted");
    let dry = shop.run(&["reap", "--dry-run", "--json"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(json_lines(&dry).len() == 1 && dry.out.contains(r#""recorded":false"#), "{dry:?}");
    assert!(dry.err.contains("1 attempt would be recorded as crashed"), "{dry:?}");
    assert_eq!(state(&shop), "interrupted", "a dry run records nothing");
    let said = shop.run(&["reap"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("killed/shop-1#0.0") && said.out.contains("its lock is free"), "{said:?}");
    assert!(said.err.contains("1 attempt recorded as crashed"), "{said:?}");
    assert_eq!(state(&shop), "crashed");
    let again = shop.run(&["reap", "--json"]);
    assert!(again.out.is_empty() && again.err.contains("0 attempts recorded as crashed"), "{again:?}");
    let shown = shop.run(&["show", "killed/shop-1"]);
    assert!(shown.out.contains("ended   crashed, found by another process, evidence"), "{shown:?}");
    assert_eq!(told(&shop.lines(&["ls", "shop/alone", "--json"]))[0].1, "running");
}

/// A lock that does not say its boot proves nothing: an owner is silent until its heartbeat has stood still for the lease.
#[test]
fn the_silent_are_waited_for() {
    let shop = Shop::new();
    killed(&shop.scratch, "shop-1");
    let writer = text(&shop.lines(&["ls", "killed", "--json"])[0], "writer");
    pretend_no_boot(&shop.scratch.path("s"), &writer);
    assert_eq!(told(&shop.lines(&["ls", "killed", "--json"]))[0].1, "silent");
    let said = shop.run(&["reap"]);
    assert!(said.code == Some(0) && said.err.contains("1 attempt silent"), "{said:?}");
    assert!(said.err.contains("hint: `keepstep reap --wait`") && said.out.is_empty(), "{said:?}");
    let said = shop.run(&["reap", "--wait", "--lease", "0.2"]);
    assert!(said.code == Some(0) && said.out.contains("its heartbeat stood still"), "{said:?}");
    assert_eq!(told(&shop.lines(&["ls", "killed", "--json"]))[0].1, "crashed");
}

/// Writes a writer's lock as one that does not say in which boot it was taken.
fn pretend_no_boot(store: &std::path::Path, writer: &str) {
    use keepstep_format::card::{Card, kind, parse_store_json};
    use keepstep_format::encode::{Encoder, NothingKnown};
    use keepstep_format::{fields, hash::ContentKey};
    let (id, _) = parse_store_json(&std::fs::read_to_string(store.join("keepstep.json")).unwrap()).unwrap();
    let key = ContentKey::new(&id.0);
    let mut encoder = Encoder::fields(&key, &NothingKnown);
    for (number, value) in [(fields::TIME, Value::Int(1)), (fields::BOOT, Value::from(""))] {
        encoder.field(number);
        encoder.put(&value).unwrap();
    }
    let path = format!("writers/{writer}/lock");
    std::fs::write(store.join(&path), Card::encode(&id, &path, kind::LOCK, &encoder.finish().body)).unwrap();
}

/// `tail -f` of an episode goes on with whoever takes it over, and ends when the episode does.
#[test]
fn tail_goes_on_with_the_next_attempt() {
    let scratch = Scratch::new();
    let (one, two) = (opener(&scratch), opener(&scratch));
    let old = one.episode(EpisodeName::task("task")).unwrap();
    record(&old, 0..2, "walk");
    let mut tail = program()
        .current_dir(scratch.dir())
        .args(["tail", "-f", "--json", "-s", "s", "shop/task"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let next_step = |mut lines: &mut dyn Iterator<Item = String>| {
        let line = Iterator::by_ref(&mut lines).find(|line| line.contains(r#""what":"step""#)).unwrap();
        (number(&line, "index"), number(&line, "attempt"), text(&line, "ref"))
    };
    let name = "shop/task#0.0".to_owned();
    assert_eq!(next_step(&mut lines), (0, 0, name.clone()));
    assert_eq!(next_step(&mut lines), (1, 0, name.clone()));
    record(&old, 2..3, "walk");
    assert_eq!(next_step(&mut lines), (2, 0, name.clone()));
    let new = two.open(EpisodeName::task("task"), taking()).unwrap();
    record(&new, 3..4, "run");
    assert_eq!(next_step(&mut lines), (3, 1, name.clone()));
    end(&new, "finished");
    assert!(lines.last().unwrap().contains(r#""what":"end""#));
    let said = Printed::from(tail.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("attempt ~1 resumes at step 3, by process"), "{said:?}");
    drop(old);
}

/// What is over is not waited for, whether its end is among the lines that are shown or in no log at all.
#[test]
fn tail_of_what_is_over_ends() {
    let shop = Shop::new();
    for lines in ["0", "1"] {
        let said = shop.run(&["tail", "-f", "-n", lines, "--json", "shop/taken"]);
        assert_eq!((said.code, json_lines(&said).len().to_string()), (Some(0), lines.to_owned()), "{said:?}");
    }
    let said = shop.run(&["tail", "-f", "-n", "0", "shop/taken~0"]);
    assert!(said.code == Some(0) && said.out.contains("end: why superseded"), "{said:?}");
    killed(&shop.scratch, "shop-1");
    assert_eq!(shop.run(&["reap"]).code, Some(0));
    let said = shop.run(&["tail", "-f", "-n", "0", "killed/shop-1~0"]);
    assert!(said.code == Some(0) && said.out.contains("end: why crashed"), "{said:?}");
}

/// Two takeovers between two looks: the steps of the one in the middle are told too.
#[test]
fn tail_leaves_no_attempt_out() {
    let scratch = Scratch::new();
    let runs: Vec<Run> = (0..3).map(|_| opener(&scratch)).collect();
    let first = runs[0].episode(EpisodeName::task("task")).unwrap();
    record(&first, 0..2, "walk");
    let mut tail = program()
        .current_dir(scratch.dir())
        .args(["tail", "-f", "--json", "-s", "s", "shop/task"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let is_step = |line: &String| line.contains(r#""what":"step""#);
    let mut seen: Vec<u64> = (0..2).map(|_| number(&lines.find(is_step).unwrap(), "index")).collect();
    let mut open = vec![first];
    for (at, run) in runs.iter().enumerate().skip(1) {
        let episode = run.open(EpisodeName::task("task"), taking()).unwrap();
        record(&episode, at as i64 * 2..at as i64 * 2 + 2, "walk");
        open.push(episode);
    }
    end(open.last().unwrap(), "finished");
    seen.extend(lines.filter(is_step).map(|line| number(&line, "index")));
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    assert!(tail.wait().unwrap().success());
}

/// A recorder that is killed is waited for, until another attempt goes on; one attempt alone is not.
#[test]
fn tail_waits_for_whoever_goes_on() {
    let scratch = Scratch::new();
    killed(&scratch, "shop-1");
    let alone = run(scratch.dir(), ["tail", "-f", "-s", "s", "killed/shop-1~0"]);
    assert!(alone.code == Some(0) && alone.err.contains("its process died"), "{alone:?}");
    let mut tail = program()
        .current_dir(scratch.dir())
        .args(["tail", "-f", "--json", "-n", "0", "-s", "s", "killed/shop-1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut talk = BufReader::new(tail.stderr.take().unwrap()).lines();
    assert!(talk.next().unwrap().unwrap().contains("waiting for another attempt"));
    let store = Store::open(scratch.path("s"), Options::default()).unwrap();
    let config = [("model", "a random walk"), ("environment", "a small shop")];
    let run = store.run("killed", Value::map(config.map(|(key, value)| (key, Value::from(value))))).unwrap();
    let episode = run.episode(EpisodeName::task("shop-1")).unwrap();
    let inherited = episode.inherited();
    episode.step(Step::new().action("go on")).unwrap();
    end(&episode, "finished");
    let said = Printed::from(tail.wait_with_output().unwrap());
    let lines = json_lines(&said);
    let steps: Vec<u64> =
        lines.iter().filter(|it| it.contains(r#""what":"step""#)).map(|it| number(it, "index")).collect();
    assert_eq!((said.code, steps), (Some(0), vec![inherited]), "{said:?}");
}
