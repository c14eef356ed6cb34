//! Runs and plans: configs, generations, links, and what is planned.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stdout, reason = "a test that tries many cases says how many")]

mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keepstep::disk::sim::SimDisk;
use keepstep::{Error, Opening, Options, PlanOptions, RemainingOptions, Run, RunOptions, Step, Store, Value};

use scratch::Scratch;

fn tasks(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("task {number}")).collect()
}

fn any() -> RemainingOptions {
    RemainingOptions::default().pause(Duration::ZERO)
}

fn remains(run: &Run) -> Vec<(String, String)> {
    let list = run.remaining_list(&any()).expect("lists");
    list.into_iter().map(|(name, why)| (name.task, why.to_string())).collect()
}

// Runs.

/// Whoever changed the config is told which keys, by their path; links are kept, and not changed in silence.
#[test]
fn another_config_is_refused_by_key() {
    let scratch = Scratch::new("config");
    let store = scratch.store();
    let config = |temperature: f64| {
        let model = Value::map([("name", Value::from("m")), ("temperature", Value::Float(temperature))]);
        Value::map([("model", model)])
    };
    let links: BTreeMap<_, _> = [("wandb".to_owned(), "run/7".to_owned())].into();
    let options = RunOptions::default().config(config(0.5)).links(links.clone()).new(false);
    let run = store.open_run("r", options.clone()).expect("opens");
    assert_eq!(store.open_run("r", options).expect("opens").generation_id(), run.generation_id());
    assert_eq!(store.run("r", config(0.5)).expect("opens").info().links, links);
    let error = store.run("r", config(0.7)).expect_err("refuses");
    assert!(error.to_string().contains("model.temperature was 0.5, is 0.7"), "{error}");
    let other = RunOptions::default().config(config(0.5)).links([("a", "b")]).new(false);
    let error = store.open_run("r", other).expect_err("refuses").to_string();
    assert!(error.contains("links") && error.contains("wandb"), "{error}");
    let deep = (0..200).fold(Value::Null, |value, _| Value::list([value]));
    assert!(matches!(store.run("deep", deep), Err(Error::BadInput { field, .. }) if field == "config"));
}

fn model(name: &str) -> Value {
    Value::map([("model", Value::from(name))])
}

