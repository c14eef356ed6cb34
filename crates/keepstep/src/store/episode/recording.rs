//! What an episode records in one call, and its counters. For turns and calls see [`Episode::turn`].

use keepstep_format::value::Value;

use crate::error::Result;
use crate::store::episode::Episode;
use crate::store::episode::present_turn::TurnChange;
use crate::write::{Entry, Receipt, Recorder, Step};

impl Episode {
    /// Records an entry, and returns at once: wait for the receipt to know that it is durable. While the queue is
    /// full, an episode may have one more entry in flight; after that this is [`crate::Error::Busy`].
    pub fn record(&self, entry: impl Into<Entry>) -> Result<Receipt> {
        self.record_by(entry.into(), Recorder::record)
    }

    /// Records an entry, and returns when it is durable.
    pub fn record_and_wait(&self, entry: impl Into<Entry>) -> Result<Receipt> {
        self.record_by(entry.into(), Recorder::record_and_wait)
    }

    /// The only way to the recorder, so that the episode knows of everything that is recorded.
    fn record_by(&self, entry: Entry, hand_over: fn(&Recorder, Entry) -> Result<Receipt>) -> Result<Receipt> {
        let change = TurnChange::of(&entry);
        let receipt = hand_over(self.recorder(), entry)?;
        if !matches!(change, TurnChange::None) {
            self.lock()?.apply(change, receipt.step());
        }
        Ok(receipt)
    }

    /// Records a step, and returns when it is durable.
    pub fn step(&self, step: Step) -> Result<Receipt> {
        self.record_and_wait(step)
    }

    /// Records the first observation. Returns at once.
    pub fn first(&self, step: Step) -> Result<Receipt> {
        self.record(Entry::first(step))
    }

    /// Encodes an entry without handing it over, for tests in which another caller acts in between.
    #[cfg(feature = "simulate")]
    pub fn encode_only(&self, entry: impl Into<Entry>) -> Result<crate::Encoded> {
        self.recorder().encode_only(entry.into())
    }

    /// Hands over an encoded entry.
    #[cfg(feature = "simulate")]
    pub fn submit_encoded(&self, encoded: crate::Encoded) -> Result<Receipt> {
        self.recorder().submit_encoded(encoded)
    }

    /// Adds a note on this attempt, or on one of its steps. Returns at once. After the end, use
    /// [`crate::Run::annotate`].
    pub fn note(&self, name: &str, value: Value, source: &str, step: Option<u64>) -> Result<Receipt> {
        self.record(Entry::note(name, value, source, step)?)
    }

    /// Which attempt this is.
    pub fn attempt(&self) -> u32 {
        self.recorder().attempt()
    }

    /// How many steps were handed over, inherited ones and FIRST included.
    pub fn steps(&self) -> u64 {
        self.recorder().steps()
    }

    /// How many steps are acknowledged. After an error, recording continues after these.
    pub fn durable_steps(&self) -> u64 {
        self.recorder().durable_steps()
    }

    /// How many of its steps failed, inherited ones included.
    pub fn failed(&self) -> u64 {
        self.recorder().failed()
    }

    /// True if a turn has an intent and no result.
    pub fn is_pending(&self) -> bool {
        self.recorder().is_pending()
    }

    /// True if this attempt recorded the first observation.
    pub fn has_first(&self) -> bool {
        self.recorder().has_first()
    }

    /// True once it is known that nothing more can be recorded here: another attempt owns the episode, or another
    /// process closed the log.
    pub fn is_fenced(&self) -> bool {
        self.recorder().is_fenced()
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<String> {
        self.recorder().ended()
    }

    /// True if nothing can be recorded any more: its end is durable, or it is fenced.
    pub fn is_over(&self) -> bool {
        self.recorder().is_over()
    }
}
