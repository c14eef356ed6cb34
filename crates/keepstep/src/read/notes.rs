//! Notes: facts that anyone adds to episodes, attempts and steps.
//!
//! If one source gives several notes with one name and target, the newest counts, by time, writer and sequence
//! number. The older ones stay readable, in order.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use keepstep_format::commit::{Bind, What};
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields};

use super::catalog::{Catalog, Trouble};
use super::item::{Gap, Item, Record, RecordPlace};
use super::places::Next;
use super::records::read_record;
use crate::error::Result;
use crate::segment::Contents;
use crate::segment::cards::as_id;
use crate::segment::chain::Chain;
use crate::segment::names::SEAL_NOTE;

/// The target of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[must_use]
#[non_exhaustive]
pub struct NoteTarget {
    /// The episode.
    pub episode: Id,
    /// The attempt; `None` for the episode as a whole.
    pub attempt: Option<u32>,
    /// The step; `None` for the attempt, or the episode, as a whole.
    pub step: Option<u64>,
}

impl NoteTarget {
    /// An episode as a whole.
    pub fn episode(episode: Id) -> Self {
        Self { episode, attempt: None, step: None }
    }

    /// Sets which attempt; `None` is the episode as a whole.
    pub fn attempt(mut self, attempt: impl Into<Option<u32>>) -> Self {
        self.attempt = attempt.into();
        self
    }

    /// Sets which step; `None` is the attempt, or the episode, as a whole.
    pub fn step(mut self, step: impl Into<Option<u64>>) -> Self {
        self.step = step.into();
        self
    }
}

/// The key of a note. Of several notes with the same key, the newest counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NoteKey {
    /// The target.
    pub target: NoteTarget,
    /// The name of the fact.
    pub name: String,
    /// Who gave it.
    pub source: String,
}

/// One note.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NoteSaid {
    /// When.
    pub time: i64,
    /// The writer that recorded it.
    pub writer: Id,
    /// Its sequence number among the records of its subject.
    pub seq: u32,
    /// True if it is among the records of the attempt itself; otherwise it is among the notes of the run.
    pub is_own: bool,
    /// The value. [`Value::Lost`] marks a part that was lost to damage.
    pub value: Value,
}

/// The order of notes. The last field only tells apart two notes that one process made at the same time.
type Order = (i64, Id, u32, bool);

impl NoteSaid {
    fn order(&self) -> Order {
        (self.time, self.writer, self.seq, self.is_own)
    }
}

/// Notes that were lost to damage, or other records that were beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostNotes {
    /// The writer in whose log they were.
    pub writer: Id,
    /// The first sequence number, and the one after the last.
    pub seqs: (u32, u32),
    /// Where it stands, if that is known.
    pub place: Option<RecordPlace>,
}

impl fmt::Display for LostNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.seqs;
        write!(f, "notes {from} to {} in the log of writer {} are lost", to.saturating_sub(1), self.writer)
    }
}

/// The announcement that a group is about to be sealed. Its card says whether that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SealHint {
    /// When.
    pub time: i64,
    /// The writer that announced it.
    pub writer: Id,
    /// Its sequence number among that writer's notes on the run.
    pub seq: u32,
    /// The group.
    pub group: Id,
}

/// Notes by key, each list from the oldest to the newest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    by_key: BTreeMap<NoteKey, Vec<NoteSaid>>,
}

impl Notes {
    /// The note that counts: the newest with this key.
    pub fn newest(&self, key: &NoteKey) -> Option<&NoteSaid> {
        self.by_key.get(key)?.last()
    }

    /// All notes with this key, from the oldest to the newest.
    pub fn history(&self, key: &NoteKey) -> &[NoteSaid] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// All notes, sorted by key; each with its history, the newest last.
    pub fn iter(&self) -> impl Iterator<Item = (&NoteKey, &[NoteSaid])> {
        self.by_key.iter().map(|(key, said)| (key, said.as_slice()))
    }

