//! Checks the size of a group: with a size that is too small, the seal would leave out samples for ever.

use crate::counted;
use crate::error::{Doing, Error, Result};
use crate::segment::chain::claim_path;
use crate::store::group::{Group, GroupView};

impl Group {
    /// Refuses a size that differs from the plan, or that leaves out a sample that has begun.
    pub(in crate::store) fn check_size(&self) -> Result<()> {
        let name = self.name(self.size as i64);
        let planned = {
            let plan_cache = self.run.plan_cache();
            let mut plan = plan_cache.plan();
            plan.refresh(&self.run)?;
            plan.samples_of(&name.task, name.iteration)
        };
        if let Some(planned) = planned.filter(|planned| *planned as usize != self.size) {
            let are = if planned == 1 { "is" } else { "are" };
            let said = format!("{} of it {are} planned", counted(planned.into(), "sample"));
            return Err(self.other_size(&said, &format!("give size={planned}, or plan as many")));
        }
        let first = claim_path(&self.run.episode_id(&name), 0);
        if self.run.store().disk().exists(&first).doing("look for", &first)? {
            let (at, least) = (self.size, self.size + 1);
            let said = format!("sample {at} of it has begun, so it has {least} or more");
            return Err(self.other_size(&said, "give the size that it was claimed with"));
        }
        Ok(())
    }

    /// Refuses a size that differs from the sealed one.
    pub(in crate::store) fn check_sealed_size(&self, sealed: &GroupView) -> Result<()> {
        let size = sealed.members.len() + sealed.missing.len();
        if size == self.size {
            return Ok(());
        }
        Err(self.other_size(&format!("it was sealed with {size}"), &format!("give size={size}")))
    }

    fn other_size(&self, said: &str, fix: &str) -> Error {
        let value = format!("of {} is {}, and {said}", self.shown(), self.size);
        Error::BadInput { field: "size".to_owned(), value, fix: fix.to_owned() }
    }
}
