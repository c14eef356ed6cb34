//! What somebody sees who looks for the first time: names in place of ids, what is not there (yet), and why something failed.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod program;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use keepstep::{Ending, Episode, EpisodeName, NoteTarget, Options, PlanOptions, Run, Step, Store, Value};
use program::{Printed, Scratch, json_lines, program, run};

fn opened(scratch: &Scratch, name: &str) -> Run {
    Store::open(scratch.path("s"), Options::default()).unwrap().run(name, Value::Null).unwrap()
}

fn end(episode: &Episode, why: &str, error: Option<Value>) {
    let mut ending = Ending::default();
    ending.error = error;
    episode.end(why, ending).unwrap().wait().unwrap();
}

/// Episodes that finished, of one step each.
fn record(run: &Run, tasks: &[&str]) {
    for task in tasks {
        let episode = run.episode(EpisodeName::task(*task)).unwrap();
        episode.step(Step::new().action("look").reward(1.0)).unwrap();
        end(&episode, "finished", None);
    }
}

fn ask(scratch: &Scratch, arguments: &[&str]) -> Printed {
    run(scratch.dir(), arguments.iter().copied())
}

/// What Python keeps of an exception, with a traceback of so many lines.
fn raised(lines: usize) -> Value {
    let frames: Vec<String> = (1..=lines).map(|at| format!("frame {at}\u{1b}[2J")).collect();
    Value::map([
        ("type", Value::from("ValueError")),
        ("message", Value::from("no such shop")),
        ("traceback", Value::from(frames.join("\n"))),
    ])
}

