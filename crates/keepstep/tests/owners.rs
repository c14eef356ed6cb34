//! Who owns an episode, with real processes: stopped ones that come back, forked ones, other namespaces, other boots.
//!
//! `KEEPSTEP_ROUNDS` says how many owners are stopped (`make takeover-all` says 200); `KEEPSTEP_SEED` repeats a run.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod scratch;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use keepstep::disk::sim::SimDisk;
use keepstep::disk::{Clock, Files};
use keepstep::format::card::{Beat, Card, kind};
use keepstep::format::encode::{Encoder, NothingKnown};
use keepstep::format::fields;
use keepstep::format::hash::ContentKey;
use keepstep::tend::CompactOptions;
use keepstep::{EpisodeName, Error, Level, Opening, Options, Run, Step, Store, Value, WhenBusy};

use scratch::Scratch;

/// Set in a process that this test started: the directory that it is to record to.
const OWNER_OF: &str = "KEEPSTEP_TEST_OWNER_OF";
/// What the owner's steps survive.
const LEVEL: &str = "KEEPSTEP_TEST_LEVEL";

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run_in(dir: &Path, options: Options) -> Run {
    Store::open(dir, options).expect("opens").run("run", Value::Null).expect("opens")
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

fn taking() -> Opening {
    Opening::default().busy(WhenBusy::Take)
}

fn step(content: u64) -> Step {
    let messages = (0..=content % 1000).map(|it| Value::from(format!("message {it} ").repeat(30)));
    Step::new().action(content as i64).prompt(Value::list(messages.collect::<Vec<_>>()))
}

/// Contents of an episode's steps, as its lineage gives them.
fn contents(run: &Run) -> Vec<u64> {
    let read = run.view(&name()).expect("reads").read().expect("reads");
    assert!(read.is_whole(), "{read:?}");
    read.steps.iter().map(|step| step.action.as_ref().unwrap().as_int().unwrap() as u64).collect()
}

/// Records until it may not any more, saying each time what was acknowledged. In a process of its own.
fn record_until_refused(dir: &Path) {
    let level =
        if std::env::var(LEVEL).is_ok_and(|level| level == "kill") { Level::Kill } else { Level::Power };
    let run = run_in(dir, Options::default().level(level));
    let episode = run.open(name(), taking()).expect("begins");
    let say = |line: String| {
        let mut out = std::io::stdout();
        writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody listens");
    };
    for content in 0.. {
        match episode.step(step(content)) {
            Ok(_) => say(format!("acknowledged {content}")),
            Err(Error::Fenced { mine: 0, attempt: 1, .. }) => return say("fenced".to_owned()),
            Err(error) => return say(format!("refused: {error}")),
        }
    }
}

/// A process that this test started.
struct Owner {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Owner {
    /// Runs `test` of this program again, as an owner.
    fn start(mut command: Command, test: &str, dir: &Path, level: &str) -> Self {
        let mut child = command
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(OWNER_OF, dir)
            .env(LEVEL, level)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let out = BufReader::new(child.stdout.take().expect("is piped"));
        Self { child, out }
    }

    /// The next thing it says, passing over what the test harness says.
    fn says(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).expect("is read") == 0 {
                return None;
            }
            // The harness does not end its line before ours begins.
            let ours = ["acknowledged ", "fenced", "refused"].iter().find_map(|word| line.find(word));
            if let Some(at) = ours {
                return Some(line[at..].trim_end().to_owned());
            }
        }
    }

    fn acknowledges(&mut self, count: u64) {
        for content in 0..count {
            assert_eq!(self.says(), Some(format!("acknowledged {content}")));
        }
    }

    #[allow(unsafe_code)]
    fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that was not waited for yet, so that the number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("is known"))
}

