//! The lineage of an attempt: its inherited records, of any writer, and then its own.
//!
//! The outline is read first, without values: which records there are, which steps they form, how it ended. Values
//! are fetched when they are asked for, so that resuming a long episode costs no more than a short one.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};
use keepstep_format::decode::Wanted;
use keepstep_format::fields;
use keepstep_format::kind::{Effect, Kind};

use super::attempt::AttemptReader;
use super::catalog::Catalog;
use super::events::Events;
use super::item::{DamagedRecord, Gap, Item, RecordPlace};
use super::kinds::{Attempt, Begin, End};
use super::places::Next;
use super::records::{MOVED_MAX, read_wanted};
use crate::error::{Error, Result};
use crate::segment::Contents;
use crate::segment::chain::{Base, Chain, Link, Span};

/// A part of a lineage: records of one attempt, in one log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineagePart {
    /// Which records.
    pub span: Span,
    /// The steps that its records completed.
    pub steps: Range<u64>,
}

/// A record of a lineage, without its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct Line {
    /// In which part.
    pub part: usize,
    /// Its sequence number there.
    pub seq: u32,
    /// Its kind.
    pub kind: u8,
    /// Where it stands in the log of that part.
    pub place: RecordPlace,
    /// True if it was there and cannot be read.
    pub is_lost: bool,
}

/// A step of a lineage: where its records are in the outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepLines {
    pub(super) intent: Option<usize>,
    pub(super) done: usize,
}

/// Reads the records of an episode that count.
#[derive(Debug)]
pub(crate) struct Lineage {
    episode: Id,
    pub(super) parts: Vec<LineagePart>,
    readers: Vec<AttemptReader>,
    pub(super) lines: Vec<Line>,
    pub(super) steps: Vec<StepLines>,
    pub(super) pending: Option<usize>,
    gaps: Vec<(usize, Gap)>,
    /// The first line of the attempt's own records.
    own_from: usize,
    /// The part that they are.
    own_part: usize,
}

impl Catalog {
    /// The lineage of an attempt. All logs of the chain must have been read.
    pub(crate) fn lineage(&self, episode: &Id, chain: &Chain, attempt: u32) -> Result<Lineage> {
        self.lineage_resting_on(self, episode, chain, attempt)
    }

    /// As [`Catalog::lineage`], but inherited records are read from another catalog.
    ///
    /// When a base is published, all that it names is synced, but the log may not say so yet. A catalog that reads
    /// beyond that is right for inherited records, and wrong for the attempt's own.
    pub(crate) fn lineage_resting_on(
        &self,
        inherited_in: &Catalog,
        episode: &Id,
        chain: &Chain,
        attempt: u32,
    ) -> Result<Lineage> {
        let link = link_of(episode, chain, attempt)?;
        Lineage::new(self, inherited_in, episode, link.base.as_ref(), own_span(link))
    }

    /// The own records of an attempt that count, without inherited ones.
    pub(crate) fn own_part(&self, episode: &Id, chain: &Chain, attempt: u32) -> Result<Lineage> {
        let link = link_of(episode, chain, attempt)?;
        Lineage::new(self, self, episode, None, own_span(link))
    }

    /// What one attempt recorded itself in one log, without inherited records.
    pub(crate) fn alone(&self, episode: &Id, writer: &Id, attempt: u32) -> Result<Lineage> {
        let own = Span { writer: *writer, attempt, copied: None, from: 0, to: u32::MAX };
        Lineage::new(self, self, episode, None, own)
    }
}

