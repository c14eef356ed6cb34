//! Where in the arguments a walk is: said in messages, and to `redact`.
//!
//! Nothing is put together on the way: a place is a link to the place round it, and becomes text only when somebody reads it.

use std::fmt::{self, Write};

use keepstep::Error;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::bad_input;

/// How deep objects may be nested. A record puts a few levels of its own round them (`state`, `tokens.arrays`).
pub(super) const DEPTH_MAX: usize = keepstep::format::value::DEPTH_MAX - 8;
/// So many steps of a path are shown at either end.
const STEPS_SHOWN: usize = 8;

/// One step into a structure.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    /// An argument of the call.
    Root(&'a str),
    /// A key of a mapping.
    Key(&'a Bound<'a, PyAny>),
    /// A field of a structure.
    Field(&'a str),
    /// An item of a list.
    Index(usize),
    /// The same object, as the data that it is recorded as.
    Itself,
}

/// A place in the arguments.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    up: Option<&'a Place<'a>>,
    part: Part<'a>,
    depth: usize,
    /// The address of the object that is here; only ever compared.
    object: usize,
}

impl<'a> Place<'a> {
    pub(super) fn root(name: &'a str, object: &Bound<'_, PyAny>) -> Self {
        Self { up: None, part: Part::Root(name), depth: 0, object: address(object) }
    }

    /// A place inside of this one.
    pub(super) fn inside(&'a self, part: Part<'a>, object: &Bound<'_, PyAny>) -> Self {
        Self { up: Some(self), part, depth: self.depth + 1, object: address(object) }
    }

    /// The same object, one level deeper: as the data that it is recorded as.
    pub(super) fn itself(&'a self) -> Self {
        Self { up: Some(self), part: Part::Itself, depth: self.depth + 1, object: self.object }
    }

    /// The argument that it is in.
    pub(super) fn field(&self) -> &'a str {
        match self.chain()[0].part {
            Part::Root(name) => name,
            _ => "",
        }
    }

    /// How it is written if the argument had another name.
    pub(super) fn written_from(&self, root: &str) -> String {
        let text = self.to_string();
        format!("{root}{}", text.strip_prefix(self.field()).unwrap_or(&text))
    }

    /// Refuses to go deeper than a reader would follow.
    pub(super) fn check_depth(&self) -> Result<(), Error> {
        if self.depth < DEPTH_MAX { Ok(()) } else { Err(self.too_deep()) }
    }

    fn too_deep(&self) -> Error {
        let chain = self.chain();
        for (at, place) in chain.iter().enumerate() {
            if matches!(place.part, Part::Itself) {
                continue;
            }
            let same = |earlier: &&&Place<'_>| earlier.object == place.object;
            if let Some(first) = chain[..at].iter().find(same) {
                let value = format!("is the same object as {first}, so it contains itself");
                return bad_input(&place.to_string(), &value, "record what it refers to by a name or an id");
            }
        }
        let value = format!("is nested deeper than {DEPTH_MAX} levels");
        bad_input(&self.to_string(), &value, "record a flatter value, or text")
    }

    /// All places from the argument to here.
    fn chain(&self) -> Vec<&Place<'a>> {
        let mut chain = vec![self];
        let mut at = self;
        while let Some(up) = at.up {
            chain.push(up);
            at = up;
        }
        chain.reverse();
        chain
    }
}

fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain = self.chain();
        let hidden = STEPS_SHOWN..chain.len().saturating_sub(STEPS_SHOWN);
        for (at, place) in chain.iter().enumerate() {
            if !hidden.contains(&at) {
                put_part(f, place.part)?;
            } else if at == hidden.start {
                f.write_char('…')?;
            }
        }
        Ok(())
    }
}

fn put_part(f: &mut fmt::Formatter<'_>, part: Part<'_>) -> fmt::Result {
    match part {
        Part::Root(name) => f.write_str(name),
        Part::Field(name) => write!(f, ".{name}"),
        Part::Index(index) => write!(f, "[{index}]"),
        Part::Itself => Ok(()),
        Part::Key(key) => put_key(f, key),
    }
}

fn put_key(f: &mut fmt::Formatter<'_>, key: &Bound<'_, PyAny>) -> fmt::Result {
    if let Ok(text) = key.cast::<PyString>() {
        let text = text.to_string_lossy();
        let is_name = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
        let long = text.chars().count() > 40;
        return match (is_name, long) {
            (true, false) => write!(f, ".{text}"),
            (_, false) => write!(f, "[{text:?}]"),
            (_, true) => write!(f, "[{:?}…]", text.chars().take(40).collect::<String>()),
        };
    }
    // The text of other keys is made by code of their own, which may fail.
    let text = key.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string_lossy().into_owned());
    write!(f, "[{}]", text.chars().take(40).collect::<String>())
}
