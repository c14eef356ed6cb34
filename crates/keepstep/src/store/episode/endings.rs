//! Endings that the owner did not record: another process finds them, and records them with the evidence.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use keepstep_format::card::{CARD_BODY_MAX, Card, kind};
use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use crate::disk::NewCard;
use crate::error::{Doing, Error, Result, or_told};
use crate::own::OwnerState;
use crate::read::{AttemptKey, End};
use crate::segment::cards::encode_fields;
use crate::segment::chain::{read_base, read_claim};
use crate::segment::counted::{ENDS, end_path, read_end, records_of_end};
use crate::segment::names::parse_number;
use crate::store::Store;
use crate::tend::{CloseLogs, LeftAlone};

/// An attempt that was found dead.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reaped {
    /// The episode.
    pub episode: Id,
    /// Which attempt of the episode.
    pub attempt: u32,
    /// The writer in whose log it is.
    pub writer: Id,
    /// How many steps it has.
    pub steps: u64,
    /// The evidence that its owner is dead.
    pub evidence: Value,
}

/// How another process found that an attempt ended.
pub(in crate::store) struct FoundEnd<'e> {
    pub(in crate::store) why: Why,
    pub(in crate::store) evidence: &'e Value,
    pub(in crate::store) steps: Option<u64>,
    /// How many of its records count. Records that its owner wrote after them were refused.
    pub(in crate::store) records: u32,
}

/// How many crashed attempts to mark in one call: a larger batch would not save more syncs.
pub const MARKED_AT_ONCE: usize = 256;

/// Which attempt's ending has this name.
pub(in crate::store) fn parse_end(name: &str) -> Option<(Id, u32)> {
    let (episode, attempt) = name.split_once('.')?;
    Some((episode.parse().ok()?, u32::try_from(parse_number(attempt)?).ok()?))
}

/// What a search for dead attempts found.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Search {
    /// Attempts without an end whose owner is dead.
    pub dead: Vec<Reaped>,
    /// Attempts whose owner is silent, and does not count as dead yet.
    pub silent: Vec<AttemptKey>,
    /// How long until all the silent ones count as dead, if they stay silent.
    pub wait: Duration,
}

/// What became of dead attempts.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Marked {
    /// Attempts that were marked as `crashed`, and were not before.
    pub crashed: Vec<Reaped>,
    /// Writers with attempts that were left as they are, and why: their writer is alive after all, or a file cannot
    /// be read.
    pub left_alone: Vec<LeftAlone>,
}

impl Marked {
    /// Adds what became of others.
    pub fn add(&mut self, others: Self) {
        self.crashed.extend(others.crashed);
        // An attempt is asked for with others of its writer, which may be many.
        let new = |left: &LeftAlone| !self.left_alone.contains(left);
        let new: Vec<LeftAlone> = others.left_alone.into_iter().filter(new).collect();
        self.left_alone.extend(new);
    }

    fn leave(&mut self, writer: Id, why: &impl ToString) {
        self.left_alone.push(LeftAlone { writer, why: why.to_string() });
    }
}

impl Store {
    /// Marks attempts of dead processes as `crashed`, if they have no end.
    ///
    /// An owner that is only silent counts as dead after the lease: call this again then.
    pub fn reap(&self) -> Result<Marked> {
        self.check_open()?;
        let mut all = Marked::default();
        for dead in self.find_dead()?.dead.chunks(MARKED_AT_ONCE) {
            all.add(self.mark_crashed(dead)?);
        }
        Ok(all)
    }

