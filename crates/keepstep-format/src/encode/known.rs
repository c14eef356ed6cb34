//! What is in the log already, as whoever encodes may ask.

use crate::frame::{Place, Reference};
use crate::hash::Hash;

/// What the log knows of a hash.
#[derive(Debug, Clone)]
pub enum InLog {
    /// Nothing.
    No,
    /// Somebody is about to store it: whoever places the frames will know.
    Pending,
    /// It is in the log.
    At(Box<Stored>),
}

/// A value, or a prefix of one, that is in the log already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub place: Place,
    /// Units of the value there that are meant; 0 for all of it.
    pub take: u64,
    /// If it is time to write the whole chain of links down: all its spans.
    pub spans: Vec<Span>,
    /// How many links a reader follows from there.
    pub depth: u16,
}

/// Units `skip` to `reference.take` of a referenced value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Units that are left out at the beginning.
    pub skip: u64,
    /// The value, and where the span ends.
    pub reference: Reference,
}

/// Knows what is in the log.
pub trait Known {
    /// Looks a hash up.
    fn find(&self, hash: &Hash) -> InLog;

    /// True if somebody decides what is left undecided, so that a value may be set aside that stands twice in a body. A
    /// card has no references at all.
    fn decides(&self) -> bool {
        false
    }
}

/// Knows nothing: everything is written in full.
#[derive(Debug, Clone, Copy)]
pub struct NothingKnown;

impl Known for NothingKnown {
    fn find(&self, _: &Hash) -> InLog {
        InLog::No
    }
}
