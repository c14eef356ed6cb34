//! `keepstep reap`: marks attempts of dead processes as `crashed`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keepstep::read::AttemptKey;
use keepstep::{MARKED_AT_ONCE, Marked, Options, Reaped, Search, Store};

use crate::failure::Outcome;
use crate::json::{self, Json};
use crate::numbers::{count, counted};
use crate::place::{open_with, store_path};
use crate::progress;
use crate::reading::{self, Episode};
use crate::screen::{Screen, Side, Table};
use crate::values::brief;
use crate::verbs::compact::say_left_alone;

/// Arguments of `keepstep reap`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep reap                       in KEEPSTEP_STORE, or in ./runs
  keepstep reap /mnt/data/runs --dry-run
  keepstep reap --wait                also those whose process is silent
  keepstep reap --json | jq -r .ref

A crashed episode can be resumed, like every episode that is not finished or
truncated.

A process counts as dead when its lock is free. Where a lock proves nothing, it
counts as dead when its heartbeat has stood still for --lease seconds; until
then its episodes are silent.")]
pub(crate) struct Args {
    /// The store
    store: Option<PathBuf>,
    /// Only say what would be marked
    #[arg(long)]
    dry_run: bool,
    /// Wait until silent processes are heard of again, or count as dead
    #[arg(long)]
    wait: bool,
    /// How long a heartbeat may stand still, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    lease: f64,
    /// Print a line of JSON for each attempt
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let Ok(lease) = Duration::try_from_secs_f64(args.lease) else {
        return Err(crate::usage(format!("--lease {} is no time", args.lease), "give seconds, such as 30"));
    };
    let store = open_with(&store_path(args.store.as_deref()), Options::default().lease(lease))?;
    let mut found = store.find_dead()?;
    if args.wait && !found.silent.is_empty() {
        found = wait_for_the_silent(&store, found)?;
    }
    let silent = found.silent.len() as u64;
    let marked = if args.dry_run { None } else { Some(mark_crashed(&store, &found.dead)?) };
    let (reaped, left_alone) = marked.map_or((found.dead, Vec::new()), |it| (it.crashed, it.left_alone));
    let (catalog, episodes) = reading::open(&store)?;
    show(args, &episodes, &reaped, screen)?;
    screen.flush()?;
    let noun = if reaped.len() == 1 { "attempt" } else { "attempts" };
    let done = if args.dry_run { "would be recorded as crashed" } else { "recorded as crashed" };
    screen.say(&format!("{} {noun} {done}", count(reaped.len() as u64)));
    say_left_alone(&left_alone, screen)?;
    if silent > 0 {
        screen.say(&format!("{} silent, and not proven dead", counted(silent, "attempt")));
        screen.say(&format!(
            "{} `keepstep reap --wait` waits until their lease is over",
            screen.talk.cyan("hint:")
        ));
    }
    reading::tell_all_wrong(&store, &catalog, &episodes, screen)
}

fn mark_crashed(store: &Store, dead: &[Reaped]) -> Outcome<Marked> {
    let bar = progress::bar(dead.len() as u64, "recording");
    let mut marked = Marked::default();
    for some in dead.chunks(MARKED_AT_ONCE) {
        marked.add(store.mark_crashed(some)?);
        bar.inc(some.len() as u64);
    }
    bar.finish_and_clear();
    Ok(marked)
}

/// Looks again until all silent processes were heard of again, or count as dead.
fn wait_for_the_silent(store: &Store, mut found: Search) -> Outcome<Search> {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    let started = Instant::now();
    let bar = progress::bar(found.wait.as_secs() + 1, "waiting for the silent, in seconds");
    while !found.silent.is_empty() {
        std::thread::sleep(found.wait.min(LOOK_EVERY).max(Duration::from_millis(10)));
        bar.set_position(started.elapsed().as_secs());
        found = store.find_dead()?;
    }
    bar.finish_and_clear();
    Ok(found)
}

fn show(args: &Args, episodes: &[Episode], reaped: &[Reaped], screen: &mut Screen) -> Outcome<()> {
    let names: HashMap<AttemptKey, String> =
        episodes.iter().map(|episode| (episode.key, episode.reference().to_string())).collect();
    let name = |it: &Reaped| {
        let key = AttemptKey { episode: it.episode, attempt: it.attempt, writer: it.writer };
        names.get(&key).cloned().unwrap_or_else(|| it.episode.to_string())
    };
    if args.json {
        for it in reaped {
            screen.json(&Json::map([
                ("ref", Json::from(name(it))),
                ("id", it.episode.to_string().into()),
                ("attempt", it.attempt.into()),
                ("steps", it.steps.into()),
                ("recorded", (!args.dry_run).into()),
                ("evidence", json::value(&it.evidence)),
            ]))?;
        }
        return Ok(());
    }
    if reaped.is_empty() {
        return Ok(());
    }
    let columns =
        [("EPISODE", Side::Left), ("ATTEMPT", Side::Right), ("STEPS", Side::Right), ("EVIDENCE", Side::Left)];
    let mut table = Table::new(&columns);
    for it in reaped {
        table.row([name(it), it.attempt.to_string(), count(it.steps), brief(&it.evidence, 120)]);
    }
    table.lines(screen.data).iter().try_for_each(|line| screen.line(line))
}