/// A judge that was started before the workers made the run without a config, and every worker was refused.
#[test]
fn a_reader_that_comes_first_does_not_decide_the_config() {
    let scratch = Scratch::new("reader-first");
    let reader = scratch.store().run("evaluation", Value::Null).expect("opens");
    reader.plan(tasks(1), PlanOptions::default()).expect("plans");
    let worker = scratch.store().run("evaluation", model("m-7b")).expect("takes the config");
    assert_eq!((worker.generation(), worker.generation_id()), (0, reader.generation_id()));
    assert_eq!(worker.info().config, model("m-7b"));
    assert_eq!(reader.look_again().expect("reads").config, model("m-7b"));
    let listed = scratch.store().runs().expect("lists").remove(0).expect("reads");
    assert_eq!((listed.config, listed.is_newest), (model("m-7b"), true));
    let error = scratch.store().run("evaluation", model("m-70b")).expect_err("refuses").to_string();
    assert!(error.contains(r#"model was "m-7b", is "m-70b""#), "{error}");
    // Links alone, too; then they are said for good.
    scratch.store().run("links", Value::Null).expect("opens");
    let linked = RunOptions::default().links([("wandb", "run/7")]);
    assert_eq!(scratch.store().open_run("links", linked).expect("takes").info().links["wandb"], "run/7");
    assert!(matches!(scratch.store().run("links", model("m-7b")), Err(Error::ConfigChanged { .. })));
}

/// What was recorded without a config is not said to be of one that somebody gives later.
#[test]
fn a_run_with_an_episode_takes_no_config() {
    let scratch = Scratch::new("config-too-late");
    let run = scratch.store().run("evaluation", Value::Null).expect("opens");
    let episode = run.unnamed(Opening::default()).expect("opens");
    episode.step(Step::new().action("a")).expect("records");
    let error = scratch.store().run("evaluation", model("m-7b")).expect_err("refuses").to_string();
    for part in
        ["made without one and has episodes", r#"now it is {"model": "m-7b"}"#, "; give none, or start"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(run.look_again().expect("reads").config, Value::Null);
    scratch.store().run("evaluation", Value::Null).expect("opens");
}

/// Of many processes that bring a config each, one decides; the others are told, and there is one generation.
#[test]
fn of_many_configs_that_are_given_at_once_one_counts() {
    let scratch = Scratch::new("configs-at-once");
    for round in 0..8 {
        let name = format!("run {round}");
        scratch.store().run(&name, Value::Null).expect("opens");
        let bring = |number: i64| {
            let (store, name) = (scratch.store(), name.clone());
            std::thread::spawn(move || store.run(&name, Value::map([("seed", Value::Int(number))])))
        };
        let threads: Vec<_> = (0..6).map(bring).collect();
        let came = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let (taken, refused): (Vec<_>, Vec<_>) = came.partition(Result::is_ok);
        assert!(refused.iter().all(|it| matches!(it, Err(Error::ConfigChanged { .. }))), "{refused:?}");
        assert_eq!((taken.len(), refused.len()), (1, 5), "round {round}");
        let config = &taken[0].as_ref().expect("taken").info().config;
        let runs: Vec<_> = scratch.store().runs().expect("lists").into_iter().flatten().collect();
        let of_name: Vec<_> = runs.iter().filter(|run| run.name == name).collect();
        assert!(of_name.len() == 1 && of_name[0].config == *config, "{of_name:?}");
    }
}

/// A config that was taken is whole or absent, whatever is killed when, and a power cut takes none back that was relied on.
#[test]
fn a_config_that_was_taken_survives_a_power_cut() {
    let first = SimDisk::new(11);
    let open = |sim: &SimDisk, config: Value| {
        let options = Options::default().background(false).dictionary(false);
        Store::on_files(sim.process(), options)?.run("run", config)
    };
    open(&first, Value::Null).expect("opens");
    open(&first, model("m-7b")).expect("takes");
    let trace = first.trace();
    let mut states = 0;
    for cut in 0..trace.cuts() {
        let left = trace.killed(cut);
        let said = open(&left, Value::Null).map(|run| run.info().config.clone());
        let is_said = matches!(said, Err(Error::ConfigChanged { .. }));
        assert!(is_said || said.as_ref().is_ok_and(|it| *it == Value::Null), "killed at {cut}: {said:?}");
        let run = open(&left, model(if is_said { "m-7b" } else { "m-70b" })).expect("opens");
        let (generation_id, trace) = (run.generation_id(), left.trace());
        let last = trace.cuts() - 1;
        for nth in 0..trace.state_count(last).min(64) {
            let run = open(&trace.state(last, nth), run.info().config.clone()).expect("is as it was");
            assert_eq!(run.generation_id(), generation_id, "killed at {cut}, state {nth}: another run");
            states += 1;
        }
    }
    println!("{} kills, {states} states after a power cut", trace.cuts());
    assert!(states >= trace.cuts() as u64, "too little was tried: {states}");
}

/// A damaged config is told, by its file: the run is not opened as one without a config.
#[test]
fn a_damaged_config_is_not_taken_for_none() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("damaged-config");
    scratch.store().run("r", Value::Null).expect("opens");
    scratch.store().run("r", model("m-7b")).expect("takes");
    let card = scratch.files("0.config").remove(0);
    let mut bytes = std::fs::read(&card).expect("reads");
    *bytes.last_mut().expect("has bytes") ^= 1;
    std::fs::write(&card, bytes).expect("writes");
    for config in [Value::Null, model("m-7b")] {
        let error = scratch.store().run("r", config).expect_err("refuses");
        assert!(matches!(&error, Error::Damaged { path, .. } if path.ends_with("0.config")), "{error}");
    }
}

/// A new generation is another run of the same name; who asks without `new` gets the newest.
#[test]
fn generations_are_dense_and_separate() {
    let scratch = Scratch::new("generations");
    let store = scratch.store();
    let begin = |store: &Store, config: i64| {
        let options = RunOptions::default().config(Value::Int(config)).new(true);
        store.open_run("r", options).expect("begins")
    };
    let first = begin(&store, 1);
    let second = begin(&store, 2);
    assert_eq!((first.generation(), second.generation()), (0, 1));
    assert_eq!(store.run("r", Value::Int(2)).expect("opens").generation_id(), second.generation_id());
    assert!(matches!(store.run("r", Value::Int(1)), Err(Error::ConfigChanged { .. })));
    first.plan(tasks(2), PlanOptions::default()).expect("plans");
    assert_eq!((remains(&first).len(), remains(&second).len()), (2, 0));
    // At once: each gets one of its own.
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let store = scratch.store();
            std::thread::spawn(move || begin(&store, number).generation())
        })
        .collect();
    let got: BTreeSet<i64> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    assert_eq!(got, (2..10).collect());
}

