//! Each file of a store removed, damaged or made unreadable, one at a time, and everything asked: whoever reads answers as
//! before, or tells that something is wrong. Never another answer without a word.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod scratch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keepstep::read::{Item, NoteTarget};
use keepstep::tend::CompactOptions;
use keepstep::{
    Ending, EpisodeName, Error, Opening, Options, PlanOptions, RemainingOptions, Resume, Run, Step, Store,
    Value, View,
};

use scratch::{Scratch, copy_all};

const TASKS: [&str; 4] = ["half", "done", "alone", "new"];

fn name(task: &str) -> EpisodeName {
    EpisodeName::task(task)
}

fn step(index: i64) -> Step {
    Step::new().action(index).reward(1.0)
}

/// Three attempts at one episode, and one that finished in a sealed group; a plan, a stream, notes; compacted, or not.
fn recorded(scratch: &Scratch, is_compacted: bool) {
    for attempt in 0..3 {
        let store = Store::open(&scratch.0, Options::default()).expect("opens");
        let run = store.run("run", Value::Null).expect("opens");
        if attempt == 0 {
            let options = PlanOptions::default().needs(["score"]);
            run.plan(TASKS.map(str::to_owned), options).expect("plans");
            for task in ["done", "alone"] {
                let done = run.episode(name(task)).expect("begins");
                done.step(step(0)).expect("records");
                done.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
                drop(done);
                let target = NoteTarget::episode(run.episode_id(&name(task)));
                run.annotate(target, "score", Value::Float(0.5), "judge").expect("notes").wait().unwrap();
            }
            run.group("done", 0, 1).seal(None, "test", None).expect("seals");
            run.stream("told").put("a", Value::from(1)).expect("puts").wait().expect("is durable");
        }
        let half = run.episode(name("half")).expect("goes on");
        half.step(step(attempt)).expect("records");
        drop(half);
        store.close();
    }
    if is_compacted {
        let store = Store::open(&scratch.0, Options::default()).expect("opens");
        let options = CompactOptions::default().grace(std::time::Duration::ZERO);
        for _ in 0..2 {
            store.compact(options.clone(), &mut |_| {}).expect("compacts");
        }
    }
}

/// What somebody was told.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Said(String),
    /// That something is wrong.
    Told(String),
}

fn answer<T: std::fmt::Debug>(asked: keepstep::Result<T>) -> Answer {
    match asked {
        Ok(said) => Answer::Said(format!("{said:?}")),
        Err(error) => Answer::Told(error.to_string()),
    }
}

type Answers = BTreeMap<String, Answer>;

fn ask_list(store: &Store, answers: &mut Answers) -> keepstep::Result<()> {
    let mut catalog = store.catalog()?;
    let listed = store.list(&mut catalog)?;
    let troubles: Vec<String> = catalog.troubles().iter().map(|it| it.error.to_string()).collect();
    for task in TASKS {
        let of_it: Vec<_> =
            listed.iter().filter(|it| it.summary.task.as_deref() == Some(task) && it.is_in_force).collect();
        let trouble = of_it.iter().find_map(|it| it.trouble.as_ref().map(Error::to_string));
        let said = |it: &&keepstep::Listed| {
            (it.key.attempt, it.state().to_owned(), it.summary.steps, it.summary.total_reward, it.attempts)
        };
        let said: Vec<_> = of_it.iter().map(said).collect();
        let found = match trouble.or(troubles.first().cloned()) {
            Some(trouble) => Answer::Told(trouble),
            None => Answer::Said(format!("{said:?}")),
        };
        answers.insert(format!("list {task}"), found);
    }
    Ok(())
}

fn view_says(view: &View) -> keepstep::Result<Answer> {
    let attempt = view.read()?;
    if !attempt.is_whole() || !view.missing().is_empty() {
        return Ok(Answer::Told(format!("{:?} {:?}", attempt.damaged, view.missing())));
    }
    let rewards: Vec<_> = attempt.steps.iter().map(|step| (step.index, step.reward)).collect();
    let why = view.ending()?.and_then(|end| end.why);
    Ok(Answer::Said(format!("attempt {} {rewards:?} {why:?}", view.number())))
}

