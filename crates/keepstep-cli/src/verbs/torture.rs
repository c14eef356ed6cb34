//! `keepstep torture`: proves on this disk that a kill -9 costs nothing that was acknowledged.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::Program;
use crate::chance::{Chance, new_seed};
use crate::child::{self, Started};
use crate::failure::{Exit, Failure, Outcome};
use crate::json::Json;
use crate::numbers::{count, counted};
use crate::place::quoted;
use crate::progress;
use crate::screen::Screen;
use crate::torture::company;
use crate::torture::compare::{Findings, compare, compare_while_live};
use crate::torture::read_back::{ReadBack, read_back, verify};
use crate::torture::recorder::LevelArg;
use crate::torture::witness::Witness;

/// How often the store is read back while it is written to.
const CHECK_EVERY: Duration = Duration::from_secs(4);
/// Steps a second of all recorders together, so that a minute can be read back in less than one.
const STEPS_PER_SECOND: u64 = 3000;
/// With more than this something is wrong that more of it will not explain.
const ERRORS_MAX: u64 = 20;

/// Arguments of `keepstep torture`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep torture /mnt/data/try --seconds 60
  keepstep torture /mnt/data/try --processes 24 --threads 2 --json
  keepstep torture /mnt/data/try --seconds 60 --company
  keepstep torture /mnt/data/try --seed 1234      the same choices again

The store stays in DIR/store, so that you can look at it.
Exit code 3: a promise was broken. Keep the store, and report it.")]
pub(crate) struct Args {
    /// A directory on the disk to test; steps are recorded to DIR/store
    dir: PathBuf,
    /// How long to record and kill, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How many recorders at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// How many threads in each recorder
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// The seed of all random choices; without it, a new one each time
    #[arg(long)]
    seed: Option<u64>,
    /// What each step waits for: to survive kill -9 (kill), or a power cut (power)
    #[arg(long, value_enum, default_value = "power")]
    level: LevelArg,
    /// Meanwhile let others compact, prune, reap, follow, read and copy the store
    #[arg(long, conflicts_with = "level")]
    company: bool,
    // The negative control: recorders say too early that a step was acknowledged.
    #[arg(long, hide = true, requires = "company")]
    early: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, program: &Program, screen: &mut Screen) -> Outcome {
    keepstep::refuse_address(&args.dir)?;
    if args.company {
        return company::run(args.company_plan(), program, screen);
    }
    let mut torture = Torture::new(args, program)?;
    screen.say(&format!(
        "seed {}: killing {} in {} for {} s",
        torture.seed,
        counted(args.processes.into(), "recorder"),
        quoted(&torture.store),
        args.seconds
    ));
    let bar = progress::bar(args.seconds, "torturing");
    let recorded = torture.record_and_kill(&bar);
    bar.finish_and_clear();
    recorded?;
    screen.say("reading everything back");
    torture.check_all()?;
    torture.report(args, screen)
}

impl Args {
    fn company_plan(&self) -> company::Plan {
        company::Plan {
            dir: self.dir.clone(),
            seconds: self.seconds,
            recorders: self.processes,
            threads: self.threads,
            seed: self.seed.unwrap_or_else(new_seed),
            json: self.json,
            early: self.early,
        }
    }
}

/// One recorder process.
struct Life {
    number: u32,
    process: Started,
    /// Hears what it says until it is gone.
    ear: JoinHandle<io::Result<Witness>>,
    until: Instant,
    /// A few are asked to stop in good order: closing must lose nothing either.
    is_asked: bool,
}

struct Torture<'a> {
    program: &'a Program,
    args: &'a Args,
    store: PathBuf,
    run: String,
    seed: u64,
    chance: Chance,
    lives: Vec<Option<Life>>,
    next_life: Vec<u32>,
    /// Of those that are gone.
    witness: Witness,
    gone: HashSet<(u32, u32)>,
    kills: u64,
    errors: u64,
    started: Instant,
    checks: u64,
    findings: Findings,
    damaged: u64,
}

/// What a check in the background found.
type Check = Outcome<(Findings, u64)>;

