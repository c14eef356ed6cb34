//! Resumes an episode that ended as `truncated`, on request.
//!
//! Only while its group is not sealed: a seal names the attempts that count, and never changes. The taker looks for a
//! seal before it claims, so that a refusal costs nothing, and again before it publishes its base. A sealer that
//! finds the claim waits for the outcome. A sealer that looked before the claim seals the attempt that it saw, which
//! is whole.

use keepstep_format::{Why, ids};

use crate::error::{Error, Result};
use crate::store::episode::opening::Opener;
use crate::store::name::EpisodeName;
use crate::store::run::Run;

/// An error if one of these endings cannot be resumed. Endings that are resumed anyway may be named too.
pub(in crate::store) fn check_retry(retry: &[String]) -> Result<()> {
    match retry.iter().find(|why| !Why::named(why).is_some_and(Why::is_resumable)) {
        None => Ok(()),
        Some(why) => Err(Error::BadInput {
            field: "retry".to_owned(),
            value: format!("has {why:?}"),
            fix: format!("give some of {}; finished is final", Why::names(Why::is_resumable)),
        }),
    }
}

/// True if this ending is final, and the caller asked to resume after it.
pub(in crate::store) fn goes_on_behind(retry: &[String], why: &str) -> bool {
    why == Why::Truncated.name() && retry.iter().any(|wanted| wanted == why)
}

impl Run {
    /// True if the group of an episode was sealed.
    pub(in crate::store) fn is_sealed_with(&self, name: &EpisodeName) -> Result<bool> {
        let group = ids::group(&self.generation_id(), &name.task, name.iteration);
        Ok(self.sealed_group(&group)?.is_some())
    }
}

impl Opener<'_> {
    /// Why an episode with this ending is not resumed; `None` if it is.
    pub(in crate::store) fn stays_over(&self, why: &str) -> Result<Option<String>> {
        if !goes_on_behind(&self.how.retry, why) {
            return Ok(Some(why.to_owned()));
        }
        Ok(self.run.is_sealed_with(&self.name)?.then(|| sealed(why)))
    }

    /// For an attempt that is claimed to resume after an end: gives it up again if the group was sealed meanwhile.
    pub(in crate::store) fn refuse_behind_a_seal(&self, attempt: u32) -> Result<()> {
        if !self.run.is_sealed_with(&self.name)? {
            return Ok(());
        }
        self.run.store().pass_over(&self.id, attempt)?;
        Err(Error::Ended { what: self.what(), why: sealed(Why::Truncated.name()) })
    }
}

fn sealed(why: &str) -> String {
    format!("{why}, and its group is sealed: the attempts that a seal names never change")
}
