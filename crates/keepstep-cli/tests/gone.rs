//! A store of which a file is gone, or cannot be read: every verb says which, in its own words, and goes on with the rest.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod program;

use std::path::PathBuf;

use keepstep::tend::CompactOptions;
use keepstep::{Ending, EpisodeName, Options, Step, Store, Value};
use program::{Printed, Scratch, copy_all, json_lines, run, run_or_give_up};

/// Two episodes that finished, and where the claim of the first stands.
fn recorded(scratch: &Scratch) -> PathBuf {
    let store = Store::open(scratch.path("s"), Options::default()).expect("opens");
    let run = store.run("shop", Value::Null).expect("opens");
    for task in ["hit", "well"] {
        let episode = run.episode(EpisodeName::task(task)).expect("begins");
        episode.step(Step::new().action(1).reward(1.0)).expect("records");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    let id = run.episode_id(&EpisodeName::task("hit")).to_string();
    store.close();
    scratch.path("s").join(format!("claims/{}/{id}.0.claim", &id[..2]))
}

fn ask(scratch: &Scratch, arguments: &[&str]) -> Printed {
    run(scratch.dir(), arguments.iter().copied())
}

fn tells(said: &Printed, what: &str) {
    assert_eq!(said.code, Some(3), "{what}: {said:?}");
    assert!(said.err.contains("damaged:") && said.err.contains(".claim"), "{what}: {said:?}");
}

/// Lists showed an episode whose claim was gone as if nothing were wrong.
#[test]
fn a_claim_that_is_gone_is_told_by_every_verb() {
    let scratch = Scratch::new();
    let claim = recorded(&scratch);
    assert_eq!(ask(&scratch, &["ls", "s", "-a"]).code, Some(0));
    std::fs::remove_file(claim).unwrap();
    for arguments in [
        &["ls", "s"][..],
        &["ls", "s", "-a"],
        &["ls", "s", "shop"],
        &["stats", "s"],
        &["show", "-s", "s", "shop/hit"],
        &["export", "jsonl", "-s", "s", "--all"],
    ] {
        tells(&ask(&scratch, arguments), &arguments.join(" "));
    }
    let listed = ask(&scratch, &["ls", "s", "-a", "--json"]);
    tells(&listed, "ls --json");
    let of = |task: &str| *json_lines(&listed).iter().find(|it| it.contains(task)).unwrap();
    assert!(of("shop/hit").contains(r#""trouble":"claims/"#), "{listed:?}");
    assert!(of("shop/well").contains(r#""trouble":null"#), "{listed:?}");
    let stats = ask(&scratch, &["stats", "s", "--json"]);
    assert_eq!(stats.number("damaged_episodes"), 1, "{stats:?}");
    assert_eq!(ask(&scratch, &["show", "-s", "s", "shop/well"]).code, Some(0), "the rest is whole");
}

/// One card that could not be read stopped `export`, `prune` and `verify` of everything else.
#[test]
fn one_card_that_cannot_be_read_costs_its_own_episode_only() {
    for is_flipped in [true, false] {
        let scratch = Scratch::new();
        let claim = recorded(&scratch);
        if is_flipped {
            let mut bytes = std::fs::read(&claim).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 0x10;
            std::fs::write(&claim, bytes).unwrap();
        } else {
            std::fs::remove_file(&claim).unwrap();
            std::os::unix::fs::symlink(&claim, &claim).unwrap();
        }
        let exported = ask(&scratch, &["export", "jsonl", "-s", "s", "shop", "-o", "steps.jsonl", "--json"]);
        tells(&exported, "export");
        assert_eq!(exported.number("episodes"), 1, "{exported:?}");
        assert!(exported.out.contains(r#""troubles":["shop/hit"#), "{exported:?}");
        let lines = std::fs::read_to_string(scratch.path("steps.jsonl")).unwrap();
        assert!(lines.contains(r#""task":"well""#) && !lines.contains(r#""task":"hit""#), "{lines}");

        tells(&ask(&scratch, &["show", "-s", "s", "shop/hit", "shop/well"]), "show");
        let verified = ask(&scratch, &["verify", "s"]);
        assert_eq!(verified.code, Some(3), "{verified:?}");
        assert!(verified.out.contains(".0.claim"), "{verified:?}");

        let pruned = ask(&scratch, &["prune", "-s", "s", "--run", "shop", "--reason", "test", "--json"]);
        assert_eq!(pruned.code, Some(3), "{pruned:?}");
        let of = |task: &str| *json_lines(&pruned).iter().find(|it| it.contains(task)).unwrap();
        assert!(of("shop/well").contains(r#""goes":true"#), "{pruned:?}");
        assert!(of("shop/hit").contains(r#""goes":false"#), "{pruned:?}");
    }
}

/// The store of [`recorded`], rewritten by `compact`.
fn compacted(scratch: &Scratch) {
    recorded(scratch);
    let store = Store::open(scratch.path("s"), Options::default()).expect("opens");
    let options = CompactOptions::default().grace(std::time::Duration::ZERO);
    store.compact(options, &mut |_| {}).expect("compacts");
    store.close();
}

/// Every way in which the command reads.
const READERS: [&[&str]; 14] = [
    &["ls", "s"],
    &["ls", "s", "-a", "--json"],
    &["ls", "s", "shop"],
    &["stats", "s"],
    &["tail", "s"],
    &["tail", "s", "shop/hit"],
    &["show", "-s", "s", "shop/hit"],
    &["diff", "-s", "s", "shop/hit", "shop/well"],
    &["export", "jsonl", "-s", "s", "--all"],
    &["export", "jsonl", "-s", "s", "shop"],
    &["export", "jsonl", "s", "--run", "shop", "-o", "steps.jsonl", "--json"],
    &["verify", "s"],
    &["reap", "s", "--dry-run"],
    &["prune", "-s", "s", "--run", "shop", "--dry-run"],
];

/// A log that was gone made `export --all` and `tail` print nothing, with exit code 0.
#[test]
fn a_log_that_is_gone_is_told_by_every_verb_that_reads() {
    let scratch = Scratch::new();
    compacted(&scratch);
    for arguments in READERS {
        let said = ask(&scratch, arguments);
        assert!([Some(0), Some(1)].contains(&said.code), "{arguments:?}: {said:?}");
    }
    std::fs::remove_file(scratch.path("s").join("grouped/0.seg")).unwrap();
    for arguments in READERS {
        let said = ask(&scratch, arguments);
        assert_eq!(said.code, Some(3), "{arguments:?}: {said:?}");
        assert!(said.out.contains("damaged") || !said.err.is_empty(), "{arguments:?}: {said:?}");
    }
}

/// A directory under the name of a manifest made every verb look for a newer one for ever.
#[test]
fn a_directory_under_the_name_of_a_file_is_damage_to_every_verb() {
    let (scratch, whole) = (Scratch::new(), Scratch::new());
    compacted(&scratch);
    copy_all(&scratch.path("s"), &whole.path("s"));
    // The others can do without a copy that is not read, and without a name that the logs have too.
    for (files, only_verify_needs) in [
        (&["grouped/0.manifest", "grouped/0.copy"][..], false),
        (&["grouped/0.seg"], false),
        (&["grouped/0.manifest"], false),
        (&["grouped/0.copy"], true),
        (&["keepstep.json"], true),
    ] {
        std::fs::remove_dir_all(scratch.path("s")).unwrap();
        copy_all(&whole.path("s"), &scratch.path("s"));
        for path in files.iter().map(|file| scratch.path("s").join(file)) {
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
        }
        for arguments in READERS {
            let said = run_or_give_up(scratch.dir(), arguments);
            assert!(said.code.is_some(), "{files:?}: {arguments:?}: {said:?}");
            let is_needed = !only_verify_needs || arguments[0] == "verify";
            assert!(!is_needed || said.code == Some(3), "{files:?}: {arguments:?}: {said:?}");
        }
    }
}
