//! The manifest: which segments of `compact` are in force, which logs they replace, and what was pruned.
//!
//! Only the manifest with the highest number counts. Files that it names for deletion do not exist for readers, even
//! if they are still there.

use std::collections::{BTreeMap, BTreeSet};

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::cards::{CardFound, Fields, as_id, read_card};
use super::names::{list_manifests, manifest_copy_path, manifest_path, parse_segment_path};
use super::storage::Storage;
use crate::error::{Doing, Error, Result};

/// An attempt that was deleted on request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The episode.
    pub episode: Id,
    /// Which attempt of the episode.
    pub attempt: u32,
    /// Why it was deleted.
    pub reason: String,
    /// When, in microseconds since 1970.
    pub time: i64,
}

/// The announcement that an episode will be pruned, after its owners were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The episode.
    pub episode: Id,
    /// A random id of the pruning process's call, so that no other call takes the announcement for its own.
    pub by: Id,
    /// When, in microseconds since 1970.
    pub time: i64,
}

/// A file that is waiting to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doomed {
    /// Its path.
    pub path: String,
    /// Since when, in microseconds since 1970.
    pub time: i64,
}

/// Which segments are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Its number; `None` if there never was one.
    pub number: Option<u64>,
    /// The segments in `grouped/` that count, and their lengths.
    pub held: BTreeMap<u64, u64>,
    /// Files that do not count any more.
    pub to_delete: Vec<Doomed>,
    /// Attempts that were deleted, by episode.
    pub pruned: Vec<Pruned>,
    /// Episodes that are announced for pruning. They count until they are pruned.
    pub pruning: Vec<Announced>,
    /// Writers whose logs were closed and replaced as a whole, each with its last segment that counted and the length
    /// of that. Nothing else in their folders counts: it was written without an acknowledgement.
    pub closed: BTreeMap<Id, (u64, u64)>,
    /// True if the card itself is damaged, and this was read from its copy.
    pub is_from_copy: bool,
    replaced: BTreeSet<(Id, u64)>,
    pruned_episodes: BTreeMap<Id, usize>,
}

impl Manifest {
    /// The newest manifest. A store that was never compacted has none: then everything is as its writers left it.
    pub(crate) fn newest(storage: &Storage) -> Result<Self> {
        let Some(number) = list_manifests(storage.disk())?.last().copied() else {
            return Ok(Self::default());
        };
        for (path, is_from_copy) in [(manifest_path(number), false), (manifest_copy_path(number), true)] {
            if let CardFound::Card(card) = read_card(storage, &path, kind::MANIFEST)?
                && let Some(manifest) = Self::from_fields(number, &card)
            {
                return Ok(Self { is_from_copy, ..manifest });
            }
        }
        let found = "without it, it is unknown which segments count: restore it from a backup".to_owned();
        Err(Error::Damaged { path: manifest_path(number), offset: 0, found })
    }

    /// True if there is a newer one now.
    pub(crate) fn is_outdated(&self, storage: &Storage) -> Result<bool> {
        let path = manifest_path(self.next_number());
        storage.disk().exists(&path).doing("look for", &path)
    }

    /// The number of the next one.
    pub(crate) fn next_number(&self) -> u64 {
        self.number.map_or(0, |number| number + 1)
    }

    /// The next manifest, with other segments.
    #[must_use]
    pub(crate) fn followed_by(&self, held: BTreeMap<u64, u64>, to_delete: Vec<Doomed>) -> Self {
        let (number, pruned, pruning) = (Some(self.next_number()), self.pruned.clone(), self.pruning.clone());
        let closed = self.closed.clone();
        Self { number, held, to_delete, pruned, pruning, closed, ..Self::default() }.indexed()
    }

    /// The same, with more closed logs.
    #[must_use]
    pub(crate) fn with_closed(mut self, closed: impl Iterator<Item = (Id, (u64, u64))>) -> Self {
        self.closed.extend(closed);
        self
    }

    /// The next manifest, with the same segments.
    #[must_use]
    pub(crate) fn with_pruning(&self, pruned: Vec<Pruned>, pruning: Vec<Announced>) -> Self {
        let same = self.followed_by(self.held.clone(), self.to_delete.clone());
        Self { pruned, pruning, ..same }.indexed()
    }

    /// True if an episode is announced for pruning.
    pub(crate) fn is_announced(&self, episode: &Id) -> bool {
        self.pruning.iter().any(|it| it.episode == *episode)
    }

    /// All episodes that were pruned.
    pub(crate) fn pruned_episodes(&self) -> impl Iterator<Item = &Id> {
        self.pruned_episodes.keys()
    }

