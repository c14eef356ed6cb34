//! `keepstep diff`: two episodes or attempts, aligned by step: where they part, and in what.

use std::path::PathBuf;

use keepstep::format::step_fields;
use keepstep::read::{Catalog, EpisodeEvent};
use keepstep::{EpisodeEvents, Store, Value, View};

use crate::columns::broken;
use crate::failure::{Exit, Outcome};
use crate::json::{self, Json};
use crate::numbers::{count, counted};
use crate::place::{open_taken, split_before};
use crate::reading::{self, Episode};
use crate::render::Rendered;
use crate::screen::{Screen, shown};
use crate::value_diff::{Difference, compare};
use crate::verbs::ls::parse_all;

/// More differences of one step would hide where they began.
const SHOWN_MAX: usize = 20;

/// The text of `--help` is no wider, like that of the other commands.
const HELP_COLUMNS: usize = 80;

/// How they ended, beside the steps.
const ENDING: &str = "ending";

const EXAMPLES: &str = "Examples:
  keepstep diff shop/17#0.0 shop/17#0.1       two samples of a task
  keepstep diff shop/17~0 shop/17~1           two attempts at an episode
  keepstep diff A B --fields action,reward --all
  keepstep diff A B --json | jq 'select(.what == \"difference\") | .path'";

const EXIT_CODES: &str = "Exit codes: 0 the same, 1 they differ, 3 some of it is damaged and could not be
compared.";

/// The fields are those of the table, so that a new one is named here too.
fn help() -> String {
    let fields: Vec<&str> = step_fields::ALL.iter().map(|field| field.name).collect();
    let compared = format!(
        "Steps of the same number are compared, field by field: {}. Then how the two ended ({ENDING}). \
         Times, places and processes are not compared.",
        fields.join(", ")
    );
    format!("{EXAMPLES}\n\n{}\n\n{EXIT_CODES}", broken(&compared, HELP_COLUMNS).join("\n"))
}

/// Arguments of `keepstep diff`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    override_usage = "keepstep diff [OPTIONS] [STORE] <A> <B>",
    after_help = help()
)]
pub(crate) struct Args {
    /// The store, if you do not name it first
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// Perhaps a store, then A and B: two episodes or attempts
    #[arg(required = true, value_name = "STORE|REF")]
    targets: Vec<String>,
    /// Show all steps that differ, not only the first
    #[arg(long)]
    all: bool,
    /// Compare only these fields; several with commas
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    fields: Vec<String>,
    /// Print a line of JSON for each difference, and one for the whole
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let is_field = |field: &str| step_fields::named(field).is_some() || field == ENDING;
    if let Some(wrong) = args.fields.iter().find(|field| !is_field(field)) {
        let names: Vec<&str> = step_fields::ALL.iter().map(|field| field.name).collect();
        let hint = format!("--fields takes {}, {ENDING}", names.join(", "));
        return Err(crate::usage(format!("steps have no field {wrong:?}"), hint));
    }
    let (path, refs) = split_before(args.store.as_deref(), &args.targets, 2);
    let refs = parse_all(&refs)?;
    if refs.len() != 2 {
        let named = counted(refs.len() as u64, "episode");
        let hint = "name two episodes or attempts; a store may come before them";
        return Err(crate::usage(format!("two are compared, and {named} named"), hint));
    }
    if let Some((text, _)) = refs.iter().find(|(_, wanted)| wanted.step.is_some()) {
        let hint = "leave @step out: all steps are compared";
        return Err(crate::usage(format!("{text:?} is a step, and episodes are compared"), hint));
    }
    let store = open_taken(args.store.as_deref(), &path, refs.first().map(|(text, _)| &**text))?;
    let (catalog, episodes) = reading::open(&store)?;
    let side = |at: usize| Side::open(&store, &catalog, &episodes, &refs[at]);
    let compared = Compared { args, sides: [side(0)?, side(1)?], sums: Sums::default() }.run(screen)?;
    Ok(compared.worse(reading::tell_troubles(&catalog, screen)?))
}

/// One of the two.
struct Side<'a> {
    episode: &'a Episode,
    view: View,
}

impl<'a> Side<'a> {
    fn open(
        store: &Store,
        catalog: &Catalog,
        episodes: &'a [Episode],
        (text, wanted): &(String, keepstep::refs::Ref),
    ) -> Outcome<Self> {
        let episode = reading::one(store, episodes, text, wanted)?;
        Ok(Self { episode, view: store.view_of(catalog, &episode.key)? })
    }

    fn rows(&self) -> Rows<'_> {
        Rows { view: &self.view, told: self.view.events(), is_over: false, damaged: 0 }
    }
}

/// The steps of one side, and at last the turn that is pending.
struct Rows<'v> {
    view: &'v View,
    told: EpisodeEvents<'v>,
    is_over: bool,
    damaged: u64,
}

