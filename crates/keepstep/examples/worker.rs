//! A worker of an evaluation: takes what remains of a plan, until nothing does. Start as many as you like.
//!
//! `cargo run --example worker -- runs`
#![allow(clippy::print_stdout, reason = "a program for people")]

use keepstep::{
    Ending, Opening, Options, PlanOptions, RemainingOptions, Result, Run, Step, Store, Value, Why,
};

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "runs".to_owned());
    let run = Store::open(dir, Options::default())?.run("evaluation", Value::Null)?;
    println!("{} episodes done by this worker", work(&run)?);
    Ok(())
}

/// Works on the plan. Each job is claimed for this process: no other one is given it while this one is alive.
pub(crate) fn work(run: &Run) -> Result<usize> {
    let tasks = (0..20).map(|number| format!("task-{number}"));
    run.plan(tasks, PlanOptions::default())?; // planned already: nothing is added
    let mut done = 0;
    for job in run.remaining(RemainingOptions::default())? {
        let episode = job?.episode(Opening::default())?;
        while episode.steps() < 3 {
            episode.step(Step::new().action("look").reward(0.5))?;
        }
        episode.end(Why::Finished, Ending::default())?.wait()?;
        done += 1;
    }
    Ok(done)
}
