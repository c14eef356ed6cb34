//! Forked children: whatever another thread of the parent was doing, they are refused at once, and open the store for themselves.
//!
//! A thread of the parent is stopped before each of its operations on the disk in turn, with all locks that it holds there;
//! then the process forks, and its child calls everything that it inherited. A call that waits for a lock waits for
//! ever, since the thread that has it does not exist there: an alarm ends it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;
mod scratch;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::RealDisk;
use keepstep::read::{Catalog, FollowFrom};
use keepstep::{
    Ending, Episode, EpisodeFilter, EpisodeName, Error, Group, Job, Level, NoteTarget, Opening, Options,
    PlanOptions, Receipt, Remaining, RemainingOptions, Result, Run, RunFollow, Step, StepFollow, Store,
    Stream, Value, View,
};
use scratch::Scratch;

thread_local! {
    /// The thread that is to be stopped.
    static ACTS: Cell<bool> = const { Cell::new(false) };
}

/// Stops a thread before one of its operations. No lock: the child has this too.
#[derive(Default)]
struct Stop {
    left: AtomicI64,
    is_stopped: AtomicBool,
    goes_on: AtomicBool,
}

impl Stop {
    fn before(&self) {
        if ACTS.get() && self.left.fetch_sub(1, Ordering::AcqRel) == 0 {
            self.is_stopped.store(true, Ordering::Release);
            while !self.goes_on.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn arm(&self, operations: i64) {
        self.is_stopped.store(false, Ordering::Release);
        self.goes_on.store(false, Ordering::Release);
        self.left.store(operations, Ordering::Release);
    }
}

/// A thread is stopped before so many of its operations, if there are more.
const OPERATIONS_MAX: i64 = 40;

fn options() -> Options {
    Options::default().background(false).dictionary(false)
}

fn name(task: &str, sample: i64) -> EpisodeName {
    EpisodeName::task(task).sample(sample)
}

fn step() -> Step {
    Step::new().action("x").observation("y".repeat(400))
}

/// What threads of the parent share.
struct Shared {
    store: Store,
    run: Run,
    episode: Episode,
    stream: Stream,
    group: Group,
}

/// What one thread of the parent has alone.
struct Mine {
    episode: Episode,
    job: Job,
    remaining: Remaining,
    receipt: Receipt,
    view: View,
    follow: StepFollow,
    events: RunFollow,
    catalog: Catalog,
}

fn open(dir: &Path, stop: &Arc<Stop>) -> Store {
    let disk = Arc::new(RealDisk::create(dir).expect("opens"));
    let stop = Arc::clone(stop);
    Store::on_files(HookedDisk::new(disk, move |_| stop.before()), options()).expect("opens")
}

fn shared(dir: &Path, stop: &Arc<Stop>) -> Shared {
    let store = open(dir, stop);
    let run = store.run("run", Value::Null).expect("opens");
    run.plan((0..200).map(|task| format!("planned-{task}")), PlanOptions::default()).expect("plans");
    let episode = run.episode(name("shared", 0)).expect("begins");
    let stream = run.stream("stream");
    stream.put("first", Value::Int(0)).expect("is taken").wait().expect("is durable");
    let group = run.group("group", 0, 100);
    Shared { store, run, episode, stream, group }
}

fn mine(shared: &Shared, round: i64) -> Mine {
    let run = &shared.run;
    let episode = run.episode(name("mine", round)).expect("begins");
    let receipt = episode.record(step()).expect("is taken");
    receipt.wait().expect("is durable");
    let mut remaining = run.remaining(RemainingOptions::default()).expect("looks");
    let job = remaining.next().expect("is there").expect("is claimed");
    let view = run.view(&name("mine", round)).expect("reads");
    let follow = run.view(&name("mine", round)).expect("reads").follow().expect("follows");
    let events = run.follow(None).expect("follows");
    let catalog = shared.store.catalog().expect("reads");
    Mine { episode, job, remaining, receipt, view, follow, events, catalog }
}

/// What a thread of the parent may be doing.
type Act = (&'static str, fn(&Shared, i64) -> Result<()>);

const ACTS_OF_PARENT: &[Act] = &[
    ("records", |it, _| it.episode.step(step()).map(|_| ())),
    ("opens", |it, round| it.run.episode(name("opened", round)).map(|_| ())),
    ("notes", |it, _| {
        let target = NoteTarget::episode(it.episode.id());
        it.run.annotate(target, "score", Value::Float(0.5), "judge")?.wait()
    }),
    ("puts", |it, round| it.stream.put(&format!("entry {round}"), Value::Int(round))?.wait()),
    ("reads a stream", |it, _| it.stream.read().map(|_| ())),
    ("plans", |it, round| it.run.plan([format!("more {round}")], PlanOptions::default())),
    ("takes what remains", |it, _| it.run.claim(RemainingOptions::default()).map(|_| ())),
    ("claims a slot", |it, _| it.group.claim(&Opening::default()).map(|_| ())),
    ("reaps", |it, _| it.store.reap().map(|_| ())),
    ("lists", |it, _| it.run.episodes(&EpisodeFilter::default()).map(|_| ())),
    ("views", |it, _| it.run.view(&name("shared", 0))?.read().map(|_| ())),
    ("opens a run", |it, round| it.store.run(&format!("run {round}"), Value::Null).map(|_| ())),
];

/// Each thing that a child may try with what it inherited. All are refused.
fn tries(it: &Shared, mine: &mut Mine) -> Vec<(&'static str, Option<Error>)> {
    let target = NoteTarget::episode(it.episode.id());
    let known = || mine.episode.known("tool", None, &Value::Null);
    let mut tried: Vec<(&'static str, Option<Error>)> = Vec::new();
    macro_rules! tries {
        ($($what:literal => $call:expr),* $(,)?) => { $(
            about_to($what);
            tried.push(($what, $call.err()));
        )* };
    }
    tries! {
        "step" => it.episode.step(step()),
        "turn" => it.episode.turn(Step::new()),
        "say" => it.episode.say(Step::new()),
        "call" => known(),
        "state" => it.episode.state("messages"),
        "history" => it.episode.history(0),
        "note" => it.episode.note("a", Value::Null, "child", None),
        "end" => it.episode.end("finished", Ending::default()),
        "wait" => mine.receipt.wait_for(Level::Power, None),
        "open" => it.run.episode(name("child", 0)),
        "unnamed" => it.run.unnamed(Opening::default()),
        "annotate" => it.run.annotate(target, "a", Value::Null, "child"),
        "notes" => it.run.notes(),
        "plan" => it.run.plan(["child"], PlanOptions::default()),
        "planned" => it.run.planned(),
        "remaining" => it.run.remaining(RemainingOptions::default()),
        "remaining_list" => it.run.remaining_list(&RemainingOptions::default()),
        "next remaining" => mine.remaining.next().transpose(),
        "episodes" => it.run.episodes(&EpisodeFilter::default()),
        "view" => it.run.view(&name("shared", 0)),
        "began" => it.store.began(&it.episode.id()),
        "view of" => it.store.view(&it.episode.id()),
        "list" => it.store.list(&mut mine.catalog),
        "refresh" => mine.catalog.refresh(),
        "attempts" => mine.view.step(0),
        "read" => mine.view.read(),
        "ending" => mine.view.ending(),
        "begin" => mine.view.begin(),
        "next step" => mine.follow.next(Duration::ZERO),
        "next event" => mine.events.next(Duration::ZERO),
        "follow" => it.run.follow(None),
        "follow all" => it.store.follow(FollowFrom::Now),
        "put" => it.stream.put("child", Value::Null),
        "put anew" => it.run.stream("another").put("child", Value::Null),
        "read stream" => it.stream.read(),
        "freeze" => it.stream.freeze(),
        "hide" => it.stream.hide(),
        "claim" => it.group.claim(&Opening::default()),
        "seal" => it.group.seal(None, "child", Some(0)),
        "sealed" => it.group.sealed(),
        "groups" => it.run.groups(),
        "run" => it.store.run("child", Value::Null),
        "runs" => it.store.runs(),
        "catalog" => it.store.catalog(),
        "reap" => it.store.reap(),
        "pruned" => it.store.pruned(&it.episode.id()),
        "verify" => it.store.verify(&mut |_| {}),
    }
    tried
}

thread_local! {
    static TOLD: RefCell<Option<std::path::PathBuf>> = const { RefCell::new(None) };
}

/// Left behind for the parent, should this be the last thing that the child does.
fn about_to(what: &str) {
    TOLD.with_borrow(|path| path.as_ref().map(|path| std::fs::write(path, what)));
}

/// Not refused, but of use: what a child may know, and what it does without a word.
fn harmless(it: &Shared, mine: Mine) {
    about_to("look");
    let _ = (it.episode.turns(), it.episode.steps(), it.episode.ended(), it.episode.pending());
    let _ =
        (mine.receipt.level(), mine.receipt.poll(), it.store.writer_stats(), format!("{:?}", mine.receipt));
    about_to("open a job");
    let Mine { episode, job, remaining, receipt, view, follow, events, catalog } = mine;
    let _ = job.episode(Opening::default());
    about_to("drop");
    drop((episode, remaining, receipt, view, follow, events, catalog));
    about_to("close");
    it.store.close();
}

/// A child that opens the store for itself.
fn goes_on(dir: &Path, round: i64) -> Result<bool> {
    about_to("open a store of its own");
    let store = Store::open(dir, options())?;
    let run = store.run("run", Value::Null)?;
    let episode = run.episode(name("of a child", round))?;
    episode.step(step())?;
    episode.end("finished", Ending::default())?.wait()?;
    store.close();
    Ok(run.view(&name("of a child", round))?.steps() == 1)
}

/// Forks, and gives how the child ended: nothing if all went well.
#[allow(unsafe_code)]
fn in_child(told: &Path, child: &mut dyn FnMut() -> bool) -> Option<String> {
    // SAFETY: the child calls nothing but what this test is about, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        TOLD.set(Some(told.to_owned()));
        // SAFETY: a child that hangs is ended by the system.
        unsafe { libc::alarm(20) };
        let is_fine = child();
        // SAFETY: ends the child without running the test harness a second time.
        unsafe { libc::_exit(i32::from(!is_fine)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    let last = std::fs::read_to_string(told).unwrap_or_default();
    (status != 0).then(|| format!("status {status} at {last:?} (14 is the alarm: it hung)"))
}

fn all_refused(it: &Shared, mut mine: Mine) -> bool {
    let wrong =
        tries(it, &mut mine).into_iter().find(|(_, error)| !matches!(error, Some(Error::Forked { .. })));
    if let Some((what, error)) = wrong {
        about_to(&format!("{what}, which gave {error:?}"));
        return false;
    }
    harmless(it, mine);
    true
}

/// Wherever a thread of the parent is, a forked child is refused by all that it inherited, and can begin anew.
#[test]
fn a_forked_child_never_waits_for_a_thread_of_its_parent() {
    let scratch = Scratch::new("forks");
    // What a child records must not make its parent's next look longer.
    let own = Scratch::new("own");
    let told = scratch.0.with_extension("told");
    let stop = Arc::new(Stop::default());
    let it = shared(&scratch.0, &stop);
    let mut forks = 0;
    for (act, act_of_parent) in ACTS_OF_PARENT {
        let mut inherited = Some(mine(&it, forks));
        for operations in 0..OPERATIONS_MAX {
            let round = forks;
            stop.arm(operations);
            let is_stopped = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    ACTS.set(true);
                    act_of_parent(&it, round)
                });
                while !thread.is_finished() && !stop.is_stopped.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let is_stopped = stop.is_stopped.load(Ordering::Acquire);
                if is_stopped {
                    let mut child = || {
                        let mine = inherited.take().expect("was opened");
                        let is_refused = all_refused(&it, mine);
                        // Now and then is enough: each opens, records and closes.
                        is_refused && (operations % 8 > 0 || goes_on(&own.0, round).unwrap_or(false))
                    };
                    let failed = in_child(&told, &mut child);
                    stop.goes_on.store(true, Ordering::Release);
                    assert_eq!(failed, None, "while another thread {act}, before operation {operations}");
                    forks += 1;
                }
                let done = thread.join().expect("does not panic");
                assert!(done.is_ok(), "{act}: {done:?}");
                is_stopped
            });
            if !is_stopped {
                break;
            }
        }
    }
    let _ = std::fs::remove_file(told);
    println!("{forks} forks");
}

/// The same for a store that nobody has recorded to yet: another thread makes its writer.
#[test]
fn a_forked_child_never_waits_for_a_writer_in_the_making() {
    let scratch = Scratch::new("making");
    let told = scratch.0.with_extension("told");
    for operations in 0.. {
        let stop = Arc::new(Stop::default());
        let store = open(&scratch.0, &stop);
        let run = store.run("run", Value::Null).expect("opens");
        stop.arm(operations);
        let is_stopped = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                ACTS.set(true);
                run.episode(name("parent", operations)).map(|_| ())
            });
            while !thread.is_finished() && !stop.is_stopped.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let is_stopped = stop.is_stopped.load(Ordering::Acquire);
            let mut child = || {
                about_to("open an episode");
                let refused = matches!(run.episode(name("child", operations)), Err(Error::Forked { .. }));
                refused && goes_on(&scratch.0, operations).unwrap_or(false)
            };
            let failed = if is_stopped { in_child(&told, &mut child) } else { None };
            stop.goes_on.store(true, Ordering::Release);
            thread.join().expect("does not panic").expect("opens");
            assert_eq!(failed, None, "before operation {operations}");
            is_stopped
        });
        if !is_stopped {
            break;
        }
    }
    let _ = std::fs::remove_file(told);
}
