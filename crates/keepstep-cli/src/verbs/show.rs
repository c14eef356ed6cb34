//! `keepstep show`: one episode, step by step, or one step in full.

use std::path::PathBuf;

use keepstep::read::{EpisodeEvent, LineagePart, NoteKey, NoteSaid, RecordedStep};
use keepstep::{Liveness, Store, Value, View};

use crate::failure::{Exit, Failure, Outcome};
use crate::json::Json;
use crate::numbers::{counted, date, reward, span_us};
use crate::place::{only_a_store, open_taken, split_before};
use crate::reading::{self, Episode};
use crate::render::{Rendered, error_of, titles, traceback_of};
use crate::screen::{Screen, shown};
use crate::values::brief;
use crate::verbs::ls::parse_all;

/// Of a traceback the last lines are shown: they say where it happened.
const TRACEBACK_LINES: usize = 20;
/// Notes of these names are how good an episode was: their numbers stand in its heading.
const SCORES: [&str; 2] = ["reward", "score"];

/// Who says how an attempt ended, if its owner did not: the recorded word.
const FOUND: &str = "whoever found it";

/// Arguments of `keepstep show`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep show shop-agent/shop-17            all steps, one line each
  keepstep show shop-agent/shop-17#0.2@14     everything about step 14
  keepstep show shop-agent/shop-17#0.2~0      the first attempt, and only that
  keepstep show /mnt/data/runs 9c9e9966       by the beginning of its id
  keepstep show shop/17 --json | jq 'select(.what == \"step\") | .reward'

Without ~attempt you see the attempt that counts, which is the newest, with the
steps that it inherited from earlier attempts.

A ! under SEEN is the error of a turn that failed. It is a step like the others,
but `episode.turns` in Python does not count it.

Of a failed episode you see the error and the end of its traceback; --json has
all of it, and also the calls by which keepstep keeps track of failed turns.")]
pub(crate) struct Args {
    /// The store, if you do not name it first
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// Perhaps a store, then episodes of it, or steps of these
    #[arg(required = true, value_name = "STORE|REF")]
    targets: Vec<String>,
    /// Print a line of JSON for each thing that happened
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let (path, refs) = split_before(args.store.as_deref(), &args.targets, 1);
    if refs.is_empty() {
        return Err(only_a_store(&path, "episode"));
    }
    let refs = parse_all(&refs)?;
    let store = open_taken(args.store.as_deref(), &path, refs.first().map(|(text, _)| &**text))?;
    let (catalog, episodes) = reading::open(&store)?;
    let mut is_whole = true;
    for (at, (text, wanted)) in refs.iter().enumerate() {
        let episode = reading::one(&store, &episodes, text, wanted)?;
        if at > 0 && !args.json {
            screen.line("")?;
        }
        let view = store.view_of(&catalog, &episode.key);
        let (view, unread) = match view {
            Err(error) if error.is_of_one_file() => (None, Some(error)),
            view => (Some(view?), None),
        };
        // What is wrong with one does not keep the others from being shown.
        if let Some(wrong) = episode.trouble.as_ref().or(unread.as_ref()) {
            is_whole = false;
            tell_wrong(args, episode, wrong, screen)?;
        }
        let Some(view) = view else { continue };
        let shown = Shown { args, store: &store, episode, view };
        is_whole &= match wanted.step {
            Some(step) => shown.one_step(step, screen)?,
            None => shown.all(screen)?,
        };
    }
    // Whatever is in a log that cannot be read may belong to what was shown: a newer attempt, a note.
    let troubles = reading::tell_troubles(&catalog, screen)?;
    if is_whole {
        return Ok(troubles);
    }
    screen.flush()?;
    screen.say(&format!(
        "{} `keepstep verify` says what was damaged, and what it cost",
        screen.talk.cyan("hint:")
    ));
    Ok(Exit::Lost)
}

