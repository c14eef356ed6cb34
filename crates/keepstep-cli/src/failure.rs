//! How a verb ended: its exit code, and for a failure what happened and a hint.

use std::io;

use keepstep::{Error, Remedy};

use crate::screen::{Screen, shown};

/// What a verb returns.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

/// The exit codes of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done. A torn end, which was never acknowledged, counts as done.
    Done,
    /// Failed.
    Failed,
    /// Called wrongly.
    Usage,
    /// Done, but data was lost or damaged.
    Lost,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Lost => 3,
        }
    }

    /// The worse one of two.
    pub(crate) fn worse(self, other: Self) -> Self {
        if other.code() > self.code() { other } else { self }
    }
}

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Reported: what happened, and what to do next.
    Told { message: String, hints: Vec<String>, exit: Exit },
    /// The reader of our output went away, as `head` does: there is nothing to say.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Told { message: message.into(), hints: Vec::new(), exit: Exit::Failed }
    }

    /// An error of the operating system.
    pub(crate) fn io(doing: &str, what: impl std::fmt::Display, error: &io::Error) -> Self {
        let failure = Self::new(format!("could not {doing} {what}: {error}"));
        match io_hint(error) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Told { hints, .. } = &mut self {
            hints.push(hint.into());
        }
        self
    }

    pub(crate) fn with_exit(mut self, with: Exit) -> Self {
        if let Self::Told { exit, .. } = &mut self {
            *exit = with;
        }
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Told { exit, .. } => *exit,
            Self::ReaderGone => Exit::Done,
        }
    }

    /// What happened.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Told { message, .. } => message,
            Self::ReaderGone => "the reader of the output went away",
        }
    }

    /// Prints it to stderr.
    pub(crate) fn tell(&self, screen: &Screen) {
        let Self::Told { message, .. } = self else { return };
        screen.say(&format!("{} {}", screen.talk.red("error:"), shown(message)));
        self.tell_hints(screen);
    }

    /// Says that it is waited for, instead of failing: what is missing may still come.
    pub(crate) fn say_waiting(&self, screen: &Screen) {
        let Self::Told { message, .. } = self else { return };
        screen.say(&format!("{} yet: waiting for it (Ctrl-C stops)", shown(message)));
        self.tell_hints(screen);
    }

    fn tell_hints(&self, screen: &Screen) {
        let Self::Told { hints, .. } = self else { return };
        for hint in hints {
            screen.say(&format!("{} {}", screen.talk.cyan("hint:"), shown(hint)));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // Damaged bytes are not a failure of the command: it found them.
        let exit = if error.remedy() == Remedy::RestoreData { Exit::Lost } else { Exit::Failed };
        let hint = hint_for(&error);
        let message = match &error {
            // Its fix is the hint.
            Error::BadInput { field, value, .. } => format!("{field} {value}"),
            other => other.to_string(),
        };
        Self::new(message).hint(hint).with_exit(exit)
    }
}

/// Writing to stdout failed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ReaderGone;
        }
        Self::io("write to", "stdout", &error)
    }
}

/// What to do next about an error of the store.
pub(crate) fn hint_for(error: &Error) -> String {
    match error {
        Error::Io { source, .. } | Error::Stalled { source, .. } => {
            io_hint(source).unwrap_or("look at the disk (`dmesg`, `df`), then try again").to_owned()
        }
        Error::DiskFull { .. } => "make room on the disk, then try again: recording continues by itself".to_owned(),
        Error::Vanished { .. } => {
            "find out what deleted it; open the store again to record to a new one in its place".to_owned()
        }
        Error::EarlierFailed(cause) => hint_for(cause),
        Error::BadInput { fix, .. } => fix.clone(),
        Error::NotAStore { .. } => {
            "name a store, or set KEEPSTEP_STORE; `keepstep demo` makes one to look at".to_owned()
        }
        Error::Pruned { .. } => "name another; `keepstep ls` shows what is there".to_owned(),
        Error::NotFound { .. } | Error::Unknown { .. } => "`keepstep ls` shows what is there".to_owned(),
        Error::ConfigChanged { .. } => "record under another name, or with the config that the run began with".to_owned(),
        Error::LevelOutOfReach { .. } => "`keepstep doctor` says which levels can be reached where".to_owned(),
        Error::NewerFormat { .. } => "use the keepstep that wrote it, or a newer one".to_owned(),
        Error::Damaged { .. } => {
            "`keepstep verify` finds all damage and says what it cost; `keepstep verify --heal` looks for copies".to_owned()
        }
        other => by_remedy(other.remedy()).to_owned(),
    }
}

fn by_remedy(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Retry => "try again: the cause may have gone",
        Remedy::Reopen => "open the store again",
        Remedy::FixInput => "change what you gave it, then try again",
        Remedy::Stop => "stop here: this episode is over, or another process owns it",
        Remedy::RestoreData => "restore the data from a copy, or continue without it",
    }
}

/// What to do about an error of the operating system, if that is known.
fn io_hint(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::NotFound => "check the path, or create the directory",
        io::ErrorKind::PermissionDenied => "check who may write there, or name another directory",
        io::ErrorKind::ReadOnlyFilesystem => {
            "it is mounted read-only: mount it for writing, or name another directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on the disk, then try again",
        io::ErrorKind::FileTooLarge => "a limit on file sizes was reached (`ulimit -f`): raise it",
        io::ErrorKind::NotADirectory => "name a directory",
        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            "the disk reports an error of its own: look at `dmesg`, save what is there, then try again"
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "too many files are open in this process (`ulimit -n`): raise the limit"
        }
        _ => return None,
    })
}