fn ask_run(run: &Run, answers: &mut Answers) {
    answers.insert("generation_id".to_owned(), Answer::Said(run.generation_id().to_string()));
    for task in &TASKS[..3] {
        let said = run.view(&name(task)).and_then(|view| view_says(&view));
        let said = said.unwrap_or_else(|error| Answer::Told(error.to_string()));
        answers.insert(format!("view {task}"), said);
    }
    let list = run.remaining_list(&RemainingOptions::default());
    for task in TASKS {
        let found = list.as_ref().map(|list| {
            let of_it = list.iter().find(|(name, _)| name.task == task);
            of_it.map_or("nothing".to_owned(), |(_, why)| why.to_string())
        });
        let found = match found {
            Ok(why) if why == "damaged" => Answer::Told(why),
            Ok(why) => Answer::Said(why),
            Err(error) => Answer::Told(format!("ALL: {error}")),
        };
        answers.insert(format!("remaining {task}"), found);
    }
    let progress = run.progress(&RemainingOptions::default());
    let progress = match progress {
        Ok(progress) if progress.damaged > 0 => Answer::Told(format!("{progress:?}")),
        other => answer(other),
    };
    answers.insert("progress".to_owned(), progress);
    let groups = match run.groups() {
        Ok(groups) if !groups.damaged.is_empty() => Answer::Told(groups.damaged.join(" ")),
        other => answer(other),
    };
    answers.insert("groups".to_owned(), groups);
    let stream = match run.stream("told").read() {
        Ok(view) if !view.lost.is_empty() => Answer::Told(format!("{:?}", view.lost)),
        other => answer(other.map(|view| view.entries)),
    };
    answers.insert("stream".to_owned(), stream);
    let notes = run.notes().and_then(|index| {
        let of = |task: &str| index.episode(&run.episode_id(&name(task)));
        let lost = !index.lost().is_empty() || !index.troubles().is_empty();
        Ok((lost, of("done")?.0.iter().count(), of("alone")?.0.iter().count()))
    });
    let notes = match notes {
        Ok((true, ..)) => Answer::Told("some are lost".to_owned()),
        other => answer(other),
    };
    answers.insert("notes".to_owned(), notes);
}

/// Opens what is there: what is over must stay over, and what was interrupted goes on from where it was.
fn ask_opening(run: &Run, answers: &mut Answers) {
    for task in &TASKS[..3] {
        let opened = match run.episode(name(task)) {
            Ok(episode) => Answer::Said(format!("attempt {} at step {}", episode.attempt(), episode.steps())),
            Err(Error::Ended { why, .. }) => Answer::Said(why),
            Err(error) => Answer::Told(error.to_string()),
        };
        answers.insert(format!("open {task}"), opened);
    }
}

/// Whether `verify` finds anything.
fn ask_verify(store: &Store) -> Answer {
    match store.verify(&mut |_| {}) {
        Ok(report) if report.is_whole() => Answer::Said("whole".to_owned()),
        Ok(_) => Answer::Told("not whole".to_owned()),
        Err(error) => Answer::Told(error.to_string()),
    }
}

/// Asks everything. A process that answers nothing is no answer: the limit is a guard, and no measure.
fn ask(dir: &Path) -> Answers {
    const ENOUGH: std::time::Duration = std::time::Duration::from_secs(300);
    let (says, heard) = std::sync::mpsc::channel();
    let asked = dir.to_owned();
    std::thread::spawn(move || says.send(ask_all(&asked)));
    heard.recv_timeout(ENOUGH).unwrap_or_else(|_| panic!("nobody answers in {}", dir.display()))
}

