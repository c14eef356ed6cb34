//! How an episode is opened.

use std::time::Duration;

use keepstep_format::value::Value;

use crate::store::episode::Ending;

/// What an interrupted episode does when it is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resume {
    /// Goes on from its durable steps.
    #[default]
    Continue,
    /// Begins a new attempt from nothing; the old one stays readable.
    Restart,
    /// Is left alone.
    Refuse,
}

/// What it means that a live process owns the episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// An error that names the owner.
    #[default]
    Raise,
    /// Wait until the owner is done or gone, for at most so long.
    Wait(Duration),
    /// Take it over: the owner's next call fails.
    Take,
}

/// How an episode is opened.
///
/// ```
/// use keepstep::{Opening, WhenBusy};
///
/// let opening = Opening::default().busy(WhenBusy::Take).retry(["truncated"]);
/// assert_eq!(opening.busy, WhenBusy::Take);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Opening {
    /// What to do if it was interrupted.
    pub resume: Resume,
    /// How many steps to inherit, FIRST counted; all that are durable if not said.
    pub at: Option<u64>,
    /// What to do if somebody else owns it.
    pub busy: WhenBusy,
    /// Which policy goes on. Only compared with what is recorded: each step says its own.
    pub policy: Option<PolicyName>,
    /// What to do if it was interrupted under another policy than that.
    pub new_policy: NewPolicy,
    /// Endings that are gone on from although they are final: `truncated`, as long as its group is not sealed.
    pub retry: Vec<String>,
    /// What it belongs to.
    pub parent: Option<String>,
    /// Anything to keep along.
    pub meta: Option<Value>,
}

impl Opening {
    /// Sets what to do if the episode was interrupted.
    pub fn resume(mut self, resume: Resume) -> Self {
        self.resume = resume;
        self
    }

    /// Sets how many steps to inherit, FIRST counted; `None` is all that are durable.
    pub fn at(mut self, steps: impl Into<Option<u64>>) -> Self {
        self.at = steps.into();
        self
    }

    /// Sets what to do if somebody else owns the episode.
    pub fn busy(mut self, busy: WhenBusy) -> Self {
        self.busy = busy;
        self
    }

    /// Sets which policy goes on.
    pub fn policy(mut self, policy: impl Into<PolicyName>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets what to do if the episode was interrupted under another policy than that.
    pub fn new_policy(mut self, new_policy: NewPolicy) -> Self {
        self.new_policy = new_policy;
        self
    }

    /// Sets which endings are gone on from although they are final.
    pub fn retry(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.retry = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what the episode belongs to.
    pub fn parent(mut self, parent: impl Into<String>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    /// Sets what is kept along with the episode.
    pub fn meta(mut self, meta: impl Into<Value>) -> Self {
        self.meta = Some(meta.into());
        self
    }
}

impl Ending {
    /// Sets which limit was reached.
    pub fn limit(mut self, limit: impl Into<String>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// Sets what was raised: a map of type, message and traceback, or a text.
    pub fn error(mut self, error: impl Into<Value>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// Sets who says how it ended.
    pub fn said_by(mut self, who: impl Into<String>) -> Self {
        self.said_by = Some(who.into());
        self
    }
}

/// The version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// By number.
    Number(i64),
    /// By name.
    Name(String),
}

impl From<&Value> for PolicyName {
    /// What is recorded is one of the two.
    fn from(recorded: &Value) -> Self {
        let name = || Self::Name(recorded.as_str().unwrap_or_default().to_owned());
        recorded.as_int().map_or_else(name, Self::Number)
    }
}

impl From<i64> for PolicyName {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for PolicyName {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for PolicyName {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl std::fmt::Display for PolicyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

/// What an interrupted episode does whose newest step was acted by another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewPolicy {
    /// Goes on: its steps say which policy each was acted by.
    #[default]
    Continue,
    /// Begins a new attempt from nothing; the old one stays readable.
    Restart,
    /// Is left alone.
    Refuse,
}
