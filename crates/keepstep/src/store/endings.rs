//! Endings that nobody said: found by whoever looks next, with what shows it.

use keepstep_format::Id;
use keepstep_format::card::kind;
use keepstep_format::fields;
use keepstep_format::value::Value;

use super::Store;
use crate::error::Result;
use crate::own::{Letter, Standing, post};
use crate::read::AttemptInfo;
use crate::segment::cards::{CardFound, publish_card, read_card};
use crate::segment::chain::Chain;

/// An attempt that was found dead.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaped {
    /// The episode.
    pub episode: Id,
    /// Which attempt at it.
    pub attempt: u32,
    /// How many steps it left.
    pub steps: u64,
    /// What shows that its owner is gone.
    pub evidence: Value,
}

/// Where the ending of an attempt stands that its owner did not say.
fn end_path(episode: &Id, attempt: u32) -> String {
    let hex = episode.to_string();
    format!("ends/{}/{hex}.{attempt}", &hex[..2])
}

impl Store {
    /// Records `crashed` for each attempt whose owner is dead and never said how it ended.
    ///
    /// An owner that is only silent is waited for: run it again after the lease.
    pub fn reap(&self) -> Result<Vec<Reaped>> {
        let attempts = self.catalog()?.attempts()?;
        let mut reaped = Vec::new();
        for info in attempts.iter().filter(|info| info.summary.why.is_none()) {
            if let Some(found) = self.reap_one(info)? {
                reaped.push(found);
            }
        }
        Ok(reaped)
    }

    fn reap_one(&self, info: &AttemptInfo) -> Result<Option<Reaped>> {
        let key = info.key;
        let Standing::Dead(evidence) = self.leases().standing(&key.writer) else { return Ok(None) };
        let chain = Chain::read(self.cards(), &key.episode)?;
        let is_anothers = chain.link(key.attempt).is_some_and(|link| link.claim.writer != key.writer);
        if is_anothers || self.found_end(&key.episode, key.attempt)?.is_some() {
            return Ok(None);
        }
        // Should it only have been slow, its next call must fail: what was recorded as its end stays its end.
        let letter = Letter { what: 1, id: key.episode, attempt: key.attempt + 1, from: key.writer };
        post(&**self.disk(), &self.id(), self.key(), &key.writer, &letter)?;
        let steps = info.summary.steps;
        let is_new = self.record_end_of(&key.episode, key.attempt, "crashed", &evidence, Some(steps))?;
        Ok(is_new.then_some(Reaped { episode: key.episode, attempt: key.attempt, steps, evidence }))
    }

    /// Records how an attempt of somebody else ended. False if that was known.
    pub(super) fn record_end_of(
        &self,
        episode: &Id,
        attempt: u32,
        why: &str,
        evidence: &Value,
        steps: Option<u64>,
    ) -> Result<bool> {
        let time = self.disk().now_us();
        let mut end = vec![
            ("episode", Value::bytes(episode.0)),
            ("attempt", Value::Int(i64::from(attempt))),
            ("why", Value::from(why)),
            ("said_by", Value::from("whoever found it")),
            ("evidence", evidence.clone()),
            ("time", Value::Int(time)),
        ];
        end.extend(steps.map(|steps| ("steps", Value::Int(steps as i64))));
        let ends = [(fields::ENDS, Value::list([Value::map(end)]))];
        let path = end_path(episode, attempt);
        crate::disk::ensure_dir(&**self.disk(), "ends")
            .map_err(|error| crate::Error::io("create", "ends", error))?;
        let published = publish_card(self.cards(), &path, kind::END, &ends)?;
        Ok(published == crate::segment::cards::Published::Done)
    }

    /// How somebody else found that an attempt had ended, and what shows it.
    pub fn found_end(&self, episode: &Id, attempt: u32) -> Result<Option<(String, Value)>> {
        let CardFound::Card(card) = read_card(self.cards(), &end_path(episode, attempt), kind::END)? else {
            return Ok(None);
        };
        let Some(end) = card.get(fields::ENDS).and_then(|ends| ends.as_list()?.first().cloned()) else {
            return Ok(None);
        };
        let Value::Map(entries) = end.plain() else { return Ok(None) };
        let get =
            |name: &str| entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, it)| it.clone());
        let why = get("why").and_then(|why| why.as_str().map(str::to_owned));
        Ok(why.map(|why| (why, get("evidence").unwrap_or(Value::Null))))
    }
}
