//! Lists what a store holds: each attempt with what it inherited, how it stands, and which of them counts.
//!
//! Indexes and the names of cards say nearly all of it. Cards are read for episodes that were taken over and for
//! attempts without an end, steps only where an attempt went on from the middle of another.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use keepstep_format::{Id, Why};

use super::Store;
use super::run::Generation;
use crate::error::{Error, Result};
use crate::read::{AttemptInfo, AttemptKey, Catalog, Item};
use crate::segment::chain::{Base, Chain, Link, list_bases, read_claim};
use crate::segment::summary::SummaryPart;
use crate::segment::{Liveness, Summary};

/// What a list shows of an attempt.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Which.
    pub key: AttemptKey,
    /// Its name, times, and how it ended, as it said or as somebody found. Steps and return are those of its lineage.
    pub summary: Summary,
    /// How many records it has itself.
    pub records: u64,
    /// Whether its writer is still there.
    pub liveness: Liveness,
    /// How many attempts at the episode really began.
    pub attempts: u32,
    /// True for the attempt that counts: the newest that really began.
    pub is_in_force: bool,
    /// Which generation of its run it is in.
    pub generation: Generation,
    /// A card of the episode cannot be read, so that what the attempt inherited is not known.
    pub trouble: Option<Error>,
}

impl AsRef<Listed> for Listed {
    fn as_ref(&self) -> &Listed {
        self
    }
}

impl Listed {
    /// How it ended; of one that nobody ended, whether somebody still can.
    pub fn state(&self) -> &str {
        match (&self.summary.why, self.liveness) {
            (Some(why), _) => why,
            (None, Liveness::Live) if self.is_in_force => "running",
            // Another attempt really began, and its base is the proof.
            (None, Liveness::Live) => Why::Superseded.name(),
            (None, Liveness::Unknown) => "silent",
            (None, Liveness::Dead) => "interrupted",
        }
    }
}

impl Store {
    /// All attempts in the store, sorted by episode and attempt. The catalog is brought up to date.
    pub fn list(&self, catalog: &mut Catalog) -> Result<Vec<Listed>> {
        self.check_process()?;
        // Bases first: all that they rest on is in the logs that are looked at after them.
        let bases = list_bases(self.cards())?;
        catalog.refresh()?;
        let mut episodes: BTreeMap<Id, Vec<AttemptInfo>> = BTreeMap::new();
        for info in catalog.attempts()? {
            episodes.entry(info.key.episode).or_default().push(info);
        }
        let ends = self.list_found_ends(None)?;
        let mut generations = BTreeMap::new();
        let mut out = Vec::new();
        for (episode, infos) in episodes {
            let bases = bases.get(&episode).map_or(&[][..], |bases| bases);
            let mut listed = self.list_episode(catalog, &episode, infos, bases, &ends)?;
            self.tell_generation(&mut listed, &mut generations)?;
            out.extend(listed);
        }
        Ok(out)
    }

    /// The attempts at one episode, in order. The catalog is brought up to date.
    pub fn list_one(&self, catalog: &mut Catalog, episode: &Id) -> Result<Vec<Listed>> {
        self.check_process()?;
        let bases = match Chain::read(self.cards(), episode) {
            Ok(chain) => {
                let links = chain.links.iter().filter(|link| link.base.is_some());
                links.map(|link| link.claim.attempt).collect()
            }
            // The list of names says which there are, and what is wrong with them is told with each.
            Err(Error::Damaged { .. }) => list_bases(self.cards())?.remove(episode).unwrap_or_default(),
            Err(error) => return Err(error),
        };
        catalog.refresh()?;
        let infos = catalog.attempts_of(Some(episode))?;
        if infos.is_empty() && bases.is_empty() {
            catalog.manifest().refuse_pruned(episode)?;
            return Err(Error::NotFound { what: format!("episode {episode}") });
        }
        let ends = self.list_found_ends(Some(&BTreeSet::from([episode.0[0]])))?;
        let mut listed = self.list_episode(catalog, episode, infos, &bases, &ends)?;
        self.tell_generation(&mut listed, &mut BTreeMap::new())?;
        Ok(listed)
    }

    /// Adds which generation of its run an episode is in; each run is looked at once.
    fn tell_generation(&self, listed: &mut [Listed], known: &mut BTreeMap<Id, Generation>) -> Result<()> {
        for one in listed {
            let (Some(birth), Some(run)) = (one.summary.birth, &one.summary.run) else { continue };
            one.generation = match known.get(&birth) {
                Some(generation) => *generation,
                None => self.generation_of(run, &birth)?,
            };
            known.insert(birth, one.generation);
        }
        Ok(())
    }

