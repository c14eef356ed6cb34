//! `keepstep.json`: the one file of a store that people open with an editor.
//!
//! Reads only the part of JSON that it needs. A file that repeats a key, or differs from what was written, is
//! damaged.

use thiserror::Error;

use crate::{FORMAT_VERSION, Id};

/// How deep unknown values may nest before they are refused.
const DEPTH_MAX: u32 = 32;

/// Why a text is not the `keepstep.json` of a store that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreJsonError {
    /// A later version wrote it.
    #[error("format version {found} is newer than {known}, the newest known here")]
    Newer {
        /// Its version.
        found: u64,
        /// The newest version that this code reads.
        known: u64,
    },
    /// It differs from what was written.
    #[error("keepstep.json is damaged: {0}")]
    Damaged(&'static str),
}

use StoreJsonError::Damaged;

/// The text of `keepstep.json`.
pub fn store_json(store: &Id, created: i64) -> String {
    let check = check(u64::from(FORMAT_VERSION), store, created);
    format!(
        "{{\"keepstep\":\"store\",\"format\":{FORMAT_VERSION},\"store\":\"{store}\",\"created\":{created},\"check\":\"{check}\"}}\n"
    )
}

/// The store's id, and when it was made.
pub fn parse_store_json(text: &str) -> Result<(Id, i64), StoreJsonError> {
    let mut found = Members::default();
    let mut reader = Reader { rest: text };
    reader.object(0, &mut |reader, key| match key {
        "keepstep" => keep(&mut found.keepstep, reader.string()?),
        "format" => keep(&mut found.format, reader.integer()?),
        "store" => keep(&mut found.store, reader.string()?),
        "created" => keep(&mut found.created, reader.integer()?),
        "check" => keep(&mut found.check, reader.string()?),
        _ => reader.skip(1),
    })?;
    reader.space();
    if !reader.rest.is_empty() {
        return Err(Damaged("something stands behind the object"));
    }
    found.store()
}

#[derive(Default)]
struct Members {
    keepstep: Option<String>,
    format: Option<i64>,
    store: Option<String>,
    created: Option<i64>,
    check: Option<String>,
}

impl Members {
    fn store(self) -> Result<(Id, i64), StoreJsonError> {
        let (Some(keepstep), Some(format), Some(store)) = (self.keepstep, self.format, self.store) else {
            return Err(Damaged("keepstep, format or store is missing"));
        };
        let (Some(created), Some(said)) = (self.created, self.check) else {
            return Err(Damaged("created or check is missing"));
        };
        if keepstep != "store" {
            return Err(Damaged("it is not about a store"));
        }
        let store = store.parse().map_err(|_| Damaged("the store's id is not an id"))?;
        let format = u64::try_from(format).map_err(|_| Damaged("the format is negative"))?;
        // The checksum is checked first, so that a flipped digit is not taken for a newer version.
        if check(format, &store, created) != said || format == 0 {
            return Err(Damaged("the check does not hold"));
        }
        let known = u64::from(FORMAT_VERSION);
        if format > known {
            return Err(StoreJsonError::Newer { found: format, known });
        }
        Ok((store, created))
    }
}

fn check(format: u64, store: &Id, created: i64) -> String {
    format!("{:08x}", crc32c::crc32c(format!("{format}:{store}:{created}").as_bytes()))
}

fn keep<T>(slot: &mut Option<T>, value: T) -> Result<(), StoreJsonError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Damaged("a key stands there twice")),
    }
}

/// Called for each member of an object, with the reader before its value.
type Member<'m, 't> = dyn FnMut(&mut Reader<'t>, &str) -> Result<(), StoreJsonError> + 'm;

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    /// True if `token` comes next; it is then consumed.
    fn accept(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str, otherwise: &'static str) -> Result<(), StoreJsonError> {
        if self.accept(token) { Ok(()) } else { Err(Damaged(otherwise)) }
    }

    fn object(&mut self, depth: u32, member: &mut Member<'_, 't>) -> Result<(), StoreJsonError> {
        if depth > DEPTH_MAX {
            return Err(Damaged("it nests too deep"));
        }
        self.expect("{", "it is not an object")?;
        if self.accept("}") {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(":", "a colon is missing")?;
            member(self, &key)?;
            if !self.accept(",") {
                return self.expect("}", "an object does not end");
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<(), StoreJsonError> {
        self.expect("[", "it is not an array")?;
        if self.accept("]") {
            return Ok(());
        }
        loop {
            self.skip(depth)?;
            if !self.accept(",") {
                return self.expect("]", "an array does not end");
            }
        }
    }

    /// Skips a value that is not needed.
    fn skip(&mut self, depth: u32) -> Result<(), StoreJsonError> {
        if depth > DEPTH_MAX {
            return Err(Damaged("it nests too deep"));
        }
        self.space();
        match self.rest.as_bytes().first() {
            Some(b'{') => self.object(depth, &mut |reader, _| reader.skip(depth + 1)),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => {
                self.number();
                Ok(())
            }
            _ => {
                let is_word = self.accept("true") || self.accept("false") || self.accept("null");
                if is_word { Ok(()) } else { Err(Damaged("a value is missing")) }
            }
        }
    }

    fn number(&mut self) -> &'t str {
        self.space();
        let end = self.rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        number
    }

    fn integer(&mut self) -> Result<i64, StoreJsonError> {
        let number = self.number();
        let is_plain = !number.starts_with('+');
        number.parse().ok().filter(|_| is_plain).ok_or(Damaged("a whole number is missing"))
    }

    fn string(&mut self) -> Result<String, StoreJsonError> {
        self.expect("\"", "a text is missing")?;
        let mut text = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next() {
                Some('"') => break,
                Some('\\') => text.push(escaped(&mut chars)?),
                Some(char) if char >= ' ' => text.push(char),
                _ => return Err(Damaged("a text does not end")),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Result<char, StoreJsonError> {
    let bad = Damaged("an escape is not one of JSON's");
    let char = match chars.next() {
        Some(char @ ('"' | '\\' | '/')) => char,
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => {
            let first = four_hex(chars).ok_or(bad.clone())?;
            // Characters beyond 16 bits are written as a pair.
            if !(0xD800..0xDC00).contains(&first) {
                return char::from_u32(first).ok_or(bad);
            }
            let is_pair = chars.next() == Some('\\') && chars.next() == Some('u');
            let second = four_hex(chars).filter(|second| is_pair && (0xDC00..0xE000).contains(second));
            let second = second.ok_or(bad.clone())?;
            return char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).ok_or(bad);
        }
        _ => return Err(bad),
    };
    Ok(char)
}

fn four_hex(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |number, _| Some(number << 4 | chars.next()?.to_digit(16)?))
}
