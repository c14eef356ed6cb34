//! `keepstep verify`: reads everything, finds all damage and its place, and says what it cost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use keepstep::format::commit::{Bind, What};
use keepstep::format::frame::Kind;
use keepstep::refs::{Ref, run_reference};
use keepstep::tend::{Damage, HealReport, Lost, Missing, Progress, Report, Torn};
use keepstep::{Id, OrphanNote, Store};

use crate::failure::{Exit, Outcome};
use crate::json::Json;
use crate::naming::Names;
use crate::numbers::{bytes, count, counted};
use crate::place::{open_to_read, store_path};
use crate::progress;
use crate::screen::{Screen, shown};

/// More lines than these of one kind say no more; `--json` has them all.
const LINES_MAX: usize = 40;

/// What a leftover is, and how to remove it. `compact` deletes it, after it waited until no process can still be
/// making it.
const LEFTOVERS: &str = "a leftover is a file that a process was making when it stopped. It does no harm: nothing reads it. \
`keepstep compact` deletes it when you run it twice, an hour apart; with `--grace 0`, which is for when no process is \
recording, you need not wait.";

/// Arguments of `keepstep verify`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep verify                     all of KEEPSTEP_STORE, or of ./runs
  keepstep verify /mnt/data/runs --heal
  keepstep verify --json | jq '.lost[].ref'

Each line begins with what it is about. Damage, with exit code 3:
  damaged    bytes are not what was written, or a file is gone that others name
  lost       what that cost: records or fields of an episode
  healed     it was lost, and a copy was found elsewhere in the store
  missing    records of an episode that are in no log
No damage:
  torn       the end of a log, whose process was killed in mid-write: nothing in
             it had been acknowledged
  leftover   a file that a process was making when it stopped: it does no harm,
             and `keepstep compact` deletes it
  orphan     a note about something that was never there: older versions took
             such notes
It may be damage, which cannot be known:
  claimed    an episode of which no attempt recorded anything: its first, ~0,
             was stopped before its first step, or its log is gone
  unclaimed  an episode without a claim, the file that names its owner: the
             store is older than claims, or all are gone
  unsealed   a group whose seal was never made, or is gone

What is not listed as damaged, lost or missing is whole, and can be read.")]
pub(crate) struct Args {
    /// The store
    store: Option<PathBuf>,
    /// Look for copies of lost values elsewhere in the store, and use them from now on. Write keepstep.json again if it is
    /// gone or damaged. No other file is changed
    #[arg(long)]
    heal: bool,
    /// List each record and field that was lost, not only each episode
    #[arg(long)]
    full: bool,
    /// Print it all as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let path = store_path(args.store.as_deref());
    let is_named_again = args.heal && path.is_dir() && Store::heal_identity(&path)?;
    if is_named_again {
        screen.say("keepstep.json was written again, under the id that the logs have");
    }
    let store = open_to_read(&path)?;
    let healed = if args.heal { Some(with_bar("healing", |told| store.heal(told))?) } else { None };
    let report = with_bar("verifying", |told| store.verify(told))?;
    let orphans = store.orphan_notes()?;
    let names = Names::of(&store, to_be_named(&report, &orphans));
    let found = Findings { names, report, healed, orphans };
    if args.json {
        screen.json(&found.json())?;
    } else {
        found.show(args.full, screen)?;
    }
    Ok(if found.report.is_whole() { Exit::Done } else { Exit::Lost })
}

fn with_bar<T>(what: &str, work: impl FnOnce(&mut dyn FnMut(Progress)) -> keepstep::Result<T>) -> Outcome<T> {
    let bar = progress::bytes(0, what);
    let result = work(&mut |told| {
        bar.set_length(told.bytes_total);
        bar.set_position(told.bytes_done);
    });
    bar.finish_and_clear();
    Ok(result?)
}

/// The ids that are told of, which people know by other names.
fn to_be_named(report: &Report, orphans: &[OrphanNote]) -> BTreeSet<Id> {
    let binds = report.lost.iter().filter_map(|it| it.bind).chain(report.missing.iter().map(|it| it.bind));
    let cards = report.damage.iter().filter_map(|damage| card_of(&damage.path)).map(|(id, _)| id);
    let listed = report.unrecorded.iter().chain(&report.unclaimed).chain(&report.unsealed).copied();
    let noted = orphans.iter().map(|orphan| orphan.target.episode);
    binds.map(|bind| bind.id).chain(cards).chain(listed).chain(noted).collect()
}

/// What a card is about.
enum About {
    Attempt(u32),
    Episode,
    Group,
}