/// Says what is wrong with an episode: a card of it cannot be read or is not there, or what it rests on.
fn tell_wrong(args: &Args, episode: &Episode, wrong: &keepstep::Error, screen: &mut Screen) -> Outcome<()> {
    if args.json {
        screen.json(&Json::map([
            ("ref", Json::from(episode.reference().to_string())),
            ("id", episode.key.episode.to_string().into()),
            ("what", "trouble".into()),
            ("error", wrong.to_string().into()),
        ]))?;
    }
    screen.flush()?;
    let said = format!("{}: {wrong}", episode.reference());
    screen.say(&format!("{} {}", screen.talk.red("damaged:"), shown(&said)));
    Ok(())
}

/// An episode that is shown.
struct Shown<'a> {
    args: &'a Args,
    store: &'a Store,
    episode: &'a Episode,
    view: View,
}

impl Shown<'_> {
    /// What stands first in every line of JSON.
    fn names(&self) -> [(&'static str, Json); 2] {
        let episode = self.episode;
        [("ref", episode.reference().to_string().into()), ("id", episode.key.episode.to_string().into())]
    }

    /// All that happened. False if something is damaged.
    fn all(&self, screen: &mut Screen) -> Outcome<bool> {
        let notes = self.notes();
        if self.args.json {
            self.lineage_json(screen)?;
        } else {
            self.heading(notes.as_deref().unwrap_or_default(), screen)?;
        }
        let mut is_whole = self.view.missing().is_empty();
        for told in self.view.events() {
            let told = told?;
            // How it ended comes last, and may be in no log; the heading says it already, and how it began.
            let is_told_elsewhere = matches!(told, EpisodeEvent::End(_))
                || matches!(told, EpisodeEvent::Begin(_)) && !self.args.json;
            if !is_told_elsewhere {
                is_whole &= self.tell(&Rendered::of_event(&told), screen)?;
            }
        }
        if let Some(step) = self.view.pending()? {
            is_whole &= self.tell(&Rendered::of_pending(&step, self.is_over()?), screen)?;
        }
        // Those that the attempt recorded itself were told in their place.
        for (key, said) in notes?.iter().filter(|(_, said)| !said.is_own) {
            is_whole &= self.tell(&Rendered::of_note_said(key, said), screen)?;
        }
        if let Some(end) = self.view.ending()? {
            is_whole &= end.damaged.is_empty();
            if self.args.json {
                self.tell(&Rendered::of_event(&EpisodeEvent::End(Box::new(end))), screen)?;
            }
        }
        Ok(is_whole)
    }

    /// The notes that count for this attempt: its own, and those of the run.
    fn notes(&self) -> Outcome<Vec<(NoteKey, NoteSaid)>> {
        let (notes, _) = self.store.notes(self.episode.generation_id)?.episode(&self.view.id())?;
        Ok(self.view.counting(&notes))
    }

    /// Prints one thing that happened. False if something of it is damaged.
    fn tell(&self, entry: &Rendered, screen: &mut Screen) -> Outcome<bool> {
        match self.args.json {
            true => screen.json(&entry.json(self.names()))?,
            false if entry.is_bookkeeping() => {}
            false => screen.line(&entry.line(screen.data, screen.width))?,
        }
        Ok(!entry.is_damaged())
    }

    fn heading(&self, notes: &[(NoteKey, NoteSaid)], screen: &mut Screen) -> Outcome<()> {
        let episode = self.episode;
        let summary = &episode.summary;
        let mut said = vec![episode.state().to_owned(), counted(self.view.steps(), "step")];
        said.extend(summary.total_reward.map(|total| format!("return {}", reward(total))));
        said.extend(SCORES.iter().filter_map(|name| newest_number(notes, name)));
        let name = screen.data.bold(&episode.reference().to_string());
        screen.line(&format!("{name}  {}", shown(&said.join(", "))))?;
        let (id, attempts) = (episode.key.episode, self.attempts());
        screen.line(&format!("id      {id}, attempt ~{}{attempts}", episode.key.attempt))?;
        let liveness = match episode.liveness {
            Liveness::Live => "still recording",
            Liveness::Dead => "gone",
            Liveness::Unknown => "silent",
        };
        let writer = self.store.describe(&episode.key.writer);
        screen.line(&format!("writer  {}, {liveness}", shown(&writer)))?;
        if let (Some(first), Some(last)) = (summary.first_time, summary.last_time) {
            screen.line(&format!("time    {}, for {}", date(first), span_us((last - first).max(0))))?;
        }
        self.ending_line(screen)?;
        self.lineage_lines(screen)?;
        screen.line("")?;
        screen.line(&screen.data.bold(&titles(screen.width)))
    }

    /// Which attempts there are, if there are several: their numbers have gaps where a claim never became one.
    fn attempts(&self) -> String {
        let many = self.episode.attempts;
        match self.store.began(&self.episode.key.episode) {
            _ if many <= 1 => String::new(),
            Ok(began) => {
                let numbers: Vec<u32> = began.iter().map(|it| it.key.attempt).collect();
                format!(" of {} ({})", numbers.len(), ranges(&numbers))
            }
            // What is wrong with its claims is told already.
            Err(_) => format!(" of {many}"),
        }
    }

    fn ending_line(&self, screen: &mut Screen) -> Outcome<()> {
        const CHARS_MAX: usize = 200;
        let Some(end) = self.view.ending()? else { return Ok(()) };
        let by = end.said_by.as_deref().map(|who| match (who, end.why.as_deref()) {
            (FOUND, Some("superseded")) => "by the process that took over".to_owned(),
            (FOUND, _) => "found by another process".to_owned(),
            _ => format!("said by {who}"),
        });
        let mut said = vec![end.why.unwrap_or_else(|| "how is lost".to_owned())];
        said.extend(end.limit.map(|limit| format!("limit {limit}")));
        said.extend(by);
        said.extend(end.error.as_ref().map(|error| format!("error {}", error_of(error))));
        let evidence = end.evidence.filter(|evidence| *evidence != Value::Null);
        said.extend(evidence.map(|evidence| format!("evidence {}", brief(&with_dates(evidence), CHARS_MAX))));
        screen.line(&format!("ended   {}", shown(&said.join(", "))))?;
        self.traceback_lines(&end.error.map(|error| traceback_of(&error)).unwrap_or_default(), screen)
    }

    fn traceback_lines(&self, lines: &[String], screen: &mut Screen) -> Outcome<()> {
        let left_out = lines.len().saturating_sub(TRACEBACK_LINES);
        if left_out > 0 {
            let more = counted(left_out as u64, "line");
            screen.line(&format!("        … {more} before these: --json has them all"))?;
        }
        lines[left_out..].iter().try_for_each(|line| screen.line(&format!("        {line}")))
    }

    /// Which steps come from which attempt, and by whom; nothing if all are its own.
    fn lineage_lines(&self, screen: &mut Screen) -> Outcome<()> {
        let parts: Vec<&LineagePart> =
            self.view.parts().iter().filter(|part| !part.steps.is_empty()).collect();
        if parts.iter().all(|part| part.span.attempt == self.view.number()) {
            return Ok(());
        }
        for (at, part) in parts.iter().enumerate() {
            let title = if at == 0 { "steps" } else { "" };
            let last = part.steps.end - 1;
            let steps = if part.steps.start == last {
                last.to_string()
            } else {
                format!("{} to {last}", part.steps.start)
            };
            let by = self.store.describe(&recorder_of(part));
            screen.line(&format!(
                "{title:<8}{steps} from attempt ~{}, by {}",
                part.span.attempt,
                shown(&by)
            ))?;
        }
        Ok(())
    }

    fn lineage_json(&self, screen: &mut Screen) -> Outcome<()> {
        for part in self.view.parts() {
            let writer = recorder_of(part);
            let more = [
                ("what", Json::from("lineage")),
                ("attempt", part.span.attempt.into()),
                ("from_step", part.steps.start.into()),
                ("to_step", part.steps.end.into()),
                ("writer", writer.to_string().into()),
                ("by", self.store.describe(&writer).into()),
            ];
            screen.json(&Json::map(self.names().into_iter().chain(more)))?;
        }
        Ok(())
    }

    /// One step in full. False if something of it is damaged.
    fn one_step(&self, index: u64, screen: &mut Screen) -> Outcome<bool> {
        let Some(entry) = self.find(index)? else { return Err(self.no_step(index)?) };
        if self.args.json {
            screen.json(&entry.json(self.names()))?;
        } else {
            screen.line(&screen.data.bold(&self.episode.reference().step(index).to_string()))?;
            let attempt = self.view.attempt_of(index);
            if attempt != self.view.number() {
                screen.line(&format!("{} attempt ~{attempt}", screen.data.bold("from:")))?;
            }
            for line in entry.all_lines(screen.data) {
                screen.line(&line)?;
            }
        }
        Ok(!entry.is_damaged())
    }

    /// A step, or the turn that is pending, by its index.
    fn find(&self, index: u64) -> Outcome<Option<Rendered>> {
        let is_it = |step: &RecordedStep| u64::try_from(step.index) == Ok(index);
        // Nearly always it stands where it should; behind a gap it does not.
        if index < self.view.steps() {
            let step = self.view.step(index)?;
            if is_it(&step) {
                return Ok(Some(Rendered::of_event(&EpisodeEvent::Step(Box::new(step)))));
            }
        }
        for told in self.view.events() {
            let told = told?;
            if matches!(&told, EpisodeEvent::Step(step) if is_it(step)) {
                return Ok(Some(Rendered::of_event(&told)));
            }
        }
        let pending = self.view.pending()?.filter(is_it);
        pending.map(|step| Ok(Rendered::of_pending(&step, self.is_over()?))).transpose()
    }

    /// True if this attempt records nothing more: it ended, or its process is gone.
    fn is_over(&self) -> Outcome<bool> {
        Ok(self.view.ending()?.is_some() || self.episode.liveness == Liveness::Dead)
    }

    fn no_step(&self, index: u64) -> Outcome<Failure> {
        let failure = Failure::new(format!("{} has no step {index}", self.episode.reference()));
        let mut has_gap = false;
        for told in self.view.events() {
            has_gap |= told?.is_loss();
        }
        Ok(match (self.view.steps(), has_gap) {
            (_, true) => failure
                .hint("some of its records are damaged: `keepstep verify` says which")
                .with_exit(Exit::Lost),
            (0, _) => failure.hint("it has no step at all yet"),
            (steps, _) => failure.hint(format!("it has {}, from 0 to {}", counted(steps, "step"), steps - 1)),
        })
    }
}

