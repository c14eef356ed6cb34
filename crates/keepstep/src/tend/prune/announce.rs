//! Says that episodes are about to be pruned, before it is looked whether anybody has them.
//!
//! Whoever prunes announces, then looks for claims, then notes; whoever takes an episode over claims, then looks for an
//! announcement and withdraws it. So one of the two sees the other, and since manifests come one by one, a note cannot
//! follow an announcement that was withdrawn. To drop an announcement is always safe: then less is pruned.

use std::collections::BTreeSet;

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::segment::{Announced, Manifest, Pruned, Storage};
use crate::tend::compact::put_in_force;

/// How many times a race is lost before it counts as trouble.
const TRIES_MAX: usize = 64;
/// Whoever announced something so long ago was killed before it could note it.
const ANNOUNCED_MAX_US: i64 = 24 * 3600 * 1_000_000;

/// Announces that these episodes are about to go.
pub(super) fn announce(storage: &Storage, episodes: &BTreeSet<Id>, by: Id) -> Result<()> {
    let time = storage.disk().now_us();
    let is_fresh = |it: &&Announced| time.saturating_sub(it.time) < ANNOUNCED_MAX_US;
    amend(storage, |before| {
        let mut pruning: Vec<Announced> = before.pruning.iter().filter(is_fresh).cloned().collect();
        pruning.extend(episodes.iter().map(|&episode| Announced { episode, by, time }));
        Ok(Some(before.with_pruning(before.pruned.clone(), pruning)))
    })
}

/// Notes what is still announced by us, and takes back the rest of what we announced.
pub(super) fn note(storage: &Storage, by: &Id, notes: &[Pruned]) -> Result<()> {
    amend(storage, |before| {
        let (ours, others): (Vec<_>, Vec<_>) = before.pruning.iter().cloned().partition(|it| it.by == *by);
        let ours: BTreeSet<Id> = ours.into_iter().map(|it| it.episode).collect();
        if ours.is_empty() {
            return Ok(None);
        }
        let is_left = |it: &&Pruned| ours.contains(&it.episode) && before.pruned(&it.episode).is_none();
        let mut pruned = before.pruned.clone();
        pruned.extend(notes.iter().filter(is_left).cloned());
        Ok(Some(before.with_pruning(pruned, others)))
    })
}

/// For whoever has claimed an episode: nobody prunes it from here on. An error if it was pruned before.
pub(crate) fn keep_from_pruning(storage: &Storage, episode: &Id) -> Result<()> {
    amend(storage, |before| {
        before.refuse_pruned(episode)?;
        if !before.is_announced(episode) {
            return Ok(None);
        }
        let pruning = before.pruning.iter().filter(|it| it.episode != *episode).cloned().collect();
        Ok(Some(before.with_pruning(before.pruned.clone(), pruning)))
    })
}

/// Publishes what should follow the newest manifest; again, if somebody else was faster.
fn amend(storage: &Storage, follow: impl Fn(&Manifest) -> Result<Option<Manifest>>) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let before = storage.renew_manifest()?;
        let Some(next) = follow(&before)? else { return Ok(()) };
        if put_in_force(storage, &next)? {
            return Ok(());
        }
    }
    let why = format!("{TRIES_MAX} manifests of others came first");
    Err(Error::Busy { what: "pruning".to_owned(), why })
}
