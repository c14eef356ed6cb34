//! Notes: said by anybody, about anything, at any time; the newest counts, and nothing is thrown away.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use keepstep::disk::sim::SimDisk;
use keepstep::read::{NoteIndex, NoteKey};
use keepstep::{
    CallKey, CallMade, Entry, EpisodeName, Error, Id, Level, NoteTarget, Options, PlanOptions, Run, Step,
    Store, Value,
};

fn seed() -> u64 {
    std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_115)
}

fn run_on(sim: &SimDisk) -> Run {
    let options = Options::default().background(false).dictionary(false);
    Store::on_files(sim.process(), options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name(sample: i64) -> EpisodeName {
    EpisodeName::task("task").sample(sample)
}

fn key(target: NoteTarget, name: &str, source: &str) -> NoteKey {
    NoteKey { target, name: name.to_owned(), source: source.to_owned() }
}

fn annotate(run: &Run, target: NoteTarget, name: &str, value: impl Into<Value>) {
    let receipt = run.annotate(target, name, value.into(), "judge").expect("notes");
    receipt.wait().expect("is durable");
    assert_eq!(receipt.level(), Some(Level::Power));
}

/// An episode that recorded nothing yet.
fn begun(run: &Run) -> Id {
    run.episode(name(0)).expect("begins").id()
}

fn newest(index: &NoteIndex, target: NoteTarget, name: &str) -> Option<Value> {
    index.notes().newest(&key(target, name, "judge")).map(|said| said.value.clone())
}

/// An episode that ended, of a process that is gone.
fn ended_episode(sim: &SimDisk) -> Id {
    let process = sim.process();
    let options = Options::default().background(false).dictionary(false);
    let store = Store::on_files(process.clone(), options).expect("opens");
    let episode = store.run("run", Value::Null).expect("opens").episode(name(0)).expect("begins");
    episode.step(Step::new().action("a")).expect("records");
    episode.note("mood", Value::from("good"), "judge", Some(0)).expect("notes").wait().expect("is durable");
    let id = episode.id();
    episode.end("finished", keepstep::Ending::default()).expect("ends").wait().expect("is durable");
    process.kill();
    id
}

/// Two processes that never recorded an episode note on it after it ended; a third sees the newest, and all of them.
#[test]
fn an_ended_episode_is_noted_on_by_anybody() {
    let sim = SimDisk::new(seed());
    let id = ended_episode(&sim);
    let (judge, corrector, reader) = (run_on(&sim), run_on(&sim), run_on(&sim));
    let target = NoteTarget::episode(id);
    annotate(&judge, target, "reward", 0.25);
    let mut index = reader.notes().expect("reads");
    assert_eq!(newest(&index, target, "reward"), Some(Value::Float(0.25)));
    annotate(&corrector, target, "reward", 0.75);
    annotate(&corrector, target.attempt(0).step(0), "mood", "bad");
    annotate(&judge, target.step(0), "mood", "unclear");
    assert_eq!(newest(&index, target, "reward"), Some(Value::Float(0.25)), "not looked again yet");
    index.refresh().expect("looks");
    assert_eq!(newest(&index, target, "reward"), Some(Value::Float(0.75)));
    let all = index.notes().history(&key(target, "reward", "judge"));
    assert_eq!(all.iter().map(|said| said.value.clone()).collect::<Vec<_>>(), [0.25.into(), 0.75.into()]);
    // The attempt's own note and the one on it are one; the episode as a whole is another matter.
    let (notes, lost) = index.episode(&id).expect("reads");
    assert!(lost.is_empty());
    let on_step = target.attempt(0).step(0);
    let said: Vec<_> =
        notes.history(&key(on_step, "mood", "judge")).iter().map(|said| said.value.clone()).collect();
    assert_eq!(said, [Value::from("good"), Value::from("bad")]);
    assert_eq!(notes.iter().count(), 3);
    assert!(reader.store().verify(&mut |_| {}).expect("verifies").is_whole());
}

/// Sources do not overrule one another, and notes of one run are not those of another.
#[test]
fn sources_and_runs_are_told_apart() {
    let sim = SimDisk::new(seed() + 1);
    let run = run_on(&sim);
    let other = run.store().run("other", Value::Null).expect("opens");
    let (target, of_other) = (NoteTarget::episode(begun(&run)), NoteTarget::episode(begun(&other)));
    annotate(&run, target, "label", 1);
    run.annotate(target, "label", Value::Int(2), "human").expect("notes").wait().expect("is durable");
    annotate(&other, of_other, "label", 3);
    let elsewhere = other.annotate(target, "label", Value::Int(4), "judge");
    assert!(matches!(elsewhere, Err(Error::Unknown { .. })), "{elsewhere:?}");
    let index = run.notes().expect("reads");
    assert_eq!(newest(&index, target, "label"), Some(Value::Int(1)));
    assert_eq!(index.notes().newest(&key(target, "label", "human")).unwrap().value, Value::Int(2));
    assert_eq!(newest(&other.notes().expect("reads"), of_other, "label"), Some(Value::Int(3)));
}

/// Numbers stay numbers: a reward that is a text is refused by name; other notes may say anything.
#[test]
fn a_reward_is_a_number() {
    let sim = SimDisk::new(seed() + 2);
    let run = run_on(&sim);
    let target = NoteTarget::episode(begun(&run));
    let error = run.annotate(target, "reward", Value::from("0.100"), "judge").expect_err("is refused");
    assert!(matches!(&error, Error::BadInput { field, .. } if field == "reward"), "{error}");
    assert!(error.to_string().contains("0.100"), "{error}");
    for value in [Value::Float(f64::NAN), Value::Float(0.1), Value::Null, Value::Float(7.0)] {
        annotate(&run, target, "reward", value.clone());
        assert_eq!(newest(&run.notes().expect("reads"), target, "reward"), Some(value));
    }
    annotate(&run, target, "reward", 3);
    assert_eq!(newest(&run.notes().expect("reads"), target, "reward"), Some(Value::Float(3.0)));
    annotate(&run, target, "verdict", "0.100");
    for name in ["", "keepstep.seal", "keepstep.anything"] {
        let refused = run.annotate(target, name, Value::Null, "judge");
        assert!(matches!(refused, Err(Error::BadInput { .. })), "{name:?}");
        let refused = run.plan(["task"], PlanOptions::default().needs([name]));
        assert!(matches!(refused, Err(Error::BadInput { .. })), "{name:?}");
    }
    let episode = run.episode(name(1)).expect("begins");
    assert!(matches!(episode.note("reward", Value::from("1"), "me", None), Err(Error::BadInput { .. })));
}

/// A call of a reserved name was recorded, and no view listed it. keepstep's own call is still recorded.
#[test]
fn a_call_has_a_name_that_is_listed() {
    let sim = SimDisk::new(seed() + 6);
    let run = run_on(&sim);
    let episode = run.episode(name(0)).expect("begins");
    let made = |name| CallMade::new(name, CallKey::Ordinal(0), Value::Null);
    for name in ["", "keepstep.turn", "keepstep.anything"] {
        let is_refused = |error: Error| matches!(error, Error::BadInput { field, .. } if field == "name");
        assert!(episode.known(name, None, &Value::Null).is_err_and(is_refused), "{name:?}");
        let entry = Entry::call(&made(name), Ok(Value::Null));
        assert!(episode.record_and_wait(entry).is_err_and(is_refused), "{name:?}");
        episode.call_once(name, None, Value::Null, || unreachable!("{name:?}")).expect_err("is refused");
    }
    episode.turn(Step::new().action(1)).expect("says").keep(Value::from("broken")).expect("is kept");
    episode.record_and_wait(Entry::call(&made("tool"), Ok(Value::Int(7)))).expect("records");
    let calls = run.view(&name(0)).expect("reads").calls().expect("reads");
    assert_eq!(calls.iter().map(|call| call.name.as_deref()).collect::<Vec<_>>(), [Some("tool")]);
}

/// A note that could not be recorded says so, and the next one is recorded.
#[test]
fn a_full_disk_costs_one_note() {
    let sim = SimDisk::new(seed() + 3);
    let options = Options::default().background(false).dictionary(false).stall(Duration::from_millis(20));
    let run = Store::on_files(sim.process(), options).unwrap().run("run", Value::Null).expect("opens");
    let target = NoteTarget::episode(begun(&run));
    annotate(&run, target, "label", 1);
    sim.faults().set_capacity(Some(sim.faults().used_bytes()));
    let refused = run.annotate(target, "label", Value::Int(2), "judge").and_then(|receipt| receipt.wait());
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    sim.faults().set_capacity(None);
    annotate(&run, target, "label", 3);
    let index = run.notes().expect("reads");
    let said = index.notes().history(&key(target, "label", "judge"));
    assert_eq!(said.iter().filter_map(|said| said.value.as_int()).collect::<Vec<_>>(), [1, 3]);
    assert!(index.lost().is_empty());
}

/// Whatever the power takes, and whenever: a note that was acknowledged is there.
#[test]
fn no_cut_loses_a_note() {
    let sim = SimDisk::new(seed() + 4);
    let id = ended_episode(&sim);
    let (one, two) = (run_on(&sim), run_on(&sim));
    let target = NoteTarget::episode(id);
    for number in 0..6i64 {
        annotate(if number % 2 == 0 { &one } else { &two }, target, "label", number);
        sim.event(number as u64);
    }
    let trace = sim.trace();
    // Or their writers would pass for alive in what the cuts leave.
    drop((one, two));
    let mut states = 0;
    for cut in 0..trace.cuts() {
        let mut disks = vec![trace.killed(cut)];
        if trace.is_new(cut) {
            let count = trace.state_count(cut);
            disks.extend((0..count.min(6)).map(|nth| match count {
                0..=6 => trace.state(cut, nth),
                _ => trace.random_state(cut, seed() + nth),
            }));
        }
        for disk in disks {
            states += 1;
            let index = run_on(&disk).notes().expect("reads");
            let said = index.notes().history(&key(target, "label", "judge"));
            let said: Vec<u64> =
                said.iter().filter_map(|said| said.value.as_int()).map(|it| it as u64).collect();
            let acknowledged = trace.events_before(cut);
            assert!(
                said.starts_with(acknowledged),
                "cut {cut}: {acknowledged:?} were acknowledged, {said:?} are there"
            );
            assert!(index.lost().is_empty(), "cut {cut}");
        }
    }
    assert!(states > 400, "{states}");
}