impl Rows<'_> {
    fn next(&mut self) -> Outcome<Option<Row>> {
        for told in self.told.by_ref() {
            let told = told?;
            self.damaged += u64::from(told.is_loss());
            // What is beside the steps is not compared.
            if let EpisodeEvent::Step(step) = &told {
                self.damaged += u64::from(!step.damaged.is_empty());
                return Ok(Some(Row { index: step.index, entry: Rendered::of_event(&told) }));
            }
        }
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(None);
        }
        let (pending, has_ended) = (self.view.pending()?, self.view.ending()?.is_some());
        Ok(pending.map(|step| Row { index: step.index, entry: Rendered::of_pending(&step, has_ended) }))
    }
}

/// A step.
struct Row {
    index: i64,
    entry: Rendered,
}

/// What was found.
#[derive(Default)]
struct Sums {
    steps: [u64; 2],
    /// Steps that are the same, before the first that is not.
    same: u64,
    differing: u64,
    first: Option<i64>,
    last: i64,
    only: [u64; 2],
    endings_differ: bool,
    damaged: u64,
}

struct Compared<'a> {
    args: &'a Args,
    sides: [Side<'a>; 2],
    sums: Sums,
}

impl Compared<'_> {
    fn run(mut self, screen: &mut Screen) -> Outcome {
        if !self.args.json {
            self.heading(screen)?;
        }
        let sums = self.compare_steps(screen)?;
        self.sums = sums;
        self.compare_endings(screen)?;
        if self.args.json {
            screen.json(&self.summary_json())?;
        } else {
            screen.line(&self.summary())?;
        }
        screen.flush()?;
        let compared = self.sides.each_ref().map(|side| side.episode.clone());
        let wrong = reading::tell_wrong(&compared, screen)?;
        if self.sums.damaged > 0 {
            let damaged = counted(self.sums.damaged, "place");
            screen.say(&format!(
                "{} {damaged}, compared as far as they can be read",
                screen.talk.red("damaged:")
            ));
            screen.say(&format!("{} `keepstep verify` says what it cost", screen.talk.cyan("hint:")));
            return Ok(Exit::Lost);
        }
        Ok(wrong.worse(if self.is_same() { Exit::Done } else { Exit::Failed }))
    }

    fn is_same(&self) -> bool {
        self.sums.differing == 0 && !self.sums.endings_differ
    }

    fn is_compared(&self, field: &str) -> bool {
        self.args.fields.is_empty() || self.args.fields.iter().any(|wanted| wanted == field)
    }

    fn heading(&self, screen: &mut Screen) -> Outcome<()> {
        for (name, side) in ["A", "B"].iter().zip(&self.sides) {
            let reference = side.episode.reference().to_string();
            let state = side.episode.state();
            let told = format!("{}, {state}", counted(side.view.steps(), "step"));
            screen.line(&format!("{name}  {}  {}", screen.data.bold(&shown(&reference)), shown(&told)))?;
        }
        screen.line("")
    }

    /// Pairs steps of the same number. Of a number that only one side has, that side's step differs.
    fn compare_steps(&self, screen: &mut Screen) -> Outcome<Sums> {
        let mut sums = Sums::default();
        let [mut rows_a, mut rows_b] = [self.sides[0].rows(), self.sides[1].rows()];
        let (mut a, mut b) = (rows_a.next()?, rows_b.next()?);
        while let Some(index) = a.iter().chain(&b).map(|row| row.index).min() {
            let here_a = a.take_if(|row| row.index == index);
            let here_b = b.take_if(|row| row.index == index);
            let differences = self.differences(here_a.as_ref(), here_b.as_ref());
            if differences.is_empty() {
                sums.same += u64::from(sums.first.is_none());
            } else {
                let is_first = sums.first.is_none();
                sums.first.get_or_insert(index);
                sums.last = index;
                sums.differing += 1;
                sums.only[0] += u64::from(here_b.is_none());
                sums.only[1] += u64::from(here_a.is_none());
                if is_first || self.args.all {
                    self.show_step(index, &differences, screen)?;
                }
            }
            if here_a.is_some() {
                a = rows_a.next()?;
            }
            if here_b.is_some() {
                b = rows_b.next()?;
            }
        }
        sums.steps = [self.sides[0].view.steps(), self.sides[1].view.steps()];
        sums.damaged = rows_a.damaged + rows_b.damaged;
        Ok(sums)
    }

    fn differences(&self, a: Option<&Row>, b: Option<&Row>) -> Vec<Difference> {
        let mut out = Vec::new();
        let is_there = |row: Option<&Row>| row.map(|row| Value::from(row.entry.what.as_str()));
        compare("turn", is_there(a).as_ref(), is_there(b).as_ref(), &mut out);
        let (Some(a), Some(b)) = (a, b) else { return out };
        // Times, writers and places always differ.
        for field in step_fields::ALL.iter().map(|field| field.name).filter(|field| self.is_compared(field)) {
            compare(field, a.entry.get(field), b.entry.get(field), &mut out);
        }
        out
    }

    fn show_step(&self, index: i64, differences: &[Difference], screen: &mut Screen) -> Outcome<()> {
        if self.args.json {
            return differences.iter().try_for_each(|it| screen.json(&difference_json(Some(index), it)));
        }
        screen.line(&screen.data.bold(&format!("step {index}")))?;
        show_differences(differences, screen)
    }

    fn compare_endings(&mut self, screen: &mut Screen) -> Outcome<()> {
        if !self.is_compared(ENDING) {
            return Ok(());
        }
        let ending = |side: &Side<'_>| -> Outcome<Value> {
            let end = side.view.ending()?.unwrap_or_default();
            let texts =
                [("why", end.why), ("limit", end.limit)].map(|(name, text)| (name, text.map(Value::from)));
            let all = texts.into_iter().chain([("error", end.error)]);
            Ok(Value::map(all.filter_map(|(name, value)| Some((name, value?)))))
        };
        let (a, b) = (ending(&self.sides[0])?, ending(&self.sides[1])?);
        let mut differences = Vec::new();
        compare(ENDING, Some(&a), Some(&b), &mut differences);
        if differences.is_empty() {
            return Ok(());
        }
        self.sums.endings_differ = true;
        if self.args.json {
            return differences.iter().try_for_each(|it| screen.json(&difference_json(None, it)));
        }
        screen.line(&screen.data.bold(ENDING))?;
        show_differences(&differences, screen)
    }

    fn summary(&self) -> String {
        let Sums { steps, same, differing, first, last, only, endings_differ, .. } = &self.sums;
        let endings = if *endings_differ { "; they ended differently" } else { "" };
        let Some(first) = first else {
            return format!(
                "all {} are the same{endings}",
                counted(*steps.iter().max().unwrap_or(&0), "step")
            );
        };
        let up_to = match same {
            0 => "different from the first step on".to_owned(),
            same => format!("the same up to step {} ({})", first - 1, counted(*same, "step")),
        };
        let which =
            if *differing == 1 { format!("step {first}") } else { format!("steps {first} to {last}") };
        let mut out = format!("{up_to}; {} in {which}", differ(*differing));
        for (name, only) in ["A", "B"].iter().zip(only).filter(|(_, only)| **only > 0) {
            out += &format!(", {} only in {name}", count(*only));
        }
        out + endings
    }

    fn summary_json(&self) -> Json {
        let Sums { steps, same, differing, first, only, endings_differ, damaged, .. } = &self.sums;
        let name = |at: usize| Json::from(self.sides[at].episode.reference().to_string());
        Json::map([
            ("what", Json::from("summary")),
            ("a", name(0)),
            ("b", name(1)),
            ("same", self.is_same().into()),
            ("steps_a", steps[0].into()),
            ("steps_b", steps[1].into()),
            ("same_steps", (*same).into()),
            ("first_difference", (*first).into()),
            ("differing_steps", (*differing).into()),
            ("only_a", only[0].into()),
            ("only_b", only[1].into()),
            ("endings_differ", (*endings_differ).into()),
            ("damaged", (*damaged).into()),
        ])
    }
}

