//! Hides what must not be stored, before anything of it is looked at.
//!
//! What a function of the user's raises never carries the value along: its message may be the secret.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString, PyTuple};

use super::place::Place;
use crate::errors::{OrRaise, bad_input};

/// What stands where something was hidden.
pub(super) const REDACTED: &str = "[redacted]";

/// What a store hides.
pub(super) enum Redact {
    Nothing,
    /// Values under these keys, fields and attributes, at any depth.
    Names(HashSet<String>),
    /// Whatever the function replaces.
    Function(Py<PyAny>),
}

impl Redact {
    /// From the argument `redact`.
    pub(super) fn new(given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(Self::Nothing) };
        let py = given.py();
        if given.is_callable() {
            return Ok(Self::Function(given.clone().unbind()));
        }
        let fix = "give a sequence of names, or a function of a path and a value";
        let wrong = |what: &str| bad_input("redact", what, fix);
        if given.is_instance_of::<PyString>() || given.cast::<PyMapping>().is_ok() {
            return Err(wrong("is not a sequence")).or_raise(py);
        }
        let mut names = HashSet::new();
        for name in given.try_iter().map_err(|_| wrong("is not a sequence")).or_raise(py)? {
            let name = name?.extract::<String>();
            names.insert(name.map_err(|_| wrong("has a name that is no string")).or_raise(py)?);
        }
        Ok(if names.is_empty() { Self::Nothing } else { Self::Names(names) })
    }

    /// True if nothing is hidden.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// True if the same objects are always hidden the same way.
    pub(super) fn is_steady(&self) -> bool {
        !matches!(self, Self::Function(_))
    }

    /// True if the value under this name is hidden.
    pub(super) fn hides(&self, name: &str) -> bool {
        matches!(self, Self::Names(names) if names.contains(name))
    }

    /// As [`Redact::hides`], for a key of any type.
    pub(super) fn hides_key(&self, key: &Bound<'_, PyAny>) -> bool {
        let Self::Names(names) = self else { return false };
        if let Ok(key) = key.cast::<PyBytes>() {
            return std::str::from_utf8(key.as_bytes()).is_ok_and(|key| names.contains(key));
        }
        if let Ok(parts) = key.cast::<PyTuple>() {
            return parts.iter().any(|part| self.hides_key(&part));
        }
        key.cast::<PyString>().is_ok_and(|key| names.contains(&*key.to_string_lossy()))
    }

    /// True if the argument at this path is hidden: by its own name, or the last one of `state.password`, whose name may
    /// have dots in it as well.
    pub(super) fn hides_argument(&self, path: &str) -> bool {
        let Self::Names(names) = self else { return false };
        let ends = path.match_indices('.').map(|(at, _)| &path[at + 1..]);
        std::iter::once(path).chain(ends).any(|name| names.contains(name))
    }

    /// What the function gives for a value; nothing if there is no function.
    pub(super) fn replace<'py>(
        &self,
        given: &Bound<'py, PyAny>,
        place: &Place<'_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Self::Function(function) = self else { return Ok(None) };
        let py = given.py();
        match function.bind(py).call1((place.to_string(), given)) {
            Ok(replaced) => Ok(Some(replaced)),
            // Ctrl-C is no fault of the function's.
            Err(error) if !error.is_instance_of::<pyo3::exceptions::PyException>(py) => Err(error),
            Err(error) => {
                let class = error.get_type(py).name().map_or_else(|_| "?".into(), |name| name.to_string());
                let value = format!("could not be redacted: the function raised {class}");
                Err(bad_input(&place.to_string(), &value, "nothing was recorded; mend the function"))
                    .or_raise(py)
            }
        }
    }

    /// A text of a traceback, with what is assigned to the hidden names taken out: `token='abc'`, `"token": "abc"`.
    pub(super) fn text(&self, text: &str) -> Option<String> {
        let Self::Names(names) = self else { return None };
        let mut out = text.to_owned();
        for name in names.iter().filter(|name| !name.is_empty()) {
            out = hide_assigned(&out, name);
        }
        (out != text).then_some(out)
    }
}

/// Replaces what follows `name=` or `name:` by [`REDACTED`]: a quoted text, or up to the next break.
fn hide_assigned(text: &str, name: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let before = rest[..at].chars().next_back();
        let (head, tail) = rest.split_at(at + name.len());
        out.push_str(head);
        rest = tail;
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let Some(start) = assigned_at(tail) else { continue };
        out.push_str(&tail[..start]);
        out.push_str(REDACTED);
        rest = &tail[start + value_length(&tail[start..])..];
    }
    out.push_str(rest);
    out
}

/// Where the value begins behind `=`, `:` or `']=`; nothing if nothing is assigned.
fn assigned_at(tail: &str) -> Option<usize> {
    let spaced = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let mut at = tail.len() - tail.trim_start_matches(['\'', '"', ']']).len();
    at += spaced(&tail[at..]);
    let sign = tail[at..].chars().next().filter(|c| matches!(c, '=' | ':'))?;
    at += sign.len_utf8();
    // A comparison assigns nothing.
    if tail[at..].starts_with('=') {
        return None;
    }
    at += spaced(&tail[at..]);
    (!tail[at..].is_empty() && !tail[at..].starts_with('\n')).then_some(at)
}

fn value_length(value: &str) -> usize {
    let prefix = value.len() - value.trim_start_matches(['b', 'f', 'r', 'u']).len();
    let opened = value[prefix..].chars().next().filter(|c| matches!(c, '\'' | '"'));
    if let Some(quote) = opened.filter(|_| prefix <= 2) {
        let mut escaped = false;
        for (at, c) in value.char_indices().skip(prefix + 1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if c == quote => return at + c.len_utf8(),
                _ => {}
            }
        }
        return value.len();
    }
    // An Authorization header has a word before the secret: so a break is a comma, a bracket or the end of the line.
    value.find([',', ')', '}', ']', '\n', '&', ';']).unwrap_or(value.len())
}
