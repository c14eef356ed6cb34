//! What can go wrong, grouped by what the caller can do next.

use std::io;
use std::sync::Arc;

use keepstep_format::Id;
use thiserror::Error;

use crate::date::date;

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again: the cause may go away (another process owns the episode, the disk is full).
    Retry,
    /// Open the store again in this process.
    Reopen,
    /// Call with something else.
    FixInput,
    /// Stop: this episode is no longer yours, or is over.
    Stop,
    /// Data is lost or damaged: restore it, or continue without it.
    RestoreData,
}

/// Everything that can go wrong. Cheap to clone, since every step of a failed batch gets the same error.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system returned an error.
    #[error("could not {doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// On which file or folder, relative to the store.
        path: String,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The disk is full.
    #[error(
        "the disk is full: {bytes} bytes waited {waited_s} s for room in {path}; nothing acknowledged is lost"
    )]
    DiskFull {
        /// The file or folder.
        path: String,
        /// How many bytes were waiting.
        bytes: u64,
        /// How many seconds they waited.
        waited_s: u64,
    },
    /// The disk accepted no writes during [`crate::Options::stall`].
    #[error(
        "{path} could not be written for {waited_s} s: {source}; nothing acknowledged is lost, and recording continues when the cause is gone"
    )]
    Stalled {
        /// The file or folder.
        path: String,
        /// How many seconds the writes were tried.
        waited_s: u64,
        /// The last error of the operating system.
        source: Arc<io::Error>,
    },
    /// The files were deleted during recording.
    #[error("{path} was deleted during recording: steps that are recorded from now on would be lost")]
    Vanished {
        /// Which file or folder is gone.
        path: String,
    },
    /// An earlier step of the same episode was not recorded, so this one cannot be.
    #[error("step not recorded, since an earlier step of this episode was not: {0}")]
    EarlierFailed(Box<Error>),
    /// The caller stopped waiting, for example after Ctrl-C.
    #[error("interrupted while waiting for the disk; steps that were handed over are still being written")]
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
    /// Another process has it, or the queue is full. A later try may succeed.
    #[error("{what} is busy: {why}")]
    Busy {
        /// What is busy.
        what: String,
        /// Why, and which process has it.
        why: String,
    },
    /// An argument cannot be accepted: for example a field with a value that cannot be recorded.
    #[error("{field} {value}: {fix}")]
    BadInput {
        /// Which argument or field.
        field: String,
        /// What was given.
        value: String,
        /// What to do.
        fix: String,
    },
    /// The run exists with another config.
    #[error(
        "run {run:?} exists with another config: {keys}; {}, or start a new generation with `new`",
        same(keys)
    )]
    ConfigChanged {
        /// The run's name.
        run: String,
        /// The keys that differ, with both values.
        keys: String,
    },
    /// This storage cannot reach that level.
    #[error("level {wanted:?} is out of reach on {storage}: {why}")]
    LevelOutOfReach {
        /// What was asked for.
        wanted: &'static str,
        /// The storage.
        storage: String,
        /// Why not, and what to ask for instead.
        why: String,
    },
    /// Written by a newer keepstep.
    #[error("{path} has format {found}, and this keepstep knows up to {known}: use a newer keepstep")]
    NewerFormat {
        /// Which file.
        path: String,
        /// The format that the file names.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// The directory is not a store.
    #[error("{path} is not a keepstep store: {why}")]
    NotAStore {
        /// The directory.
        path: String,
        /// Why it is not a store.
        why: String,
    },
    /// Another attempt owns the episode; or the stream was frozen, which counts as attempt 1.
    #[error("{}", fenced(what, *mine, *attempt, *is_stream))]
    Fenced {
        /// The episode or the stream, by its name.
        what: String,
        /// The id of the episode or the stream.
        episode: Id,
        /// The attempt that was recording.
        mine: u32,
        /// The attempt that owns the episode now.
        attempt: u32,
        /// True if it is a stream that was frozen or dropped.
        is_stream: bool,
    },
    /// Another process closed the log that this process recorded to: this one seemed dead, and did not answer when it
    /// was asked whether it is alive.
    #[error(
        "the log of this process (writer {writer}) was closed by another process (`compact`, `prune`, `reap` or a follower), which took this one for dead: acknowledged steps are safe; open the episode again to resume"
    )]
    LogClosed {
        /// The writer of that log.
        writer: Id,
    },
    /// The episode is over.
    #[error("{what} is over ({why}): nothing more can be recorded in it")]
    Ended {
        /// Which episode.
        what: String,
        /// How it ended.
        why: String,
    },
    /// The episode could be resumed, and the caller refuses that (`resume`, `new_policy`).
    #[error("{what} was not opened: {why}")]
    ResumeRefused {
        /// Which episode.
        what: String,
        /// Where it stands, and what would allow it.
        why: String,
    },
    /// What is given now differs from what was recorded.
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
        /// What is given now.
        now: String,
    },
    /// It was deleted on request.
    #[error("{what} was pruned on {}: {reason}", date(*time))]
    Pruned {
        /// What was pruned.
        what: String,
        /// Why it was deleted.
        reason: String,
        /// When, in microseconds since 1970.
        time: i64,
    },
    /// There is nothing of that name.
    #[error("{what} is not in this store")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// There is nothing of that name; the hint helps to find what was meant.
    #[error("{what} is not there: {hint}")]
    Unknown {
        /// What was looked for.
        what: String,
        /// What there is instead.
        hint: String,
    },
    /// Bytes in storage differ from what was written.
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

