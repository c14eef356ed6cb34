//! How often in a row an episode failed, or was left, without progress.

use keepstep_format::{Id, Why};

use crate::error::Result;
use crate::store::plan::survey::Judge;
use crate::store::planned::queue::{Cards, Known};

impl Judge<'_> {
    /// How often an episode errored since it last made progress. An episode that makes progress is not given up
    /// because of errors now and then. One more step is not progress, since it may be the step that failed.
    pub(in crate::store) fn errors_in_a_row(
        &self,
        episode: &Id,
        newest: u32,
        cards: &mut Cards,
    ) -> Result<u32> {
        self.in_a_row(episode, newest, cards, 1, |attempt| {
            self.outcomes.said(episode, attempt).is_some_and(|said| &*said.why == Why::Errored.name())
        })
    }

    /// How often this process left an episode without a final end since a new step was recorded.
    pub(in crate::store) fn left_in_a_row(
        &self,
        episode: &Id,
        newest: u32,
        cards: &mut Cards,
    ) -> Result<u32> {
        let ours = self.run.store().writer_id();
        self.in_a_row(episode, newest, cards, 0, |attempt| {
            let said = self.outcomes.said(episode, attempt);
            said.is_some_and(|said| Some(said.writer) == ours && &*said.why != Why::Errored.name())
        })
    }

    /// How many attempts satisfy `is_so`, back to the last one that added more than `idle` steps.
    fn in_a_row(
        &self,
        episode: &Id,
        newest: u32,
        cards: &mut Cards,
        idle: u64,
        is_so: impl Fn(u32) -> bool,
    ) -> Result<u32> {
        let all = (0..=newest).filter(|attempt| is_so(*attempt)).count() as u32;
        if all < 2 {
            return Ok(all);
        }
        let (mut times, mut inherited_next) = (0, None);
        for attempt in (0..=newest).rev() {
            let based = attempt.checked_sub(1).map(|_| self.based(episode, attempt, cards)).transpose()?;
            let inherited = match based {
                None => 0,
                Some(Some(Known::Began { inherited, .. })) => inherited,
                Some(Some(Known::Void) | None) => continue,
            };
            times += u32::from(is_so(attempt));
            if inherited_next.is_some_and(|next| next > inherited + idle) {
                break;
            }
            inherited_next = Some(inherited);
        }
        Ok(times)
    }
}
