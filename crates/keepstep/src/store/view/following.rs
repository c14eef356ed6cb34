//! Follows one attempt, step by step: what is there, and then what comes in, until it has ended.
//!
//! The follower stands before the first step is read, so nothing falls in between. A step is told as soon as it is
//! durable: that it was the last is known only if its end came with it.

use std::time::{Duration, Instant};

use keepstep_format::Id;

use crate::error::Result;
use crate::read::{EpisodeEvent, Events, Follow, FollowFrom, Item, RecordedStep, Stopper};
use crate::segment::Liveness;
use crate::store::view::View;

/// How often is asked whether somebody still records it.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What a follower of an attempt hears.
#[derive(Debug, Clone, PartialEq)]
pub enum StepNews {
    /// A step.
    Step(Box<RecordedStep>),
    /// Nothing came while it waited.
    Nothing,
    /// The attempt has ended, or its recorder is gone: nothing more comes.
    Over,
}

/// Follows the steps of one attempt, with what it inherited.
#[derive(Debug)]
pub struct StepFollow {
    events: Events<Arriving>,
    /// Somebody else knows that nothing more comes; what is there is still told.
    is_left: bool,
    is_over: bool,
    asked: Instant,
}

/// The records of an attempt: those that it inherited, then its own as they come in.
#[derive(Debug)]
struct Arriving {
    view: View,
    writer: Id,
    /// The next record of what was inherited, and how many there are.
    inherited: (usize, usize),
    /// The record that came last was inherited.
    is_inherited: bool,
    follow: Follow,
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
            // Only what was read is behind us: a look that fails is made again.
            self.inherited.0 += usize::from(item.is_ok());
            return Some(item);
        }
        loop {
            match self.follow.next(std::mem::take(&mut self.wait)).transpose()? {
                Ok(followed) if followed.writer != self.writer => {}
                followed => return Some(followed.map(|followed| followed.item)),
            }
        }
    }
}

impl View {
    /// Follows the attempt from its first step on, whoever recorded that.
    pub fn follow(self) -> Result<StepFollow> {
        let follow = self.store().follow_attempt(self.id(), self.number(), FollowFrom::Start)?;
        let (writer, inherited) = (self.writer(), (0, self.inherited_lines()));
        let is_left = self.ending()?.is_some();
        let wait = Duration::ZERO;
        let arriving = Arriving { view: self, writer, inherited, is_inherited: false, follow, wait };
        Ok(StepFollow { events: Events::new(arriving), is_left, is_over: false, asked: Instant::now() })
    }
}

impl StepFollow {
    /// Ends the waiting, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.events.items().follow.stopper()
    }

    /// The next step. Waits for one up to `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<StepNews> {
        self.events.items().view.store().check_process()?;
        let started = Instant::now();
        loop {
            if self.is_over {
                return Ok(StepNews::Over);
            }
            if let Some(step) = self.next_step()? {
                return Ok(StepNews::Step(step));
            }
            if self.is_over || self.is_left {
                self.is_over = true;
                continue;
            }
            let left = timeout.saturating_sub(started.elapsed());
            // Nobody waits for the next step to hear of this one: what is held back was given before this wait.
            self.events.items_mut().wait = left.min(ASK_EVERY);
            if let Some(step) = self.next_step()? {
                return Ok(StepNews::Step(step));
            }
            self.ask()?;
            if !self.is_over && !self.is_left && started.elapsed() >= timeout {
                return Ok(StepNews::Nothing);
            }
        }
    }

    /// The next step of those that have come; none if there is none just now, or the attempt is over.
    fn next_step(&mut self) -> Result<Option<Box<RecordedStep>>> {
        while let Some(event) = self.events.next().transpose()? {
            match event {
                EpisodeEvent::Step(step) => return Ok(Some(step)),
                // One that was gone on from may have ended too; what counts here is the end of this one.
                EpisodeEvent::End(_) if !self.events.items().is_inherited => {
                    self.is_over = true;
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// An end that the owner did not say is in no log.
    fn ask(&mut self) -> Result<()> {
        if self.asked.elapsed() < ASK_EVERY {
            return Ok(());
        }
        self.asked = Instant::now();
        let Arriving { view, writer, .. } = self.events.items();
        let (store, episode, attempt) = (view.store(), view.id(), view.number());
        let was_found = store.found_end(&episode, attempt)?.is_some();
        let is_taken =
            || -> Result<bool> { Ok(store.began(&episode)?.iter().any(|began| began.key.attempt > attempt)) };
        self.is_left = was_found || store.liveness(writer) == Liveness::Dead || is_taken()?;
        Ok(())
    }
}
