//! A store of which a file is gone, or cannot be read: every verb says which, in its own words, and goes on with the rest.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod program;

use std::path::PathBuf;

use keepstep::{Ending, EpisodeName, Options, Step, Store, Value};
use program::{Printed, Scratch, json_lines, run};

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