impl<'a> Torture<'a> {
    fn new(args: &'a Args, program: &'a Program) -> Outcome<Self> {
        let seed = args.seed.unwrap_or_else(new_seed);
        let store = args.dir.join("store");
        std::fs::create_dir_all(&args.dir)
            .map_err(|error| Failure::io("create", args.dir.display(), &error))?;
        let processes = args.processes as usize;
        Ok(Self {
            program,
            args,
            store,
            // A seed may be tried again in the same store: the episodes must not meet.
            run: format!("torture-{seed}-{:08x}", new_seed()),
            seed,
            chance: Chance::new(&[seed]),
            lives: (0..processes).map(|_| None).collect(),
            next_life: vec![0; processes],
            witness: Witness::default(),
            gone: HashSet::new(),
            kills: 0,
            errors: 0,
            started: Instant::now(),
            checks: 0,
            findings: Findings::default(),
            damaged: 0,
        })
    }

    /// Until the time is over: starts recorders, kills them, and reads back in between.
    fn record_and_kill(&mut self, bar: &ProgressBar) -> Outcome<()> {
        let end = self.started + Duration::from_secs(self.args.seconds);
        let mut check: Option<(Receiver<Check>, Instant)> = None;
        let mut next_check = self.started + CHECK_EVERY;
        while Instant::now() < end && self.errors < ERRORS_MAX {
            for worker in 0..self.lives.len() {
                self.tend(worker)?;
            }
            match &check {
                Some((result, began)) => {
                    if let Ok(result) = result.try_recv() {
                        // Half of the time at most goes into reading back.
                        next_check = Instant::now() + began.elapsed().max(CHECK_EVERY);
                        self.take_in(result?);
                        check = None;
                    }
                }
                None if Instant::now() >= next_check => check = Some((self.start_check(), Instant::now())),
                None => {}
            }
            bar.set_position(self.started.elapsed().as_secs());
            bar.set_message(format!(
                "torturing: {} kills, {} acknowledged",
                self.kills,
                self.witness.acknowledged()
            ));
            std::thread::sleep(Duration::from_millis(4));
        }
        for worker in 0..self.lives.len() {
            if let Some(life) = self.lives[worker].take() {
                self.end(worker, life, true)?;
            }
        }
        if let Some((result, _)) = check {
            let result =
                result.recv().unwrap_or_else(|_| Err(Failure::new("the check stopped without an answer")));
            self.take_in(result?);
        }
        Ok(())
    }

    /// Looks after one recorder: starts it, ends it when its time has come, notices when it ended by itself.
    fn tend(&mut self, worker: usize) -> Outcome<()> {
        let Some(mut life) = self.lives[worker].take() else {
            self.lives[worker] = Some(self.start(worker)?);
            return Ok(());
        };
        if life.process.ended().is_some() {
            return self.end(worker, life, false);
        }
        if Instant::now() >= life.until {
            let kill = !life.is_asked;
            return self.end(worker, life, kill);
        }
        self.lives[worker] = Some(life);
        Ok(())
    }

    fn start(&mut self, worker: usize) -> Outcome<Life> {
        let args = self.args;
        let number = self.next_life[worker];
        self.next_life[worker] += 1;
        let threads = u64::from(args.processes) * u64::from(args.threads);
        let segment_bytes = [256 << 10, 1 << 20, 4 << 20][self.chance.below(3) as usize];
        let arguments = [
            ("--store", self.store.display().to_string()),
            ("--run", self.run.clone()),
            ("--seed", self.seed.to_string()),
            ("--worker", worker.to_string()),
            ("--life", number.to_string()),
            ("--threads", args.threads.to_string()),
            ("--level", args.level.level().name().to_owned()),
            ("--segment-bytes", segment_bytes.to_string()),
            ("--pause-us", (threads * 1_000_000 / STEPS_PER_SECOND).to_string()),
        ];
        let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let (process, says) = child::start(self.program, "torture-recorder", arguments)?;
        // Some die while they open the store, most in mid-flight, some after several segments.
        let lived_ms = match self.chance.below(10) {
            0 | 1 => self.chance.below(60),
            2..=7 => 60 + self.chance.below(540),
            _ => 600 + self.chance.below(900),
        };
        let until = Instant::now() + Duration::from_millis(lived_ms);
        Ok(Life { number, process, ear: listen(says), until, is_asked: self.chance.one_in(16) })
    }

    /// Ends a recorder, and takes down what it had said.
    fn end(&mut self, worker: usize, mut life: Life, kill: bool) -> Outcome<()> {
        let killed = kill && life.process.kill();
        self.kills += u64::from(killed);
        life.process.ask_to_stop();
        let status = life.process.wait()?;
        if !killed && !status.success() {
            self.errors += 1;
        }
        let heard = life.ear.join().map_err(|_| Failure::new("the witness panicked"))?;
        self.witness.add(heard.map_err(|error| Failure::io("hear", "a recorder", &error))?);
        self.gone.insert((worker as u32, life.number));
        Ok(())
    }