fn ask_all(dir: &Path) -> Answers {
    let mut answers = Answers::new();
    let store = match Store::open(dir, Options::default()) {
        Ok(store) => store,
        Err(error) => return Answers::from([("store".to_owned(), Answer::Told(error.to_string()))]),
    };
    answers.insert("verify".to_owned(), ask_verify(&store));
    if let Err(error) = ask_list(&store, &mut answers) {
        answers.insert("list".to_owned(), Answer::Told(format!("ALL: {error}")));
    }
    match store.run("run", Value::Null) {
        Ok(run) => {
            ask_run(&run, &mut answers);
            ask_opening(&run, &mut answers);
        }
        Err(error) => drop(answers.insert("run".to_owned(), Answer::Told(error.to_string()))),
    }
    store.close();
    answers
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Wound {
    Removed,
    Flipped,
    /// A link to itself stands there: opening it is an error of the system.
    Unreadable,
    /// A directory stands there, which keepstep never made.
    Directory,
}

fn wound(path: &Path, wound: Wound) {
    let mut bytes = std::fs::read(path).expect("reads");
    match wound {
        Wound::Removed => std::fs::remove_file(path).expect("removes"),
        Wound::Flipped => {
            let at = bytes.len() * 3 / 4;
            bytes[at] ^= 0x10;
            std::fs::write(path, bytes).expect("writes");
        }
        Wound::Unreadable => {
            std::fs::remove_file(path).expect("removes");
            std::os::unix::fs::symlink(path, path).expect("links");
        }
        Wound::Directory => {
            std::fs::remove_file(path).expect("removes");
            std::fs::create_dir(path).expect("makes");
        }
    }
}

/// What a file is, by its path: ids are left out.
fn kind_of(path: &str, half: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["claims", _, file] => {
            let whose = if file.starts_with(half) { "half" } else { "done" };
            format!("claims/{whose}.{}", file.split_once('.').map_or("", |(_, rest)| rest))
        }
        ["writers", _, file] => format!("writers/{file}"),
        ["groups", ..] => "seal".to_owned(),
        ["ends", ..] => "end".to_owned(),
        ["streams", ..] => "stream".to_owned(),
        ["runs", _, file] => format!("runs/{file}"),
        ["mail", ..] => "mail".to_owned(),
        ["scans", ..] => "scans".to_owned(),
        ["grouped", file] => format!("grouped/{}", file.split_once('.').map_or("", |(_, rest)| rest)),
        _ => path.to_owned(),
    }
}

/// What cannot be seen by those who are asked, and why. `verify` tells of most of it.
fn is_beyond(kind: &str, wound: Wound, question: &str) -> bool {
    let is_gone = wound == Wound::Removed;
    match kind {
        // Whoever begins anew looks at two names, never at all the logs: lists and `verify` see it.
        "claims/done.0.claim" if is_gone => question.starts_with("open "),
        // The newest claim, and what stands under its name, is named by nobody but the records.
        "claims/half.2.claim" | "claims/half.2.base" if is_gone => false,
        // Nobody names the last card of a plan.
        "runs/0.plan.0" if is_gone => question.starts_with("remaining ") || question == "progress",
        // A run of which nothing else is there in its folder; with a plan it is seen.
        // Only the entries of those who claimed a stream are read; `verify` looks for the others.
        "stream" => question == "stream" && is_gone,
        // A seal is announced before it is made: nobody can tell one that is gone from one that never was.
        "seal" if is_gone => question == "groups",
        // Hints, which others leave for those who come later: without them there is more to look at.
        "mail" | "scans" | "end" | "writers/lock" | "writers/beat" => is_gone || kind == "writers/beat",
        // Older ones count no longer, and each has a copy.
        "grouped/manifest" | "grouped/copy" => false,
        _ => false,
    }
}

/// What says that a process is there, while it is; and what says by its name alone that a log was compacted. Nothing is
/// lost with it.
fn is_only_a_sign(kind: &str) -> bool {
    ["writers/lock", "writers/beat", "writers/compacted"].contains(&kind)
}

