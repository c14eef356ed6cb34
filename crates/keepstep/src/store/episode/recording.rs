//! What an episode records in one call, and what it knows of that. Turns and calls have more to it: see [`Episode::turn`].

use keepstep_format::value::Value;

use crate::error::Result;
use crate::options::Level;
use crate::store::episode::Episode;
use crate::write::{Prepared, Receipt, Step};

impl Episode {
    /// Records the first observation. Returns at once.
    pub fn first(&self, step: Step) -> Result<Receipt> {
        self.recorder().first(step)
    }

    /// Records a step, and returns when it is durable.
    pub fn step(&self, step: Step) -> Result<Receipt> {
        self.recorder().step(step)
    }

    /// Records a step, and returns at once. While the queue is full an episode may have one more step in flight, then it is
    /// [`crate::Error::Busy`].
    pub fn submit(&self, step: Step) -> Result<Receipt> {
        self.recorder().submit(step)
    }

    /// As [`Episode::submit`], but waits while the queue is full.
    pub fn submit_waiting(&self, step: Step) -> Result<Receipt> {
        self.recorder().submit_waiting(step)
    }

    /// As [`Episode::submit`], with a level of its own.
    pub fn submit_at(&self, step: Step, level: Level) -> Result<Receipt> {
        self.recorder().submit_at(step, level)
    }

    /// Encodes a step without handing it over: the two halves of [`Episode::submit`], for those who schedule them.
    pub fn prepare(&self, step: Step) -> Result<Prepared> {
        self.recorder().prepare(step)
    }

    /// Hands a prepared step over. Steps must be handed over in the order in which they were prepared.
    pub fn submit_prepared(&self, prepared: Prepared) -> Result<Receipt> {
        self.recorder().submit_prepared(prepared)
    }

    /// Appends to the recording list, and returns when that is durable.
    pub fn item(&self, value: Value) -> Result<Receipt> {
        self.recorder().item(value)
    }

    /// Adds a note on this attempt, or on one of its steps. Returns at once. What is noted after the end is a note of the
    /// run.
    pub fn note(&self, name: &str, value: Value, source: &str, step: Option<u64>) -> Result<Receipt> {
        self.recorder().note(name, value, source, step)
    }

    /// Which attempt this is.
    pub fn attempt(&self) -> u32 {
        self.recorder().attempt()
    }

    /// How many steps were handed over, those that it inherited and FIRST counted.
    pub fn steps(&self) -> u64 {
        self.recorder().steps()
    }

    /// How many steps are acknowledged: after an error, recording goes on behind them.
    pub fn durable_steps(&self) -> u64 {
        self.recorder().durable_steps()
    }

    /// How many of its steps failed, those that it inherited counted.
    pub fn failed(&self) -> u64 {
        self.recorder().failed()
    }

    /// True if a turn was said and has no result.
    pub fn is_pending(&self) -> bool {
        self.recorder().is_pending()
    }

    /// True if this attempt recorded the first observation.
    pub fn has_first(&self) -> bool {
        self.recorder().has_first()
    }

    /// True once it is known that nothing more can be recorded here: another attempt owns the episode, or others closed the
    /// log.
    pub fn is_fenced(&self) -> bool {
        self.recorder().is_fenced()
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<String> {
        self.recorder().ended()
    }

    /// True if nothing can be recorded any more: it ended, and that is durable, or it was refused as somebody else's.
    pub fn is_over(&self) -> bool {
        self.recorder().is_over()
    }
}
