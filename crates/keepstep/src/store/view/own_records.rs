//! Follows the records that an attempt made itself, until no more come.
//!
//! Everything that counts is reported before the news that no more comes: after that is known, the log is read once
//! more, and records of which it is open whether they count are waited for.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::read::{AttemptKey, End, Follow, FollowFrom, Item, Stopper};
use crate::segment::Liveness;
use crate::segment::chain::Chain;
use crate::store::Store;
use crate::store::view::counting::RecordFollow;
use crate::store::view::superseded;

/// How often it is checked whether the owner still records.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What a follower of an attempt's own records gets.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordNews {
    /// The next record that counts. If it is the END, no more come.
    Record(Box<Item>),
    /// Nothing came during the wait, or the follower was stopped.
    Nothing,
    /// The attempt ended without an END of its own: another process found its end, or took it over. No more come.
    Ended(Box<End>),
    /// Its owner seems gone, and left no end. This is evidence, so more may come; it is reported again and again.
    OwnerGone,
}

/// Follows the records that an attempt made itself.
#[derive(Debug)]
pub struct AttemptFollow {
    store: Store,
    key: AttemptKey,
    records: RecordFollow,
    /// That no more come. Not reported yet.
    news: Option<RecordNews>,
    asked: Option<Instant>,
}

impl Store {
    /// The records of one attempt that count, as they become durable, without inherited ones. The attempt need not
    /// have begun yet.
    pub fn follow_attempt(&self, key: AttemptKey, from: FollowFrom) -> Result<AttemptFollow> {
        self.check_process()?;
        let AttemptKey { episode, attempt, .. } = key;
        let follow = Follow::attempt(self.storage(), self.recovery(), from, episode, attempt)?;
        let records = RecordFollow::of_attempt(self, follow);
        Ok(AttemptFollow { store: self.clone(), key, records, news: None, asked: None })
    }
}

impl AttemptFollow {
    /// A handle that ends the wait, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.records.stopper()
    }

    /// The next record, or the news that no more come. Waits up to `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<RecordNews> {
        let started = Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let patience = if self.news.is_some() { Duration::ZERO } else { left.min(ASK_EVERY) };
            match self.records.next(patience)? {
                // Records of an attempt count only from the writer that its claim names.
                Some(followed) if followed.writer != self.key.writer => continue,
                Some(followed) => return Ok(RecordNews::Record(Box::new(followed.item))),
                None => {}
            }
            if self.stopper().is_stopped() {
                return Ok(RecordNews::Nothing);
            }
            // It was known before the log was read, so everything was reported, unless something is open. If so, it is
            // looked up again later, since it may have ended in another way by then.
            if let Some(news) = self.news.take().filter(|_| !self.records.is_open()) {
                return Ok(news);
            }
            self.ask()?;
            if left.is_zero() && self.news.is_none() {
                return Ok(RecordNews::Nothing);
            }
        }
    }

    /// That no more come is not in its log, so it is looked up.
    fn ask(&mut self) -> Result<()> {
        if self.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
            return Ok(());
        }
        self.asked = Some(Instant::now());
        self.news = match self.ended()? {
            Some(end) => Some(RecordNews::Ended(Box::new(end))),
            None if self.store.liveness(&self.key.writer) == Liveness::Dead => Some(RecordNews::OwnerGone),
            None => None,
        };
        Ok(())
    }

    /// How it ended, according to others.
    fn ended(&self) -> Result<Option<End>> {
        let AttemptKey { episode, attempt, .. } = self.key;
        let found = self.store.found_ending(&episode, attempt)?;
        if found.is_some() {
            return Ok(found);
        }
        let chain = Chain::read(self.store.cards(), &episode)?;
        // A taker that found an end adopted it: nothing is recorded in its attempt, and the one before has that end.
        let next = chain.behind(attempt).iter().find(|link| link.is_in_force());
        let bases = [chain.link(attempt), next].into_iter().flatten().filter_map(|link| link.base.as_ref());
        let adopted = bases.filter_map(|base| base.adopted.clone()).next();
        let end = superseded(&chain, attempt).or(adopted.is_some().then(End::default));
        Ok(end.map(|end| End { why: adopted.or(end.why.clone()), ..end }))
    }

    /// Notes how it ended, which a caller knows already.
    pub(super) fn note_end(&mut self, end: Option<End>) {
        self.news = end.map(|end| RecordNews::Ended(Box::new(end)));
    }
}
