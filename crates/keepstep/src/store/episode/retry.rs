//! Going on with what had come to its end, because somebody asks for it: more of what was truncated.
//!
//! Only while its group is not sealed: a seal names the attempts that counted, and never changes. Whoever goes on looks for
//! a seal before its claim, so that what is refused costs nothing, and again before it publishes its base. A sealer that
//! finds the claim waits for what comes of it; one that had looked before seals the attempt that it saw, and that is whole.

use keepstep_format::{Why, ids};

use crate::error::{Error, Result};
use crate::store::episode::opening::Opener;
use crate::store::name::EpisodeName;
use crate::store::run::Run;

/// An error if one of these cannot be tried again. Those that come back anyway may be named all the same.
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

/// True if what ended so is over, and is gone on with all the same.
pub(in crate::store) fn goes_on_behind(retry: &[String], why: &str) -> bool {
    why == Why::Truncated.name() && retry.iter().any(|wanted| wanted == why)
}

impl Run {
    /// True if the group that an episode is a sample of was sealed.
    pub(in crate::store) fn is_sealed_with(&self, name: &EpisodeName) -> Result<bool> {
        let group = ids::group(&self.generation_id(), &name.task, name.iteration);
        Ok(self.sealed_group(&group)?.is_some())
    }
}

impl Opener<'_> {
    /// Why an episode that ended so is not gone on with; nothing if it is.
    pub(in crate::store) fn stays_over(&self, why: &str) -> Result<Option<String>> {
        if !goes_on_behind(&self.how.retry, why) {
            return Ok(Some(why.to_owned()));
        }
        Ok(self.run.is_sealed_with(&self.name)?.then(|| sealed(why)))
    }

    /// The attempt is claimed, to go on behind an end: gives it up again if the group was sealed meanwhile.
    pub(in crate::store) fn refuse_behind_a_seal(&self, attempt: u32) -> Result<()> {
        if !self.run.is_sealed_with(&self.name)? {
            return Ok(());
        }
        self.run.store().pass_over(&self.id, attempt)?;
        Err(Error::Ended { what: self.what(), why: sealed(Why::Truncated.name()) })
    }
}

fn sealed(why: &str) -> String {
    format!(
        "{why}, and its group is sealed: a seal names the attempts that counted, and nothing comes after it"
    )
}
