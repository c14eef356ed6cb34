//! The mailbox of a writer: other processes tell it there that they own an episode now, or ask whether it is alive.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::value::Value;
use keepstep_format::{Id, card, fields};

use super::closing;
use super::encode_fields;
use crate::disk::Disk;
use crate::error::{Doing, Error, Result};
use crate::segment::Storage;
use crate::segment::cards::{CardFound, read_card};
use crate::segment::closed::Answer;
use crate::segment::names::list_numbered;

/// What a letter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mail {
    /// An episode or stream belongs to this attempt from now on.
    Claimed { id: Id, attempt: u32 },
    /// A process asked, got no answer in time, and closed this whole log.
    Closed,
}

/// Reads the mail of this process, in the order of its numbers.
pub(crate) struct Mailbox {
    storage: Arc<Storage>,
    writer: Id,
    next: u64,
    /// The path of the next letter, so that a look-up need not build it.
    next_path: String,
    /// Letters that were read and not handled yet: a later look that fails must not lose them.
    untold: Vec<Mail>,
    /// The letter that was read last, byte by byte.
    last: Vec<u8>,
}

impl Mailbox {
    pub(crate) fn new(storage: Arc<Storage>, writer: Id) -> Self {
        Self {
            storage,
            writer,
            next: 0,
            next_path: format!("mail/{writer}/0"),
            untold: Vec::new(),
            last: Vec::new(),
        }
    }

    /// The mail since the last look: usually one look-up that finds nothing. A question whether we are alive is
    /// answered.
    ///
    /// A letter that cannot be read or answered is an error: it may be the one that takes an episode away.
    pub(crate) fn look(&mut self) -> io::Result<Vec<Mail>> {
        self.check_that_it_is_whole()?;
        while self.storage.disk().exists(&self.next_path)? {
            let mail = self.read().map_err(io::Error::other)?;
            let last = self.storage.disk().get(&self.next_path)?;
            self.untold.extend(mail);
            self.last = last;
            self.next += 1;
            self.next_path = format!("mail/{}/{}", self.writer, self.next);
        }
        Ok(std::mem::take(&mut self.untold))
    }

    /// Letters are never deleted or changed while their reader is alive. If the last one is not what was read, a later
    /// one may have got a number that was read before: it would not be found.
    fn check_that_it_is_whole(&self) -> io::Result<()> {
        let Some(last) = self.next.checked_sub(1) else { return Ok(()) };
        let path = format!("mail/{}/{last}", self.writer);
        match self.storage.disk().get(&path) {
            Ok(letter) if letter == self.last => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let found = "the letter that was read here is gone".to_owned();
        Err(io::Error::other(Error::Damaged { path, offset: 0, found }))
    }

    fn read(&self) -> Result<Option<Mail>> {
        let path = &self.next_path;
        let bad =
            || Error::Damaged { path: path.clone(), offset: 0, found: "it does not validate".to_owned() };
        let CardFound::Card(letter) = read_card(&self.storage, path, card::kind::MAIL)? else {
            return Err(bad());
        };
        if letter.number(fields::WHAT) == Some(u64::from(FenceNotice::LOG)) {
            return Ok(match closing::answer(&self.storage, &self.writer, self.next, Answer::Alive)? {
                Answer::Alive => None,
                Answer::Closed(_) => Some(Mail::Closed),
            });
        }
        let attempt = letter.number(fields::ATTEMPT).and_then(|attempt| u32::try_from(attempt).ok());
        let (id, attempt) = letter.id(fields::EPISODE).zip(attempt).ok_or_else(bad)?;
        Ok(Some(Mail::Claimed { id, attempt }))
    }
}

/// A letter to a writer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FenceNotice {
    /// To a writer that may believe that it owns an episode or a stream.
    Claimed {
        /// As in a BIND: 1 an episode, 3 a stream.
        what: u8,
        id: Id,
        /// The attempt that owns it from now on.
        attempt: u32,
        /// The writer that posts it.
        from: Id,
    },
    /// Asks whether the whole log may be closed. It names no episode: a writer of version 0.1 cannot read it, and
    /// then acknowledges nothing more.
    Question,
}

