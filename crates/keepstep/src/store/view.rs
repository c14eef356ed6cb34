//! What counts of an episode, for those who read it.

use std::cell::RefCell;
use std::sync::Arc;

use keepstep_format::Id;

use super::Store;
use super::opening::writers_of;
use super::run::{EpisodeName, Run};
use crate::error::{Error, Result};
use crate::read::{Attempt, Catalog, End, Lineage, LineagePart};
use crate::recover::Recovery;
use crate::segment::chain::{Chain, Link};

/// An episode as it stands: the attempt that counts, with what it inherited.
#[derive(Debug)]
pub struct View {
    store: Store,
    episode: Id,
    chain: Chain,
    lineage: RefCell<Lineage>,
    parts: Vec<LineagePart>,
    attempt: u32,
}

impl Run {
    /// What counts of an episode now.
    pub fn view(&self, name: &EpisodeName) -> Result<View> {
        self.store().view(&self.episode_id(name))
    }
}

impl Store {
    /// What counts of an episode now.
    pub fn view(&self, episode: &Id) -> Result<View> {
        self.show();
        let chain = Chain::read(self.cards(), episode)?;
        let (attempt, lineage) = match chain.in_force() {
            Some(link) => (link.claim.attempt, self.lineage_of(episode, &chain, link)?),
            // Nobody claimed it: one without a name has one attempt, wherever it is.
            None => {
                let catalog = self.catalog()?;
                let what = || Error::NotFound { what: format!("episode {episode}") };
                let key = catalog.attempts_at(episode).last().copied().ok_or_else(what)?;
                (key.attempt, catalog.alone(episode, &key.writer, key.attempt)?)
            }
        };
        let (store, parts) = (self.clone(), lineage.parts().to_vec());
        let lineage = RefCell::new(lineage);
        Ok(View { store, episode: *episode, chain, lineage, parts, attempt })
    }

    /// What counts of an episode up to an attempt: what that one recorded only as far as it is known to be synced.
    fn lineage_of(&self, episode: &Id, chain: &Chain, link: &Link) -> Result<Lineage> {
        let (writers, attempt) = (writers_of(link), link.claim.attempt);
        let mut catalog = Catalog::unread(self.storage(), self.recovery());
        catalog.refresh_of(&writers)?;
        let lineage = catalog.lineage(episode, chain, attempt)?;
        if !lineage.misses_what_it_inherited() {
            return Ok(lineage);
        }
        let mut all = Catalog::unread(self.storage(), Arc::new(Recovery::dirty()));
        all.refresh_of(&writers)?;
        catalog.lineage_resting_on(&all, episode, chain, attempt)
    }
}

impl View {
    /// Its id.
    pub fn id(&self) -> Id {
        self.episode
    }

    /// The attempt that counts.
    pub fn number(&self) -> u32 {
        self.attempt
    }

    /// All attempts that really began, in order.
    pub fn attempts(&self) -> Vec<u32> {
        if self.chain.links.is_empty() {
            return vec![self.attempt];
        }
        self.chain.links.iter().filter(|link| link.is_in_force()).map(|link| link.claim.attempt).collect()
    }

    /// Which steps come from which attempt, and by whom.
    pub fn parts(&self) -> &[LineagePart] {
        &self.parts
    }

    /// How many steps it has, FIRST counted.
    pub fn steps(&self) -> u64 {
        self.lineage.borrow().steps()
    }

    /// One step.
    pub fn step(&self, index: u64) -> Result<crate::read::Step> {
        self.lineage.borrow_mut().step(index)
    }

    /// All of it.
    pub fn read(&self) -> Result<Attempt> {
        self.lineage.borrow_mut().read()
    }

    /// How it ended: as its owner said, or as somebody found. None while it runs, or if nobody looked yet.
    pub fn ending(&self) -> Result<Option<End>> {
        let said = self.lineage.borrow_mut().end()?;
        if said.is_some() {
            return Ok(said);
        }
        let adopted = self.chain.link(self.attempt).and_then(|link| link.base.as_ref()?.adopted.clone());
        if adopted.is_some() {
            return Ok(Some(End { why: adopted, ..End::default() }));
        }
        let found = self.store.found_end(&self.episode, self.attempt)?;
        Ok(found.map(|(why, evidence)| End { why: Some(why), evidence: Some(evidence), ..End::default() }))
    }

    /// Another attempt at the episode, with what it inherited.
    pub fn attempt(&self, attempt: u32) -> Result<View> {
        let what = || Error::NotFound { what: format!("attempt {attempt} at episode {}", self.episode) };
        let link = self.chain.link(attempt).filter(|link| link.is_in_force()).ok_or_else(what)?;
        let lineage = self.store.lineage_of(&self.episode, &self.chain, link)?;
        let parts = lineage.parts().to_vec();
        Ok(View {
            store: self.store.clone(),
            episode: self.episode,
            chain: self.chain.clone(),
            lineage: RefCell::new(lineage),
            parts,
            attempt,
        })
    }
}
