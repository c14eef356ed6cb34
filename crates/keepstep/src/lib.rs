//! keepstep keeps every step of an agent's rollout on disk. A crash costs at most the step in flight, and any rollout
//! can resume where it stopped.
//!
//! This program records an episode of ten steps and dies at the sixth. Started again, it resumes where it stopped:
//!
//! ```standalone_crate
//! use keepstep::{Ending, EpisodeName, Options, Result, Step, Store, Value, Why};
//!
//! fn rollout(dir: &str) -> Result<()> {
//!     let store = Store::open(dir, Options::default())?;
//!     let run = store.run("shop-agent", Value::from("model m-7b"))?;
//!     let episode = run.episode(EpisodeName::task("shop-17"))?; // begins it, or goes on
//!     while episode.steps() < 10 {
//!         if episode.steps() == 6 && episode.resumed().is_none() {
//!             std::process::abort(); // as an OOM or a Slurm kill would
//!         }
//!         let total = episode.state("total")?.and_then(|total| total.as_int()).unwrap_or(0) + 1;
//!         let step = Step::new().action("buy").reward(1.0).state([("total", total)]);
//!         episode.step(step)?; // survives a power cut from here on
//!     }
//!     episode.end(Why::Finished, Ending::default())?.wait()?;
//!     let view = run.view(&EpisodeName::task("shop-17"))?;
//!     assert_eq!((view.steps(), view.attempts()), (10, vec![0, 1]));
//!     Ok(())
//! }
//!
//! # use std::process::Command;
//! # let dir = std::env::args().nth(1).unwrap_or(std::env::temp_dir().join("keepstep-front-page").display().to_string());
//! # if std::env::args().len() == 1 {
//! #     let _ = std::fs::remove_dir_all(&dir);
//! #     let died = Command::new(std::env::current_exe().unwrap()).arg(&dir).status().unwrap();
//! #     assert!(!died.success());
//! # }
//! rollout(&dir)?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok::<(), keepstep::Error>(())
//! ```
//!
//! # Where to begin
//!
//! - [`Store::open`] opens a directory; [`Store::run`] a named set of episodes in it.
//! - [`Run::episode`] begins an episode or resumes an interrupted one. [`Episode`] records: a [`Step`] in one call,
//!   or an [`Episode::turn`] that records the intent before the action is taken.
//! - [`Run::plan`] and [`Run::remaining`] share the episodes of an evaluation among processes.
//! - [`Run::view`] and [`Run::episodes`] read; [`refs::find`] finds by name; [`Run::follow`] waits for new records.
//! - [`tend`] has `verify`, `compact` and `prune`.
//!
//! The folder `examples/` of this crate has a recorder, a worker on a plan, and a reader.
//!
//! # How it is built
//!
//! The modules are named after a step's journey: `write` records it, `recover` finds where a dead writer stopped,
//! `read` reads it back, `tend` verifies, compacts and prunes, `own` decides which process owns an episode, `export`
//! writes it for other programs. They do not import one another; `store` uses them all, and only `disk` accesses
//! storage.

mod counts;
mod date;
pub mod disk;
mod error;
pub mod export;
mod options;
mod own;
mod process;
pub mod read;
mod recover;
pub mod refs;
mod segment;
mod store;
pub mod tend;
mod write;

#[doc(hidden)]
pub use counts::{count, counted};
#[doc(hidden)]
pub use date::date;
pub use error::{Error, Remedy, Result};
pub use keepstep_format as format;
pub use keepstep_format::value::Value;
pub use keepstep_format::{Id, Why};
#[cfg(feature = "simulate")]
pub use options::Broken;
pub use options::{Level, Options};
pub use read::{NoteTarget, Stopper};
pub use segment::{Liveness, Pruned, Summary};
pub use store::{
    AttemptFollow, Began, CalledFunction, Conflict, Ending, Episode, EpisodeEvents, EpisodeFilter,
    EpisodeName, Generation, GivenUp, Group, GroupView, Job, Jobs, Known, Listed, MARKED_AT_ONCE, Marked,
    Member, NewPolicy, Next, Opening, OrphanNote, PlanOptions, PolicyName, Progress, Reaped, RecordFollow,
    RecordNews, Remaining, RemainingOptions, Resume, Run, RunEvent, RunFollow, RunInfo, RunOptions, SaidTurn,
    SealedGroups, Search, StepFollow, StepNews, Store, Stream, StreamNews, StreamReader, StreamView, Turn,
    View, WeakStore, WhenBusy, refuse_address,
};
#[cfg(feature = "simulate")]
pub use write::Encoded;
pub use write::{CallKey, CallMade, Entry, Receipt, Step, Tokens, Waker, WriterStats, check_name};

/// The examples of the README are run as tests.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeExamples;
