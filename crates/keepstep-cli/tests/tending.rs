//! `compact` and `prune` on a store that the demo made: what stays reads as before, what goes is named first.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod program;

use program::{Printed, Scratch, demo_store, run};

/// Runs the program, and it must work.
fn done(scratch: &Scratch, arguments: &[&str]) -> Printed {
    let said = run(scratch.dir(), arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

fn names(scratch: &Scratch) -> Vec<String> {
    let said = done(scratch, &["ls", "./demo", "--all", "--json"]);
    said.out.lines().map(|line| line.split('"').nth(3).unwrap().to_owned()).collect()
}

/// Everything in the store reads the same before and after, and its old files go when the grace period is over.
#[test]
fn compacting_changes_nothing_that_is_read() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let read = || done(&scratch, &["dump", "demo"]).out;
    let before = read();
    let said = done(&scratch, &["compact", "demo"]);
    assert!(said.out.contains("regrouped") && said.out.contains("waiting"), "{said:?}");
    assert_eq!(read(), before);
    let said = done(&scratch, &["compact", "demo", "--grace", "0", "--json"]);
    assert!(said.number("files_deleted") > 0 && said.number("files_waiting") == 0, "{said:?}");
    assert_eq!(read(), before);
    assert_eq!(done(&scratch, &["compact", "demo"]).out, "nothing to do\n");
    done(&scratch, &["verify", "demo"]);
}

/// Without a grace period, one call deletes what it replaced. (A secret that `prune` had left to it stayed on disk until
/// a second call.)
#[test]
fn without_a_grace_period_the_old_files_go_at_once() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let before = done(&scratch, &["dump", "demo"]).out;
    let logs = || {
        let writers = std::fs::read_dir(scratch.path("demo/writers")).unwrap().map(|it| it.unwrap().path());
        let files = writers.flat_map(|writer| std::fs::read_dir(writer).unwrap());
        files.filter(|it| it.as_ref().unwrap().path().extension().is_some_and(|it| it == "seg")).count()
    };
    assert!(logs() > 0);
    let said = done(&scratch, &["compact", "demo", "--grace", "0"]);
    assert!(said.out.contains("deleted") && !said.out.contains("waiting"), "{said:?}");
    assert_eq!(logs(), 0);
    assert_eq!(done(&scratch, &["dump", "demo"]).out, before);
}

/// A dry run names what goes and deletes nothing; then exactly that goes, and the rest reads as before.
#[test]
fn pruning_deletes_what_the_dry_run_named() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    // A second run, which stays.
    demo_store(&scratch);
    let before = names(&scratch);
    let prune = [
        "prune", "-s", "demo", "--run", "demo", "--ending", "finished", "--reason", "a test", "--grace", "0",
    ];
    let dry = done(&scratch, &[&prune[..], &["--dry-run", "--json"]].concat());
    assert_eq!(names(&scratch), before);
    let summary = dry.out.lines().last().unwrap();
    assert!(summary.starts_with(r#"{"what":"summary","dry_run":true"#), "{summary}");
    let going: Vec<String> = dry
        .out
        .lines()
        .filter(|line| line.contains(r#""goes":true"#))
        .map(|line| line.split('"').nth(7).unwrap().to_owned())
        .collect();
    assert!(!going.is_empty() && going.len() < before.len(), "{going:?}");
    let said = done(&scratch, &prune);
    assert!(going.iter().all(|name| said.out.contains(name)), "{said:?}");
    let left: Vec<String> = before.into_iter().filter(|name| !going.contains(name)).collect();
    assert_eq!(names(&scratch), left);
    // One by name.
    done(&scratch, &["prune", "-s", "demo", &left[0], "--reason", "a test"]);
    assert_eq!(names(&scratch), left[1..]);
    done(&scratch, &["verify", "demo"]);
    let nothing = done(&scratch, &prune);
    assert!(nothing.out.is_empty() && nothing.err.contains("0 episodes pruned"), "{nothing:?}");
}

#[test]
fn what_is_wrong_is_told_with_a_hint() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let before = names(&scratch);
    let cases: [(&[&str], i32, &str); 8] = [
        (&["compact", "nowhere"], 1, "there is no store at nowhere"),
        (&["compact", "demo", "--grace=-1"], 2, "--grace -1 is no time"),
        (&["prune", "-s", "demo", "--reason", "x"], 2, "no episodes to delete were named"),
        (&["prune", "-s", "demo", "--reason", "x", "--ending", "exploded"], 2, "no episode ends as"),
        (&["prune", "-s", "demo", "--reason", "x", "--older-than", "soon"], 2, "\"soon\" is no age"),
        (&["prune", "-s", "demo", "--reason", "x", "demo/nope"], 1, "no run or episode here is called"),
        (&["prune", "-s", "demo", "--reason", "x", "demo/shop-1~0"], 2, "is a part of an episode"),
        (&["prune", "-s", "nowhere", "--reason", "x", "demo"], 1, "there is no store at nowhere"),
    ];
    for (arguments, code, words) in cases {
        let said = run(scratch.dir(), arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.tells_error_and_hint() && said.err.contains(words), "{arguments:?}: {}", said.err);
        assert!(said.out.is_empty(), "{arguments:?}: {}", said.out);
    }
    let no_reason = run(scratch.dir(), ["prune", "-s", "demo", "--run", "demo"]);
    assert_eq!(no_reason.code, Some(2), "{no_reason:?}");
    assert_eq!(names(&scratch), before, "nothing was deleted");
}
