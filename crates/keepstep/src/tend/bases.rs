//! Checks that inherited records exist: everything that bases name, in the logs of earlier owners and in copies.
//!
//! A copy keeps the sequence numbers of its records, so only a base says where it begins. Copies that no base names
//! were made by a taker that died before it began; they are no loss. Bases are read before the logs: a record is
//! durable before a base names it, so everything that a base names must be found then, even if processes keep
//! recording.

use std::collections::{BTreeMap, HashMap, HashSet};

use keepstep_format::Id;
use keepstep_format::commit::{Bind, What};

use super::report::Missing;
use super::verify::Verifier;
use crate::error::Result;
use crate::segment::chain::{Span, read_base};
use crate::segment::named::list_bases;
use crate::segment::{Liveness, Log, Storage};

/// The ranges of sequence numbers that were recorded, copied, or are known to be lost, by log and subject. While
/// `compact` moves records, they may be in two places.
pub(super) type There = HashMap<(Id, Bind), Vec<(u32, u32)>>;

/// What the bases name, by episode. The base of each attempt names again what the one before inherited.
pub(super) fn find_inherited(storage: &Storage) -> Result<HashSet<(Id, Span)>> {
    let mut inherited = HashSet::new();
    for (episode, attempts) in list_bases(storage)? {
        for attempt in attempts {
            let base = match read_base(storage, &episode, attempt) {
                Ok(base) => base,
                // Its damage is reported with the other cards.
                Err(error) if error.is_of_one_file() => continue,
                Err(error) => return Err(error),
            };
            let spans = base.into_iter().flat_map(|base| base.spans);
            inherited.extend(spans.map(|span| (episode, span)));
        }
    }
    Ok(inherited)
}

impl Verifier<'_> {
    pub(super) fn check_bases(&mut self, inherited: &HashSet<(Id, Span)>, logs: &[Log]) -> Result<()> {
        let liveness: BTreeMap<Id, Liveness> =
            logs.iter().map(|log| (*log.writer(), log.liveness())).collect();
        let manifest = self.storage.manifest()?;
        // What its own log is known to lack is reported already.
        for gap in &self.report.missing {
            self.there.entry((gap.writer, gap.bind)).or_default().push((gap.from, gap.to));
        }
        self.there.values_mut().for_each(|ranges| ranges.sort_unstable());
        for (episode, span) in inherited.iter().filter(|(episode, _)| manifest.pruned(episode).is_none()) {
            // A log that is being written may not say yet that a record is synced.
            if liveness.get(&span.writer) != Some(&Liveness::Live) {
                self.check_span(episode, span);
            }
        }
        Ok(())
    }

    fn check_span(&mut self, episode: &Id, span: &Span) {
        let what = span.copied.map_or(What::Attempt, |from| What::Copied { from });
        let (writer, bind) = (span.writer, Bind { what, id: *episode, attempt: span.attempt });
        let there = self.there.entry((writer, bind)).or_default();
        let missing = without((span.from, span.to), there);
        // Other attempts may name a part of it again.
        there.extend(&missing);
        there.sort_unstable();
        self.report.missing.extend(missing.into_iter().map(|(from, to)| Missing { writer, bind, from, to }));
    }
}

/// What is left of a range without these sorted ranges.
fn without((mut from, to): (u32, u32), ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut left = Vec::new();
    for &(begins, ends) in ranges {
        if from < begins.min(to) {
            left.push((from, begins.min(to)));
        }
        from = from.max(ends);
    }
    if from < to {
        left.push((from, to));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn what_is_left_of_a_range() {
        assert_eq!(without((0, u32::MAX), &[]), [(0, u32::MAX)]);
        assert_eq!(without((2, 9), &[(0, 3), (4, 5), (4, 6), (8, 12)]), [(3, 4), (6, 8)]);
        assert_eq!(without((2, 9), &[(0, 1), (20, 30)]), [(2, 9)]);
        assert_eq!(without((2, 9), &[(0, 9)]), []);
        assert_eq!(without((5, 5), &[]), []);
    }
}
