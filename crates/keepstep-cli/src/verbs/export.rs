//! `keepstep export`: episodes in the formats of others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Subcommand;
use keepstep::export::{ExportCounts, Jsonl, JsonlOptions, NewFile};
use keepstep::read::{AttemptKey, Catalog, NoteIndex, is_final};
use keepstep::refs::Ref;
use keepstep::{Error, Id, Store};

use crate::failure::{Exit, Failure, Outcome};
use crate::filter::{Chooser, Filter};
use crate::json::Json;
use crate::numbers::{bytes, counted};
use crate::place::{only_a_store, open_taken, quoted, split_before};
use crate::progress;
use crate::reading::{self, Episode};
use crate::screen::Screen;
use crate::verbs::ls::{chosen, parse_all, told_states};

/// Arguments of `keepstep export`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep export jsonl shop-agent -o steps.jsonl
  keepstep export jsonl --help                what a line has, and all options")]
pub(crate) struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, Clone, Subcommand)]
enum Format {
    /// JSON Lines: one step per line, with all its fields
    Jsonl(JsonlArgs),
    /// Anything else: it is refused with the names of the formats.
    #[command(external_subcommand)]
    Unknown(Vec<OsString>),
}

/// Arguments of `keepstep export jsonl`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep export jsonl shop-agent/shop-17#0.0 | jq .reward
  keepstep export jsonl shop-agent -o steps.jsonl
  keepstep export jsonl shop-agent --ending finished,truncated -o steps.jsonl
  keepstep export jsonl /mnt/data/runs --run shop-agent -o steps.jsonl
  keepstep export jsonl --all -o everything.jsonl --json

A line is one step, with the names of its episode and how that ended. Of each
episode the attempt that counts is written, with the steps that it inherited;
`recorded_in` is the attempt that recorded the step.

`kind` says what a line is:
  FIRST, MID, LAST   a step
  CALL               with --calls: a call, made before the step `index`; also
                     those named keepstep.turn, by which keepstep keeps track
                     of failed turns, and which `show` leaves out
  NOTE               with --notes: the newest note of each name and source
                     that counts for the attempt, on the step `index`, on the
                     attempt `on_attempt`, or on the episode; as `show` has it

With --new, a prompt that begins as the prompt of the step before is cut: the
first `prompt_repeats` messages or characters of that one, then `prompt_new`.

