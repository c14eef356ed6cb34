//! Checks that the target of a note exists. It reads the claims of the episode, and for a step its attempt. The whole
//! store is read only if the episode has no name.

use std::sync::{Mutex, PoisonError};

use keepstep_format::Id;

use crate::counts::numbered;
use crate::error::{Error, Result};
use crate::read::NoteTarget;
use crate::segment::chain::{Chain, Link};
use crate::store::run::{Run, RunInfo};
use crate::store::view::View;

/// The last attempt that was checked, and how many steps it has at least: notes on steps often come one after
/// another.
#[derive(Default)]
pub(in crate::store) struct Seen(Mutex<Option<(Id, Option<u32>, u64)>>);

impl Seen {
    fn knows(&self, target: &NoteTarget, step: u64) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(episode, attempt, steps): (Id, Option<u32>, u64)| {
            episode == target.episode && attempt == target.attempt && step < steps
        };
        seen.is_some_and(same)
    }

    fn note(&self, target: &NoteTarget, steps: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((target.episode, target.attempt, steps));
    }
}

impl Run {
    /// An error if the target of a note does not exist: an episode that never began or is gone, or an attempt or a
    /// step that it does not have. `called` is the caller's name for it.
    pub fn check_note_target(&self, target: &NoteTarget, called: &str) -> Result<()> {
        let store = self.store();
        if store.options().is_broken_note_without_look() {
            return Ok(());
        }
        store.refuse_pruned(&target.episode).map_err(|error| error.of(called))?;
        let links = match Chain::read(store.cards(), &target.episode) {
            Ok(chain) => chain.links,
            // Damaged claims are no answer; the logs are searched instead.
            Err(Error::Damaged { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let generation_id = links.first().and_then(|link| link.claim.generation_id);
        let attempts = match links.is_empty() {
            true => self.attempts_without_claims(target, called)?,
            false => links.iter().filter(|link| link.is_in_force()).map(|link| link.claim.attempt).collect(),
        };
        if generation_id.is_some_and(|generation_id| generation_id != self.generation_id()) {
            return Err(self.is_elsewhere(called, generation_id)?);
        }
        if let Some(wanted) = target.attempt.filter(|wanted| !attempts.contains(wanted)) {
            let whole = called.split_once('~').map_or(called, |(whole, _)| whole);
            let what = format!("attempt {wanted} of {whole}");
            let mut numbers: Vec<u64> = attempts.into_iter().map(u64::from).collect();
            numbers.sort_unstable();
            return Err(Error::Unknown { what, hint: numbered("attempt", &numbers) });
        }
        match target.step {
            Some(step) => self.check_step(target, step, &links, called),
            None => Ok(()),
        }
    }

    /// Finds an episode in the logs: one without a name, or one whose claims cannot be read.
    fn attempts_without_claims(&self, target: &NoteTarget, called: &str) -> Result<Vec<u32>> {
        let store = self.store();
        if store.open_episodes().recorder(&target.episode).is_some() {
            return Ok(vec![0]);
        }
        let listed = match store.look_up(&target.episode).map(|(_, listed)| listed) {
            Err(Error::NotFound { .. }) => return Err(Error::NotFound { what: called.to_owned() }),
            listed => listed?,
        };
        let births = listed.iter().filter_map(|it| it.summary.generation_id);
        if let Some(other) = births.clone().find(|generation_id| *generation_id != self.generation_id()) {
            return Err(self.is_elsewhere(called, Some(other))?);
        }
        Ok(listed.iter().map(|it| it.key.attempt).collect())
    }

    fn is_elsewhere(&self, called: &str, generation_id: Option<Id>) -> Result<Error> {
        let mut runs = self.store().runs()?.into_iter().flatten();
        let of = runs.find(|run| Some(run.generation_id) == generation_id);
        // Two generations of one name are told apart by their numbers.
        let is_namesake = of.as_ref().is_some_and(|of| of.name == self.name());
        let name_of = |info: &RunInfo| match is_namesake {
            true => format!("run '{}', generation {}", info.name, info.generation),
            false => format!("run '{}'", info.name),
        };
        let of = of.as_ref().map_or_else(|| "another run".to_owned(), name_of);
        let hint = format!("it is of {of}; this is {}", name_of(self.info()));
        Ok(Error::Unknown { what: format!("{called}, as an episode of this run,"), hint })
    }

    fn check_step(&self, target: &NoteTarget, step: u64, links: &[Link], called: &str) -> Result<()> {
        let store = self.store();
        // The recorder knows more than the log: some steps may still be in flight.
        if let Some(recorder) = store.open_episodes().recorder(&target.episode)
            && target.attempt.is_none_or(|attempt| attempt == recorder.attempt())
            && recorder.has_step(step)
        {
            return Ok(());
        }
        let seen = &store.inner.notes.seen;
        if seen.knows(target, step) {
            return Ok(());
        }
        let newest = store.view(&target.episode)?;
        let view = match target.attempt {
            Some(attempt) if attempt != newest.number() => newest.attempt(attempt)?,
            _ => newest,
        };
        if has_step(&view, step)? {
            seen.note(target, view.steps());
            return Ok(());
        }
        // Without an attempt, any attempt that has the step is enough: an earlier one may have steps that the newest
        // does not have.
        if target.attempt.is_none() {
            for link in links.iter().filter(|link| link.is_in_force() && link.claim.attempt != view.number())
            {
                if has_step(&view.attempt(link.claim.attempt)?, step)? {
                    return Ok(());
                }
            }
        }
        let hint = match view.steps() {
            0 => "it has no step yet".to_owned(),
            1 => "it has 1 step, number 0".to_owned(),
            steps => format!("it has {steps} steps, from 0 to {}", steps - 1),
        };
        Err(Error::Unknown { what: format!("step {step} of {called}"), hint })
    }
}

/// True if an attempt has this step, or a turn without a result of this number. Also true if records are missing: the
/// step may have been among them.
pub(in crate::store) fn has_step(view: &View, step: u64) -> Result<bool> {
    if step < view.steps() || !view.missing().is_empty() {
        return Ok(true);
    }
    Ok(view.pending()?.is_some_and(|pending| u64::try_from(pending.index) == Ok(step)))
}
