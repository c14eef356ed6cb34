//! Lists the attempts of a store: with their inherited steps, their states, and which of them counts.
//!
//! Most of it comes from indexes and from the names of cards. Cards are read for episodes that were taken over and
//! for attempts without an end; steps are read only if an attempt resumed in the middle of another one.
//!
//! The rule: a reader that combines records and names of cards reports, for each episode, if records depend on
//! something that is missing ([`Listed::trouble`]): a claim, a base, a run's card, or inherited records. A sum over a
//! part is never shown.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use keepstep_format::{Id, ids};

use crate::counted;
use crate::error::{Error, Result, or_told};
use crate::read::{AttemptInfo, AttemptKey, Catalog, Item};
use crate::recover::Recovery;
use crate::segment::chain::{Base, Chain, Link};
use crate::segment::named::NamedClaims;
use crate::segment::summary::{SummaryPart, WHY_IS_LOST};
use crate::segment::{Liveness, Summary};
use crate::store::Store;
use crate::store::episode::opening::writers_of;
use crate::store::name::EpisodeName;
use crate::store::run::Generation;

/// An attempt in a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listed {
    /// Which attempt.
    pub key: AttemptKey,
    /// Its name, times, and how it ended, as its owner recorded or another process found. Steps and return include
    /// inherited steps.
    pub summary: Summary,
    /// How many records of its own it has.
    pub records: u64,
    /// Whether its writer is alive.
    pub liveness: Liveness,
    /// How many attempts of the episode began.
    pub attempts: u32,
    /// True for the attempt that counts: the newest that began.
    pub is_in_force: bool,
    /// Which generation of its run it is in.
    pub generation: Generation,
    /// What is wrong: a card of the episode, or something that the attempt depends on, is missing or cannot be read.
    /// The rest is still shown, except sums over a part.
    pub trouble: Option<Error>,
}

impl AsRef<Listed> for Listed {
    fn as_ref(&self) -> &Listed {
        self
    }
}

impl Listed {
    /// The name of its episode within the run; `None` if the episode has none, or it is lost.
    pub fn name(&self) -> Option<EpisodeName> {
        let said = &self.summary;
        let (iteration, sample) = (said.iteration.unwrap_or(0), said.sample.unwrap_or(0));
        let name =
            EpisodeName::task(said.task.as_deref().unwrap_or_default()).iteration(iteration).sample(sample);
        // The id of an episode with a name is made from it.
        let id = ids::episode(&said.generation_id.unwrap_or_default(), &name.task, iteration, sample);
        (id == self.key.episode).then_some(name)
    }

    /// How it ended; without an end, whether it is running, silent or interrupted.
    pub fn state(&self) -> &str {
        match (&self.summary.why, self.liveness) {
            (Some(why), _) => why,
            (None, Liveness::Live) => "running",
            (None, Liveness::Unknown) => "silent",
            (None, Liveness::Dead) => "interrupted",
        }
    }
}

impl Store {
    /// All attempts in the store, sorted by episode and attempt. Updates the catalog.
    pub fn list(&self, catalog: &mut Catalog) -> Result<Vec<Listed>> {
        self.check_process()?;
        // Names first: everything that a listed base depends on is then in the logs that are read afterwards.
        let named = NamedClaims::list(self.cards(), None)?;
        catalog.refresh()?;
        let mut episodes: BTreeMap<Id, Vec<AttemptInfo>> = BTreeMap::new();
        for info in catalog.attempts()? {
            episodes.entry(info.key.episode).or_default().push(info);
        }
        let ends = self.list_found_ends(None)?;
        let mut runs = BTreeMap::new();
        let mut out = Vec::new();
        for (episode, infos) in episodes {
            let mut listed = self.list_episode(catalog, &episode, infos, &named, &ends)?;
            self.tell_run(&mut listed, &mut runs)?;
            out.extend(listed);
        }
        Ok(out)
    }

