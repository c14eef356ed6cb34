//! JSON as the command prints it. It only ever writes JSON, so it needs no parser.
//!
//! A value that JSON does not have is an object with one `$` key, never an invalid document: NaN is
//! `{"$float":"nan"}`.

use std::fmt;

use keepstep::Value;
use keepstep::export::json::{write_float, write_text, write_value};

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
    /// Something that was recorded.
    Recorded(Value),
}

/// A recorded value as JSON.
pub(crate) fn value(value: &Value) -> Json {
    Json::Recorded(value.clone())
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
            Self::Recorded(value) => write_value(f, value),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_no_spaces() {
        let json = Json::map([
            ("a", Json::list([Json::Null, true.into(), 7u64.into()])),
            ("b", Json::map::<&str>([])),
        ]);
        assert_eq!(json.to_string(), r#"{"a":[null,true,7],"b":{}}"#);
    }
}
