//! How an episode is opened.

use std::time::Duration;

use keepstep_format::value::Value;

use crate::store::episode::Ending;

/// What to do with an interrupted episode when it is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resume {
    /// Resume after its durable steps.
    #[default]
    Continue,
    /// Begin a new attempt without any inherited step. The old one stays readable.
    Restart,
    /// Refuse, and leave it as it is.
    Refuse,
}

/// What to do if a live process owns the episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// Return an error that names the owner.
    #[default]
    Raise,
    /// Wait until the owner is done or dead, for at most this time.
    Wait(Duration),
    /// Take it over: the owner's next call fails with [`crate::Error::Fenced`].
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
    /// How many steps to inherit, FIRST included. The default is all durable steps.
    pub at: Option<u64>,
    /// What to do if another process owns it.
    pub busy: WhenBusy,
    /// The policy that records now. It is only compared with the recorded steps; each step names its own.
    pub policy: Option<PolicyName>,
    /// What to do if the newest step names another policy.
    pub new_policy: NewPolicy,
    /// Final endings after which to resume: `truncated`, if its group is not sealed.
    pub retry: Vec<String>,
    /// What the episode belongs to.
    pub parent: Option<String>,
    /// Any other data to record with the episode.
    pub meta: Option<Value>,
}

impl Opening {
    /// Sets what to do if the episode was interrupted.
    pub fn resume(mut self, resume: Resume) -> Self {
        self.resume = resume;
        self
    }

    /// Sets how many steps to inherit, FIRST included. `None` is all durable steps.
    pub fn at(mut self, steps: impl Into<Option<u64>>) -> Self {
        self.at = steps.into();
        self
    }

    /// Sets what to do if another process owns the episode.
    pub fn busy(mut self, busy: WhenBusy) -> Self {
        self.busy = busy;
        self
    }

    /// Sets the policy that records now.
    pub fn policy(mut self, policy: impl Into<PolicyName>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets what to do if the newest step names another policy.
    pub fn new_policy(mut self, new_policy: NewPolicy) -> Self {
        self.new_policy = new_policy;
        self
    }

    /// Sets the final endings after which to resume.
    pub fn retry(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.retry = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what the episode belongs to.
    pub fn parent(mut self, parent: impl Into<String>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    /// Sets other data to record with the episode.
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

    /// Sets who recorded the end.
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
    /// The policy version as a step records it: a number, or a name.
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

/// What to do with an interrupted episode whose newest step names another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewPolicy {
    /// Resume: each step names the policy that acted in it.
    #[default]
    Continue,
    /// Begin a new attempt without any inherited step. The old one stays readable.
    Restart,
    /// Refuse, and leave it as it is.
    Refuse,
}
