//! Who is told of an end: each follower, once, and only of an end that counts.
//!
//! Three act on one episode: its owner, whose lock slipped, says the end; another compacts, takes over, reaps, or does nothing;
//! a follower looks. Each runs as a whole at each call of the one around it, nested in every order; or the owner and the other
//! are both stopped, each before any of its calls, while the follower looks. Afterwards the owner goes on until the episode is
//! finished, and whoever follows was told of that once: the follower itself, one that goes on from its cursor, and one that
//! comes later.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]
#![allow(unreachable_pub, reason = "a test has no outside: `pub` says which parts of a module others use")]

#[path = "tending/hooked_disk.rs"]
mod hooked_disk;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hooked_disk::HookedDisk;
use keepstep::disk::Files;
use keepstep::disk::sim::{Errno, Fault, On, SimDisk, SimProcess};
use keepstep::tend::CompactOptions;
use keepstep::{
    Broken, Ending, Episode, EpisodeName, Error, Opening, Options, Run, RunEvent, RunFollow, Step, StepNews,
    Store, Value, WhenBusy,
};

/// Whoever acts. `Taker` takes the episode although its owner seems alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Owner,
    Compactor,
    Reaper,
    Taker,
    Follower,
}

/// What happens inside somebody's call: at which, and what.
struct Inside {
    calls_left: u64,
    act: Box<dyn FnOnce() + Send>,
}

type Slot = Arc<Mutex<Option<Inside>>>;

/// One process, whose calls others can come between.
struct Actor {
    run: Run,
    process: Arc<SimProcess>,
    disk: Arc<HookedDisk>,
    inside: Slot,
}

impl Actor {
    fn new(sim: &SimDisk, broken: Option<Broken>) -> Self {
        Self::booted(sim, broken, None)
    }

    fn booted(sim: &SimDisk, broken: Option<Broken>, boot: Option<&'static str>) -> Self {
        let (process, inside) = (sim.process(), Slot::default());
        let slot = Arc::clone(&inside);
        let disk = HookedDisk::booted(process.clone(), boot, move |_| {
            let mut inside = slot.lock().expect("no panic");
            match inside.as_mut() {
                None => {}
                Some(it) if it.calls_left > 0 => it.calls_left -= 1,
                Some(_) => {
                    let it = inside.take().expect("is there");
                    drop(inside);
                    (it.act)();
                }
            }
        });
        let options = Options::default()
            .background(false)
            .stall(Duration::from_millis(500))
            .dictionary(false)
            .broken(broken);
        let run = Store::on_files(disk.clone(), options).expect("opens");
        let run = run.run("run", Value::Null).expect("opens");
        Self { run, process, disk, inside }
    }

    /// Lets something happen inside its call with this number.
    fn at(&self, call: u64, act: impl FnOnce() + Send + 'static) {
        *self.inside.lock().expect("no panic") = Some(Inside { calls_left: call, act: Box::new(act) });
    }

    /// True if there was such a call.
    fn has_happened(&self) -> bool {
        self.inside.lock().expect("no panic").take().is_none()
    }
}

fn name() -> EpisodeName {
    EpisodeName::task("task")
}

/// Longer than a lease.
const LEASE: Duration = Duration::from_secs(40);

/// Ends that were told, by attempt.
type Told = BTreeMap<(u32, String), u32>;

/// How the follower is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Whole,
    Broken(Broken),
    /// It may not write, and others may.
    ReadOnly,
}

struct World {
    sim: SimDisk,
    is_read_only: bool,
    /// The owner records a step before it says the end.
    owner_steps: bool,
    owner: Actor,
    other: Actor,
    reader: Actor,
    episode: Mutex<Option<Episode>>,
    follow: Mutex<Option<RunFollow>>,
    told: Mutex<(Told, Option<String>)>,
    acknowledged: Mutex<bool>,
    trouble: Mutex<Vec<String>>,
}

impl World {
    fn new(owner_steps: bool, how: Reader) -> Arc<Self> {
        let sim = SimDisk::new(91);
        let broken = if let Reader::Broken(broken) = how { Some(broken) } else { None };
        let is_read_only = how == Reader::ReadOnly;
        let [owner, other, reader] = [None, None, broken].map(|broken| Actor::new(&sim, broken));
        let episode = owner.run.episode(name()).expect("begins");
        owner.process.lose_locks();
        if is_read_only {
            reader.disk.forbid_writing();
        }
        let follow = reader.run.follow(None).expect("follows");
        Arc::new(Self {
            sim,
            is_read_only,
            owner_steps,
            owner,
            other,
            reader,
            episode: Mutex::new(Some(episode)),
            follow: Mutex::new(Some(follow)),
            told: Mutex::default(),
            acknowledged: Mutex::default(),
            trouble: Mutex::default(),
        })
    }

