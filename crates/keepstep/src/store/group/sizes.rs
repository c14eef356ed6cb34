//! Checks the size of a group: with a size that is too small, the seal would leave out samples for ever.

use crate::counted;
use crate::error::{Doing, Error, Result, or_told};
use crate::segment::chain::{Claim, claim_path, read_claim};
use crate::store::group::slots::Slot;
use crate::store::group::{Group, GroupView};

impl Group {
    /// Refuses a size that differs from the plan, or from the one that the group was claimed with, or that leaves out
    /// a sample that has begun. Claiming and sealing ask the same, so that a group can be sealed with the one size that
    /// it can be claimed with. `free` are samples that are known to have no claim.
    pub(in crate::store) fn check_size(&self, free: &[Slot]) -> Result<()> {
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
        let claimed = if planned.is_none() { self.claimed_size(free)? } else { None };
        if let Some((sample, size)) = claimed {
            if size == self.size as u64 {
                return Ok(());
            }
            let said = format!("sample {sample} of it was claimed in a group of {size}");
            return Err(self.other_size(&said, &format!("give size={size}")));
        }
        let first = claim_path(&self.run.episode_id(&name), 0);
        if self.run.store().disk().exists(&first).doing("look for", &first)? {
            let (at, least) = (self.size, self.size + 1);
            let said = format!("sample {at} of it has begun, so it has {least} or more");
            return Err(self.other_size(&said, "give the size that it was claimed with"));
        }
        Ok(())
    }

    /// The size that the group was claimed with, and the sample that says so. Workers with different sizes may claim at
    /// the same moment, so one sample decides: the lowest that was claimed in a group, and not opened by its name.
    fn claimed_size(&self, free: &[Slot]) -> Result<Option<(i64, u64)>> {
        for sample in 0..self.size as i64 {
            let is_free = free.binary_search_by_key(&sample, |slot| slot.0).is_ok();
            if is_free || self.given.has_no_size(sample) {
                continue;
            }
            let claim = read_claim(self.run.store().cards(), &self.run.episode_id(&self.name(sample)), 0);
            // A claim that cannot be read is reported with its sample.
            match or_told(claim)?.0.flatten() {
                Some(Claim { group_size: Some(size), .. }) => return Ok(Some((sample, size))),
                Some(_) => self.given.note_no_size(sample),
                None => {}
            }
        }
        Ok(None)
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