    /// The attempts of one episode, in order. Updates the catalog.
    pub fn list_one(&self, catalog: &mut Catalog, episode: &Id) -> Result<Vec<Listed>> {
        self.check_process()?;
        let named = match Chain::read(self.cards(), episode) {
            Ok(chain) => NamedClaims::of_chain(episode, &chain),
            // The listing of names says which claims there are; what is wrong with them is reported with each
            // attempt.
            Err(error) if error.is_of_one_file() => NamedClaims::list(self.cards(), Some(episode))?,
            Err(error) => return Err(error),
        };
        catalog.refresh()?;
        self.list_claimed(catalog, episode, &named)
    }

    /// The attempts of one episode, in order, and a catalog to read them with. If the episode was claimed, only the
    /// logs of its claimants are read, however many there are.
    pub fn look_up(&self, episode: &Id) -> Result<(Catalog, Vec<Listed>)> {
        self.check_process()?;
        self.show();
        let mut catalog = Catalog::unread(self.storage(), self.recovery());
        let (chain, _) = or_told(Chain::read(self.cards(), episode))?;
        // Without a claim, or if one cannot be read, any log may have its records.
        let Some(chain) = chain.filter(|chain| !chain.links.is_empty()) else {
            let listed = self.list_one(&mut catalog, episode)?;
            return Ok((catalog, listed));
        };
        let mut writers: Vec<Id> = chain.links.iter().flat_map(writers_of).collect();
        writers.sort_unstable();
        writers.dedup();
        catalog.refresh_of(&writers)?;
        let listed = self.list_claimed(&mut catalog, episode, &NamedClaims::of_chain(episode, &chain))?;
        Ok((catalog, listed))
    }

    fn list_claimed(&self, catalog: &mut Catalog, episode: &Id, named: &NamedClaims) -> Result<Vec<Listed>> {
        let infos = catalog.attempts_of(Some(episode))?;
        if infos.is_empty() && named.bases(episode).is_empty() {
            catalog.manifest().refuse_pruned(episode)?;
            return Err(Error::NotFound { what: format!("episode {episode}") });
        }
        let ends = self.list_found_ends(Some(&BTreeSet::from([episode.0[0]])))?;
        let mut listed = self.list_episode(catalog, episode, infos, named, &ends)?;
        self.tell_run(&mut listed, &mut BTreeMap::new())?;
        Ok(listed)
    }

    /// Adds the generation of the episode's run, and what is wrong with it. Each run is looked up once.
    fn tell_run(
        &self,
        listed: &mut [Listed],
        known: &mut BTreeMap<Id, (Generation, Option<Error>)>,
    ) -> Result<()> {
        for one in listed {
            let (Some(generation_id), Some(run)) = (one.summary.generation_id, &one.summary.run) else {
                continue;
            };
            let (generation, trouble) = match known.entry(generation_id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(self.generation_of(run, &generation_id)?),
            };
            one.generation = *generation;
            one.trouble = one.trouble.take().or_else(|| trouble.clone());
        }
        Ok(())
    }

