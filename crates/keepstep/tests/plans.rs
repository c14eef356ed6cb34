//! What remains of a plan: shared by workers in threads and processes, each episode done once.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

mod scratch;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keepstep::tend::{CompactOptions, PruneFilter};
use keepstep::{
    Ending, EpisodeName, Error, Job, NoteTarget, Opening, Options, PlanOptions, RemainingOptions, Run, Step,
    Store, Value, WhenBusy,
};

use scratch::Scratch;

fn tasks(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("task {number}")).collect()
}

fn any() -> RemainingOptions {
    RemainingOptions::default().pause(Duration::ZERO)
}

fn retrying(max_attempts: u32) -> RemainingOptions {
    any().max_attempts(max_attempts)
}

fn remains(run: &Run) -> Vec<(String, String)> {
    let list = run.remaining_list(&any()).expect("lists");
    list.into_iter().map(|(name, why)| (name.task, why.to_string())).collect()
}

fn finish(job: Job) {
    end(job, "finished");
}

fn end(job: Job, why: &str) {
    let episode = job.episode(Opening::default()).expect("opens");
    let index = episode.steps() as i64;
    episode.step(Step::new().action(index)).expect("records");
    episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
}

fn next(run: &Run) -> Job {
    run.claim(any()).expect("looks").expect("has a job")
}

// What remains.

/// Interrupted first, then new, then unscored, then what failed.
#[test]
fn the_order_is_interrupted_new_unscored_errored() {
    let scratch = Scratch::new("order");
    let (run, other) = (scratch.run(), scratch.run());
    let needs = PlanOptions::default().needs(["score"]);
    run.plan(["unscored"], needs).expect("plans");
    run.plan(["errored", "aborted", "new"].map(str::to_owned), PlanOptions::default()).expect("plans");
    for why in ["errored", "aborted"] {
        let episode = other.episode(EpisodeName::task(why)).expect("begins");
        episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
    }
    let episode = other.episode(EpisodeName::task("unscored")).expect("begins");
    episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    drop(episode);
    let order = |run: &Run, options: RemainingOptions| {
        let jobs: Vec<Job> =
            run.remaining(options).expect("looks").map(|job| job.expect("is given")).collect();
        jobs.iter().map(|job| (job.name.task.clone(), job.why.to_string(), job.attempts)).collect::<Vec<_>>()
    };
    let expect = |words: &[(&str, &str, u32)]| {
        words
            .iter()
            .map(|(task, why, attempts)| ((*task).to_owned(), (*why).to_owned(), *attempts))
            .collect::<Vec<_>>()
    };
    let all = [
        ("aborted", "aborted", 1),
        ("new", "new", 0),
        ("unscored", "unscored", 1),
        ("errored", "errored", 1),
    ];
    assert_eq!(order(&run, retrying(1)), expect(&all[..3]));
    // The first three are held by this process now, and the one that was given up comes too. It is looked again whether
    // what was handed out before still lacks its note.
    assert_eq!(order(&run, retrying(3)), expect(&[all[0], all[1], all[3], all[2]]));
    assert_eq!(order(&other, retrying(3)), []);
    // Twice they were let go before they were opened, which is often enough for whoever allows no more.
    assert_eq!(order(&run, retrying(1)), expect(&[all[2]]));
    assert_eq!(order(&run, retrying(3)), expect(&[all[0], all[1], all[3], all[2]]));
}

