//! What an episode records in one call, and its counters. For turns and calls see [`Episode::turn`].

use keepstep_format::fields;
use keepstep_format::value::Value;

use crate::error::{Error, Result};
use crate::store::episode::present_turn::TurnChange;
use crate::store::episode::{Episode, check_number};
use crate::write::{Entry, Receipt, Recorder, Step};

impl Episode {
    /// Records an entry, and returns at once: wait for the receipt to know that it is durable. While the queue is
    /// full, an episode may have one more entry in flight; after that this is [`crate::Error::Busy`].
    pub fn record(&self, entry: impl Into<Entry>) -> Result<Receipt> {
        self.record_by(entry.into(), Recorder::record)
    }

    /// Records an entry, and returns when it is durable.
    pub fn record_and_wait(&self, entry: impl Into<Entry>) -> Result<Receipt> {
        // The episode knows of it before it waits: a caller that stops waiting does not take it back.
        let receipt = self.record_by(entry.into().waiting_for_room(), Recorder::record_to_wait)?;
        receipt.wait()?;
        Ok(receipt)
    }

    /// The only way to the recorder, so that the episode knows of everything that is recorded.
    fn record_by(
        &self,
        mut entry: Entry,
        hand_over: fn(&Recorder, Entry) -> Result<Receipt>,
    ) -> Result<Receipt> {
        // Nobody waits for the disk while it holds a lock of the episode: another thread that asks for the lock may
        // hold what the wait needs to be interrupted.
        if entry.waits_for_room {
            self.recorder().wait_for_room()?;
        }
        let change = TurnChange::of(&entry);
        if matches!(change, TurnChange::None) && entry.turn_number.is_none() {
            return hand_over(self.recorder(), entry);
        }
        // Between the look at the present turn and the record of its result, no other turn may come.
        let mut before = self.lock()?;
        if let Some(number) = entry.turn_number {
            check_number(&before, number)?;
        }
        if matches!(change, TurnChange::Discarded) {
            let index = self.recorder().steps();
            self.at_turn(&mut before, index)?;
            // Recorded, so that a resumed attempt numbers the calls that follow alike.
            entry.step.set(fields::ORDINAL, Value::Int(before.calls.behind_all() as i64));
        }
        let receipt = hand_over(self.recorder(), entry)?;
        before.apply(change, &receipt);
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

    /// Why an entry could not be written, if the program has not heard of that from a receipt or an error. Ask this when
    /// you leave the episode: an end such as `aborted` is recorded although a step is missing before it.
    pub fn unheard_failure(&self) -> Option<Error> {
        self.recorder().unheard_failure()
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
