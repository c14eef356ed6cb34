//! Reads the episodes of one run back, with a reader of its own that has seen nothing before.

use std::collections::HashMap;
use std::path::Path;

use keepstep::read::{AttemptReader, Item};
use keepstep_format::fields;
use keepstep_format::frame::Kind;

use super::compare::ReadEpisode;
use super::content::{Key, digest_of_read};
use crate::failure::Outcome;
use crate::place::open_to_read;
use crate::reading;

/// What was read back.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    pub(crate) episodes: HashMap<Key, ReadEpisode>,
    /// Files that could not be read, and records that were there and could not be read.
    pub(crate) damaged: u64,
}

/// Reads a run.
pub(crate) fn read_back(store: &Path, run: &str) -> Outcome<ReadBack> {
    let store = open_to_read(store)?;
    let (catalog, episodes) = reading::open(&store)?;
    let mut read = ReadBack { damaged: catalog.troubles().len() as u64, ..ReadBack::default() };
    // One with steps and without a name is nobody's: it must not pass unseen.
    for episode in episodes.iter().filter(|episode| episode.run == run || episode.run.is_empty()) {
        let Some(key) = Key::from_name(&episode.task, episode.iteration, episode.sample) else {
            read.damaged += 1;
            continue;
        };
        let mut found = ReadEpisode::default();
        read.damaged += read_episode(&mut catalog.reader(&episode.key)?, &mut found)?;
        read.episodes.insert(key, found);
    }
    Ok(read)
}

/// Checks every byte of the store, whoever recorded it; gives the places of damage and what is lost or missing.
pub(crate) fn verify(store: &Path) -> Outcome<u64> {
    let report = open_to_read(store)?.verify(&mut |_| {})?;
    Ok((report.damage.len() + report.lost.len() + report.missing.len()) as u64)
}

/// Reads one episode; gives how many of its records are damaged.
fn read_episode(reader: &mut AttemptReader, found: &mut ReadEpisode) -> Outcome<u64> {
    let mut damaged = 0;
    for item in reader.records() {
        let Item::Record(record) = item? else {
            damaged += 1;
            continue;
        };
        match record.kind() {
            Some(Kind::First | Kind::Step) => {
                let index = record.get(fields::INDEX).and_then(|value| value.as_int()).unwrap_or(-1);
                let is_whole = record.lost.is_empty();
                found.steps.push((index as u64, is_whole.then(|| digest_of_read(&record.fields))));
            }
            Some(Kind::End) => {
                found.why = record.get(fields::WHY).and_then(|value| value.as_str()).map(str::to_owned)
            }
            _ => {}
        }
    }
    Ok(damaged)
}