/// An owner is stopped in mid-episode, loses it, and comes back: its next call says so, and the lineage is exact.
#[test]
fn a_stopped_owner_that_comes_back_is_fenced() {
    if let Some(dir) = std::env::var_os(OWNER_OF) {
        return record_until_refused(Path::new(&dir));
    }
    let (rounds, seed) = (number_from("KEEPSTEP_ROUNDS", 20), number_from("KEEPSTEP_SEED", 20_261_115));
    let (mut acknowledged, mut inherited) = (0, 0);
    for round in 0..rounds {
        let scratch = Scratch::new(&format!("stopped-{round}"));
        let chance = seed.wrapping_add(round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (before, wait_us) = (1 + (chance >> 60), chance >> 40 & 0xfff);
        let level = if round % 2 == 0 { "power" } else { "kill" };
        let case = format!("round {round}, KEEPSTEP_SEED={seed}: stopped after {before} steps at {level}");
        let test = "a_stopped_owner_that_comes_back_is_fenced";
        let mut owner = Owner::start(this_program(), test, &scratch.0, level);
        owner.acknowledges(before);
        std::thread::sleep(Duration::from_micros(wait_us));
        owner.signal(libc::SIGSTOP);
        let run = run_in(&scratch.0, Options::default());
        let episode = run.open(name(), taking()).expect("takes over");
        let taken = episode.inherited();
        for number in 0..3 {
            episode.step(step(1000 + number)).expect("records");
        }
        owner.signal(libc::SIGCONT);
        episode.step(step(1003)).expect("records");
        let mut promised = before;
        let last = loop {
            match owner.says() {
                Some(line) if line == format!("acknowledged {promised}") => promised += 1,
                last => break last,
            }
        };
        assert_eq!(last.as_deref(), Some("fenced"), "{case}");
        drop(episode);
        assert!(promised <= taken, "{case}: {promised} were acknowledged, and {taken} inherited");
        let expected: Vec<u64> = (0..taken).chain(1000..1004).collect();
        assert_eq!(contents(&run), expected, "{case}");
        let id = run.episode_id(&name());
        assert_eq!(
            run.store().found_end(&id, 0).expect("reads").expect("is known").0,
            "superseded",
            "{case}"
        );
        (acknowledged, inherited) = (acknowledged + promised, inherited + taken);
    }
    println!(
        "{rounds} owners stopped, {acknowledged} steps acknowledged, {inherited} inherited, 0 lost, seed {seed}"
    );
}

/// A forked child can say nothing in its parent's name; to itself the parent is another process, alive.
#[test]
#[allow(unsafe_code)]
fn a_forked_child_is_another_process() {
    let test = "a_forked_child_is_another_process";
    let Some(dir) = std::env::var_os(OWNER_OF) else {
        // In a process of its own, where no other test holds a lock while it forks.
        let scratch = Scratch::new("forked");
        let mut owner = Owner::start(this_program(), test, &scratch.0, "power");
        while owner.says().is_some() {}
        assert!(owner.child.wait().expect("ends").success(), "see what it says: {OWNER_OF}=DIR {test}");
        assert_eq!(contents(&run_in(&scratch.0, Options::default())), [0, 1, 1000]);
        return;
    };
    let run = run_in(Path::new(&dir), Options::default());
    let episode = run.episode(name()).expect("begins");
    episode.step(step(0)).expect("records");
    episode.step(step(1)).expect("records");
    // SAFETY: the child calls nothing but what this test is about, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_forked = |error: Option<Error>| matches!(error, Some(Error::Forked { .. }));
        let is_refused = is_forked(episode.step(step(2)).err())
            && is_forked(episode.turn(Step::new()).err())
            && is_forked(episode.end("finished", Default::default()).err())
            && is_forked(run.episode(EpisodeName::task("other")).err());
        let take = || -> keepstep::Result<bool> {
            let own = Store::open(&dir, Options::default().background(false))?;
            let own = own.run("run", Value::Null)?;
            let is_busy = matches!(own.episode(name()), Err(Error::Busy { .. }));
            let taken = own.open(name(), taking())?;
            taken.step(step(1000))?;
            Ok(is_busy && taken.inherited() == 2)
        };
        let is_fine = is_refused && take().is_ok_and(|taken| taken);
        // SAFETY: ends the child without running the test harness a second time.
        unsafe { libc::_exit(i32::from(!is_fine)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child was refused, found its parent alive, and took the episode");
    let error = episode.step(step(3)).expect_err("is fenced");
    assert!(matches!(error, Error::Fenced { mine: 0, attempt: 1, .. }), "{error}");
}

/// How a process with process numbers of its own is started here, if that is allowed.
fn unshare() -> Option<Command> {
    let mine: &[&str] = &["--pid", "--fork", "--kill-child", "--mount-proc"];
    let as_root: &[&str] = &["--user", "--map-root-user"];
    let command = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(more).args(mine);
        command
    };
    [&[], as_root].into_iter().find_map(|more| {
        let tried = command(more).arg("true").stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success()).then(|| command(more))
    })
}

/// An owner in a container has a process number that means nothing outside: it is alive while its lock is held, not longer.
#[test]
fn an_owner_in_another_namespace() {
    if let Some(dir) = std::env::var_os(OWNER_OF) {
        return record_until_refused(Path::new(&dir));
    }
    let Some(mut command) = unshare() else {
        println!("skipped: `unshare --pid --fork --mount-proc` is not permitted here");
        return;
    };
    let scratch = Scratch::new("namespace");
    command.arg(std::env::current_exe().expect("is known"));
    let mut owner = Owner::start(command, "an_owner_in_another_namespace", &scratch.0, "power");
    owner.acknowledges(3);
    let run = run_in(&scratch.0, Options::default());
    let busy = run.episode(name()).expect_err("its owner lives");
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    owner.signal(libc::SIGKILL);
    owner.child.wait().expect("ends");
    let mut promised = 3;
    while owner.says() == Some(format!("acknowledged {promised}")) {
        promised += 1;
    }
    // Whoever made the namespace is gone first; its child follows at once.
    let patient = Opening::default().busy(WhenBusy::Wait(Duration::from_secs(60)));
    let episode = run.open(name(), patient).expect("its owner is gone");
    assert!(episode.inherited() >= promised, "{promised} acknowledged, {} inherited", episode.inherited());
    assert_eq!(contents(&run), (0..episode.inherited()).collect::<Vec<_>>());
    let (why, evidence) = run.store().found_end(&run.episode_id(&name()), 0).unwrap().expect("is known");
    assert!(why == "crashed" && format!("{evidence:?}").contains("lock"), "{why}: {evidence:?}");
}

/// Whoever was killed without a word is found: `crashed` is recorded once, with what shows it, and nothing of it is lost.
#[test]
fn the_dead_are_reaped_once() {
    if let Some(dir) = std::env::var_os(OWNER_OF) {
        return record_until_refused(Path::new(&dir));
    }
    let scratch = Scratch::new("reaped");
    let mut owner = Owner::start(this_program(), "the_dead_are_reaped_once", &scratch.0, "power");
    owner.acknowledges(2);
    let run = run_in(&scratch.0, Options::default());
    let alive = run.episode(EpisodeName::task("another")).expect("begins");
    assert_eq!(run.store().reap().expect("looks").crashed, [], "all are alive");
    owner.signal(libc::SIGKILL);
    owner.child.wait().expect("ends");
    let reaped = run.store().reap().expect("looks").crashed;
    assert_eq!(reaped.iter().map(|it| it.episode).collect::<Vec<_>>(), [run.episode_id(&name())]);
    assert!(reaped[0].steps >= 2 && format!("{:?}", reaped[0].evidence).contains("lock"), "{reaped:?}");
    assert_eq!(run.store().reap().expect("looks").crashed, [], "once");
    let view = run.view(&name()).expect("reads");
    assert_eq!(view.ending().expect("reads").expect("ended").why.as_deref(), Some("crashed"));
    alive.step(step(0)).expect("is not reaped");
    assert_eq!(run.episode(name()).expect("goes on").inherited(), reaped[0].steps);
}

/// After a reboot nobody is waited for, and all that crashed writers left can be tended: what they recorded could not be
/// compacted or pruned before, for ever. A lock that does not say its boot proves nothing: its owner is silent first, and counts
/// as dead after the lease.
#[test]
fn an_owner_of_another_boot_is_gone() {
    if let Some(dir) = std::env::var_os(OWNER_OF) {
        return record_until_refused(Path::new(&dir));
    }
    let scratch = Scratch::new("boot");
    let mut owner = Owner::start(this_program(), "an_owner_of_another_boot_is_gone", &scratch.0, "power");
    owner.acknowledges(2);
    owner.signal(libc::SIGKILL);
    owner.child.wait().expect("ends");
    let run = run_in(&scratch.0, Options::default().lease(Duration::from_millis(400)));
    let writer = std::fs::read_dir(scratch.0.join("writers")).unwrap().next().unwrap().unwrap().file_name();
    let path = format!("writers/{}/lock", writer.to_str().unwrap());
    let store = run.store().id();
    let key = ContentKey::new(&store.0);
    let boots_in = |boot: &str| {
        let mut encoder = Encoder::fields(&key, &NothingKnown);
        encoder.field(fields::BOOT);
        encoder.put(&Value::from(boot)).expect("fits");
        let card = Card::encode(&store, &path, kind::LOCK, &encoder.finish().body);
        std::fs::write(scratch.0.join(&path), card).expect("writes");
    };
    boots_in("a boot long ago");
    let found = run.store().find_dead().expect("looks");
    assert_eq!((found.dead.len(), found.silent.len()), (1, 0), "{found:?}");
    assert!(format!("{:?}", found.dead[0].evidence).contains("started again"), "{found:?}");
    boots_in("");
    let silent = run.episode(name()).expect_err("nobody knows").to_string();
    assert!(silent.contains("was silent") && silent.contains("counts as dead after"), "{silent}");
    let patient = Opening::default().busy(WhenBusy::Wait(Duration::from_secs(60)));
    let episode = run.open(name(), patient).expect("it is dead by now");
    assert!(episode.inherited() >= 2);
    let (why, evidence) = run.store().found_end(&run.episode_id(&name()), 0).unwrap().expect("is known");
    assert!(why == "crashed" && format!("{evidence:?}").contains("heartbeat"), "{why}: {evidence:?}");
    boots_in("a boot long ago");
    drop(episode);
    let report = run.store().compact(CompactOptions::default(), &mut |_| {}).expect("compacts");
    assert_eq!(report.logs, 1, "{report:?}");
}

/// By the observer's own clock, which here is simulated: a beat that moves keeps its owner alive, one that stands still does not.
#[test]
fn a_heartbeat_counts_by_the_observers_clock() {
    let sim = SimDisk::new(20_261_116);
    let quiet = |lease: u64| Options::default().background(false).lease(Duration::from_secs(lease));
    let run_on = |disk: &SimDisk, lease| {
        Store::on_files(disk.process(), quiet(lease)).expect("opens").run("run", Value::Null).expect("opens")
    };
    let owner = run_on(&sim, 10);
    let episode = owner.episode(name()).expect("begins");
    episode.step(step(0)).expect("records");
    let trace = sim.trace();
    // As the disk is found after a power cut, with a lock that does not validate: then it says nothing.
    let after = trace.state(trace.cuts() - 1, 0);
    drop((episode, owner));
    let disk = after.process();
    let writer = disk.list("writers").unwrap().remove(0).name;
    disk.open_rw(&format!("writers/{writer}/lock")).unwrap().write_at(b"x", 30).unwrap();
    let other = run_on(&after, 10);
    let heard = |expected: &str| {
        let busy = other.episode(name()).expect_err("is silent").to_string();
        assert!(busy.contains(expected), "{expected:?} is not in {busy:?}");
    };
    heard("silent for 0 s; it counts as dead after 10 s more");
    after.advance(Duration::from_secs(6));
    heard("silent for 6 s; it counts as dead after 3 s more");
    // The cut took the beats that were never synced; a new one is news all the same.
    let beat = Beat { counter: 2, time: disk.now_us() };
    disk.open_rw(&format!("writers/{writer}/beat")).unwrap().write_at(&beat.encode(), 0).unwrap();
    heard("silent for 0 s");
    after.advance(Duration::from_secs(6));
    heard("silent for 6 s");
    after.advance(Duration::from_secs(5));
    let taken = other.episode(name()).expect("is dead");
    assert_eq!(taken.inherited(), 1);
    let (why, evidence) = other.store().found_end(&other.episode_id(&name()), 0).unwrap().expect("is known");
    let evidence = format!("{evidence:?}");
    assert!(why == "crashed" && evidence.contains("stood still for 11 s"), "{why}: {evidence}");
    assert_eq!(contents(&other), [0]);
}
