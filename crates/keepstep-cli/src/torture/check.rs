//! Compares a store with what a witness heard, given on stdin. Hidden: for the tests that inject faults.

use std::io;
use std::path::PathBuf;

use super::compare::compare;
use super::read_back::read_back;
use super::witness::Witness;
use crate::failure::{Exit, Failure, Outcome};
use crate::json::Json;
use crate::screen::Screen;

/// What to compare.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    run: String,
    #[arg(long)]
    seed: u64,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let mut witness = Witness::default();
    witness.hear_all(io::stdin()).map_err(|error| Failure::io("read", "stdin", &error))?;
    let found = read_back(&args.store, &args.run)?;
    let findings = compare(args.seed, &witness, &found.episodes);
    findings.told.iter().for_each(|line| screen.say(line));
    if let Some(line) = &witness.first_garbled {
        screen.say(&format!("garbled: {line:?}"));
    }
    screen.json(&Json::map([
        ("acked", Json::from(witness.acknowledged())),
        ("lost", findings.lost.into()),
        ("torn", findings.torn.into()),
        ("invented", findings.invented.into()),
        ("garbled", witness.garbled.into()),
        ("damaged", found.damaged.into()),
        ("episodes", findings.episodes.into()),
        ("steps_read", findings.steps_read.into()),
    ]))?;
    let is_clean = findings.is_clean() && witness.garbled == 0 && found.damaged == 0;
    Ok(if is_clean { Exit::Done } else { Exit::Lost })
}
