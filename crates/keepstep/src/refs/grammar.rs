//! The grammar of references.
//!
//! `run/task#iteration.sample~attempt@step`, later parts optional, odd characters percent-encoded; or an id, or the
//! beginning of one. `run#generation` is an older run of the name; without it the newest is meant. A printed
//! reference can be typed back: none of its characters is special in a shell.

use std::fmt;
use std::fmt::Write as _;

use thiserror::Error;

/// The name of a run or an episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A text without a slash: a run, or the beginning of an id.
    Bare(String),
    /// An episode by its name, or by a part of it.
    Episode {
        /// Its run.
        run: String,
        /// Its task.
        task: String,
        /// Which visit of the task.
        iteration: Option<i64>,
        /// Which sample of it.
        sample: Option<i64>,
    },
}

/// A reference.
///
/// ```
/// use keepstep::refs::Ref;
///
/// let wanted: Ref = "shop-agent/shop-17#2.5~1@3".parse()?;
/// assert_eq!(wanted, Ref::episode("shop-agent", "shop-17", 2, 5).attempt(1).step(3));
/// # Ok::<(), keepstep::refs::BadRef>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Ref {
    /// What it names.
    pub name: Name,
    /// Which generation of the run; without one the newest is meant.
    pub generation: Option<u64>,
    /// Which attempt; without one, the one that counts.
    pub attempt: Option<u32>,
    /// Which step.
    pub step: Option<u64>,
}

/// Why a text is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadRef {
    /// The text names nothing.
    #[error("{0:?} names nothing")]
    Empty(String),
    /// A part that must be a number is not.
    #[error("{part} of {text:?} is not a number: {found:?}")]
    NotANumber {
        /// The whole text.
        text: String,
        /// Which part of it.
        part: &'static str,
        /// What it is instead.
        found: String,
    },
    /// A number is too large.
    #[error("{part} of {text:?} is too large: {found}")]
    TooLarge {
        /// The whole text.
        text: String,
        /// Which part of it.
        part: &'static str,
        /// The number.
        found: String,
    },
    /// A character is not percent-encoded correctly.
    #[error("{found:?} in {text:?} is not a percent-encoded character")]
    BadPercent {
        /// The whole text.
        text: String,
        /// The wrong characters.
        found: String,
    },
}

/// How to write a reference, for hints.
pub const SHAPE: &str = "a reference is run/task#iteration.sample~attempt@step (later parts optional, an older generation is run#generation/…), or the beginning of an id";

impl Ref {
    /// A whole episode by its name.
    pub fn episode(run: &str, task: &str, iteration: i64, sample: i64) -> Self {
        let name = Name::Episode {
            run: run.to_owned(),
            task: task.to_owned(),
            iteration: Some(iteration),
            sample: Some(sample),
        };
        Self::of(name)
    }

    /// A reference to this name.
    pub fn of(name: Name) -> Self {
        Self { name, generation: None, attempt: None, step: None }
    }

    /// Sets which generation of the run; `None` is the newest.
    pub fn generation(mut self, generation: impl Into<Option<u64>>) -> Self {
        self.generation = generation.into();
        self
    }

    /// Sets which attempt; `None` is the one that counts.
    pub fn attempt(mut self, attempt: impl Into<Option<u32>>) -> Self {
        self.attempt = attempt.into();
        self
    }

    /// Sets which step; `None` is all of them.
    pub fn step(mut self, step: impl Into<Option<u64>>) -> Self {
        self.step = step.into();
        self
    }
}

impl std::str::FromStr for Ref {
    type Err = BadRef;

