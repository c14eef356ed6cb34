//! Follows one attempt, step by step: what is there, and then what comes in, until it has ended.
//!
//! The follower stands before the first step is read, so nothing falls in between. A step is told as soon as it is
//! durable: that it was the last is known only if its end came with it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use keepstep_format::Id;

use crate::error::Result;
use crate::read::{EpisodeEvent, Fold, Follow, FollowFrom, Step, Stopper};
use crate::segment::Liveness;
use crate::store::view::View;

/// How often is asked whether somebody still records it.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What a follower of an attempt hears.
#[derive(Debug, Clone, PartialEq)]
pub enum StepNews {
    /// A step.
    Step(Box<Step>),
    /// Nothing came while it waited.
    Nothing,
    /// The attempt has ended, or its recorder is gone: nothing more comes.
    Over,
}

/// Follows the steps of one attempt, with what it inherited.
#[derive(Debug)]
pub struct StepFollow {
    view: View,
    writer: Id,
    /// The next record of what was inherited, and how many there are.
    inherited: (usize, usize),
    follow: Follow,
    fold: Fold,
    ready: VecDeque<Box<Step>>,
    /// Somebody else knows that nothing more comes; what is there is still told.
    is_left: bool,
    is_over: bool,
    asked: Instant,
}

impl View {
    /// Follows the attempt from its first step on, whoever recorded that.
    pub fn follow(self) -> Result<StepFollow> {
        let follow = self.store().follow_attempt(self.id(), self.number(), FollowFrom::Start)?;
        let writer = self.writer();
        let inherited = (0, self.inherited_lines());
        let is_left = self.ending()?.is_some();
        Ok(StepFollow {
            view: self,
            writer,
            inherited,
            follow,
            fold: Fold::new(),
            ready: VecDeque::new(),
            is_left,
            is_over: false,
            asked: Instant::now(),
        })
    }
}

impl StepFollow {
    /// Ends the waiting, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.follow.stopper()
    }

    /// The next step. Waits for one up to `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<StepNews> {
        self.view.store().check_process()?;
        let started = Instant::now();
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Ok(StepNews::Step(step));
            }
            if self.is_over {
                return Ok(StepNews::Over);
            }
            if self.tell_what_is_there()? {
                continue;
            }
            if self.is_left {
                self.is_over = true;
                continue;
            }
            let left = timeout.saturating_sub(started.elapsed());
            match self.follow.next(left.min(ASK_EVERY))? {
                Some(followed) if followed.writer == self.writer => {
                    let told = self.fold.add(followed.item);
                    self.take(told, false);
                }
                Some(_) => {}
                None => self.ask()?,
            }
            if self.ready.is_empty() && !self.is_over && !self.is_left && started.elapsed() >= timeout {
                return Ok(StepNews::Nothing);
            }
        }
    }

    /// Takes what needs no waiting. True if there was something to tell.
    fn tell_what_is_there(&mut self) -> Result<bool> {
        while self.ready.is_empty() && !self.is_over {
            let (at, inherited) = self.inherited;
            let inherits = at < inherited;
            let item = if inherits {
                let item = self.view.line(at)?;
                // Only what was read is behind us: a look that fails is made again.
                self.inherited.0 += 1;
                Some(item)
            } else {
                match self.follow.next(Duration::ZERO)? {
                    Some(followed) if followed.writer != self.writer => continue,
                    followed => followed.map(|followed| followed.item),
                }
            };
            let is_dry = item.is_none();
            let told = match item {
                Some(item) => self.fold.add(item),
                // Nobody waits for the next step to hear of this one.
                None => self.fold.finish(),
            };
            self.take(told, inherits);
            if is_dry {
                break;
            }
        }
        Ok(!self.ready.is_empty() || self.is_over)
    }

    fn take(&mut self, told: Vec<EpisodeEvent>, inherits: bool) {
        for told in told {
            match told {
                EpisodeEvent::Step(step) => self.ready.push_back(step),
                // One that was gone on from may have ended too; what counts here is the end of this one.
                EpisodeEvent::End(_) if !inherits => self.is_over = true,
                _ => {}
            }
        }
    }

    /// An end that the owner did not say is in no log.
    fn ask(&mut self) -> Result<()> {
        if self.asked.elapsed() < ASK_EVERY {
            return Ok(());
        }
        self.asked = Instant::now();
        let (store, episode, attempt) = (self.view.store(), self.view.id(), self.view.number());
        let was_found = store.found_end(&episode, attempt)?.is_some();
        let is_taken =
            || -> Result<bool> { Ok(store.began(&episode)?.iter().any(|began| began.key.attempt > attempt)) };
        self.is_left = was_found || store.liveness(&self.writer) == Liveness::Dead || is_taken()?;
        Ok(())
    }
}
