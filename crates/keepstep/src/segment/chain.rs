//! Whose an episode is: its claims, and what each attempt inherited, as they stand in storage.
//!
//! A claim without a base changes nothing for readers: whoever made it died, or is not done yet. Attempt 0 inherits
//! nothing and needs no base.

use std::collections::BTreeMap;

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::Storage;
use super::cards::{CardFound, Fields, as_id, read_card};
use super::names::parse_number;
use crate::disk::join;
use crate::error::{Doing, Error, Result};

/// Somebody's word that an attempt is theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Which attempt.
    pub attempt: u32,
    /// Whose log it is in: frames of this attempt count only from there.
    pub writer: Id,
    /// When.
    pub time: i64,
    /// The birth of the episode's run.
    pub birth: Option<Id>,
}

/// Records that an attempt inherits: those with sequences `from` up to, not including, `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Whose log they are in.
    pub writer: Id,
    /// The attempt that recorded them.
    pub attempt: u32,
    /// The writer that they were copied from, if they are a copy. They keep their sequences.
    pub copied: Option<Id>,
    /// The first.
    pub from: u32,
    /// Behind the last.
    pub to: u32,
}

/// Exactly what an attempt inherits.
#[derive(Debug, Clone, PartialEq)]
pub struct Base {
    /// Which attempt.
    pub attempt: u32,
    /// The attempt that it goes on from.
    pub resumed: u32,
    /// How many steps it inherits, FIRST counted.
    pub inherited: u64,
    /// All records that it inherits, in order.
    pub spans: Vec<Span>,
    /// How the attempt before had ended, if it had: then the episode is over.
    pub adopted: Option<String>,
    /// When.
    pub time: i64,
}

/// An attempt, as far as storage knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Whose it is.
    pub claim: Claim,
    /// What it inherits; none if that was never published, or if it is the first.
    pub base: Option<Base>,
}

impl Link {
    /// True if the attempt really began: readers believe it.
    pub fn is_in_force(&self) -> bool {
        self.claim.attempt == 0 || self.base.is_some()
    }
}

/// All attempts at an episode that were ever claimed, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    /// By the number of the attempt, from 0 without a gap.
    pub links: Vec<Link>,
}

impl Chain {
    /// Reads what was claimed of an episode. Empty for one that never was, such as one without a name.
    pub fn read(storage: &Storage, episode: &Id) -> Result<Self> {
        Self::read_before(storage, episode, u32::MAX)
    }

    /// As [`Chain::read`], without looking at this attempt and those behind it.
    pub fn read_before(storage: &Storage, episode: &Id, end: u32) -> Result<Self> {
        let mut links = Vec::new();
        for attempt in 0..end {
            let Some(claim) = read_claim(storage, episode, attempt)? else { break };
            let base = if attempt == 0 { None } else { read_base(storage, episode, attempt)? };
            links.push(Link { claim, base });
        }
        Ok(Self { links })
    }

    /// The attempt that counts: the newest that really began.
    pub fn in_force(&self) -> Option<&Link> {
        self.links.iter().rev().find(|link| link.is_in_force())
    }

    /// The attempt that was claimed last.
    pub fn newest(&self) -> Option<&Link> {
        self.links.last()
    }

    /// One attempt.
    pub fn link(&self, attempt: u32) -> Option<&Link> {
        self.links.get(attempt as usize)
    }

