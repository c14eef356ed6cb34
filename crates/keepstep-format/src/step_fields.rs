//! The fields of a step: the only table, in the order in which they are shown.
//!
//! A new field is a number in [`fields`] and a line here. Recording, reading, export, tables, `show` and `diff` follow from it;
//! the types of the Python package (`_steps.py` and the stub), which are for people, are checked against it.

use crate::fields;

/// Passes the table to a macro that makes code of it: constant, name, part, type, and description.
#[macro_export]
macro_rules! step_fields {
    ($make:ident) => {
        $make! {
            PROMPT prompt Said Any "What the policy was asked.";
            RESPONSE response Said Any "What it answered.";
            ACTION action Said Any "What was done.";
            OBSERVATION observation Result Any "What the environment showed.";
            REWARD reward Result Number "The reward, if there is one.";
            REWARD_TERMS reward_terms Result Terms "What the reward is made of.";
            DISCOUNT discount Result Number "The discount, if there is one.";
            TOKENS tokens Said Tokens "The tokens of the turn.";
            POLICY policy Said Version "The version of the policy: a number or a name.";
            AGENT agent Said Text "Who acted.";
            INFO info Result Any "Anything else.";
            STATE state Result Named "Named values as of this step, to resume from.";
            ERROR error Failure Any "What went wrong, instead of a result: its type, message and traceback.";
            VALUE value Item Any "The item, if it was appended to a recorded list.";
        }
    };
}

/// Which part of a step a field belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The intent: recorded before the action is taken.
    Said,
    /// The result.
    Result,
    /// The error, in place of a result.
    Failure,
    /// An item of a recorded list.
    Item,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Any value.
    Any,
    /// A float, or nothing.
    Number,
    /// A text.
    Text,
    /// Names and floats.
    Terms,
    /// Arrays of tokens, by name.
    Tokens,
    /// An integer or a text.
    Version,
    /// Names and values.
    Named,
}

/// A field of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepField {
    /// Its number.
    pub number: u8,
    /// Its name, as people write it.
    pub name: &'static str,
    /// Which part of a step it belongs to.
    pub part: Part,
    /// What it holds.
    pub holds: Holds,
}

macro_rules! table {
    ($($constant:ident $name:ident $part:ident $holds:ident $doc:literal;)*) => {
        /// Every field of a step, in the order in which they are shown.
        pub const ALL: &[StepField] = &[$(StepField {
            number: fields::$constant,
            name: stringify!($name),
            part: Part::$part,
            holds: Holds::$holds,
        }),*];
    };
}
step_fields!(table);

/// The fields of an INTENT.
pub const SAID: &[u8] = &numbers::<{ count(Part::Said) }>(Part::Said);
/// The fields of a RESULT.
pub const RESULT: &[u8] = &numbers::<{ count(Part::Result) }>(Part::Result);
/// The fields of a whole step: both.
pub const WHOLE: &[u8] = &joined::<{ count(Part::Said) + count(Part::Result) }>(RESULT, SAID);

/// The field of this name.
pub fn named(name: &str) -> Option<&'static StepField> {
    ALL.iter().find(|field| field.name == name)
}

const fn count(part: Part) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < ALL.len() {
        count += (ALL[at].part as u8 == part as u8) as usize;
        at += 1;
    }
    count
}

const fn numbers<const COUNT: usize>(part: Part) -> [u8; COUNT] {
    let (mut at, mut to, mut numbers) = (0, 0, [0; COUNT]);
    while at < ALL.len() {
        if ALL[at].part as u8 == part as u8 {
            numbers[to] = ALL[at].number;
            to += 1;
        }
        at += 1;
    }
    numbers
}

const fn joined<const COUNT: usize>(first: &[u8], second: &[u8]) -> [u8; COUNT] {
    let (mut at, mut joined) = (0, [0; COUNT]);
    while at < COUNT {
        joined[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_numbers() {
        for field in ALL {
            assert_eq!(fields::name(field.number), Some(field.name));
        }
        assert_eq!((SAID.len(), RESULT.len(), WHOLE.len()), (6, 6, 12));
    }
}
