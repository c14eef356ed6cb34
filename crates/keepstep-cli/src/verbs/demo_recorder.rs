//! The process that `demo` kills: a small agent in a small shop, several episodes at once.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keepstep::{Ending, EpisodeName, Options, Result, Run, Step, Store, Value};

use crate::chance::Chance;
use crate::child;
use crate::failure::{Exit, Failure, Outcome};

/// What the recorder of `demo` is told. Hidden.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    run: String,
    #[arg(long)]
    iteration: i64,
    #[arg(long)]
    steps: u64,
    #[arg(long)]
    pause_ms: u64,
    /// Which tasks to work at
    tasks: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let stop = child::live_with_parent();
    let store = Store::open(&args.store, Options::default())?;
    let run = store.run(&args.run, config())?;
    let pipe =
        io::stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::io("open", "stdout", &error))?;
    let pipe = File::from(pipe);
    let recorded: Result<()> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            args.tasks.iter().map(|task| scope.spawn(|| record(args, &run, task, &pipe, &stop))).collect();
        // A thread that panics has said so itself.
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(keepstep::Error::Closed)))
    });
    store.close();
    recorded?;
    Ok(Exit::Done)
}

/// The config of every run of the demo.
pub(crate) fn config() -> Value {
    Value::map([("model", Value::from("a random walk")), ("environment", Value::from("a small shop"))])
}

/// How many steps a task takes.
pub(crate) fn steps_of(task: &str, steps: u64) -> u64 {
    let letters = task.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 100_003);
    // Not all alike: some are done before the kill, most are not.
    steps / 5 + letters * 7 % (steps - steps / 5) + 1
}

fn record(args: &Args, run: &Run, task: &str, mut pipe: &File, stop: &AtomicBool) -> Result<()> {
    const GOODS: [&str; 6] = ["cheese", "bread", "apples", "coffee", "candles", "rope"];
    let name = EpisodeName::task(task).iteration(args.iteration);
    let mut chance = Chance::new(&[steps_of(task, 1000), args.iteration as u64]);
    let wanted = GOODS[chance.below(6) as usize];
    let mut messages = vec![
        message(
            "system",
            "You are in a shop. Walk the aisles, look at prices, buy what you were asked to buy.".to_owned(),
        ),
        message("user", format!("Buy {wanted} for as little as you can.")),
    ];
    let episode = run.episode(name)?;
    // As of the last durable step, if an earlier attempt was interrupted.
    if let Some(kept) = episode.state("messages")? {
        messages = kept.as_list().unwrap_or_default().to_vec();
    }
    let steps = steps_of(task, args.steps);
    for index in episode.steps()..steps {
        std::thread::sleep(Duration::from_millis(chance.below(2 * args.pause_ms + 1)));
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        let aisle = chance.below(12);
        let price = chance.below(900) + 99;
        let is_last = index + 1 == steps;
        let action = if is_last { format!("buy {wanted}") } else { format!("walk to aisle {aisle}") };
        let response = format!("I have looked at {index} aisles. I will {action}.");
        let seen = GOODS[chance.below(6) as usize];
        let observation = format!(
            "Aisle {aisle}. A sign: {seen}, today {}.{:02}. You have walked {} m.",
            price / 100,
            price % 100,
            (index + 1) * 7
        );
        let prompt = Value::list(messages.iter().cloned());
        messages.extend([message("assistant", response.clone()), message("user", observation.clone())]);
        let step = Step::new()
            .prompt(prompt)
            .state([("messages", Value::list(messages.iter().cloned()))])
            .response(response.as_str())
            .action(Value::map([("do", Value::from(action))]))
            .observation(observation.as_str())
            .reward(if is_last { 1.0 } else { -0.01 });
        // When this returns, the step survives a power cut; only then is the witness told.
        episode.step(step)?;
        if writeln!(pipe, "{task} {index}").is_err() {
            return Ok(());
        }
    }
    episode.end("finished", Ending::default())?.wait()
}

fn message(role: &str, content: String) -> Value {
    Value::map([("role", Value::from(role)), ("content", Value::from(content))])
}
