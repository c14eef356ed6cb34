//! JSON as the command prints it. It only ever writes JSON, so it needs no parser.
//!
//! What JSON has no word for is an object with one `$` key, and never an invalid document: NaN is `{"$float":"nan"}`.

mod value;

use std::fmt;

use crate::screen::is_hostile;

pub(crate) use value::value;

/// A JSON document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Any integer, in its decimal digits.
    Digits(String),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    /// An object, its keys in this order.
    pub(crate) fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Json)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, json)| (key.into(), json)).collect())
    }

    pub(crate) fn list(items: impl IntoIterator<Item = Json>) -> Self {
        Self::List(items.into_iter().collect())
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

macro_rules! from_integers {
    ($($integer:ty),*) => { $(
        impl From<$integer> for Json {
            fn from(number: $integer) -> Self { Self::Digits(number.to_string()) }
        }
    )* };
}
from_integers!(u8, u32, u64, usize, i32, i64);

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(some: Option<T>) -> Self {
        some.map_or(Self::Null, Into::into)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::Digits(digits) => f.write_str(digits),
            Self::Float(number) => write_float(f, *number),
            Self::Text(text) => write_text(f, text),
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    item.fmt(f)?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (at, (key, json)) in entries.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    write_text(f, key)?;
                    f.write_str(":")?;
                    json.fmt(f)?;
                }
                f.write_str("}")
            }
        }
    }
}

/// The shortest digits that give the same float back.
fn write_float(f: &mut fmt::Formatter<'_>, number: f64) -> fmt::Result {
    match number {
        _ if number.is_nan() => f.write_str(r#"{"$float":"nan"}"#),
        _ if number.is_infinite() => write!(f, r#"{{"$float":"{number}"}}"#),
        _ => write!(f, "{number:?}"),
    }
}

/// Escapes what JSON must have escaped, and what a terminal must not see.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    let mut from = 0;
    for (at, c) in text.char_indices() {
        if c != '"' && c != '\\' && !is_hostile(c) {
            continue;
        }
        f.write_str(&text[from..at])?;
        from = at + c.len_utf8();
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}"))?,
        }
    }
    f.write_str(&text[from..])?;
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--json` is read by other programs: whatever was recorded, it must parse.
    #[test]
    fn every_float_and_every_character_is_valid_json() {
        let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1.0, 0.1, 1e300, 5e-324];
        let printed: Vec<String> = floats.into_iter().map(|x| Json::from(x).to_string()).collect();
        let known = [
            r#"{"$float":"nan"}"#,
            r#"{"$float":"inf"}"#,
            r#"{"$float":"-inf"}"#,
            "-0.0",
            "1.0",
            "0.1",
            "1e300",
            "5e-324",
        ];
        assert_eq!(printed, known);
        let text = Json::from("a\"b\\c\n\t\r\u{1}\u{7f}\u{202e}\u{e0001}Käse🧀").to_string();
        assert_eq!(text, r#""a\"b\\c\n\t\r\u0001\u007f\u202e\udb40\udc01Käse🧀""#);
    }

    #[test]
    fn containers_have_no_spaces() {
        let json = Json::map([
            ("a", Json::list([Json::Null, true.into(), 7u64.into()])),
            ("b", Json::map::<&str>([])),
        ]);
        assert_eq!(json.to_string(), r#"{"a":[null,true,7],"b":{}}"#);
    }
}