    fn list_episode(
        &self,
        catalog: &Catalog,
        episode: &Id,
        infos: Vec<AttemptInfo>,
        bases: &[u32],
        ends: &HashSet<(Id, u32)>,
    ) -> Result<Vec<Listed>> {
        let (chain, trouble) = self.chain_of(episode, bases, &infos)?;
        // A claim that was passed over never became an attempt.
        let bases = bases.iter().copied().filter(|it| chain.link(*it).is_none_or(|link| !link.is_void));
        let name = infos.first().map(|info| info.summary.clone()).unwrap_or_default();
        let began: BTreeSet<u32> = infos.iter().map(|info| info.key.attempt).chain(bases).collect();
        let mut listed: Vec<Listed> = Vec::new();
        for &attempt in &began {
            let mut found: Vec<AttemptInfo> =
                infos.iter().filter(|info| info.key.attempt == attempt).cloned().collect();
            let link = chain.link(attempt);
            if found.is_empty() {
                found.extend(link.map(|link| self.without_records(episode, link, &name)));
            }
            let owner = self.who_counts(episode, attempt, &found)?;
            let end = match ends.contains(&(*episode, attempt)) {
                true => self.found_why_and_records(episode, attempt)?,
                false => None,
            };
            let counted =
                link.and_then(|link| link.records).or(end.as_ref().and_then(|(_, records)| *records));
            for mut info in found {
                self.leave_out_what_was_refused(catalog, &mut info, counted)?;
                let AttemptInfo { key, summary, records, liveness } = info;
                let is_in_force = Some(&attempt) == began.last() && Some(key.writer) == owner;
                let (attempts, trouble) = (began.len() as u32, trouble.clone());
                let generation = Generation::default();
                let mut one =
                    Listed { key, summary, records, liveness, attempts, is_in_force, generation, trouble };
                if let Some(base) = link.and_then(|link| link.base.as_ref()) {
                    self.add_inherited(catalog, &mut one, base, &listed)?;
                }
                if one.trouble.is_some() && attempt > 0 {
                    // A part of it would be a wrong answer.
                    one.summary.total_reward = None;
                }
                // What an owner said after it was told that it is out is not how the attempt ended.
                if let Some((why, _)) = &end {
                    one.summary.why = Some(why.clone());
                }
                listed.push(one);
            }
        }
        Ok(listed)
    }

    /// What was claimed of an episode, if it was ever taken over; or why that cannot be said.
    fn chain_of(&self, episode: &Id, bases: &[u32], infos: &[AttemptInfo]) -> Result<(Chain, Option<Error>)> {
        let recorded = infos.iter().map(|info| info.key.attempt);
        if bases.is_empty() && recorded.clone().all(|attempt| attempt == 0) {
            return Ok((Chain::default(), None));
        }
        match Chain::read(self.cards(), episode) {
            Ok(chain) => {
                let trouble = chain.missing_base(episode, recorded);
                Ok((chain, trouble))
            }
            Err(error @ Error::Damaged { .. }) => Ok((Chain::default(), Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Sums an attempt up again if its log has more records than count: what its owner wrote after it was told that it is
    /// out was refused.
    fn leave_out_what_was_refused(
        &self,
        catalog: &Catalog,
        info: &mut AttemptInfo,
        counted: Option<u32>,
    ) -> Result<()> {
        let Some(counted) = counted.filter(|counted| u64::from(*counted) < info.records) else {
            return Ok(());
        };
        let mut summary = Summary::default();
        for item in catalog.reader(&info.key)?.records() {
            match item? {
                Item::Record(record) if record.seq < counted => {
                    summary.add(&SummaryPart::of(record.kind, &record.fields));
                }
                _ => {}
            }
        }
        (info.summary, info.records) = (summary, u64::from(counted));
        Ok(())
    }

    /// An attempt that really began, and recorded nothing yet.
    fn without_records(&self, episode: &Id, link: &Link, name: &Summary) -> AttemptInfo {
        let key = AttemptKey { episode: *episode, attempt: link.claim.attempt, writer: link.claim.writer };
        let time = link.base.as_ref().map(|base| base.time);
        let summary = Summary {
            why: None,
            steps: 0,
            total_reward: None,
            first_time: time,
            last_time: time,
            ..name.clone()
        };
        AttemptInfo { key, summary, records: 0, liveness: self.liveness(&key.writer) }
    }

    /// Whose records of an attempt count, if several writers have some: the claim says so.
    fn who_counts(&self, episode: &Id, attempt: u32, found: &[AttemptInfo]) -> Result<Option<Id>> {
        let first = found.first().map(|info| info.key.writer);
        if found.len() < 2 {
            return Ok(first);
        }
        Ok(read_claim(self.cards(), episode, attempt)?.map(|claim| claim.writer).or(first))
    }

    /// Adds what an attempt inherited to what it recorded itself.
    fn add_inherited(
        &self,
        catalog: &Catalog,
        one: &mut Listed,
        base: &Base,
        before: &[Listed],
    ) -> Result<()> {
        one.summary.steps = one.summary.steps.max(base.inherited);
        one.summary.why = one.summary.why.take().or_else(|| base.adopted.clone());
        if base.inherited == 0 {
            return Ok(());
        }
        let source = before.iter().find(|it| it.key.attempt == base.resumed);
        let inherited = match source.filter(|source| source.summary.steps == base.inherited) {
            Some(source) => source.summary.total_reward,
            // It went on from the middle, or the log that it went on from was cut since.
            None => self.return_up_to(catalog, &one.key, base.inherited)?,
        };
        let own = std::mem::replace(&mut one.summary.total_reward, inherited);
        one.summary.add_reward(own);
        Ok(())
    }

    /// The sum of the rewards of the first steps; none if there was none.
    fn return_up_to(&self, catalog: &Catalog, key: &AttemptKey, steps: u64) -> Result<Option<f64>> {
        let view = match self.view_of(catalog, key) {
            Ok(view) => view,
            // What is damaged shows nothing here; reading the episode says what is wrong.
            Err(Error::Damaged { .. } | Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut summed = Summary::default();
        for index in 0..steps.min(view.steps()) {
            summed.add_reward(view.step(index)?.reward);
        }
        Ok(summed.total_reward)
    }
}
