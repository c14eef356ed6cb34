//! The verbs that read, on a store that the demo made: what they print, and how they end.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says why it was skipped"
)]

mod program;

use std::path::Path;
use std::process::Stdio;

use keepstep::{Ending, EpisodeName, NoteTarget, Options, Step, Store, Value};
use program::{Printed, Scratch, demo_store, json_lines, program, run};

#[test]
fn the_verbs_that_read_agree_with_one_another() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let dir = scratch.dir();

    let runs = run(dir, ["ls", "./demo", "--json"]);
    assert_eq!(runs.code, Some(0), "{runs:?}");
    assert_eq!(json_lines(&runs).len(), 1);
    let episodes = run(dir, ["ls", "./demo", "demo", "--json"]);
    let listed = json_lines(&episodes).len() as u64;
    assert_eq!(runs.number("episodes"), listed);

    let stats = run(dir, ["stats", "./demo", "--full", "--json"]);
    json_lines(&stats);
    // Those that were killed went on in a second attempt.
    assert!((listed..=2 * listed).contains(&stats.number("attempts")), "{stats:?}");
    assert_eq!(stats.number("steps"), runs.number("steps"));

    // Each that is listed can be shown by the name that was printed, and has as many steps as the list says.
    for line in json_lines(&episodes) {
        let said = Printed { code: None, out: line.to_owned(), err: String::new() };
        let name = line.split('"').nth(3).unwrap();
        let shown = run(dir, ["show", "-s", "./demo", name, "--json"]);
        assert_eq!(shown.code, Some(0), "{name}: {shown:?}");
        let steps = json_lines(&shown).iter().filter(|line| line.contains(r#""what":"step""#)).count();
        assert_eq!(steps as u64, said.number("steps"), "{name}");
    }

    let verified = run(dir, ["verify", "./demo", "--json"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(json_lines(&verified)[0].starts_with(r#"{"whole":true"#), "{verified:?}");
    let dumped = run(dir, ["dump", "./demo"]);
    // What a taker copied stands there twice.
    let recorded = json_lines(&dumped).iter().filter(|line| line.starts_with(r#"{"what":1,"#)).count();
    assert_eq!(recorded as u64, stats.number("records"));
}

#[test]
fn a_step_is_shown_in_full() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let said = run(scratch.dir(), ["show", "-s", "demo", "demo/shop-1#0.0@1"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in [
        "demo/shop-1#0.0@1",
        "index: 1",
        "time: 20",
        "prompt:",
        "- role: system",
        "observation: Aisle",
        "reward: ",
    ] {
        assert!(said.out.contains(part), "no {part:?} in {}", said.out);
    }
    let said = run(scratch.dir(), ["show", "-s", "demo", "demo/shop-1#0.0"]);
    assert!(said.out.contains("id      ") && said.out.contains("STEP"), "{said:?}");
    // Its last attempt has a begin and an end, and no step if the kill came behind the last one.
    let said = run(scratch.dir(), ["tail", "-n", "2", "-s", "demo", "demo/shop-1#0.0"]);
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 2), "{said:?}");
    let said = run(scratch.dir(), ["tail", "-n", "5", "--json", "./demo"]);
    assert_eq!(json_lines(&said).len(), 5, "{said:?}");
}

/// A turn without a result says so, and what others noted on an episode is shown with it.
#[test]
fn a_pending_turn_and_notes_of_others_are_shown() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("runs"), Options::default()).unwrap();
    let agents = store.run("shop", Value::Null).unwrap();
    let episode = agents.episode(EpisodeName::task("t")).unwrap();
    episode.step(Step::new().action("look").observation("a shop")).unwrap();
    let turn = episode.turn(Step::new().action("buy")).unwrap();
    let note = agents.annotate(NoteTarget::episode(episode.id()), "score", Value::Float(0.5), "judge");
    note.unwrap().wait().unwrap();
    let said = run(scratch.dir(), ["show", "-s", "runs", "shop/t"]);
    let lines: Vec<&str> = said.out.lines().collect();
    let [.., step, pending, noted] = lines[..] else { panic!("{said:?}") };
    assert!(step.ends_with("a shop"), "{said:?}");
    assert!(pending.contains("buy") && pending.ends_with("(no result yet)"), "{said:?}");
    assert_eq!(noted.trim(), "note score by judge: 0.5");
    let said = run(scratch.dir(), ["show", "-s", "runs", "shop/t@1"]);
    assert!(said.out.contains("pending: no result yet"), "{said:?}");
    let said = run(scratch.dir(), ["show", "-s", "runs", "shop/t", "--json"]);
    assert!(json_lines(&said).iter().any(|line| line.contains(r#""what":"note""#)), "{said:?}");
    drop(turn);
    // Of an attempt that is over, no result will come.
    episode.end("errored", Ending::default()).unwrap().wait().unwrap();
    for (wanted, words) in
        [("shop/t", "(no result: the attempt ended first)"), ("shop/t@1", "no result: the attempt")]
    {
        let said = run(scratch.dir(), ["show", "-s", "runs", wanted]);
        assert!(said.out.contains(words) && !said.out.contains("no result yet"), "{said:?}");
    }
}

/// Wrong names fail with exit 1 and say what there is; wrong arguments with exit 2.
#[test]
fn what_is_not_there_is_told_with_a_hint() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let cases: [(&[&str], i32, &str); 14] = [
        (&["ls", "./nowhere"], 1, "there is no store at ./nowhere"),
        (&["verify"], 1, "there is no store at ./runs"),
        (&["ls", "."], 1, "is not a keepstep store"),
        (&["ls", "./demo", "nope"], 1, "no run or episode here is called \"nope\""),
        (&["show", "-s", "demo", "demo/shop-99"], 1, "no episode here is called"),
        (&["show", "-s", "demo", "demo"], 1, "may mean any of"),
        (&["show", "-s", "demo", "demo/shop-1#0.0@99"], 1, "has no step 99"),
        (&["show", "-s", "demo", "demo/shop-1@x"], 2, "the step of \"demo/shop-1@x\" is not a number"),
        (&["ls", "./demo", "demo#x"], 2, "the generation of \"demo#x\" is not a number"),
        (&["ls", "./demo", "demo#1"], 1, "has no generation 1: its only generation is 0"),
        (&["ls", "./demo", "demoo"], 1, "perhaps demo is meant"),
        (&["ls", "./demo", "--run", "nope"], 1, "no run here is called \"nope\""),
        (&["show", "-s", "demo", "demo/shpo-1#0.0"], 1, "perhaps demo/shop-1#0.0"),
        (&["export", "jsonl", "-s", "demo", "--task", "shop-1"], 2, "--all"),
    ];
    for (arguments, code, words) in cases {
        let said = run(scratch.dir(), arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.tells_error_and_hint() && said.err.contains(words), "{arguments:?}: {}", said.err);
        assert!(said.out.is_empty(), "{arguments:?}: {}", said.out);
    }
}

/// An address is no store and no run: each verb says so, and makes no folder called `s3:`.
#[test]
fn an_address_is_refused_by_every_verb() {
    let scratch = Scratch::new();
    let address = "s3://bucket/runs";
    let mut cases = vec![
        vec!["ls", address],
        vec!["tail", address],
        vec!["show", "-s", address, "run/task"],
        vec!["diff", "-s", address, "run/a", "run/b"],
        vec!["export", "jsonl", "-s", address, "--all"],
        vec!["export", "jsonl", "-s", "runs", "--all", "-o", address],
        vec!["torture", address, "--seconds", "1"],
        vec!["demo", address],
        vec!["prune", "-s", address, "--run", "x", "--reason", "y"],
    ];
    for verb in ["stats", "verify", "reap", "compact", "doctor", "dump"] {
        cases.push(vec![verb, address]);
    }
    for arguments in cases {
        let said = run(scratch.dir(), &arguments);
        assert_eq!(said.code, Some(1), "{arguments:?}: {said:?}");
        assert!(said.err.contains("give a local directory"), "{arguments:?}: {said:?}");
    }
    assert_eq!(std::fs::read_dir(scratch.dir()).unwrap().count(), 0);
}

/// Damage to `keepstep.json` is told with exit code 3, the store is read all the same, and `verify --heal` mends it.
#[test]
fn a_store_gets_its_identity_back() {
    let scratch = Scratch::new();
    let file = demo_store(&scratch).join("keepstep.json");
    let dir = scratch.dir();
    let whole = std::fs::read_to_string(&file).unwrap();
    let healed = |before: &str| {
        let said = run(dir, ["verify", "./demo", "--heal"]);
        assert_eq!(said.code, Some(0), "{before}: {said:?}");
        assert!(said.err.contains("keepstep.json was written again"), "{before}: {said:?}");
        let known = whole.split('"').nth(9).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().contains(known), "{before}");
        assert_eq!(run(dir, ["ls", "./demo"]).code, Some(0), "{before}");
    };
    std::fs::write(&file, whole.replace("\"created\":1", "\"created\":2")).unwrap();
    assert_eq!(run(dir, ["ls", "./demo"]).code, Some(0));
    let said = run(dir, ["verify", "./demo"]);
    assert!(said.code == Some(3) && said.out.contains("keepstep.json"), "{said:?}");
    assert!(said.err.contains("--heal"), "{said:?}");
    healed("a digit was changed");
    std::fs::remove_file(&file).unwrap();
    for verb in ["ls", "stats", "verify"] {
        let said = run(dir, [verb, "./demo"]);
        assert!(said.code == Some(3) && said.err.contains("verify --heal"), "{verb}: {said:?}");
    }
    healed("it was deleted");
}

/// KEEPSTEP_STORE stands in for an argument, and an argument beats it.
#[test]
fn the_store_is_an_argument_a_variable_or_runs() {
    let scratch = Scratch::new();
    let store = demo_store(&scratch);
    let ls = |arguments: &[&str], variable: &Path| -> Printed {
        program()
            .current_dir(scratch.dir())
            .env("KEEPSTEP_STORE", variable)
            .args(arguments)
            .output()
            .unwrap()
            .into()
    };
    assert_eq!(ls(&["ls"], &store).code, Some(0));
    assert_eq!(ls(&["ls", "demo/shop-1#0.0"], &store).code, Some(0));
    assert_eq!(ls(&["ls"], Path::new("/nowhere")).code, Some(1));
    assert_eq!(ls(&["ls", "./demo"], Path::new("/nowhere")).code, Some(0));
    assert_eq!(ls(&["ls", "-s", "demo", "demo"], Path::new("/nowhere")).code, Some(0));
    std::fs::rename(&store, scratch.path("runs")).unwrap();
    assert_eq!(run(scratch.dir(), ["ls"]).code, Some(0));
}

/// A reader that goes away, as `head` does, is no error.
#[test]
fn a_broken_pipe_is_quiet() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    for arguments in [&["dump", "demo"][..], &["completions", "bash"], &["ls", "./demo", "-a"], &["--help"]] {
        let mut child = program()
            .current_dir(scratch.dir())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let said = Printed::from(child.wait_with_output().unwrap());
        let is_quiet = !said.err.contains("error") && !said.err.contains("panicked");
        assert!(said.code == Some(0) && is_quiet, "{arguments:?}: {said:?}");
    }
}

/// A flipped byte is found, placed, and said to have cost what it cost: exit 3. The rest stays readable.
#[test]
fn damage_is_told_with_exit_code_three() {
    let scratch = Scratch::new();
    let store = demo_store(&scratch);
    let segment = longest_segment(&store);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x40;
    std::fs::write(&segment, &bytes).unwrap();

    let verified = run(scratch.dir(), ["verify", "./demo"]);
    assert_eq!(verified.code, Some(3), "{verified:?}");
    let name = segment.strip_prefix(&store).unwrap().display().to_string();
    assert!(verified.out.contains("damaged") && verified.out.contains(&name), "{verified:?}");
    assert!(verified.err.contains("hint: "), "{verified:?}");
    let told = run(scratch.dir(), ["verify", "./demo", "--heal", "--json"]);
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(json_lines(&told)[0].starts_with(r#"{"whole":false"#), "{told:?}");
    // Lists still work: what cannot be read does not keep the rest from being read.
    let listed = run(scratch.dir(), ["ls", "./demo", "-a"]);
    assert!(listed.out.contains("demo/shop-1#0.0"), "{listed:?}");
}

fn longest_segment(store: &Path) -> std::path::PathBuf {
    let writers = std::fs::read_dir(store.join("writers")).unwrap().map(|entry| entry.unwrap().path());
    let files = writers.flat_map(|dir| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
    let segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "seg"));
    segments.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap()
}

/// `tail -f` shows what another process records, and ends when the episode does.
#[test]
fn tail_follows_an_episode_to_its_end() {
    let scratch = Scratch::new();
    demo_store(&scratch);
    let mut recorder = program()
        .current_dir(scratch.dir())
        .args([
            "demo-recorder",
            "--store",
            "demo",
            "--run",
            "live",
            "--iteration",
            "0",
            "--steps",
            "20",
            "--pause-ms",
            "20",
            "shop-1",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = std::io::BufReader::new(recorder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut acknowledged, &mut String::new()).unwrap();
    // Its first step is durable: from here on it can be followed.
    let said = run(scratch.dir(), ["tail", "-f", "-n", "1000", "--json", "-s", "demo", "live/shop-1"]);
    std::io::copy(&mut acknowledged, &mut std::io::sink()).unwrap();
    assert!(recorder.wait().unwrap().success());
    assert_eq!(said.code, Some(0), "{said:?}");
    let indices: Vec<u64> = json_lines(&said)
        .iter()
        .filter(|line| line.contains(r#""what":"step""#))
        .map(|line| Printed { code: None, out: (*line).to_owned(), err: String::new() }.number("index"))
        .collect();
    let all: Vec<u64> = (0..indices.len() as u64).collect();
    assert_eq!(indices, all, "each step once, in order");
    let shown = run(scratch.dir(), ["ls", "./demo", "live", "--json"]);
    assert_eq!(shown.number("steps"), indices.len() as u64);
}

/// What this machine's disk is like differs; that the findings are told, and can be read by a program, does not.
#[test]
fn the_doctor_tells_what_the_disk_guarantees() {
    let scratch = Scratch::new();
    let said = run(scratch.dir(), ["doctor"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in
        ["file system", "sync", "link(2)", "O_EXCL", "lock", "level kill", "level power", "level machine"]
    {
        assert!(said.out.contains(part), "no {part:?} in {}", said.out);
    }
    let said = run(scratch.dir(), ["doctor", ".", "--json"]);
    json_lines(&said);
    assert!(said.number("tries") > 100 && said.out.contains(r#""exclusive_link":{"ok":true}"#), "{said:?}");
    let left: Vec<_> = std::fs::read_dir(scratch.dir()).unwrap().collect();
    assert!(left.is_empty(), "the doctor left something behind: {left:?}");
    let said = run(scratch.dir(), ["doctor", "/proc/self"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("error: "), "{said:?}");
}

/// Verbs that only other processes of the program use are offered to nobody.
#[test]
fn completions_have_all_verbs_but_the_hidden() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(scratch.dir(), ["completions", shell]);
        assert_eq!(said.code, Some(0), "{shell}: {said:?}");
        let verbs = [
            "demo",
            "ls",
            "show",
            "tail",
            "diff",
            "export",
            "jsonl",
            "reap",
            "stats",
            "verify",
            "doctor",
            "torture",
            "completions",
        ];
        assert!(verbs.iter().all(|verb| said.out.contains(verb)), "{shell}");
        assert!(!said.out.contains("torture-recorder") && !said.out.contains("dump"), "{shell}");
    }
}

/// The demo's episodes are called shop-1; other people's are not. Names and values come out as they can be typed and seen.
#[test]
fn hostile_names_and_texts_are_escaped() {
    let scratch = Scratch::new();
    let hostile = "a/b #1\u{1b}[2J\u{202e}";
    let recorder = program()
        .current_dir(scratch.dir())
        .args([
            "demo-recorder",
            "--store",
            "s",
            "--run",
            hostile,
            "--iteration",
            "0",
            "--steps",
            "4",
            "--pause-ms",
            "0",
            hostile,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(program::wait_with_open_stdin(recorder).code, Some(0));
    let listed = run(scratch.dir(), ["ls", "-s", "s", "--all"]);
    assert!(!listed.out.contains(['\u{1b}', '\u{202e}']), "{listed:?}");
    let name = listed.out.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(name, "a%2Fb%20%231%1B%5B2J%E2%80%AE/a%2Fb%20%231%1B%5B2J%E2%80%AE#0.0");
    let shown = run(scratch.dir(), ["show", "-s", "s", &name]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for arguments in [["show", "-s", "s", &name, "--json"], ["tail", "-s", "s", &name, "--json"]] {
        let said = run(scratch.dir(), arguments);
        json_lines(&said);
        assert!(!said.out.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    }
}