/// An episode that is over remains until it has the notes that its plan needs, on it as a whole, from whomever.
#[test]
fn what_lacks_a_note_is_unscored() {
    let scratch = Scratch::new("unscored");
    let (run, judge) = (scratch.run(), scratch.run());
    run.plan(tasks(4), PlanOptions::default().needs(["score", "label"])).expect("plans");
    for job in run.remaining(any()).expect("looks") {
        let job = job.expect("is given");
        if &*job.why == "unscored" {
            let opened = job.episode(Opening::default());
            assert!(matches!(opened, Err(Error::Ended { .. })), "{opened:?}");
            continue;
        }
        let (is_first, episode) =
            (job.name.task == "task 0", job.episode(Opening::default()).expect("opens"));
        episode.step(Step::new().action(0)).expect("records");
        if is_first {
            episode.note("score", Value::Float(1.0), "itself", None).expect("notes");
            episode.note("label", Value::from("x"), "itself", None).expect("notes");
        }
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
    let lacking = |run: &Run| {
        let list = run.remaining_list(&any()).expect("lists");
        assert!(list.iter().all(|(_, why)| &**why == "unscored"), "{list:?}");
        list.into_iter().map(|(name, _)| name.task).collect::<Vec<_>>()
    };
    assert_eq!(lacking(&run), ["task 1", "task 2", "task 3"]);
    let note = |task: &str, name: &str, attempt: Option<u32>, step: Option<u64>| {
        let episode = judge.episode_id(&EpisodeName::task(task));
        let target = NoteTarget::episode(episode).attempt(attempt).step(step);
        judge.annotate(target, name, Value::Float(0.5), "judge").expect("notes").wait().expect("is durable");
    };
    note("task 1", "score", None, None);
    note("task 1", "label", Some(0), None);
    note("task 2", "score", None, None);
    note("task 2", "label", None, Some(0));
    note("task 3", "score", None, None);
    assert_eq!(lacking(&judge), ["task 2", "task 3"], "a note on a step is none");
}

/// Errors count, interruptions do not: an episode that errored as often as it may is given up.
#[test]
fn only_errors_count_against_the_limit() {
    let scratch = Scratch::new("limit");
    let run = scratch.run();
    run.plan(tasks(1), PlanOptions::default()).expect("plans");
    for _ in 0..5 {
        end(next(&run), "aborted");
    }
    let mut given = 0;
    for job in run.remaining(retrying(3)).expect("looks") {
        given += 1;
        end(job.expect("is given"), "errored");
    }
    assert_eq!(given, 3, "a loop that retries ends");
    assert!(run.claim(retrying(3)).expect("looks").is_none() && run.claim(any()).expect("looks").is_none());
    let job = run.claim(retrying(4)).expect("looks").expect("one more is allowed");
    assert_eq!((job.attempts, &*job.why), (8, "errored"));
    finish(job);
    assert!(run.claim(retrying(99)).expect("looks").is_none());
    let wrong = any().retry(["finished"]);
    assert!(matches!(run.remaining(wrong), Err(Error::BadInput { field, .. }) if field == "retry"));
}

/// A sample that is missing in a sealed group came back from the plan, was run and paid for, and could never join the
/// group. Neither what failed, nor what was interrupted, nor what was never begun comes back; the loop ends.
#[test]
fn what_its_group_was_sealed_without_does_not_come_back() {
    let scratch = Scratch::new("sealed-without");
    let (run, other) = (scratch.run(), scratch.run());
    run.plan(["a", "b"], PlanOptions::default().samples(4)).expect("plans");
    let name = |sample: i64| EpisodeName::task("a").sample(sample);
    for (sample, why) in [(0, "finished"), (1, "errored"), (2, "aborted")] {
        let episode = other.episode(name(sample)).expect("begins");
        episode.end(why, Ending::default()).expect("ends").wait().expect("is durable");
    }
    // The plan was looked at just before the seal, so it still lists the samples.
    assert_eq!(run.remaining_list(&any()).expect("lists").len(), 7);
    run.group("a", 0, 4).seal(None, "loop", Some(1)).expect("seals");
    let done: Vec<String> = std::iter::from_fn(|| run.claim(any()).expect("looks"))
        .map(|job| {
            let task = job.name.task.clone();
            finish(job);
            task
        })
        .collect();
    assert_eq!(done, ["b"; 4]);
    assert!(remains(&run).is_empty(), "{:?}", remains(&run));
    let progress = run.progress(&any()).expect("looks");
    assert_eq!((progress.done(), progress.left()), (5, 0), "{progress:?}");
    assert_eq!(progress.absent, [1, 2, 3].map(name));
}

/// A loop that leaves every episode without an end does not run for ever, and the next one gets them again.
#[test]
fn one_iterator_gives_nothing_twice() {
    let scratch = Scratch::new("circles");
    let run = scratch.run();
    run.plan(tasks(10), PlanOptions::default()).expect("plans");
    for round in 0..3 {
        let mut given = BTreeSet::new();
        for job in run.remaining(any()).expect("looks") {
            let job = job.expect("is given");
            assert_eq!(job.attempts, round);
            assert!(given.insert(job.name.task.clone()), "{} was given twice", job.name.task);
            drop(job.episode(Opening::default()).expect("opens"));
        }
        assert_eq!(given.len(), 10);
    }
}

/// A job that is dropped unopened stays ours: nobody else gets it, we get it first, with no second claim.
#[test]
fn a_dropped_job_stays_in_the_process() {
    let scratch = Scratch::new("dropped");
    let (run, other) = (scratch.run(), scratch.run());
    run.plan(tasks(20), PlanOptions::default()).expect("plans");
    let dropped: Vec<String> = (0..2).map(|_| next(&run)).map(|job| job.name.task.clone()).collect();
    assert_eq!(BTreeSet::from_iter(&dropped).len(), 1, "a dropped job is served first");
    let jobs: Vec<Job> =
        run.remaining(any()).expect("looks").take(5).map(|job| job.expect("is given")).collect();
    drop(jobs);
    assert_eq!((scratch.files(".claim").len(), remains(&run).len()), (5, 19), "one was let go three times");
    let theirs: Vec<Job> = other.remaining(any()).expect("looks").map(|job| job.expect("is given")).collect();
    assert_eq!(theirs.len(), 15, "what a live process has claimed is not taken");
    let mut finished = 0;
    for job in run.remaining(retrying(4)).expect("looks") {
        finish(job.expect("is given"));
        finished += 1;
    }
    assert_eq!((finished, scratch.files(".claim").len()), (5, 20));
    assert!(scratch.files(".base").is_empty(), "all are first attempts");
    // Once the other process is gone, what it claimed and never began is taken over.
    drop(theirs);
    drop(other);
    let rest: Vec<Job> = run.remaining(any()).expect("looks").map(|job| job.expect("is given")).collect();
    assert!(rest.len() == 15 && rest.iter().all(|job| &*job.why == "crashed"));
    rest.into_iter().for_each(finish);
    assert!(remains(&run).is_empty());
}

/// A job whose episode somebody took by order says so, and records nothing.
#[test]
fn a_job_that_was_taken_over_is_busy() {
    let scratch = Scratch::new("taken");
    let (run, other) = (scratch.run(), scratch.run());
    run.plan(tasks(2), PlanOptions::default()).expect("plans");
    let (job, dropped) = (next(&run), next(&run));
    for name in [job.name.clone(), dropped.name.clone()] {
        let order = Opening::default().busy(WhenBusy::Take);
        std::mem::forget(other.open(name, order).expect("takes it"));
    }
    drop(dropped);
    let opened = job.episode(Opening::default());
    assert!(matches!(opened, Err(Error::Busy { .. })), "{opened:?}");
    assert!(run.claim(any()).expect("looks").is_none(), "nor is the dropped one given again");
}

/// An episode that is open by its name is not given as a job, nor opened beside one.
#[test]
fn a_job_and_an_open_episode_exclude_each_other() {
    let scratch = Scratch::new("both");
    let run = scratch.run();
    run.plan(tasks(1), PlanOptions::default()).expect("plans");
    let name = EpisodeName::task("task 0");
    let job = next(&run);
    assert!(matches!(run.episode(name.clone()), Err(Error::Busy { .. })));
    drop(job);
    let episode = run.episode(name).expect("the claim is ours, so it opens");
    assert_eq!(episode.attempt(), 0);
    assert!(run.claim(any()).expect("looks").is_none());
    drop(episode);
    assert_eq!(&*next(&run).why, "aborted");
}

/// A claim that cannot be read is told, with its path, after everything else was given.
#[test]
fn a_damaged_claim_hides_no_other_job() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    let scratch = Scratch::new("damaged-claim");
    let run = scratch.run();
    run.plan(tasks(3), PlanOptions::default()).expect("plans");
    let other = scratch.run();
    let job = next(&other);
    let task = job.name.task.clone();
    let claim = scratch.files(".claim").remove(0);
    let mut bytes = std::fs::read(&claim).expect("reads");
    bytes[30] ^= 1;
    std::fs::write(&claim, bytes).expect("writes");
    let all: Vec<keepstep::Result<Job>> = run.remaining(any()).expect("looks").collect();
    assert_eq!(all.iter().filter(|job| job.is_ok()).count(), 2);
    let error = all[2].as_ref().expect_err("is told last").to_string();
    assert!(error.contains(&*claim.file_name().expect("has one").to_string_lossy()), "{error}");
    assert!(remains(&run).contains(&(task, "damaged".to_owned())));
}

