//! `keepstep torture --company`: recorders that share episodes, and all other processes that work on a store beside
//! them.
//!
//! Compactors, pruners, reapers, readers, followers with cursors and copies of the store run beside recorders that
//! lose their locks. All are killed at random, and some are stopped for longer than a lease. At the end nothing that
//! was acknowledged is lost, each end was reported once, what was pruned is gone, nothing else is, and the store is
//! whole.

pub(crate) mod hands;
mod oracle;
mod reading;
mod recorder;

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keepstep::tend::CompactOptions;
use keepstep::{RunEvent, Value};

use self::hands::Role;
use self::oracle::{FollowedEnd, KINDS, Oracle, RUNS};
use self::reading::{damage, read_all, run_name};
use crate::Program;
use crate::chance::{Chance, new_seed};
use crate::child::{self, Started};
use crate::failure::{Exit, Failure, Outcome};
use crate::json::Json;
use crate::numbers::{count, counted};
use crate::place::{open_to_read, quoted};
use crate::progress;
use crate::screen::Screen;

/// How long an owner may be silent: short, so that leases run out within a torture.
const LEASE: Duration = Duration::from_millis(500);
/// How many tend and read the store at a time, beside its recorders and followers.
const TENDERS: usize = 4;
/// With more than this something is wrong that more of it will not explain.
const ERRORS_MAX: u64 = 10;

/// What `keepstep torture` was told.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) dir: PathBuf,
    pub(crate) seconds: u64,
    pub(crate) recorders: u32,
    pub(crate) threads: u32,
    pub(crate) seed: u64,
    pub(crate) json: bool,
    /// Recorders say that a step was acknowledged before it was: the negative control.
    pub(crate) early: bool,
}

pub(crate) fn run(plan: Plan, program: &Program, screen: &mut Screen) -> Outcome {
    let mut company = Company::new(plan, program)?;
    let (seed, seconds) = (company.plan.seed, company.plan.seconds);
    let recorders = counted(company.plan.recorders.into(), "recorder");
    screen.say(&format!(
        "seed {seed}: killing {recorders} and their company in {} for {seconds} s",
        quoted(&company.store)
    ));
    let bar = progress::bar(seconds, "torturing");
    let ended = company.record_and_kill(|at| bar.set_position(at));
    bar.finish_and_clear();
    ended?;
    screen.say("reading everything back, as it is and regrouped");
    company.check_all()?;
    company.report(screen)
}

/// Who has a place in the company: whoever dies is followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Recorder,
    Follower(usize),
    Tender,
}

/// One process.
struct Life {
    number: u32,
    process: Started,
    /// Hears what it says until it is gone.
    ear: JoinHandle<io::Result<Vec<String>>>,
    kill_at: Instant,
    /// When it is stopped, and for how long.
    stop_at: Option<(Instant, Duration)>,
    go_on_at: Option<Instant>,
}

struct Company<'a> {
    plan: Plan,
    program: &'a Program,
    store: PathBuf,
    run: String,
    chance: Chance,
    places: Vec<(Place, Option<Life>)>,
    lives: u32,
    oracle: Oracle,
    kills: u64,
    stops: u64,
    errors: u64,
    started: Instant,
}

impl<'a> Company<'a> {
    fn new(plan: Plan, program: &'a Program) -> Outcome<Self> {
        std::fs::create_dir_all(&plan.dir)
            .map_err(|error| Failure::io("create", plan.dir.display(), &error))?;
        let recorders = (0..plan.recorders).map(|_| Place::Recorder);
        let others = (0..RUNS.len()).map(Place::Follower).chain((0..TENDERS).map(|_| Place::Tender));
        Ok(Self {
            program,
            store: plan.dir.join("store"),
            // A seed may be tried again in the same store: the episodes must not meet.
            run: format!("company-{}-{:08x}", plan.seed, new_seed()),
            chance: Chance::new(&[plan.seed]),
            places: recorders.chain(others).map(|place| (place, None)).collect(),
            lives: 0,
            oracle: Oracle::default(),
            kills: 0,
            stops: 0,
            errors: 0,
            started: Instant::now(),
            plan,
        })
    }

    /// Until the time is over: starts everybody, stops some, kills all.
    fn record_and_kill(&mut self, mut progress: impl FnMut(u64)) -> Outcome<()> {
        let end = self.started + Duration::from_secs(self.plan.seconds);
        while Instant::now() < end && self.errors < ERRORS_MAX {
            for at in 0..self.places.len() {
                self.tend(at)?;
            }
            progress(self.started.elapsed().as_secs());
            std::thread::sleep(Duration::from_millis(4));
        }
        for at in 0..self.places.len() {
            if let (place, Some(life)) = (self.places[at].0, self.places[at].1.take()) {
                self.end(place, life, true)?;
            }
        }
        Ok(())
    }