/// What a card is about, by its path.
fn card_of(path: &str) -> Option<(Id, About)> {
    let (folder, rest) = path.split_once('/')?;
    let mut parts = rest.rsplit('/').next()?.splitn(3, '.');
    let id = parts.next()?.parse().ok()?;
    let number = parts.next()?;
    let about = match (folder, parts.next()) {
        ("groups", _) => About::Group,
        // It counts who scored it, not attempts at it.
        ("claims", Some("scoring")) => About::Episode,
        ("claims" | "ends", _) => About::Attempt(number.parse().ok()?),
        _ => return None,
    };
    Some((id, about))
}

struct Findings {
    names: Names,
    report: Report,
    healed: Option<HealReport>,
    orphans: Vec<OrphanNote>,
}

impl Findings {
    /// What people call what a record belongs to.
    fn name(&self, bind: Option<&Bind>, step: Option<i64>) -> String {
        let Some(bind) = bind else { return "somebody".to_owned() };
        let step = step.and_then(|step| u64::try_from(step).ok());
        let attempt = || self.names.attempt(&bind.id, bind.attempt, step);
        match bind.what {
            What::Attempt => attempt(),
            What::Copied { .. } => format!("a copy of {}", attempt()),
            What::Stream => format!("stream {}", bind.id),
            What::Run => format!("run {}", self.names.run(&bind.id)),
            What::Log => format!("log {}", bind.id),
        }
    }

    /// What people call what a card is about, if it is about an episode or a group.
    fn name_of_card(&self, path: &str) -> Option<String> {
        Some(match card_of(path)? {
            (id, About::Attempt(attempt)) => self.names.attempt(&id, attempt, None),
            (id, About::Episode) => self.episode(&id),
            (id, About::Group) => format!("group {}", self.names.group(&id)),
        })
    }

    /// What people call an episode.
    fn episode(&self, id: &Id) -> String {
        self.names.episode(id).map_or_else(|| id.to_string(), Ref::to_string)
    }

    fn show(&self, is_full: bool, screen: &mut Screen) -> Outcome<()> {
        let report = &self.report;
        let paint = screen.data;
        let red = |word: &str| paint.red(&format!("{word:<9}"));
        let plain = |word: &str| format!("{word:<9}");
        list(&report.damage, screen, |it| format!("{}{}", red("damaged"), shown(&self.damage_line(it))))?;
        if is_full {
            list(&report.lost, screen, |it| {
                let word = if it.healed { plain("healed") } else { red("lost") };
                format!("{word}{}", shown(&self.lost_line(it)))
            })?;
        } else {
            list(&self.lost_by_episode(), screen, |(is_healed, line)| {
                let word = if *is_healed { plain("healed") } else { red("lost") };
                format!("{word}{}", shown(line))
            })?;
        }
        list(&report.missing, screen, |it| format!("{}{}", red("missing"), shown(&self.missing_line(it))))?;
        list(&report.torn, screen, |it| format!("{}{}", plain("torn"), torn_line(it)))?;
        list(&report.leftovers, screen, |it| format!("{}{}", plain("leftover"), shown(it)))?;
        list(&report.unrecorded, screen, |it| {
            let why = "nothing was recorded of it: its process stopped first, or its log is gone";
            let first = self.names.attempt(it, 0, None);
            format!("{}{}: {why}", plain("claimed"), shown(&first))
        })?;
        list(&report.unclaimed, screen, |it| {
            let why = "the store has no claims: it is older than claims, or all are gone";
            format!("{} {}: {why}", plain("unclaimed"), shown(&self.episode(it)))
        })?;
        list(&report.unsealed, screen, |it| {
            let why = "was about to be sealed: its seal was not made, or is gone";
            format!("{}group {} {why}", plain("unsealed"), shown(&self.names.group(it)))
        })?;
        list(&self.orphans, screen, |it| format!("{}{}", plain("orphan"), shown(&self.orphan_line(it))))?;
        if let Some(healed) = &self.healed {
            screen.line(&heal_line(healed))?;
        }
        let counts = &report.counts;
        let looked = format!(
            "{} in {} of {}: {}, {}, {}",
            bytes(counts.bytes),
            counted(counts.segments, "segment"),
            counted(counts.writers, "writer"),
            counted(counts.records, "record"),
            counted(counts.references, "reference"),
            counted(counts.cards, "card"),
        );
        let verdict = if report.is_whole() { paint.green("whole") } else { paint.red("damaged") };
        screen.line(&format!("{looked}: {verdict}"))?;
        self.say_what_next(screen)
    }

