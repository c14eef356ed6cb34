//! What happened in an attempt, in order: the one iterator over its records, wherever they come from.

use std::collections::VecDeque;
use std::iter::Peekable;

use super::fold::{EpisodeEvent, Fold};
use super::lineage::Lineage;
use super::records::{Gap, Item};
use super::step::Step;
use crate::error::Result;

/// Folds records into events as they come.
///
/// When the source has nothing more it gives what it held back, and then `None`. A source that has more later may be asked
/// again, and after an error too: nothing that was read is lost by it.
#[derive(Debug)]
pub struct Events<I> {
    items: I,
    fold: Fold,
    ready: VecDeque<EpisodeEvent>,
}

impl<I: Iterator<Item = Result<Item>>> Events<I> {
    pub(crate) fn new(items: I) -> Self {
        Self { items, fold: Fold::new(), ready: VecDeque::new() }
    }

    /// Turns without a result so far.
    pub fn pending(&self) -> &[Step] {
        self.fold.pending()
    }

    /// Where the records come from.
    pub(crate) fn items(&self) -> &I {
        &self.items
    }

    /// The same, to be changed.
    pub(crate) fn items_mut(&mut self) -> &mut I {
        &mut self.items
    }
}

impl<I: Iterator<Item = Result<Item>>> Iterator for Events<I> {
    type Item = Result<EpisodeEvent>;

    fn next(&mut self) -> Option<Result<EpisodeEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.items.next() {
                Some(Ok(item)) => self.ready.extend(self.fold.add(item)),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.ready.extend(self.fold.finish());
                    return self.ready.pop_front().map(Ok);
                }
            }
        }
    }
}

/// Goes through the records of a lineage, and says where some are missing.
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

    /// The next record or gap; none at the end. What could not be read is not passed over: it is tried again next time.
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
