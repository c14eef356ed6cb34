//! Reads everything, checks every checksum, decodes every record, follows every reference.

use std::collections::HashSet;
use std::sync::Arc;

use keepstep_format::Id;
use keepstep_format::hash::Hash;
use keepstep_format::rehash::Rehash;

use super::bases::{There, find_inherited};
use super::named::{Rests, find_named};
use super::report::{Damage, Progress, Report, Wrong};
use super::subjects::Subjects;
use crate::error::Result;
use crate::segment::names::{list_writers, segment_path};
use crate::segment::{Log, LogBodies, ScanUnsealed, SegmentHead, Storage};

/// How many bytes are read at a time when all records are read in order.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// Verifies a whole store, and reports its progress.
pub(crate) fn verify(
    storage: &Arc<Storage>,
    scan: &dyn ScanUnsealed,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    Ok(verify_all(storage, scan, progress)?.0)
}

/// How often the check is repeated because `compact` moved records, before its findings count.
const MOVED_MAX: usize = 16;

/// Verifies, and returns the hashes of lost values that were not found elsewhere.
///
/// `compact` may have moved records in the meantime. If something is missing then, the check is repeated.
pub(super) fn verify_all(
    storage: &Arc<Storage>,
    scan: &dyn ScanUnsealed,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Report, HashSet<Hash>)> {
    let mut moved = 0;
    loop {
        let manifest = storage.renew_manifest()?;
        let verified = verify_once(storage, scan, progress);
        let is_whole = matches!(&verified, Ok((report, _)) if report.is_whole());
        if is_whole || moved == MOVED_MAX || !manifest.is_outdated(storage)? {
            return verified;
        }
        moved += 1;
    }
}

fn verify_once(
    storage: &Arc<Storage>,
    scan: &dyn ScanUnsealed,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Report, HashSet<Hash>)> {
    storage.look_for_heals();
    let (inherited, named) = (find_inherited(storage)?, find_named(storage)?);
    let logs = open_logs(storage, scan)?;
    let bytes_total = logs.iter().flat_map(Log::segments).map(|segment| segment.file_bytes).sum();
    let mut verifier = Verifier {
        storage,
        report: Report::default(),
        wanted: HashSet::new(),
        there: There::new(),
        rests: Rests::default(),
        progress: Pace { tell: progress, bytes_before: 0, halves: 0, bytes_total },
    };
    for log in &logs {
        verifier.check_log(log)?;
    }
    verifier.check_cards(&logs)?;
    // The first one is that of the segments that `compact` made.
    logs.first().map_or(Ok(()), |grouped| verifier.check_catalog(grouped))?;
    verifier.check_bases(&inherited, &logs)?;
    verifier.check_named(&named, &logs)?;
    let mut report = verifier.report;
    report.damage.sort_by(|a, b| (&a.path, a.offset, a.bytes).cmp(&(&b.path, b.offset, b.bytes)));
    Ok((report, verifier.wanted))
}

/// All logs as they are now. The first one is that of the segments that `compact` made.
pub(super) fn open_logs(storage: &Arc<Storage>, scan: &dyn ScanUnsealed) -> Result<Vec<Log>> {
    storage.renew_manifest()?;
    let mut grouped = Log::of_compact(Arc::clone(storage));
    grouped.refresh(scan)?;
    grouped.open_all()?;
    let mut logs = vec![grouped];
    for writer in list_writers(storage.disk())? {
        let mut log = Log::new(Arc::clone(storage), writer);
        log.refresh(scan)?;
        logs.push(log);
    }
    Ok(logs)
}

/// A running verification.
pub(super) struct Verifier<'v> {
    pub(super) storage: &'v Arc<Storage>,
    pub(super) report: Report,
    pub(super) wanted: HashSet<Hash>,
    pub(super) there: There,
    pub(super) rests: Rests,
    pub(super) progress: Pace<'v>,
}

/// Progress: every segment is read twice, first its frames, then its values.
pub(super) struct Pace<'v> {
    tell: &'v mut dyn FnMut(Progress),
    bytes_before: u64,
    halves: u64,
    bytes_total: u64,
}

impl Pace<'_> {
    pub(super) fn passed(&mut self, offset: u64) {
        let bytes_done = self.bytes_before + (self.halves + offset) / 2;
        (self.tell)(Progress { bytes_done: bytes_done.min(self.bytes_total), bytes_total: self.bytes_total });
    }
}

/// The state that is needed to follow the records of one log.
pub(super) struct LogState<'k> {
    pub(super) subjects: Subjects,
    /// Reads without healed values, so that the loss shows.
    pub(super) bare: LogBodies,
    /// Reads as readers do.
    pub(super) healing: LogBodies,
    pub(super) rehash: Rehash<'k>,
    /// References that were followed lately.
    pub(super) checked: HashSet<(u64, u64, u64, u32, u64, Hash)>,
}

impl Verifier<'_> {
    fn check_log(&mut self, log: &Log) -> Result<()> {
        let storage = Arc::clone(self.storage);
        let mut state = LogState {
            subjects: Subjects::default(),
            bare: log.bodies().healing(false).reading_ahead(READ_AHEAD_BYTES),
            healing: log.bodies(),
            rehash: Rehash::new(storage.key()),
            checked: HashSet::new(),
        };
        self.report.counts.writers += u64::from(*log.writer() != Id::NONE);
        for segment in log.segments() {
            self.report.counts.segments += 1;
            self.report.counts.bytes += segment.file_bytes;
            self.progress.halves = 0;
            let checked = self.check_segment(log, segment)?;
            self.progress.halves = segment.file_bytes;
            self.check_values(&mut state, segment, &checked);
            self.progress.bytes_before += segment.file_bytes;
            self.progress.halves = 0;
            self.progress.passed(0);
        }
        self.report.counts.subjects += state.subjects.len();
        self.report.missing.extend(state.subjects.missing());
        state.subjects.add_to_there(&mut self.there);
        state.subjects.add_to(&mut self.rests);
        Ok(())
    }

    /// Damage in a segment.
    pub(super) fn damaged(
        &mut self,
        head: &SegmentHead,
        offset: u64,
        bytes: u64,
        wrong: Wrong,
        detail: &str,
    ) {
        let path = segment_path(&head.writer, head.number);
        // A segment that `compact` made has no single writer.
        let whose = (head.writer != Id::NONE).then_some((head.writer, head.number));
        self.damage(path, whose, (offset, bytes), wrong, detail.to_owned());
    }

    /// Damage in a file.
    pub(super) fn damage(
        &mut self,
        path: String,
        whose: Option<(Id, u64)>,
        (offset, bytes): (u64, u64),
        wrong: Wrong,
        detail: String,
    ) {
        let (writer, segment) = whose.unzip();
        self.report.damage.push(Damage { path, writer, segment, offset, bytes, wrong, detail });
    }
}