    fn say_what_next(&self, screen: &mut Screen) -> Outcome<()> {
        screen.flush()?;
        let hint = screen.talk.cyan("hint:");
        if !self.report.leftovers.is_empty() {
            screen.say(&format!("{hint} {LEFTOVERS}"));
        }
        if self.report.lost_for_good().next().is_some() && self.healed.is_none() {
            screen.say(&format!("{hint} `keepstep verify --full` says where each of them was"));
            screen.say(&format!(
                "{hint} `keepstep verify --heal` looks for copies of lost values elsewhere in the store"
            ));
        } else if self.report.damage.iter().any(|damage| damage.path == "keepstep.json") {
            screen.say(&format!("{hint} `keepstep verify --heal` writes keepstep.json again"));
        } else if !self.report.is_whole() {
            screen.say(&format!(
                "{hint} what is not listed as lost is whole and readable; restore the rest from a copy"
            ));
        }
        Ok(())
    }

    fn damage_line(&self, damage: &Damage) -> String {
        let of = self.name_of_card(&damage.path).map_or(String::new(), |name| format!("{name}: "));
        let size =
            if damage.bytes > 0 { format!(", {}", counted(damage.bytes, "byte")) } else { String::new() };
        let detail = if damage.detail.is_empty() { String::new() } else { format!(": {}", damage.detail) };
        let (path, wrong) = (&damage.path, damage.wrong.name());
        format!("{of}{path}, at byte {}{size} ({wrong}){detail}", damage.offset)
    }

    /// What was lost, a line for each episode: how many records of each kind, and of how many each field.
    fn lost_by_episode(&self) -> Vec<(bool, String)> {
        let mut sums: BTreeMap<(bool, String), BTreeMap<String, u64>> = BTreeMap::new();
        for lost in &self.report.lost {
            let sum = sums.entry((lost.healed, self.name(lost.bind.as_ref(), None))).or_default();
            let kind = kind_name(lost.kind);
            *sum.entry(lost.field.map_or(kind.clone(), |field| format!("{field} of {kind}"))).or_default() +=
                1;
        }
        let told = |((is_healed, name), sum): ((bool, String), BTreeMap<String, u64>)| {
            let parts: Vec<String> = sum.iter().map(|(what, number)| told_lost(what, *number)).collect();
            (is_healed, format!("{name}: {}", parts.join(", ")))
        };
        sums.into_iter().map(told).collect()
    }

    fn orphan_line(&self, orphan: &OrphanNote) -> String {
        let OrphanNote { target, name, source, why, .. } = orphan;
        format!("note {name:?} of {source:?} on {}: {why}", self.orphan_name(orphan, target.step))
    }

    fn orphan_name(&self, orphan: &OrphanNote, step: Option<u64>) -> String {
        let target = &orphan.target;
        let run = run_reference(&orphan.run, orphan.generation.said());
        self.names.episode(&target.episode).map_or_else(
            || format!("{} of run {run}", target.episode),
            |named| named.clone().attempt(target.attempt).step(step).to_string(),
        )
    }

    fn orphan_json(&self, orphan: &OrphanNote) -> Json {
        Json::map([
            ("run", Json::from(&*orphan.run)),
            ("generation", orphan.generation.number.into()),
            ("on", Json::from(self.orphan_name(orphan, orphan.target.step))),
            ("id", orphan.target.episode.to_string().into()),
            ("attempt", orphan.target.attempt.into()),
            ("step", orphan.target.step.into()),
            ("name", Json::from(&*orphan.name)),
            ("source", Json::from(&*orphan.source)),
            ("why", Json::from(&*orphan.why)),
        ])
    }

    fn lost_line(&self, lost: &Lost) -> String {
        let kind = kind_name(lost.kind);
        let what = lost.field.map_or(format!("one {kind}, all of it"), |field| format!("its {field}"));
        let name = self.name(lost.bind.as_ref(), lost.step);
        format!(
            "{name}: {what} ({kind} {} in segment {} of {}, byte {})",
            lost.seq, lost.segment, lost.writer, lost.offset
        )
    }

    fn missing_line(&self, missing: &Missing) -> String {
        let records = counted(u64::from(missing.to.saturating_sub(missing.from)), "record");
        format!(
            "{}: {records} from sequence {} on, in the log of {}",
            self.name(Some(&missing.bind), None),
            missing.from,
            missing.writer
        )
    }

