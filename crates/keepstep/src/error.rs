//! What can go wrong, told by what the caller can do next.

use std::io;
use std::sync::Arc;

use keepstep_format::Id;
use thiserror::Error;

use crate::date::date;

/// The result of anything that may go wrong here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again: the cause may go away (somebody owns it, the disk is full).
    Retry,
    /// Open the store again in this process.
    Reopen,
    /// Call with something else.
    FixInput,
    /// Stop: this episode is no longer yours, or is over.
    Stop,
    /// Bytes are gone: restore them, or go on without.
    RestoreData,
}

/// Everything that can go wrong. Cheap to clone, since one failed batch is told to all its steps.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("could not {doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what, relative to the store.
        path: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No room.
    #[error(
        "the disk is full: {bytes} bytes waited {waited_s} s for room in {path}; nothing acknowledged is lost"
    )]
    DiskFull {
        /// Where.
        path: String,
        /// How much was waiting.
        bytes: u64,
        /// How long.
        waited_s: u64,
    },
    /// The disk does not take writes, and did not for as long as we were told to wait.
    #[error(
        "{path} could not be written for {waited_s} s: {source}; nothing acknowledged is lost, and recording goes on when the cause is gone"
    )]
    Stalled {
        /// Where.
        path: String,
        /// How long.
        waited_s: u64,
        /// What the system said last.
        source: Arc<io::Error>,
    },
    /// The files were deleted while they were written.
    #[error("{path} was deleted while it was being recorded to: what is recorded from here on would be lost")]
    Vanished {
        /// What is gone.
        path: String,
    },
    /// An earlier step of the same episode was not recorded, so this one cannot be.
    #[error("step not recorded, since an earlier step of this episode was not: {0}")]
    EarlierFailed(Box<Error>),
    /// The caller did not want to wait any longer, as after Ctrl-C.
    #[error("interrupted while it waited for the disk; what was handed over goes on being written")]
    Interrupted,
    /// The store was closed.
    #[error("the store was closed: open it again")]
    Closed,
    /// This process was forked from the one that opened the store.
    #[error(
        "this process ({child}) was forked from the one that opened the store ({parent}): open the store again here"
    )]
    Forked {
        /// The process that opened it.
        parent: u32,
        /// This one.
        child: u32,
    },
    /// The queue is full.
    #[error("{what} is busy: {why}")]
    Busy {
        /// What.
        what: String,
        /// Why, and by whom.
        why: String,
    },
    /// A field has a value that cannot be recorded.
    #[error("{field} {value}: {fix}")]
    BadInput {
        /// Which field.
        field: String,
        /// What was given.
        value: String,
        /// What to do.
        fix: String,
    },
    /// The run exists with another config.
    #[error(
        "run {run:?} exists with another config: {keys}; give the config it was made with, or start a new generation with `new`"
    )]
    ConfigChanged {
        /// The run's name.
        run: String,
        /// Which keys, with both values.
        keys: String,
    },
    /// This storage cannot give that level.
    #[error("level {wanted:?} is out of reach on {storage}: {why}")]
    LevelOutOfReach {
        /// What was asked for.
        wanted: &'static str,
        /// The storage.
        storage: String,
        /// Why not, and what to do.
        why: String,
    },
    /// Written by a newer keepstep.
    #[error("{path} has format {found}, and this keepstep knows up to {known}: use a newer keepstep")]
    NewerFormat {
        /// Which file.
        path: String,
        /// What it says.
        found: u32,
        /// What we know.
        known: u32,
    },
    /// Not a store.
    #[error("{path} is not a keepstep store: {why}")]
    NotAStore {
        /// Where.
        path: String,
        /// Why not.
        why: String,
    },
    /// Another attempt owns the episode, or the stream was frozen: its list counts as attempt 1.
    #[error("{}", fenced(what, *mine, *attempt, *is_stream))]
    Fenced {
        /// What people call it.
        what: String,
        /// Which episode or stream.
        episode: Id,
        /// Ours.
        mine: u32,
        /// The new owner's.
        attempt: u32,
        /// It is a stream, which was frozen or dropped.
        is_stream: bool,
    },
    /// Others closed the log that this process recorded to: it did not answer when it was asked whether it is there.
    #[error(
        "the log of this process (writer {writer}) was closed by `compact` or `prune`, which had no answer from it: what was acknowledged is safe; open the episode again to go on"
    )]
    LogClosed {
        /// Whose log.
        writer: Id,
    },
    /// The episode is over.
    #[error("{what} is over ({why}): nothing more can be recorded in it")]
    Ended {
        /// Which.
        what: String,
        /// How it ended.
        why: String,
    },
    /// What is said now is not what was recorded.
    #[error(
        "turn {step} diverged in {field}: {recorded} was recorded, and now it is {now}; {}, resume before it with \
         at={step}, or begin again with resume=\"restart\"",
        way_out(field)
    )]
    Diverged {
        /// The turn.
        step: u64,
        /// Which field, or which call.
        field: String,
        /// What was recorded.
        recorded: String,
        /// What is said now.
        now: String,
    },
    /// It was deleted, because somebody asked for it.
    #[error("{what} was pruned on {}: {reason}", date(*time))]
    Pruned {
        /// What is gone.
        what: String,
        /// Why it was deleted.
        reason: String,
        /// When, in microseconds since 1970.
        time: i64,
    },
    /// No such thing.
    #[error("{what} is not in this store")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// No such thing, and something is known that helps to find what was meant.
    #[error("{what} is not there: {hint}")]
    Unknown {
        /// What was looked for.
        what: String,
        /// What there is instead.
        hint: String,
    },
    /// Bytes in storage are not what was written.
    #[error("{path} is damaged at byte {offset}: {found}")]
    Damaged {
        /// Which file.
        path: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        found: String,
    },
}

