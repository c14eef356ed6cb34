//! Records: from the caller's value to bytes that survive.
//!
//! A step is encoded and hashed on the caller's thread, and compressed there (or by the committer, if many callers
//! share a thread). It waits in a bounded queue, gets its place from the committer, and is acknowledged after its
//! sync, in order.

mod attempt_state;
mod buffer_pool;
mod chain;
mod copier;
mod decide;
mod dictionary;
mod encoded_record;
mod entry;
mod event;
mod handoff;
mod index;
mod kept;
mod leaving;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod moved;
mod note;
mod open_segment;
mod outcome;
mod putter;
mod receipt;
mod recorder;
mod role;
mod stats;
mod step;
mod subject;
mod sync;
mod wakers;
mod writer;

pub(crate) use copier::{CopyOf, copied_to, copy};
pub use entry::{CallKey, CallMade, Entry};
pub(crate) use log::{Identity, LookUp, News, OnClose};
pub use note::check_name;
pub(crate) use note::{OUR_NAMES, note_fields};
pub(crate) use putter::Putter;
pub use receipt::Receipt;
#[cfg(feature = "simulate")]
pub use recorder::Encoded;
pub(crate) use recorder::Recorder;
pub use stats::WriterStats;
pub use step::{Step, Tokens};
pub(crate) use subject::{Start, Subject, SubjectKey, SubjectName};
pub use wakers::Waker;
pub(crate) use wakers::Wakers;
pub(crate) use writer::{Beat, Writer};
