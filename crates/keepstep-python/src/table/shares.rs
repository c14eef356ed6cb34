//! Divides the rows of a table into shares of about a batch each, so that several threads can make them.

use std::ops::Range;

use keepstep::Listed;

use super::batch::ROWS_MAX;

/// A part of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Of which episode, by its place in the list.
    pub(super) at: usize,
    /// Which of its steps. The last piece of an episode has no end: there may be more steps than the list knows of.
    pub(super) steps: Range<u64>,
}

/// Rows that follow one another.
pub(super) type Share = Vec<Piece>;

/// What is left to be made.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    at: usize,
    from: u64,
}

impl Plan {
    /// The next share of a table of steps, by what a list says of its episodes. Each counts for a row at least.
    pub(super) fn of_steps(&mut self, listed: &[Listed]) -> Option<Share> {
        let (mut share, mut rows) = (Share::new(), 0);
        while let Some(next) = listed.get(self.at).filter(|_| rows < ROWS_MAX as u64) {
            let left = next.summary.steps.max(1).saturating_sub(self.from);
            let taken = left.min(ROWS_MAX as u64 - rows);
            rows += taken;
            if taken == left {
                share.push(Piece { at: self.at, steps: self.from..u64::MAX });
                *self = Self { at: self.at + 1, from: 0 };
            } else {
                share.push(Piece { at: self.at, steps: self.from..self.from + taken });
                self.from += taken;
            }
        }
        (!share.is_empty()).then_some(share)
    }

    /// The next share of a table of episodes.
    pub(super) fn of_episodes(&mut self, listed: &[Listed]) -> Option<Share> {
        let to = listed.len().min(self.at + ROWS_MAX);
        let share: Share = (self.at..to).map(|at| Piece { at, steps: 0..u64::MAX }).collect();
        self.at = to;
        (!share.is_empty()).then_some(share)
    }

    /// True if there is nothing left.
    pub(super) fn is_over(&self, listed: &[Listed]) -> bool {
        self.at >= listed.len()
    }
}
