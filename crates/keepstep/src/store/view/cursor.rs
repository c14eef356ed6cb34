//! Where a reader of a run stopped, as a string that survives restarts.
//!
//! `2~=<manifest>~<writer>.<segment>.<offset>~…~+<writer>.<segment>.<offset>.<bind>.<seq>~…~?<writer>.<episode>.<attempt>.<seq>.<why>~…~!<writer>.<group>.<time>~…~<checksum>`:
//! All logs that manifests up to `=` replaced were reported. Then, how far each other log was reported, by the places
//! where records were first written, even if they were moved since. Then, what was reported while its writer could
//! still write it again elsewhere (`+`). Then, the ends (`?`) and seals (`!`) that were seen and are not decided yet.
//!
//! What was seen is named by its writer and sequence, or by group and time, and is decided by cards. So it means the
//! same after its writer's log was compacted. An end of an episode that was pruned is not reported any more.
//!
//! Cursors of 0.1 begin with `1` and have no `=` and no `+`. They can still be read.

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};

use crate::error::{Error, Result};
use crate::read::{Position, Unsettled};

/// An end that was seen before it was known whether it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Held {
    pub(in crate::store) writer: Id,
    pub(in crate::store) episode: Id,
    pub(in crate::store) attempt: u32,
    pub(in crate::store) seq: u32,
    pub(in crate::store) why: String,
}

impl Held {
    /// The attempt that it ends, as its owner recorded it.
    pub(in crate::store) fn bind(&self) -> Bind {
        Bind { what: What::Attempt, id: self.episode, attempt: self.attempt }
    }
}

/// A seal that was announced and not published yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Announced {
    pub(in crate::store) writer: Id,
    pub(in crate::store) group: Id,
    pub(in crate::store) time: i64,
}

/// Where a reader stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::store) struct Cursor {
    pub(in crate::store) position: Position,
    pub(in crate::store) held: Vec<Held>,
    pub(in crate::store) announced: Vec<Announced>,
}

const VERSION: &str = "2";
const VERSION_OF_0_1: &str = "1";

impl Cursor {
    /// As a text for this run: its generation is part of the checksum, so that no other run takes it.
    pub(in crate::store) fn to_text(&self, run: &Id) -> String {
        let mut text = VERSION.to_owned();
        let Position { replaced_by, writers, unsettled } = &self.position;
        if let Some(manifest) = replaced_by {
            text += &format!("~={manifest}");
        }
        for (writer, (segment, offset)) in writers {
            text += &format!("~{writer}.{segment}.{offset}");
        }
        for Unsettled { writer, origin: (segment, offset), bind, seq } in unsettled {
            let bind: String = bind.encode().iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("~+{writer}.{segment}.{offset}.{bind}.{seq}");
        }
        for Held { writer, episode, attempt, seq, why } in &self.held {
            text += &format!("~?{writer}.{episode}.{attempt}.{seq}.{why}");
        }
        for Announced { writer, group, time } in &self.announced {
            text += &format!("~!{writer}.{group}.{time}");
        }
        let sum = sum_of(&text, run);
        text + &format!("~{sum:08x}")
    }

    pub(in crate::store) fn parse(text: &str, run: &Id) -> Result<Self> {
        Self::read(text, run).ok_or_else(|| Error::BadInput {
            field: "after".to_owned(),
            value: format!("is {text:?}, which is no cursor of this run"),
            fix: "give a cursor that following this run returned, or \"\" to begin with the first event"
                .to_owned(),
        })
    }