/// What was said last under a name of the episode as a whole, if it is a number: `score 0.5`.
fn newest_number(notes: &[(NoteKey, NoteSaid)], name: &str) -> Option<String> {
    let is_meant = |key: &NoteKey| key.name == name && key.target.step.is_none();
    let (_, newest) = notes.iter().filter(|(key, _)| is_meant(key)).max_by_key(|(_, said)| said.time)?;
    let number = newest.value.as_float().or_else(|| Some(newest.value.as_int()? as f64))?;
    Some(format!("{name} {}", reward(number)))
}

/// Evidence with its times as dates: microseconds since 1970 are for programs.
fn with_dates(evidence: Value) -> Value {
    let Value::Map(entries) = evidence.plain() else { return evidence };
    let dated = |(name, value): &(Value, Value)| match (name.as_str(), value.as_int()) {
        (Some("last_beat"), Some(time)) => (name.clone(), Value::from(date(time))),
        _ => (name.clone(), value.clone()),
    };
    Value::map(entries.iter().map(dated))
}

/// The numbers of attempts, which ascend: `~0, ~2 to ~9`.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let told = runs.iter().map(|(first, last)| match last - first {
        0 => format!("~{first}"),
        1 => format!("~{first}, ~{last}"),
        _ => format!("~{first} to ~{last}"),
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Who recorded a part, also if somebody copied it since.
fn recorder_of(part: &LineagePart) -> keepstep::Id {
    part.span.copied.unwrap_or(part.span.writer)
}