    fn list_episode(
        &self,
        catalog: &Catalog,
        episode: &Id,
        mut infos: Vec<AttemptInfo>,
        named: &NamedClaims,
        ends: &HashSet<(Id, u32)>,
    ) -> Result<Vec<Listed>> {
        let lost_claim = self.lost_claim_of(named, episode, &infos)?;
        let (chain, trouble) = self.chain_of(episode, named.bases(episode), &infos)?;
        let trouble = lost_claim.or(trouble);
        self.add_what_bases_count(episode, &chain, &mut infos)?;
        self.find_generation(episode, &mut infos)?;
        // A claim that was passed over never became an attempt.
        let bases = named.bases(episode).iter().copied();
        let bases = bases.filter(|it| chain.link(*it).is_none_or(|link| !link.is_void));
        let name = infos.first().map(|info| info.summary.clone()).unwrap_or_default();
        let began: BTreeSet<u32> = infos.iter().map(|info| info.key.attempt).chain(bases).collect();
        let mut listed: Vec<Listed> = Vec::new();
        for &attempt in &began {
            let mut found: Vec<AttemptInfo> =
                infos.iter().filter(|info| info.key.attempt == attempt).cloned().collect();
            let link = chain.link(attempt);
            if found.is_empty() {
                found.push(self.without_records(episode, attempt, link, &name));
            }
            let owner = self.who_counts(episode, attempt, &found)?;
            let (end, lost_end) = match ends.contains(&(*episode, attempt)) {
                true => or_told(self.found_why_and_records(episode, attempt))?,
                false => (None, None),
            };
            let end = end.flatten();
            let counted =
                link.and_then(|link| link.records).or(end.as_ref().and_then(|(_, records)| *records));
            for mut info in found {
                self.leave_out_what_was_refused(catalog, &mut info, counted)?;
                let lost = lost_records(&info, counted).or_else(|| {
                    // If an attempt has no end, more records may be in a part that cannot be read.
                    let may_be_more = info.summary.why.is_none() && end.is_none() && counted.is_none();
                    may_be_more.then(|| catalog.unreadable(&info.key.writer)).flatten()
                });
                let AttemptInfo { key, summary, records, liveness, .. } = info;
                let is_in_force = Some(&attempt) == began.last() && Some(key.writer) == owner;
                let (attempts, is_part) = (began.len() as u32, lost.is_some());
                let trouble = trouble.clone().or_else(|| lost_end.clone()).or(lost);
                let generation = Generation::default();
                let mut one =
                    Listed { key, summary, records, liveness, attempts, is_in_force, generation, trouble };
                if let Some(base) = link.and_then(|link| link.base.as_ref()) {
                    self.add_inherited(catalog, &mut one, base, &listed)?;
                }
                if is_part || (one.trouble.is_some() && attempt > 0) {
                    // A sum over a part would be wrong.
                    one.summary.lose_rewards();
                }
                // What an owner recorded after it was fenced is not the ending of the attempt.
                if let Some((why, _)) = &end {
                    one.summary.why = Some(why.clone());
                }
                // The base of the next attempt proves it, also if its taker died before it recorded an end here.
                if one.summary.why.is_none() && Some(&attempt) != began.last() {
                    one.summary.why = Some(chain.found_by_the_next(attempt).name().to_owned());
                }
                listed.push(one);
            }
        }
        Ok(listed)
    }

    /// The chain of an episode, if it was ever taken over; or why it cannot be read.
    fn chain_of(&self, episode: &Id, bases: &[u32], infos: &[AttemptInfo]) -> Result<(Chain, Option<Error>)> {
        let recorded = infos.iter().map(|info| info.key.attempt);
        if bases.is_empty() && recorded.clone().all(|attempt| attempt == 0) {
            return Ok((Chain::default(), None));
        }
        let (chain, trouble) = or_told(Chain::read(self.cards(), episode))?;
        let chain = chain.unwrap_or_default();
        let trouble = match trouble {
            None => chain.missing_base(episode, recorded),
            trouble => trouble,
        };
        Ok((chain, trouble))
    }

    /// What a base counts exists, whatever the log says is synced: a taker read it, and the owner acknowledged it.
    /// (An owner that acknowledges at `kill` and stops at once leaves a log that says nothing yet.)
    fn add_what_bases_count(&self, episode: &Id, chain: &Chain, infos: &mut Vec<AttemptInfo>) -> Result<()> {
        for base in chain.bases() {
            let (Some(link), Some(counted)) = (chain.link(base.resumed), base.counted) else { continue };
            let key = AttemptKey { episode: *episode, attempt: base.resumed, writer: link.claim.writer };
            let known = infos.iter().position(|info| info.key == key);
            let (records, missing) = known.map_or((0, 0), |at| (infos[at].records, infos[at].missing));
            if missing > 0 || records >= u64::from(counted) {
                continue;
            }
            let mut all = Catalog::unread(self.storage(), Arc::new(Recovery::dirty()));
            all.refresh_of(&[key.writer])?;
            let found = all.attempts_of(Some(episode))?.into_iter().find(|info| info.key == key);
            let Some(found) = found.filter(|info| info.records > records) else { continue };
            let mut info = AttemptInfo { liveness: self.liveness(&key.writer), ..found };
            drop(known.map(|at| infos.remove(at)));
            self.leave_out_what_was_refused(&all, &mut info, Some(counted))?;
            infos.push(info);
        }
        infos.sort_unstable_by_key(|info| info.key);
        Ok(())
    }

