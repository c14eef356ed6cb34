//! The chain of an episode: its claims, and what each attempt inherited, as they are in storage.
//!
//! A claim without a base changes nothing for readers: its taker died, or is not done yet. A claim whose base is void
//! never becomes an attempt. Attempt 0 inherits nothing and needs no base.

use std::collections::VecDeque;

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, Why, fields};

use super::Storage;
use super::cards::{CardFound, Fields, as_id, read_card};
use crate::error::{Doing, Error, Result};

/// The claim of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Which attempt.
    pub attempt: u32,
    /// Its writer: records of this attempt count only in this writer's log.
    pub writer: Id,
    /// When.
    pub time: i64,
    /// The id of the run's generation.
    pub generation_id: Option<Id>,
    /// How many samples its group has, if it was claimed as a slot of one.
    pub group_size: Option<u64>,
}

/// Records that an attempt inherits: sequence numbers from `from` up to, not including, `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Span {
    /// The writer in whose log they are.
    pub writer: Id,
    /// The attempt that recorded them.
    pub attempt: u32,
    /// The writer that they were copied from, if they are a copy. They keep their sequence numbers.
    pub copied: Option<Id>,
    /// The first sequence number.
    pub from: u32,
    /// The sequence number after the last.
    pub to: u32,
}

impl Span {
    /// True if a record of an attempt is in it.
    pub(crate) fn names(&self, attempt: u32, seq: u32) -> bool {
        self.attempt == attempt && (self.from..self.to).contains(&seq)
    }
}

/// Exactly what an attempt inherits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Base {
    /// Which attempt.
    pub attempt: u32,
    /// The attempt that it resumed.
    pub resumed: u32,
    /// How many steps it inherits, FIRST included.
    pub inherited: u64,
    /// All records that it inherits, in order.
    pub spans: Vec<Span>,
    /// How the previous attempt ended, if it did: then the episode is over.
    pub adopted: Option<String>,
    /// How many records of the resumed attempt count, whether or not they are inherited: later ones were refused.
    /// Version 0.1 did not record this.
    pub counted: Option<u32>,
    /// How the resumed attempt was found, if it had no end: its owner was alive, or not. Version 0.1 did not record
    /// this.
    pub found: Option<Why>,
    /// When.
    pub time: i64,
    /// How many earlier bases must be read to know its spans.
    pub depth: u32,
}

impl Base {
    /// True if it inherits a record of an attempt, from its own log or as a copy.
    pub(crate) fn names(&self, attempt: u32, seq: u32) -> bool {
        self.spans.iter().any(|span| span.names(attempt, seq))
    }
}

/// What is under the name of a base.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Based {
    /// The attempt began like this.
    Base(Base),
    /// A void base: the claim was passed over, and the attempt never begins.
    Void,
}

/// An attempt, as far as it is in storage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    /// Its claim.
    pub claim: Claim,
    /// What it inherits; `None` if no base was published, or if it is attempt 0.
    pub base: Option<Base>,
    /// True if the claim was passed over: it never becomes an attempt.
    pub is_void: bool,
    /// How many of its own records count, if another process recorded that: the one that resumed it, or found its
    /// end.
    pub records: Option<u32>,
}

impl Link {
    /// True if the attempt began: then it counts for readers.
    pub(crate) fn is_in_force(&self) -> bool {
        self.claim.attempt == 0 || self.base.is_some()
    }

    /// True if its taker found that the previous attempt had ended.
    pub(crate) fn is_over(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.adopted.is_some())
    }

    /// `earlier` are attempts that were read already: their bases are not read again.
    fn read(storage: &Storage, episode: &Id, attempt: u32, earlier: &[Self]) -> Result<Option<Self>> {
        let Some(claim) = read_claim(storage, episode, attempt)? else { return Ok(None) };
        let based = if attempt == 0 { None } else { read_based_on(storage, episode, attempt, earlier)? };
        let is_void = matches!(based, Some(Based::Void));
        let base = based.and_then(|based| if let Based::Base(base) = based { Some(base) } else { None });
        Ok(Some(Self { claim, base, is_void, records: None }))
    }
}

