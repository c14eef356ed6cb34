//! All segments of one writer. An update costs no more than what changed.
//!
//! The liveness of the writer is checked before its folder is read: if it is dead by then, nothing is missed. But
//! that it seems dead is no proof: its log is checked again each time, unless its owner recorded that it closed it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use keepstep_format::card::kind;
use keepstep_format::frame::FIRST_FRAME;
use keepstep_format::segment::Trailer;
use keepstep_format::{Id, fields};

use super::bodies::{LogBodies, ReadableSegment, ReadableSegments};
use super::cards::{CardFound, read_card};
use super::catalog_files::CatalogFiles;
use super::closed::{LogEnd, closed_at};
use super::grouped::Unopened;
use super::head::{SegmentHead, has_frame};
use super::manifest::Manifest;
use super::names::{compacted_path, list_segments, scan_path, segment_path, writer_dir};
use super::scanned::Scanned;
use super::sealed::{SealedIndex, read_trailer};
use super::{Liveness, ScanUnsealed, Storage, UnsealedFacts};
use crate::error::{Doing, Error, Result, or_told};

/// The log of one writer.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) storage: Arc<Storage>,
    pub(super) writer: Id,
    pub(super) liveness: Liveness,
    pub(super) segments: BTreeMap<u64, Segment>,
    readable: Arc<ReadableSegments>,
    is_finished: bool,
    /// Where another process closed it, if one did.
    end: Option<LogEnd>,
    /// Of the segments that `compact` made: which of them have records of what.
    pub(super) catalog_files: CatalogFiles,
}

/// One segment, and what is in it.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its number.
    pub number: u64,
    /// Its length at the last look.
    pub file_bytes: u64,
    /// Frames from here on do not count.
    pub voided_from: Option<u64>,
    /// Its content, once it was looked at.
    pub(super) contents: OnceLock<Contents>,
    /// What to look at when its content is asked for, if nobody has yet.
    pub(super) unopened: Option<Box<Unopened>>,
    /// Its length when it was sealed: what is missing now was cut off.
    pub sealed_bytes: Option<u64>,
    pub(super) head: Option<SegmentHead>,
    pub(super) trailer: Option<Trailer>,
    pub(super) has_frame: bool,
}

/// The content of a segment.
#[derive(Debug)]
pub(crate) enum Contents {
    /// It is sealed, and this is its index.
    Sealed(Arc<SealedIndex>),
    /// It is not sealed, or its index is damaged; this is what a scan found.
    Open(Box<Scanned>),
    /// It cannot be read.
    Unreadable(Error),
}

impl Segment {
    fn gone(number: u64, error: Error) -> Self {
        let (voided_from, sealed_bytes, head, trailer, has_frame) = (None, None, None, None, false);
        let contents = OnceLock::from(Contents::Unreadable(error));
        let unopened = None;
        Self {
            number,
            file_bytes: 0,
            voided_from,
            contents,
            unopened,
            sealed_bytes,
            head,
            trailer,
            has_frame,
        }
    }

    /// Its content. If it was not looked at yet, it is looked at now.
    pub(crate) fn contents(&self) -> &Contents {
        self.contents.get_or_init(|| {
            let opened = self.unopened.as_ref().map_or(Err(Error::Closed), |unopened| unopened.open());
            opened.unwrap_or_else(Contents::Unreadable)
        })
    }

    /// Looks at its content, if nobody has yet. An error says nothing about this segment: it will be looked at again.
    pub(crate) fn open(&self) -> Result<()> {
        if let (None, Some(unopened)) = (self.contents.get(), &self.unopened) {
            // Another thread may have looked in between, and has found the same.
            let _ = self.contents.set(unopened.open()?);
        }
        Ok(())
    }

    /// True if its content was looked at.
    pub(super) fn is_open(&self) -> bool {
        self.contents.get().is_some()
    }

    pub(super) fn put(&mut self, contents: Contents) {
        self.contents = OnceLock::from(contents);
    }

    /// Its header; `None` if the segment cannot be read.
    pub(crate) fn head(&self) -> Option<&SegmentHead> {
        let is_unreadable = matches!(self.contents.get(), Some(Contents::Unreadable(_)));
        self.head.as_ref().filter(|_| !is_unreadable)
    }

    /// True if `offset` is in the part that counts.
    pub(crate) fn exists_at(&self, offset: u64) -> bool {
        self.voided_from.is_none_or(|from| offset < from)
    }

