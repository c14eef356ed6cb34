//! A plan: the episodes that a run should have. It is durable and only grows; planning the same again adds nothing.

pub(in crate::store) mod card;
pub(in crate::store) mod in_a_row;
pub(in crate::store) mod progress;
pub(in crate::store) mod remaining;
pub(in crate::store) mod scoring;
pub(in crate::store) mod survey;

use std::collections::BTreeSet;
use std::sync::Arc;

use keepstep_format::card::kind;
use keepstep_format::fields;
use keepstep_format::value::Value;

use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::segment::cards::{BodyFound, Published, publish_card, read_body};
use crate::store::name::{EpisodeName, check_number};
use crate::store::plan::card::{PlanCard, TaskSamples};
use crate::store::planned::tasks::{Plan, PlannedTask};
use crate::store::run::Run;
use crate::write::check_name;

/// How many samples of one task and iteration can be planned.
pub(in crate::store) const SAMPLES_MAX: u32 = 1 << 20;
/// How many episodes the plan of one run can have.
const EPISODES_MAX: u64 = 1 << 28;
/// About how many bytes are put into one card, which may have 64 MiB. The rest goes into the next card.
const CARD_BYTES: usize = 48 << 20;
/// How many bytes an entry takes beside the name of its task.
const ENTRY_BYTES: usize = 64;

/// What to plan for each task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct PlanOptions {
    /// How many samples; they are numbered from 0.
    pub samples: u32,
    /// Which visit of the tasks.
    pub iteration: i64,
    /// Names of notes that an episode must have before it counts as done.
    pub needs: Vec<String>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { samples: 1, iteration: 0, needs: Vec::new() }
    }
}

impl PlanOptions {
    /// Sets how many samples of each task.
    pub fn samples(mut self, samples: u32) -> Self {
        self.samples = samples;
        self
    }

    /// Sets which visit of the tasks.
    pub fn iteration(mut self, iteration: i64) -> Self {
        self.iteration = iteration;
        self
    }

    /// Sets the names of notes that an episode must have before it counts as done.
    pub fn needs(mut self, notes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.needs = notes.into_iter().map(Into::into).collect();
        self
    }
}

impl Run {
    /// Plans episodes: a number of samples of each task. What is planned already adds nothing; more samples of a
    /// known task are added. Durable when it returns.
    ///
    /// ```
    /// use keepstep::{PlanOptions, RemainingOptions};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-plan-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// run.plan(["shop-17", "shop-18"], PlanOptions::default().samples(4).needs(["score"]))?;
    /// assert_eq!(run.progress(&RemainingOptions::default())?.planned, 8);
    /// # drop(run);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn plan(
        &self,
        tasks: impl IntoIterator<Item = impl Into<String>>,
        options: PlanOptions,
    ) -> Result<()> {
        self.store().check_open()?;
        if options.samples == 0 || options.samples > SAMPLES_MAX {
            return Err(Error::BadInput {
                field: "samples".to_owned(),
                value: format!("is {}", options.samples),
                fix: format!("give 1 to {SAMPLES_MAX}"),
            });
        }
        check_number("iteration", options.iteration)?;
        // A note that nobody can give would leave the plan open for ever.
        options.needs.iter().try_for_each(|name| check_name("needs", name))?;
        let plan_cache = self.plan_cache();
        let mut plan = plan_cache.plan();
        plan.refresh(self)?;
        let mut wanted: Vec<String> = tasks.into_iter().map(Into::into).collect();
        loop {
            plan.keep_new(&mut wanted, &options);
            plan.check_room(&wanted, &options)?;
            if wanted.is_empty() {
                // The process that planned it may not have synced it yet.
                let folder = self.path("plan");
                let folder = disk::parent(&folder);
                return self.store().disk().settle(folder).doing("sync", folder);
            }
            let chunk = &wanted[..fits_a_card(&wanted)];
            let path = self.path(&format!("plan.{}", plan.next));
            match publish_card(self.store().cards(), &path, kind::PLAN, &self.plan_fields(chunk, &options))? {
                // It is ours, or that of a process that was faster. Both are read like any other card.
                Published::Done | Published::Taken => {
                    plan.refresh(self)?;
                }
                Published::Unfit => {
                    return Err(Error::BadInput {
                        field: "tasks".to_owned(),
                        value: format!("have a name of {} bytes", longest(chunk)),
                        fix: "names and needs must fit into a card of 64 MiB".to_owned(),
                    });
                }
            }
        }
    }

    /// All planned tasks: task, iteration and number of samples, in the order of planning.
    pub fn planned(&self) -> Result<Vec<(String, i64, u32)>> {
        self.store().check_process()?;
        let plan_cache = self.plan_cache();
        let mut plan = plan_cache.plan();
        plan.refresh(self)?;
        Ok(plan.tasks.iter().map(|it| (it.task.to_string(), it.iteration, it.samples)).collect())
    }

    fn plan_fields(&self, tasks: &[String], options: &PlanOptions) -> Vec<(u8, Value)> {
        let (task, iteration, samples) =
            (Value::from("task"), Value::from("iteration"), Value::from("samples"));
        let entries = tasks.iter().map(|name| {
            Value::map([
                (task.clone(), Value::from(name.as_str())),
                (iteration.clone(), Value::Int(options.iteration)),
                (samples.clone(), Value::Int(i64::from(options.samples))),
            ])
        });
        let needs = options.needs.iter().map(|name| Value::from(name.as_str()));
        let mut out = vec![(fields::TIME, Value::Int(self.store().disk().now_us()))];
        out.extend(self.store().writer_id().map(|writer| (fields::WRITER, Value::bytes(writer.0))));
        out.push((fields::PLANNED, Value::list(entries)));
        out.push((fields::NEEDS, Value::list(needs)));
        out
    }
}