    /// Looks after one place: starts somebody, stops and kills them when the time has come.
    fn tend(&mut self, at: usize) -> Outcome<()> {
        let (place, life) = (self.places[at].0, self.places[at].1.take());
        let now = Instant::now();
        let Some(mut life) = life else {
            // Others come when there is something to work at.
            if place == Place::Recorder || self.oracle.ends > 0 {
                self.places[at].1 = Some(self.start(place)?);
            }
            return Ok(());
        };
        if life.process.ended().is_some() {
            return self.end(place, life, false);
        }
        if let Some(go_on_at) = life.go_on_at {
            if now >= go_on_at {
                life.process.go_on();
                life.go_on_at = None;
            }
        } else if let Some((_, pause)) = life.stop_at.take_if(|(when, _)| now >= *when) {
            life.process.pause();
            self.stops += 1;
            life.go_on_at = Some(now + pause);
            life.kill_at += pause;
        } else if now >= life.kill_at {
            return self.end(place, life, true);
        }
        self.places[at].1 = Some(life);
        Ok(())
    }

    fn start(&mut self, place: Place) -> Outcome<Life> {
        let number = self.lives;
        self.lives += 1;
        let arguments = self.arguments(place, number);
        let (process, says) = child::start(self.program, "torture-company", arguments)?;
        let life_ms = match place {
            Place::Recorder => 3000,
            Place::Follower(_) => 2500,
            // Some die in the middle of what they do, some come to its end, also where a sync takes long.
            Place::Tender if self.chance.one_in(2) => 1500,
            Place::Tender => 15_000,
        };
        let now = Instant::now();
        let mut within = |ms: u64| Duration::from_millis(self.chance.below(ms));
        let kill_at = now + within(life_ms);
        let (stop_at, pause) = (now + within(life_ms), LEASE + within(1500));
        let stop_at = self.chance.one_in(6).then_some((stop_at, pause));
        let ear = std::thread::spawn(move || BufReader::new(says).lines().collect());
        Ok(Life { number, process, ear, kill_at, stop_at, go_on_at: None })
    }

    /// What a process is told that takes a place.
    fn arguments(&mut self, place: Place, number: u32) -> Vec<String> {
        let mut arguments = vec![self.role(place).word().to_owned()];
        let mut give = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        give("--store", self.store.display().to_string());
        give("--run", self.run.clone());
        give("--seed", self.plan.seed.to_string());
        give("--life", number.to_string());
        give("--threads", self.plan.threads.to_string());
        give("--lease-ms", LEASE.as_millis().to_string());
        if let Place::Follower(run) = place {
            give("--follows", run.to_string());
            // Behind the last event that was told whole.
            if let Some(last) = self.oracle.told[run].last() {
                give("--after", last.cursor.clone());
            }
        }
        if self.plan.early {
            arguments.push("--early".to_owned());
        }
        arguments
    }

    fn role(&mut self, place: Place) -> Role {
        const TENDING: [Role; 10] = [
            Role::CompactAtOnce,
            Role::CompactAtOnce,
            Role::CompactAtOnce,
            Role::Compact,
            Role::Prune,
            Role::Prune,
            Role::Reap,
            Role::Read,
            Role::Read,
            Role::Copy,
        ];
        match place {
            Place::Recorder => Role::Record,
            Place::Follower(_) => Role::Follow,
            Place::Tender => TENDING[self.chance.below(TENDING.len() as u64) as usize],
        }
    }

    /// Ends a process, and takes down what it had said.
    fn end(&mut self, place: Place, mut life: Life, kill: bool) -> Outcome<()> {
        let killed = kill && life.process.kill();
        self.kills += u64::from(killed);
        let status = life.process.wait()?;
        if !killed && !status.success() {
            self.errors += 1;
        }
        let heard = life.ear.join().map_err(|_| Failure::new("the oracle panicked"))?;
        let run = if let Place::Follower(run) = place { run } else { 0 };
        for line in heard.map_err(|error| Failure::io("hear", "a process", &error))? {
            self.oracle.hear(&line, run);
        }
        self.clean_up_after(life.number);
        Ok(())
    }

