//! Notes without a target: older versions recorded notes on episodes, attempts or steps that never existed.

use std::collections::BTreeMap;

use keepstep_format::Id;

use crate::error::{Result, or_told};
use crate::read::{Catalog, NoteKey, NoteTarget};
use crate::segment::chain::read_claim;
use crate::store::Store;
use crate::store::note::addressee::has_step;
use crate::store::run::Generation;
use crate::store::view::listing::Listed;

/// A note that no reader of an episode ever sees.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OrphanNote {
    /// The run that it was made in.
    pub run: String,
    /// The generation of that run.
    pub generation: Generation,
    /// What it is about.
    pub target: NoteTarget,
    /// Its name.
    pub name: String,
    /// Who gave it.
    pub source: String,
    /// Which part of its target does not exist.
    pub why: String,
}

impl Store {
    /// All notes on episodes, attempts or steps that are not in the store. Notes on pruned episodes are not included.
    pub fn orphan_notes(&self) -> Result<Vec<OrphanNote>> {
        let mut catalog = self.catalog()?;
        let mut episodes: BTreeMap<Id, Vec<Listed>> = BTreeMap::new();
        for listed in self.list(&mut catalog)? {
            episodes.entry(listed.key.episode).or_default().push(listed);
        }
        let mut orphans = Vec::new();
        // A damaged card is reported elsewhere.
        for run in self.runs()?.into_iter().flatten() {
            let generation = Generation::from(&run);
            let notes = self.notes(run.generation_id)?;
            for (NoteKey { target, name, source }, _) in notes.notes().iter() {
                let attempts = episodes.get(&target.episode).map_or(&[][..], |attempts| attempts);
                if let Some(why) = self.what_is_missing(&catalog, target, attempts)? {
                    let (run, target, name) = (run.name.clone(), *target, name.clone());
                    orphans.push(OrphanNote { run, generation, target, name, source: source.clone(), why });
                }
            }
        }
        Ok(orphans)
    }

    fn what_is_missing(
        &self,
        catalog: &Catalog,
        target: &NoteTarget,
        attempts: &[Listed],
    ) -> Result<Option<String>> {
        if attempts.is_empty() {
            let is_known = catalog.manifest().pruned(&target.episode).is_some()
                || match read_claim(self.cards(), &target.episode, 0) {
                    // It was begun, and nothing was recorded, or nothing is left.
                    Ok(claim) => claim.is_some(),
                    Err(error) if error.is_of_one_file() => true,
                    Err(error) => return Err(error),
                };
            return Ok((!is_known).then(|| "there is no such episode".to_owned()));
        }
        let is_meant = |it: &&Listed| target.attempt.is_none_or(|attempt| attempt == it.key.attempt);
        let meant: Vec<&Listed> = attempts.iter().filter(is_meant).collect();
        if meant.is_empty() {
            return Ok(target.attempt.map(|attempt| format!("it has no attempt {attempt}")));
        }
        let Some(step) = target.step else { return Ok(None) };
        for listed in meant {
            if step < listed.summary.steps {
                return Ok(None);
            }
            // If the episode cannot be read, the note is not reported; the damage is reported elsewhere.
            let has_it = self.view_of(catalog, &listed.key).and_then(|view| has_step(&view, step));
            if or_told(has_it)?.0 != Some(false) {
                return Ok(None);
            }
        }
        Ok(Some(format!("it has no step {step}")))
    }
}
