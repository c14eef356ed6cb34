//! `keepstep prune`: deletes episodes on request. No other verb deletes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use keepstep::refs::{self, Ref};
use keepstep::tend::{Candidate, CompactReport, PruneFilter, PruneReport};
use keepstep::{Id, Store, Why};

use crate::failure::{Exit, Outcome};
use crate::filter::find_run;
use crate::json::Json;
use crate::numbers::{bytes, count, counted};
use crate::place::{open_taken, split_before};
use crate::progress;
use crate::reading;
use crate::screen::{Screen, Side, Table, shown};
use crate::verbs::compact;
use crate::verbs::ls::{is_run, parse_all};

/// Arguments of `keepstep prune`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep prune --run old-agent --dry-run
  keepstep prune --run old-agent --reason 'superseded by v2'
  keepstep prune --ending errored,aborted --older-than 30d --reason cleaning
  keepstep prune shop/17#0.2 --reason 'holds a secret' --grace 0

An episode is deleted if all that you say is true of it, and always as a whole.
One that may still be recorded stays. Opening a deleted episode shows when it
was deleted, and why.

Its bytes stay for the grace period, for readers that still have them open. The
next `prune` or `compact` after that deletes them; with `--grace 0` they go at
once. The log of a process that is still there is rewritten when it is gone.")]
pub(crate) struct Args {
    /// The store, if you do not name it first
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// Perhaps a store, then only these runs or episodes of it
    #[arg(value_name = "STORE|REF")]
    targets: Vec<String>,
    /// Only episodes of this run; an older generation of it is RUN#0, RUN#1, …
    #[arg(long)]
    run: Option<String>,
    /// Only episodes with this ending, such as errored; several with commas
    #[arg(long, value_name = "ENDING", value_delimiter = ',')]
    ending: Vec<String>,
    /// Only episodes without a step in the last 90s, 5min, 2h, 3d or 1w
    #[arg(long, value_name = "AGE")]
    older_than: Option<String>,
    /// Why they are deleted; opening one later shows it
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// How long the bytes stay, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0)]
    grace: f64,
    /// Print a line of JSON for each episode, and one for the whole
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let mut filter = filter(args)?;
    let chooses = filter.run.is_some() || !filter.endings.is_empty() || filter.older_than.is_some();
    // One name alone is what is to go, also if there is a store of that name, unless --run says what is to go.
    let needed = usize::from(args.run.is_none());
    let (path, refs) = split_before(args.store.as_deref(), &args.targets, needed);
    let refs = parse_all(&refs)?;
    if refs.is_empty() && !chooses {
        let hint = "name runs or episodes, or say --run, --ending or --older-than; --dry-run shows what would be deleted";
        return Err(crate::usage("no episodes to delete were named", hint));
    }
    if args.reason.as_ref().is_some_and(|reason| reason.trim().is_empty()) {
        return Err(crate::usage(
            "--reason is empty",
            "say why they are deleted; opening one later shows the reason",
        ));
    }
    let store = open_taken(args.store.as_deref(), &path, refs.first().map(|(text, _)| &**text))?;
    if let Some(run) = filter.run.take() {
        let (name, generation_id) = find_run(&store, &run)?;
        (filter.run, filter.generation_id) = (Some(name), generation_id);
    }
    let names = Names::of(&store)?;
    name_episodes(&store, &refs, &mut filter)?;
    // A filter without episodes means all: runs without episodes were named.
    let names_nothing = !refs.is_empty() && filter.episodes.is_empty();
    let mut report = if names_nothing { nothing(args.dry_run) } else { prune(args, &store, &filter)? };
    compact::delete_at_once(&store, args.grace, &mut report.compacted)?;
    if args.json {
        tell_json(&report, &names, screen)?;
    } else {
        tell(&report, &names, screen)?;
        if names_nothing {
            screen.say("what is named has no episodes; a run itself stays, since nothing deletes runs");
        }
    }
    // What was asked for and stays is not done.
    let has_failed = !report.refused.is_empty() && report.episodes.is_empty();
    let is_damaged = report.refused.iter().any(|episode| episode.is_damaged);
    let done = match (has_failed, is_damaged) {
        (_, true) => Exit::Lost,
        (true, _) => Exit::Failed,
        _ => Exit::Done,
    };
    // What was asked for may be in a log that cannot be read.
    Ok(done.worse(reading::tell_troubles(&store.catalog()?, screen)?))
}

fn prune(args: &Args, store: &Store, filter: &PruneFilter) -> Outcome<PruneReport> {
    let bar = progress::bytes(0, "pruning");
    let report = store.prune(filter, args.dry_run, &mut |told| {
        bar.set_length(told.bytes_total);
        bar.set_position(told.bytes_done);
    });
    bar.finish_and_clear();
    Ok(report?)
}

/// What is reported if there is nothing to delete.
fn nothing(is_dry_run: bool) -> PruneReport {
    let mut report = PruneReport::default();
    report.is_dry_run = is_dry_run;
    report
}