/// The claimed attempts of an episode, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Chain {
    /// By the number of the attempt, without gaps, from `first` on.
    pub links: Vec<Link>,
    /// The first attempt that was read.
    first: u32,
}

impl Chain {
    /// Reads all claims of an episode. Empty if it was never claimed, for example because it has no name.
    pub(crate) fn read(storage: &Storage, episode: &Id) -> Result<Self> {
        let mut links = Vec::new();
        loop {
            let next = links.len() as u32;
            match Self::next_link(storage, episode, next, &links)? {
                Some(link) => links.push(link),
                None => break,
            }
        }
        Ok(Self { links, first: 0 }.noting_what_counts())
    }

    /// Reads the claims of an episode from an attempt on, up to the next attempt that began: all that is needed to know
    /// which records of that attempt count, however many attempts there are.
    pub(crate) fn read_from(storage: &Storage, episode: &Id, attempt: u32) -> Result<Self> {
        let Some(first) = Link::read(storage, episode, attempt, &[])? else {
            return Self::read(storage, episode);
        };
        let mut links = vec![first];
        let mut next = attempt;
        while links.len() == 1 || !links.last().is_some_and(Link::is_in_force) {
            next += 1;
            match Self::next_link(storage, episode, next, &links)? {
                Some(link) => links.push(link),
                None => break,
            }
        }
        Ok(Self { links, first: attempt }.noting_what_counts())
    }

    /// The next claim, if there is one.
    fn next_link(storage: &Storage, episode: &Id, next: u32, earlier: &[Link]) -> Result<Option<Link>> {
        match Link::read(storage, episode, next, earlier)? {
            None if is_missed(storage, episode, next)? => {
                // It was published since the look, or it is gone.
                let found = Link::read(storage, episode, next, earlier)?;
                found.ok_or_else(|| lost_claim(episode, next)).map(Some)
            }
            found => Ok(found),
        }
    }

    /// Reads the claims of an episode from the attempt that counts on: all that opening it needs, however often it
    /// was opened before.
    pub(crate) fn read_newest(storage: &Storage, episode: &Id) -> Result<Self> {
        match newest_claim(storage, episode)? {
            Some(newest) => Self::read_down_from(storage, episode, newest),
            None => Ok(Self::default()),
        }
    }

    /// As [`Chain::read_newest`], up to the attempt before this one, which must have been claimed.
    pub(crate) fn read_newest_before(storage: &Storage, episode: &Id, attempt: u32) -> Result<Self> {
        match attempt.checked_sub(1) {
            Some(before) => Self::read_down_from(storage, episode, before),
            None => Ok(Self::default()),
        }
    }

    fn read_down_from(storage: &Storage, episode: &Id, newest: u32) -> Result<Self> {
        let mut links = VecDeque::new();
        let mut attempt = newest;
        loop {
            let missing = || lost_claim(episode, attempt);
            let link = Link::read(storage, episode, attempt, &[])?.ok_or_else(missing)?;
            let is_in_force = link.is_in_force();
            links.push_front(link);
            if is_in_force {
                return Ok(Self { links: links.into(), first: attempt }.noting_what_counts());
            }
            attempt -= 1;
        }
    }

    /// Adds what later attempts say about earlier ones.
    fn noting_what_counts(mut self) -> Self {
        let counted: Vec<(u32, u32)> = self
            .links
            .iter()
            .filter_map(|link| link.base.as_ref().and_then(|base| Some((base.resumed, base.counted?))))
            .collect();
        for (attempt, records) in counted {
            if let Some(link) = self.link_mut(attempt) {
                link.records = Some(records);
            }
        }
        self
    }

