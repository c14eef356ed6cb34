//! Hands out the slots of a group that need work, to many threads and processes.
//!
//! A slot is taken by opening its episode, so the claim alone decides who has it; a worker that loses a race tries
//! the next slot. `None` means that all slots were looked at and none was free.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keepstep_format::Id;

use crate::error::{Error, Result};
use crate::store::episode::Episode;
use crate::store::episode::opening::{Free, Opener, SOON_MAX, SOON_STEP, WAIT_STEP};
use crate::store::episode::options::{Opening, WhenBusy};
use crate::store::group::Group;

/// What one handle of a group opened, and as which attempt: without this, a slot that was left would come back for
/// ever.
#[derive(Debug, Default)]
pub(in crate::store) struct Given(Mutex<BTreeMap<Id, u32>>);

impl Given {
    fn has(&self, episode: &Id, attempt: u32) -> bool {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.get(episode).is_some_and(|given| *given >= attempt)
    }

    fn add(&self, episode: Id, attempt: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(episode, attempt);
    }
}

/// What a look at all slots found.
#[derive(Default)]
struct Slots {
    /// By sample, with the next attempt.
    interrupted: Vec<(i64, u32)>,
    new: Vec<(i64, u32)>,
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
        self.run.store().check_process()?;
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
        self.check_size()?;
        let disk = self.run.store().disk();
        let started_us = disk.uptime_us();
        loop {
            let waited = Duration::from_micros((disk.uptime_us() - started_us).max(0) as u64);
            let slots = self.look(how)?;
            for &(sample, attempt) in slots.interrupted.iter().chain(&slots.new) {
                if let Some(episode) = self.try_slot(sample, attempt, how)? {
                    return Ok(Some(episode));
                }
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
        Opener::new(&self.run, self.run.episode_id(&name), name, how.clone())
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
            Err(Error::Ended { .. } | Error::Pruned { .. }) => {
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
