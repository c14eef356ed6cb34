//! `keepstep demo`: records, kills the recorder with -9, and shows what survived.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use keepstep::refs::{Ref, encode};

use crate::Program;
use crate::child;
use crate::failure::{Exit, Failure, Outcome};
use crate::numbers::counted;
use crate::place::{open_to_read, quoted};
use crate::progress;
use crate::reading::{self, Episode};
use crate::screen::{Screen, Side, Table};
use crate::verbs::demo_recorder::steps_of;

/// Arguments of `keepstep demo`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep demo                       records to ./runs/demo
  keepstep demo /mnt/data/demo        on another disk
  keepstep demo --episodes 32 --steps 100")]
pub(crate) struct Args {
    /// Where to record
    #[arg(default_value = "./runs/demo")]
    store: PathBuf,
    /// How many episodes at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=512))]
    episodes: u32,
    /// How many steps an episode has at most
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    steps: u64,
    /// How long the agent thinks before a step, in milliseconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pause_ms: u64,
}

pub(crate) fn run(args: &Args, program: &Program, screen: &mut Screen) -> Outcome {
    let demo = Demo { args, program, run: new_run_name(&args.store)? };
    let tasks: Vec<String> = (1..=args.episodes).map(|number| format!("shop-{number}")).collect();
    let total: u64 = tasks.iter().map(|task| steps_of(task, args.steps)).sum();

    screen.say(&format!(
        "Recording {} at once to {}.",
        counted(tasks.len() as u64, "episode"),
        quoted(&args.store)
    ));
    let (acknowledged, was_killed) = demo.record(&tasks, 0, total, Some(total / 2))?;
    let promised: u64 = acknowledged.values().sum();
    let how = if was_killed {
        "The recorder was killed with -9"
    } else {
        "The recorder was done before it could be killed"
    };
    screen.say(&format!("{how}: {} of {total} had been acknowledged.", counted(promised, "step")));
    screen.say("");

    let (lost, more) = demo.show_survivors(&tasks, &acknowledged, screen)?;
    if lost > 0 {
        return Err(Failure::new(format!(
            "{} that had been acknowledged are not there",
            counted(lost, "step")
        ))
        .hint("this must never happen: keep the directory, and report it")
        .with_exit(Exit::Lost));
    }
    screen.say(&format!("{} acknowledged, none lost.", counted(promised, "step")));
    if more > 0 {
        screen.say(&format!("{} in flight when it was killed: there too, and whole.", counted(more, "step")));
    }
    screen.say("");

    let rest = demo.unfinished()?;
    if !rest.is_empty() {
        let all: u64 = rest.iter().map(|task| steps_of(task, args.steps)).sum();
        screen.say(&format!(
            "Resuming {}, each from its last durable step.",
            counted(rest.len() as u64, "unfinished episode")
        ));
        demo.record(&rest, 0, all.saturating_sub(promised + more), None)?;
        let left = demo.unfinished()?.len() as u64;
        let how =
            if left == 0 { "All are finished.".to_owned() } else { format!("{left} are not finished.") };
        screen.say(&format!("{how} `show` says which attempt recorded which step."));
    }
    demo.say_what_next(&tasks, screen);
    Ok(Exit::Done)
}

struct Demo<'a> {
    args: &'a Args,
    program: &'a Program,
    run: String,
}

/// A name that the store does not have yet, so that the demo can be seen twice.
fn new_run_name(store: &Path) -> Outcome<String> {
    keepstep::refuse_address(store)?;
    if !store.join("keepstep.json").exists() {
        return Ok("demo".to_owned());
    }
    let store = open_to_read(store)?;
    let taken: Vec<String> = reading::runs(&store)?.into_iter().map(|run| run.name).collect();
    let names = (1..).map(|number| if number == 1 { "demo".to_owned() } else { format!("demo-{number}") });
    Ok(names.into_iter().find(|name| !taken.contains(name)).unwrap_or_else(|| "demo".to_owned()))
}