    /// Finds the attempts that [`Store::reap`] would mark, and records nothing.
    pub fn find_dead(&self) -> Result<Search> {
        let mut catalog = self.catalog()?;
        let mut found = Search::default();
        for listed in self.list(&mut catalog)?.iter().filter(|listed| listed.summary.why.is_none()) {
            let key = listed.key;
            let state = self.leases().state(&key.writer);
            // If a log cannot be read, its attempts may have ended. They are left alone, and lists report the log. An
            // end that another process records would still count when the log is back.
            let is_unread = catalog.unreadable(&key.writer).is_some();
            if state == OwnerState::Live || is_unread || self.is_anothers(&key)? {
                continue;
            }
            match state {
                OwnerState::Live => {}
                OwnerState::Silent { left, .. } => {
                    found.silent.push(key);
                    found.wait = found.wait.max(left);
                }
                OwnerState::Dead(evidence) => {
                    let AttemptKey { episode, attempt, writer } = key;
                    let steps = listed.summary.steps;
                    found.dead.push(Reaped { episode, attempt, writer, steps, evidence });
                }
            }
        }
        Ok(found)
    }

    /// True if another writer has claimed the attempt that this writer recorded.
    fn is_anothers(&self, key: &AttemptKey) -> Result<bool> {
        // If a claim cannot be read, its owner is unknown. The attempt is left alone, and lists report the claim.
        let (claim, trouble) = or_told(read_claim(self.cards(), &key.episode, key.attempt))?;
        Ok(trouble.is_some() || claim.flatten().is_some_and(|claim| claim.writer != key.writer))
    }

    /// Marks attempts as `crashed`. They share their syncs, so pass many at once ([`MARKED_AT_ONCE`] is enough).
    pub fn mark_crashed(&self, dead: &[Reaped]) -> Result<Marked> {
        self.check_open()?;
        let mut marked = Marked::default();
        let mut by_writer: BTreeMap<Id, Vec<&Reaped>> = BTreeMap::new();
        for one in dead {
            by_writer.entry(one.writer).or_default().push(one);
        }
        // If a writer only seems dead, its next call must fail: the end that is recorded here stays. And all readers
        // must agree on the last record that counts.
        let not_closed = self.closer().close(&by_writer.keys().copied().collect::<Vec<_>>())?;
        let mut left = Vec::new();
        for (writer, dead) in by_writer {
            match not_closed.get(&writer) {
                Some(why) => marked.leave(writer, why),
                None => left.extend(self.without_an_end(&writer, dead, &mut marked)?),
            }
        }
        let card = |(it, records): &(Reaped, u32)| {
            let (evidence, steps) = (&it.evidence, Some(it.steps));
            let found = FoundEnd { why: Why::Crashed, evidence, steps, records: *records };
            self.new_end_card(&it.episode, it.attempt, &found)
        };
        let cards: Vec<(String, Vec<u8>)> = left.iter().map(card).collect::<Result<_>>()?;
        let new: Vec<NewCard<'_>> = cards.iter().map(|(path, content)| NewCard { path, content }).collect();
        let outcomes = self.disk().put_all(&new);
        for (((one, _), (path, _)), outcome) in left.into_iter().zip(&cards).zip(outcomes) {
            if outcome.doing("publish", path)? {
                marked.crashed.push(one);
            }
        }
        Ok(marked)
    }

    /// The given attempts of a writer that still have no end, and how many records each has. Its log is closed: every
    /// end that it acknowledged is in it, and no other end counts.
    fn without_an_end(
        &self,
        writer: &Id,
        dead: Vec<&Reaped>,
        marked: &mut Marked,
    ) -> Result<Vec<(Reaped, u32)>> {
        let knows = self.inner.place.options.is_broken_act_on_what_was_known();
        let mut left = Vec::new();
        let mut catalog = self.looking_at_all();
        catalog.refresh_of(&[*writer])?;
        for one in dead {
            let own = match catalog.alone(&one.episode, writer, one.attempt) {
                // It was pruned since it was listed.
                Err(Error::Pruned { .. }) => continue,
                own => own?,
            };
            if knows || (own.own_end().is_none() && !own.may_have_lost_its_end()) {
                let base = match one.attempt {
                    0 => Ok(None),
                    attempt => read_base(self.cards(), &one.episode, attempt),
                };
                // What cannot be read of one attempt costs that attempt alone.
                let (base, trouble) = or_told(base)?;
                if let Some(error) = trouble {
                    marked.leave(*writer, &error);
                    continue;
                }
                let steps = base.flatten().map_or(0, |base| base.inherited) + own.steps();
                left.push((Reaped { steps, ..one.clone() }, own.own_records()));
            }
        }
        Ok(left)
    }