    fn from_str(text: &str) -> Result<Self, BadRef> {
        // From the right: the marks of later parts are percent-encoded in the parts before them.
        let (rest, step) = split_number(text, text, '@', "the step")?;
        let (rest, attempt) = split_number(text, rest, '~', "the attempt")?;
        let Some((run, rest)) = rest.split_once('/') else {
            let (run, generation) = split_generation(text, rest)?;
            if run.is_empty() {
                return Err(BadRef::Empty(text.to_owned()));
            }
            return Ok(Self { name: Name::Bare(decode(text, run)?), generation, attempt, step });
        };
        let (run, generation) = split_generation(text, run)?;
        let (task, numbers) = match rest.split_once('#') {
            Some((task, numbers)) => (task, Some(numbers)),
            None => (rest, None),
        };
        let (iteration, sample) = match numbers.map(|numbers| numbers.split_once('.').ok_or(numbers)) {
            None => (None, None),
            Some(Err(iteration)) => (Some(number(text, "the iteration", iteration)?), None),
            Some(Ok((iteration, sample))) => {
                (Some(number(text, "the iteration", iteration)?), Some(number(text, "the sample", sample)?))
            }
        };
        let name = Name::Episode { run: decode(text, run)?, task: decode(text, task)?, iteration, sample };
        Ok(Self { name, generation, attempt, step })
    }
}

/// A run and its generation.
fn split_generation<'a>(text: &str, run: &'a str) -> Result<(&'a str, Option<u64>), BadRef> {
    match run.split_once('#') {
        None => Ok((run, None)),
        Some((run, digits)) => Ok((run, Some(number(text, "the generation", digits)?))),
    }
}

/// Takes `mark` and the number after it off the end.
fn split_number<'a, T: std::str::FromStr>(
    text: &str,
    from: &'a str,
    mark: char,
    part: &'static str,
) -> Result<(&'a str, Option<T>), BadRef> {
    match from.rsplit_once(mark) {
        None => Ok((from, None)),
        Some((rest, digits)) => Ok((rest, Some(number(text, part, digits)?))),
    }
}

fn number<T: std::str::FromStr>(text: &str, part: &'static str, digits: &str) -> Result<T, BadRef> {
    let magnitude = digits.trim_start_matches('-');
    let is_plain = magnitude.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = if is_plain { digits.parse().ok() } else { None };
    let (text, found) = (text.to_owned(), digits.to_owned());
    parsed.ok_or(match is_plain && magnitude.len() > 9 {
        true => BadRef::TooLarge { text, part, found },
        false => BadRef::NotANumber { text, part, found },
    })
}

/// Decodes percent-encoding.
fn decode(text: &str, part: &str) -> Result<String, BadRef> {
    let bad = |found: &str| BadRef::BadPercent { text: text.to_owned(), found: found.to_owned() };
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let found: String = after.chars().take(2).collect();
        bytes.push(byte.ok_or_else(|| bad(&format!("%{found}")))?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| bad(part))
}

/// Percent-encodes everything but letters, digits, and a few marks that neither shells nor references use.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '+' | '=' | ',') {
            out.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The reference of a run: its name, and its generation if it is not the newest.
