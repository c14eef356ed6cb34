//! Checks that what cards name is there: a whole file that is gone leaves no damaged byte behind.
//!
//! Claims and seals are read before the logs: what a seal names was durable before it was made, so it must be found in them.
//! Bases are looked for after the logs: one is published before its attempt records anything.

use std::collections::{BTreeMap, HashSet};

use keepstep_format::card::kind;
use keepstep_format::{Id, fields};

use super::report::Wrong;
use super::verify::Verifier;
use crate::disk::join;
use crate::error::{Doing, Result};
use crate::segment::cards::{CardFound, as_id, read_card};
use crate::segment::chain::{base_path, list_bases};
use crate::segment::names::parse_number;
use crate::segment::{Liveness, Log, Storage};

/// What the cards of a store name.
#[derive(Default)]
pub(super) struct Named {
    /// First attempts, and who claimed them.
    claimed: Vec<(Id, Id)>,
    /// Attempts that were sealed, and the seal.
    sealed: Vec<(Id, u32, String)>,
}

/// Reads claims and seals. What cannot be read is told with the other cards.
pub(super) fn find_named(storage: &Storage) -> Result<Named> {
    let mut named = Named::default();
    for path in files_in(storage, "claims")? {
        let Some(episode) = first_claim(&path) else { continue };
        if let CardFound::Card(card) = read_card(storage, &path, kind::CLAIM)? {
            named.claimed.extend(card.id(fields::WRITER).map(|writer| (episode, writer)));
        }
    }
    for path in files_in(storage, "groups")? {
        let CardFound::Card(card) = read_card(storage, &path, kind::SEAL)? else { continue };
        let members = card.get(fields::MEMBERS).and_then(|members| members.as_list()).unwrap_or_default();
        named.sealed.extend(members.iter().filter_map(|member| {
            let attempt = u32::try_from(member.get("attempt")?.as_int()?).ok()?;
            Some((as_id(member.get("episode")?)?, attempt, path.clone()))
        }));
    }
    Ok(named)
}

/// The files in the folders of a folder.
fn files_in(storage: &Storage, dir: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in storage.disk().list(dir).doing("list", dir)? {
        let path = join(dir, &entry.name);
        if entry.is_dir {
            let inside = storage.disk().list(&path).doing("list", &path)?;
            files.extend(inside.iter().filter(|it| !it.is_dir).map(|it| join(&path, &it.name)));
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The episode whose first attempt is claimed by a card of this name.
fn first_claim(path: &str) -> Option<Id> {
    let name = path.rsplit('/').next()?.strip_suffix(".claim")?;
    let (episode, attempt) = name.split_once('.')?;
    (parse_number(attempt) == Some(0)).then(|| episode.parse().ok())?
}

impl Verifier<'_> {
    /// To be called when all logs were read: `attempts` are those with a record, or a lost one, by name.
    pub(super) fn check_named(
        &mut self,
        named: &Named,
        attempts: &HashSet<(Id, u32)>,
        logs: &[Log],
    ) -> Result<()> {
        let manifest = self.storage.manifest()?;
        let is_pruned = |episode: &Id| manifest.pruned(episode).is_some();
        for (episode, attempt, path) in &named.sealed {
            if !attempts.contains(&(*episode, *attempt)) && !is_pruned(episode) {
                let detail =
                    format!("attempt {attempt} at episode {episode} is sealed here, and is in no log");
                self.damage(path.clone(), None, (0, 0), Wrong::Gone, detail);
            }
        }
        let bases = list_bases(self.storage)?;
        let begun: HashSet<Id> = named.claimed.iter().map(|(episode, _)| *episode).collect();
        let mut without: Vec<&(Id, u32)> = attempts.iter().filter(|(_, attempt)| *attempt > 0).collect();
        without.retain(|(episode, attempt)| {
            let has_base = bases.get(episode).is_some_and(|bases| bases.contains(attempt));
            !has_base && begun.contains(episode) && !is_pruned(episode)
        });
        for (episode, attempt) in without {
            let detail = "it is gone, and the attempt has records".to_owned();
            self.damage(base_path(episode, *attempt), None, (0, 0), Wrong::Gone, detail);
        }
        let alive: BTreeMap<Id, Liveness> = logs.iter().map(|log| (*log.writer(), log.liveness())).collect();
        let unrecorded = named.claimed.iter().filter(|(episode, writer)| {
            let may_still_come = alive.get(writer) == Some(&Liveness::Live);
            !attempts.contains(&(*episode, 0)) && !may_still_come && !is_pruned(episode)
        });
        self.report.unrecorded.extend(unrecorded.map(|(episode, _)| *episode));
        self.report.unrecorded.sort_unstable();
        Ok(())
    }
}