/// Threads and stores that stand for processes share a plan: everybody gets something, nothing is given twice.
#[test]
fn many_workers_share_a_plan() {
    let scratch = Scratch::new("workers");
    scratch.run().plan(tasks(50), PlanOptions::default().samples(8)).expect("plans");
    let workers: Vec<_> = (0..4)
        .flat_map(|_| {
            let run = scratch.run();
            (0..4).map(move |_| {
                let run = run.clone();
                std::thread::spawn(move || {
                    let mut done = Vec::new();
                    for job in run.remaining(any()).expect("looks") {
                        let job = job.expect("is given");
                        done.push((job.name.task.clone(), job.name.sample));
                        assert_eq!((job.attempts, &*job.why), (0, "new"));
                        finish(job);
                    }
                    done
                })
            })
        })
        .collect();
    let done: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
    let all: Vec<_> = done.iter().flatten().collect();
    assert_eq!((all.len(), BTreeSet::from_iter(&all).len()), (400, 400));
    let run = scratch.run();
    assert!(remains(&run).is_empty());
    assert_eq!((scratch.files(".claim").len(), scratch.files(".base").len()), (400, 0));
}

/// What was compacted is as done as before, and what was pruned is not done again.
#[test]
fn what_was_tended_does_not_come_back() {
    let scratch = Scratch::new("tended");
    let run = scratch.run();
    run.plan(tasks(6), PlanOptions::default()).expect("plans");
    for (number, job) in run.remaining(any()).expect("looks").take(4).enumerate() {
        end(job.expect("is given"), ["finished", "truncated", "errored", "aborted"][number]);
    }
    let before: BTreeSet<_> = remains(&run).into_iter().collect();
    assert_eq!(before.len(), 4);
    run.store().close();
    drop(run);
    let options = CompactOptions::default().grace(Duration::ZERO);
    let watcher = scratch.run();
    for _ in 0..2 {
        scratch.store().compact(options.clone(), &mut |_| {}).expect("compacts");
        for run in [&watcher, &scratch.run()] {
            assert_eq!(remains(run).into_iter().collect::<BTreeSet<_>>(), before);
        }
    }
    assert!(
        scratch.files(".seg").iter().all(|it| it.to_string_lossy().contains("grouped")),
        "nothing was deleted"
    );
    let job = watcher.claim(retrying(1)).expect("looks").expect("the interrupted one");
    assert_eq!((job.attempts, &*job.why), (1, "aborted"));
    finish(job);
    let filter = PruneFilter::default().run("run");
    let report = scratch.store().prune_with(&filter, options, false, &mut |_| {}).expect("prunes");
    assert_eq!(report.episodes.len(), 4, "{report:?}");
    for run in [&watcher, &scratch.run()] {
        assert!(remains(run).iter().all(|(_, why)| why == "new") && remains(run).len() == 2);
    }
}