pub fn run_reference(name: &str, generation: Option<u64>) -> String {
    generation.map_or_else(|| encode(name), |generation| format!("{}#{generation}", encode(name)))
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Bare(text) => f.write_str(&run_reference(text, self.generation))?,
            Name::Episode { run, task, iteration, sample } => {
                write!(f, "{}/{}", run_reference(run, self.generation), encode(task))?;
                if let Some(iteration) = iteration {
                    write!(f, "#{iteration}")?;
                }
                if let Some(sample) = sample {
                    write!(f, ".{sample}")?;
                }
            }
        }
        if let Some(attempt) = self.attempt {
            write!(f, "~{attempt}")?;
        }
        if let Some(step) = self.step {
            write!(f, "@{step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episode(run: &str, task: &str, iteration: Option<i64>, sample: Option<i64>) -> Name {
        Name::Episode { run: run.to_owned(), task: task.to_owned(), iteration, sample }
    }

    #[test]
    fn later_parts_are_optional() {
        let cases = [
            ("shop", Name::Bare("shop".into()), None, None),
            ("9c9e99", Name::Bare("9c9e99".into()), None, None),
            ("9c9e99~1@4", Name::Bare("9c9e99".into()), Some(1), Some(4)),
            ("shop/17", episode("shop", "17", None, None), None, None),
            ("shop/17#3", episode("shop", "17", Some(3), None), None, None),
            ("shop/17#3.2", episode("shop", "17", Some(3), Some(2)), None, None),
            ("shop/17#3.-1~1@40", episode("shop", "17", Some(3), Some(-1)), Some(1), Some(40)),
            ("shop/17@0", episode("shop", "17", None, None), None, Some(0)),
            ("shop/a/b.c", episode("shop", "a/b.c", None, None), None, None),
            ("a%2Fb/c%40d", episode("a/b", "c@d", None, None), None, None),
            ("/", episode("", "", None, None), None, None),
        ];
        for (text, name, attempt, step) in cases {
            assert_eq!(text.parse(), Ok(Ref { name, generation: None, attempt, step }), "{text}");
        }
    }

    /// Behind a run stands its generation, behind a task its iteration.
    #[test]
    fn a_generation_stands_behind_the_run() {
        let bare = Ref { name: Name::Bare("shop".into()), generation: Some(1), attempt: None, step: None };
        assert_eq!("shop#1".parse(), Ok(bare.clone()));
        assert_eq!(bare.to_string(), "shop#1");
        let whole = Ref { attempt: Some(3), ..Ref::episode("shop", "17", 2, 0).generation(Some(0)) };
        assert_eq!("shop#0/17#2.0~3".parse(), Ok(whole.clone()));
        assert_eq!(whole.to_string(), "shop#0/17#2.0~3");
        // A name that has the mark itself is encoded, as always.
        assert_eq!(Ref::episode("a#1", "b#2", 0, 0).to_string(), "a%231/b%232#0.0");
    }

    /// Whatever people call their tasks, what `ls` prints can be given to `show`.
    #[test]
    fn what_is_printed_is_read_back_as_the_same() {
        let names = [
            "",
            "shop-17",
            "a/b",
            "#1.2~3@4",
            "100%",
            "%2F",
            "Käse 🧀",
            "new\nline",
            "\u{202e}",
            "..",
            "日本",
            "'$(x)`",
        ];
        for run in names {
            for task in names {
                for (iteration, sample) in [(0, 0), (i64::MAX, i64::MIN)] {
                    let made = Ref { attempt: Some(2), ..Ref::episode(run, task, iteration, sample).step(7) };
                    let made = made.generation((sample < 0).then_some(4));
                    let printed = made.to_string();
                    assert_eq!(printed.parse(), Ok(made), "{printed}");
                    let is_safe = |c: char| c.is_alphanumeric() || "-_.:+=,/#~@%".contains(c);
                    assert!(printed.chars().all(is_safe), "{printed}");
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |text: &str| text.parse::<Ref>().unwrap_err().to_string();
        assert_eq!(said("shop/17@x"), r#"the step of "shop/17@x" is not a number: "x""#);
        assert_eq!(said("shop/17~-1"), r#"the attempt of "shop/17~-1" is not a number: "-1""#);
        assert_eq!(said("shop/17#+1"), r#"the iteration of "shop/17#+1" is not a number: "+1""#);
        assert_eq!(said("shop/17#1."), r#"the sample of "shop/17#1." is not a number: """#);
        assert_eq!(said("shop/%zz"), r#""%zz" in "shop/%zz" is not a percent-encoded character"#);
        assert_eq!(said("shop/%ä"), r#""%ä" in "shop/%ä" is not a percent-encoded character"#);
        assert_eq!(said("shop/%"), r#""%" in "shop/%" is not a percent-encoded character"#);
        assert_eq!(said("shop#x"), r#"the generation of "shop#x" is not a number: "x""#);
        assert_eq!(said("shop#x/17"), r#"the generation of "shop#x/17" is not a number: "x""#);
        assert_eq!(said("#1"), r##""#1" names nothing"##);
        assert_eq!(said(""), r#""" names nothing"#);
        assert_eq!(said("@3"), r#""@3" names nothing"#);
    }
}