    /// The notes on one episode, its attempts and its steps.
    pub fn of(&self, episode: &Id) -> impl Iterator<Item = (&NoteKey, &[NoteSaid])> {
        let target = NoteTarget::episode(*episode);
        let first = NoteKey { target, name: String::new(), source: String::new() };
        let from = self.by_key.range(first..).map(|(key, said)| (key, said.as_slice()));
        from.take_while(move |(key, _)| key.target.episode == target.episode)
    }

    fn add(&mut self, key: NoteKey, note: NoteSaid) {
        let said = self.by_key.entry(key).or_default();
        match said.binary_search_by_key(&note.order(), NoteSaid::order) {
            // The same note, read again: from a copy, or from a log that was not settled.
            Ok(at) => said[at] = note,
            Err(at) => said.insert(at, note),
        }
    }

    fn remove(&mut self, key: &NoteKey, order: &Order) {
        let Some(said) = self.by_key.get_mut(key) else { return };
        said.retain(|note| note.order() != *order);
        if said.is_empty() {
            self.by_key.remove(key);
        }
    }
}

/// All notes of one run. [`NoteIndex::refresh`] reads new ones.
#[derive(Debug)]
pub struct NoteIndex {
    catalog: Catalog,
    bind: Bind,
    next_seq: BTreeMap<Id, u32>,
    notes: Notes,
    seals: Vec<SealHint>,
    lost: Vec<LostNotes>,
    /// Notes that may not be synced: they are read again at the next refresh.
    unsettled: Vec<(NoteKey, Order)>,
    unsettled_seals: Vec<SealHint>,
}

/// One record of a run's notes.
enum RunRecord {
    Note(NoteKey, NoteSaid),
    Seal(SealHint),
}

impl NoteIndex {
    /// The notes of a run, by its generation id.
    pub fn new(catalog: Catalog, generation_id: Id) -> Result<Self> {
        let bind = Bind { what: What::Run, id: generation_id, attempt: 0 };
        let mut index = Self {
            catalog,
            bind,
            next_seq: BTreeMap::new(),
            notes: Notes::default(),
            seals: Vec::new(),
            lost: Vec::new(),
            unsettled: Vec::new(),
            unsettled_seals: Vec::new(),
        };
        index.read_new()?;
        Ok(index)
    }

    /// Reads what is new.
    pub fn refresh(&mut self) -> Result<()> {
        self.catalog.refresh()?;
        self.read_new()
    }

    /// The notes of the run. Notes that attempts recorded on themselves are among their records: see
    /// [`NoteIndex::episode`].
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Groups that were sealed or about to be sealed, ordered by time.
    pub fn seals(&self) -> &[SealHint] {
        &self.seals
    }

