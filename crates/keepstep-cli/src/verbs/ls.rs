//! `keepstep ls`: the runs of a store, or the episodes of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use keepstep::refs::{self, Ref, run_reference};
use keepstep::{Id, RunInfo, Store};

use crate::failure::{Exit, Failure, Outcome};
use crate::filter::{Filter, each_once};
use crate::json::Json;
use crate::numbers::{count, counted, now_us, reward, span_us};
use crate::place::{open_taken, quoted, split};
use crate::planned;
use crate::reading::{self, Episode};
use crate::screen::{Screen, Side, Table};

/// Arguments of `keepstep ls`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep ls                         the runs in KEEPSTEP_STORE, or in ./runs
  keepstep ls /mnt/data/runs
  keepstep ls shop-agent              the episodes of one run
  keepstep ls shop-agent#0            those of an older generation of the run
  keepstep ls /mnt/data/runs shop-agent/shop-17
  keepstep ls --ending errored,crashed --since 2h
  keepstep ls --attempts shop-agent/shop-17#0.0
  keepstep ls --all --json | jq 'select(.state == \"errored\") | .ref'

An episode is listed by the attempt that counts, which is the newest. Steps and
return include those that it inherited from earlier attempts. STEPS counts the
first observation and turns that failed too; `episode.turns` in Python does not.

STATE is how an episode ended: finished, truncated, errored and so on. Or it is:
  running      a process is recording it
  interrupted  its process is dead, and nobody has recorded that yet:
               `keepstep reap` does
  silent       it is not known yet whether its process is alive

On a narrow terminal ID is shorter, or it and LAST STEP are left out. --json has
all of it.

If you name a run that has a plan, the last line says how much of it is done.
`keepstep ls --json` has the plans of all runs, with the errors of the episodes
that were given up.")]
pub(crate) struct Args {
    /// The store, if you do not name it first
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// A store, then runs or episodes of it
    #[arg(value_name = "STORE|REF")]
    targets: Vec<String>,
    /// List the episodes of all runs
    #[arg(short, long)]
    all: bool,
    /// List every attempt, not only the one that counts
    #[arg(long)]
    attempts: bool,
    #[command(flatten)]
    filter: Filter,
    /// Print a line of JSON for each run, episode or attempt
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let chooser = args.filter.chooser()?;
    let (path, refs) = split(args.store.as_deref(), &args.targets);
    let store = open_taken(args.store.as_deref(), &path, refs.first().map(String::as_str))?;
    let refs = parse_all(&refs)?;
    chooser.check(&store)?;
    let (catalog, mut episodes) = reading::open(&store)?;
    let mut plans = Exit::Done;
    let is_named = |episode: &Episode| refs.iter().any(|(_, it)| reading::fits_attempt(episode, it));
    if refs.is_empty() && !args.all && !args.attempts && !chooser.chooses() {
        episodes.retain(|episode| episode.is_in_force);
        list_runs(args, &store, &reading::runs(&store)?, &episodes, screen)?;
    } else {
        if !refs.is_empty() {
            let found = chosen(&store, &episodes, &refs);
            episodes = found.map_err(|failure| say_where(failure, args, &path, &refs))?;
        }
        let named: Vec<&Ref> = refs.iter().map(|(_, wanted)| wanted).collect();
        chooser.check_task(&store, &episodes, &named)?;
        episodes.retain(|episode| args.attempts || episode.is_in_force || is_named(episode));
        episodes.retain(|episode| chooser.takes(episode));
        list_episodes(args, &episodes, screen)?;
        if !args.json {
            let is_asked_for = |run: &&RunInfo| refs.iter().any(|(_, it)| refs::names_run(it, run));
            plans = planned::tell(&store, reading::runs(&store)?.iter().filter(is_asked_for), screen)?;
        }
    }
    Ok(plans.worse(reading::tell_all_wrong(&store, &catalog, &episodes, screen)?))
}

