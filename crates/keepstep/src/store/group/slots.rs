//! Hands out the slots of a group that need work, to many threads and processes.
//!
//! A slot is taken by opening its episode, so the claim alone decides who has it; a worker that loses a race tries
//! the next slot. `None` means that all slots were looked at and none was free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::store::episode::Episode;
use crate::store::episode::opening::{Free, Opener, SOON_MAX, SOON_STEP, WAIT_STEP};
use crate::store::episode::options::{Opening, WhenBusy};
use crate::store::group::Group;

/// A sample, and its next attempt.
pub(in crate::store) type Slot = (i64, u32);

/// What one handle of a group knows.
#[derive(Debug, Default)]
pub(in crate::store) struct Given {
    /// What it opened, and as which attempt: without this, a slot that was left would come back for ever.
    opened: Mutex<BTreeMap<Id, u32>>,
    /// Samples whose claim says no size, which stays so: they need not be asked again.
    have_no_size: Mutex<BTreeSet<i64>>,
}

impl Given {
    fn has(&self, episode: &Id, attempt: u32) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(episode).is_some_and(|opened| *opened >= attempt)
    }

    fn add(&self, episode: Id, attempt: u32) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(episode, attempt);
    }

    pub(super) fn has_no_size(&self, sample: i64) -> bool {
        self.have_no_size.lock().unwrap_or_else(PoisonError::into_inner).contains(&sample)
    }

    pub(super) fn note_no_size(&self, sample: i64) {
        self.have_no_size.lock().unwrap_or_else(PoisonError::into_inner).insert(sample);
    }
}

/// What a look at all slots found.
#[derive(Default)]
struct Slots {
    /// Both by sample.
    interrupted: Vec<Slot>,
    new: Vec<Slot>,
    /// The error of a slot that cannot be read. It is returned if no other slot is free.
    trouble: Option<Error>,
    /// True if an end is written that is not known to be synced yet.
    is_any_soon: bool,
    is_any_busy: bool,
}

impl Group {
    /// Opens the next slot that needs work: an interrupted one, otherwise a new one. `None` if all have a final end
    /// or are recorded by other processes, or if the group is sealed.
    ///
    /// Many workers may call this at once; no two get the same slot. A slot that this handle opened and that was left
    /// without a final end comes again only with another handle. With [`WhenBusy::Wait`] it waits for slots that
    /// other processes record.
    pub fn claim(&self, how: &Opening) -> Result<Option<Episode>> {
        self.run.store().check_open()?;
        how.check()?;
        if how.busy == WhenBusy::Take {
            return Err(Error::BadInput {
                field: "busy".to_owned(),
                value: "is take, and workers of a group would take slots from one another".to_owned(),
                fix: "open the one sample by its name to take it over".to_owned(),
            });
        }
        if let Some(sealed) = self.sealed()? {
            return self.check_sealed_size(&sealed).map(|()| None);
        }
        let disk = self.run.store().disk();
        let started_us = disk.uptime_us();
        loop {
            let waited = Duration::from_micros((disk.uptime_us() - started_us).max(0) as u64);
            let slots = self.look(how)?;
            // After the look: a claim that it did not see is for a slot that is tried here first.
            self.check_size(&slots.new)?;
            for (at, &(sample, attempt)) in slots.interrupted.iter().chain(&slots.new).enumerate() {
                if let Some(episode) = self.try_slot(sample, attempt, how)? {
                    return Ok(Some(episode));
                }
                // Whoever was faster may have claimed it with another size.
                let tried = (at + 1).saturating_sub(slots.interrupted.len());
                self.check_size(&slots.new[tried..])?;
            }
            match how.busy {
                // All free slots were lost to other workers; there may be more.
                _ if !slots.interrupted.is_empty() || !slots.new.is_empty() => {}
                _ if slots.is_any_soon && waited < SOON_MAX => disk.sleep(SOON_STEP),
                WhenBusy::Wait(patience) if slots.is_any_busy && waited < patience => disk.sleep(WAIT_STEP),
                _ => return slots.trouble.map_or(Ok(None), Err),
            }
        }
    }

    fn opener(&self, sample: i64, how: &Opening) -> Result<Opener<'_>> {
        let name = self.name(sample);
        let opener = Opener::new(&self.run, self.run.episode_id(&name), name, how.clone())?;
        Ok(opener.in_a_group_of(self.size))
    }

    fn look(&self, how: &Opening) -> Result<Slots> {
        let mut slots = Slots::default();
        self.run.store().show();
        for sample in 0..self.size as i64 {
            let opener = self.opener(sample, how)?;
            if self.run.store().pruned(&opener.id)?.is_some() {
                continue;
            }
            if self.run.store().open_episodes().is_taken(&opener.id) {
                slots.is_any_busy = true;
                continue;
            }
            let found = match opener.look() {
                Err(error @ Error::Damaged { .. }) => {
                    slots.trouble.get_or_insert(error);
                    continue;
                }
                found => found?,
            };
            match found {
                Free::New => slots.new.push((sample, 0)),
                Free::Interrupted { attempt } if self.given.has(&opener.id, attempt - 1) => {}
                Free::Interrupted { .. } if opener.leaves_the_interrupted() => {}
                Free::Interrupted { attempt } => slots.interrupted.push((sample, attempt)),
                Free::Soon => slots.is_any_soon = true,
                Free::Busy => slots.is_any_busy = true,
                Free::Over => {}
            }
        }
        Ok(slots)
    }

    /// `None` if another process has it by now.
    fn try_slot(&self, sample: i64, attempt: u32, how: &Opening) -> Result<Option<Episode>> {
        let opener = self.opener(sample, how)?;
        // Another caller of this process has reserved it, and is opening it now.
        let reservation = match self.run.store().open_episodes().take(opener.id, &opener.what()) {
            Err(Error::Busy { .. }) => return Ok(None),
            reservation => reservation?,
        };
        let opened = match opener.open_if_free(reservation) {
            // It ended or was pruned since the look; or it was recorded under another policy, and must be left alone.
            Err(Error::Ended { .. } | Error::ResumeRefused { .. } | Error::Pruned { .. }) => {
                self.given.add(opener.id, attempt);
                return Ok(None);
            }
            // Reported once: it must not keep the other slots from being used.
            Err(error @ Error::Damaged { .. }) => {
                self.given.add(opener.id, attempt);
                return Err(error);
            }
            opened => opened?,
        };
        if let Some(episode) = &opened {
            self.given.add(opener.id, episode.attempt());
        }
        Ok(opened)
    }
}