/// Wounds each file of a store, and compares what everybody says with what they said before.
fn silences(is_compacted: bool, wounds: &[Wound]) -> Vec<String> {
    let origin = Scratch::new("origin");
    recorded(&origin, is_compacted);
    let half = scratch::run_in(&origin.0).episode_id(&name("half")).to_string();
    let copy = Scratch::new("copy");
    let fresh = || {
        let _ = std::fs::remove_dir_all(&copy.0);
        copy_all(&origin.0, &copy.0);
    };
    fresh();
    let before = ask(&copy.0);
    println!("{before:#?}");
    assert!(before.values().all(|it| matches!(it, Answer::Said(_))), "{before:#?}");
    let mut silent = Vec::new();
    for file in origin.files("") {
        let path = file.strip_prefix(&origin.0).expect("is in it").to_str().expect("is text").to_owned();
        let kind = kind_of(&path, &half);
        for &how in wounds {
            fresh();
            wound(&copy.0.join(PathBuf::from(&path)), how);
            println!("{path} {how:?}");
            let now = ask(&copy.0);
            let is_all = |it: &Answer| matches!(it, Answer::Told(told) if told.starts_with("ALL"));
            let concerns_all = ["keepstep.json", "runs/", "grouped/"].iter().any(|it| kind.starts_with(it));
            for (question, was) in &before {
                let Some(is) = now.get(question) else { continue };
                if matches!(is, Answer::Said(_)) && is != was && !is_beyond(&kind, how, question) {
                    silent.push(format!("{kind} {how:?}: {question}: {was:?}, now {is:?} ({path})"));
                }
                if is_all(is) && !concerns_all {
                    silent.push(format!("{kind} {how:?}: {question}: one costs all: {is:?} ({path})"));
                }
            }
            let is_seen = matches!(now.get("verify"), None | Some(Answer::Told(_)));
            if how == Wound::Directory && !is_seen && !is_only_a_sign(&kind) {
                silent.push(format!("{kind} {how:?}: verify: whole ({path})"));
            }
            if let Some(all) = now.get("list").filter(|it| is_all(it) && !concerns_all) {
                silent.push(format!("{kind} {how:?}: list: one costs all: {all:?} ({path})"));
            }
        }
    }
    silent.sort();
    silent
}

fn assert_nobody_is_silent(is_compacted: bool, wounds: &[Wound]) {
    let silent = silences(is_compacted, wounds);
    assert!(silent.is_empty(), "{} of them:\n{}", silent.len(), silent.join("\n"));
}

#[test]
fn whoever_reads_answers_as_before_or_tells_what_is_gone() {
    assert_nobody_is_silent(false, &[Wound::Removed]);
}

#[test]
fn whoever_reads_answers_as_before_or_tells_what_is_damaged() {
    assert_nobody_is_silent(false, &[Wound::Flipped, Wound::Unreadable]);
}

/// A directory under the name of the newest manifest made everybody look for a newer one for ever, and one under the name
/// of a segment, a letter or a healed value was passed over.
#[test]
fn whoever_reads_tells_of_a_directory_under_the_name_of_a_file() {
    assert_nobody_is_silent(false, &[Wound::Directory]);
    assert_nobody_is_silent(true, &[Wound::Directory]);
}

#[test]
fn whoever_reads_answers_as_before_or_tells_what_is_wrong_with_a_compacted_store() {
    assert_nobody_is_silent(true, &[Wound::Removed, Wound::Flipped, Wound::Unreadable]);
}

