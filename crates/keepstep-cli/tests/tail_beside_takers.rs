//! `tail` beside a takeover: it tells what counts, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod program;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use keepstep::{Ending, EpisodeName, Opening, Options, Run, Step, Store, Value, WhenBusy};
use program::{Scratch, program, run};

/// Another opener of the same store: it has a writer of its own, as another process would.
fn opener(scratch: &Scratch) -> Run {
    Store::open(scratch.path("s"), Options::default()).unwrap().run("shop", Value::Null).unwrap()
}

/// What an owner recorded after its episode was taken was refused: `tail` told of it, in each of its ways, and of an end that
/// never was, while `show` did not.
#[test]
fn tail_tells_nothing_that_was_refused() {
    for refused in ["step", "end"] {
        let scratch = Scratch::new();
        let (one, two) = (opener(&scratch), opener(&scratch));
        let old = one.episode(EpisodeName::task("task")).unwrap();
        old.step(Step::new().action("old")).unwrap();
        let begin = |arguments: &[&str]| {
            let mut tail = program();
            tail.current_dir(scratch.dir()).args(["tail", "-f", "--json", "-s", "s"]).args(arguments);
            tail.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut live: Vec<_> = [&[][..], &["shop/task"], &["shop/task~0"]].map(begin).into();
        let mut lines: Vec<_> = live
            .iter_mut()
            .map(|tail| BufReader::new(tail.stdout.take().unwrap()).lines().map(|line| line.unwrap()))
            .collect();
        let is_step = |line: &String| line.contains(r#""what":"step""#);
        lines.iter_mut().for_each(|lines| drop(lines.find(is_step).unwrap()));
        let new = two.open(EpisodeName::task("task"), Opening::default().busy(WhenBusy::Take)).unwrap();
        new.step(Step::new().action("new")).unwrap();
        let told = match refused {
            "step" => old.step(Step::new().action("REFUSED")).map(|_| ()),
            _ => old.end("errored", Ending::default()).and_then(|receipt| receipt.wait()),
        };
        assert!(told.is_err(), "{refused} was acknowledged");
        new.end("finished", Ending::default()).unwrap().wait().unwrap();
        let is_wrong = |line: &String| line.contains("REFUSED") || line.contains("errored");
        let is_end = |line: &String| line.contains(r#""what":"end""#);
        for (mut lines, mut tail) in lines.into_iter().zip(live) {
            let mut seen = Vec::new();
            while !seen.last().is_some_and(is_end) {
                seen.push(lines.next().unwrap());
            }
            assert!(!seen.iter().any(is_wrong), "{refused}, live: {seen:?}");
            tail.kill().unwrap();
            tail.wait().unwrap();
        }
        drop((old, new, one, two));
        for arguments in [&["tail", "--json", "s"][..], &["tail", "--json", "-s", "s", "shop/task~0"]] {
            let said = run(scratch.dir(), arguments);
            let lines: Vec<String> = said.out.lines().map(str::to_owned).collect();
            assert!(!lines.is_empty() && !lines.iter().any(is_wrong), "{refused}, {arguments:?}: {said:?}");
            if arguments.len() > 3 {
                assert!(lines.last().unwrap().contains("superseded"), "{said:?}");
            }
        }
    }
}

/// While another process was between its claim and its base, `tail -f` held the end of the old attempt back, and told it as that
/// of the new one: it waited for a third attempt, for ever.
#[test]
fn the_end_of_an_attempt_is_not_taken_for_that_of_the_next() {
    let scratch = Scratch::new();
    let open = || Store::open(scratch.path("made"), Options::default()).unwrap();
    let [one, two] = [open(), open()].map(|store| store.run("shop", Value::Null).unwrap());
    let old = one.episode(EpisodeName::task("task")).unwrap();
    old.step(Step::new().action("old")).unwrap();
    old.end("errored", Ending::default()).unwrap().wait().unwrap();
    let new = two.episode(EpisodeName::task("task")).unwrap();
    let id = two.episode_id(&EpisodeName::task("task")).to_string();
    // As if the base were not published yet.
    let base = format!("claims/{}/{id}.1.base", &id[..2]);
    std::fs::rename(scratch.path("made").join(&base), scratch.path("base")).unwrap();
    let (said, says) = std::io::pipe().unwrap();
    let mut tail = program();
    tail.current_dir(scratch.dir()).args(["tail", "-f", "-s", "s", "shop/task"]);
    let mut tail = tail.stdout(says.try_clone().unwrap()).stderr(says).spawn().unwrap();
    let mut lines = BufReader::new(said).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("waiting")));
    std::fs::rename(scratch.path("made"), scratch.path("s")).unwrap();
    // Nothing depends on this, but whether the end comes while it is open.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    std::fs::rename(scratch.path("base"), scratch.path("s").join(&base)).unwrap();
    new.step(Step::new().action("new")).unwrap();
    new.end("finished", Ending::default()).unwrap().wait().unwrap();
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|line: &String| line.contains("finished")) {
        seen.extend(lines.next());
        assert!(!seen.last().unwrap().contains("attempt ~1 ended"), "{seen:#?}");
    }
    let at = |what: &str| seen.iter().position(|line| line.contains(what)).unwrap();
    assert!(at("old") < at("errored") && at("errored") < at("new"), "{seen:#?}");
    assert!(tail.wait().unwrap().success());
    drop((old, new));
}
