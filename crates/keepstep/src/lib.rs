//! keepstep keeps every step of an agent's rollout, so that no crash costs more than the step in flight.
//!
//! The rooms are named after a step's journey: `write` records it, `recover` finds what a dead writer left, `read` gives it
//! back, `tend` looks after the whole, `own` says whose it is, `export` writes it for others. They do not know one another;
//! `store` knows them all, and `disk` is the only door to storage.

mod date;
pub mod disk;
mod error;
pub mod export;
mod options;
mod own;
mod process;
pub mod read;
pub mod recover;
pub mod refs;
pub mod segment;
mod store;
pub mod tend;
mod write;

pub use date::date;
pub use error::{Error, Remedy, Result};
pub use keepstep_format as format;
pub use keepstep_format::value::Value;
pub use keepstep_format::{Id, Why};
#[cfg(feature = "simulate")]
pub use options::Broken;
pub use options::{Level, Options};
pub use read::NoteTarget;
pub use segment::Liveness;
pub use store::{
    BURIED_AT_ONCE, Began, Conflict, Ending, Episode, EpisodeFilter, EpisodeName, Generation, GivenUp, Group,
    GroupView, Happened, Job, Jobs, Known, Listed, Member, NewPolicy, Opening, OrphanNote, PlanOptions,
    PolicyName, Progress, Reaped, Remaining, RemainingOptions, Resume, Run, RunEvent, RunFollow, RunInfo,
    RunOptions, Said, SealedGroups, Search, StepFollow, StepNews, Store, Stream, StreamView, Turn, View,
    WeakStore, WhenBusy, refuse_address,
};
pub use write::{Bell, CallKey, CallMade, Prepared, Receipt, Recorder, Step, Tokens, WriterStats};
