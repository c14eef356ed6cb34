//! What the encoder can ask about the log: which values it has already.

use std::sync::Arc;

use super::SlideList;
use crate::frame::{Place, Reference};
use crate::hash::Hash;

/// What the log knows of a hash.
#[derive(Debug, Clone)]
pub enum InLog {
    /// Nothing.
    No,
    /// Another record is about to store it. The committer will decide.
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
    /// All its spans, if it is time to store the whole chain of links.
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

/// Knows which values are in the log.
pub trait Known {
    /// Looks a hash up.
    fn find(&self, hash: &Hash) -> InLog;

    /// The newest list that ends with two items, each named by the hash of a list of it alone.
    fn list_that_ends_with(&self, _: &[Hash; 2]) -> Option<Arc<SlideList>> {
        None
    }

    /// True if undecided references will be decided later, so that a value that occurs twice in a body may be stored
    /// once. A card has no references at all.
    fn decides(&self) -> bool {
        false
    }
}

/// Knows no value: everything is written in full.
#[derive(Debug, Clone, Copy)]
pub struct NothingKnown;

impl Known for NothingKnown {
    fn find(&self, _: &Hash) -> InLog {
        InLog::No
    }
}
