//! Follows one attempt, step by step: the recorded steps, then new ones, until it has ended.
//!
//! The follower starts before the first step is read, so no step is missed. A step is reported as soon as it is
//! durable; whether it was the last one is known only if the end came with it.

use std::time::{Duration, Instant};

use keepstep_format::Id;

use crate::error::Result;
use crate::read::{EpisodeEvent, Events, Follow, FollowFrom, Item, RecordedStep, Stopper};
use crate::segment::Liveness;
use crate::store::view::View;

/// How often it is checked whether the writer still records.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What a follower of an attempt gets.
#[derive(Debug, Clone, PartialEq)]
pub enum StepNews {
    /// The next step.
    Step(Box<RecordedStep>),
    /// Nothing came during the wait.
    Nothing,
    /// The attempt has ended, or its writer is gone. No more steps will come.
    Over,
}

/// Follows the steps of one attempt, including inherited ones.
#[derive(Debug)]
pub struct StepFollow {
    events: Events<Arriving>,
    /// True if another process knows that nothing more comes. Steps that are there are still reported.
    is_left: bool,
    is_over: bool,
    asked: Instant,
}

/// The records of an attempt: inherited ones, then its own as they arrive.
#[derive(Debug)]
struct Arriving {
    view: View,
    writer: Id,
    /// The next inherited record, and how many there are.
    inherited: (usize, usize),
    /// True if the last record was inherited.
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
            // Advance only if the read succeeded; a failed read is repeated.
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
    /// Follows the attempt from its first step on, including inherited steps.
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
    /// A handle that ends the wait, from any thread.
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
            // The present step is never held back for the next one: held steps were returned before this wait.
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

    /// An end that another process found is in no log, so it is looked up.
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
