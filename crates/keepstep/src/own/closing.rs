//! Closes the log of another writer for good: a letter asks its owner first, and one create-only answer decides.
//!
//! The owner answers "alive" when it finds the question, which it looks for before each acknowledgement. The asker
//! answers "closed" if nobody else does, and names the place where it found the log to end, having read it after the
//! letter was posted. Only one of the two can have the name. So an owner that finds its log closed has acknowledged
//! nothing since that answer, and everything that it acknowledged before is in front of that place.

use keepstep_format::card::kind;
use keepstep_format::{Id, fields};

use super::mailbox::{FenceNotice, NoticePoster};
use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::segment::Storage;
use crate::segment::cards::{CardFound, Published, publish_card, read_card};
use crate::segment::closed::{Answer, LogEnd, answer_path, answered, closed_at};
use crate::segment::names::list_numbered;

/// Asks a writer whether its log may be closed. Returns the number of the question. Durable when it returns.
pub(crate) fn ask(storage: &Storage, postman: &NoticePoster, writer: &Id) -> Result<u64> {
    postman.post(storage, writer, &FenceNotice::Question)
}

/// Answers a question, unless it is answered already. Returns the answer that counts. Durable when it returns.
pub(crate) fn answer(storage: &Storage, writer: &Id, number: u64, says: Answer) -> Result<Answer> {
    let path = answer_path(writer, number);
    let card = says.fields(writer, storage.disk().now_us());
    if publish_card(storage, &path, kind::ANSWER, &card)? == Published::Done {
        return Ok(says);
    }
    // The process that was first may have died before it synced the name.
    let dir = disk::parent(&path);
    storage.disk().settle(dir).doing("sync", dir)?;
    let found = answered(storage, writer, number)?;
    found.ok_or_else(|| Error::Damaged { path, offset: 0, found: "it comes and goes".to_owned() })
}

/// Answers "closed" to a question, and first to all questions before it that have no answer: so the first answer
/// "closed" is also the one that was given first, and all readers agree where the log ends. Returns where it was
/// closed; `None` if its owner answered that it is alive.
pub(crate) fn close(storage: &Storage, writer: &Id, number: u64, end: LogEnd) -> Result<Option<LogEnd>> {
    let dir = format!("mail/{writer}");
    for asked in list_numbered(storage.disk(), &dir)?.into_iter().filter(|asked| *asked <= number) {
        let counts = match answered(storage, writer, asked)? {
            Some(Answer::Alive) => continue,
            Some(closed) => {
                storage.disk().settle(&dir).doing("sync", &dir)?;
                closed
            }
            None if is_question(storage, writer, asked)? => {
                answer(storage, writer, asked, Answer::Closed(end))?
            }
            None => continue,
        };
        if let Answer::Closed(end) = counts {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Where another process closed the log of a writer. It stays closed, also after a power cut.
pub(crate) fn is_closed(storage: &Storage, writer: &Id) -> Result<Option<LogEnd>> {
    let closed = closed_at(storage, writer)?;
    if closed.is_some() {
        let dir = format!("mail/{writer}");
        storage.disk().settle(&dir).doing("sync", &dir)?;
    }
    Ok(closed)
}

/// True if a letter asks whether the log may be closed; the others tell of episodes that were taken over.
fn is_question(storage: &Storage, writer: &Id, number: u64) -> Result<bool> {
    let path = format!("mail/{writer}/{number}");
    match read_card(storage, &path, kind::MAIL)? {
        CardFound::Card(letter) => Ok(letter.number(fields::WHAT) == Some(u64::from(FenceNotice::LOG))),
        // Its owner cannot read it either, and acknowledges nothing more.
        CardFound::Damaged | CardFound::Nothing => Ok(false),
    }
}