impl Lineage {
    fn new(
        catalog: &Catalog,
        inherited_in: &Catalog,
        episode: &Id,
        base: Option<&Base>,
        own: Span,
    ) -> Result<Self> {
        let mut lineage = Self {
            episode: *episode,
            parts: Vec::new(),
            readers: Vec::new(),
            lines: Vec::new(),
            steps: Vec::new(),
            pending: None,
            gaps: Vec::new(),
            own_from: 0,
            own_part: 0,
        };
        if let Some(base) = base {
            lineage.inherit(inherited_in, base)?;
        }
        (lineage.own_from, lineage.own_part) = (lineage.lines.len(), lineage.parts.len());
        match catalog.bind_reader(&own.writer, &bind_of(episode, &own)) {
            Ok(reader) => {
                let (reader, outline) = outline_of(reader, &own)?;
                lineage.add_part(reader, outline, own, &mut 0);
            }
            // It was claimed, and nothing was written.
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(lineage)
    }

    /// Adds all that a base names. Steps that cannot be found count as lost; later steps keep their numbers.
    fn inherit(&mut self, catalog: &Catalog, base: &Base) -> Result<()> {
        let mut found = Vec::new();
        for &span in &base.spans {
            let reader = catalog.reader_of_span(&bind_of(&self.episode, &span), &span.writer)?;
            let (reader, mut outline) = outline_of(reader, &span)?;
            let last = outline.iter().map(Next::end).max().unwrap_or(span.from);
            if last < span.to {
                outline.push(Next::Gap { from: last, to: span.to });
            }
            found.push((reader, outline, span));
        }
        let is_step = |kind: u8| Kind::from_u8(kind).is_some_and(Kind::completes_a_step);
        let steps = found.iter().flat_map(|(_, outline, span)| outline.iter().map(move |next| (next, span)));
        let there = steps.filter(|(next, span)| match next {
            Next::Here { seq, kind, .. } | Next::Lost { seq, kind, .. } => *seq < span.to && is_step(*kind),
            Next::Gap { .. } => false,
        });
        let mut lost_steps = base.inherited.saturating_sub(there.count() as u64);
        for (reader, outline, span) in found {
            self.add_part(reader, outline, span, &mut lost_steps);
        }
        Ok(())
    }

    /// Adds the records of a span. `lost_steps` is how many steps are known to be missing.
    fn add_part(&mut self, reader: AttemptReader, outline: Vec<Next>, span: Span, lost_steps: &mut u64) {
        let part = self.parts.len();
        let first_step = self.steps.len() as u64;
        let mut next_seq = span.from;
        for next in outline {
            let (seq, to) = match next {
                Next::Gap { from, to } => {
                    let gap = cut_gap(from, to, span.to);
                    self.gaps.extend(gap.map(|gap| (part, gap)));
                    self.add_lost_steps(part, gap, lost_steps);
                    (from, to)
                }
                Next::Here { seq, kind, place } if seq < span.to => {
                    self.add_line(Line { part, seq, kind, place, is_lost: false });
                    (seq, seq + 1)
                }
                Next::Lost { seq, kind, place } if seq < span.to => {
                    self.add_line(Line { part, seq, kind, place, is_lost: true });
                    (seq, seq + 1)
                }
                Next::Here { seq, .. } | Next::Lost { seq, .. } => (seq, seq),
            };
            next_seq = next_seq.max(to.min(span.to));
            if seq >= span.to {
                break;
            }
        }
        let steps = first_step..self.steps.len() as u64;
        self.parts.push(LineagePart { span: Span { to: next_seq, ..span }, steps });
        self.readers.push(reader);
    }

    fn add_lost_steps(&mut self, part: usize, gap: Option<Gap>, lost_steps: &mut u64) {
        let Some(Gap { from, to }) = gap else { return };
        // The first record of an attempt is its beginning.
        let from = from.max(1).min(to);
        let here = (*lost_steps).min(u64::from(to - from)) as u32;
        *lost_steps -= u64::from(here);
        for seq in from..from + here {
            let place = RecordPlace { segment: 0, offset: 0 };
            self.add_line(Line { part, seq, kind: Kind::Step as u8, place, is_lost: true });
        }
    }

    fn add_line(&mut self, line: Line) {
        let at = self.lines.len();
        self.lines.push(line);
        match Kind::from_u8(line.kind).map_or(Effect::None, Kind::effect) {
            Effect::CompletesStep => self.steps.push(StepLines { intent: None, done: at }),
            Effect::OpensTurn => self.pending = Some(at),
            Effect::CompletesTurn => {
                let intent = self.pending.take();
                self.steps.push(StepLines { intent, done: at });
            }
            Effect::ClosesTurn => self.pending = None,
            Effect::None => {}
        }
    }

    /// Which steps come from which attempt and writer.
    pub(crate) fn parts(&self) -> &[LineagePart] {
        &self.parts
    }

    /// All its records, in order.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The own lines of the attempt before a line.
    pub(crate) fn own_lines(&self, before: usize) -> Range<usize> {
        self.own_from.min(before)..before
    }

    /// How many own records the attempt has, lost ones included.
    pub(crate) fn own_records(&self) -> u32 {
        self.lines[self.own_from..].last().map_or(0, |line| line.seq.saturating_add(1))
    }

    /// How many steps it has, FIRST included.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// How many of its steps failed. Each step records the count so far, if it is not zero.
    pub(crate) fn failed(&mut self) -> Result<u64> {
        for index in (0..self.steps.len()).rev() {
            if let Item::Record(record) = self.item(self.steps[index].done)? {
                let failed = record.get(fields::FAILED).and_then(|value| value.as_int());
                return Ok(failed.and_then(|failed| u64::try_from(failed).ok()).unwrap_or(0));
            }
        }
        Ok(0)
    }

    /// True if a turn has no result.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// True if there is a first observation.
    pub(crate) fn has_first(&self) -> bool {
        self.steps.first().is_some_and(|step| self.lines[step.done].kind == Kind::First as u8)
    }

    /// Missing records: the part, and which of its records.
    pub(crate) fn gaps(&self) -> &[(usize, Gap)] {
        &self.gaps
    }

    /// True if inherited records cannot be found.
    pub(crate) fn misses_what_it_inherited(&self) -> bool {
        self.gaps.iter().any(|(part, _)| *part < self.own_part)
    }

    /// The first loss before a line: a record that cannot be read, or is missing.
    pub(crate) fn first_loss(&self, before: usize) -> Option<String> {
        let lost = self.lines[..before].iter().find(|line| line.is_lost);
        if let Some(line) = lost {
            let span = &self.parts[line.part].span;
            return Some(format!("record {} of attempt {} cannot be read", line.seq, span.attempt));
        }
        let end = self.lines[..before].last();
        let gap = self.gaps.iter().find(|(part, gap)| {
            end.is_some_and(|end| *part < end.part || (*part == end.part && gap.from < end.seq))
                || (before == self.lines.len())
        });
        gap.map(|(part, gap)| {
            let attempt = self.parts[*part].span.attempt;
            format!("records {} to {} of attempt {attempt} are missing", gap.from, gap.to - 1)
        })
    }

    /// Where to cut the outline to keep this many steps. Later records that belong to no step are left out.
    pub(crate) fn cut_behind(&self, steps: u64) -> usize {
        match steps.checked_sub(1).and_then(|last| self.steps.get(last as usize)) {
            Some(step) => step.done + 1,
            None => 0,
        }
    }

    /// Forgets everything from a line on.
    pub(crate) fn truncate(&mut self, at: usize) {
        self.lines.truncate(at);
        self.steps.retain(|step| step.done < at);
        self.pending = self.pending.filter(|&pending| pending < at);
        self.own_from = self.own_from.min(at);
        let steps = self.steps.len() as u64;
        let ends = self.ends_of_parts(at);
        for (part, end) in self.parts.iter_mut().zip(ends) {
            part.steps = part.steps.start.min(steps)..part.steps.end.min(steps);
            part.span.to = end.unwrap_or(part.span.from);
        }
        let parts = &self.parts;
        self.gaps.retain(|(part, gap)| gap.to < parts[*part].span.to);
    }

    /// Where its own END is, if it has one.
    pub(crate) fn own_end(&self) -> Option<usize> {
        let own = &self.lines[self.own_from..];
        own.iter().rposition(|line| line.kind == Kind::End as u8).map(|at| at + self.own_from)
    }

    /// Where an END is: its own, or an inherited one, if the attempt only adopted that end.
    pub(crate) fn end_at(&self) -> Option<usize> {
        self.lines.iter().rposition(|line| line.kind == Kind::End as u8)
    }

    /// How it ended, if it has an end.
    pub(crate) fn end(&mut self) -> Result<Option<End>> {
        self.own_end().map(|at| self.end_of(at)).transpose()
    }

    /// How the attempt that it inherited from ended, if it only adopted that end.
    pub(crate) fn inherited_end(&mut self) -> Result<Option<End>> {
        self.end_at().map(|at| self.end_of(at)).transpose()
    }

    pub(super) fn end_of(&mut self, at: usize) -> Result<End> {
        let mut end = match self.item(at)? {
            Item::Record(record) => End::of(&record),
            // It ended, but how is lost.
            _ => End { damaged: vec!["why", "limit", "error", "said_by", "evidence"], ..End::default() },
        };
        if end.why.is_none() {
            // The index of its segment has the reason too.
            end.why = self.readers[self.lines[at].part].said_why();
            end.damaged.retain(|field| *field != "why" || end.why.is_none());
        }
        Ok(end)
    }

    /// How the newest attempt in it began, of those that recorded it.
    pub(crate) fn begin(&mut self) -> Result<Option<Begin>> {
        let Some(at) = self.lines.iter().rposition(|line| line.kind == Kind::Begin as u8) else {
            return Ok(None);
        };
        Ok(match self.item(at)? {
            Item::Record(record) => Some(Begin::of(&record)),
            _ => Some(Begin { damaged: vec!["parent", "meta"], ..Begin::default() }),
        })
    }

    /// True if there is unidentified damage after its last own record: more of its records may have been there.
    pub(crate) fn may_have_lost_its_end(&self) -> bool {
        let Some(reader) = self.readers.last() else { return false };
        let own = self.lines[self.own_from..].last().map(|line| (line.place.segment, line.place.offset));
        reader.nameless_damage().iter().any(|at| own.is_none_or(|own| *at > own))
    }

    /// True if a line is not known to be synced by its writer.
    pub(crate) fn is_unsynced(&self, catalog: &Catalog, at: usize) -> bool {
        let line = &self.lines[at];
        let span = &self.parts[line.part].span;
        // If it cannot be looked at, it is not known to be synced either.
        let log = catalog.log_with(&span.writer, &bind_of(&self.episode, span)).ok().flatten();
        let segment = log.and_then(|log| log.segment(line.place.segment));
        match segment.map(|segment| segment.contents()) {
            // A sync by the process that scanned it proves nothing: after a failed sync the pages count as clean.
            Some(Contents::Open(scanned)) => line.place.offset >= scanned.synced_to,
            Some(Contents::Sealed(_)) => false,
            Some(Contents::Unreadable(_)) | None => true,
        }
    }

    /// The record of a line.
    pub(crate) fn item(&mut self, at: usize) -> Result<Item> {
        self.wanted_item(at, &Wanted::ALL)
    }

    /// The record of a line, only these fields of it.
    pub(super) fn wanted_item(&mut self, at: usize, wanted: &Wanted) -> Result<Item> {
        let part = self.lines[at].part;
        let mut read = self.read_line(at, wanted);
        for _ in 0..MOVED_MAX {
            match &read {
                Err(error) if error.is_gone() => {
                    read = self.find_again(part).and_then(|()| self.read_line(at, wanted));
                }
                _ => break,
            }
        }
        read
    }

    fn read_line(&mut self, at: usize, wanted: &Wanted) -> Result<Item> {
        let Line { part, seq, kind, place, is_lost, .. } = self.lines[at];
        if is_lost {
            return Ok(Item::Damaged(DamagedRecord { seq, kind, place }));
        }
        read_wanted(self.readers[part].bodies(), seq, kind, place, wanted)
    }

    /// The log of a part was deleted, since `compact` moved its records; the newest manifest says where. Names and
    /// sequence numbers are the same there.
    fn find_again(&mut self, part: usize) -> Result<()> {
        let span = self.parts[part].span;
        let reader = self.readers[part].find_again()?;
        let mut places = BTreeMap::new();
        for next in reader.outline(span.from) {
            if let Next::Here { seq, place, .. } | Next::Lost { seq, place, .. } = next? {
                places.insert(seq, place);
            }
        }
        for line in self.lines.iter_mut().filter(|line| line.part == part) {
            match places.get(&line.seq) {
                Some(place) => line.place = *place,
                // What is at its old place by now is another record.
                None => line.is_lost = true,
            }
        }
        self.readers[part] = reader;
        Ok(())
    }

    /// Reads all of it as one attempt.
    pub(crate) fn read(&mut self) -> Result<Attempt> {
        let mut cursor = LineageCursor::new(self);
        Events::new(std::iter::from_fn(|| cursor.next(self).transpose())).read()
    }

    /// What another attempt inherits if it resumes before this line, before anything was copied.
    pub(crate) fn spans(&self, before: usize) -> Vec<Span> {
        let ends = self.parts.iter().zip(self.ends_of_parts(before));
        ends.filter_map(|(part, end)| Some(Span { to: end?, ..part.span })).collect()
    }

    /// The sequence number behind the last record of each part, of those before a line; `None` if it has none there.
    fn ends_of_parts(&self, before: usize) -> Vec<Option<u32>> {
        let mut ends = vec![None; self.parts.len()];
        for line in self.lines.iter().take(before) {
            ends[line.part] = Some(line.seq + 1);
        }
        ends
    }
}

/// Where the records of a span are, and one record after it, even if `compact` moved them.
fn outline_of(mut reader: AttemptReader, span: &Span) -> Result<(AttemptReader, Vec<Next>)> {
    let is_behind = |next: &Next| match next {
        Next::Here { seq, .. } | Next::Lost { seq, .. } => *seq >= span.to,
        Next::Gap { from, .. } => *from >= span.to,
    };
    let mut moved = 0;
    loop {
        let mut outline = Vec::new();
        let mut failed = None;
        for next in reader.outline(span.from) {
            match next {
                Ok(next) => outline.push(next),
                Err(error) => failed = Some(error),
            }
            if failed.is_some() || outline.last().is_some_and(is_behind) {
                break;
            }
        }
        match failed {
            None => return Ok((reader, outline)),
            Some(error) if error.is_gone() && moved < MOVED_MAX => {
                moved += 1;
                reader = reader.find_again()?;
            }
            Some(error) => return Err(error),
        }
    }
}

fn link_of<'c>(episode: &Id, chain: &'c Chain, attempt: u32) -> Result<&'c Link> {
    let what = || format!("attempt {attempt} at episode {episode}");
    chain.link(attempt).ok_or_else(|| Error::NotFound { what: what() })
}

