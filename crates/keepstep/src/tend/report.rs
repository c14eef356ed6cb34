//! What verifying a store found: plain facts, for people and for programs.

use keepstep_format::Id;
use keepstep_format::commit::Bind;

/// How far the work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that were looked at.
    pub bytes_done: u64,
    /// Bytes that there are.
    pub bytes_total: u64,
}

/// What is wrong with a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The header of a segment. Its records are read all the same, if a salt in it fits a frame.
    Header,
    /// Bytes in which records stood.
    Records,
    /// The index of a sealed segment; its records were found by a scan.
    Index,
    /// The end of a segment was cut off, or its seal is missing although the log goes on.
    Cut,
    /// Bytes stand behind the end of a sealed segment.
    Surplus,
    /// The checksums hold, but what the bytes say does not fit the rest: an index, a commit, a sequence, a reference.
    Disagrees,
    /// A record holds its checksum and cannot be decoded, or its dictionary is lost.
    Undecodable,
    /// A card, or `keepstep.json`.
    Card,
    /// The system could not read it.
    Unreadable,
    /// It is not there, and something else names it.
    Gone,
}

impl Wrong {
    /// In a word.
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

/// Bytes in storage that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Which file.
    pub path: String,
    /// Whose log, if it is one.
    pub writer: Option<Id>,
    /// Which segment of it.
    pub segment: Option<u64>,
    /// Where.
    pub offset: u64,
    /// How many bytes; 0 if something is missing there.
    pub bytes: u64,
    /// What.
    pub wrong: Wrong,
    /// More, for people.
    pub detail: String,
}

/// What damage cost: a record, or one field of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Whose log.
    pub writer: Id,
    /// The episode and attempt, or what else it belongs to; none if nobody can tell any more.
    pub bind: Option<Bind>,
    /// The sequence of the record.
    pub seq: u32,
    /// Its kind, as in the spec.
    pub kind: u8,
    /// The step that it belongs to, as far as that is known or follows from its neighbours.
    pub step: Option<i64>,
    /// The field; none if the whole record is lost.
    pub field: Option<&'static str>,
    /// The segment that the record is in.
    pub segment: u64,
    /// Where it stands.
    pub offset: u64,
    /// The value was found elsewhere, and readers get it.
    pub healed: bool,
}

/// Records that are missing from a sequence, and nobody knows what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Whose log.
    pub writer: Id,
    /// What they belonged to.
    pub bind: Bind,
    /// The first that is missing.
    pub from: u32,
    /// The next that is there.
    pub to: u32,
}

/// The end of a log that was being written when its writer died. Nothing here had been acknowledged at `power`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Torn {
    /// Whose log.
    pub writer: Id,
    /// Which segment.
    pub segment: u64,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// How many records are known to have been on their way.
    pub records: u64,
}

/// How much was looked at.
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
    /// References that were followed, and whose values were hashed again.
    pub references: u64,
    /// Attempts, streams and runs that have records.
    pub subjects: u64,
    /// Cards.
    pub cards: u64,
}

/// What verifying a store found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How much was looked at.
    pub counts: Counts,
    /// Damage, with its place.
    pub damage: Vec<Damage>,
    /// What it cost, value by value.
    pub lost: Vec<Lost>,
    /// Gaps in sequences that no name fills.
    pub missing: Vec<Missing>,
    /// Torn ends: not damage.
    pub torn: Vec<Torn>,
    /// Files in the making that somebody left behind: not damage.
    pub leftovers: Vec<String>,
    /// Episodes that were claimed, and of which no attempt has a record in any log. Whoever claimed them died before the first
    /// was durable, or their log is gone: nobody can tell.
    pub unrecorded: Vec<Id>,
    /// Episodes under a name, in a store that has no claim at all: it was made before there were any, or all are gone.
    pub unclaimed: Vec<Id>,
    /// Groups that somebody was about to seal, and that have no seal: it died before, or the seal is gone.
    pub unsealed: Vec<Id>,
}

impl Report {
    /// True if nothing is damaged and nothing is lost. Torn ends and leftovers are no loss.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty() && self.lost.is_empty() && self.missing.is_empty()
    }

    /// What is lost and was not found elsewhere.
    pub fn lost_for_good(&self) -> impl Iterator<Item = &Lost> {
        self.lost.iter().filter(|lost| !lost.healed)
    }
}