fn differ(steps: u64) -> String {
    if steps == 1 { "1 step differs".to_owned() } else { format!("{} steps differ", count(steps)) }
}

fn show_differences(differences: &[Difference], screen: &mut Screen) -> Outcome<()> {
    for difference in differences.iter().take(SHOWN_MAX) {
        let (a, b) = difference.sides();
        screen.line(&format!("  {}", shown(&difference.path)))?;
        screen.line(&format!("    {} {a}", screen.data.red("A")))?;
        screen.line(&format!("    {} {b}", screen.data.green("B")))?;
    }
    if differences.len() > SHOWN_MAX {
        let more = counted((differences.len() - SHOWN_MAX) as u64, "more place");
        screen.line(&format!("  … and {more}; --json prints all"))?;
    }
    screen.line("")
}

/// A side that has nothing there is left out: absence is no null.
fn difference_json(step: Option<i64>, difference: &Difference) -> Json {
    let mut entries = vec![("what", Json::from("difference"))];
    entries.extend(step.map(|step| ("step", Json::from(step))));
    entries.push(("path", Json::from(&*difference.path)));
    entries.extend(difference.a.as_ref().map(|value| ("a", json::value(value))));
    entries.extend(difference.b.as_ref().map(|value| ("b", json::value(value))));
    Json::map(entries)
}