/// How many processes may post to the same mailbox at the same moment.
const RACES_MAX: u64 = 100_000;
/// For how many mailboxes the next number is remembered.
const MAILBOXES_MAX: usize = 1024;

/// Remembers the next number of mailboxes, so that a mailbox with thousands of letters is not listed for each one. It
/// is a hint only: the name that is free decides.
#[derive(Debug, Default)]
pub(crate) struct NoticePoster {
    taken: Mutex<HashMap<Id, u64>>,
}

impl NoticePoster {
    /// Puts a letter into a mailbox, under the next free number, and returns the number. Durable when it returns.
    pub(crate) fn post(&self, storage: &Storage, to: &Id, letter: &FenceNotice) -> Result<u64> {
        let next = self.next_of(storage.disk(), to)?;
        let number = post_from(storage, to, letter, next)?;
        self.remember(to, number + 1);
        Ok(number)
    }

    /// The next free number of a mailbox, if something is known of it.
    fn next_of(&self, disk: &dyn Disk, to: &Id) -> Result<Option<u64>> {
        let known = self.lock().get(to).copied().filter(|next| *next > 0);
        known.map_or(Ok(None), |next| first_free(disk, &format!("mail/{to}"), next))
    }

    fn remember(&self, to: &Id, next: u64) {
        let mut taken = self.lock();
        if taken.len() >= MAILBOXES_MAX {
            taken.clear();
        }
        taken.insert(*to, next);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lowest free number from `next` on; `None` if the letter before it is gone.
fn first_free(disk: &dyn Disk, dir: &str, mut next: u64) -> Result<Option<u64>> {
    let exists = |number: u64| disk.exists(&format!("{dir}/{number}")).doing("look into", dir);
    if !exists(next - 1)? {
        return Ok(None);
    }
    // A look-up is cheaper than a letter whose number is taken.
    while exists(next)? {
        next += 1;
    }
    Ok(Some(next))
}

/// Posts under the first free number from `next` on, and returns it.
fn post_from(storage: &Storage, to: &Id, letter: &FenceNotice, next: Option<u64>) -> Result<u64> {
    let (disk, dir) = (storage.disk(), format!("mail/{to}"));
    let next = match next {
        Some(next) => next,
        // The lowest: a letter behind a gap would never be read.
        None => {
            let taken = list_numbered(disk, &dir)?;
            taken.iter().zip(0..).take_while(|(taken, number)| *taken == number).count() as u64
        }
    };
    for number in next..next + RACES_MAX {
        let path = format!("{dir}/{number}");
        let content = letter.encode(storage, &path);
        if disk.put(&path, &content).doing("post", &path)? {
            return Ok(number);
        }
    }
    Err(Error::Busy { what: dir, why: "other processes post to it faster than this one can".to_owned() })
}

impl FenceNotice {
    /// As in a BIND: the log itself.
    pub(super) const LOG: u8 = 0;

    fn encode(&self, storage: &Storage, path: &str) -> Vec<u8> {
        let mut card = vec![(fields::TIME, Value::Int(storage.disk().now_us()))];
        match *self {
            Self::Claimed { what, id, attempt, from } => card.extend([
                (fields::WRITER, Value::bytes(from.0)),
                (fields::ATTEMPT, Value::Int(i64::from(attempt))),
                (fields::EPISODE, Value::bytes(id.0)),
                (fields::WHAT, Value::Int(i64::from(what))),
            ]),
            Self::Question => card.push((fields::WHAT, Value::Int(i64::from(Self::LOG)))),
        }
        let body = encode_fields(storage.key(), &card);
        card::Card::encode(storage.store(), path, card::kind::MAIL, &body)
    }
}
