//! `keepstep stats`: how much there is, how many processes record, and how much smaller the store is than its records
//! in full.

use std::collections::BTreeMap;
use std::path::PathBuf;

use keepstep::read::{Catalog, Item, Sizes};

use crate::failure::Outcome;
use crate::json::Json;
use crate::numbers::{bytes, count, counted};
use crate::place::{open_to_read, store_path};
use crate::progress;
use crate::reading::{self, Episode};
use crate::screen::{Screen, shown};

/// So many attempts tell well enough how much smaller the store is.
const SAMPLE: usize = 64;

/// Arguments of `keepstep stats`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep stats                      of KEEPSTEP_STORE, or of ./runs
  keepstep stats /mnt/data/runs --full
  keepstep stats --json | jq .writers.live

`records` are those of episodes: their beginnings, steps, calls, notes and ends.
`keepstep verify` counts the pieces of the logs, each with a checksum. Those are
more, or fewer after `compact`, which packs many records into one piece.

`bytes` are those of the logs. Small files such as claims, plans and seals are
not counted.")]
pub(crate) struct Args {
    /// The store
    store: Option<PathBuf>,
    /// Read everything to tell how well it is compressed, not only a sample
    #[arg(long)]
    full: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let path = store_path(args.store.as_deref());
    let store = open_to_read(&path)?;
    let (catalog, episodes) = reading::open(&store)?;
    let mut stats = Stats::of(&catalog, &episodes);
    stats.runs = reading::runs(&store)?.len() as u64;
    stats.sample(&catalog, &episodes, args.full)?;
    if args.json {
        let id = store.id().to_string();
        screen.json(&stats.json(&path.display().to_string(), &id))?;
    } else {
        for (name, what) in stats.facts() {
            screen.line(&format!("{name:<10}{what}"))?;
        }
    }
    reading::tell_all_wrong(&store, &catalog, &episodes, screen)
}

#[derive(Debug, Default)]
struct Stats {
    runs: u64,
    episodes: u64,
    attempts: u64,
    steps: u64,
    records: u64,
    states: BTreeMap<String, u64>,
    sizes: Sizes,
    /// Episodes with which something is wrong.
    damaged: u64,
    /// Attempts with records, and how many of them were read.
    recorded: u64,
    sampled: u64,
    full_bytes: u64,
}

impl Stats {
    fn of(catalog: &Catalog, episodes: &[Episode]) -> Self {
        let mut stats = Self { sizes: catalog.sizes(), ..Self::default() };
        for episode in episodes {
            stats.attempts += 1;
            stats.records += episode.records;
            stats.recorded += u64::from(episode.records > 0);
            if episode.is_in_force {
                stats.episodes += 1;
                stats.damaged += u64::from(episode.trouble.is_some());
                stats.steps += episode.summary.steps;
                *stats.states.entry(episode.state().to_owned()).or_default() += 1;
            }
        }
        stats
    }

    /// Reads episodes, spread evenly, to see how long their records would be in full.
    fn sample(&mut self, catalog: &Catalog, episodes: &[Episode], all: bool) -> Outcome<()> {
        let step = if all { 1 } else { episodes.len().div_ceil(SAMPLE).max(1) };
        let bar = progress::bar(episodes.len().div_ceil(step) as u64, "reading");
        let (mut full_bytes, mut records) = (0u64, 0u64);
        for episode in episodes.iter().step_by(step).filter(|episode| episode.records > 0) {
            for item in catalog.reader(&episode.key)?.records() {
                let Item::Record(record) = item? else { continue };
                full_bytes += catalog.full_bytes(&record);
                records += 1;
            }
            self.sampled += 1;
            bar.inc(1);
        }
        bar.finish_and_clear();
        // The others have as many bytes in a record as those that were read.
        self.full_bytes = (full_bytes as f64 / records.max(1) as f64 * self.records as f64) as u64;
        Ok(())
    }

    /// How many times smaller the store is than its records in full.
    fn ratio(&self) -> Option<f64> {
        (self.sizes.bytes > 0 && self.full_bytes > 0)
            .then(|| (self.full_bytes as f64 / self.sizes.bytes as f64 * 10.0).round() / 10.0)
    }

