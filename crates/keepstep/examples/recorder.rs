//! Records an agent's rollout, and goes on with it if it was interrupted.
//!
//! `cargo run --example recorder -- runs`; kill it, and run it again.
#![allow(clippy::print_stdout, reason = "a program for people")]

use keepstep::{Ending, EpisodeName, Options, Result, Run, Step, Store, Value, Why};

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "runs".to_owned());
    let run = Store::open(dir, Options::default())?.run("recorder", Value::Null)?;
    println!("{} turns", record(&run, "count", 30)?);
    Ok(())
}

/// Records turns until there are so many. What was said in a turn is durable before it is acted on.
pub(crate) fn record(run: &Run, task: &str, turns: u64) -> Result<u64> {
    let episode = run.episode(EpisodeName::task(task))?;
    let mut sum = episode.state("sum")?.and_then(|sum| sum.as_int()).unwrap_or(0);
    while episode.turns() < turns {
        let number = Value::Int(episode.turns() as i64);
        // A call is recorded once: an attempt that goes on gets the recording instead of asking the model again.
        let answer = episode.call_once("model", None, number.clone(), || Ok(number.clone()))?;
        // What the call raised is recorded too, and given back as the inner error.
        let answer = answer.unwrap_or_else(|raised| raised);
        let turn = episode.turn(Step::new().prompt(number.clone()).action(answer.clone()))?;
        sum += act(&answer);
        turn.result(Step::new().observation(Value::Int(sum)).reward(1.0).state([("sum", Value::Int(sum))]))?;
    }
    episode.end(Why::Finished, Ending::default())?.wait()?;
    Ok(episode.turns())
}

/// The world: whatever happens here happens again if the process dies before the result is recorded.
fn act(action: &Value) -> i64 {
    action.as_int().unwrap_or(0)
}