/// All runs are listed by name, though their folders are hashes; one damaged card does not hide the others.
#[test]
fn a_damaged_card_hides_no_other_run() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("runs");
    let store = scratch.store();
    for name in ["b", "a/../ü", "c"] {
        store.run(name, Value::from(name)).expect("opens");
    }
    let names = |runs: Vec<keepstep::Result<keepstep::RunInfo>>| {
        runs.into_iter().filter_map(|run| run.ok().map(|run| run.name)).collect::<Vec<_>>()
    };
    let runs = store.runs().expect("lists");
    assert_eq!(names(runs.clone()), ["a/../ü", "b", "c"]);
    let b = runs[1].clone().expect("reads");
    assert_eq!((b.generation, b.config.clone()), (0, Value::from("b")));
    assert_eq!(store.run_of(b).name(), "b");
    let victim = &scratch.files(".run")[1];
    let mut bytes = std::fs::read(victim).expect("reads");
    *bytes.last_mut().expect("has bytes") ^= 1;
    std::fs::write(victim, bytes).expect("writes");
    let runs = store.runs().expect("lists");
    let errors: Vec<String> =
        runs.iter().filter_map(|run| run.as_ref().err().map(ToString::to_string)).collect();
    let file = victim.file_name().expect("has one").to_string_lossy().into_owned();
    assert!(errors.len() == 1 && errors[0].contains(&file), "{errors:?}");
    assert_eq!(names(runs).len(), 2);
}

// Plans.

/// Planning the same twice adds no card; more samples and new tasks do.
#[test]
fn a_plan_is_idempotent_and_grows() {
    let scratch = Scratch::new("plan");
    let run = scratch.run();
    let plan = |run: &Run, count: usize, samples: u32, needs: &[&str]| {
        let options = PlanOptions::default().samples(samples).needs(needs.iter().copied());
        run.plan(tasks(count), options).expect("plans");
    };
    let cards = || scratch.files("").iter().filter(|path| path.to_string_lossy().contains(".plan.")).count();
    plan(&run, 3, 2, &[]);
    plan(&run, 3, 2, &[]);
    plan(&scratch.run(), 3, 1, &[]);
    assert_eq!((cards(), run.planned().expect("reads").len(), remains(&run).len()), (1, 3, 6));
    plan(&scratch.run(), 4, 2, &[]);
    assert_eq!((cards(), remains(&run).len()), (2, 8));
    plan(&run, 1, 4, &[]);
    assert_eq!((cards(), remains(&run).len()), (3, 10));
    plan(&run, 1, 1, &["score"]);
    plan(&run, 1, 1, &["score"]);
    assert_eq!((cards(), remains(&run).len()), (4, 10));
    run.plan(tasks(1), PlanOptions::default().iteration(1)).expect("plans");
    assert_eq!(remains(&run).len(), 11);
    let twice = ["x".to_owned(), "x".to_owned()];
    run.plan(twice, PlanOptions::default()).expect("plans");
    assert_eq!(remains(&run).len(), 12);
    for samples in [0, u32::MAX] {
        let options = PlanOptions::default().samples(samples);
        assert!(
            matches!(run.plan(tasks(1), options), Err(Error::BadInput { field, .. }) if field == "samples")
        );
    }
}

