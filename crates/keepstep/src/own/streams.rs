//! Streams: which writers put entries into one, and how it is closed, so that all readers agree on its entries.
//!
//! A putter claims, and then checks whether the stream is being closed. A closer announces the closing, and then
//! lists the claims. So one of them sees the other. Letters are posted before anything is read: an entry that is
//! acknowledged before its letter was there had been written before the read.

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
/// The attempt of entries that a freeze copied. It fences the putters.
pub(crate) const COPIED: u32 = 1;

/// The files of a stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamFiles {
    pub(crate) stream: Id,
    /// The generation id of its run.
    pub(crate) generation_id: Id,
    pub(crate) name: String,
}

/// Where the record of an entry is, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(crate) name: String,
    pub(crate) writer: Id,
    pub(crate) seq: u32,
    pub(crate) hash: Hash,
    /// True if it is a copy, in the log of the process that froze the stream.
    pub(crate) copied: bool,
}

/// The entries of a frozen stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FreezeCard {
    pub(crate) entries: Vec<EntryPlace>,
    /// One for each value of an id that has several.
    pub(crate) conflicts: Vec<EntryPlace>,
    /// Places that could not be read, in a stream that was frozen all the same.
    pub(crate) lost: Vec<LostPlace>,
}

/// Where entries were, or may have been, that were lost to damage before the freeze.
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
                // The process that made it may have died before it synced the name.
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

    /// Claims that a writer puts entries here. [`StreamFiles::is_closing`] must follow, before the first entry.
    pub(crate) fn claim(&self, storage: &Storage, writer: &Id) -> Result<()> {
        let card = self.claim_card(storage, writer, PUT);
        self.publish(storage, &writer.to_string(), kind::CLAIM, &card).map(|_| ())
    }

    /// True if the stream is or was being frozen or dropped. A look that fails is an error, not a "no".
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

    /// Announces that the stream is being closed. From then on no writer begins to put entries.
    pub(crate) fn begin_closing(&self, storage: &Storage, writer: &Id) -> Result<()> {
        let card = self.claim_card(storage, writer, COPIED);
        self.publish(storage, "freezing", kind::CLAIM, &card).map(|_| ())
    }

    /// Posts to every claimant that the stream is closed.
    pub(crate) fn post_to_all(&self, storage: &Storage, from: &Id) -> Result<()> {
        let what = What::Stream.number();
        let letter = FenceNotice::Claimed { what, id: self.stream, attempt: COPIED, from: *from };
        for writer in self.claimants(storage)? {
            NoticePoster::default().post(storage, &writer, &letter)?;
        }
        Ok(())
    }

    /// The writers that claimed the stream, sorted.
    pub(crate) fn claimants(&self, storage: &Storage) -> Result<Vec<Id>> {
        let path = self.path("");
        let (dir, prefix) = path.rsplit_once('/').unwrap_or(("", &path));
        let entries = storage.disk().list(dir).doing("list", dir)?;
        Ok(entries.iter().filter_map(|entry| entry.name.strip_prefix(prefix)?.parse().ok()).collect())
    }

    /// Publishes the entries of the stream. False if another process was first; then its list counts.
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

    /// The entries of the stream, if it is frozen.
    pub(crate) fn read_freeze(&self, storage: &Storage) -> Result<Option<FreezeCard>> {
        let path = self.path("freeze");
        let damaged = |found: &str| Error::Damaged { path: path.clone(), offset: 0, found: found.to_owned() };
        match read_card(storage, &path, kind::FREEZE)? {
            CardFound::Nothing => Ok(None),
            CardFound::Damaged => Err(damaged("it does not validate: the entries of the stream are unknown")),
            CardFound::Card(card) => freeze_card(&card)
                .filter(|_| card.id(fields::STREAM) == Some(self.stream))
                .map(Some)
                .ok_or_else(|| damaged("its fields are not those of a frozen stream")),
        }
    }

    /// Makes the stream's names survive a power cut, including those that other processes gave.
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
