//! What reading yields: a record, one that cannot be read, or a gap where records are missing.

use keepstep_format::kind::Kind;
use keepstep_format::value::Value;

/// The place of a record in the log of its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RecordPlace {
    /// The number of the segment.
    pub segment: u64,
    /// Where it starts there.
    pub offset: u64,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Its sequence number among the records of its attempt.
    pub seq: u32,
    /// Its kind; see [`Record::kind_name`]. Later versions may have kinds that this one does not know.
    pub kind: u8,
    /// Where it is.
    pub place: RecordPlace,
    /// How many bytes it takes there.
    pub bytes: u64,
    /// Its fields, by number, in rising order.
    pub fields: Vec<(u8, Value)>,
    /// The fields of which a part was lost to damage.
    pub lost: Vec<u8>,
}

impl Record {
    /// The value of a field.
    pub fn get(&self, number: u8) -> Option<&Value> {
        self.fields.iter().find(|(found, _)| *found == number).map(|(_, value)| value)
    }

    /// Its kind, if this version knows it.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.kind)
    }

    /// The name of its kind in the spec.
    pub fn kind_name(&self) -> &'static str {
        self.kind().map_or("unknown", Kind::name)
    }
}

/// A record that was there and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRecord {
    /// Its sequence number among the records of its attempt.
    pub seq: u32,
    /// Its kind. CHUNK if only a later part of a long record was found.
    pub kind: u8,
    /// Where it is.
    pub place: RecordPlace,
}

/// Records that are not in the log; it is unknown what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The first that is missing.
    pub from: u32,
    /// The next one that is there.
    pub to: u32,
}

/// The next thing in an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A record.
    Record(Box<Record>),
    /// A record that cannot be read.
    Damaged(DamagedRecord),
    /// Missing records.
    Gap(Gap),
}
