//! What somebody sees who looks again: endings that are none, what came while nobody looked, failed turns, stores named first.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod program;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use keepstep::{
    Ending, Episode, EpisodeName, Opening, Options, PlanOptions, Run, Step, Store, Value, WhenBusy,
};
use program::{Printed, Scratch, copy_all, json_lines, program, run};

/// Another opener of the same store: it has a writer of its own, as another process would.
fn opened(scratch: &Scratch) -> Run {
    Store::open(scratch.path("s"), Options::default()).unwrap().run("shop", Value::Null).unwrap()
}

/// Others see that an attempt has ended a moment after it has.
fn going_on(run: &Run, task: &str) -> Episode {
    let patient = Opening::default().busy(WhenBusy::Wait(std::time::Duration::from_secs(60)));
    run.open(EpisodeName::task(task), patient).unwrap()
}

fn steps(episode: &Episode, number: usize) {
    (0..number).for_each(|_| drop(episode.step(Step::new().action("look").reward(1.0)).unwrap()));
}

fn end(episode: &Episode, why: &str) {
    episode.end(why, Ending::default()).unwrap().wait().unwrap();
}

fn ask(scratch: &Scratch, arguments: &[&str]) -> Printed {
    run(scratch.dir(), arguments.iter().copied())
}

/// A follower, and what it says.
fn following(scratch: &Scratch, arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut tail = program()
        .current_dir(scratch.dir())
        .args(["tail", "-f"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let talk = BufReader::new(tail.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    (tail, talk)
}

fn steps_in(said: &Printed) -> usize {
    json_lines(said).iter().filter(|line| line.contains(r#""what":"step""#)).count()
}

/// `tail -f` went away at an error, though the episode went on a moment later; only what is final ends it.
#[test]
fn tail_waits_behind_every_end_that_is_not_final() {
    for why in ["errored", "aborted", "abandoned", "cancelled"] {
        let scratch = Scratch::new();
        let (one, two) = (opened(&scratch), opened(&scratch));
        let first = one.episode(EpisodeName::task("t")).unwrap();
        steps(&first, 1);
        // Once it ends while it is followed, and once it has ended before.
        let (before, _said_before) = following(&scratch, &["--json", "s", "shop/t"]);
        end(&first, why);
        let (after, mut talk) = following(&scratch, &["--json", "s", "shop/t"]);
        let said = talk.next().unwrap();
        assert_eq!(said, format!("attempt ~0 ended: {why}; waiting for another attempt (Ctrl-C stops)"));
        assert!(said.len() <= 80, "{said}");
        let second = going_on(&two, "t");
        steps(&second, 2);
        end(&second, "finished");
        for tail in [before, after] {
            let said = Printed::from(tail.wait_with_output().unwrap());
            assert_eq!((said.code, steps_in(&said)), (Some(0), 3), "{why}: {said:?}");
            assert!(json_lines(&said).last().unwrap().contains(r#""why":"finished""#), "{why}: {said:?}");
        }
        assert!(talk.next().unwrap().starts_with("attempt ~1 resumes at step 1, by process "));
        let alone = ask(&scratch, &["tail", "-f", "s", "shop/t~0"]);
        assert_eq!((alone.code, &*alone.err), (Some(0), ""), "one attempt alone is over: {alone:?}");
    }
}

/// What somebody found who looked afterwards is no end either.
#[test]
fn tail_waits_behind_a_crash() {
    let scratch = Scratch::new();
    let mut recorder = program()
        .current_dir(scratch.dir())
        .args(["demo-recorder", "--store", "s", "--run", "shop", "--iteration", "0"])
        .args(["--steps", "1000", "--pause-ms", "5", "t"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = BufReader::new(recorder.stdout.take().unwrap()).lines();
    (0..3).for_each(|_| drop(acknowledged.next().unwrap().unwrap()));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert_eq!(ask(&scratch, &["reap", "s"]).code, Some(0));
    let (tail, mut talk) = following(&scratch, &["-n", "0", "s", "shop/t"]);
    assert!(talk.next().unwrap().starts_with("attempt ~0 ended: crashed; waiting"));
    let store = Store::open(scratch.path("s"), Options::default()).unwrap();
    let config = [("model", "a random walk"), ("environment", "a small shop")];
    let config = Value::map(config.map(|(key, value)| (key, Value::from(value))));
    end(&going_on(&store.run("shop", config).unwrap(), "t"), "finished");
    let said = Printed::from(tail.wait_with_output().unwrap());
    assert!(said.code == Some(0) && said.out.contains("end: why crashed"), "{said:?}");
    assert!(said.out.lines().last().unwrap().contains("end: why finished"), "{said:?}");
}

/// Whoever waited for an episode saw its last ten records, and never its first.
#[test]
fn tail_shows_all_of_what_it_waited_for() {
    for is_json in [true, false] {
        let scratch = Scratch::new();
        let mut arguments = vec!["-n", "2"];
        arguments.extend(is_json.then_some("--json"));
        let count = |said: &Printed| if is_json { steps_in(said) } else { said.out.matches("look").count() };

        let (for_store, mut talk) = following(&scratch, &[&arguments[..], &["./s", "shop/t"]].concat());
        assert!(talk.next().unwrap().contains("there is no store at ./s yet"));
        let (one, two) = (opened(&scratch), opened(&scratch));
        let (for_episode, mut talk) = following(&scratch, &[&arguments[..], &["s", "shop/t"]].concat());
        assert!(talk.next().unwrap().contains("no episode here is called"));
        let first = one.episode(EpisodeName::task("t")).unwrap();
        steps(&first, 30);
        end(&first, "errored");
        let second = going_on(&two, "t");
        steps(&second, 30);
        end(&second, "finished");
        for tail in [for_store, for_episode] {
            let said = Printed::from(tail.wait_with_output().unwrap());
            assert_eq!((said.code, count(&said)), (Some(0), 60), "{said:?}");
        }
        let (attempt, mut talk) = following(&scratch, &[&arguments[..], &["s", "shop/u~0"]].concat());
        assert!(talk.next().unwrap().contains("no episode here is called"));
        let other = one.episode(EpisodeName::task("u")).unwrap();
        steps(&other, 30);
        end(&other, "errored");
        let said = Printed::from(attempt.wait_with_output().unwrap());
        assert_eq!((said.code, count(&said)), (Some(0), 30), "{said:?}");
    }
}

/// The whole of a store that was waited for, too.
#[test]
fn tail_shows_all_of_a_store_it_waited_for() {
    let scratch = Scratch::new();
    let (mut tail, mut talk) = following(&scratch, &["-n", "1", "--json", "./s"]);
    assert!(talk.next().unwrap().contains("there is no store at ./s yet"));
    let shop = opened(&scratch);
    for task in ["t", "u"] {
        let episode = shop.episode(EpisodeName::task(task)).unwrap();
        steps(&episode, 20);
        end(&episode, "finished");
    }
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let seen = lines.filter(|line| line.contains(r#""what":"step""#)).take(40).count();
    assert_eq!(seen, 40);
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// An attempt of which nothing was recorded was a worry for ever, though another had finished the episode since.
#[test]
fn verify_does_not_worry_about_what_a_later_attempt_recorded() {
    let scratch = Scratch::new();
    let killed = Store::open(scratch.path("elsewhere"), Options::default()).unwrap();
    let shop = killed.run("shop", Value::Null).unwrap();
    shop.plan(["t"], PlanOptions::default()).unwrap();
    let claimed = shop.episode(EpisodeName::task("t")).unwrap();
    // What a kill leaves here: the claim, and no record.
    copy_all(&scratch.path("elsewhere"), &scratch.path("s"));
    // On a slow machine its first record may be there already.
    for writer in std::fs::read_dir(scratch.path("s/writers")).unwrap().map(Result::unwrap) {
        for file in std::fs::read_dir(writer.path()).unwrap().map(|it| it.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "seg") {
                std::fs::remove_file(file).unwrap();
            }
        }
    }
    drop(claimed);
    killed.close();
    let said = ask(&scratch, &["verify", "s"]);
    assert!(said.out.contains("claimed  shop/t#0.0~0: nothing was recorded of it"), "{said:?}");

    let again = opened(&scratch);
    let second = going_on(&again, "t");
    steps(&second, 1);
    end(&second, "finished");
    drop(second);
    again.store().close();
    for arguments in [&["verify", "s"][..], &["verify", "s", "--full"]] {
        let said = ask(&scratch, arguments);
        assert!(said.code == Some(0) && !said.out.contains("claimed"), "{said:?}");
    }
    let said = ask(&scratch, &["verify", "s", "--json"]);
    assert!(said.out.contains(r#""unrecorded":[]"#), "{said:?}");
    let shown = ask(&scratch, &["show", "s", "shop/t"]);
    assert!(shown.out.contains(", attempt ~1\n"), "what never began is not counted: {shown:?}");
}

/// "attempt 2 of 2" and "attempt 1 of 2" were both the last one: numbers begin with ~0, and may have gaps.
#[test]
fn attempts_are_counted_as_they_are_named() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        let episode = going_on(&opened(&scratch), "t");
        steps(&episode, 1);
        end(&episode, "errored");
    }
    let id_line = |wanted: &str| {
        let said = ask(&scratch, &["show", "s", wanted]);
        let line = said.out.lines().nth(1).unwrap().to_owned();
        assert!(line.len() <= 80, "{line}");
        line.split_once(", ").unwrap().1.to_owned()
    };
    assert_eq!(id_line("shop/t"), "attempt ~2 of 3 (~0 to ~2)");
    assert_eq!(id_line("shop/t~0"), "attempt ~0 of 3 (~0 to ~2)");
    let said = ask(&scratch, &["show", "s", "shop/t"]);
    assert!(said.out.contains("steps   0 from attempt ~0, by ") && said.out.contains("1 from attempt ~1"));
}

/// A turn that failed looked like one that had seen nothing.
#[test]
fn a_failed_turn_is_marked() {
    let scratch = Scratch::new();
    let shop = opened(&scratch);
    let episode = shop.episode(EpisodeName::task("t")).unwrap();
    let error = Value::map([
        ("type", Value::from("TimeoutError")),
        ("message", Value::from("no answer\u{1b}[2J")),
        ("traceback", Value::from("frame 1")),
    ]);
    episode.turn(Step::new().action("buy")).unwrap().fail(error).unwrap().wait().unwrap();
    steps(&episode, 1);
    end(&episode, "finished");
    let shown = ask(&scratch, &["show", "s", "shop/t"]);
    let marked: Vec<&str> = shown.out.lines().filter(|line| line.contains("! ")).collect();
    assert_eq!(marked.len(), 1, "{shown:?}");
    assert!(marked[0].starts_with("    0  MID") && marked[0].contains("buy"), "{shown:?}");
    assert!(marked[0].ends_with("! TimeoutError: no answer\\u{1b}[2J"), "{shown:?}");
    let listed = ask(&scratch, &["ls", "s", "shop", "--json"]);
    assert_eq!(listed.number("steps"), 2, "it is counted: {listed:?}");
}

/// `ls` and `tail` take the store first; the others said that there is no store at ./runs.
#[test]
fn every_verb_takes_the_store_first() {
    let scratch = Scratch::new();
    let shop = opened(&scratch);
    for task in ["t", "u"] {
        let episode = shop.episode(EpisodeName::task(task)).unwrap();
        steps(&episode, 1);
        end(&episode, "finished");
    }
    shop.store().close();
    let whole = scratch.path("s").display().to_string();
    for store in ["s", "./s", &whole] {
        for arguments in [
            &["show", store, "shop/t", "shop/u@0"][..],
            &["diff", store, "shop/t", "shop/u"],
            &["export", "jsonl", store, "shop/t", "shop/u"],
            &["export", "jsonl", store, "--all"],
            &["export", "jsonl", store, "--run", "shop"],
            &["prune", store, "--run", "shop", "--dry-run"],
            &["prune", store, "shop/t", "--dry-run", "--reason", "none"],
        ] {
            let said = ask(&scratch, arguments);
            assert!(said.code == Some(0) && !said.out.is_empty(), "{arguments:?}: {said:?}");
        }
        let behind_it = ask(&scratch, &["diff", "-s", store, "shop/t", "shop/u"]);
        assert_eq!(behind_it.code, Some(0), "{behind_it:?}");
    }
    let filtered = ask(&scratch, &["prune", "./s", "--ending", "errored", "--dry-run", "--reason", "none"]);
    assert_eq!(filtered.code, Some(0), "{filtered:?}");
    let cases = [
        (&["show", "-s", "s", "s"][..], 2, "s is a store, and no episode of it is named"),
        (&["show", "./s", "shop/t~9"], 1, "there is no attempt 9 of shop/t\nhint: its only attempt is 0"),
        (&["show", "./s"], 2, "./s is a store, and no episode of it is named"),
        (&["export", "jsonl", "./s"], 2, "./s is a store, and no run or episode of it is named"),
        (&["export", "jsonl", "./s"], 2, "`keepstep export jsonl -s ./s --all`"),
        (&["prune", "s", "--ending", "errored", "--dry-run"], 1, "write `-s s`"),
        (&["export", "jsonl", "./s", "shop", "--all"], 2, "--all exports all runs"),
        (&["prune", "./s", "--reason", "none"], 2, "no episodes to"),
        (&["diff", "s", "shop/t"], 1, "there is no store at ./runs"),
        (&["diff", "./s", "shop/t"], 2, "two are compared, and 1 episode named"),
        (&["diff", "shop/t"], 2, "two are compared, and 1 episode named"),
        (&["diff", "nowhere", "shop/t", "shop/u"], 2, "two are compared, and 3 episodes named"),
        (&["show", "nowhere", "shop/t"], 1, "write `-s nowhere`"),
        (&["show", "s3://bucket/runs", "shop/t"], 1, "s3://bucket/runs"),
    ];
    for (arguments, code, words) in cases {
        let said = ask(&scratch, arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.tells_error_and_hint() && said.err.contains(words), "{arguments:?}: {}", said.err);
    }
}

/// A run may be called like a directory, also like one that is a store: what could be meant before is still meant.
#[test]
fn a_run_that_is_called_like_a_directory_is_still_a_run() {
    let scratch = Scratch::new();
    let shop = opened(&scratch);
    let episode = shop.episode(EpisodeName::task("t")).unwrap();
    steps(&episode, 1);
    end(&episode, "finished");
    shop.store().close();
    std::fs::create_dir_all(scratch.path("shop/t")).unwrap();
    let told = ask(&scratch, &["show", "-s", "s", "shop/t"]).out;
    let from_environment = |arguments: &[&str]| -> Printed {
        let mut command = program();
        command.current_dir(scratch.dir()).env("KEEPSTEP_STORE", "s").args(arguments);
        command.output().unwrap().into()
    };
    assert_eq!(from_environment(&["show", "shop/t"]).out, told);
    assert_eq!(from_environment(&["show", "shop/t", "shop/t"]).out, format!("{told}\n{told}"));
    assert_eq!(from_environment(&["diff", "shop/t", "shop/t"]).code, Some(0));
    std::fs::remove_dir_all(scratch.path("shop")).unwrap();
    Store::open(scratch.path("shop"), Options::default()).unwrap().close();
    assert_eq!(from_environment(&["show", "shop"]).out, told);
    assert_eq!(from_environment(&["export", "jsonl", "shop"]).out.lines().count(), 1);
    let dry = ["prune", "shop", "--ending", "finished", "--dry-run", "--json", "--reason", "none"];
    assert!(from_environment(&dry).out.contains("shop/t#0.0"));
}

/// A soft hyphen is not seen on most terminals: texts that differ looked alike.
#[test]
fn what_nobody_sees_is_escaped() {
    let scratch = Scratch::new();
    let shop = opened(&scratch);
    let unseen = ['\u{ad}', '\u{34f}', '\u{61c}', '\u{180e}', '\u{3164}', '\u{1d173}'];
    for (task, text) in [("t", unseen.iter().collect::<String>()), ("u", "plain".to_owned())] {
        let episode = shop.episode(EpisodeName::task(task)).unwrap();
        episode.step(Step::new().action(text)).unwrap();
        end(&episode, "finished");
    }
    shop.store().close();
    for arguments in [
        &["show", "s", "shop/t"][..],
        &["show", "s", "shop/t@0"],
        &["show", "s", "shop/t", "--json"],
        &["diff", "s", "shop/t", "shop/u"],
        &["tail", "s"],
        &["export", "jsonl", "s", "shop"],
    ] {
        let said = ask(&scratch, arguments);
        assert!(!said.out.contains(unseen), "{arguments:?}: {:?}", said.out);
        assert!(said.out.contains("ad") && said.out.contains("180e"), "{arguments:?}: {:?}", said.out);
    }
}

/// "1 records are known to have been there".
#[test]
fn one_of_something_is_no_plural() {
    let scratch = Scratch::new();
    let shop = opened(&scratch);
    let episode = shop.episode(EpisodeName::task("t")).unwrap();
    steps(&episode, 1);
    end(&episode, "finished");
    drop(episode);
    shop.store().close();
    let mut writers = std::fs::read_dir(scratch.path("s/writers")).unwrap();
    let segment = writers.find_map(|it| Some(it.unwrap().path().join("0.seg")).filter(|it| it.exists()));
    let segment = segment.unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let mut known = 0;
    for at in (128..whole.len().min(600)).step_by(16) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&segment, bytes).unwrap();
        let said = ask(&scratch, &["verify", "s"]);
        assert!(!said.out.contains(" 1 records"), "byte {at}: {said:?}");
        known += usize::from(said.out.contains("1 record is known to have been there"));
    }
    assert!(known > 0);
}