Values that JSON cannot have are written as {\"$bytes\":base64},
{\"$array\":dtype,\"shape\":…,\"data\":…}, {\"$float\":\"nan\"}, {\"$media\":…},
{\"$type\":…}.

The output file gets its name when it is complete. An older file of that name
stays until then.")]
struct JsonlArgs {
    /// The store, if you do not name it first
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// Perhaps a store, then runs or episodes of it
    #[arg(value_name = "STORE|REF")]
    targets: Vec<String>,
    /// Export all runs
    #[arg(short, long)]
    all: bool,
    /// The file to write; without it, or with -, stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Of each prompt, write only what is new since the step before
    #[arg(long)]
    new: bool,
    /// Write calls too
    #[arg(long)]
    calls: bool,
    /// Write notes too, after the steps of their episode
    #[arg(long)]
    notes: bool,
    #[command(flatten)]
    filter: Filter,
    /// Print what was written as JSON; needs -o
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let args = match &args.format {
        Format::Jsonl(args) => args,
        Format::Unknown(given) => return Err(no_format(given)),
    };
    let output = args.output.as_ref().filter(|path| path.as_os_str() != "-");
    if args.json && output.is_none() {
        let hint = "with -o FILE the steps go to the file, and a summary is printed as JSON";
        return Err(crate::usage("--json needs -o: the steps themselves go to stdout", hint));
    }
    // With --run it is clear what is meant, also if only a store is named.
    let is_clear = args.all || args.filter.names_a_run();
    if args.targets.is_empty() && !is_clear {
        let hint = "name runs or episodes, or say --run RUN, or --all, which --task, --ending and --since narrow down";
        return Err(crate::usage("no episodes to export were named", hint));
    }
    let (path, refs) = split_before(args.store.as_deref(), &args.targets, usize::from(!is_clear));
    if refs.is_empty() && !is_clear {
        let hint = format!("`keepstep export jsonl -s {} --all` exports all runs", quoted(&path));
        return Err(only_a_store(&path, "run or episode").hint(hint));
    }
    let refs = parse_all(&refs)?;
    if let Some((text, _)) = refs.first().filter(|_| args.all) {
        let hint = "leave out --all, or the names";
        return Err(crate::usage(format!("{text:?} is named, and --all exports all runs"), hint));
    }
    if let Some((text, _)) = refs.iter().find(|(_, wanted)| wanted.step.is_some()) {
        let hint = "leave @step out; `keepstep show REF@STEP --json` prints one";
        return Err(crate::usage(format!("{text:?} is a step, and episodes are exported"), hint));
    }
    let chooser = args.filter.chooser()?;
    if let Some(path) = output {
        keepstep::refuse_address(path)?;
    }
    let store = open_taken(args.store.as_deref(), &path, refs.first().map(|(text, _)| &**text))?;
    let (catalog, episodes) = reading::open(&store)?;
    chooser.check(&store)?;
    let mut chosen = if refs.is_empty() { episodes } else { chosen(&store, &episodes, &refs)? };
    let named: Vec<&Ref> = refs.iter().map(|(_, wanted)| wanted).collect();
    chooser.check_task(&store, &chosen, &named)?;
    // Without a number it is the attempt that counts.
    let is_named = |it: &Episode| refs.iter().any(|(_, wanted)| reading::fits_attempt(it, wanted));
    chosen.retain(|episode| episode.is_in_force || is_named(episode));
    let left_out = leave_out(&mut chosen, &chooser);
    let work = Work { args, store: &store, catalog: &catalog, episodes: &chosen };
    let (written, unread) = match output {
        Some(path) => {
            let (file, written, unread) = work.write(NewFile::create(path)?)?;
            file.keep()?;
            (written, unread)
        }
        None => {
            let (_, written, unread) = work.write(screen.out())?;
            screen.flush()?;
            (written, unread)
        }
    };
    for (key, error) in unread {
        let of_it = chosen.iter_mut().find(|episode| episode.key == key);
        of_it.into_iter().for_each(|episode| episode.find_wrong(error.clone()));
    }
    tell(args, &chosen, &left_out, &written, screen)?;
    let damage = if written.damaged > 0 { Exit::Lost } else { Exit::Done };
    Ok(damage.worse(reading::tell_all_wrong(&store, &catalog, &chosen, screen)?))
}

fn no_format(given: &[OsString]) -> Failure {
    let given = given.first().map(|given| given.to_string_lossy()).unwrap_or_default();
    let hint = "give jsonl, which is the only format so far: `keepstep export jsonl --help`";
    crate::usage(format!("there is no export format {given:?}"), hint)
}

/// Takes out what was not asked for; gives how those stand.
fn leave_out(chosen: &mut Vec<Episode>, chooser: &Chooser<'_>) -> BTreeMap<String, u64> {
    let mut left_out = BTreeMap::new();
    chosen.retain(|episode| {
        let is_taken = chooser.takes(episode);
        if !is_taken {
            *left_out.entry(episode.state().to_owned()).or_default() += 1;
        }
        is_taken
    });
    left_out
}

struct Work<'a> {
    args: &'a JsonlArgs,
    store: &'a Store,
    catalog: &'a Catalog,
    episodes: &'a [Episode],
}

/// Attempts that could not be written, and why.
type Troubles = Vec<(AttemptKey, Error)>;

impl Work<'_> {
    /// Writes them; gives those that cannot be read, and why. They do not keep the others from being written.
    fn write<W: Write>(&self, out: W) -> Outcome<(W, ExportCounts, Troubles)> {
        let steps = self.episodes.iter().map(|episode| episode.summary.steps).sum();
        // Steps that run over the same terminal are progress enough.
        let is_seen = self.args.output.is_none() && std::io::stdout().is_terminal();
        let bar = if is_seen { progress::none() } else { progress::bar(steps, "steps") };
        let options = JsonlOptions::default().only_new(self.args.new).calls(self.args.calls);
        let mut jsonl = Jsonl::new(out, options);
        let mut notes: BTreeMap<Id, NoteIndex> = BTreeMap::new();
        let mut unread = Vec::new();
        for episode in self.episodes {
            let view = match self.store.view_of(self.catalog, &episode.key) {
                Ok(view) => view,
                Err(error) if error.is_of_one_file() => {
                    unread.push((episode.key, error));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            jsonl.episode(episode.as_ref(), &view, &mut || bar.inc(1)).map_err(failed)?;
            let Some(generation_id) = episode.summary.generation_id.filter(|_| self.args.notes) else {
                continue;
            };
            let notes = match notes.entry(generation_id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => free.insert(self.store.notes(generation_id)?),
            };
            jsonl.notes(episode.as_ref(), &view, notes).map_err(failed)?;
        }
        let (out, counts) = jsonl.finish().map_err(failed)?;
        bar.finish_and_clear();
        Ok((out, counts, unread))
    }
}

/// Whoever read our output may have gone away, as `head` does.
fn failed(error: Error) -> Failure {
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        other => other.into(),
    }
}

fn tell(
    args: &JsonlArgs,
    episodes: &[Episode],
    left_out: &BTreeMap<String, u64>,
    written: &ExportCounts,
    screen: &mut Screen,
) -> Outcome<()> {
    if args.json {
        let states = left_out.iter().map(|(state, number)| (state.as_str(), Json::from(*number)));
        let wrong = |it: &Episode| Some(format!("{}: {}", it.name(), it.trouble.as_ref()?));
        let troubles = episodes.iter().filter_map(wrong).map(Json::from);
        return screen.json(&Json::map([
            ("episodes", Json::from(written.episodes)),
            ("steps", written.steps.into()),
            ("calls", written.calls.into()),
            ("notes", written.notes.into()),
            ("notes_left_out", written.notes_elsewhere.into()),
            ("bytes", written.bytes.into()),
            ("left_out", Json::map(states)),
            ("pending_turns", written.pending.into()),
            ("damaged", written.damaged.into()),
            ("troubles", Json::list(troubles)),
        ]));
    }
    let mut told = vec![counted(written.episodes, "episode"), counted(written.steps, "step")];
    told.extend(args.calls.then(|| counted(written.calls, "call")));
    told.extend(args.notes.then(|| counted(written.notes, "note")));
    screen.say(&format!("{}, {} written", told.join(", "), bytes(written.bytes)));
    if written.notes_elsewhere > 0 {
        let notes = counted(written.notes_elsewhere, "note");
        let these = if written.notes_elsewhere == 1 { "does" } else { "do" };
        screen.say(&format!("left out: {notes} that {these} not count for the attempts above"));
    }
    if !left_out.is_empty() {
        screen.say(&format!("left out: {}", told_states(left_out)));
    }
    // Nobody should train on broken rollouts without having asked for it.
    let mut broken = BTreeMap::new();
    for episode in episodes.iter().filter(|it| !is_final(it.state())) {
        *broken.entry(episode.state().to_owned()).or_default() += 1;
    }
    if !broken.is_empty() && !args.filter.names_endings() {
        screen.say(&format!("not all of them are over: {}", told_states(&broken)));
        screen.say(&format!(
            "{} --ending finished,truncated leaves them out; each line says how its episode ended",
            screen.talk.cyan("hint:")
        ));
    }
    if written.damaged > 0 {
        let damaged = counted(written.damaged, "place");
        screen.say(&format!("{} {damaged}; the lines say which fields", screen.talk.red("damaged:")));
        screen.say(&format!("{} `keepstep verify` says what it cost", screen.talk.cyan("hint:")));
    }
    Ok(())
}
