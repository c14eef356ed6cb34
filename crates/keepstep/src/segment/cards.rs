//! Reads and writes cards: small files of fields.

use keepstep_format::Id;
use keepstep_format::card::{self, Card, CardError};
use keepstep_format::decode::{self, Body, NoBodies};
use keepstep_format::encode::{Encoder, NothingKnown};
use keepstep_format::value::Value;

use super::storage::Storage;
use crate::error::{Doing, Error, Result};

/// The fields of a card.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields(pub Vec<(u8, Value)>);

/// What is under a card's name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CardFound {
    /// Nothing.
    Nothing,
    /// A card of the kind that belongs there.
    Card(Fields),
    /// Bytes that differ from what was published there.
    Damaged,
}

impl Fields {
    /// The value of a field.
    pub(crate) fn get(&self, number: u8) -> Option<&Value> {
        self.0.iter().find(|(found, _)| *found == number).map(|(_, value)| value)
    }

    /// A number that is not below zero.
    pub(crate) fn number(&self, number: u8) -> Option<u64> {
        u64::try_from(self.get(number)?.as_int()?).ok()
    }

    /// An id.
    pub(crate) fn id(&self, number: u8) -> Option<Id> {
        as_id(self.get(number)?)
    }

    /// A text.
    pub(crate) fn text(&self, number: u8) -> Option<&str> {
        self.get(number)?.as_str()
    }
}

/// The id in these bytes.
pub(crate) fn as_id(value: &Value) -> Option<Id> {
    value.as_bytes()?.try_into().ok().map(Id)
}

/// Reads the card at a path, if it is of this kind.
pub(crate) fn read_card(storage: &Storage, path: &str, kind: u16) -> Result<CardFound> {
    let raw = match read_body(storage, path, kind)? {
        BodyFound::Nothing => return Ok(CardFound::Nothing),
        BodyFound::Damaged => return Ok(CardFound::Damaged),
        BodyFound::Body(raw) => raw,
    };
    let body = Body { raw, references: Vec::new() };
    Ok(decode::read_fields(&body, &mut NoBodies)
        .map_or(CardFound::Damaged, |fields| CardFound::Card(Fields(fields))))
}

/// What is under a card's name, before its fields are read.
pub(crate) enum BodyFound {
    Nothing,
    Body(Vec<u8>),
    Damaged,
}

/// As [`read_card`], for callers that decode long ones themselves.
pub(crate) fn read_body(storage: &Storage, path: &str, kind: u16) -> Result<BodyFound> {
    let data = match storage.disk().get(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BodyFound::Nothing),
        // What is under the name cannot be a card, so keepstep did not publish it.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(BodyFound::Damaged),
        got => got.doing("read", path)?,
    };
    match Card::decode(&data, storage.store(), path) {
        Ok(card) if card.kind == kind => Ok(BodyFound::Body(card.body)),
        Err(CardError::Newer { found, known }) => {
            let (found, known) = (u32::from(found), u32::from(known));
            Err(Error::NewerFormat { path: path.to_owned(), found, known })
        }
        Ok(_) | Err(_) => Ok(BodyFound::Damaged),
    }
}

/// Fields as bytes; numbers must rise. `None` if a value cannot be written.
pub(crate) fn encode_fields(storage: &Storage, fields: &[(u8, Value)]) -> Option<Vec<u8>> {
    let mut encoder = Encoder::fields(storage.key(), &NothingKnown);
    for (number, value) in fields {
        encoder.field(*number);
        encoder.put(value).ok()?;
    }
    Some(encoder.finish().body)
}

/// Fields from bytes, if they are valid. No bytes mean no fields.
pub(crate) fn decode_fields(bytes: &[u8]) -> Option<Fields> {
    if bytes.is_empty() {
        return Some(Fields::default());
    }
    let body = Body { raw: bytes.to_vec(), references: Vec::new() };
    decode::read_fields(&body, &mut NoBodies).ok().map(Fields)
}

/// The result of publishing a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// It is there.
    Done,
    /// The name is taken.
    Taken,
    /// It would be too long, or nested too deeply.
    Unfit,
}

/// Publishes a card, create-only.
pub(crate) fn publish_card(
    storage: &Storage,
    path: &str,
    kind: u16,
    fields: &[(u8, Value)],
) -> Result<Published> {
    let Some(body) = encode_fields(storage, fields).filter(|body| body.len() <= card::CARD_BODY_MAX) else {
        return Ok(Published::Unfit);
    };
    let content = Card::encode(storage.store(), path, kind, &body);
    let is_new = storage.disk().put(path, &content).doing("publish", path)?;
    Ok(if is_new { Published::Done } else { Published::Taken })
}