/// How many of the tasks fit into one card; at least one, so that a name that is too long is reported.
fn fits_a_card(tasks: &[String]) -> usize {
    let mut bytes = 0;
    let fits = tasks.iter().take_while(|task| {
        bytes += task.len() + ENTRY_BYTES;
        bytes <= CARD_BYTES
    });
    fits.count().max(1)
}

fn longest(tasks: &[String]) -> usize {
    tasks.iter().map(String::len).max().unwrap_or(0)
}

impl Plan {
    /// Reads the cards that are new. True if there were any.
    pub(in crate::store) fn refresh(&mut self, run: &Run) -> Result<bool> {
        let before = self.next;
        loop {
            let path = run.path(&format!("plan.{}", self.next));
            let damaged =
                |found: &str| Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() };
            match read_body(run.store().cards(), &path, kind::PLAN)? {
                BodyFound::Nothing => {
                    self.refuse_gap(run, &path)?;
                    return Ok(self.next > before);
                }
                // Ignoring the card would forget planned episodes.
                BodyFound::Damaged => return Err(damaged("it does not validate")),
                BodyFound::Body(body) => {
                    let card = PlanCard::read(&body);
                    let added = card.and_then(|card| self.add_card(&card));
                    added.ok_or_else(|| damaged("it does not say what is planned"))?;
                }
            }
            self.next += 1;
        }
    }

    /// An error if the card is missing although a later one exists: cards are numbered without gaps, and never
    /// deleted. Checked once.
    fn refuse_gap(&mut self, run: &Run, next: &str) -> Result<()> {
        if self.is_dense {
            return Ok(());
        }
        let (folder, first) = next.rsplit_once('/').unwrap_or(("", next));
        let stem = first.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let names = run.store().disk().list(folder).doing("list", folder)?;
        let behind = names.iter().filter_map(|it| it.name.strip_prefix(stem)?.parse::<u64>().ok());
        if behind.filter(|number| *number > self.next).count() > 0 {
            // It may have been published since; later cards come after it.
            if run.store().disk().exists(next).doing("look for", next)? {
                return Ok(());
            }
            let found = "it is gone, and there is a later one".to_owned();
            return Err(Error::Damaged { path: next.to_owned(), offset: 0, found });
        }
        self.is_dense = true;
        Ok(())
    }

    fn add_card(&mut self, card: &PlanCard<'_>) -> Option<()> {
        self.tasks.reserve(card.entries.len());
        for TaskSamples { task, iteration, samples } in &card.entries {
            let samples = u32::try_from(*samples).ok().filter(|samples| *samples <= SAMPLES_MAX)?;
            self.add(task, *iteration, samples, &card.needs);
        }
        (self.episodes <= EPISODES_MAX).then_some(())
    }

    fn add(&mut self, task: &str, iteration: i64, samples: u32, needs: &BTreeSet<String>) {
        if let Some(index) = self.find(task, iteration) {
            let known = &mut self.tasks[index];
            self.episodes += u64::from(samples.saturating_sub(known.samples));
            known.samples = known.samples.max(samples);
            known.needs.extend(needs.iter().cloned());
            return;
        }
        let (task, index): (Arc<str>, usize) = (Arc::from(task), self.tasks.len());
        self.by_name.entry(iteration).or_default().insert(Arc::clone(&task), index);
        self.episodes += u64::from(samples);
        self.tasks.push(PlannedTask { task, iteration, samples, needs: needs.clone() });
    }

    /// How many samples of a task are planned, if it is.
    pub(in crate::store) fn samples_of(&self, task: &str, iteration: i64) -> Option<u32> {
        self.find(task, iteration).map(|index| self.tasks[index].samples)
    }

    fn find(&self, task: &str, iteration: i64) -> Option<usize> {
        self.by_name.get(&iteration)?.get(task).copied()
    }

    /// Keeps the tasks that are not planned yet, each once.
    fn keep_new(&self, wanted: &mut Vec<String>, options: &PlanOptions) {
        let is_planned = |task: &str| {
            self.find(task, options.iteration).is_some_and(|index| {
                let known = &self.tasks[index];
                known.samples >= options.samples && options.needs.iter().all(|it| known.needs.contains(it))
            })
        };
        wanted.retain(|task| !is_planned(task));
        let mut seen = std::collections::HashSet::new();
        let is_first: Vec<bool> = wanted.iter().map(|task| seen.insert(task.as_str())).collect();
        let mut is_first = is_first.into_iter();
        wanted.retain(|_| is_first.next().unwrap_or(true));
    }

    fn check_room(&self, wanted: &[String], options: &PlanOptions) -> Result<()> {
        let more = wanted.len() as u64 * u64::from(options.samples);
        if self.episodes + more <= EPISODES_MAX {
            return Ok(());
        }
        Err(Error::BadInput {
            field: "tasks".to_owned(),
            value: format!("make up to {more} episodes, and {} are planned", self.episodes),
            fix: format!("plan at most {EPISODES_MAX} in one run; make another for the rest"),
        })
    }
}

impl PlannedTask {
    /// The name of one of its samples.
    pub(in crate::store) fn episode(&self, sample: u32) -> EpisodeName {
        EpisodeName { task: self.task.to_string(), iteration: self.iteration, sample: i64::from(sample) }
    }
}
