//! Checks that what a taker copied is there: all that the base of its attempt names.
//!
//! A copy keeps the sequences that its records had, so only a base can say with which it begins. What no base names was
//! copied by a taker that died before it began, and is nobody's loss. Bases are read before the logs: a copy is in its log
//! before a base names it, so what is named by then must be there, whoever goes on meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};

use super::report::Missing;
use super::verify::Verifier;
use crate::error::{Error, Result};
use crate::segment::chain::{Span, list_bases, read_base};
use crate::segment::{Liveness, Log, Storage};

/// The sequences that are there of copies, or are lost by name: by whose log they are in, and what they are.
pub(super) type Copies = HashMap<(Id, Bind), BTreeSet<u32>>;

/// What the bases name that was copied, by episode.
pub(super) fn find_copied(storage: &Storage) -> Result<Vec<(Id, Span)>> {
    let mut copied = Vec::new();
    for (episode, attempts) in list_bases(storage)? {
        for attempt in attempts {
            let base = match read_base(storage, &episode, attempt) {
                Ok(base) => base,
                // That it is damaged is told with the other cards.
                Err(Error::Damaged { .. }) => continue,
                Err(error) => return Err(error),
            };
            let spans = base.into_iter().flat_map(|base| base.spans);
            copied.extend(spans.filter(|span| span.copied.is_some()).map(|span| (episode, span)));
        }
    }
    Ok(copied)
}

impl Verifier<'_> {
    pub(super) fn check_bases(&mut self, copied: &[(Id, Span)], logs: &[Log]) -> Result<()> {
        let liveness: BTreeMap<Id, Liveness> =
            logs.iter().map(|log| (*log.writer(), log.liveness())).collect();
        let manifest = self.storage.manifest()?;
        for (episode, span) in copied.iter().filter(|(episode, _)| manifest.pruned(episode).is_none()) {
            // A log that is being written may not say yet that a copy is synced.
            if liveness.get(&span.writer) != Some(&Liveness::Live) {
                self.check_copied(episode, span);
            }
        }
        Ok(())
    }

    fn check_copied(&mut self, episode: &Id, span: &Span) {
        let Some(from) = span.copied else { return };
        let bind = Bind { what: What::Copied { from }, id: *episode, attempt: span.attempt };
        let there = self.copies.get(&(span.writer, bind));
        let is_there = |seq: &u32| there.is_some_and(|there| there.contains(seq));
        let missing: Vec<u32> = (span.from..span.to).filter(|seq| !is_there(seq)).collect();
        for run in missing.chunk_by(|a, b| a + 1 == *b) {
            let (from, to) = (run[0], run[run.len() - 1] + 1);
            let missing = Missing { writer: span.writer, bind, from, to };
            // Each attempt that goes on names it again.
            if !self.report.missing.contains(&missing) {
                self.report.missing.push(missing);
            }
        }
    }
}
