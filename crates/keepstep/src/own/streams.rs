//! Streams: who writes to one, and how it is closed so that everybody agrees on what is in it.
//!
//! A putter claims and then looks whether somebody closes the stream; a closer says so and then lists the claims. So one
//! of them sees the other. Letters go out before anything is read: an entry that is acknowledged without a letter having
//! been there was written before the read.

use keepstep_format::Id;
use keepstep_format::card::kind;
use keepstep_format::commit::What;
use keepstep_format::fields;
use keepstep_format::hash::Hash;
use keepstep_format::value::Value;

use super::{FenceNotice, NoticePoster};
use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::segment::Storage;
use crate::segment::cards::{CardFound, Fields, Published, as_id, publish_card, read_card};
use crate::segment::names::stream_path;

/// The attempt of entries that were put.
pub(crate) const PUT: u32 = 0;
/// The attempt of entries that a freezer copied, and the one that fences those who put.
pub(crate) const COPIED: u32 = 1;

/// A stream, as its files name it.
#[derive(Debug, Clone)]
pub(crate) struct StreamFiles {
    pub(crate) stream: Id,
    /// Of its run.
    pub(crate) generation_id: Id,
    pub(crate) name: String,
}

/// Where the record of an entry stands, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(crate) name: String,
    pub(crate) writer: Id,
    pub(crate) seq: u32,
    pub(crate) hash: Hash,
    /// It is a copy, in the log of whoever froze the stream.
    pub(crate) copied: bool,
}

/// What a frozen stream holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FreezeCard {
    pub(crate) entries: Vec<EntryPlace>,
    /// One for each value of a name that has several.
    pub(crate) conflicts: Vec<EntryPlace>,
    /// Places that could not be read when it was frozen, and was all the same.
    pub(crate) lost: Vec<LostPlace>,
}

/// Where entries stood, or may have stood, that were lost to damage before the freeze.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostPlace {
    pub(crate) writer: Id,
    pub(crate) path: String,
    pub(crate) offset: u64,
    pub(crate) found: String,
}

impl StreamFiles {
    fn path(&self, ending: &str) -> String {
        stream_path(&self.stream, ending)
    }

    /// Publishes a card of this stream. False if the name was taken; durable in both cases.
    fn publish(&self, storage: &Storage, ending: &str, kind: u16, card: &[(u8, Value)]) -> Result<bool> {
        let path = self.path(ending);
        match publish_card(storage, &path, kind, card)? {
            Published::Done => Ok(true),
            Published::Taken => {
                // Whoever made it may have died before the name was safe.
                let dir = disk::parent(&path);
                storage.disk().settle(dir).doing("sync", dir)?;
                Ok(false)
            }
            Published::Unfit => Err(Error::BadInput {
                field: "stream".to_owned(),
                value: format!("{:?} is too long for {path}", self.name),
                fix: "a card has at most 64 MiB: spread the entries over several streams".to_owned(),
            }),
        }
    }

    fn claim_card(&self, storage: &Storage, writer: &Id, attempt: u32) -> [(u8, Value); 6] {
        [
            (fields::TIME, Value::Int(storage.disk().now_us())),
            (fields::GENERATION_ID, Value::bytes(self.generation_id.0)),
            (fields::NAME, Value::from(self.name.as_str())),
            (fields::WRITER, Value::bytes(writer.0)),
            (fields::ATTEMPT, Value::Int(i64::from(attempt))),
            (fields::EPISODE, Value::bytes(self.stream.0)),
        ]
    }

    /// Says that a writer puts entries here. To be followed by [`StreamFiles::is_closing`], before the first entry.
    pub(crate) fn claim(&self, storage: &Storage, writer: &Id) -> Result<()> {
        let card = self.claim_card(storage, writer, PUT);
        self.publish(storage, &writer.to_string(), kind::CLAIM, &card).map(|_| ())
    }