/// How it is said that a run has no config of its own.
pub(crate) const MADE_WITHOUT: &str = "it was made without one";

/// How the run can be opened as it is.
fn same(keys: &str) -> &'static str {
    if keys.starts_with(MADE_WITHOUT) { "give none" } else { "give the config it was made with" }
}

fn fenced(what: &str, mine: u32, attempt: u32, is_stream: bool) -> String {
    if is_stream {
        return format!("{what} was frozen or dropped: its entries stay as they are, and no more can be put");
    }
    format!(
        "{what} belongs to attempt {attempt} now, which took it over: attempt {mine} may record nothing more; open the episode again to resume"
    )
}

/// How the new value can be recorded beside the old one.
fn way_out(field: &str) -> &'static str {
    if field.starts_with("call ") && field.ends_with(", function") {
        "it may be the answer of another call: give each call a key=, discard the turn with \
         episode.pending.discard(reason), if it is pending"
    } else if field.starts_with("call ") {
        "give the call another key="
    } else {
        "discard it with episode.pending.discard(reason)"
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
            Self::Fenced { .. }
            | Self::LogClosed { .. }
            | Self::Ended { .. }
            | Self::ResumeRefused { .. } => Remedy::Stop,
            Self::Damaged { .. } => Remedy::RestoreData,
        }
    }

    /// True if this process, or the machine, has too many files open. The file that was to be opened is fine.
    pub fn is_out_of_files(&self) -> bool {
        use rustix::io::Errno;
        let is_limit = |code: i32| code == Errno::MFILE.raw_os_error() || code == Errno::NFILE.raw_os_error();
        matches!(self, Self::Io { source, .. } if source.raw_os_error().is_some_and(is_limit))
    }

    /// True if the error concerns one file only. A caller that reads many files reports it, and continues with the
    /// others.
    pub fn is_of_one_file(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { doing, .. } => {
                matches!(*doing, "open" | "read" | "measure") && !self.is_out_of_files() && !self.is_gone()
            }
            _ => false,
        }
    }

    /// True if a file is missing. `compact` may have moved its records; then the newest manifest says where they are.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The same error, with the name that the caller uses for the thing.
    #[must_use]
    pub fn of(self, called: &str) -> Self {
        match self {
            Self::Pruned { reason, time, .. } => Self::Pruned { what: called.to_owned(), reason, time },
            Self::NotFound { .. } => Self::NotFound { what: called.to_owned() },
            other => other,
        }
    }

    /// An error of the operating system, with what was being done.
    pub fn io(doing: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source: Arc::new(source) }
    }
}

/// Adds what was being done, and on which file, to an error of the operating system.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str, path: &str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &str) -> Result<T> {
        self.map_err(|source| Error::io(doing, path, source))
    }
}

/// Separates an error that concerns one file only: it is returned beside the answer, so that the caller can report it
/// and continue. Other errors stay errors.
pub(crate) fn or_told<T>(asked: Result<T>) -> Result<(Option<T>, Option<Error>)> {
    match asked {
        Ok(said) => Ok((Some(said), None)),
        Err(error) if error.is_of_one_file() => Ok((None, Some(error))),
        Err(error) => Err(error),
    }
}