impl Demo<'_> {
    /// Records in a process of its own; kills it after so many steps. Gives how many steps of each task were acknowledged.
    fn record(
        &self,
        tasks: &[String],
        iteration: i64,
        total: u64,
        kill_at: Option<u64>,
    ) -> Outcome<(BTreeMap<String, u64>, bool)> {
        let args = self.args;
        let mut arguments = vec!["--store".into(), args.store.clone().into_os_string()];
        for (name, value) in [
            ("--run", self.run.clone()),
            ("--iteration", iteration.to_string()),
            ("--steps", args.steps.to_string()),
            ("--pause-ms", args.pause_ms.to_string()),
        ] {
            arguments.extend([name.into(), value.into()]);
        }
        arguments.extend(tasks.iter().map(Into::into));
        let (mut process, says) = child::start(self.program, "demo-recorder", arguments)?;
        let bar = progress::bar(total, "steps acknowledged");
        let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
        let mut was_killed = false;
        // Goes on after the kill: what is still in the pipe had been acknowledged too.
        for line in BufReader::new(says).lines() {
            let line = line.map_err(|error| Failure::io("hear", "the recorder", &error))?;
            let Some((task, _)) = line.split_once(' ') else { continue };
            *acknowledged.entry(task.to_owned()).or_default() += 1;
            bar.inc(1);
            if kill_at.is_some_and(|at| bar.position() >= at) && !was_killed {
                was_killed = process.kill();
            }
        }
        let status = process.wait()?;
        if was_killed {
            bar.abandon();
        } else {
            bar.finish();
        }
        if !was_killed && !status.success() {
            return Err(Failure::new("the recorder failed, as it says above"));
        }
        Ok((acknowledged, was_killed))
    }

    fn episodes(&self) -> Outcome<Vec<Episode>> {
        // A fresh look: nothing is known here but what is on the disk.
        let store = open_to_read(&self.args.store)?;
        let (_, mut episodes) = reading::open(&store)?;
        episodes.retain(|episode| episode.run == self.run);
        Ok(episodes)
    }

    /// Shows what is on the disk beside what was acknowledged. Gives how many steps are missing, and how many more there are.
    fn show_survivors(
        &self,
        tasks: &[String],
        acknowledged: &BTreeMap<String, u64>,
        screen: &mut Screen,
    ) -> Outcome<(u64, u64)> {
        let episodes = self.episodes()?;
        let mut table = Table::new(&[
            ("EPISODE", Side::Left),
            ("ACKNOWLEDGED", Side::Right),
            ("FOUND", Side::Right),
            ("LOST", Side::Right),
            ("STATE", Side::Left),
        ]);
        let (mut lost, mut more) = (0, 0);
        for task in tasks {
            let promised = acknowledged.get(task).copied().unwrap_or(0);
            let episode = episodes.iter().find(|episode| episode.task == *task && episode.iteration == 0);
            let found = episode.map_or(0, |episode| episode.summary.steps);
            let missing = promised.saturating_sub(found);
            lost += missing;
            more += found.saturating_sub(promised);
            let state = episode.map_or("not there".to_owned(), |episode| episode.state().to_owned());
            let name = Ref::episode(&self.run, task, 0, 0).to_string();
            table.row([name, promised.to_string(), found.to_string(), missing.to_string(), state]);
        }
        for line in table.lines(screen.data) {
            screen.line(&line)?;
        }
        screen.flush()?;
        Ok((lost, more))
    }

    fn unfinished(&self) -> Outcome<Vec<String>> {
        let episodes = self.episodes()?;
        let unfinished =
            episodes.into_iter().filter(|episode| episode.summary.why.is_none() && episode.iteration == 0);
        Ok(unfinished.map(|episode| episode.task).collect())
    }

    fn say_what_next(&self, tasks: &[String], screen: &Screen) {
        let store = quoted(&self.args.store);
        let first = tasks
            .first()
            .map(|task| Ref::episode(&self.run, task, 0, 0).step(0).to_string())
            .unwrap_or_default();
        screen.say("");
        screen.say("Look at it:");
        screen.say(&format!("  keepstep ls {store} {}", encode(&self.run)));
        screen.say(&format!("  keepstep show -s {store} {first}"));
        screen.say(&format!("  keepstep stats {store}"));
        screen.say(&format!("  keepstep verify {store}"));
    }
}