    /// True if somebody freezes or drops the stream, or did. A look that fails is not a "no".
    pub(crate) fn is_closing(&self, storage: &Storage) -> Result<bool> {
        for ending in ["freezing", "freeze", "drop"] {
            if self.exists(storage, ending)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if the stream was dropped.
    pub(crate) fn is_dropped(&self, storage: &Storage) -> Result<bool> {
        self.exists(storage, "drop")
    }

    fn exists(&self, storage: &Storage, ending: &str) -> Result<bool> {
        let path = self.path(ending);
        storage.disk().exists(&path).doing("look for", &path)
    }

    /// Says that the stream is being closed: from here on nobody begins to write to it.
    pub(crate) fn begin_closing(&self, storage: &Storage, writer: &Id) -> Result<()> {
        let card = self.claim_card(storage, writer, COPIED);
        self.publish(storage, "freezing", kind::CLAIM, &card).map(|_| ())
    }

    /// Tells every claimant that the stream is closed.
    pub(crate) fn post_to_all(&self, storage: &Storage, from: &Id) -> Result<()> {
        let what = What::Stream.number();
        let letter = FenceNotice::Claimed { what, id: self.stream, attempt: COPIED, from: *from };
        for writer in self.claimants(storage)? {
            NoticePoster::default().post(storage, &writer, &letter)?;
        }
        Ok(())
    }

    /// Who writes to the stream, sorted.
    pub(crate) fn claimants(&self, storage: &Storage) -> Result<Vec<Id>> {
        let path = self.path("");
        let (dir, prefix) = path.rsplit_once('/').unwrap_or(("", &path));
        let entries = storage.disk().list(dir).doing("list", dir)?;
        Ok(entries.iter().filter_map(|entry| entry.name.strip_prefix(prefix)?.parse().ok()).collect())
    }

    /// Publishes what the stream holds. False if somebody else was first: then theirs holds.
    pub(crate) fn publish_freeze(&self, storage: &Storage, writer: &Id, card: &FreezeCard) -> Result<bool> {
        let list = |places: &[EntryPlace]| Value::list(places.iter().map(place_value));
        let fields = [
            (fields::TIME, Value::Int(storage.disk().now_us())),
            (fields::WRITER, Value::bytes(writer.0)),
            (fields::HOLES, Value::list(card.lost.iter().map(lost_value))),
            (fields::STREAM, Value::bytes(self.stream.0)),
            (fields::ENTRIES, list(&card.entries)),
            (fields::CONFLICTS, list(&card.conflicts)),
        ];
        self.publish(storage, "freeze", kind::FREEZE, &fields)
    }

    /// What the stream holds, if it is frozen.
    pub(crate) fn read_freeze(&self, storage: &Storage) -> Result<Option<FreezeCard>> {
        let path = self.path("freeze");
        let damaged = |found: &str| Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() };
        match read_card(storage, &path, kind::FREEZE)? {
            CardFound::Nothing => Ok(None),
            CardFound::Damaged => Err(damaged("it does not validate: nobody knows what the stream held")),
            CardFound::Card(card) => freeze_card(&card)
                .filter(|_| card.id(fields::STREAM) == Some(self.stream))
                .map(Some)
                .ok_or_else(|| damaged("its fields are not those of a frozen stream")),
        }
    }

    /// Makes sure that the stream's names survive a power cut, also those that others gave.
    pub(crate) fn sync_names(&self, storage: &Storage) -> Result<()> {
        let path = self.path("");
        let dir = disk::parent(&path);
        storage.disk().settle(dir).doing("sync", dir)
    }

    /// Hides the stream. It must be closed.
    pub(crate) fn publish_drop(&self, storage: &Storage) -> Result<()> {
        let fields = [
            (fields::TIME, Value::Int(storage.disk().now_us())),
            (fields::STREAM, Value::bytes(self.stream.0)),
        ];
        self.publish(storage, "drop", kind::DROP, &fields).map(|_| ())
    }
}

fn place_value(place: &EntryPlace) -> Value {
    let mut entries = vec![
        ("name", Value::from(place.name.as_str())),
        ("writer", Value::bytes(place.writer.0)),
        ("sequence", Value::Int(i64::from(place.seq))),
        ("hash", Value::bytes(place.hash)),
    ];
    if place.copied {
        entries.push(("copied", Value::Bool(true)));
    }
    Value::map(entries)
}

fn freeze_card(card: &Fields) -> Option<FreezeCard> {
    let list = |number: u8| card.get(number)?.as_list()?.iter().map(entry_place).collect::<Option<Vec<_>>>();
    let lost = card.get(fields::HOLES)?.as_list()?.iter().map(lost_place).collect::<Option<_>>()?;
    Some(FreezeCard { entries: list(fields::ENTRIES)?, conflicts: list(fields::CONFLICTS)?, lost })
}

fn lost_value(lost: &LostPlace) -> Value {
    Value::map([
        ("writer", Value::bytes(lost.writer.0)),
        ("path", Value::from(lost.path.as_str())),
        ("offset", Value::Int(lost.offset as i64)),
        ("found", Value::from(lost.found.as_str())),
    ])
}

fn lost_place(value: &Value) -> Option<LostPlace> {
    Some(LostPlace {
        writer: as_id(value.get("writer")?)?,
        path: value.get("path")?.as_str()?.to_owned(),
        offset: u64::try_from(value.get("offset")?.as_int()?).ok()?,
        found: value.get("found")?.as_str()?.to_owned(),
    })
}

fn entry_place(value: &Value) -> Option<EntryPlace> {
    Some(EntryPlace {
        name: value.get("name")?.as_str()?.to_owned(),
        writer: as_id(value.get("writer")?)?,
        seq: u32::try_from(value.get("sequence")?.as_int()?).ok()?,
        hash: value.get("hash")?.as_bytes()?.try_into().ok()?,
        copied: matches!(value.get("copied").map(Value::plain), Some(Value::Bool(true))),
    })
}
