//! How an attempt can end: every reason, and what follows from each. Reasons of a later version are read as text.

use std::fmt;

/// Why an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// It reached its end.
    Finished,
    /// A limit was reached: of steps, of tokens, of time.
    Truncated,
    /// The caller gave it up.
    Abandoned,
    /// Its process was asked to stop, or left it without an end.
    Aborted,
    /// Something failed.
    Errored,
    /// Its task was cancelled.
    Cancelled,
    /// Its process died without recording an end.
    Crashed,
    /// Another process took it over while its owner was alive.
    Superseded,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Finished,
        Self::Truncated,
        Self::Abandoned,
        Self::Aborted,
        Self::Errored,
        Self::Cancelled,
        Self::Crashed,
        Self::Superseded,
    ];

    /// Its name, as it is recorded.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Truncated => "truncated",
            Self::Abandoned => "abandoned",
            Self::Aborted => "aborted",
            Self::Errored => "errored",
            Self::Cancelled => "cancelled",
            Self::Crashed => "crashed",
            Self::Superseded => "superseded",
        }
    }

    /// The reason of this name; `None` for one of a later version.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.name() == name)
    }

    /// True if the episode is over after an attempt with this ending, unless the caller asks for more.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Finished | Self::Truncated => true,
            Self::Abandoned
            | Self::Aborted
            | Self::Errored
            | Self::Cancelled
            | Self::Crashed
            | Self::Superseded => false,
        }
    }

    /// True if another attempt can resume after this ending: by default, or on request.
    pub const fn is_resumable(self) -> bool {
        match self {
            Self::Finished => false,
            Self::Truncated
            | Self::Abandoned
            | Self::Aborted
            | Self::Errored
            | Self::Cancelled
            | Self::Crashed
            | Self::Superseded => true,
        }
    }

    /// True if the process that records may give it. The others are found by other processes.
    pub const fn is_said(self) -> bool {
        match self {
            Self::Finished
            | Self::Truncated
            | Self::Abandoned
            | Self::Aborted
            | Self::Errored
            | Self::Cancelled => true,
            Self::Crashed | Self::Superseded => false,
        }
    }

    /// The names of the reasons for which this holds, for a message.
    pub fn names(holds: impl Fn(Self) -> bool) -> String {
        let names: Vec<&str> =
            Self::ALL.into_iter().filter(|why| holds(*why)).map(|why| why.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

impl AsRef<str> for Why {
    fn as_ref(&self) -> &str {
        self.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for why in Why::ALL {
            assert_eq!(Why::named(why.name()), Some(why));
        }
        assert_eq!(Why::named("Finished"), None);
        assert_eq!(Why::named("of a later version"), None);
    }

    #[test]
    fn what_is_final_is_said_and_what_is_found_is_resumable() {
        for why in Why::ALL {
            assert!(!why.is_final() || why.is_said(), "{why}");
            assert!(why.is_said() || why.is_resumable(), "{why}");
        }
        assert_eq!(Why::names(Why::is_final), "finished, truncated");
    }
}
