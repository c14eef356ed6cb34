//! Reads a run: every episode, how it ended, and its steps. Recorders may be at work meanwhile.
//!
//! `cargo run --example reader -- runs recorder`
#![allow(clippy::print_stdout, reason = "a program for people")]

use keepstep::{EpisodeFilter, EpisodeName, Options, Result, Run, Store, Value};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap_or_else(|| "runs".to_owned());
    let name = arguments.next().unwrap_or_else(|| "recorder".to_owned());
    let run = Store::open_existing(dir, Options::default())?.run(&name, Value::Null)?;
    for line in read(&run)? {
        println!("{line}");
    }
    Ok(())
}

/// A line for each episode: its task, how it stands, how many steps, and the rewards one by one.
pub(crate) fn read(run: &Run) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for listed in run.episodes(&EpisodeFilter::default())? {
        let task = listed.summary.task.clone().unwrap_or_default();
        let name = EpisodeName::task(task.clone())
            .iteration(listed.summary.iteration.unwrap_or(0))
            .sample(listed.summary.sample.unwrap_or(0));
        let view = run.view(&name)?;
        let rewards = (0..view.steps()).map(|index| Ok(view.step(index)?.reward.unwrap_or(f64::NAN)));
        let rewards = rewards.collect::<Result<Vec<f64>>>()?;
        lines.push(format!("{task}: {}, {} steps, rewards {rewards:?}", listed.state(), view.steps()));
    }
    Ok(lines)
}
