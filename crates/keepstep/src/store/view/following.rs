//! Follows one attempt, step by step: the recorded steps, then new ones, until it has ended.
//!
//! The follower starts before the first step is read, so no step is missed. A step is reported as soon as it is
//! durable and counts: while another process takes the attempt over, its newest records are open. Whether a step was
//! the last one is known only if the end came with it.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::read::{AttemptKey, EpisodeEvent, Events, FollowFrom, Item, RecordedStep, Stopper};
use crate::store::view::View;
use crate::store::view::own_records::{AttemptFollow, RecordNews};

/// What a follower of an attempt gets.
#[derive(Debug, Clone, PartialEq)]
pub enum StepNews {
    /// The next step.
    Step(Box<RecordedStep>),
    /// Nothing came during the wait.
    Nothing,
    /// The attempt has ended, its writer is gone, or the follower was stopped. No more steps will come.
    Over,
}

/// Follows the steps of one attempt, including inherited ones.
#[derive(Debug)]
pub struct StepFollow {
    events: Events<Arriving>,
    is_over: bool,
}

/// The records of an attempt: inherited ones, then its own as they arrive.
#[derive(Debug)]
struct Arriving {
    view: View,
    /// The next inherited record, and how many there are.
    inherited: (usize, usize),
    /// True if the last record was inherited.
    is_inherited: bool,
    own: AttemptFollow,
    /// True if no more come.
    is_left: bool,
    /// How long to wait for the next one.
    wait: Duration,
}

impl Iterator for Arriving {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        let (at, inherited) = self.inherited;
        self.is_inherited = at < inherited;
        if self.is_inherited {
            let item = self.view.line(at);
            // Advance only if the read succeeded; a failed read is repeated.
            self.inherited.0 += usize::from(item.is_ok());
            return Some(item);
        }
        match self.own.next(std::mem::take(&mut self.wait)) {
            Ok(RecordNews::Record(item)) => Some(Ok(*item)),
            Ok(RecordNews::Nothing) => None,
            Ok(RecordNews::Ended(_) | RecordNews::OwnerGone) => {
                self.is_left = true;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl View {
    /// Follows the attempt from its first step on, including inherited steps.
    pub fn follow(self) -> Result<StepFollow> {
        let key = AttemptKey { episode: self.id(), attempt: self.number(), writer: self.writer() };
        let mut own = self.store().follow_attempt(key, FollowFrom::Start)?;
        own.note_end(self.ending()?);
        let (inherited, wait) = ((0, self.inherited_lines()), Duration::ZERO);
        let arriving = Arriving { view: self, inherited, is_inherited: false, own, is_left: false, wait };
        Ok(StepFollow { events: Events::new(arriving), is_over: false })
    }
}

impl StepFollow {
    /// A handle that ends the wait, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.events.items().own.stopper()
    }

    /// The next step. Waits for one up to `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<StepNews> {
        self.events.items().view.store().check_process()?;
        let started = Instant::now();
        // The present step is never held back for the next one: first without a wait.
        let mut wait = Duration::ZERO;
        loop {
            if self.is_over || self.stopper().is_stopped() {
                return Ok(StepNews::Over);
            }
            self.events.items_mut().wait = wait;
            if let Some(step) = self.next_step()? {
                return Ok(StepNews::Step(step));
            }
            self.is_over |= self.events.items().is_left;
            wait = timeout.saturating_sub(started.elapsed());
            if !self.is_over && wait.is_zero() {
                return Ok(StepNews::Nothing);
            }
        }
    }

    /// The next step that has arrived; `None` if there is none now, or the attempt is over.
    fn next_step(&mut self) -> Result<Option<Box<RecordedStep>>> {
        while let Some(event) = self.events.next().transpose()? {
            match event {
                EpisodeEvent::Step(step) => return Ok(Some(step)),
                // The attempt that was resumed may have ended too. Only the end of this attempt counts here.
                EpisodeEvent::End(_) if !self.events.items().is_inherited => {
                    self.is_over = true;
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