    /// All who ever claimed it, each once.
    pub fn writers(&self) -> Vec<Id> {
        let mut writers: Vec<Id> = self.links.iter().map(|link| link.claim.writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

/// The attempts that have a base, of each episode that was ever taken over: by the names of the cards, none is read.
pub fn list_bases(storage: &Storage) -> Result<BTreeMap<Id, Vec<u32>>> {
    const CLAIMS: &str = "claims";
    let mut bases: BTreeMap<Id, Vec<u32>> = BTreeMap::new();
    let disk = storage.disk();
    for shard in disk.list(CLAIMS).doing("list", CLAIMS)?.iter().filter(|entry| entry.is_dir) {
        let folder = join(CLAIMS, &shard.name);
        for entry in disk.list(&folder).doing("list", &folder)? {
            if let Some((episode, attempt)) = parse_base(&entry.name) {
                bases.entry(episode).or_default().push(attempt);
            }
        }
    }
    bases.values_mut().for_each(|attempts| attempts.sort_unstable());
    Ok(bases)
}

/// Whose base has this name.
fn parse_base(name: &str) -> Option<(Id, u32)> {
    let (episode, attempt) = name.strip_suffix(".base")?.split_once('.')?;
    Some((episode.parse().ok()?, u32::try_from(parse_number(attempt)?).ok()?))
}

/// Where the claim of an attempt stands.
pub fn claim_path(episode: &Id, attempt: u32) -> String {
    let hex = episode.to_string();
    format!("claims/{}/{hex}.{attempt}.claim", &hex[..2])
}

/// Where the base of an attempt stands.
pub fn base_path(episode: &Id, attempt: u32) -> String {
    let hex = episode.to_string();
    format!("claims/{}/{hex}.{attempt}.base", &hex[..2])
}

/// Where a claim stands of whoever scores an episode that is over.
pub fn scoring_path(episode: &Id, number: u32) -> String {
    let hex = episode.to_string();
    format!("claims/{}/{hex}.{number}.scoring", &hex[..2])
}

/// Who claimed an attempt.
pub fn read_claim(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<Claim>> {
    read_claim_at(storage, &claim_path(episode, attempt), attempt)
}

/// The claim that stands here.
pub fn read_claim_at(storage: &Storage, path: &str, attempt: u32) -> Result<Option<Claim>> {
    let Some(found) = whole_card(storage, path, kind::CLAIM)? else { return Ok(None) };
    let writer = found.id(fields::WRITER).ok_or_else(|| damaged(path, "it does not say whose it is"))?;
    let time = found.get(fields::TIME).and_then(Value::as_int).unwrap_or(0);
    Ok(Some(Claim { attempt, writer, time, birth: found.id(fields::BIRTH) }))
}

/// What an attempt inherits.
pub fn read_base(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<Base>> {
    let path = base_path(episode, attempt);
    let Some(found) = whole_card(storage, &path, kind::BASE)? else { return Ok(None) };
    let incomplete = || damaged(&path, "it does not say what is inherited");
    let resumed = found.number(fields::RESUMED).and_then(|attempt| u32::try_from(attempt).ok());
    let spans = found.get(fields::SPANS).and_then(as_spans);
    Ok(Some(Base {
        attempt,
        resumed: resumed.ok_or_else(incomplete)?,
        inherited: found.number(fields::INHERITED).ok_or_else(incomplete)?,
        spans: spans.ok_or_else(incomplete)?,
        adopted: found.text(fields::WHY).map(str::to_owned),
        time: found.get(fields::TIME).and_then(Value::as_int).unwrap_or(0),
    }))
}

/// The fields of a BASE card.
pub fn base_fields(episode: &Id, base: &Base) -> Vec<(u8, Value)> {
    let mut out = vec![
        (fields::TIME, Value::Int(base.time)),
        (fields::RESUMED, Value::Int(i64::from(base.resumed))),
        (fields::INHERITED, Value::Int(base.inherited as i64)),
    ];
    out.extend(base.adopted.as_deref().map(|why| (fields::WHY, Value::from(why))));
    out.push((fields::ATTEMPT, Value::Int(i64::from(base.attempt))));
    out.push((fields::EPISODE, Value::bytes(episode.0)));
    out.push((fields::SPANS, Value::list(base.spans.iter().map(span_value).collect::<Vec<_>>())));
    out
}

fn span_value(span: &Span) -> Value {
    Value::map([
        ("writer", Value::bytes(span.writer.0)),
        ("attempt", Value::Int(i64::from(span.attempt))),
        ("copied", span.copied.map_or(Value::Null, |from| Value::bytes(from.0))),
        ("from", Value::Int(i64::from(span.from))),
        ("to", Value::Int(i64::from(span.to))),
    ])
}

fn as_spans(value: &Value) -> Option<Vec<Span>> {
    let Value::List(items) = value.plain() else { return None };
    items.iter().map(as_span).collect()
}

fn as_span(value: &Value) -> Option<Span> {
    let Value::Map(entries) = value.plain() else { return None };
    let get = |name: &str| entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value);
    let number = |name: &str| u32::try_from(get(name)?.as_int()?).ok();
    let copied = match get("copied") {
        None | Some(Value::Null) => None,
        Some(value) => Some(as_id(value)?),
    };
    let span = Span {
        writer: as_id(get("writer")?)?,
        attempt: number("attempt")?,
        copied,
        from: number("from")?,
        to: number("to")?,
    };
    (span.from <= span.to).then_some(span)
}

fn whole_card(storage: &Storage, path: &str, kind: u16) -> Result<Option<Fields>> {
    match read_card(storage, path, kind)? {
        CardFound::Nothing => Ok(None),
        CardFound::Card(found) => Ok(Some(found)),
        // Guessing whose an episode is would lose what its owner was promised.
        CardFound::Damaged => Err(damaged(path, "it does not validate")),
    }
}

fn damaged(path: &str, found: &str) -> Error {
    Error::Damaged { path: path.to_owned(), offset: 0, found: found.to_owned() }
}