    fn actor(&self, who: Who) -> &Actor {
        match who {
            Who::Owner => &self.owner,
            Who::Follower => &self.reader,
            Who::Compactor | Who::Reaper | Who::Taker => &self.other,
        }
    }

    fn acts(&self, who: Who) {
        let done = match who {
            Who::Owner => self.finish(),
            Who::Follower => self.listen(),
            Who::Compactor => {
                let options = CompactOptions::default().grace(Duration::ZERO);
                self.other.run.store().compact(options, &mut |_| {}).map(|_| ())
            }
            Who::Reaper => self.other.run.store().reap().map(|_| ()),
            Who::Taker => match self.other.run.open(name(), Opening::default().busy(WhenBusy::Take)) {
                Ok(episode) => {
                    // It lives on without a word.
                    std::mem::forget(episode);
                    Ok(())
                }
                Err(Error::Ended { .. } | Error::Fenced { .. } | Error::LogClosed { .. }) => Ok(()),
                Err(error) => Err(error),
            },
        };
        if let Err(error) = done {
            self.trouble.lock().expect("no panic").push(format!("{who:?}: {error}"));
        }
    }

    fn finish(&self) -> keepstep::Result<()> {
        let episode = self.episode.lock().expect("no panic");
        let episode = episode.as_ref().expect("is open");
        if self.owner_steps
            && let Err(error) = episode.step(Step::new().action(1))
        {
            return if is_refused(&error) { Ok(()) } else { Err(error) };
        }
        let ended = episode.end("finished", Ending::default());
        match ended.and_then(|end| end.wait()) {
            Ok(_) => *self.acknowledged.lock().expect("no panic") = true,
            Err(error) if is_refused(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn listen(&self) -> keepstep::Result<()> {
        let mut follow = self.follow.lock().expect("no panic");
        let (told, cursor) = &mut *self.told.lock().expect("no panic");
        drain(follow.as_mut().expect("follows"), told, cursor)
    }

    /// The owner opens the episode again at once, and goes on until it is finished.
    fn come_back(&self) -> keepstep::Result<()> {
        *self.episode.lock().expect("no panic") = None;
        match self.owner.run.open(name(), Opening::default().busy(WhenBusy::Take)) {
            Ok(episode) => {
                episode.step(Step::new().action(1))?;
                episode.end("finished", Ending::default())?.wait().map(|_| ())
            }
            Err(Error::Ended { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What is wrong at the end.
    fn complaints(&self) -> Vec<String> {
        let mut wrong = self.trouble.lock().expect("no panic").clone();
        wrong.extend(self.come_back().err().map(|error| format!("coming back: {error}")));
        // Everybody is gone, in good order or not.
        self.owner.process.lose_locks();
        self.other.process.lose_locks();
        for is_compacted in [false, true] {
            if is_compacted {
                self.acts(Who::Compactor);
            }
            self.wait_and_listen(&mut wrong);
            let (told, cursor) = self.told.lock().expect("no panic").clone();
            wrong.extend(self.wrong_with(&told, "who followed all along"));
            let later = Actor::new(&self.sim, None);
            let mut behind = told.clone();
            wrong.extend(hear(&later.run, cursor.as_deref(), &mut behind).err());
            wrong.extend(self.wrong_with(&behind, "who went on from the cursor"));
            let mut all = Told::new();
            wrong.extend(hear(&later.run, None, &mut all).err());
            wrong.extend(self.wrong_with(&all, "who came later"));
            wrong.extend(self.steps_differ(&later.run));
        }
        wrong
    }

    /// A follower that may not write is told when the others have been gone for long: each of them, one after the other.
    fn wait_and_listen(&self, wrong: &mut Vec<String>) {
        for _ in 0..if self.is_read_only { 4 } else { 1 } {
            wrong.extend(self.listen().err().map(|error| format!("following: {error}")));
            self.sim.advance(if self.is_read_only { LEASE } else { Duration::ZERO });
        }
    }

    fn wrong_with(&self, told: &Told, who: &str) -> Option<String> {
        let finished: u32 =
            told.iter().filter(|((_, why), _)| why == "finished").map(|(_, times)| times).sum();
        let run = Actor::new(&self.sim, None).run;
        let view = run.view(&name()).expect("reads");
        // Lists show the attempt that has the end, or took it over.
        for (attempt, _) in told.keys().filter(|(_, why)| why == "finished") {
            let shown = run.store().last_with_end_of(&view.id(), *attempt).expect("reads");
            if shown != Some(view.number()) {
                return Some(format!(
                    "{who} was told of attempt {attempt}, shown as {shown:?}: {}",
                    view.number()
                ));
            }
        }
        let why = view.ending().expect("reads").and_then(|end| end.why);
        let is_right = finished == 1 && why.as_deref() == Some("finished");
        (!is_right).then(|| format!("{who} was told {told:?}, and it is {why:?}"))
    }

    /// A follower of an attempt is told of the same steps that a view has.
    fn steps_differ(&self, run: &Run) -> Option<String> {
        let catalog = run.store().catalog().expect("reads");
        for began in run.store().began(&run.episode_id(&name())).expect("reads") {
            let attempt = began.key.attempt;
            // An attempt that took over an end has nothing of its own.
            let Ok(view) = run.store().view_of(&catalog, &began.key) else { continue };
            let read = view.read().expect("reads").steps.len();
            let mut follow = view.follow().expect("follows");
            let mut told = 0;
            while let StepNews::Step(_) = follow.next(Duration::ZERO).expect("follows") {
                told += 1;
            }
            if told != read {
                return Some(format!("attempt {attempt} has {read} steps, and {told} were told"));
            }
        }
        None
    }
}

fn is_refused(error: &Error) -> bool {
    match error {
        Error::EarlierFailed(cause) => is_refused(cause),
        error => matches!(error, Error::Fenced { .. } | Error::LogClosed { .. } | Error::Ended { .. }),
    }
}

fn drain(follow: &mut RunFollow, told: &mut Told, cursor: &mut Option<String>) -> keepstep::Result<()> {
    while let Some((event, now)) = follow.next(Duration::ZERO)? {
        if let RunEvent::Ended { attempt, why, .. } = event {
            *told.entry((attempt, why)).or_default() += 1;
        }
        *cursor = Some(now);
    }
    *cursor = Some(follow.cursor());
    Ok(())
}

fn hear(run: &Run, after: Option<&str>, told: &mut Told) -> Result<(), String> {
    let mut follow = run.follow(after).map_err(|error| error.to_string())?;
    drain(&mut follow, told, &mut None).map_err(|error| error.to_string())
}

/// `inner` at a call of `middle`, which is at a call of `outer`. What broke; `None` if there are fewer calls.
fn nested(order: [Who; 3], at: [u64; 2], how: Reader) -> Option<Vec<String>> {
    let [outer, middle, inner] = order;
    let world = World::new(true, how);
    let (between, inside) = (Arc::clone(&world), Arc::clone(&world));
    world.actor(outer).at(at[0], move || {
        let actor = between.actor(middle);
        actor.at(at[1], move || inside.acts(inner));
        between.acts(middle);
    });
    world.acts(outer);
    let (came, went) = (world.actor(outer).has_happened(), world.actor(middle).has_happened());
    (came && went).then(|| world.complaints())
}

/// Stops whoever comes here, until it may go on.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn stop_here(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            state = self.changed.wait(state).expect("no panic");
        }
    }

    fn go_on(&self) {
        self.state.lock().expect("no panic").1 = true;
        self.changed.notify_all();
    }

    /// Waits until somebody is stopped here, or is done without having come here. True if somebody is stopped.
    fn is_reached(&self, done: &AtomicBool) -> bool {
        let mut state = self.state.lock().expect("no panic");
        while !state.0 && !done.load(Ordering::Acquire) {
            state = self.changed.wait_timeout(state, Duration::from_millis(1)).expect("no panic").0;
        }
        state.0
    }
}

/// Two are stopped in the middle, the first one first; then somebody follows, and they go on in this order.
fn stopped(order: [Who; 2], at: [u64; 2], goes_on_first: usize, how: Reader) -> Option<Vec<String>> {
    let world = World::new(false, how);
    let start = |nth: usize| {
        let (gate, done) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        let (inside, is_done, within) = (Arc::clone(&gate), Arc::clone(&done), Arc::clone(&world));
        world.actor(order[nth]).at(at[nth], move || inside.stop_here());
        let thread = std::thread::spawn(move || {
            within.acts(order[nth]);
            is_done.store(true, Ordering::Release);
        });
        let is_reached = gate.is_reached(&done);
        (is_reached, gate, thread)
    };
    let both = [start(0), start(1)];
    let is_reached = both.iter().all(|(is_reached, ..)| *is_reached);
    if is_reached {
        world.acts(Who::Follower);
    }
    let mut both = both.map(|(_, gate, thread)| (gate, Some(thread)));
    for nth in [goes_on_first, 1 - goes_on_first] {
        let (gate, thread) = &mut both[nth];
        gate.go_on();
        thread.take().expect("once").join().expect("no panic");
    }
    let _ = world.owner.has_happened() | world.other.has_happened();
    is_reached.then(|| world.complaints())
}

/// How many orders, and what broke in them.
type Tried = (u64, Vec<String>);

/// Tries all pairs of calls, as far as there are any.
fn at_all_calls(what: &str, tried: &mut Tried, one: impl Fn([u64; 2]) -> Option<Vec<String>>) {
    for outer in 0.. {
        let mut has_any = false;
        for inner in 0.. {
            let Some(wrong) = one([outer, inner]) else { break };
            (has_any, tried.0) = (true, tried.0 + 1);
            tried.1.extend(wrong.into_iter().map(|it| format!("{what} at {outer}, {inner}: {it}")));
        }
        if !has_any {
            return;
        }
    }
}

/// Each as a whole within another, and two stopped while the third looks.
fn in_all_orders(other: Who, how: Reader) -> Tried {
    let (owner, follower) = (Who::Owner, Who::Follower);
    let mut orders = vec![[owner, other, follower], [owner, follower, other], [other, owner, follower]];
    orders.extend([[other, follower, owner], [follower, owner, other], [follower, other, owner]]);
    let mut tried = Tried::default();
    for order in orders {
        at_all_calls(&format!("{order:?}"), &mut tried, |at| nested(order, at, how));
    }
    for order in [[owner, other], [other, owner]] {
        for first in 0..2 {
            let what = format!("{order:?} stopped, {:?} goes on first,", order[first]);
            at_all_calls(&what, &mut tried, |at| stopped(order, at, first, how));
        }
    }
    tried
}

fn must_hold(other: Who, how: Reader) {
    let (orders, broke) = in_all_orders(other, how);
    println!("{other:?}, {how:?}: {orders} orders");
    let first = broke.iter().take(12).cloned().collect::<Vec<_>>().join("\n");
    assert!(broke.is_empty(), "{} in {orders} orders:\n{first}", broke.len());
    assert!(orders > 300, "{orders}");
}

/// A follower told of an end that was written behind the place where `compact` had closed the log, and then of the end of the
/// attempt that came after it.
#[test]
fn an_end_is_told_once_beside_compact() {
    must_hold(Who::Compactor, Reader::Whole);
}

/// Whoever took over copied the end: the copy was told again, or neither was told.
#[test]
fn an_end_is_told_once_beside_a_taker() {
    must_hold(Who::Taker, Reader::Whole);
}

#[test]
fn an_end_is_told_once_beside_reap() {
    must_hold(Who::Reaper, Reader::Whole);
}

#[test]
fn telling_what_is_only_seen_is_caught() {
    let (orders, broke) = in_all_orders(Who::Compactor, Reader::Broken(Broken::TellWhatIsSeen));
    println!("{} of {orders} orders: {}", broke.len(), broke.first().map_or("", String::as_str));
    assert!(!broke.is_empty(), "not caught in {orders} orders");
}

/// A follower that might not write took it that nobody might: it told of an end that its writer then gave up, or that was
/// behind the place where another process closed the log, and of the real end after it.
#[test]
fn an_end_is_told_once_to_a_follower_that_may_only_read() {
    must_hold(Who::Compactor, Reader::ReadOnly);
    must_hold(Who::Taker, Reader::ReadOnly);
}

/// Where nothing can be written nobody can be asked, and nobody settles anything: what a process left that has been gone for
/// long is told. That it was of another boot is proof.
#[test]
fn what_a_killed_owner_left_is_told_where_nothing_can_be_written() {
    for (is_read_only, boot) in [(false, None), (true, None), (true, Some("a later one"))] {
        let world = World::new(false, Reader::Whole);
        // Its end is written and synced, and its log does not say so yet.
        let process = Arc::clone(&world.owner.process);
        world.owner.at(0, move || process.kill());
        world.acts(Who::Owner);
        let reader = Actor::booted(&world.sim, None, boot);
        if is_read_only {
            world.sim.faults().plan(Fault::new(On::Change, Errno::Erofs).until_cleared());
        }
        let mut told = Told::new();
        if is_read_only && boot.is_none() {
            hear(&reader.run, None, &mut told).expect("follows");
            assert_eq!(told, Told::new(), "its owner may be alive, with a lock that slipped");
            world.sim.advance(LEASE);
        }
        // The second one has read the answer, or there is none.
        for _ in 0..2 {
            hear(&reader.run, None, &mut told).expect("follows");
        }
        let once_each = Told::from([((0, "finished".to_owned()), 2)]);
        assert_eq!(told, once_each, "read-only: {is_read_only}, boot: {boot:?}");
        let disk = world.sim.process();
        let boxes = disk.list("mail").expect("lists");
        let letters = boxes.iter().flat_map(|it| disk.list(&format!("mail/{}", it.name)).expect("lists"));
        let answers = letters.filter(|letter| letter.name.ends_with(".answer")).count();
        assert_eq!(answers, usize::from(!is_read_only), "the log was closed, if it could be");
    }
}