    fn json(&self) -> Json {
        let report = &self.report;
        let counts = &report.counts;
        let counts = Json::map([
            ("writers", Json::from(counts.writers)),
            ("segments", counts.segments.into()),
            ("sealed", counts.sealed.into()),
            ("bytes", counts.bytes.into()),
            ("records", counts.records.into()),
            ("references", counts.references.into()),
            ("subjects", counts.subjects.into()),
            ("cards", counts.cards.into()),
        ]);
        Json::map([
            ("whole", Json::Bool(report.is_whole())),
            ("counts", counts),
            ("damage", Json::list(report.damage.iter().map(|damage| self.damage_json(damage)))),
            ("lost", Json::list(report.lost.iter().map(|lost| self.lost_json(lost)))),
            ("missing", Json::list(report.missing.iter().map(|missing| self.missing_json(missing)))),
            ("torn", Json::list(report.torn.iter().map(torn_json))),
            ("leftovers", Json::list(report.leftovers.iter().map(|path| Json::from(&**path)))),
            ("unrecorded", Json::list(report.unrecorded.iter().map(|id| Json::from(id.to_string())))),
            ("unclaimed", Json::list(report.unclaimed.iter().map(|id| Json::from(id.to_string())))),
            ("unsealed", Json::list(report.unsealed.iter().map(|id| Json::from(id.to_string())))),
            ("orphans", Json::list(self.orphans.iter().map(|orphan| self.orphan_json(orphan)))),
            ("heal", self.healed.as_ref().map_or(Json::Null, heal_json)),
        ])
    }

    fn damage_json(&self, damage: &Damage) -> Json {
        Json::map([
            ("path", Json::from(&*damage.path)),
            ("ref", self.name_of_card(&damage.path).into()),
            ("writer", Json::from(damage.writer.map(|writer| writer.to_string()))),
            ("segment", damage.segment.into()),
            ("offset", damage.offset.into()),
            ("bytes", damage.bytes.into()),
            ("wrong", Json::from(damage.wrong.name())),
            ("detail", Json::from(&*damage.detail)),
        ])
    }

    fn lost_json(&self, lost: &Lost) -> Json {
        Json::map([
            ("ref", Json::from(lost.bind.as_ref().map(|bind| self.name(Some(bind), lost.step)))),
            ("id", Json::from(lost.bind.map(|bind| bind.id.to_string()))),
            ("attempt", Json::from(lost.bind.map(|bind| bind.attempt))),
            ("step", lost.step.into()),
            ("field", lost.field.into()),
            ("kind", Json::from(kind_name(lost.kind))),
            ("sequence", lost.seq.into()),
            ("writer", lost.writer.to_string().into()),
            ("segment", lost.segment.into()),
            ("offset", lost.offset.into()),
            ("healed", lost.healed.into()),
        ])
    }

    fn missing_json(&self, missing: &Missing) -> Json {
        Json::map([
            ("ref", Json::from(self.name(Some(&missing.bind), None))),
            ("id", missing.bind.id.to_string().into()),
            ("attempt", missing.bind.attempt.into()),
            ("from", missing.from.into()),
            ("to", missing.to.into()),
            ("writer", missing.writer.to_string().into()),
        ])
    }
}

fn list<T>(all: &[T], screen: &mut Screen, line: impl Fn(&T) -> String) -> Outcome<()> {
    all.iter().take(LINES_MAX).try_for_each(|one| screen.line(&line(one)))?;
    if all.len() > LINES_MAX {
        let more = (all.len() - LINES_MAX) as u64;
        screen.line(&format!("         … and {} more; --json has them all", count(more)))?;
    }
    Ok(())
}

/// So many of something that was lost: 2 steps, 1 call, prompt of 3 steps.
fn told_lost(what: &str, number: u64) -> String {
    match what.split_once(" of ") {
        Some((field, kind)) => format!("{field} of {}", counted(number, kind)),
        None => counted(number, what),
    }
}

fn kind_name(kind: u8) -> String {
    Kind::from_u8(kind)
        .map_or_else(|| format!("record of kind {kind:#x}"), |kind| format!("{kind:?}").to_lowercase())
}

fn torn_line(torn: &Torn) -> String {
    format!(
        "segment {} of {}, at byte {}: {} of a write that its process did not finish",
        torn.segment,
        torn.writer,
        torn.offset,
        counted(torn.bytes, "byte")
    )
}

fn heal_line(healed: &HealReport) -> String {
    let too_long = if healed.too_long > 0 {
        format!(", {} of them too long to publish", healed.too_long)
    } else {
        String::new()
    };
    let were = if healed.wanted == 1 { "was" } else { "were" };
    format!(
        "healed: {} of {} {were} found elsewhere{too_long}",
        count(healed.found),
        counted(healed.wanted, "lost value")
    )
}

fn torn_json(torn: &Torn) -> Json {
    Json::map([
        ("writer", Json::from(torn.writer.to_string())),
        ("segment", torn.segment.into()),
        ("offset", torn.offset.into()),
        ("bytes", torn.bytes.into()),
        ("records", torn.records.into()),
    ])
}

fn heal_json(healed: &HealReport) -> Json {
    Json::map([
        ("wanted", Json::from(healed.wanted)),
        ("found", healed.found.into()),
        ("too_long", healed.too_long.into()),
        ("cards", Json::list(healed.cards.iter().map(|path| Json::from(&**path)))),
    ])
}
