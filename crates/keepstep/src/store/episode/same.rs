//! Compares what is given now with what was recorded. Data is compared, not classes.
//!
//! A resumed attempt may have plain data where the first one had an object. Both count as the same.

use keepstep_format::value::Value;

use crate::error::{Error, Result};
use crate::store::run::config;

/// An error if the two differ. It names the first place that differs.
pub(in crate::store) fn check(step: u64, field: &str, recorded: &Value, now: &Value) -> Result<()> {
    let mut path = String::new();
    match difference(recorded, now, &mut path) {
        Some((recorded, now)) => Err(diverged(step, format!("{field}{path}"), recorded, &now)),
        None => Ok(()),
    }
}

pub(in crate::store) fn diverged(step: u64, field: String, recorded: String, now: &Value) -> Error {
    Error::Diverged { step, field, recorded, now: short(now) }
}

/// A value, shortened for a message.
fn short(value: &Value) -> String {
    config::short(value, 120)
}

/// The data of a value, without the name of its type.
fn data(value: &Value) -> &Value {
    match value.plain() {
        Value::Typed(_, inner) => data(inner),
        plain => plain,
    }
}

/// The first place where the two differ, with both values. `path` then leads to it.
fn difference(recorded: &Value, now: &Value, path: &mut String) -> Option<(String, Value)> {
    let (before, after) = (data(recorded), data(now));
    match (before, after) {
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b.iter()).enumerate() {
                let found = inside(path, &format!("[{at}]"), |path| difference(a, b, path));
                if found.is_some() {
                    return found;
                }
            }
            None
        }
        (Value::Map(a), Value::Map(b)) if a.len() == b.len() => {
            for (at, (key, a)) in a.iter().enumerate() {
                let same_place = b.get(at).filter(|(other, _)| other == key);
                let Some((_, b)) = same_place.or_else(|| b.iter().find(|(other, _)| other == key)) else {
                    return Some((short(before), after.clone()));
                };
                let found = inside(path, &named(key), |path| difference(a, b, path));
                if found.is_some() {
                    return found;
                }
            }
            None
        }
        (Value::Repr(k, a), Value::Repr(l, b)) if k == l && without_addresses(a) == without_addresses(b) => {
            None
        }
        _ if before == after => None,
        _ => Some((short(before), after.clone())),
    }
}

/// Goes one level deeper. The path keeps `part` only if a difference was found.
fn inside<T>(path: &mut String, part: &str, look: impl FnOnce(&mut String) -> Option<T>) -> Option<T> {
    let length = path.len();
    path.push_str(part);
    let found = look(path);
    if found.is_none() {
        path.truncate(length);
    }
    found
}

fn named(key: &Value) -> String {
    let is_name = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    match key.as_str().filter(is_name) {
        Some(name) => format!(".{name}"),
        None => format!("[{}]", config::short(key, 40)),
    }
}

/// Removes memory addresses: they differ between processes.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "0x" + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn typed(name: &str, value: Value) -> Value {
        Value::Typed(Arc::from(name), Arc::new(value))
    }

    fn message(text: &str) -> Value {
        Value::map([("role", Value::from("user")), ("content", Value::from(text))])
    }

    /// An object, and the plain data that it came back as, say the same.
    #[test]
    fn names_of_types_do_not_count() {
        let before = Value::list([typed("app.Message", message("hi")), typed("app.Colour", Value::Int(2))]);
        let after = Value::list([message("hi"), Value::Int(2)]);
        assert!(check(3, "prompt", &before, &after).is_ok());
        let keys = Value::map([("content", Value::from("hi")), ("role", Value::from("user"))]);
        assert!(check(3, "prompt", &message("hi"), &keys).is_ok(), "the order of keys does not count");
    }

    /// If one word deep inside changed, the error names its path and both values.
    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let (before, after) =
            (Value::list([message("hi"), message("ho")]), Value::list([message("hi"), message("no")]));
        let error = check(3, "prompt", &before, &after).expect_err("differs").to_string();
        assert!(
            error.contains("prompt[1].content") && error.contains("ho") && error.contains("no"),
            "{error}"
        );
        let shorter = Value::list([message("hi")]);
        assert!(check(3, "prompt", &before, &shorter).is_err());
        assert!(check(3, "prompt", &message("1"), &Value::map([("role", Value::from("user"))])).is_err());
    }

    /// A client object is the same one in another process; another object of its class is not.
    #[test]
    fn addresses_do_not_count() {
        let repr = |text: &str| Value::Repr(Arc::from("app.Client"), Arc::from(text));
        assert!(check(0, "a", &repr("<Client at 0x7f01ab>"), &repr("<Client at 0x55de>")).is_ok());
        assert!(check(0, "a", &repr("<Client b at 0x7f>"), &repr("<Client c at 0x7f>")).is_err());
    }
}