// Real processes.

const STEPS: i64 = 6;
const EPISODES: usize = 250;
const WORKERS: usize = 16;

/// Works on the plan until nothing remains: each step says its number.
fn work(dir: &str) {
    let store = Store::open(dir, Options::default()).expect("opens");
    let run = store.run("run", Value::Null).expect("opens");
    for job in run.remaining(any()).expect("looks") {
        let episode = match job.expect("is given").episode(Opening::default()) {
            Ok(episode) => episode,
            // It had ended after all: its owner died behind its last word.
            Err(Error::Ended { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        for number in episode.steps() as i64..STEPS {
            episode.step(Step::new().action(number)).expect("records");
            std::thread::sleep(Duration::from_millis(1));
        }
        episode.end("finished", Ending::default()).expect("ends").wait().expect("is durable");
    }
}

/// 16 processes on one plan, killed at random and started again: each episode ends once, with each step once.
#[test]
fn killed_workers_do_each_episode_once() {
    if scratch::is_toy() {
        return; // about a directory, or other processes
    }
    if let Ok(dir) = std::env::var("KEEPSTEP_TEST_WORKER") {
        return work(&dir);
    }
    let seed = std::env::var("KEEPSTEP_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761);
    println!("KEEPSTEP_SEED={seed}");
    let mut random = seed | 1;
    let mut chance = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let scratch = Scratch::new("killed");
    let run = scratch.run();
    run.plan(tasks(EPISODES), PlanOptions::default()).expect("plans");
    let me = std::env::current_exe().expect("is known");
    let start = || -> Child {
        Command::new(&me)
            .args(["--exact", "killed_workers_do_each_episode_once"])
            .env("KEEPSTEP_TEST_WORKER", &scratch.0)
            .stdout(Stdio::null())
            .spawn()
            .expect("starts")
    };
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| start()).collect();
    let (mut kills, started) = (0, Instant::now());
    loop {
        let is_done = remains(&run).is_empty();
        let is_over = workers.iter_mut().all(|it| it.try_wait().expect("is asked").is_some());
        if is_done && is_over {
            break;
        }
        std::thread::sleep(Duration::from_millis(10 + chance(40)));
        // After a while they may finish in peace.
        let in_peace = started.elapsed() > Duration::from_secs(12);
        for _ in 0..4 {
            let at = chance(WORKERS as u64) as usize;
            match workers[at].try_wait().expect("is asked") {
                Some(status) => {
                    assert!(status.success() || status.code().is_none(), "a worker failed: {status}");
                    if !is_done {
                        workers[at] = start();
                    }
                }
                None if !in_peace && chance(3) > 0 => {
                    workers[at].kill().expect("is killed");
                    kills += 1;
                }
                None => {}
            }
        }
        assert!(started.elapsed() < Duration::from_secs(600), "it does not come to an end");
    }
    for mut worker in workers {
        let status = worker.wait().expect("ends");
        assert!(status.success() || status.code().is_none(), "a worker failed: {status}");
    }
    check_each_once(&run, kills);
}

fn check_each_once(run: &Run, kills: u32) {
    let mut attempts = 0;
    for task in tasks(EPISODES) {
        let view = run.view(&EpisodeName::task(task.as_str())).expect("reads");
        let read = view.read().expect("reads");
        assert!(read.is_whole(), "{task}: {read:?}");
        let actions: Vec<i64> =
            read.steps.iter().map(|step| step.action.as_ref().unwrap().as_int().unwrap()).collect();
        assert_eq!(actions, (0..STEPS).collect::<Vec<_>>(), "{task}, attempts {:?}", view.attempts());
        let ending = view.ending().expect("reads").expect("ended");
        assert_eq!(ending.why.as_deref(), Some("finished"), "{task}");
        attempts += view.attempts().len();
    }
    println!("{kills} kills, {attempts} attempts at {EPISODES} episodes");
    assert!(run.store().verify(&mut |_| {}).expect("verifies").is_whole());
}