    /// What a scan found, if it is not sealed.
    pub(crate) fn scanned(&self) -> Option<&Scanned> {
        match self.contents() {
            Contents::Open(scanned) => Some(scanned),
            _ => None,
        }
    }

    /// Where there is damage that may have hit any record.
    pub(crate) fn nameless_damage(&self) -> Vec<u64> {
        match self.contents() {
            Contents::Open(scanned) => {
                let ranges = scanned.lost.iter().filter(|range| range.damage && !range.certain);
                ranges.map(|range| range.offset).collect()
            }
            Contents::Sealed(index) => index.holes().to_vec(),
            // It cannot be read at all, and it was named because something was in it.
            Contents::Unreadable(_) => vec![0],
        }
    }

    /// True if the record at `offset` is known to be synced.
    pub(crate) fn is_settled_at(&self, offset: u64) -> bool {
        offset < self.settled_to()
    }

    /// Records before this are known to be synced: neither their writer nor a power cut can remove them.
    pub(crate) fn settled_to(&self) -> u64 {
        match self.contents() {
            Contents::Sealed(_) => u64::MAX,
            Contents::Open(scanned) => scanned.synced_to,
            Contents::Unreadable(_) => 0,
        }
    }

    /// The trailer, if it was sealed. If the contents are open all the same, the index is damaged.
    pub(crate) fn trailer(&self) -> Option<Trailer> {
        self.trailer
    }

    fn is_sealed(&self) -> bool {
        matches!(self.contents(), Contents::Sealed(_))
    }
}

impl Log {
    /// A log that is not read yet.
    pub(crate) fn new(storage: Arc<Storage>, writer: Id) -> Self {
        let (segments, readable) = (BTreeMap::new(), Arc::new(ReadableSegments::new()));
        Self {
            storage,
            writer,
            liveness: Liveness::Unknown,
            segments,
            readable,
            is_finished: false,
            end: None,
            catalog_files: CatalogFiles::default(),
        }
    }

    /// Its writer.
    pub(crate) fn writer(&self) -> &Id {
        &self.writer
    }

