//! Endings that nobody said: found by whoever looks next, with what shows it.

use std::sync::Arc;
use std::time::Duration;

use keepstep_format::Id;
use keepstep_format::card::kind;
use keepstep_format::fields;
use keepstep_format::value::Value;

use super::Store;
use crate::error::Result;
use crate::own::{Letter, Standing};
use crate::read::{AttemptKey, Catalog, End};
use crate::recover::Recovery;
use crate::segment::Liveness;
use crate::segment::cards::{CardFound, publish_card, read_card};
use crate::segment::chain::read_claim;

/// An attempt that was found dead.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaped {
    /// The episode.
    pub episode: Id,
    /// Which attempt at it.
    pub attempt: u32,
    /// Whose log it is in.
    pub writer: Id,
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

/// What a search for the dead found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Search {
    /// Attempts whose owner is dead and never said how they ended.
    pub dead: Vec<Reaped>,
    /// Attempts whose owner is not heard of, and not proven dead yet.
    pub silent: Vec<AttemptKey>,
    /// How long until all that are silent count as dead, if they stay so.
    pub wait: Duration,
}

impl Store {
    /// Records `crashed` for each attempt whose owner is dead and never said how it ended.
    ///
    /// An owner that is only silent is waited for: run it again after the lease.
    pub fn reap(&self) -> Result<Vec<Reaped>> {
        let mut reaped = Vec::new();
        for dead in self.find_dead()?.dead {
            if self.bury(&dead)? {
                reaped.push(dead);
            }
        }
        Ok(reaped)
    }

    /// Finds what [`Store::reap`] would record, and records nothing.
    pub fn find_dead(&self) -> Result<Search> {
        let mut catalog = self.catalog()?;
        let mut found = Search::default();
        for listed in self.list(&mut catalog)?.iter().filter(|listed| listed.summary.why.is_none()) {
            let key = listed.key;
            let standing = self.leases().standing(&key.writer);
            if standing == Standing::Live || self.is_anothers(&key)? {
                continue;
            }
            match standing {
                Standing::Live => {}
                Standing::Silent { left, .. } => {
                    found.silent.push(key);
                    found.wait = found.wait.max(left);
                }
                Standing::Dead(evidence) => {
                    let AttemptKey { episode, attempt, writer } = key;
                    let steps = listed.summary.steps;
                    found.dead.push(Reaped { episode, attempt, writer, steps, evidence });
                }
            }
        }
        Ok(found)
    }

    /// True if somebody else has claimed the attempt that this writer recorded.
    fn is_anothers(&self, key: &AttemptKey) -> Result<bool> {
        let claim = read_claim(self.cards(), &key.episode, key.attempt)?;
        Ok(claim.is_some_and(|claim| claim.writer != key.writer))
    }

    /// Records that an attempt crashed. False if somebody else did.
    pub fn bury(&self, dead: &Reaped) -> Result<bool> {
        let Reaped { episode, attempt, writer, steps, ref evidence } = *dead;
        // Should it only have been slow, its next call must fail: what was recorded as its end stays its end.
        let letter = Letter { what: 1, id: episode, attempt: attempt + 1, from: writer };
        self.postman().post(&**self.disk(), &self.id(), self.key(), &writer, &letter)?;
        // From here on it is told of no end; one that it was told of before is in its log.
        if self.liveness(&writer) != Liveness::Dead {
            let mut catalog = Catalog::unread(self.storage(), Arc::new(Recovery::dirty()));
            catalog.refresh_of(&[writer])?;
            if catalog.alone(&episode, &writer, attempt)?.own_end().is_some() {
                return Ok(false);
            }
        }
        self.record_end_of(&episode, attempt, "crashed", evidence, Some(steps))
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
        let found = self.found_ending(episode, attempt)?;
        Ok(found.and_then(|end| Some((end.why?, end.evidence.unwrap_or(Value::Null)))))
    }

    /// As [`Store::found_end`], with who found it and when.
    pub(super) fn found_ending(&self, episode: &Id, attempt: u32) -> Result<Option<End>> {
        let CardFound::Card(card) = read_card(self.cards(), &end_path(episode, attempt), kind::END)? else {
            return Ok(None);
        };
        let Some(end) = card.get(fields::ENDS).and_then(|ends| ends.as_list()?.first().cloned()) else {
            return Ok(None);
        };
        let text = |name: &str| end.get(name).and_then(|it| it.as_str().map(str::to_owned));
        let Some(why) = text("why") else { return Ok(None) };
        Ok(Some(End {
            time: end.get("time").and_then(Value::as_int),
            why: Some(why),
            limit: text("limit"),
            said_by: text("said_by"),
            evidence: end.get("evidence").cloned(),
            ..End::default()
        }))
    }
}