    fn json(&self, path: &str, id: &str) -> Json {
        let states = self.states.iter().map(|(state, number)| (state.as_str(), Json::from(*number)));
        Json::map([
            ("store", Json::from(path)),
            ("id", Json::from(id)),
            ("runs", self.runs.into()),
            ("episodes", self.episodes.into()),
            ("attempts", self.attempts.into()),
            ("states", Json::map(states)),
            ("steps", self.steps.into()),
            ("records", self.records.into()),
            ("bytes", self.sizes.bytes.into()),
            (
                "segments",
                Json::map([
                    ("sealed", Json::from(self.sizes.sealed)),
                    ("open", self.sizes.open.into()),
                    ("unreadable", self.sizes.unreadable.into()),
                ]),
            ),
            (
                "writers",
                Json::map([
                    ("live", Json::from(self.sizes.live)),
                    ("dead", self.sizes.dead.into()),
                    ("unknown", self.sizes.unknown.into()),
                ]),
            ),
            ("full_bytes", self.full_bytes.into()),
            ("ratio", self.ratio().into()),
            ("sampled_attempts", self.sampled.into()),
            ("damaged_episodes", self.damaged.into()),
        ])
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let states: Vec<String> =
            self.states.iter().map(|(state, number)| format!("{} {state}", count(*number))).collect();
        let states =
            if states.is_empty() { String::new() } else { format!(" ({})", shown(&states.join(", "))) };
        let size = match (told_ratio(self.full_bytes, self.sizes.bytes), bytes(self.full_bytes)) {
            (None, _) => "nothing to compare yet".to_owned(),
            (Some(ratio), full) if self.sampled == self.recorded => {
                format!("{ratio} the {full} of its records in full")
            }
            (Some(ratio), full) => {
                let (some, all) = (count(self.sampled), counted(self.recorded, "attempt"));
                // An attempt that was taken over before it recorded anything has none.
                let with = if self.recorded < self.attempts { " with records" } else { "" };
                format!(
                    "about {ratio} the {full} of its records in full, estimated from {some} of {all}{with}"
                )
            }
        };
        let unreadable = if self.sizes.unreadable > 0 {
            format!(", {} unreadable", self.sizes.unreadable)
        } else {
            String::new()
        };
        let unknown =
            if self.sizes.unknown > 0 { format!(", {} silent", self.sizes.unknown) } else { String::new() };
        let segments = self.sizes.sealed + self.sizes.open + self.sizes.unreadable;
        let attempts = if self.attempts > self.episodes {
            format!(", in {}", counted(self.attempts, "attempt"))
        } else {
            String::new()
        };
        vec![
            ("runs", count(self.runs)),
            ("episodes", format!("{}{states}{attempts}", count(self.episodes))),
            ("steps", format!("{} in {} of episodes", count(self.steps), counted(self.records, "record"))),
            ("bytes", format!("{} in {}", bytes(self.sizes.bytes), counted(segments, "segment"))),
            ("size", size),
            (
                "segments",
                format!("{} sealed, {} open{unreadable}", count(self.sizes.sealed), count(self.sizes.open)),
            ),
            ("writers", format!("{} live, {} gone{unknown}", count(self.sizes.live), count(self.sizes.dead))),
        ]
    }
}

/// How large a store is beside its records in full; `None` if there is nothing to compare.
fn told_ratio(full_bytes: u64, store_bytes: u64) -> Option<String> {
    if full_bytes == 0 || store_bytes == 0 {
        return None;
    }
    let (smaller, larger) = (full_bytes as f64 / store_bytes as f64, store_bytes as f64 / full_bytes as f64);
    // As they are rounded: "1 times" says nothing.
    let round = |times: f64| (times * 10.0).round() / 10.0;
    Some(match (round(smaller), round(larger)) {
        (times, _) if times > 1.0 => format!("{times} times smaller than"),
        (_, times) if times > 1.0 => format!("{times} times larger than"),
        _ => "as large as".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Stats, told_ratio};

    /// "in 317 attempts, estimated from 63 of 315 attempts": the second were those with records, and nobody said so.
    #[test]
    fn what_is_estimated_says_from_which_attempts() {
        let mut stats =
            Stats { attempts: 317, recorded: 315, sampled: 63, full_bytes: 300, ..Stats::default() };
        stats.sizes.bytes = 100;
        let size =
            |stats: &Stats| stats.facts().into_iter().find(|(name, _)| *name == "size").map(|(_, it)| it);
        assert!(
            size(&stats).is_some_and(|said| said.ends_with("estimated from 63 of 315 attempts with records"))
        );
        stats.attempts = 315;
        assert!(size(&stats).is_some_and(|said| said.ends_with("estimated from 63 of 315 attempts")));
    }

    /// A store that was larger than its records was "0.7 times smaller".
    #[test]
    fn a_store_is_said_to_be_smaller_or_larger_and_never_a_fraction_of_it() {
        let told = |full, store| told_ratio(full, store).unwrap_or_default();
        assert_eq!(told(1410, 100), "14.1 times smaller than");
        assert_eq!(told(110, 100), "1.1 times smaller than");
        assert_eq!([told(104, 100), told(100, 100), told(96, 100)], ["as large as"; 3]);
        assert_eq!(told(70, 100), "1.4 times larger than");
        assert_eq!([told(0, 100), told(100, 0)], [""; 2]);
    }
}
