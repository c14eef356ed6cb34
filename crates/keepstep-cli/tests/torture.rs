//! `torture` and `demo`, with real processes and a real kill -9.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says why it was skipped"
)]

mod program;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use program::{Scratch, program, run};

/// A few seconds of what `make torture` does for minutes.
#[test]
fn killing_recorders_loses_nothing() {
    let scratch = Scratch::new();
    let arguments = ["torture", "dir", "--seconds", "3", "--processes", "3", "--threads", "3", "--json"];
    let said = run(scratch.dir(), arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((said.number("lost"), said.number("torn"), said.number("invented")), (0, 0, 0), "{said:?}");
    assert_eq!((said.number("damaged"), said.number("errors")), (0, 0), "{said:?}");
    assert!(said.number("kills") > 0 && said.number("acked") > 0, "nothing was tried: {said:?}");
}

/// Compactors, pruners, reapers, followers, readers and copies beside recorders whose locks slip: all are killed at random.
#[test]
fn killing_recorders_and_their_company_loses_nothing() {
    let scratch = Scratch::new();
    let arguments = ["torture", "dir", "--company", "--seconds", "12", "--processes", "3", "--json"];
    let said = run(scratch.dir(), arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    let faults = ["lost", "torn", "doubled", "told_twice", "never_told", "not_pruned", "damaged", "errors"];
    assert!(faults.iter().all(|fault| said.number(fault) == 0), "{said:?}");
    assert!(["kills", "acked", "told"].iter().all(|did| said.number(did) > 0), "nothing was tried: {said:?}");
}

/// The negative control: recorders that say too early that a step was acknowledged are found out.
#[test]
fn a_step_that_is_lost_in_company_is_noticed() {
    let arguments = ["torture", "dir", "--company", "--early", "--seconds", "6", "--json"];
    // On a busy machine a kill may miss the moment between what was said and what was written.
    let said = (0..5).map(|_| run(Scratch::new().dir(), arguments)).find(|said| said.code != Some(0));
    let said = said.expect("five runs, and nothing was noticed");
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.number("lost") > 0, "{said:?}");
}

/// The same directory and the same seed again: the episodes of the two runs must not meet.
#[test]
fn torture_can_be_repeated_with_its_seed() {
    let scratch = Scratch::new();
    for level in ["kill", "power"] {
        let arguments = [
            "torture",
            "dir",
            "--seconds",
            "1",
            "--processes",
            "2",
            "--seed",
            "7",
            "--level",
            level,
            "--json",
        ];
        let said = run(scratch.dir(), arguments);
        assert_eq!((said.code, said.number("seed")), (Some(0), 7), "{said:?}");
    }
}

/// The comparison must be able to fail: here the witness claims a step that was never recorded.
#[test]
fn a_lost_step_is_noticed() {
    let scratch = Scratch::new();
    let store = scratch.path("store").display().to_string();
    let names = ["--store", &store, "--run", "r", "--seed", "1"];
    let mut recorder = program()
        .arg("torture-recorder")
        .args(names)
        .args(["--episodes", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(recorder.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(recorder.wait().unwrap().success());
    let check = |lines: &[String]| {
        let mut check = program()
            .arg("torture-check")
            .args(names)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = check.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, (lines.join("\n") + "\n").as_bytes()).unwrap();
        drop(stdin);
        program::Printed::from(check.wait_with_output().unwrap())
    };
    let said = check(&lines);
    assert_eq!((said.code, said.number("lost")), (Some(0), 0), "{said:?}");
    let claimed = ["+ 9 9 9 9 0".to_owned(), "= 9 9 9 9 0 0123456789abcdef".to_owned()];
    let said = check(&[lines.as_slice(), &claimed].concat());
    assert_eq!((said.code, said.number("lost")), (Some(3), 1), "{said:?}");
    let said = check(&lines[lines.len() / 2..]);
    assert_eq!(said.code, Some(3), "half of what the witness heard: {said:?}");
}

/// A parent that is killed must not leave recorders behind.
#[test]
fn recorders_die_with_their_parent() {
    let scratch = Scratch::new();
    let mut torture = program()
        .current_dir(scratch.dir())
        .args(["torture", "dir", "--seconds", "600", "--processes", "2"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let dir = scratch.path("dir/store").display().to_string();
    let recorders = || {
        let all = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
        all.filter(|line| String::from_utf8_lossy(line).contains("torture-recorder") && is_in(line, &dir))
            .count()
    };
    wait_until(|| recorders() > 0);
    torture.kill().unwrap();
    torture.wait().unwrap();
    wait_until(|| recorders() == 0);
}

fn is_in(line: &[u8], dir: &str) -> bool {
    // The store is named as it was given, relative to the directory of the test.
    let line = String::from_utf8_lossy(line);
    line.contains(dir) || line.contains("dir/store")
}

/// Fails when it takes minutes; how fast it is, is no matter here.
fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..2400 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it did not come true");
}

/// The first thing that people see; and when they try it again, it works again.
#[test]
fn the_demo_runs_twice_and_loses_nothing() {
    let scratch = Scratch::new();
    for name in ["demo", "demo-2"] {
        let said = run(scratch.dir(), ["demo", "--episodes", "4", "--steps", "20", "--pause-ms", "2"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains("killed with -9") && said.err.contains("none lost"), "{said:?}");
        assert!(said.out.contains(&format!("{name}/shop-1#0.0")), "{said:?}");
        assert!(said.err.contains(&format!("keepstep ls ./runs/demo {name}")), "{said:?}");
    }
    let said = run(scratch.dir(), ["ls", "./runs/demo"]);
    assert!(
        said.out.contains("demo-2") && !said.out.contains("interrupted"),
        "all went on to their end: {said:?}"
    );
    let said = run(scratch.dir(), ["verify", "./runs/demo"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}
