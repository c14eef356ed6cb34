//! Decides what to do if an interrupted episode was recorded under another policy.

use crate::counted;
use crate::error::{Error, Result};
use crate::read::Lineage;
use crate::store::episode::opening::Opener;
use crate::store::episode::options::{NewPolicy, Opening, PolicyName, Resume};
use crate::store::episode::retry::check_retry;

impl Opening {
    /// An error if the options contradict one another.
    pub(in crate::store) fn check(&self) -> Result<()> {
        check_retry(&self.retry)?;
        if self.new_policy == NewPolicy::Continue || self.policy.is_some() {
            return Ok(());
        }
        Err(Error::BadInput {
            field: "new_policy".to_owned(),
            value: format!("is {:?}, and `policy` is not given", self.new_policy),
            fix: "give the policy that resumes, so that it can be compared".to_owned(),
        })
    }
}

impl Opener<'_> {
    /// True if the attempt inherits nothing.
    pub(in crate::store) fn restarts(&self, lineage: &mut Lineage) -> Result<bool> {
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
        let why =
            format!("it has {steps} under policy {theirs}, and resuming under policy {mine} is refused");
        Err(Error::ResumeRefused { what: self.what(), why })
    }

    /// The policy that the newest inherited step names. A pending turn counts as a step.
    fn newest_policy(&self, lineage: &mut Lineage) -> Result<Option<PolicyName>> {
        if self.how.at.is_none()
            && let Some(policy) = lineage.pending()?.and_then(|turn| turn.policy)
        {
            return Ok(Some(PolicyName::from(&policy)));
        }
        let steps = self.how.at.unwrap_or(u64::MAX).min(lineage.steps());
        let Some(newest) = steps.checked_sub(1) else { return Ok(None) };
        match lineage.step(newest) {
            // Reading the step reports the damage.
            Err(Error::Damaged { .. }) => Ok(None),
            step => Ok(step?.policy.as_ref().map(PolicyName::from)),
        }
    }
}