    /// What is wrong if these attempts have records: a base is published before anything is recorded, and outlives
    /// the records. So a base that is missing now was there before.
    pub(crate) fn missing_base(
        &self,
        episode: &Id,
        recorded: impl IntoIterator<Item = u32>,
    ) -> Option<Error> {
        let resumed = self.links.iter().filter_map(|link| link.base.as_ref().map(|base| base.resumed));
        let mut began = recorded.into_iter().chain(resumed).filter(|attempt| *attempt > 0);
        let is_missing = |attempt: &u32| {
            let link = self.link(*attempt);
            *attempt >= self.first && link.is_none_or(|link| link.base.is_none() && !link.is_void)
        };
        began.find(is_missing).map(|attempt| lost_base(episode, attempt))
    }

    /// The attempt that counts: the newest that began.
    pub(crate) fn in_force(&self) -> Option<&Link> {
        self.links.iter().rev().find(|link| link.is_in_force())
    }

    /// The attempt that was claimed last.
    pub(crate) fn newest(&self) -> Option<&Link> {
        self.links.last()
    }

    /// The newest claim that is an attempt, or may still become one.
    pub(crate) fn newest_open(&self) -> Option<&Link> {
        self.links.iter().rev().find(|link| !link.is_void)
    }

    /// One attempt.
    pub(crate) fn link(&self, attempt: u32) -> Option<&Link> {
        self.links.get(attempt.checked_sub(self.first)? as usize)
    }

    fn link_mut(&mut self, attempt: u32) -> Option<&mut Link> {
        self.links.get_mut(attempt.checked_sub(self.first)? as usize)
    }

    /// All claims after an attempt.
    pub(crate) fn behind(&self, attempt: u32) -> &[Link] {
        let at = attempt.saturating_add(1).saturating_sub(self.first) as usize;
        &self.links[at.min(self.links.len())..]
    }

    /// How an attempt without an end was found by the one that resumed it. A base of 0.1 proves only that it was taken
    /// over.
    pub(crate) fn found_by_the_next(&self, attempt: u32) -> Why {
        let next = self.behind(attempt).iter().find(|link| link.is_in_force());
        next.and_then(|link| link.base.as_ref()?.found).unwrap_or(Why::Superseded)
    }