    /// Reads the store back in another thread, while it is written to.
    fn start_check(&self) -> Receiver<Check> {
        let (send, receive) = mpsc::channel();
        let (store, run, seed) = (self.store.clone(), self.run.clone(), self.seed);
        // Taken before the store is read: what was acknowledged by now must be there.
        let (witness, gone) = (self.witness.clone(), self.gone.clone());
        std::thread::spawn(move || {
            let is_gone = |worker, life| gone.contains(&(worker, life));
            let checked = read_back(&store, &run)
                .map(|read| (compare_while_live(seed, &witness, &read.episodes, is_gone), read.damaged));
            // Nobody waits for it any more if another error came first.
            let _ = send.send(checked);
        });
        receive
    }

    fn take_in(&mut self, (findings, damaged): (Findings, u64)) {
        self.checks += 1;
        self.damaged = self.damaged.max(damaged);
        // What was wrong on the way stays wrong, also if it should be right at the end.
        self.findings.take_in(findings);
    }

    fn check_all(&mut self) -> Outcome<()> {
        let ReadBack { episodes, damaged } = read_back(&self.store, &self.run)?;
        self.findings.take_in(compare(self.seed, &self.witness, &episodes));
        self.damaged = self.damaged.max(damaged).max(verify(&self.store)?);
        self.checks += 1;
        Ok(())
    }

    fn report(&self, args: &Args, screen: &mut Screen) -> Outcome {
        let findings = &self.findings;
        for line in &findings.told {
            screen.say(line);
        }
        if let Some(line) = &self.witness.first_garbled {
            screen.say(&format!("a recorder printed an unexpected line: {line:?}"));
        }
        if args.json {
            screen.json(&self.json())?;
        } else {
            self.show(&self.store, screen)?;
        }
        Ok(if !findings.is_clean() || self.damaged > 0 {
            Exit::Lost
        } else if self.errors + self.witness.garbled > 0 {
            Exit::Failed
        } else {
            Exit::Done
        })
    }

    fn json(&self) -> Json {
        let findings = &self.findings;
        Json::map([
            ("kills", Json::from(self.kills)),
            ("acked", self.witness.acknowledged().into()),
            ("lost", findings.lost.into()),
            ("torn", findings.torn.into()),
            ("invented", findings.invented.into()),
            ("seed", self.seed.into()),
            ("episodes", findings.episodes.into()),
            ("steps_read", findings.steps_read.into()),
            ("seconds", Json::from((self.started.elapsed().as_secs_f64() * 10.0).round() / 10.0)),
            ("processes", self.gone.len().into()),
            ("checks", self.checks.into()),
            ("damaged", self.damaged.into()),
            ("errors", (self.errors + self.witness.garbled).into()),
        ])
    }

    fn show(&self, store: &Path, screen: &mut Screen) -> Outcome<()> {
        let findings = &self.findings;
        let paint = screen.data;
        let verdict = |number: u64| if number == 0 { paint.green("0") } else { paint.red(&count(number)) };
        screen.line(&format!(
            "kills         {} of {} processes",
            count(self.kills),
            count(self.gone.len() as u64)
        ))?;
        screen.line(&format!("acknowledged  {}", counted(self.witness.acknowledged(), "step")))?;
        screen.line(&format!(
            "found         {} in {}",
            counted(findings.steps_read, "step"),
            counted(findings.episodes, "episode")
        ))?;
        screen.line(&format!("lost          {}", verdict(findings.lost)))?;
        screen.line(&format!("torn          {}", verdict(findings.torn)))?;
        screen.line(&format!("invented      {}", verdict(findings.invented)))?;
        if self.damaged + self.errors + self.witness.garbled > 0 {
            screen.line(&format!("damaged       {}", verdict(self.damaged)))?;
            screen.line(&format!("errors        {}", verdict(self.errors + self.witness.garbled)))?;
        }
        screen.line(&format!("seed          {}", self.seed))?;
        screen.flush()?;
        screen.say(&format!("the store is still there: keepstep ls {}", quoted(store)));
        Ok(())
    }
}

/// Hears a recorder until it is gone.
fn listen(says: ChildStdout) -> JoinHandle<io::Result<Witness>> {
    std::thread::spawn(move || {
        let mut witness = Witness::default();
        witness.hear_all(says)?;
        Ok(witness)
    })
}
