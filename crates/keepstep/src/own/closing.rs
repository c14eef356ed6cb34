//! Closes the log of another writer for good: a letter asks its owner first, and one create-only answer decides.
//!
//! The owner answers "alive" when it finds the question, which it looks for before each acknowledgement. The asker
//! answers "closed" if nobody else does. Only one of the two can have the name. So an owner that finds its log closed
//! has acknowledged nothing since that answer, and everything that it acknowledged before is in its log.

use keepstep_format::card::kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::mailbox::{FenceNotice, NoticePoster};
use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::segment::Storage;
use crate::segment::cards::{CardFound, Published, publish_card, read_card};
use crate::segment::names::parse_number;

/// The answer to the question whether a log may be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Its owner is alive.
    Alive,
    /// Nothing more is acknowledged in it.
    Closed,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Closed => "closed",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Alive, Self::Closed].into_iter().find(|it| it.word() == word)
    }
}

const ENDING: &str = ".answer";

/// The path of the answer to a letter.
fn answer_path(writer: &Id, number: u64) -> String {
    format!("mail/{writer}/{number}{ENDING}")
}

/// Asks a writer whether its log may be closed. Returns the number of the question. Durable when it returns.
pub(crate) fn ask(storage: &Storage, postman: &NoticePoster, writer: &Id) -> Result<u64> {
    postman.post(storage, writer, &FenceNotice::Question)
}

/// Answers a question, unless it is answered already. Returns the answer that counts. Durable when it returns.
pub(crate) fn answer(storage: &Storage, writer: &Id, number: u64, says: Answer) -> Result<Answer> {
    let path = answer_path(writer, number);
    let card = [
        (fields::TIME, Value::Int(storage.disk().now_us())),
        (fields::WHY, Value::from(says.word())),
        (fields::WRITER, Value::bytes(writer.0)),
    ];
    if publish_card(storage, &path, kind::ANSWER, &card)? == Published::Done {
        return Ok(says);
    }
    // The process that was first may have died before it synced the name.
    let dir = disk::parent(&path);
    storage.disk().settle(dir).doing("sync", dir)?;
    let found = answered(storage, writer, number)?;
    found.ok_or_else(|| damaged(&path, "it comes and goes"))
}

/// The answer to a question, if there is one.
pub(crate) fn answered(storage: &Storage, writer: &Id, number: u64) -> Result<Option<Answer>> {
    let path = answer_path(writer, number);
    match read_card(storage, &path, kind::ANSWER)? {
        CardFound::Nothing => Ok(None),
        CardFound::Damaged => Err(damaged(&path, "it does not validate")),
        CardFound::Card(card) => match card.text(fields::WHY).and_then(Answer::from_word) {
            Some(answer) => Ok(Some(answer)),
            None => Err(damaged(&path, "it is neither yes nor no")),
        },
    }
}

/// True if another process closed the log of a writer.
pub(crate) fn is_closed(storage: &Storage, writer: &Id) -> Result<bool> {
    let dir = format!("mail/{writer}");
    for entry in storage.disk().list(&dir).doing("list", &dir)?.iter().rev() {
        let Some(number) = entry.name.strip_suffix(ENDING).and_then(parse_number) else { continue };
        if answered(storage, writer, number)? == Some(Answer::Closed) {
            storage.disk().settle(&dir).doing("sync", &dir)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Guessing could lose an acknowledged step, or let two processes act on one log.
fn damaged(path: &str, found: &str) -> Error {
    Error::Damaged { path: path.to_owned(), offset: 0, found: found.to_owned() }
}
