//! The mailbox of a writer: where others tell it that an episode is no longer its own.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;
use keepstep_format::{Id, card, fields};

use super::press::{Press, Sheet};
use super::{decode_fields, encode_fields};
use crate::disk::{self, Disk};
use crate::error::{Doing, Error, Result};
use crate::segment::names::list_numbered;

/// Reads one's own mail, in order of its numbers.
pub(crate) struct Mailbox {
    disk: Arc<dyn Disk>,
    store: Id,
    dir: String,
    next: u64,
    /// The next number's path, so that a look-up makes none.
    next_path: String,
}

impl Mailbox {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: Id, writer: Id) -> Self {
        let dir = format!("mail/{writer}");
        Self { disk, store, next: 0, next_path: format!("{dir}/0"), dir }
    }

    /// What came since the last look: usually one look-up that finds nothing.
    pub(crate) fn look(&mut self) -> io::Result<Vec<(Id, u32)>> {
        let mut letters = Vec::new();
        while self.disk.exists(&self.next_path)? {
            letters.push(self.read()?);
            self.next += 1;
            self.next_path = format!("{}/{}", self.dir, self.next);
        }
        Ok(letters)
    }

    /// A letter that cannot be read is an error: it may be the one that takes an episode away.
    fn read(&self) -> io::Result<(Id, u32)> {
        let path = &self.next_path;
        let data = disk::read_file(&*self.disk, path)?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("{path} cannot be read"));
        let card = card::Card::decode(&data, &self.store, path).map_err(|_| bad())?;
        let letter = decode_fields(card.body).ok_or_else(bad)?;
        let find = |number: u8| letter.iter().find(|(found, _)| *found == number).map(|(_, value)| value);
        let id = find(fields::EPISODE).and_then(|value| value.as_bytes()?.try_into().ok().map(Id));
        let attempt = find(fields::ATTEMPT).and_then(|value| u32::try_from(value.as_int()?).ok());
        id.zip(attempt).ok_or_else(bad)
    }
}

/// What is posted to somebody who may still believe that an episode or a stream is theirs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter {
    /// As in a BIND: 1 an episode, 3 a stream.
    pub(crate) what: u8,
    pub(crate) id: Id,
    /// The attempt that owns it from now on.
    pub(crate) attempt: u32,
    /// Who posts it.
    pub(crate) from: Id,
}

/// How many others may post to the same mailbox in the same moment.
const RACES_MAX: u64 = 100_000;
/// Of how many mailboxes it is remembered how full they are.
const MAILBOXES_MAX: usize = 1024;

/// Remembers how full the mailboxes of others were: one that thousands wrote to is not listed again for each letter. A
/// hint only: the name that is free decides.
#[derive(Debug, Default)]
pub(crate) struct Postman {
    taken: Mutex<HashMap<Id, u64>>,
}

impl Postman {
    /// Puts a letter into a mailbox, under the next number that is free. Durable when it returns.
    pub(crate) fn post(
        &self,
        disk: &dyn Disk,
        store: &Id,
        key: &ContentKey,
        to: &Id,
        letter: &Letter,
    ) -> Result<()> {
        let next = self.next_of(disk, to)?;
        let number = post_from(disk, store, key, to, letter, next)?;
        self.remember(to, number + 1);
        Ok(())
    }

    /// As [`Postman::post`], many letters to one mailbox, which share their syncs.
    pub(crate) fn post_all(
        &self,
        press: &Press,
        store: &Id,
        key: &ContentKey,
        to: &Id,
        mut letters: &[Letter],
    ) -> Result<()> {
        let (disk, dir) = (&**press.disk(), format!("mail/{to}"));
        for _ in 0..RACES_MAX {
            if letters.is_empty() {
                return Ok(());
            }
            let next = match self.next_of(disk, to)? {
                Some(next) => next,
                None => list_numbered(disk, &dir)?.last().map_or(0, |last| last + 1),
            };
            let sheet = |(letter, number): (&Letter, u64)| {
                let path = format!("{dir}/{number}");
                let content = encode_letter(disk, store, key, &path, letter);
                Sheet { path, content }
            };
            let sheets: Vec<Sheet> = letters.iter().zip(next..).map(sheet).collect();
            let posted = press.publish_in_order(&sheets.iter().collect::<Vec<_>>()).doing("post to", &dir)?;
            self.remember(to, next + posted as u64);
            letters = &letters[posted..];
        }
        Err(Error::Busy { what: dir, why: "others post to it faster than we can".to_owned() })
    }

    /// The next number of a mailbox that is free, if something is known of it.
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

/// The lowest number from `next` on that is free; nothing if the one before is gone.
fn first_free(disk: &dyn Disk, dir: &str, mut next: u64) -> Result<Option<u64>> {
    let exists = |number: u64| disk.exists(&format!("{dir}/{number}")).doing("look into", dir);
    if !exists(next - 1)? {
        return Ok(None);
    }
    // A look costs less than a letter that comes too late.
    while exists(next)? {
        next += 1;
    }
    Ok(Some(next))
}

/// Puts a letter into a mailbox, under the next number that is free. Durable when it returns.
pub(crate) fn post(disk: &dyn Disk, store: &Id, key: &ContentKey, to: &Id, letter: &Letter) -> Result<()> {
    post_from(disk, store, key, to, letter, None).map(|_| ())
}

/// Posts under the first number from `next` on that is free, and says which.
fn post_from(
    disk: &dyn Disk,
    store: &Id,
    key: &ContentKey,
    to: &Id,
    letter: &Letter,
    next: Option<u64>,
) -> Result<u64> {
    let dir = format!("mail/{to}");
    if !disk.exists(&dir).doing("look for", &dir)? {
        disk::ensure_dir(disk, "mail").doing("create", "mail")?;
        disk::ensure_dir(disk, &dir).doing("create", &dir)?;
    }
    let next = match next {
        Some(next) => next,
        None => list_numbered(disk, &dir)?.last().map_or(0, |last| last + 1),
    };
    for number in next..next + RACES_MAX {
        let path = format!("{dir}/{number}");
        let content = encode_letter(disk, store, key, &path, letter);
        if disk::publish(disk, &path, &content).doing("post", &path)? {
            return Ok(number);
        }
    }
    Err(Error::Busy { what: dir, why: "others post to it faster than we can".to_owned() })
}

fn encode_letter(disk: &dyn Disk, store: &Id, key: &ContentKey, path: &str, letter: &Letter) -> Vec<u8> {
    let body = encode_fields(
        key,
        &[
            (fields::TIME, Value::Int(disk.now_us())),
            (fields::WRITER, Value::bytes(letter.from.0)),
            (fields::ATTEMPT, Value::Int(i64::from(letter.attempt))),
            (fields::EPISODE, Value::bytes(letter.id.0)),
            (fields::WHAT, Value::Int(i64::from(letter.what))),
        ],
    );
    card::Card::encode(store, path, card::kind::MAIL, &body)
}