    /// True if a segment was replaced, and does not count any more.
    pub(crate) fn is_replaced(&self, writer: &Id, number: u64) -> bool {
        self.closed.contains_key(writer) || self.replaced.contains(&(*writer, number))
    }

    /// The note that an episode was pruned, if it was.
    pub(crate) fn pruned(&self, episode: &Id) -> Option<&Pruned> {
        self.pruned_episodes.get(episode).map(|&index| &self.pruned[index])
    }

    /// An error if an episode was pruned.
    pub(crate) fn refuse_pruned(&self, episode: &Id) -> Result<()> {
        let Some(Pruned { reason, time, .. }) = self.pruned(episode) else { return Ok(()) };
        Err(Error::Pruned { what: format!("episode {episode}"), reason: reason.clone(), time: *time })
    }

    /// As the fields of a card.
    pub(crate) fn to_fields(&self, time: i64) -> Vec<(u8, Value)> {
        let int = |number: u64| Value::Int(number as i64);
        let held = self.held.iter();
        let held =
            held.map(|(&number, &bytes)| Value::map([("segment", int(number)), ("bytes", int(bytes))]));
        let doomed = self.to_delete.iter();
        let doomed = doomed
            .map(|it| Value::map([("path", Value::from(it.path.as_str())), ("time", Value::Int(it.time))]));
        let pruned = self.pruned.iter().map(|it| {
            Value::map([
                ("episode", Value::bytes(it.episode.0)),
                ("attempt", Value::Int(i64::from(it.attempt))),
                ("reason", Value::from(it.reason.as_str())),
                ("time", Value::Int(it.time)),
            ])
        });
        let pruning = self.pruning.iter().map(|it| {
            Value::map([
                ("episode", Value::bytes(it.episode.0)),
                ("by", Value::bytes(it.by.0)),
                ("time", Value::Int(it.time)),
            ])
        });
        let mut out = vec![(fields::TIME, Value::Int(time))];
        if !self.closed.is_empty() {
            let closed = self.closed.iter().map(|(writer, &(segment, bytes))| {
                Value::map([
                    ("writer", Value::bytes(writer.0)),
                    ("segment", int(segment)),
                    ("bytes", int(bytes)),
                ])
            });
            out.push((fields::CLOSED, Value::list(closed)));
        }
        out.extend([
            (fields::HELD, Value::list(held)),
            (fields::TO_DELETE, Value::list(doomed)),
            (fields::PRUNED, Value::list(pruned)),
        ]);
        if !self.pruning.is_empty() {
            out.push((fields::PRUNING, Value::list(pruning)));
        }
        out
    }

    fn from_fields(number: u64, card: &Fields) -> Option<Self> {
        let list = |field| card.get(field).and_then(Value::as_list);
        let size = |value: &Value, key: &str| u64::try_from(value.get(key)?.as_int()?).ok();
        let held = list(fields::HELD)?.iter().map(|it| Some((size(it, "segment")?, size(it, "bytes")?)));
        let doomed = |it: &Value| {
            let path = it.get("path")?.as_str()?.to_owned();
            Some(Doomed { path, time: it.get("time")?.as_int()? })
        };
        let pruned = |it: &Value| {
            Some(Pruned {
                episode: as_id(it.get("episode")?)?,
                attempt: u32::try_from(it.get("attempt")?.as_int()?).ok()?,
                reason: it.get("reason")?.as_str()?.to_owned(),
                time: it.get("time")?.as_int()?,
            })
        };
        let announced = |it: &Value| {
            let (episode, by) = (as_id(it.get("episode")?)?, as_id(it.get("by")?)?);
            Some(Announced { episode, by, time: it.get("time")?.as_int()? })
        };
        let closed =
            |it: &Value| Some((as_id(it.get("writer")?)?, (size(it, "segment")?, size(it, "bytes")?)));
        let manifest = Self {
            number: Some(number),
            held: held.collect::<Option<_>>()?,
            to_delete: list(fields::TO_DELETE)?.iter().map(doomed).collect::<Option<_>>()?,
            pruned: list(fields::PRUNED)?.iter().map(pruned).collect::<Option<_>>()?,
            pruning: list(fields::PRUNING)
                .unwrap_or_default()
                .iter()
                .map(announced)
                .collect::<Option<_>>()?,
            closed: list(fields::CLOSED).unwrap_or_default().iter().map(closed).collect::<Option<_>>()?,
            ..Self::default()
        };
        Some(manifest.indexed())
    }

    fn indexed(mut self) -> Self {
        self.replaced = self.to_delete.iter().filter_map(|it| parse_segment_path(&it.path)).collect();
        let pruned = self.pruned.iter().enumerate();
        self.pruned_episodes = pruned.map(|(index, it)| (it.episode, index)).collect();
        self
    }
}
