//! The kinds of frames: the only table of their names, their effects on the steps of an attempt, and their fields.
//!
//! All code that writes, reads, summarizes, verifies or follows records uses it. Each `match` names every kind, so
//! that a new one cannot be forgotten.

use crate::{fields, step_fields};

/// The kind of a frame.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the table in the spec, §5")]
pub enum Kind {
    Bind = 0x01,
    Commit,
    Chunk,
    Value,
    Dict,
    Footer,
    Lists,
    Block,
    Begin = 0x10,
    First,
    Step,
    Intent,
    Result,
    Discard,
    Call,
    Note,
    End,
    Item,
    Put,
}

/// The effect of a record on the steps of its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is a whole step.
    CompletesStep,
    /// A turn begins, and waits for its result.
    OpensTurn,
    /// The pending turn becomes a step.
    CompletesTurn,
    /// The pending turn is discarded.
    ClosesTurn,
    /// None: it is beside the steps, or is not a record of an attempt.
    None,
}

impl Kind {
    /// Every kind that this version knows.
    pub const ALL: [Kind; 19] = [
        Kind::Bind,
        Kind::Commit,
        Kind::Chunk,
        Kind::Value,
        Kind::Dict,
        Kind::Footer,
        Kind::Lists,
        Kind::Block,
        Kind::Begin,
        Kind::First,
        Kind::Step,
        Kind::Intent,
        Kind::Result,
        Kind::Discard,
        Kind::Call,
        Kind::Note,
        Kind::End,
        Kind::Item,
        Kind::Put,
    ];

    /// The kind with this number, if this version knows it.
    pub fn from_u8(number: u8) -> Option<Kind> {
        let index = match number {
            0x01..=0x08 => number - 0x01,
            0x10..=0x1A => number - 0x10 + 8,
            _ => return None,
        };
        Some(Kind::ALL[index as usize])
    }

    /// Its name in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Bind => "BIND",
            Kind::Commit => "COMMIT",
            Kind::Chunk => "CHUNK",
            Kind::Value => "VALUE",
            Kind::Dict => "DICT",
            Kind::Footer => "FOOTER",
            Kind::Lists => "LISTS",
            Kind::Block => "BLOCK",
            Kind::Begin => "BEGIN",
            Kind::First => "FIRST",
            Kind::Step => "STEP",
            Kind::Intent => "INTENT",
            Kind::Result => "RESULT",
            Kind::Discard => "DISCARD",
            Kind::Call => "CALL",
            Kind::Note => "NOTE",
            Kind::End => "END",
            Kind::Item => "ITEM",
            Kind::Put => "PUT",
        }
    }

    /// Its effect on the steps of its attempt.
    pub const fn effect(self) -> Effect {
        match self {
            Kind::First | Kind::Step | Kind::Item => Effect::CompletesStep,
            Kind::Intent => Effect::OpensTurn,
            Kind::Result => Effect::CompletesTurn,
            Kind::Discard => Effect::ClosesTurn,
            Kind::Bind
            | Kind::Commit
            | Kind::Chunk
            | Kind::Value
            | Kind::Dict
            | Kind::Footer
            | Kind::Lists
            | Kind::Block
            | Kind::Begin
            | Kind::Call
            | Kind::Note
            | Kind::End
            | Kind::Put => Effect::None,
        }
    }

    /// True if it completes a step.
    pub const fn completes_a_step(self) -> bool {
        matches!(self.effect(), Effect::CompletesStep | Effect::CompletesTurn)
    }

    /// True if it names the step that it belongs to.
    pub const fn is_about_a_step(self) -> bool {
        !matches!(self.effect(), Effect::None) || matches!(self, Kind::Call)
    }

    /// The fields of a step that it may have, and that are lost with it.
    pub const fn step_fields(self) -> &'static [u8] {
        match self {
            Kind::First => &[fields::OBSERVATION, fields::INFO, fields::STATE],
            Kind::Step => step_fields::WHOLE,
            Kind::Intent => step_fields::SAID,
            Kind::Result => step_fields::RESULT,
            Kind::Item => &[fields::VALUE],
            Kind::Bind
            | Kind::Commit
            | Kind::Chunk
            | Kind::Value
            | Kind::Dict
            | Kind::Footer
            | Kind::Lists
            | Kind::Block
            | Kind::Begin
            | Kind::Discard
            | Kind::Call
            | Kind::Note
            | Kind::End
            | Kind::Put => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_u8(kind as u8), Some(kind));
        }
        assert_eq!((0..=u8::MAX).filter_map(Kind::from_u8).count(), Kind::ALL.len());
    }

    #[test]
    fn a_whole_step_says_what_its_halves_say() {
        let halves: Vec<u8> =
            [Kind::Result, Kind::Intent].iter().flat_map(|kind| kind.step_fields()).copied().collect();
        assert_eq!(Kind::Step.step_fields(), halves);
    }

    /// The table of the spec, line by line.
    #[test]
    fn the_spec_has_the_same_kinds() {
        // Read when it is tested: the published crate has no docs folder.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/format.md");
        let spec = std::fs::read_to_string(path).expect("the spec is there");
        for kind in Kind::ALL {
            let line = format!("| 0x{:02X} | {} |", kind as u8, kind.name());
            assert_eq!(spec.matches(&line).count(), 1, "{line}");
        }
    }
}