    /// Copies that nobody looks at any more.
    fn clean_up_after(&self, life: u32) {
        let ending = format!("-{life}");
        for entry in std::fs::read_dir(&self.plan.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(&ending) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Compares as it stands, and once more with all logs regrouped.
    fn check_all(&mut self) -> Outcome<()> {
        self.check()?;
        let at_once = CompactOptions::default().grace(Duration::ZERO);
        for _ in 0..2 {
            open_to_read(&self.store)?.compact(at_once.clone(), &mut |_| {})?;
        }
        self.check()
    }

    fn check(&mut self) -> Outcome<()> {
        let found = read_all(&self.store, &self.run, self.plan.seed)?;
        self.oracle.compare(&found);
        for run in 0..RUNS.len() {
            let last = self.oracle.told[run].last().map(|told| told.cursor.clone());
            let rest = self.follow(run, last.as_deref())?;
            self.oracle.told[run].extend(rest);
            // By those who were killed, and by one who begins now.
            for told in [self.oracle.told[run].clone(), self.follow(run, None)?] {
                self.oracle.compare_told(run, &told, &found);
            }
        }
        for what in damage(&open_to_read(&self.store)?)? {
            self.oracle.fault("damaged", format!("{what}, at the end"));
        }
        Ok(())
    }

    /// What a follower is told that goes on behind a cursor, up to now.
    fn follow(&self, run: usize, after: Option<&str>) -> Outcome<Vec<FollowedEnd>> {
        let run = open_to_read(&self.store)?.run(&run_name(&self.run, run), Value::Null)?;
        let mut follow = run.follow(after)?;
        let mut told = Vec::new();
        while let Some((event, cursor)) = follow.next(Duration::ZERO)? {
            if let RunEvent::Ended { episode, attempt, why } = event {
                told.push(FollowedEnd { episode, attempt, why, cursor });
            }
        }
        Ok(told)
    }

    fn report(&self, screen: &mut Screen) -> Outcome {
        for line in self.oracle.first() {
            screen.say(&line);
        }
        if self.plan.json {
            screen.json(&self.json())?;
        } else {
            self.show(&self.store, screen)?;
        }
        Ok(if !self.oracle.is_clean() {
            Exit::Lost
        } else if self.errors + self.oracle.garbled > 0 {
            Exit::Failed
        } else {
            Exit::Done
        })
    }

    fn told(&self) -> u64 {
        self.oracle.told.iter().map(|told| told.len() as u64).sum()
    }

    fn json(&self) -> Json {
        let oracle = &self.oracle;
        let did = [
            ("kills", Json::from(self.kills)),
            ("stops", self.stops.into()),
            ("acked", oracle.acknowledged.into()),
            ("ends", oracle.ends.into()),
            ("fenced", oracle.fenced.into()),
            ("pruned", oracle.pruned.into()),
            ("told", self.told().into()),
        ];
        let faults = KINDS.map(|kind| (kind, Json::from(oracle.faults(kind))));
        let more = [
            ("seed", Json::from(self.plan.seed)),
            ("episodes", oracle.episodes().into()),
            ("seconds", Json::from((self.started.elapsed().as_secs_f64() * 10.0).round() / 10.0)),
            ("processes", self.lives.into()),
            ("errors", (self.errors + oracle.garbled).into()),
            ("done", Json::map(oracle.done.iter().map(|(what, times)| (&**what, Json::from(*times))))),
        ];
        Json::map(did.into_iter().chain(faults).chain(more))
    }

    fn show(&self, store: &Path, screen: &mut Screen) -> Outcome<()> {
        let (oracle, paint) = (&self.oracle, screen.data);
        let verdict = |number: u64| if number == 0 { paint.green("0") } else { paint.red(&count(number)) };
        let kills = count(self.kills);
        let processes = count(self.lives.into());
        screen.line(&format!(
            "kills         {kills} of {processes} processes, {} stopped",
            count(self.stops)
        ))?;
        let (steps, ends) = (counted(oracle.acknowledged, "step"), counted(oracle.ends, "end"));
        screen.line(&format!("acknowledged  {steps}, {ends}"))?;
        screen.line(&format!("refused       {} of recorders", count(oracle.fenced)))?;
        screen.line(&format!("pruned        {}", counted(oracle.pruned, "episode")))?;
        screen.line(&format!("told          {}", counted(self.told(), "end")))?;
        for kind in KINDS {
            screen.line(&format!("{:13} {}", kind.replace('_', " "), verdict(oracle.faults(kind))))?;
        }
        screen.line(&format!("errors        {}", verdict(self.errors + oracle.garbled)))?;
        screen.line(&format!("seed          {}", self.plan.seed))?;
        screen.flush()?;
        screen.say(&format!("the store is still there: keepstep ls {}", quoted(store)));
        Ok(())
    }
}
