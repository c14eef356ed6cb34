//! `keepstep show`: one episode, step by step, or one step in full.

use std::path::PathBuf;

use keepstep::Liveness;
use keepstep::read::{Catalog, Told};

use crate::failure::{Exit, Failure, Outcome};
use crate::json::Json;
use crate::numbers::{counted, date, reward, span_us};
use crate::place::{open_to_read, store_path};
use crate::reading::{self, Episode};
use crate::screen::{Screen, shown};
use crate::telling::Entry;
use crate::verbs::ls::parse_all;

/// Arguments of `keepstep show`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep show shop-agent/shop-17            all steps, one line each
  keepstep show shop-agent/shop-17#0.2@14     everything that step 14 has
  keepstep show -s /mnt/data/runs 9c9e9966    by the beginning of its id
  keepstep show shop-agent/shop-17 --json | jq 'select(.what == \"step\") | .reward'")]
pub(crate) struct Args {
    /// The store
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// An episode, or a step of one
    #[arg(required = true, value_name = "REF")]
    refs: Vec<String>,
    /// Print one line of JSON for each thing that happened
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let refs = parse_all(&args.refs)?;
    let store = open_to_read(&store_path(args.store.as_deref()))?;
    let (catalog, episodes) = reading::open(&store)?;
    let mut is_whole = true;
    for (at, (text, wanted)) in refs.iter().enumerate() {
        let episode = reading::one(&episodes, text, wanted)?;
        if at > 0 && !args.json {
            screen.line("")?;
        }
        is_whole &= match wanted.step {
            Some(step) => show_step(args, &catalog, episode, step, screen)?,
            None => show_episode(args, &catalog, episode, screen)?,
        };
    }
    if is_whole {
        return Ok(Exit::Done);
    }
    screen.flush()?;
    screen.say(&format!(
        "{} `keepstep verify` says what was damaged, and what it cost",
        screen.talk.cyan("hint:")
    ));
    Ok(Exit::Lost)
}

/// What stands first in every line of JSON.
fn names(episode: &Episode) -> [(&'static str, Json); 2] {
    [("ref", episode.reference().to_string().into()), ("id", episode.key.episode.to_string().into())]
}

/// All that happened. False if something is damaged.
fn show_episode(args: &Args, catalog: &Catalog, episode: &Episode, screen: &mut Screen) -> Outcome<bool> {
    let mut reader = catalog.reader(&episode.key)?;
    let mut is_whole = true;
    if !args.json {
        heading(episode, screen)?;
    }
    let mut tell = |entry: &Entry, screen: &mut Screen| {
        is_whole &= !entry.is_damaged();
        match args.json {
            true => screen.json(&entry.json(names(episode))),
            false => screen.line(&entry.line(screen.data)),
        }
    };
    let mut steps = reader.steps();
    for told in steps.by_ref() {
        let told = told?;
        // The heading says it already.
        if !args.json && matches!(told, Told::Begin(_)) {
            continue;
        }
        tell(&Entry::of_told(&told), screen)?;
    }
    for step in steps.pending() {
        tell(&Entry::of_pending(step), screen)?;
    }
    Ok(is_whole)
}

fn heading(episode: &Episode, screen: &mut Screen) -> Outcome<()> {
    let mut said = vec![episode.state().to_owned(), counted(episode.steps, "step")];
    said.extend(episode.total_reward.map(|total| format!("return {}", reward(total))));
    let name = screen.data.bold(&episode.reference().to_string());
    screen.line(&format!("{name}  {}", shown(&said.join(", "))))?;
    screen.line(&format!("id      {}, attempt {}", episode.key.episode, episode.key.attempt))?;
    let liveness = match episode.liveness {
        Liveness::Live => "still recording",
        Liveness::Dead => "gone",
        Liveness::Unknown => "not heard of",
    };
    screen.line(&format!("writer  {}, {liveness}", episode.key.writer))?;
    if let (Some(first), Some(last)) = (episode.first_time, episode.last_time) {
        screen.line(&format!("time    {}, for {}", date(first), span_us((last - first).max(0))))?;
    }
    screen.line("")?;
    let titles = format!("{:>5}  {:<5}  {:>9}  {:<56}  {}", "STEP", "KIND", "REWARD", "SAID", "SEEN");
    screen.line(&screen.data.bold(&titles))
}

/// One step in full. False if something of it is damaged.
fn show_step(
    args: &Args,
    catalog: &Catalog,
    episode: &Episode,
    index: u64,
    screen: &mut Screen,
) -> Outcome<bool> {
    let mut reader = catalog.reader(&episode.key)?;
    let mut steps = reader.steps();
    let mut found = None;
    let mut has_gap = false;
    for told in steps.by_ref() {
        let told = told?;
        has_gap |= matches!(told, Told::Gap(_) | Told::Damaged(_));
        if matches!(&told, Told::Step(step) if u64::try_from(step.index) == Ok(index)) {
            found = Some(Entry::of_told(&told));
            break;
        }
    }
    let pending =
        || steps.pending().iter().find(|step| u64::try_from(step.index) == Ok(index)).map(Entry::of_pending);
    let Some(entry) = found.or_else(pending) else {
        let failure = Failure::new(format!("{} has no step {index}", episode.reference()));
        return Err(match (episode.steps, has_gap) {
            (_, true) => failure
                .hint("some of its records are damaged: `keepstep verify` says which")
                .with_exit(Exit::Lost),
            (0, _) => failure.hint("it has no step at all yet"),
            (steps, _) => failure.hint(format!("it has {}, from 0 to {}", counted(steps, "step"), steps - 1)),
        });
    };
    if args.json {
        screen.json(&entry.json(names(episode)))?;
    } else {
        screen.line(&screen.data.bold(&episode.reference().at_step(index).to_string()))?;
        for line in entry.all_lines(screen.data) {
            screen.line(&line)?;
        }
    }
    Ok(!entry.is_damaged())
}
