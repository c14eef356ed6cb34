//! The events of an attempt, in order: one iterator over records from any source.

use std::collections::VecDeque;

use super::fold::Fold;
use super::item::Item;
use super::kinds::{Attempt, EpisodeEvent};
use super::step::RecordedStep;
use crate::error::Result;

/// Folds records into events as they come.
///
/// When the source is empty, it yields what it held back, and then `None`. It may be asked again when the source has
/// more, and after an error: no record is lost by that.
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
    pub fn pending(&self) -> &[RecordedStep] {
        self.fold.pending()
    }

    /// Reads all of them.
    pub(super) fn read(mut self) -> Result<Attempt> {
        let mut attempt = Attempt::default();
        for event in self.by_ref() {
            attempt.add(event?);
        }
        attempt.pending = self.pending().last().cloned();
        Ok(attempt)
    }

    /// Where the records come from.
    pub(crate) fn items(&self) -> &I {
        &self.items
    }

    /// The same, mutable.
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
