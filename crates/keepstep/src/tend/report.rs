//! What `verify` found: plain facts, for people and for programs.

use keepstep_format::Id;
use keepstep_format::commit::Bind;

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that were checked.
    pub bytes_done: u64,
    /// Bytes in total.
    pub bytes_total: u64,
}

/// What is wrong with a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The header of a segment. Its records are still read, if a salt in it fits a frame.
    Header,
    /// Bytes of records.
    Records,
    /// The index of a sealed segment; its records were found by a scan.
    Index,
    /// The end of a segment was cut off, or its seal is missing although the log continues.
    Cut,
    /// Bytes after the end of a sealed segment.
    Surplus,
    /// The checksums are right, but the content contradicts the rest: an index, a commit, a sequence number, a
    /// reference.
    Disagrees,
    /// A record has a right checksum and cannot be decoded, or its dictionary is lost.
    Undecodable,
    /// A card, or `keepstep.json`.
    Card,
    /// The system could not read the file.
    Unreadable,
    /// The file is missing, and something else names it.
    Gone,
}

impl Wrong {
    /// Its name, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Records => "records",
            Self::Index => "index",
            Self::Cut => "cut",
            Self::Surplus => "surplus",
            Self::Disagrees => "disagrees",
            Self::Undecodable => "undecodable",
            Self::Card => "card",
            Self::Unreadable => "unreadable",
            Self::Gone => "gone",
        }
    }
}

/// Bytes in storage that differ from what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Which file.
    pub path: String,
    /// The writer of the log, if it is one.
    pub writer: Option<Id>,
    /// Which segment of the log.
    pub segment: Option<u64>,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes; 0 if something is missing there.
    pub bytes: u64,
    /// What is wrong.
    pub wrong: Wrong,
    /// Details, for people.
    pub detail: String,
}

/// What damage cost: a record, or one field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The writer of the log.
    pub writer: Id,
    /// The episode and attempt, or another subject; `None` if it is unknown.
    pub bind: Option<Bind>,
    /// The sequence number of the record.
    pub seq: u32,
    /// Its kind, as in the spec.
    pub kind: u8,
    /// The step that it belongs to, if it is known or follows from its neighbours.
    pub step: Option<i64>,
    /// The field; `None` if the whole record is lost.
    pub field: Option<&'static str>,
    /// The segment that the record is in.
    pub segment: u64,
    /// Where the record is.
    pub offset: u64,
    /// True if the value was found elsewhere, and readers get it.
    pub healed: bool,
}

/// Records that are missing from a sequence; it is unknown what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The writer of the log.
    pub writer: Id,
    /// Their subject.
    pub bind: Bind,
    /// The first that is missing.
    pub from: u32,
    /// The next one that is there.
    pub to: u32,
}

/// The end of a log that was being written when its writer died. Nothing here had been acknowledged at `power`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Torn {
    /// The writer of the log.
    pub writer: Id,
    /// Which segment.
    pub segment: u64,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// How many records are known to have been in flight.
    pub records: u64,
}

/// How much was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Writers.
    pub writers: u64,
    /// Segments.
    pub segments: u64,
    /// Segments that are sealed, with a whole index.
    pub sealed: u64,
    /// Bytes of segments.
    pub bytes: u64,
    /// Records, all kinds.
    pub records: u64,
    /// References that were followed and whose values were hashed again.
    pub references: u64,
    /// Attempts, streams and runs that have records.
    pub subjects: u64,
    /// Cards.
    pub cards: u64,
}

/// What `verify` found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How much was checked.
    pub counts: Counts,
    /// Damage, with its place.
    pub damage: Vec<Damage>,
    /// What it cost, value by value.
    pub lost: Vec<Lost>,
    /// Missing records whose names are unknown.
    pub missing: Vec<Missing>,
    /// Torn ends. They are not damage.
    pub torn: Vec<Torn>,
    /// Temporary files that were left behind. They are not damage.
    pub leftovers: Vec<String>,
    /// Episodes that were claimed, and have no record in any log. Either their owners died before the first record
    /// was durable, or their log is gone; the two cannot be told apart.
    pub unrecorded: Vec<Id>,
    /// Episodes with a name, in a store without any claim: either it was made before claims existed, or all are gone.
    pub unclaimed: Vec<Id>,
    /// Groups whose seal was announced and is missing: either the process died before it sealed, or the seal is gone.
    pub unsealed: Vec<Id>,
}

impl Report {
    /// True if nothing is damaged or lost. Torn ends and leftovers are no loss.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty() && self.missing.is_empty()
    }

    /// What is lost and was not found elsewhere.
    pub fn lost_for_good(&self) -> impl Iterator<Item = &Lost> {
        self.lost.iter().filter(|lost| !lost.healed)
    }
}
