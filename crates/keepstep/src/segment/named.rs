//! Lists claims and bases by their names; no card is read.
//!
//! Claims have no gaps and are never deleted, so a missing name is noticed by what depends on it.

use std::collections::{BTreeMap, HashMap};

use keepstep_format::Id;

use super::Storage;
use super::chain::{Chain, claim_path, lost_claim};
use super::names::parse_number;
use crate::disk::join;
use crate::error::{Doing, Error, Result};

/// Which claims and bases of an episode there are, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedCards {
    /// How many attempts were claimed, and one more than the newest of them: the same number, unless a claim is
    /// missing.
    claims: (u32, u32),
    /// The attempts that have a base, in order.
    pub bases: Vec<u32>,
}

/// The names of all claims and bases; no card is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedClaims(HashMap<Id, NamedCards>);

impl NamedClaims {
    /// Lists them: of all episodes, or of those whose ids begin like this one.
    pub(crate) fn list(storage: &Storage, near: Option<&Id>) -> Result<Self> {
        const CLAIMS: &str = "claims";
        let disk = storage.disk();
        let shards: Vec<String> = match near {
            Some(episode) => vec![episode.to_string()[..2].to_owned()],
            None => {
                let entries = disk.list(CLAIMS).doing("list", CLAIMS)?.into_iter();
                entries.filter(|entry| entry.is_dir).map(|entry| entry.name).collect()
            }
        };
        let mut named: HashMap<Id, NamedCards> = HashMap::new();
        for shard in shards {
            let folder = join(CLAIMS, &shard);
            for entry in disk.list(&folder).doing("list", &folder)? {
                if let Some((episode, attempt)) = parse_claim(&entry.name) {
                    let (count, end) = &mut named.entry(episode).or_default().claims;
                    (*count, *end) = (*count + 1, (*end).max(attempt.saturating_add(1)));
                } else if let Some((episode, attempt)) = parse_base(&entry.name) {
                    named.entry(episode).or_default().bases.push(attempt);
                }
            }
        }
        named.values_mut().for_each(|cards| cards.bases.sort_unstable());
        Ok(Self(named))
    }

    /// Those of one episode, from its chain.
    pub(crate) fn of_chain(episode: &Id, chain: &Chain) -> Self {
        let claims = chain.links.len() as u32;
        let based = chain.links.iter().filter(|link| link.base.is_some());
        let bases = based.map(|link| link.claim.attempt).collect();
        Self(HashMap::from([(*episode, NamedCards { claims: (claims, claims), bases })]))
    }

    /// The attempts at an episode that have a base, in order.
    pub(crate) fn bases(&self, episode: &Id) -> &[u32] {
        self.0.get(episode).map_or(&[], |cards| &cards.bases)
    }

    /// What is wrong if an attempt of a named episode has records: it was claimed before, unless its writer is older
    /// than claims. Writers that know claims make a mailbox first.
    pub(crate) fn lost_claim(
        &self,
        storage: &Storage,
        episode: &Id,
        attempt: u32,
        writer: &Id,
    ) -> Result<Option<Error>> {
        let is_there = |cards: &NamedCards| cards.claims.0 == cards.claims.1 && attempt < cards.claims.1;
        if self.0.get(episode).is_some_and(is_there) {
            return Ok(None);
        }
        let exists = |path: &str| storage.disk().exists(path).doing("look for", path);
        let has_claims = self.0.values().any(|cards| cards.claims.0 > 0);
        // It may be newer than the list of names.
        let is_lost =
            (has_claims || exists(&mailbox_dir(writer))?) && !exists(&claim_path(episode, attempt))?;
        Ok(is_lost.then(|| lost_claim(episode, attempt)))
    }
}

/// The mailbox of a writer. It is made before the writer records anything.
pub(crate) fn mailbox_dir(writer: &Id) -> String {
    format!("mail/{writer}")
}

/// The attempts that have a base, for each episode that was ever taken over: by the names of the cards; no card is
/// read.
pub(crate) fn list_bases(storage: &Storage) -> Result<BTreeMap<Id, Vec<u32>>> {
    let named = NamedClaims::list(storage, None)?.0.into_iter();
    let taken_over = named.filter(|(_, cards)| !cards.bases.is_empty());
    Ok(taken_over.map(|(episode, cards)| (episode, cards.bases)).collect())
}

/// The episode and attempt of a base, by its name.
fn parse_base(name: &str) -> Option<(Id, u32)> {
    parse_attempt(name.strip_suffix(".base")?)
}

/// The episode and attempt of a claim, by its name.
pub(crate) fn parse_claim(name: &str) -> Option<(Id, u32)> {
    parse_attempt(name.strip_suffix(".claim")?)
}

fn parse_attempt(name: &str) -> Option<(Id, u32)> {
    let (episode, attempt) = name.split_once('.')?;
    Some((episode.parse().ok()?, u32::try_from(parse_number(attempt)?).ok()?))
}