fn fenced(what: &str, mine: u32, attempt: u32, is_stream: bool) -> String {
    if is_stream {
        return format!(
            "{what} was frozen, or dropped: what is in it stays as it is, and nothing more can be put into it"
        );
    }
    format!(
        "{what} belongs to attempt {attempt} now, which took it over: attempt {mine} may record nothing more"
    )
}

/// What lets what is said now stand beside what was recorded.
fn way_out(field: &str) -> &'static str {
    if field.starts_with("call ") {
        "give the call another key="
    } else {
        "give it up with episode.pending.discard(reason)"
    }
}

impl Error {
    /// What the caller can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Remedy::FixInput,
            Self::Io { .. }
            | Self::DiskFull { .. }
            | Self::Stalled { .. }
            | Self::Busy { .. }
            | Self::Interrupted => Remedy::Retry,
            Self::EarlierFailed(cause) => cause.remedy(),
            Self::Closed | Self::Forked { .. } | Self::Vanished { .. } => Remedy::Reopen,
            Self::BadInput { .. }
            | Self::ConfigChanged { .. }
            | Self::LevelOutOfReach { .. }
            | Self::NewerFormat { .. }
            | Self::NotAStore { .. }
            | Self::Diverged { .. }
            | Self::Pruned { .. }
            | Self::NotFound { .. }
            | Self::Unknown { .. } => Remedy::FixInput,
            Self::Fenced { .. } | Self::LogClosed { .. } | Self::Ended { .. } => Remedy::Stop,
            Self::Damaged { .. } => Remedy::RestoreData,
        }
    }

    /// True if this process, or the machine, has too many files open: nothing is wrong with the one that was to be opened.
    pub fn is_out_of_files(&self) -> bool {
        use rustix::io::Errno;
        let is_limit = |code: i32| code == Errno::MFILE.raw_os_error() || code == Errno::NFILE.raw_os_error();
        matches!(self, Self::Io { source, .. } if source.raw_os_error().is_some_and(is_limit))
    }

    /// True if it is about one file, and says nothing of the others: who reads many tells it, and goes on with the rest.
    pub fn is_of_one_file(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { doing, .. } => {
                matches!(*doing, "open" | "read" | "measure") && !self.is_out_of_files() && !self.is_gone()
            }
            _ => false,
        }
    }

    /// True if a file was not there: `compact` may have moved what was in it, and the newest manifest says where to.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The same of something that the caller calls so.
    #[must_use]
    pub fn of(self, called: &str) -> Self {
        match self {
            Self::Pruned { reason, time, .. } => Self::Pruned { what: called.to_owned(), reason, time },
            Self::NotFound { .. } => Self::NotFound { what: called.to_owned() },
            other => other,
        }
    }

    /// An error of the system, with what was being done.
    pub fn io(doing: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source: Arc::new(source) }
    }
}

/// Adds what was being done, and to what, to an error of the system.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str, path: &str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &str) -> Result<T> {
        self.map_err(|source| Error::io(doing, path, source))
    }
}

/// What was asked for; or what is wrong with the one file that would say it, which is told beside the rest.
pub(crate) fn or_told<T>(asked: Result<T>) -> Result<(Option<T>, Option<Error>)> {
    match asked {
        Ok(said) => Ok((Some(said), None)),
        Err(error) if error.is_of_one_file() => Ok((None, Some(error))),
        Err(error) => Err(error),
    }
}