/// Adds where a name was looked for, if it may have been meant as a directory.
fn say_where(failure: Failure, args: &Args, path: &Path, refs: &[(String, Ref)]) -> Failure {
    match refs.first() {
        Some((first, _)) if args.store.is_none() && args.targets.first() == Some(first) => failure
            .hint(format!("it was looked for in the store {}; there is no directory {first}", quoted(path))),
        _ => failure,
    }
}

pub(crate) fn parse_all(texts: &[String]) -> Outcome<Vec<(String, Ref)>> {
    let parse = |text: &String| match text.parse::<Ref>() {
        Ok(parsed) => Ok((text.clone(), parsed)),
        Err(error) => Err(crate::usage(error.to_string(), keepstep::refs::SHAPE)),
    };
    texts.iter().map(parse).collect()
}

/// The episodes that any of the references means; each must mean one at least, or a run in which nothing has begun yet.
pub(crate) fn chosen(store: &Store, episodes: &[Episode], refs: &[(String, Ref)]) -> Outcome<Vec<Episode>> {
    let mut chosen: Vec<&Episode> = Vec::new();
    for (text, wanted) in refs {
        let found = refs::matching(episodes, wanted);
        if found.is_empty() && !is_run(store, wanted)? {
            return Err(reading::not_there(store, text, wanted, "run or episode"));
        }
        chosen.extend(found);
    }
    Ok(each_once(chosen, |episode| episode.key).into_iter().cloned().collect())
}

/// True if a reference names a run that is there, whether or not anything has begun in it.
pub(crate) fn is_run(store: &Store, wanted: &Ref) -> Outcome<bool> {
    Ok(reading::runs(store)?.iter().any(|run| refs::names_run(wanted, run)))
}

/// What the episodes of a run add up to.
#[derive(Default)]
struct Sum {
    name: String,
    generation: u64,
    is_old: bool,
    created: Option<i64>,
    episodes: u64,
    steps: u64,
    last_time: Option<i64>,
    states: BTreeMap<String, u64>,
}

fn sum_up(runs: &[RunInfo], episodes: &[Episode]) -> Vec<Sum> {
    let mut sums: BTreeMap<(String, u64, Id), Sum> = BTreeMap::new();
    for run in runs {
        let sum = Sum {
            name: run.name.clone(),
            generation: run.generation,
            is_old: !run.is_newest,
            created: Some(run.time),
            ..Sum::default()
        };
        sums.insert((run.name.clone(), run.generation, run.generation_id), sum);
    }
    for episode in episodes {
        let generation = episode.generation.number;
        // A run whose own file is gone still has its episodes.
        let sum = sums
            .entry((episode.run.clone(), generation, episode.generation_id))
            .or_insert_with(|| Sum { name: episode.run.clone(), ..Sum::default() });
        sum.episodes += 1;
        sum.steps += episode.summary.steps;
        sum.last_time = sum.last_time.max(episode.summary.last_time);
        *sum.states.entry(episode.state().to_owned()).or_default() += 1;
    }
    sums.into_values().collect()
}

fn list_runs(
    args: &Args,
    store: &Store,
    runs: &[RunInfo],
    episodes: &[Episode],
    screen: &mut Screen,
) -> Outcome<()> {
    let sums = sum_up(runs, episodes);
    if args.json {
        for sum in &sums {
            let states = sum.states.iter().map(|(state, number)| (state.as_str(), Json::from(*number)));
            let run = runs.iter().find(|run| run.name == sum.name && run.generation == sum.generation);
            let progress = run.map_or(Ok(Json::Null), |run| planned::json(store, run))?;
            let name = run_reference(&sum.name, sum.is_old.then_some(sum.generation));
            screen.json(&Json::map([
                ("ref", Json::from(name)),
                ("run", Json::from(&*sum.name)),
                ("generation", sum.generation.into()),
                ("created_us", sum.created.into()),
                ("episodes", sum.episodes.into()),
                ("steps", sum.steps.into()),
                ("states", Json::map(states)),
                ("last_time_us", sum.last_time.into()),
                ("progress", progress),
            ]))?;
        }
        return Ok(());
    }
    let columns = [
        ("RUN", Side::Left),
        ("EPISODES", Side::Right),
        ("STEPS", Side::Right),
        ("LAST STEP", Side::Right),
        ("STATES", Side::Left),
    ];
    let mut table = Table::new(&columns);
    for sum in &sums {
        table.row([
            run_reference(&sum.name, sum.is_old.then_some(sum.generation)),
            count(sum.episodes),
            count(sum.steps),
            age(sum.last_time),
            told_states(&sum.states),
        ]);
    }
    show(&table, screen)?;
    screen.flush()?;
    if sums.is_empty() {
        screen.say("no run has been recorded here yet");
    }
    Ok(())
}