fn filter(args: &Args) -> Outcome<PruneFilter> {
    if let Some(wrong) = args.ending.iter().find(|ending| Why::named(ending).is_none()) {
        let hint = format!("--ending takes {}", Why::names(|_| true));
        return Err(crate::usage(format!("no episode ends as {wrong:?}"), hint));
    }
    let older_than = match &args.older_than {
        None => None,
        Some(text) => Some(age(text).ok_or_else(|| {
            crate::usage(format!("{text:?} is no age"), "--older-than takes 90s, 5min, 2h, 3d or 1w")
        })?),
    };
    let mut filter = PruneFilter::default()
        .endings(&args.ending)
        .older_than(older_than)
        .reason(args.reason.as_deref().unwrap_or_default())
        .grace(compact::grace(args.grace)?);
    filter.run.clone_from(&args.run);
    Ok(filter)
}

/// A span of time as people say it.
fn age(text: &str) -> Option<Duration> {
    let unit_from = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let seconds = match &text[unit_from..] {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(text[..unit_from].parse::<f64>().ok()? * seconds).ok()
}

/// Adds the episodes that the references mean.
fn name_episodes(store: &Store, refs: &[(String, Ref)], filter: &mut PruneFilter) -> Outcome<()> {
    if refs.is_empty() {
        return Ok(());
    }
    let (_, episodes) = reading::open(store)?;
    for (text, wanted) in refs {
        if wanted.attempt.is_some() || wanted.step.is_some() {
            let hint = "leave ~attempt and @step out: an episode is deleted as a whole or not at all";
            return Err(crate::usage(format!("{text:?} is a part of an episode"), hint));
        }
        let found = refs::matching(&episodes, wanted);
        if found.is_empty() && !is_run(store, wanted)? {
            return Err(reading::not_there(store, text, wanted, "run or episode"));
        }
        filter.episodes.extend(found.iter().map(|episode| episode.key.episode));
    }
    filter.episodes.sort_unstable();
    filter.episodes.dedup();
    Ok(())
}

/// The older generations, by the generation id of the run: their episodes are called by them.
struct Names(HashMap<Id, u64>);

impl Names {
    fn of(store: &Store) -> Outcome<Self> {
        let old = store.runs()?.into_iter().flatten().filter(|run| !run.is_newest);
        Ok(Self(old.map(|run| (run.generation_id, run.generation)).collect()))
    }

    fn name(&self, episode: &Candidate) -> String {
        let generation = episode.generation_id.and_then(|generation_id| self.0.get(&generation_id).copied());
        match (&episode.run, &episode.task) {
            (Some(run), Some(task)) => {
                let (iteration, sample) = (episode.iteration.unwrap_or(0), episode.sample.unwrap_or(0));
                Ref::episode(run, task, iteration, sample).generation(generation).to_string()
            }
            _ => episode.episode.to_string(),
        }
    }
}

fn tell(report: &PruneReport, names: &Names, screen: &mut Screen) -> Outcome<()> {
    if !report.episodes.is_empty() {
        let columns = [
            ("EPISODE", Side::Left),
            ("ENDING", Side::Left),
            ("ATTEMPTS", Side::Right),
            ("RECORDS", Side::Right),
        ];
        let mut table = Table::new(&columns);
        for episode in &report.episodes {
            let ending = episode.why.clone().unwrap_or_else(|| "-".to_owned());
            let attempts = count(episode.attempts.len() as u64);
            table.row([names.name(episode), ending, attempts, count(episode.records)]);
        }
        table.lines(screen.data).iter().try_for_each(|line| screen.line(line))?;
    }
    screen.flush()?;
    let done = if report.is_dry_run { "would go" } else { "pruned" };
    let episodes = counted(report.episodes.len() as u64, "episode");
    screen.say(&format!("{episodes} {done}, {} of records", bytes(report.bytes)));
    for episode in &report.refused {
        let why = episode.running.as_deref().unwrap_or("it may still be recorded");
        screen.say(&shown(&format!("stays: {}: {why}", names.name(episode))));
    }
    if !report.is_dry_run {
        if report.compacted != CompactReport::default() {
            compact::lines(&report.compacted).iter().for_each(|line| screen.say(line));
        }
        compact::say_left_alone(&report.compacted.left_alone, screen)?;
        if let Some(hint) = what_stays(&report.compacted) {
            screen.say(hint);
        }
    }
    Ok(())
}

/// What to do if bytes of pruned episodes are still on disk, or may be.
fn what_stays(report: &CompactReport) -> Option<&'static str> {
    if !report.left_alone.is_empty() {
        Some(
            "the logs that were left alone may still hold bytes of pruned episodes: run\n\
             `keepstep compact --grace 0` when these writers are gone",
        )
    } else if report.files_waiting > 0 {
        Some("their bytes are still on disk: `keepstep compact --grace 0` deletes them now")
    } else {
        None
    }
}

fn tell_json(report: &PruneReport, names: &Names, screen: &mut Screen) -> Outcome<()> {
    let goes = report.episodes.iter().map(|episode| (episode, true));
    for (episode, is_going) in goes.chain(report.refused.iter().map(|episode| (episode, false))) {
        screen.json(&Json::map([
            ("what", Json::from("episode")),
            ("ref", names.name(episode).into()),
            ("id", episode.episode.to_string().into()),
            ("goes", is_going.into()),
            ("why", episode.why.clone().into()),
            ("records", episode.records.into()),
            ("running", episode.running.clone().into()),
        ]))?;
    }
    screen.json(&Json::map([
        ("what", Json::from("summary")),
        ("dry_run", report.is_dry_run.into()),
        ("episodes", report.episodes.len().into()),
        ("refused", report.refused.len().into()),
        ("bytes", report.bytes.into()),
        ("compacted", compact::json(&report.compacted)),
    ]))
}
