//! What an episode does that is half-done under another policy than the one that goes on.

use keepstep_format::value::Value;

use super::opening::{Opener, Opening, Resume};
use super::retry::check_retry;
use crate::counted;
use crate::error::{Error, Result};
use crate::read::Lineage;

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

impl Opening {
    /// An error if what it says does not fit together.
    pub(super) fn check(&self) -> Result<()> {
        check_retry(&self.retry)?;
        if self.new_policy == NewPolicy::Continue || self.policy.is_some() {
            return Ok(());
        }
        Err(Error::BadInput {
            field: "new_policy".to_owned(),
            value: format!("is {:?}, and `policy` is not said", self.new_policy),
            fix: "say which policy goes on, so that it can be compared".to_owned(),
        })
    }
}

impl Opener<'_> {
    /// True if the attempt inherits nothing of what is there.
    pub(super) fn restarts(&self, lineage: &mut Lineage) -> Result<bool> {
        let Opening { resume, new_policy, ref policy, .. } = self.how;
        let Some(mine) = policy.as_ref().filter(|_| new_policy != NewPolicy::Continue) else {
            return Ok(resume == Resume::Restart);
        };
        if resume == Resume::Restart {
            return Ok(true);
        }
        let Some(theirs) = self.newest_policy(lineage)?.filter(|theirs| theirs != mine) else {
            return Ok(false);
        };
        if new_policy == NewPolicy::Restart {
            return Ok(true);
        }
        let steps = counted(lineage.steps(), "step");
        let why = format!(
            "interrupted after {steps} under policy {theirs}, and going on under policy {mine} is refused"
        );
        Err(Error::Ended { what: self.what(), why })
    }

    /// The policy that the newest step names of those that would be inherited; a turn that waits for its result counts.
    fn newest_policy(&self, lineage: &mut Lineage) -> Result<Option<PolicyName>> {
        if self.how.at.is_none()
            && let Some(policy) = lineage.pending()?.and_then(|turn| turn.policy)
        {
            return Ok(Some(PolicyName::from(&policy)));
        }
        let steps = self.how.at.unwrap_or(u64::MAX).min(lineage.steps());
        let Some(newest) = steps.checked_sub(1) else { return Ok(None) };
        match lineage.step(newest) {
            // Whoever inherits it is told of the damage.
            Err(Error::Damaged { .. }) => Ok(None),
            step => Ok(step?.policy.as_ref().map(PolicyName::from)),
        }
    }
}