    /// Whether its writer was alive at the last look.
    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// True once nothing can change any more.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// True if nothing in it can be given up, or added so that it counts.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_finished || self.end.is_some()
    }

    /// Where it ends: where another process closed it, or where it ends now. `None` if that cannot be read.
    pub(crate) fn end(&self) -> Option<LogEnd> {
        let Some(last) = self.segments.values().next_back().filter(|_| self.end.is_none()) else {
            return self.end.or(Some(LogEnd { segment: 0, bytes: 0 }));
        };
        let bytes = match last.contents() {
            Contents::Sealed(_) => last.file_bytes,
            Contents::Open(scanned) => scanned.valid_to,
            Contents::Unreadable(_) => return None,
        };
        Some(LogEnd { segment: last.number, bytes })
    }

    /// Its segments, by number.
    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.segments.values()
    }

    /// Its segments that may have records of an episode (stream, run), by number. A few of those that `compact` made,
    /// if its catalog says which; all others.
    pub(crate) fn segments_with(&self, id: &Id) -> Result<Vec<&Segment>> {
        let is_unopened = |segment: &Segment| !segment.is_open();
        let named = match self.segments.values().any(is_unopened) {
            true => self.catalog_files.segments_with(&self.storage, id),
            false => None,
        };
        let may_have = |segment: &&Segment| {
            segment.is_open() || named.as_ref().is_none_or(|named| named.contains(&segment.number))
        };
        let found: Vec<&Segment> = self.segments.values().filter(may_have).collect();
        found.iter().try_for_each(|segment| segment.open())?;
        Ok(found)
    }

    /// One segment.
    pub(crate) fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(&number)
    }

    /// The storage that its readers share.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// What must be known to fetch its records.
    pub(crate) fn readable(&self) -> &Arc<ReadableSegments> {
        &self.readable
    }

    /// Fetches its records.
    pub(crate) fn bodies(&self) -> LogBodies {
        LogBodies::new(Arc::clone(&self.storage), self.writer, Arc::clone(&self.readable))
    }

    /// Summarizes the records of unsealed segments that are not summarized yet.
    pub(crate) fn sum_up(&mut self) -> Result<()> {
        for segment in self.segments.values_mut() {
            let (Some(Contents::Open(scanned)), Some(head)) = (segment.contents.get_mut(), &segment.head)
            else {
                continue;
            };
            if scanned.entries.iter().all(|entry| entry.summed == entry.records.len()) {
                continue;
            }
            let (whose, ahead) = ((head.writer, head.number), super::window::RECORD_BYTES);
            let mut source = super::summing::SegmentRecords::new(&self.storage, whose, &self.readable, ahead);
            scanned.sum_up(&mut source);
        }
        Ok(())
    }

    /// Reads what is new.
    pub(crate) fn refresh(&mut self, scan: &dyn ScanUnsealed) -> Result<()> {
        if self.is_finished {
            return Ok(());
        }
        if self.writer == Id::NONE {
            return self.refresh_grouped();
        }
        self.liveness = scan.liveness(&self.writer);
        let is_closed = self.liveness != Liveness::Live && self.is_closed_by_its_owner()?;
        if self.liveness != Liveness::Live && self.end.is_none() {
            // An answer that cannot be read is reported by `verify`, and by whoever has to know it.
            self.end = or_told(closed_at(&self.storage, &self.writer))?.0.flatten();
        }
        self.find_segments()?;
        self.miss_what_is_named()?;
        self.note_voids();
        let numbers: Vec<u64> = self.segments.keys().copied().collect();
        // Indexes first: they tell whether the unsealed segments before them are complete.
        for &number in &numbers {
            let looked = self.look_for_index(number);
            self.note(number, looked)?;
        }
        for &number in &numbers {
            let looked = self.look_inside(number, scan);
            self.note(number, looked)?;
        }
        let is_read = |segment: &Segment| !matches!(segment.contents(), Contents::Unreadable(_));
        self.is_finished = (is_closed || self.end.is_some()) && self.segments.values().all(is_read);
        Ok(())
    }

    /// True if its owner closed it normally, and recorded that.
    fn is_closed_by_its_owner(&self) -> Result<bool> {
        match self.segments.last_key_value() {
            Some((&last, _)) => closed_by_its_owner(&self.storage, &self.writer, last),
            None => Ok(false),
        }
    }

    /// True if the folder has other segments now, or the newest is longer or shorter.
    pub(crate) fn has_grown(&self) -> Result<bool> {
        let manifest = self.storage.manifest()?;
        let mut numbers = list_segments(self.storage.disk(), &self.writer)?;
        numbers.retain(|number| self.counts(*number) && !manifest.is_replaced(&self.writer, *number));
        if !numbers.iter().eq(self.segments.keys()) {
            return Ok(true);
        }
        let Some(last) = self.segments.values().next_back().filter(|_| self.end.is_none()) else {
            return Ok(false);
        };
        let path = segment_path(&self.writer, last.number);
        match self.storage.file(&self.writer, last.number) {
            Err(error) if error.is_gone() => Ok(true),
            file => Ok(file?.bytes().doing("measure", &path)? != last.file_bytes),
        }
    }

    /// False for segments that were begun after the log was closed.
    fn counts(&self, number: u64) -> bool {
        self.end.is_none_or(|end| number <= end.segment)
    }

    /// Adds new segments, and removes those that were pruned.
    fn find_segments(&mut self) -> Result<()> {
        let mut numbers = list_segments(self.storage.disk(), &self.writer)?;
        let manifest = self.storage.manifest()?;
        numbers.retain(|number| self.counts(*number) && !manifest.is_replaced(&self.writer, *number));
        self.segments.retain(|number, _| numbers.binary_search(number).is_ok());
        for number in numbers {
            let known = self.segments.get(&number);
            if known.is_some_and(|segment| segment.head.is_some()) {
                continue;
            }
            let (head, contents) = match SegmentHead::read(&self.storage, &self.writer, number) {
                Ok(head) => (Some(head), Contents::Open(Box::new(Scanned::new()))),
                Err(error) if concerns_all(&error) => return Err(error),
                Err(error) if error.is_gone() => continue,
                // A segment that cannot be read must not keep the others from being read.
                Err(error) => (None, Contents::Unreadable(error)),
            };
            let file_bytes =
                self.storage.file(&self.writer, number).map_or(0, |file| file.bytes().unwrap_or(0));
            let (voided_from, sealed_bytes, trailer, has_frame) = (None, None, None, false);
            let (contents, unopened) = (OnceLock::from(contents), None);
            let segment = Segment {
                number,
                file_bytes,
                voided_from,
                contents,
                unopened,
                sealed_bytes,
                head,
                trailer,
                has_frame,
            };
            self.segments.insert(number, segment);
        }
        Ok(())
    }

    /// Notes segments that are named and missing, so that their records do not seem never recorded. Headers name the
    /// segment before them, and a process that closed or scanned a log left a card about its last segment. A writer
    /// has a folder from the start.
    fn miss_what_is_named(&mut self) -> Result<()> {
        let (disk, manifest) = (self.storage.disk(), self.storage.manifest()?);
        let heads = self.segments.values().filter_map(|it| it.head.as_ref()).filter(|head| !head.is_damaged);
        let before = heads.flat_map(|head| [head.sealed, head.voids]).flatten().map(|(number, _)| number);
        let mut named: BTreeMap<u64, &str> =
            before.map(|number| (number, "a later segment names it")).collect();
        let behind = self.segments.last_key_value().map_or(0, |(last, _)| last + 1);
        // The card is a hint: a log is read without it, also where no card can be read.
        let has_card = || disk.exists(&scan_path(&self.writer, behind)).unwrap_or(false);
        if self.liveness != Liveness::Live && self.counts(behind) && has_card() {
            named.insert(behind, "there is a card about it");
        }
        let dir = writer_dir(&self.writer);
        if behind == 0 && !disk.exists(&dir).doing("look for", &dir)? {
            named.insert(0, "its writer's folder is gone with it");
        }
        if behind == 0 && !manifest.is_replaced(&self.writer, 0) && self.was_compacted()? {
            named.insert(
                0,
                "its log was compacted, and the segments that `compact` made of it are missing, or of another copy",
            );
        }
        for (number, why) in named {
            let path = segment_path(&self.writer, number);
            let is_there = self.segments.contains_key(&number)
                || manifest.is_replaced(&self.writer, number)
                || disk.exists(&path).doing("look for", &path)?;
            if !is_there {
                let found = format!("it is gone: {why}");
                self.segments
                    .insert(number, Segment::gone(number, Error::Damaged { path, offset: 0, found }));
            }
        }
        Ok(())
    }

    /// True if the log was compacted, and no known manifest says so: a manifest that came since the last look would.
    fn was_compacted(&self) -> Result<bool> {
        let path = compacted_path(&self.writer);
        let is_said = self.storage.disk().exists(&path).doing("look for", &path)?;
        Ok(is_said && !Manifest::newest(&self.storage)?.is_replaced(&self.writer, 0))
    }

    /// Applies what headers say about earlier segments.
    pub(super) fn note_voids(&mut self) {
        let sealed: Vec<(u64, u64)> =
            self.segments.values().filter_map(|it| it.head.as_ref()?.sealed).collect();
        for (number, bytes) in sealed {
            if let Some(segment) = self.segments.get_mut(&number) {
                segment.sealed_bytes = Some(bytes);
            }
        }
        let voids: Vec<(u64, u64)> =
            self.segments.values().filter_map(|it| it.head.as_ref()?.voids).collect();
        for (number, from) in voids {
            if let Some(segment) = self.segments.get_mut(&number) {
                segment.voided_from = Some(segment.voided_from.map_or(from, |lowest| lowest.min(from)));
            }
        }
        self.note_end();
        let open = self.segments.values().filter_map(|segment| {
            let head = segment.head.as_ref()?;
            Some((segment.number, ReadableSegment { salt: head.salt, voided_from: segment.voided_from }))
        });
        let readable: ReadableSegments = open.collect();
        if readable != *self.readable {
            self.readable = Arc::new(readable);
        }
    }

    /// What its writer wrote after the log was closed is void.
    fn note_end(&mut self) {
        let Some(LogEnd { segment, bytes }) = self.end else { return };
        if let Some(last) = self.segments.get_mut(&segment) {
            last.voided_from = Some(last.voided_from.map_or(bytes, |lowest| lowest.min(bytes)));
        }
    }

    /// A segment that cannot be read must not keep the others from being read. A segment of a newer version must, and
    /// so must a process that can open no more files.
    fn note(&mut self, number: u64, looked: Result<()>) -> Result<()> {
        match looked {
            Err(error) if concerns_all(&error) => return Err(error),
            Err(error) => {
                if let Some(segment) = self.segments.get_mut(&number) {
                    segment.head = None;
                    segment.put(Contents::Unreadable(error));
                }
            }
            Ok(()) => {}
        }
        Ok(())
    }

    fn look_for_index(&mut self, number: u64) -> Result<()> {
        let Some(segment) = self.segments.get(&number) else { return Ok(()) };
        let Some(head) = segment.head.as_ref().filter(|_| !segment.is_sealed()) else {
            return Ok(());
        };
        let path = segment_path(&self.writer, number);
        let file = self.storage.file(&self.writer, number)?;
        let file_bytes = file.bytes().doing("measure", &path)?;
        // Bytes that were appended later do not hide its end.
        let end = segment.sealed_bytes.map_or(file_bytes, |bytes| bytes.min(file_bytes));
        let trailer = read_trailer(&*file, end, head.salt, &path)?;
        let index = match trailer {
            Some(trailer) => {
                SealedIndex::read(&*file, end, trailer, (self.writer, number, head.salt), &path)?
            }
            None => None,
        };
        let Some(segment) = self.segments.get_mut(&number) else { return Ok(()) };
        (segment.file_bytes, segment.trailer) = (file_bytes, trailer);
        if let Some(index) = index {
            segment.put(Contents::Sealed(Arc::new(index)));
        }
        Ok(())
    }

    fn look_inside(&mut self, number: u64, scan: &dyn ScanUnsealed) -> Result<()> {
        let Some(segment) = self.segments.get(&number) else { return Ok(()) };
        let is_open = matches!(segment.contents(), Contents::Open(_)) && segment.head.is_some();
        if !is_open {
            return Ok(());
        }
        let void_is_unknown = self.void_is_unknown(segment);
        let complete = segment.voided_from.is_none() && self.goes_on_behind(number)?;
        let Some(segment) = self.segments.get_mut(&number) else { return Ok(()) };
        let facts = UnsealedFacts {
            liveness: self.liveness,
            file_bytes: segment.file_bytes,
            trailer: segment.trailer,
            complete,
            voided_from: segment.voided_from,
            sealed_bytes: segment.sealed_bytes,
            void_is_unknown,
        };
        let (Some(Contents::Open(scanned)), Some(head)) = (segment.contents.get_mut(), &segment.head) else {
            return Ok(());
        };
        if scanned.looked_at != Some(facts) {
            scan.scan(&self.storage, head, &self.readable, &facts, scanned)?;
            scanned.looked_at = Some(facts);
        }
        Ok(())
    }

    /// A segment that is neither sealed nor known to be void was given up, if there is a later one. If the header of
    /// that one cannot be read, it is unknown from where on.
    fn void_is_unknown(&self, segment: &Segment) -> bool {
        let was_sealed = segment.trailer.is_some() || segment.sealed_bytes.is_some();
        let mut later = self.segments.range(segment.number + 1..);
        segment.voided_from.is_none()
            && !was_sealed
            && later.any(|(_, later)| later.head.as_ref().is_none_or(|head| head.is_damaged))
    }

    /// True if a later segment has a frame.
    fn goes_on_behind(&mut self, number: u64) -> Result<bool> {
        for (&number, later) in self.segments.range_mut(number + 1..) {
            later.has_frame = later.has_frame
                || match (later.contents(), &later.head) {
                    (Contents::Sealed(index), _) => index.trailer.lists > FIRST_FRAME,
                    (Contents::Open(_), Some(head)) => {
                        let file = self.storage.file(&self.writer, number)?;
                        has_frame(&*file, head.salt).doing("read", &segment_path(&self.writer, number))?
                    }
                    // It is unknown; then it is better to report what is missing before it.
                    _ => later.file_bytes > FIRST_FRAME,
                };
            if later.has_frame {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is needed to scan a segment that has an index, in case its lists are damaged.
    pub(crate) fn rescan(&self, number: u64) -> Option<(SegmentHead, UnsealedFacts)> {
        let segment = self.segments.get(&number)?;
        let facts = UnsealedFacts {
            liveness: self.liveness,
            file_bytes: segment.file_bytes,
            trailer: segment.trailer,
            complete: false,
            voided_from: segment.voided_from,
            sealed_bytes: segment.sealed_bytes,
            void_is_unknown: self.void_is_unknown(segment),
        };
        Some((segment.head.clone()?, facts))
    }
}

/// True if the card of a writer's segment is its owner's record that it closed the log with this segment. Scans by
/// other processes have the same name, and prove nothing.
pub(crate) fn closed_by_its_owner(storage: &Storage, writer: &Id, segment: u64) -> Result<bool> {
    Ok(match or_told(read_card(storage, &scan_path(writer, segment), kind::SCAN))? {
        (Some(CardFound::Card(card)), _) => {
            card.get(fields::FOOTER).is_none() && card.number(fields::FILE_BYTES).is_some()
        }
        _ => false,
    })
}

/// True for errors that say nothing about the segment in question: they must not be taken for damage of it.
pub(super) fn concerns_all(error: &Error) -> bool {
    matches!(error, Error::NewerFormat { .. }) || error.is_out_of_files()
}
