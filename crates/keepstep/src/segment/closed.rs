//! Whether another process closed the log of a writer, and where: what the writer adds after that place never counts.
//!
//! A letter asks the writer first, and one create-only answer decides. Questions are answered in the order of their
//! numbers, so the first answer "closed" is the only one that counts.

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::Storage;
use super::cards::{CardFound, read_card};
use super::names::parse_number;
use crate::error::{Doing, Error, Result};

/// The last segment of a log that counts, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEnd {
    /// The number of the segment.
    pub(crate) segment: u64,
    /// Frames of it from here on do not count.
    pub(crate) bytes: u64,
}

/// The answer to the question whether a log may be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Its owner is alive.
    Alive,
    /// Nothing more is acknowledged in it, and nothing counts behind this place.
    Closed(LogEnd),
}

impl Answer {
    const ALIVE: &str = "alive";
    const CLOSED: &str = "closed";

    /// The fields of the card.
    pub(crate) fn fields(self, writer: &Id, time: i64) -> Vec<(u8, Value)> {
        let word = if self == Self::Alive { Self::ALIVE } else { Self::CLOSED };
        let mut card = vec![
            (fields::TIME, Value::Int(time)),
            (fields::WHY, Value::from(word)),
            (fields::WRITER, Value::bytes(writer.0)),
        ];
        if let Self::Closed(LogEnd { segment, bytes }) = self {
            card.push((fields::SEGMENT, Value::Int(segment as i64)));
            card.push((fields::FILE_BYTES, Value::Int(bytes as i64)));
        }
        card
    }
}

const ENDING: &str = ".answer";

/// The path of the answer to a letter.
pub(crate) fn answer_path(writer: &Id, number: u64) -> String {
    format!("mail/{writer}/{number}{ENDING}")
}

/// The answer to a question, if there is one.
pub(crate) fn answered(storage: &Storage, writer: &Id, number: u64) -> Result<Option<Answer>> {
    let path = answer_path(writer, number);
    let damaged = |found: &str| Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() };
    let card = match read_card(storage, &path, kind::ANSWER)? {
        CardFound::Nothing => return Ok(None),
        // Guessing could lose an acknowledged step, or let two processes act on one log.
        CardFound::Damaged => return Err(damaged("it does not validate")),
        CardFound::Card(card) => card,
    };
    match card.text(fields::WHY) {
        Some(Answer::ALIVE) => Ok(Some(Answer::Alive)),
        Some(Answer::CLOSED) => {
            let place = card.number(fields::SEGMENT).zip(card.number(fields::FILE_BYTES));
            let (segment, bytes) = place.ok_or_else(|| damaged("it does not say where the log ends"))?;
            Ok(Some(Answer::Closed(LogEnd { segment, bytes })))
        }
        _ => Err(damaged("it is neither alive nor closed")),
    }
}

/// Where another process closed the log of a writer, if one did.
pub(crate) fn closed_at(storage: &Storage, writer: &Id) -> Result<Option<LogEnd>> {
    let dir = format!("mail/{writer}");
    let listed = storage.disk().list(&dir).doing("list", &dir)?;
    let number = |name: &str| name.strip_suffix(ENDING).and_then(parse_number);
    let mut numbers: Vec<u64> = listed.iter().filter_map(|entry| number(&entry.name)).collect();
    numbers.sort_unstable();
    for number in numbers {
        if let Some(Answer::Closed(end)) = answered(storage, writer, number)? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}
