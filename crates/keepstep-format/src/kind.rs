//! The kinds of frames: the only table of their numbers and names, their effects on the steps of an attempt, and their
//! fields of a step.
//!
//! A new kind is a line here. All code that writes, reads, summarizes, verifies or follows records uses it.

use crate::{fields, step_fields};

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

/// Makes the enum and its methods of the table: number, name in the spec, effect, fields of a step.
macro_rules! kinds {
    ($($kind:ident = $number:literal $name:literal $effect:ident $fields:expr;)*) => {
        /// The kind of a frame.
        #[repr(u8)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are those of the table in the spec, §5")]
        pub enum Kind {
            $($kind = $number,)*
        }

        impl Kind {
            /// Every kind that this version knows.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// The kind with this number, if this version knows it.
            pub const fn from_u8(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$kind),)*
                    _ => None,
                }
            }

            /// Its name in the spec.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// Its effect on the steps of its attempt.
            pub const fn effect(self) -> Effect {
                match self {
                    $(Kind::$kind => Effect::$effect,)*
                }
            }

            /// The fields of a step that it may have, and that are lost with it.
            pub const fn step_fields(self) -> &'static [u8] {
                match self {
                    $(Kind::$kind => $fields,)*
                }
            }
        }
    };
}

kinds! {
    Bind = 0x01 "BIND" None &[];
    Commit = 0x02 "COMMIT" None &[];
    Chunk = 0x03 "CHUNK" None &[];
    Value = 0x04 "VALUE" None &[];
    Dict = 0x05 "DICT" None &[];
    Footer = 0x06 "FOOTER" None &[];
    Lists = 0x07 "LISTS" None &[];
    Block = 0x08 "BLOCK" None &[];
    Begin = 0x10 "BEGIN" None &[];
    First = 0x11 "FIRST" CompletesStep &[fields::OBSERVATION, fields::INFO, fields::STATE];
    Step = 0x12 "STEP" CompletesStep step_fields::WHOLE;
    Intent = 0x13 "INTENT" OpensTurn step_fields::SAID;
    Result = 0x14 "RESULT" CompletesTurn step_fields::RESULT;
    Discard = 0x15 "DISCARD" ClosesTurn &[];
    Call = 0x16 "CALL" None &[];
    Note = 0x17 "NOTE" None &[];
    End = 0x18 "END" None &[];
    Item = 0x19 "ITEM" CompletesStep &[fields::VALUE];
    Put = 0x1A "PUT" None &[];
}

impl Kind {
    /// Kinds from this number on are records: of an attempt, a stream or a run. Those before it serve the log itself.
    pub const FIRST_RECORD: u8 = Kind::Begin as u8;

    /// True if it completes a step.
    pub const fn completes_a_step(self) -> bool {
        matches!(self.effect(), Effect::CompletesStep | Effect::CompletesTurn)
    }

    /// True if it names the step that it belongs to.
    pub const fn is_about_a_step(self) -> bool {
        !matches!(self.effect(), Effect::None) || matches!(self, Kind::Call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_number() {
        for &kind in Kind::ALL {
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
        for &kind in Kind::ALL {
            let line = format!("| 0x{:02X} | {} |", kind as u8, kind.name());
            assert_eq!(spec.matches(&line).count(), 1, "{line}");
        }
    }
}