    /// Records how an attempt of another process ended. False if an end was recorded already.
    pub(in crate::store) fn record_end_of(
        &self,
        episode: &Id,
        attempt: u32,
        found: &FoundEnd<'_>,
    ) -> Result<bool> {
        let (path, content) = self.new_end_card(episode, attempt, found)?;
        self.disk().put(&path, &content).doing("publish", &path)
    }

    fn new_end_card(&self, episode: &Id, attempt: u32, found: &FoundEnd<'_>) -> Result<(String, Vec<u8>)> {
        let mut end = vec![
            ("episode", Value::bytes(episode.0)),
            ("attempt", Value::Int(i64::from(attempt))),
            ("why", Value::from(found.why.name())),
            ("said_by", Value::from("whoever found it")),
            ("evidence", found.evidence.clone()),
            ("time", Value::Int(self.disk().now_us())),
            ("records", Value::Int(i64::from(found.records))),
        ];
        end.extend(found.steps.map(|steps| ("steps", Value::Int(steps as i64))));
        let ends = [(fields::ENDS, Value::list([Value::map(end)]))];
        let path = end_path(episode, attempt);
        let unfit = || Error::BadInput {
            field: "evidence".to_owned(),
            value: "cannot be written".to_owned(),
            fix: "give a value that fits a card".to_owned(),
        };
        let body = encode_fields(self.cards(), &ends).filter(|it| it.len() <= CARD_BODY_MAX);
        let content = Card::encode(&self.id(), &path, kind::END, &body.ok_or_else(unfit)?);
        Ok((path, content))
    }

    /// The attempts whose end another process found, by the names of the cards; no card is read. Of all episodes, or
    /// of those whose ids begin with one of these bytes.
    pub(in crate::store) fn list_found_ends(
        &self,
        shards: Option<&BTreeSet<u8>>,
    ) -> Result<HashSet<(Id, u32)>> {
        let folders: Vec<String> = match shards {
            Some(shards) => shards.iter().map(|shard| format!("{shard:02x}")).collect(),
            None => {
                let entries = self.disk().list(ENDS).doing("list", ENDS)?.into_iter();
                entries.filter(|entry| entry.is_dir).map(|entry| entry.name).collect()
            }
        };
        let mut found = HashSet::new();
        for folder in folders {
            let folder = format!("{ENDS}/{folder}");
            let entries = self.disk().list(&folder).doing("list", &folder)?;
            found.extend(entries.iter().filter_map(|entry| parse_end(&entry.name)));
        }
        Ok(found)
    }

    /// The ending of an attempt that another process found, and how many of its records count, if the card says so.
    pub(in crate::store) fn found_why_and_records(
        &self,
        episode: &Id,
        attempt: u32,
    ) -> Result<Option<(String, Option<u32>)>> {
        let end = read_end(self.cards(), episode, attempt)?;
        Ok(end.and_then(|end| Some((end.get("why")?.as_str()?.to_owned(), records_of_end(&end)))))
    }

    /// The ending of an attempt that another process found, and the evidence.
    pub fn found_end(&self, episode: &Id, attempt: u32) -> Result<Option<(String, Value)>> {
        let found = self.found_ending(episode, attempt)?;
        Ok(found.and_then(|end| Some((end.why?, end.evidence.unwrap_or(Value::Null)))))
    }

    /// As [`Store::found_end`], with the finder and the time.
    pub(in crate::store) fn found_ending(&self, episode: &Id, attempt: u32) -> Result<Option<End>> {
        let Some(end) = read_end(self.cards(), episode, attempt)? else { return Ok(None) };
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