    /// Logs that could not be read at the last refresh: notes may have been in them.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.catalog.troubles()
    }

    /// What was lost to damage.
    pub fn lost(&self) -> &[LostNotes] {
        &self.lost
    }

    /// What may hold more notes, as text for people: logs that cannot be read, and notes of the run that were lost.
    pub fn unread(&self) -> Vec<String> {
        let troubles = self.troubles().into_iter().map(|trouble| trouble.error.to_string());
        troubles.chain(self.lost.iter().map(ToString::to_string)).collect()
    }

    /// All notes on one episode: those of the run, and those that its attempts recorded themselves and that count.
    pub fn episode(&self, episode: &Id) -> Result<(Notes, Vec<LostNotes>)> {
        let mut notes = Notes::default();
        for (key, said) in self.notes.of(episode) {
            notes.by_key.insert(key.clone(), said.to_vec());
        }
        let (mut lost, mut chain) = (Vec::new(), None);
        for (log, bind) in self.own_parts(episode) {
            let items = notes_of(&self.catalog, &log, &bind, 0)?;
            if items.is_empty() {
                // Most attempts record no notes, and no card has to be read for them.
                continue;
            }
            let chain = match &mut chain {
                Some(chain) => chain,
                none => none.insert(Chain::read_counted(self.catalog.storage(), episode)?),
            };
            let counted = chain.counted(&log, &bind);
            // A copy counts as the record that it is a copy of.
            let writer = if let What::Copied { from } = bind.what { from } else { log };
            let own = NoteTarget { episode: *episode, attempt: Some(bind.attempt), step: None };
            for item in items.into_iter().filter_map(|item| within(&counted, item)) {
                match item {
                    Item::Record(record) => match note(&record, &writer, Some(own)) {
                        Some((key, said)) if key.target.episode == *episode => notes.add(key, said),
                        Some(_) => {}
                        None => lost.push(lost_record(log, record.seq, record.place)),
                    },
                    Item::Damaged(damaged) => lost.push(lost_record(log, damaged.seq, damaged.place)),
                    Item::Gap(gap) => lost.push(lost_gap(log, gap)),
                }
            }
        }
        Ok((notes, lost))
    }

    fn read_new(&mut self) -> Result<()> {
        for (key, order) in std::mem::take(&mut self.unsettled) {
            self.notes.remove(&key, &order);
        }
        let doubtful = std::mem::take(&mut self.unsettled_seals);
        self.seals.retain(|seal| !doubtful.contains(seal));
        let writers: Vec<Id> = self.catalog.logs().map(|log| *log.writer()).collect();
        for writer in writers {
            self.read_log(&writer)?;
        }
        self.seals.sort_unstable();
        Ok(())
    }

    fn read_log(&mut self, writer: &Id) -> Result<()> {
        let from = self.next_seq.get(writer).copied().unwrap_or(0);
        let (mut next, mut is_settled) = (from, true);
        for item in notes_of(&self.catalog, writer, &self.bind, from)? {
            let (place, to) = match &item {
                Item::Record(record) => (Some(record.place), record.seq.saturating_add(1)),
                Item::Damaged(damaged) => (Some(damaged.place), damaged.seq.saturating_add(1)),
                Item::Gap(gap) => (None, gap.to),
            };
            is_settled &= place.is_none_or(|place| self.is_settled(writer, place));
            self.take(writer, &item, is_settled);
            if is_settled {
                next = to;
            }
        }
        self.next_seq.insert(*writer, next);
        Ok(())
    }

    fn take(&mut self, writer: &Id, item: &Item, is_settled: bool) {
        let lost = match item {
            Item::Record(record) => match found(record, writer) {
                Some(RunRecord::Note(key, said)) => {
                    if !is_settled {
                        self.unsettled.push((key.clone(), said.order()));
                    }
                    return self.notes.add(key, said);
                }
                Some(RunRecord::Seal(hint)) => {
                    if !is_settled {
                        self.unsettled_seals.push(hint);
                    }
                    return self.seals.push(hint);
                }
                None => lost_record(*writer, record.seq, record.place),
            },
            Item::Damaged(damaged) => lost_record(*writer, damaged.seq, damaged.place),
            Item::Gap(gap) => lost_gap(*writer, *gap),
        };
        if !self.lost.contains(&lost) {
            self.lost.push(lost);
        }
    }

    fn is_settled(&self, writer: &Id, place: RecordPlace) -> bool {
        let segment = self.catalog.log(writer).and_then(|log| log.segment(place.segment));
        segment.is_some_and(|segment| segment.is_settled_at(place.offset))
    }

    /// Where attempts of an episode have records of their own, or copies of them: the log, and the subject.
    fn own_parts(&self, episode: &Id) -> Vec<(Id, Bind)> {
        let is_own =
            |bind: &Bind| bind.id == *episode && matches!(bind.what, What::Attempt | What::Copied { .. });
        let mut parts: Vec<(Id, Bind)> = Vec::new();
        let mut add = |writer: Id, bind: Bind| {
            if is_own(&bind) && !parts.contains(&(writer, bind)) {
                parts.push((writer, bind));
            }
        };
        for log in self.catalog.logs().chain([self.catalog.grouped()]) {
            for segment in log.segments() {
                match segment.contents() {
                    Contents::Sealed(index) => index.owned_entries_at(episode).for_each(|(writer, it)| {
                        add(writer, Bind { what: it.what, id: it.id, attempt: it.attempt });
                    }),
                    Contents::Open(scanned) => {
                        scanned.entries.iter().for_each(|entry| add(*log.writer(), entry.bind));
                    }
                    Contents::Unreadable(_) => {}
                }
            }
        }
        parts
    }
}