/// The records of an attempt that count. Later ones were refused, and are not part of it.
fn own_span(link: &Link) -> Span {
    let to = link.records.unwrap_or(u32::MAX);
    Span { writer: link.claim.writer, attempt: link.claim.attempt, copied: None, from: 0, to }
}

/// What the records of a span are bound to.
fn bind_of(episode: &Id, span: &Span) -> Bind {
    let what = span.copied.map_or(What::Attempt, |from| What::Copied { from });
    Bind { what, id: *episode, attempt: span.attempt }
}

/// The part of a gap before an end.
fn cut_gap(from: u32, to: u32, end: u32) -> Option<Gap> {
    let to = to.min(end);
    (from < to).then_some(Gap { from, to })
}

/// Iterates over the records of a lineage, and reports gaps.
#[derive(Debug)]
pub(crate) struct LineageCursor {
    /// The next record.
    at: usize,
    gaps: Peekable<std::vec::IntoIter<(usize, Gap)>>,
}

impl LineageCursor {
    /// At the first record.
    pub(crate) fn new(lineage: &Lineage) -> Self {
        Self { at: 0, gaps: lineage.gaps().to_vec().into_iter().peekable() }
    }

    /// The next record or gap; `None` at the end. A record that could not be read is tried again next time.
    pub(crate) fn next(&mut self, lineage: &mut Lineage) -> Result<Option<Item>> {
        let line = lineage.lines().get(self.at).map(|line| (line.part, line.seq));
        let is_due = |(of, gap): &(usize, Gap)| line.is_none_or(|line| (*of, gap.from) < line);
        if let Some((_, gap)) = self.gaps.next_if(is_due) {
            return Ok(Some(Item::Gap(gap)));
        }
        if line.is_none() {
            return Ok(None);
        }
        let item = lineage.item(self.at)?;
        self.at += 1;
        Ok(Some(item))
    }
}
