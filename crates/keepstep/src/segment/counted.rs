//! Which records of an attempt count, by the cards of its episode.
//!
//! The rule: a record after the number that the next base or an END card gives was refused. It does not exist, for
//! anybody. Every reader of records asks here; none takes what it finds in a log for an answer.

use std::ops::Range;

use keepstep_format::card::kind;
use keepstep_format::commit::{Bind, What};
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::Storage;
use super::cards::{CardFound, read_card};
use super::chain::{Base, Chain, Link, Span};
use crate::error::{Error, Result, or_told};

/// The folder of endings that other processes found.
pub(crate) const ENDS: &str = "ends";

/// The card with the ending of an attempt that its owner did not end.
pub(crate) fn end_path(episode: &Id, attempt: u32) -> String {
    let hex = episode.to_string();
    format!("{ENDS}/{}/{hex}.{attempt}", &hex[..2])
}

/// What the process that found the end of an attempt recorded.
pub(crate) fn read_end(storage: &Storage, episode: &Id, attempt: u32) -> Result<Option<Value>> {
    let path = end_path(episode, attempt);
    match read_card(storage, &path, kind::END)? {
        CardFound::Nothing => Ok(None),
        CardFound::Card(card) => Ok(card.get(fields::ENDS).and_then(|ends| ends.as_list()?.first().cloned())),
        CardFound::Damaged => {
            let found = "it does not validate: the ending that was found is lost".to_owned();
            Err(Error::Damaged { path, offset: 0, found })
        }
    }
}

/// How many records of the attempt count, according to the process that found its end.
pub(crate) fn records_of_end(end: &Value) -> Option<u32> {
    u32::try_from(end.get("records")?.as_int()?).ok()
}

impl Chain {
    /// Reads all claims of an episode, and how many records of each attempt count.
    pub(crate) fn read_counted(storage: &Storage, episode: &Id) -> Result<Self> {
        Self::read(storage, episode)?.with_found_ends(storage, episode)
    }

    /// Adds how many records count of attempts whose end another process found. A base of a later attempt takes
    /// precedence, so in most chains this looks for one card.
    pub(crate) fn with_found_ends(mut self, storage: &Storage, episode: &Id) -> Result<Self> {
        for link in &mut self.links {
            if link.is_in_force() && link.records.is_none() {
                // An end card that cannot be read does not say what counts; it is reported when its ending is asked
                // for.
                let (end, _) = or_told(read_end(storage, episode, link.claim.attempt))?;
                link.records = end.flatten().as_ref().and_then(records_of_end);
            }
        }
        Ok(self)
    }

    /// Which records in a log count, of an attempt or a copy of one. An episode without a name has no claims: all of
    /// its records count.
    pub(crate) fn counted(&self, log: &Id, bind: &Bind) -> Range<u32> {
        if self.links.is_empty() {
            return 0..u32::MAX;
        }
        match bind.what {
            // A claim that is missing does not say that its records were refused. Views report that it is missing.
            What::Attempt => match self.link(bind.attempt) {
                None => 0..u32::MAX,
                Some(Link { claim, is_void, .. }) if claim.writer != *log || *is_void => 0..0,
                Some(link) => 0..link.records.unwrap_or(u32::MAX),
            },
            // A taker that died before it published its base may have left a copy.
            What::Copied { from } => {
                let is_it = |span: &&Span| {
                    span.writer == *log && span.copied == Some(from) && span.attempt == bind.attempt
                };
                let named = self.bases().flat_map(|base| &base.spans).filter(is_it);
                named.fold(0..0, |all, span| match all.is_empty() {
                    true => span.from..span.to,
                    false => all.start.min(span.from)..all.end.max(span.to),
                })
            }
            _ => 0..0,
        }
    }

    /// The bases that were published, in order.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &Base> {
        self.links.iter().filter_map(|link| link.base.as_ref())
    }
}