    /// Summarizes an attempt again if its log has more records than count: those that its owner wrote after it was
    /// fenced were refused.
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

    /// An attempt that began and has no records yet; or of which only the name of its base is known.
    fn without_records(
        &self,
        episode: &Id,
        attempt: u32,
        link: Option<&Link>,
        name: &Summary,
    ) -> AttemptInfo {
        let writer = link.map_or(Id::NONE, |link| link.claim.writer);
        let key = AttemptKey { episode: *episode, attempt, writer };
        let time = link.and_then(|link| link.base.as_ref()).map(|base| base.time);
        let summary = Summary {
            why: None,
            steps: 0,
            total_reward: None,
            reward_rest: 0.0,
            first_time: time,
            last_time: time,
            ..name.clone()
        };
        AttemptInfo { key, summary, records: 0, missing: 0, liveness: self.liveness(&key.writer) }
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
        let source = before.iter().find(|it| it.key.attempt == base.resumed && it.trouble.is_none());
        // Its first record is inherited too. (If it resumed in the middle, it still began where the other did.)
        let began = source.and_then(|source| source.summary.first_time);
        one.summary.first_time = began.or(one.summary.first_time);
        let inherited = match source.filter(|source| source.summary.steps == base.inherited) {
            Some(source) => Ok(source.summary.clone()),
            // It resumed in the middle, or the log of the earlier attempt was cut since.
            None => self.rewards_up_to(catalog, &one.key, base.inherited),
        };
        let (inherited, trouble) = or_told(inherited)?;
        one.trouble = one.trouble.take().or(trouble);
        one.summary.add_earlier_rewards(&inherited.unwrap_or_default());
        Ok(())
    }

    /// The sum of the rewards of the first steps. An error if one of the steps is lost.
    fn rewards_up_to(&self, catalog: &Catalog, key: &AttemptKey, steps: u64) -> Result<Summary> {
        let lost = |what: String| Error::Damaged {
            path: format!("attempt {} at episode {}", key.attempt, key.episode),
            offset: 0,
            found: format!("{what} that it inherited cannot be found or read"),
        };
        let view = match self.view_of(catalog, key) {
            Err(Error::NotFound { .. }) => return Err(lost("the log".to_owned())),
            view => view?,
        };
        if view.steps() < steps {
            return Err(lost(format!("{} of {}", steps - view.steps(), counted(steps, "step"))));
        }
        let mut summed = Summary::default();
        for index in 0..steps {
            let step = view.step(index)?;
            if step.damaged.contains(&"reward") {
                return Err(lost(format!("step {index}")));
            }
            summed.add_reward(step.reward, 0.0);
        }
        Ok(summed)
    }
}

/// What an attempt itself has lost, as far as a list can see: records, or the reason of its end.
fn lost_records(info: &AttemptInfo, counted: Option<u32>) -> Option<Error> {
    let is_all_there = counted.is_some_and(|counted| info.records >= u64::from(counted));
    let found = if info.missing > 0 && !is_all_there {
        let are = if info.missing == 1 { "is" } else { "are" };
        format!("{} of its records {are} missing or cannot be read", info.missing)
    } else if info.summary.why.as_deref() == Some(WHY_IS_LOST) {
        "its END cannot be read: how it ended is lost".to_owned()
    } else {
        return None;
    };
    let path = format!("attempt {} at episode {}", info.key.attempt, info.key.episode);
    Some(Error::Damaged { path, offset: 0, found })
}