/// `show` and `tail` listed calls named `keepstep.turn`, which no user ever made.
#[test]
fn bookkeeping_is_shown_to_programs_only() {
    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    let episode = shop.episode(EpisodeName::task("t")).unwrap();
    episode.call_once("look", None, Value::Null, || Ok("a shop".into())).unwrap().unwrap();
    drop(episode.turn(Step::new().action("buy")).unwrap());
    for _ in 0..30 {
        episode.keep(raised(1)).unwrap().wait().unwrap();
    }
    drop(episode);
    shop.store().close();
    for arguments in [&["show", "-s", "s", "shop/t"][..], &["tail", "-s", "s", "shop/t"], &["tail", "./s"]] {
        let said = ask(&scratch, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        assert!(!said.out.contains("keepstep.turn"), "{arguments:?}: {}", said.out);
        // What it hides does not take the place of what it has to show.
        assert!(said.out.contains("call look") && said.out.contains("buy"), "{arguments:?}: {}", said.out);
        let json = ask(&scratch, &[arguments, &["--json"]].concat());
        assert!(json_lines(&json).iter().any(|line| line.contains("keepstep.turn")), "{json:?}");
    }
}

/// A store of which a log is gone: two episodes are planned, and one was begun.
fn with_a_lost_log(scratch: &Scratch) {
    let shop = opened(scratch, "shop");
    shop.plan(["lost", "never"], PlanOptions::default()).unwrap();
    record(&shop, &["lost"]);
    shop.store().close();
    std::fs::remove_dir_all(scratch.path("s/writers")).unwrap();
}

/// What was recorded in a log that is gone was said to be planned, and not to have begun.
#[test]
fn what_may_be_lost_is_not_said_to_be_new() {
    let scratch = Scratch::new();
    with_a_lost_log(&scratch);
    for arguments in [
        &["show", "-s", "s", "shop/lost"][..],
        &["ls", "-s", "s", "shop/lost"],
        &["ls", "./s", "--task", "lost"],
    ] {
        let said = ask(&scratch, arguments);
        assert_eq!(said.code, Some(3), "{arguments:?}: {said:?}");
        assert!(!said.err.contains("has not begun"), "{arguments:?}: {said:?}");
        assert!(said.err.contains("it may have been there: `keepstep verify`"), "{arguments:?}: {said:?}");
    }
}

/// Who read `verify` had to find out which episode an id is.
#[test]
fn verify_names_episodes_as_people_do() {
    let scratch = Scratch::new();
    with_a_lost_log(&scratch);
    let said = ask(&scratch, &["verify", "s"]);
    assert!(said.out.contains("claimed  shop/lost#0.0~0: "), "{said:?}");

    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    shop.plan(["hit"], PlanOptions::default()).unwrap();
    record(&shop, &["hit", "well"]);
    let id = shop.episode_id(&EpisodeName::task("hit")).to_string();
    shop.store().close();
    let claim = scratch.path("s").join(format!("claims/{}/{id}.0.claim", &id[..2]));
    let whole = std::fs::read(&claim).unwrap();
    std::fs::remove_file(&claim).unwrap();
    let said = ask(&scratch, &["verify", "s"]);
    assert!(said.code == Some(3) && said.out.contains("damaged  shop/hit#0.0: claims/"), "{said:?}");
    std::fs::write(&claim, whole).unwrap();

    // The record that says its name is lost: the plan still knows it.
    let segment = first_segment(&scratch);
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[128 + 24 + 20 + 24 + 40] ^= 0x10;
    std::fs::write(&segment, bytes).unwrap();
    let said = ask(&scratch, &["verify", "s"]);
    let lost = said.out.lines().find(|line| line.starts_with("lost ")).unwrap();
    assert!(lost.starts_with("lost     shop/hit#0.0"), "{said:?}");
}

fn first_segment(scratch: &Scratch) -> PathBuf {
    let writers = std::fs::read_dir(scratch.path("s/writers")).unwrap();
    writers.map(|it| it.unwrap().path().join("0.seg")).find(|it| it.exists()).unwrap()
}

/// A line that said "leftover" alone frightened people. It is explained, and what is advised works.
#[test]
fn leftovers_are_explained_and_can_be_removed() {
    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    record(&shop, &["t"]);
    shop.store().close();
    assert!(!ask(&scratch, &["verify", "s"]).err.contains("leftover"));
    let left = scratch.path("s/runs/.tmp-0011");
    std::fs::write(&left, "half a ca").unwrap();
    let said = ask(&scratch, &["verify", "s"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("leftover runs/.tmp-0011"), "{said:?}");
    let words = ["a process was making", "no harm", "`keepstep compact`"];
    assert!(words.iter().all(|word| said.err.contains(word)), "{said:?}");
    for _ in 0..2 {
        assert_eq!(ask(&scratch, &["compact", "s", "--grace", "0"]).code, Some(0));
    }
    assert!(!left.exists());
}

/// `ls --task` of a task that is not there printed an empty list, as if it had no episodes yet.
#[test]
fn a_task_that_is_not_there_is_told_with_near_names() {
    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    shop.plan(["planned"], PlanOptions::default()).unwrap();
    record(&shop, &["checkout", "search"]);
    record(&opened(&scratch, "other"), &["cart"]);
    for arguments in [
        &["ls", "./s", "shop", "--task", "checkouts"][..],
        &["ls", "./s", "--run", "shop", "--task", "checkouts"],
        &["ls", "./s", "--task", "checkouts"],
        &["ls", "./s", "--task", "checkouts", "--json"],
        &["export", "jsonl", "-s", "s", "shop", "--task", "checkouts"],
        &["export", "jsonl", "-s", "s", "--all", "--task", "checkouts"],
    ] {
        let said = ask(&scratch, arguments);
        assert_eq!((said.code, &*said.out), (Some(1), ""), "{arguments:?}: {said:?}");
        assert!(said.err.contains("no task here is called \"checkouts\""), "{arguments:?}: {}", said.err);
        assert!(said.err.contains("perhaps shop/checkout is meant"), "{arguments:?}: {}", said.err);
    }
    // One of another run is not there either.
    let said = ask(&scratch, &["ls", "./s", "shop", "--task", "cart"]);
    assert!(said.code == Some(1) && said.tells_error_and_hint(), "{said:?}");
    let said = ask(&scratch, &["ls", "./s", "shop", "--task", "planned"]);
    assert!(said.code == Some(1) && said.err.contains("planned and has not begun"), "{said:?}");
    // One that is there, and of which nothing fits, is no mistake.
    let said = ask(&scratch, &["ls", "./s", "--task", "cart", "--ending", "errored"]);
    assert!(said.code == Some(0) && said.err.starts_with("0 episodes\n"), "{said:?}");
}

/// With `--attempts` every line says which attempt it is, also that of the one that counts.
#[test]
fn attempts_are_told_apart() {
    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    drop(shop.episode(EpisodeName::task("t")).unwrap());
    record(&shop, &["t", "u"]);
    shop.store().close();
    let names = |arguments: &[&str]| -> Vec<String> {
        let said = ask(&scratch, arguments);
        said.out.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["ls", "./s", "--attempts"]), ["shop/t#0.0~0", "shop/t#0.0~1", "shop/u#0.0~0"]);
    assert_eq!(names(&["ls", "./s", "shop"]), ["shop/t#0.0", "shop/u#0.0"]);
}

/// A run called a/b is a%2Fb where a slash parts run and task; somebody who types what they called it is told so.
#[test]
fn a_name_with_a_slash_is_recognised() {
    let scratch = Scratch::new();
    record(&opened(&scratch, "team/shop"), &["t", "sub/task"]);
    for (wanted, meant) in [
        ("team/shop", "team%2Fshop"),
        ("team/shop#0", "team%2Fshop#0"),
        ("team/shop/t", "team%2Fshop/t"),
        ("team/shop/t#0.0", "team%2Fshop/t#0.0"),
        ("t", "team%2Fshop/t"),
        ("t#0", "team%2Fshop/t#0"),
        ("t~0", "team%2Fshop/t~0"),
        ("sub/task", "team%2Fshop/sub%2Ftask"),
        ("sub/task#0.0", "team%2Fshop/sub%2Ftask#0.0"),
    ] {
        for verb in [&["ls", "-s", "s"][..], &["export", "jsonl", "-s", "s"]] {
            let said = ask(&scratch, &[verb, &[wanted]].concat());
            assert_eq!(said.code, Some(1), "{wanted}: {said:?}");
            let hint = format!("hint: perhaps {meant} is meant");
            assert!(said.err.lines().any(|line| line.starts_with(&hint)), "{wanted}: {}", said.err);
        }
        let found = ask(&scratch, &["ls", "-s", "s", meant]);
        assert_eq!(found.code, Some(0), "{meant}: {found:?}");
    }
}

/// Follows something that is not there yet; gives the process once it says that it waits.
fn waiting(scratch: &Scratch, arguments: &[&str], words: &str) -> (Child, impl Iterator<Item = String>) {
    let mut tail = program()
        .current_dir(scratch.dir())
        .args(["tail", "-f", "--json"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut talk = BufReader::new(tail.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let said = talk.next().unwrap();
    assert!(said.contains(words) && said.contains("waiting"), "{said}");
    (tail, talk)
}

/// Whoever starts `tail -f` before the agent was sent away.
#[test]
fn tail_waits_for_a_store_and_an_episode_to_come() {
    let scratch = Scratch::new();
    let steps = |tail: Child| {
        let said = Printed::from(tail.wait_with_output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        json_lines(&said).iter().filter(|line| line.contains(r#""what":"step""#)).count()
    };
    let (tail, _talk) = waiting(&scratch, &["./s", "shop/t"], "there is no store at ./s yet");
    let shop = opened(&scratch, "shop");
    record(&shop, &["t"]);
    assert_eq!(steps(tail), 1);
    // Of two names the first is the store, also if it does not look like a path.
    let (tail, _talk) = waiting(&scratch, &["later", "shop/t"], "there is no store at later yet");
    let later = Store::open(scratch.path("later"), Options::default()).unwrap();
    record(&later.run("shop", Value::Null).unwrap(), &["t"]);
    assert_eq!(steps(tail), 1);
    let (tail, mut talk) =
        waiting(&scratch, &["./s", "shop/tt"], "no episode here is called \"shop/tt\" yet");
    // Whoever mistyped it waits for ever; so the near names are told.
    assert!(talk.next().unwrap().contains("perhaps shop/t is meant"));
    record(&shop, &["tt"]);
    assert_eq!(steps(tail), 1);
    shop.store().close();

    // Without -f nothing is waited for, and nor is what can never come.
    let said = ask(&scratch, &["tail", "./nowhere"]);
    assert!(said.code == Some(1) && said.err.contains("there is no store at ./nowhere"), "{said:?}");
    assert!(said.err.contains("`keepstep tail -f` waits"), "{said:?}");
    assert_eq!(ask(&scratch, &["tail", "-f", "s3://bucket/runs"]).code, Some(1));
    assert_eq!(ask(&scratch, &["prune", "-s", "s", "shop/tt", "--reason", "a secret"]).code, Some(0));
    let said = ask(&scratch, &["tail", "-f", "-s", "s", "shop/tt"]);
    assert!(said.code == Some(1) && said.err.contains("a secret"), "{said:?}");
    let said = ask(&scratch, &["tail", "-f", "nowhere/x", "shop/t"]);
    assert!(said.code == Some(2) && said.err.contains("more than one episode was named"), "{said:?}");
}

/// Why an episode failed was to be had from --json only.
#[test]
fn a_traceback_is_shown_with_the_error() {
    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    for (task, error) in [("short", raised(3)), ("long", raised(50)), ("text", "one\ntwo".into())] {
        let episode = shop.episode(EpisodeName::task(task)).unwrap();
        end(&episode, "errored", Some(error));
    }
    shop.store().close();
    let short = ask(&scratch, &["show", "-s", "s", "shop/short"]).out;
    assert!(short.contains("ended   errored, error ValueError: no such shop\n"), "{short}");
    assert!(short.contains("\n        frame 1\\u{1b}[2J\n        frame 2"), "{short}");
    assert!(!short.contains("--json") && !short.contains('\u{1b}'), "{short}");
    let long = ask(&scratch, &["show", "-s", "s", "shop/long"]).out;
    assert!(
        long.contains("        … 30 lines before these: --json has them all\n        frame 31"),
        "{long}"
    );
    assert!(long.contains("        frame 50") && !long.contains("frame 30\\"), "{long}");
    let text = ask(&scratch, &["show", "-s", "s", "shop/text"]).out;
    assert!(text.contains("ended   errored, error one\n        two\n"), "{text}");
    let followed = ask(&scratch, &["tail", "-s", "s", "shop/long"]).out;
    assert!(followed.contains("error ValueError: no such shop, "), "{followed}");
    let json = ask(&scratch, &["show", "-s", "s", "shop/long", "--json"]);
    assert!(json_lines(&json).last().unwrap().contains("frame 1\\u001b"), "{json:?}");
}

/// What a judge said of an episode stands where the return does.
#[test]
fn a_score_stands_in_the_heading() {
    let scratch = Scratch::new();
    let shop = opened(&scratch, "shop");
    record(&shop, &["t", "unscored"]);
    let target = NoteTarget::episode(shop.episode_id(&EpisodeName::task("t")));
    for (name, value) in [
        ("score", Value::Float(0.25)),
        ("score", Value::Float(0.5)),
        ("label", Value::from("good")),
        ("reward", Value::Float(-1.0)),
    ] {
        shop.annotate(target, name, value, "judge").unwrap().wait().unwrap();
    }
    // One of a step is none of the episode.
    shop.annotate(target.step(0), "score", Value::Float(9.0), "judge").unwrap();
    shop.store().close();
    let heading = |task: &str| {
        let said = ask(&scratch, &["show", "-s", "s", task]);
        said.out.lines().next().unwrap().to_owned()
    };
    assert_eq!(heading("shop/t"), "shop/t#0.0  finished, 1 step, return 1, reward -1, score 0.5");
    assert_eq!(heading("shop/unscored"), "shop/unscored#0.0  finished, 1 step, return 1");
}

/// A run that was opened and not recorded to could neither be exported nor pruned, and the hint proposed its own name.
#[test]
fn a_run_without_episodes_is_there() {
    let scratch = Scratch::new();
    record(&opened(&scratch, "evaluation"), &["t"]);
    opened(&scratch, "evalution");
    let said = ask(&scratch, &["export", "jsonl", "-s", "s", "evalution"]);
    assert!(said.code == Some(0) && said.out.is_empty(), "{said:?}");
    assert!(said.err.starts_with("0 episodes, 0 steps"), "{said:?}");
    for arguments in [
        &["prune", "./s", "evalution", "--reason", "typo"][..],
        &["prune", "./s", "evalution", "--reason", "typo", "--dry-run"],
    ] {
        let said = ask(&scratch, arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.starts_with("0 episodes ") && said.err.contains("has no episodes"), "{said:?}");
    }
    let said = ask(&scratch, &["prune", "./s", "evalution", "--reason", "typo", "--json"]);
    assert!(said.code == Some(0) && said.out.contains(r#""episodes":0"#), "{said:?}");
    // Not all were taken for what was named.
    assert!(ask(&scratch, &["ls", "./s", "evaluation"]).out.contains("evaluation/t#0.0"));
    for verb in ["show", "tail"] {
        let said = ask(&scratch, &[verb, "./s", "evalution"]);
        assert!(said.code == Some(1) && !said.err.contains("perhaps"), "{said:?}");
        assert!(said.err.contains("run 'evalution' is there, and has no episodes"), "{said:?}");
    }
    let said = ask(&scratch, &["export", "jsonl", "-s", "s", "evalutio"]);
    assert!(said.err.contains("perhaps evalution or evaluation is meant"), "{said:?}");
}

/// A process that was killed just as it made its folder counted as silent for ever, since nothing could ever be heard of it.
#[test]
fn a_writer_that_was_killed_as_it_began_is_gone() {
    let scratch = Scratch::new();
    record(&opened(&scratch, "shop"), &["t"]);
    let empty = scratch.path("s/writers").join("ab".repeat(16));
    std::fs::create_dir(&empty).unwrap();
    let unsaid = scratch.path("s/writers").join("cd".repeat(16));
    std::fs::create_dir(&unsaid).unwrap();
    std::fs::write(unsaid.join("lock"), "").unwrap();
    let writers = || ask(&scratch, &["stats", "./s"]).out.lines().last().unwrap().to_owned();
    assert!(writers().starts_with("writers   0 live, 3 gone"), "{}", writers());
    assert!(!writers().contains("silent"), "{}", writers());
    // One that has recorded is silent without its lock: it may be there.
    std::fs::write(unsaid.join("beat"), [0; 20]).unwrap();
    assert!(writers().contains("2 gone, 1 silent"), "{}", writers());
}

/// `ls runz` for a mistyped directory was looked for as a run, and did not say where.
#[test]
fn a_name_that_may_be_a_directory_is_told_where_it_was_looked_for() {
    let scratch = Scratch::new();
    let runs = Store::open(scratch.path("runs"), Options::default()).unwrap();
    record(&runs.run("shop", Value::Null).unwrap(), &["t"]);
    let said = ask(&scratch, &["ls", "runz"]);
    assert!(
        said.code == Some(1) && said.err.contains("no run or episode here is called \"runz\""),
        "{said:?}"
    );
    assert!(said.err.contains("looked for in the store ./runs; there is no directory runz"), "{said:?}");
    let said = ask(&scratch, &["ls", "./runs", "shp"]);
    assert!(said.code == Some(1) && !said.err.contains("directory"), "{said:?}");
}