/// One episode that finished, its END damaged: in a segment that was sealed with an index, or in one that was not, since its
/// process was killed.
fn with_a_damaged_end(scratch: &Scratch, is_sealed: bool) {
    let origin = Scratch::new("whole-end");
    let options = Options::default().dictionary(false);
    let store = Store::open(&origin.0, options).expect("opens");
    let run = store.run("run", Value::Null).expect("opens");
    run.plan(["done"], PlanOptions::default()).expect("plans");
    for task in ["done", "other"] {
        let episode = run.episode(name(task)).expect("begins");
        episode.step(step(0)).expect("records");
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    let catalog = store.catalog().expect("looks");
    let key = catalog.find(&run.episode_id(&name("done")), 0).expect("is there");
    let mut reader = catalog.reader(&key).expect("reads");
    let records = reader.records().map(|item| item.expect("reads"));
    let end = records.filter_map(|item| if let Item::Record(it) = item { Some(it) } else { None }).last();
    let end = end.expect("ended");
    assert_eq!(end.kind_name(), "END");
    if is_sealed {
        store.close();
    }
    copy_all(&origin.0, &scratch.0);
    let path = scratch.0.join(format!("writers/{}/{}.seg", key.writer, end.place.segment));
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes[end.place.offset as usize + end.bytes as usize - 3] ^= 0x10;
    std::fs::write(&path, bytes).expect("writes");
}

fn opened(run: &Run, how: Opening) -> Answer {
    match run.open(name("done"), how) {
        Ok(episode) => Answer::Said(format!("attempt {} at step {}", episode.attempt(), episode.steps())),
        Err(Error::Ended { why, .. }) => Answer::Said(why),
        Err(error) => Answer::Told(error.to_string()),
    }
}

/// Lists said `finished` where an index knew, and opening went on behind the END as if it had never been said. One rule: it is
/// an end, whose reason is what the index says, or is lost.
#[test]
fn an_end_that_cannot_be_read_is_an_end() {
    for is_sealed in [false, true] {
        let scratch = Scratch::new("damaged-end");
        with_a_damaged_end(&scratch, is_sealed);
        let run = scratch.run();
        let ending = run.view(&name("done")).expect("is there").ending().expect("reads").expect("it ended");
        assert!(!ending.damaged.is_empty());
        let listed = run.episodes(&keepstep::EpisodeFilter::default()).expect("lists");
        let listed = listed.iter().find(|it| it.summary.task.as_deref() == Some("done")).expect("is listed");
        let left = run.remaining_list(&RemainingOptions::default()).expect("looks");
        let left: Vec<&str> = left.iter().map(|(_, why)| &**why).collect();
        let found = opened(&run, Opening::default());
        if is_sealed {
            assert_eq!(ending.why.as_deref(), Some("finished"));
            assert_eq!((listed.state(), listed.trouble.is_some()), ("finished", false));
            assert_eq!((left, found), (vec![], Answer::Said("finished".to_owned())));
        } else {
            assert_eq!(ending.why, None);
            assert_eq!((listed.state(), listed.trouble.is_some()), ("unknown", true), "{listed:?}");
            assert_eq!(left, ["damaged"]);
            assert!(matches!(&found, Answer::Told(why) if why.contains("restart")), "{found:?}");
            let before = Opening::default().at(1);
            assert_eq!(opened(&run, before), Answer::Said("attempt 1 at step 1".to_owned()));
            let anew = Opening::default().resume(Resume::Restart);
            assert_eq!(opened(&run, anew), Answer::Said("attempt 2 at step 0".to_owned()));
        }
    }
}

/// With all claims gone, a store passed for one that is older than claims are.
#[test]
fn all_claims_that_are_gone_are_missed() {
    let scratch = Scratch::new("no-claims");
    recorded(&scratch, false);
    std::fs::remove_dir_all(scratch.0.join("claims")).expect("removes");
    let store = scratch.store();
    assert!(!store.verify(&mut |_| {}).expect("verifies").is_whole());
    let listed = store.list(&mut store.catalog().expect("looks")).expect("lists");
    assert!(listed.iter().all(|it| it.trouble.is_some()), "{listed:?}");
    assert!(matches!(scratch.run().view(&name("half")), Err(Error::Damaged { .. })));
    let left = scratch.run().remaining_list(&RemainingOptions::default()).expect("looks");
    let left: Vec<(&str, &str)> = left.iter().map(|(name, why)| (&*name.task, &**why)).collect();
    assert_eq!(left, [("new", "new"), ("half", "damaged"), ("done", "damaged"), ("alone", "damaged")]);
}