    fn read(text: &str, run: &Id) -> Option<Self> {
        let (body, sum) = text.rsplit_once('~')?;
        let mut parts = body.split('~');
        let expected = match parts.next()? {
            VERSION => sum_of(body, run),
            VERSION_OF_0_1 => crc32c::crc32c(body.as_bytes()),
            _ => return None,
        };
        if format!("{expected:08x}") != sum {
            return None;
        }
        let mut cursor = Self::default();
        for part in parts {
            if let Some(held) = part.strip_prefix('?') {
                cursor.held.push(read_held(held)?);
            } else if let Some(announced) = part.strip_prefix('!') {
                cursor.announced.push(read_announced(announced)?);
            } else if let Some(unsettled) = part.strip_prefix('+') {
                cursor.position.unsettled.push(read_unsettled(unsettled)?);
            } else if let Some(manifest) = part.strip_prefix('=') {
                cursor.position.replaced_by = Some(manifest.parse().ok()?);
            } else {
                let mut fields = part.splitn(3, '.');
                let writer = fields.next()?.parse().ok()?;
                let place = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
                cursor.position.writers.insert(writer, place);
            }
        }
        Some(cursor)
    }
}

fn sum_of(body: &str, run: &Id) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&run.0), body.as_bytes())
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

fn read_unsettled(text: &str) -> Option<Unsettled> {
    let mut fields = text.splitn(5, '.');
    let writer = fields.next()?.parse().ok()?;
    let origin = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let bind = fields.next()?.as_bytes().chunks(2).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        u8::from_str_radix(digits, 16).ok()
    });
    let bind = Bind::decode(&bind.collect::<Option<Vec<u8>>>()?).ok()?;
    Some(Unsettled { writer, origin, bind, seq: fields.next()?.parse().ok()? })
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
    use keepstep_format::commit::What;

    /// A cursor can be read back, and one that was changed is refused.
    #[test]
    fn a_cursor_comes_back() {
        let held = Held {
            writer: Id([7; 16]),
            episode: Id([9; 16]),
            attempt: 3,
            seq: 4,
            why: "finished".to_owned(),
        };
        let writers = [(Id([1; 16]), (0, 128)), (Id([2; 16]), (u64::MAX, 7))].into_iter().collect();
        let bind = Bind { what: What::Copied { from: Id([8; 16]) }, id: Id([9; 16]), attempt: 300 };
        let unsettled = vec![Unsettled { writer: Id([5; 16]), origin: (1, 256), bind, seq: 7 }];
        let position = Position { replaced_by: Some(12), writers, unsettled };
        let announced = vec![Announced { writer: Id([3; 16]), group: Id([4; 16]), time: -5 }];
        let cursor = Cursor { position, held: vec![held], announced };
        let (run, other) = (Id([6; 16]), Id([7; 16]));
        let text = cursor.to_text(&run);
        assert_eq!(Cursor::parse(&text, &run).expect("reads"), cursor);
        assert!(Cursor::parse(&text, &other).is_err(), "it is of another run");
        let empty = Cursor::default();
        assert_eq!(Cursor::parse(&empty.to_text(&run), &run).expect("reads"), empty);
        for index in 0..text.len() {
            let mut touched = text.clone().into_bytes();
            touched[index] ^= 1;
            let touched = String::from_utf8(touched).expect("is still ASCII");
            assert!(Cursor::parse(&touched, &run).is_err(), "{touched}");
        }
        assert!(Cursor::parse("", &run).is_err() && Cursor::parse("1~", &run).is_err());
    }

    /// A cursor of 0.1 can be read: how far each log was reported, and which logs are done.
    #[test]
    fn a_cursor_of_0_1_is_read() {
        let (one, two) = (Id([1; 16]), Id([2; 16]));
        let body = format!("1~{one}.3.4096~{two}.{max}.{max}~!{one}.{two}.77", max = u64::MAX);
        let text = format!("{body}~{:08x}", crc32c::crc32c(body.as_bytes()));
        let cursor = Cursor::parse(&text, &Id([6; 16])).expect("reads");
        let writers = [(one, (3, 4096)), (two, (u64::MAX, u64::MAX))].into_iter().collect();
        assert_eq!(cursor.position, Position { writers, ..Position::default() });
        assert_eq!(cursor.announced, [Announced { writer: one, group: two, time: 77 }]);
    }
}