/// The notes among the records of a subject; other records are skipped without being read.
fn notes_of(catalog: &Catalog, writer: &Id, bind: &Bind, from_seq: u32) -> Result<Vec<Item>> {
    let mut reader = catalog.bind_reader(writer, bind)?;
    let mut outline: Vec<Next> = reader.outline(from_seq).collect::<Result<_>>()?;
    if matches!((bind.what, outline.first()), (What::Copied { .. }, Some(Next::Gap { .. }))) {
        // Only records that were not synced are copied, so those before them are not missing.
        outline.remove(0);
    }
    let mut items = Vec::new();
    for next in outline {
        match next {
            Next::Here { seq, kind, place } if kind == Kind::Note as u8 => {
                items.push(read_record(reader.bodies(), seq, kind, place)?);
            }
            Next::Lost { seq, kind, place } if may_be_a_note(kind) => {
                items.push(Item::Damaged(super::records::DamagedRecord { seq, kind, place }));
            }
            Next::Gap { from, to } => items.push(Item::Gap(Gap { from, to })),
            Next::Here { .. } | Next::Lost { .. } => {}
        }
    }
    Ok(items)
}

/// An item, if it is in a range of sequence numbers; of a gap, the part that is.
fn within(range: &Range<u32>, item: Item) -> Option<Item> {
    match item {
        Item::Gap(Gap { from, to }) => {
            let (from, to) = (from.max(range.start), to.min(range.end));
            (from < to).then_some(Item::Gap(Gap { from, to }))
        }
        Item::Record(ref record) => range.contains(&record.seq).then_some(item),
        Item::Damaged(ref damaged) => range.contains(&damaged.seq).then_some(item),
    }
}

/// Of a long record, only a later part may have been found.
fn may_be_a_note(kind: u8) -> bool {
    kind == Kind::Note as u8 || kind == Kind::Chunk as u8
}

fn lost_record(writer: Id, seq: u32, place: RecordPlace) -> LostNotes {
    LostNotes { writer, seqs: (seq, seq.saturating_add(1)), place: Some(place) }
}

fn lost_gap(writer: Id, gap: Gap) -> LostNotes {
    LostNotes { writer, seqs: (gap.from, gap.to), place: None }
}

fn found(record: &Record, writer: &Id) -> Option<RunRecord> {
    if record.get(fields::NAME).and_then(Value::as_str) == Some(SEAL_NOTE) {
        let (time, group) = (record.get(fields::TIME)?.as_int()?, as_id(record.get(fields::VALUE)?)?);
        return Some(RunRecord::Seal(SealHint { time, writer: *writer, seq: record.seq, group }));
    }
    note(record, writer, None).map(|(key, said)| RunRecord::Note(key, said))
}

/// A note, if its record has all that it needs. `own` is the default target.
fn note(record: &Record, writer: &Id, own: Option<NoteTarget>) -> Option<(NoteKey, NoteSaid)> {
    let text = |number: u8| Some(record.get(number)?.as_str()?.to_owned());
    let step = match record.get(fields::INDEX) {
        Some(index) => Some(u64::try_from(index.as_int()?).ok()?),
        None => None,
    };
    let target = match record.get(fields::TARGET) {
        Some(episode) => {
            let attempt = match record.get(fields::TARGET_ATTEMPT) {
                Some(attempt) => Some(u32::try_from(attempt.as_int()?).ok()?),
                None => None,
            };
            NoteTarget { episode: as_id(episode)?, attempt, step }
        }
        None => NoteTarget { step, ..own? },
    };
    let key = NoteKey { target, name: text(fields::NAME)?, source: text(fields::SOURCE)? };
    let (time, value) = (record.get(fields::TIME)?.as_int()?, record.get(fields::VALUE)?.clone());
    Some((key, NoteSaid { time, writer: *writer, seq: record.seq, is_own: own.is_some(), value }))
}