fn list_episodes(args: &Args, episodes: &[Episode], screen: &mut Screen) -> Outcome<()> {
    if args.json {
        return episodes.iter().try_for_each(|episode| screen.json(&episode.json()));
    }
    show(&table_of(args, episodes, screen.width), screen)?;
    let mut states = BTreeMap::new();
    for episode in episodes {
        *states.entry(episode.state().to_owned()).or_default() += 1;
    }
    screen.flush()?;
    let noun = if args.attempts { "attempt" } else { "episode" };
    let number = counted(episodes.len() as u64, noun);
    screen.say(&if states.is_empty() { number } else { format!("{number}: {}", told_states(&states)) });
    Ok(())
}

/// How much of the ids is shown, and whether ages are: from the widest table to the narrowest. Eight digits are as good
/// as unique, and references take them.
const SHAPES: [(usize, bool); 4] = [(12, true), (8, true), (0, true), (0, false)];

/// The table of episodes: the widest that fits the terminal. If none does, its lines are broken, and nothing is left out.
fn table_of(args: &Args, episodes: &[Episode], width: Option<usize>) -> Table {
    let mut tables = SHAPES.iter().map(|shape| table_in_shape(args, episodes, *shape));
    let fits = |table: &Table| width.is_none_or(|width| table.width() <= width);
    tables.find(fits).unwrap_or_else(|| table_in_shape(args, episodes, SHAPES[0]))
}

fn table_in_shape(args: &Args, episodes: &[Episode], (id_digits, has_age): (usize, bool)) -> Table {
    let mut columns = vec![
        ("EPISODE", Side::Left),
        ("STATE", Side::Left),
        ("STEPS", Side::Right),
        ("RETURN", Side::Right),
        ("ATTEMPTS", Side::Right),
    ];
    columns.extend(has_age.then_some(("LAST STEP", Side::Right)));
    columns.extend((id_digits > 0).then_some(("ID", Side::Left)));
    let mut table = Table::new(&columns);
    for episode in episodes {
        // Among attempts each says which it is.
        let name = if args.attempts { refs::reference_of(episode.as_ref()) } else { episode.reference() };
        let mut row = vec![
            name.to_string(),
            episode.state().to_owned(),
            count(episode.summary.steps),
            episode.summary.total_reward.map_or("-".to_owned(), reward),
            count(episode.attempts.into()),
        ];
        row.extend(has_age.then(|| age(episode.summary.last_time)));
        let id = episode.key.episode.to_string();
        row.extend((id_digits > 0).then(|| id[..id_digits].to_owned()));
        table.row(row);
    }
    table
}

fn show(table: &Table, screen: &mut Screen) -> Outcome<()> {
    for line in table.lines(screen.data) {
        screen.line(&line)?;
    }
    Ok(())
}

pub(crate) fn told_states(states: &BTreeMap<String, u64>) -> String {
    let told: Vec<String> =
        states.iter().map(|(state, number)| format!("{} {state}", count(*number))).collect();
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}

fn age(time: Option<i64>) -> String {
    match time.map(|time| now_us() - time) {
        None => "-".to_owned(),
        Some(..1_000_000) => "now".to_owned(),
        Some(ago) => format!("{} ago", span_us(ago)),
    }
}
