//! Announces that episodes will be pruned, before their owners are checked.
//!
//! `prune` announces, then looks for claims, then notes the episodes as pruned. A process that takes an episode over
//! claims it, then looks for an announcement and withdraws it. So one of the two sees the other. Manifests are
//! published one by one, so a note cannot follow an announcement that was withdrawn. Dropping an announcement is
//! always safe: then less is pruned.

use std::collections::BTreeSet;

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::segment::{Announced, Manifest, Pruned, Storage};
use crate::tend::compact::put_in_force;

/// How often a race may be lost before this is an error.
const TRIES_MAX: usize = 64;
/// An announcement that is this old was made by a process that was killed before it could note it.
const ANNOUNCED_MAX_US: i64 = 24 * 3600 * 1_000_000;

/// Announces that these episodes will be pruned.
pub(super) fn announce(storage: &Storage, episodes: &BTreeSet<Id>, by: Id) -> Result<()> {
    let time = storage.disk().now_us();
    let is_fresh = |it: &&Announced| time.saturating_sub(it.time) < ANNOUNCED_MAX_US;
    amend(storage, |before| {
        let mut pruning: Vec<Announced> = before.pruning.iter().filter(is_fresh).cloned().collect();
        pruning.extend(episodes.iter().map(|&episode| Announced { episode, by, time }));
        Ok(Some(before.with_pruning(before.pruned.clone(), pruning)))
    })
}

/// Notes the episodes that we still announce as pruned, and withdraws our other announcements.
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

/// For a process that has claimed an episode: the episode is not pruned from now on. An error if it was pruned
/// before.
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

/// Publishes the manifest that `follow` makes of the newest one; repeated if another process was faster.
fn amend(storage: &Storage, follow: impl Fn(&Manifest) -> Result<Option<Manifest>>) -> Result<()> {
    for _ in 0..TRIES_MAX {
        let before = storage.renew_manifest()?;
        let Some(next) = follow(&before)? else { return Ok(()) };
        if put_in_force(storage, &next)? {
            return Ok(());
        }
    }
    let why = format!("{TRIES_MAX} manifests of other processes came first");
    Err(Error::Busy { what: "pruning".to_owned(), why })
}
