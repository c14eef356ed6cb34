//! What is recorded: the same for every engine, and made without one.

pub mod chat;
pub mod jsonl;
pub mod live;
pub mod random;
pub mod rollouts;

/// A record is this many random bytes in one field, unless a bar says otherwise.
pub const RECORD_BYTES: usize = 2048;