/// Several processes plan at once: the plan is all that anybody planned, whoever got which number.
#[test]
fn plans_made_at_once_add_up() {
    let scratch = Scratch::new("planners");
    let run = scratch.run();
    let planners: Vec<_> = (0..8)
        .map(|number| {
            let run = scratch.run();
            std::thread::spawn(move || {
                let own = (0..20).map(|task| format!("{number}.{task}"));
                run.plan(own.chain(tasks(5)), PlanOptions::default()).expect("plans");
            })
        })
        .collect();
    planners.into_iter().for_each(|planner| planner.join().expect("no panic"));
    assert_eq!(remains(&run).len(), 8 * 20 + 5);
}

/// A hundred thousand tasks are one card; what does not fit into one goes into the next.
#[test]
fn a_plan_that_is_too_long_is_split() {
    let scratch = Scratch::new("long");
    let run = scratch.run();
    run.plan(tasks(100_000), PlanOptions::default()).expect("plans");
    let cards = |scratch: &Scratch| {
        scratch.files("").iter().filter(|path| path.to_string_lossy().contains(".plan.")).count()
    };
    assert_eq!(cards(&scratch), 1);
    let long = (0..7).map(|number| format!("{number}{}", "x".repeat(10 << 20)));
    run.plan(long, PlanOptions::default()).expect("plans");
    assert_eq!(cards(&scratch), 3);
    assert_eq!(scratch.run().planned().expect("reads").len(), 100_007);
    let error = run.plan(["x".repeat(70 << 20)], PlanOptions::default()).expect_err("refuses").to_string();
    assert!(error.contains("tasks") && error.contains("73400320"), "{error}");
}

/// A plan of which a card is damaged says which, rather than forget what was to be done.
#[test]
fn a_damaged_plan_is_an_error() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("damaged-plan");
    scratch.run().plan(tasks(3), PlanOptions::default()).expect("plans");
    let card = scratch.files(".plan.0").remove(0);
    let mut bytes = std::fs::read(&card).expect("reads");
    bytes[40] ^= 1;
    std::fs::write(&card, bytes).expect("writes");
    let error = scratch.run().remaining_list(&any()).expect_err("refuses");
    assert!(matches!(&error, Error::Damaged { path, .. } if path.ends_with("0.plan.0")), "{error}");
}

// Power.

fn plan_on(sim: &SimDisk) -> keepstep::Result<Run> {
    let options = Options::default().background(false).dictionary(false);
    let run = Store::on_files(sim.process(), options)?.run("run", Value::Int(7))?;
    run.plan(tasks(3), PlanOptions::default().samples(2))?;
    Ok(run)
}

/// Whoever plans may be killed at any point; whoever says the same afterwards is told "planned" only if no power cut takes
/// that back: the card, and the run that it belongs to.
#[test]
fn what_is_planned_survives_a_power_cut() {
    const STATES_MAX: u64 = 256;
    let first = SimDisk::new(7);
    plan_on(&first).expect("plans");
    let first = first.trace();
    let mut states = 0;
    for cut in 0..first.cuts() {
        let left = first.killed(cut);
        let generation_id = plan_on(&left).expect("plans").generation_id();
        let trace = left.trace();
        let last = trace.cuts() - 1;
        let count = trace.state_count(last);
        for nth in 0..count.min(STATES_MAX) {
            let state =
                if count <= STATES_MAX { trace.state(last, nth) } else { trace.random_state(last, nth) };
            let store = Store::on_files(state.process(), Options::default()).expect("opens");
            let run = store.run("run", Value::Int(7)).expect("opens");
            assert_eq!(run.generation_id(), generation_id, "killed at {cut}, state {nth}: another run");
            let planned = run.planned().expect("reads");
            assert_eq!(planned.len(), 3, "killed at {cut}, state {nth}: {planned:?}");
            states += 1;
        }
    }
    println!("{} kills, {states} states after a power cut", first.cuts());
    assert!(states > first.cuts() as u64, "too little was tried: {states}");
}