    /// All writers that ever claimed it, each once.
    pub(crate) fn writers(&self) -> Vec<Id> {
        let mut writers: Vec<Id> = self.links.iter().map(|link| link.claim.writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

/// The number of the newest claim. Claims have no gaps, so few look-ups find it among many.
fn newest_claim(storage: &Storage, episode: &Id) -> Result<Option<u32>> {
    let exists = |attempt: u32| {
        let path = claim_path(episode, attempt);
        storage.disk().exists(&path).doing("look for", &path)
    };
    let mut newest = None;
    loop {
        let next: u32 = newest.map_or(0, |newest| newest + 1);
        if !exists(next)? {
            if !is_missed(storage, episode, next)? {
                return Ok(newest);
            }
            // It was published since the look, or it is gone.
            if !exists(next)? {
                return Err(lost_claim(episode, next));
            }
        }
        // The highest that is known to exist, and one that did not exist.
        let (mut there, mut step) = (next, 1);
        while exists(there + step)? {
            there += step;
            step *= 2;
        }
        let mut missing = there + step;
        while missing - there > 1 {
            let middle = there + (missing - there) / 2;
            if exists(middle)? { there = middle } else { missing = middle }
        }
        newest = Some(there);
    }
}

/// True if something depends on a missing claim: claims have no gaps and are never deleted, and a base comes after
/// its claim. This takes two look-ups, so that beginning an episode stays cheap.
fn is_missed(storage: &Storage, episode: &Id, attempt: u32) -> Result<bool> {
    let behind = attempt.saturating_add(1);
    let base = base_path(episode, attempt.max(1));
    let exists = |path: &str| storage.disk().exists(path).doing("look for", path);
    Ok(exists(&base)? || exists(&claim_path(episode, behind))?)
}

/// The message about a missing base or claim of an attempt that has records.
pub(crate) const GONE: &str = "it is gone, and the attempt has records";

/// The error of an attempt that has records and whose base is missing.
pub(crate) fn lost_base(episode: &Id, attempt: u32) -> Error {
    damaged(&base_path(episode, attempt), GONE)
}

/// The error of an attempt that has records, or later attempts, and whose claim is missing.
pub(crate) fn lost_claim(episode: &Id, attempt: u32) -> Error {
    damaged(&claim_path(episode, attempt), "it is gone, and the attempt has records, or later ones exist")
}

/// The error of an attempt that ended, but how cannot be read: it is unknown whether the episode is over.
pub(crate) fn lost_end(episode: &Id, attempt: u32) -> Error {
    let found = "its END cannot be read: how it ended is lost; open it with `at` to go on before the end, or restart it";
    damaged(&format!("attempt {attempt} at episode {episode}"), found)
}

/// The path of the claim of an attempt.
pub(crate) fn claim_path(episode: &Id, attempt: u32) -> String {
    let hex = episode.to_string();
    format!("claims/{}/{hex}.{attempt}.claim", &hex[..2])
}

/// The path of the base of an attempt.
pub(crate) fn base_path(episode: &Id, attempt: u32) -> String {
    let hex = episode.to_string();
    format!("claims/{}/{hex}.{attempt}.base", &hex[..2])
}

/// The path of a claim to score an episode that is over.
pub(crate) fn scoring_path(episode: &Id, number: u32) -> String {
    let hex = episode.to_string();
    format!("claims/{}/{hex}.{number}.scoring", &hex[..2])
}

/// Reads the claim of an attempt.
pub(crate) fn read_claim(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<Claim>> {
    read_claim_at(storage, &claim_path(episode, attempt), attempt)
}

/// Reads the claim at a path.
pub(crate) fn read_claim_at(storage: &Storage, path: &str, attempt: u32) -> Result<Option<Claim>> {
    let Some(found) = whole_card(storage, path, kind::CLAIM)? else { return Ok(None) };
    let writer = found.id(fields::WRITER).ok_or_else(|| damaged(path, "it does not name its writer"))?;
    let time = found.get(fields::TIME).and_then(Value::as_int).unwrap_or(0);
    let (generation_id, group_size) = (found.id(fields::GENERATION_ID), found.number(fields::GROUP_SIZE));
    Ok(Some(Claim { attempt, writer, time, generation_id, group_size }))
}

/// What an attempt inherits, if it began.
pub(crate) fn read_base(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<Base>> {
    Ok(match read_based(storage, episode, attempt)? {
        Some(Based::Base(base)) => Some(base),
        Some(Based::Void) | None => None,
    })
}

/// Reads the base of an attempt. Its spans are all that it inherits, even if the card names only what it adds to
/// those of the attempt before.
pub(crate) fn read_based(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<Based>> {
    read_based_on(storage, episode, attempt, &[])
}

fn read_based_on(storage: &Storage, episode: &Id, attempt: u32, earlier: &[Link]) -> Result<Option<Based>> {
    let Some((mut base, mut follows)) = (match read_base_card(storage, episode, attempt)? {
        None => return Ok(None),
        Some(BaseCard::Void) => return Ok(Some(Based::Void)),
        Some(BaseCard::Base { base, follows }) => Some((base, follows)),
    }) else {
        return Ok(None);
    };
    let mut later = vec![std::mem::take(&mut base.spans)];
    let mut before = base.resumed;
    while follows {
        let read = |link: &&Link| link.claim.attempt == before;
        if let Some(resumed) = earlier.iter().rev().find(read).and_then(|link| link.base.as_ref()) {
            later.push(resumed.spans.clone());
            base.depth += resumed.depth + 1;
            break;
        }
        let path = base_path(episode, before);
        let Some(BaseCard::Base { base: earlier, follows: goes_on }) =
            read_base_card(storage, episode, before)?
        else {
            return Err(damaged(&path, "it is missing, and a later one refers to it"));
        };
        later.push(earlier.spans);
        (before, follows) = (earlier.resumed, goes_on);
        base.depth += 1;
    }
    base.spans = later.into_iter().rev().flatten().collect();
    Ok(Some(Based::Base(base)))
}

enum BaseCard {
    Void,
    /// With the spans that the card itself names. They follow those of the base that it resumed, if it says so.
    Base {
        base: Base,
        follows: bool,
    },
}

fn read_base_card(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<BaseCard>> {
    let path = base_path(episode, attempt);
    let Some(found) = whole_card(storage, &path, kind::BASE)? else { return Ok(None) };
    if found.get(fields::IS_VOID).is_some() {
        return Ok(Some(BaseCard::Void));
    }
    let incomplete = || damaged(&path, "it does not say what is inherited");
    let small = |number: u8| found.number(number).and_then(|number| u32::try_from(number).ok());
    let resumed = small(fields::RESUMED).filter(|resumed| *resumed < attempt).ok_or_else(incomplete)?;
    let all = found.get(fields::SPANS).and_then(as_spans);
    let more = found.get(fields::MORE_SPANS).and_then(as_spans);
    let follows = all.is_none();
    let base = Base {
        attempt,
        resumed,
        inherited: found.number(fields::INHERITED).ok_or_else(incomplete)?,
        spans: all.or(more).ok_or_else(incomplete)?,
        adopted: found.text(fields::WHY).map(str::to_owned),
        counted: small(fields::COUNTED),
        found: found.text(fields::FOUND).and_then(Why::named),
        time: found.get(fields::TIME).and_then(Value::as_int).unwrap_or(0),
        depth: 0,
    };
    Ok(Some(BaseCard::Base { base, follows }))
}

/// Up to this many spans are repeated in each base, which version 0.1 can read.
const SPANS_SAID_AGAIN: usize = 8;
/// How many bases must be read at most to know the spans of one.
const DEPTH_MAX: u32 = 32;

/// The fields of a BASE card. Given the base that it resumed, it names only what it adds to that, if this is shorter.
pub(crate) fn base_fields(episode: &Id, base: &Base, resumed: Option<&Base>) -> Vec<(u8, Value)> {
    let mut out = vec![
        (fields::TIME, Value::Int(base.time)),
        (fields::RESUMED, Value::Int(i64::from(base.resumed))),
        (fields::INHERITED, Value::Int(base.inherited as i64)),
    ];
    out.extend(base.adopted.as_deref().map(|why| (fields::WHY, Value::from(why))));
    out.push((fields::ATTEMPT, Value::Int(i64::from(base.attempt))));
    out.push((fields::EPISODE, Value::bytes(episode.0)));
    let spans = |spans: &[Span]| Value::list(spans.iter().map(span_value).collect::<Vec<_>>());
    let follows = resumed.filter(|it| it.spans.len() > SPANS_SAID_AGAIN && it.depth + 1 < DEPTH_MAX);
    let more = follows.and_then(|it| base.spans.strip_prefix(&it.spans[..]));
    out.extend(base.counted.map(|counted| (fields::COUNTED, Value::Int(i64::from(counted)))));
    out.push(match more {
        Some(more) => (fields::MORE_SPANS, spans(more)),
        None => (fields::SPANS, spans(&base.spans)),
    });
    out.extend(base.found.map(|found| (fields::FOUND, Value::from(found.name()))));
    out
}

/// The fields of a void BASE card. A reader of version 0.1 takes it for damaged, and stops there.
pub(crate) fn void_base_fields(episode: &Id, attempt: u32, time: i64) -> Vec<(u8, Value)> {
    vec![
        (fields::TIME, Value::Int(time)),
        (fields::ATTEMPT, Value::Int(i64::from(attempt))),
        (fields::EPISODE, Value::bytes(episode.0)),
        (fields::IS_VOID, Value::Bool(true)),
    ]
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
        // Guessing the owner of an episode could lose acknowledged steps.
        CardFound::Damaged => Err(damaged(path, "it does not validate")),
    }
}

fn damaged(path: &str, found: &str) -> Error {
    Error::Damaged { path: path.to_owned(), offset: 0, found: found.to_owned() }
}
