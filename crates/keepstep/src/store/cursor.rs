//! Where somebody stopped reading a run, as a string that survives restarts.
//!
//! `1~<writer>.<segment>.<offset>~…~?<writer>.<episode>.<attempt>.<seq>.<why>~…~!<writer>.<group>.<time>~…~<checksum>`:
//! how far each log was told, and the ends and seals that were seen and could not be decided yet.

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::read::Position;

/// An end that was seen while it was not known whether it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) writer: Id,
    pub(super) episode: Id,
    pub(super) attempt: u32,
    pub(super) seq: u32,
    pub(super) why: String,
}

/// A seal that was announced, and was not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) writer: Id,
    pub(super) group: Id,
    pub(super) time: i64,
}

/// Where somebody stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) position: Position,
    pub(super) held: Vec<Held>,
    pub(super) announced: Vec<Announced>,
}

const VERSION: &str = "1";

impl Cursor {
    pub(super) fn to_text(&self) -> String {
        let mut text = VERSION.to_owned();
        for (writer, (segment, offset)) in &self.position {
            text += &format!("~{writer}.{segment}.{offset}");
        }
        for Held { writer, episode, attempt, seq, why } in &self.held {
            text += &format!("~?{writer}.{episode}.{attempt}.{seq}.{why}");
        }
        for Announced { writer, group, time } in &self.announced {
            text += &format!("~!{writer}.{group}.{time}");
        }
        let sum = crc32c::crc32c(text.as_bytes());
        text + &format!("~{sum:08x}")
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| Error::BadInput {
            field: "after".to_owned(),
            value: format!("is {text:?}, which is no cursor"),
            fix: "give a cursor as it was given to you, or none to begin with the first".to_owned(),
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (body, sum) = text.rsplit_once('~')?;
        if format!("{:08x}", crc32c::crc32c(body.as_bytes())) != sum {
            return None;
        }
        let mut parts = body.split('~');
        if parts.next() != Some(VERSION) {
            return None;
        }
        let mut cursor = Self::default();
        for part in parts {
            if let Some(held) = part.strip_prefix('?') {
                cursor.held.push(read_held(held)?);
            } else if let Some(announced) = part.strip_prefix('!') {
                cursor.announced.push(read_announced(announced)?);
            } else {
                let mut fields = part.splitn(3, '.');
                let writer = fields.next()?.parse().ok()?;
                let place = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
                cursor.position.insert(writer, place);
            }
        }
        Some(cursor)
    }
}

fn read_held(text: &str) -> Option<Held> {
    let mut fields = text.splitn(5, '.');
    Some(Held {
        writer: fields.next()?.parse().ok()?,
        episode: fields.next()?.parse().ok()?,
        attempt: fields.next()?.parse().ok()?,
        seq: fields.next()?.parse().ok()?,
        why: fields.next()?.to_owned(),
    })
}

fn read_announced(text: &str) -> Option<Announced> {
    let mut fields = text.splitn(3, '.');
    Some(Announced {
        writer: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        time: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cursor comes back as it was, and one that somebody touched is refused.
    #[test]
    fn a_cursor_comes_back() {
        let held = Held {
            writer: Id([7; 16]),
            episode: Id([9; 16]),
            attempt: 3,
            seq: 4,
            why: "finished".to_owned(),
        };
        let position = [(Id([1; 16]), (0, 128)), (Id([2; 16]), (u64::MAX, 7))].into_iter().collect();
        let announced = vec![Announced { writer: Id([3; 16]), group: Id([4; 16]), time: -5 }];
        let cursor = Cursor { position, held: vec![held], announced };
        let text = cursor.to_text();
        assert_eq!(Cursor::parse(&text).expect("reads"), cursor);
        assert_eq!(Cursor::parse(&Cursor::default().to_text()).expect("reads"), Cursor::default());
        for index in 0..text.len() {
            let mut touched = text.clone().into_bytes();
            touched[index] ^= 1;
            let touched = String::from_utf8(touched).expect("is still ASCII");
            assert!(Cursor::parse(&touched).is_err(), "{touched}");
        }
        assert!(Cursor::parse("").is_err() && Cursor::parse("1~").is_err());
    }
}
