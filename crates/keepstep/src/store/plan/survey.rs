//! Finds the state of every planned episode, without opening each.
//!
//! The names of claims and bases tell which attempt is the newest, and which counts. The ends that owners recorded
//! come from the indexes of the logs. A card is read only if these do not decide, and only once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use keepstep_format::frame::Kind;
use keepstep_format::{Id, Why, fields, ids};

use crate::disk::Disk;
use crate::error::{Doing, Error, Result, or_told};
use crate::read::{Item, NoteIndex, NoteSaid, NoteTarget, Outcomes, is_final};
use crate::segment::chain::{
    Based, Chain, claim_path, lost_base, lost_claim, lost_end, read_based, read_claim,
};
use crate::segment::named::mailbox_dir;
use crate::segment::names::parse_number;
use crate::segment::summary::WHY_IS_LOST;
use crate::store::episode::opening::writers_of;
use crate::store::group::seals::sealed_groups;
use crate::store::name::EpisodeName;
use crate::store::planned::queue::{Candidate, Cards, Known, Planned, Queue};
use crate::store::planned::tasks::Plan;
use crate::store::run::Run;

/// After this time the survey is made again: a process may have died since.
const FRESH_US: i64 = 5_000_000;

/// What the names of claims and bases say about an episode.
#[derive(Debug, Clone, Copy, Default)]
struct Named {
    /// One more than the newest attempt that was claimed; 0 if none was.
    claims: u32,
    /// How many attempts were claimed: the same number, unless a claim is missing.
    claimed: u32,
    /// The newest attempt that counts.
    in_force: u32,
    bases: u32,
    /// How many claims to score it there are.
    scorings: u32,
}

/// The state of an episode.
enum Verdict {
    New,
    /// A process has it.
    Running,
    Pruned,
    Interrupted(Candidate),
    Own(Candidate),
    Errored(Candidate),
    Over(Over),
    /// Its group is sealed without it: whatever it did, it could not join.
    Absent,
}

/// An episode that is over.
struct Over {
    why: Arc<str>,
    /// It lacks a note that its plan needs.
    is_lacking: bool,
    /// The candidate for scoring, if no process is scoring it.
    unscored: Option<Candidate>,
    /// The candidate for more steps, if it was truncated.
    truncated: Option<Candidate>,
}

impl Queue {
    /// Makes the survey again if the last one is old.
    pub(in crate::store) fn refresh_if_old(&mut self, run: &Run) -> Result<()> {
        let age_us = run.store().disk().uptime_us() - self.looked_us;
        if self.round > 0 && (0..FRESH_US).contains(&age_us) {
            return Ok(());
        }
        self.refresh(run)
    }

    /// Makes the survey again.
    pub(in crate::store) fn refresh(&mut self, run: &Run) -> Result<()> {
        let started_us = run.store().disk().uptime_us();
        let mut found = self.look(run, true)?;
        let failed = found.errored.iter_mut().map(|it| (it.episode, it.attempt, &mut it.seen_us));
        self.failures.date(failed, started_us);
        run.plan_cache().scorings.keep(found.unscored.iter().map(|it| it.episode));
        self.take_over(found, run.store().writer_id());
        self.round += 1;
        self.looked_us = started_us;
        Ok(())
    }

    /// The state of every planned episode. If `acts` is true, takers that seem gone are kept from overruling an end
    /// by void bases. Otherwise nothing is written.
    pub(in crate::store) fn look(&mut self, run: &Run, acts: bool) -> Result<Survey> {
        let plan_cache = run.plan_cache();
        let mut plan = plan_cache.plan();
        plan.refresh(run)?;
        self.place(run, &plan);
        // Logs first: the names that are listed afterwards then tell whether the attempt of an end is the newest.
        run.store().show();
        let mut outcomes = run.store().outcomes();
        outcomes.refresh()?;
        self.refresh_notes(run, &plan)?;
        let named = self.names(&**run.store().disk())?;
        let ends = run.store().list_found_ends(Some(&self.shards()))?;
        let sealed = sealed_groups(&**run.store().disk())?;
        let (notes, gone_owners) = (self.notes.as_ref(), HashMap::new());
        let mut judge =
            Judge { run, plan: &plan, outcomes: &outcomes, ends, sealed, notes, gone_owners, acts };
        let mut found = Survey::default();
        for (index, (planned, named)) in self.episodes.iter().zip(&named).enumerate() {
            match judge.verdict(index, planned, *named, &mut self.cards) {
                Ok(verdict) => found.add(index, judge.unless_absent(planned, verdict)),
                Err(error) if error.is_of_one_file() => found.troubles.push((index, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// How many episodes are planned, as of the last survey.
    pub(in crate::store) fn planned(&self) -> usize {
        self.episodes.len()
    }

    fn refresh_notes(&mut self, run: &Run, plan: &Plan) -> Result<()> {
        match &mut self.notes {
            Some(notes) => notes.refresh(),
            None if plan.tasks.iter().all(|task| task.needs.is_empty()) => Ok(()),
            None => {
                self.notes = Some(run.notes()?);
                Ok(())
            }
        }
    }

    fn take_over(&mut self, found: Survey, ours: Option<Id>) {
        let Survey { interrupted, mut new, unscored, errored, truncated, own, troubles, .. } = found;
        // Each process begins at another place, so that they rarely compete for the same episode.
        let start = ours.map_or(0, |id| {
            let number = id.0[..8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            (number % self.episodes.len().max(1) as u64) as usize
        });
        let first = new.partition_point(|&index| index < start);
        new.rotate_left(first);
        (self.interrupted, self.new, self.unscored) = (interrupted.into(), new.into(), unscored.into());
        (self.errored, self.truncated) = (errored.into(), truncated.into());
        (self.own, self.troubles) = (own.into(), troubles);
    }

    /// The name of a planned episode.
    pub(in crate::store) fn name(&self, plan: &Plan, index: usize) -> EpisodeName {
        let planned = &self.episodes[index];
        plan.tasks[planned.task as usize].episode(planned.sample)
    }

    /// Places where notes could not be read.
    pub(in crate::store) fn unread_notes(&self) -> Vec<String> {
        self.notes.as_ref().map(NoteIndex::unread).unwrap_or_default()
    }

    /// The notes that a planned episode needs.
    pub(in crate::store) fn needs(&self, plan: &Plan, index: usize) -> Vec<String> {
        plan.tasks[self.episodes[index].task as usize].needs.iter().cloned().collect()
    }

    /// The id of a planned episode.
    pub(in crate::store) fn id(&self, index: usize) -> Id {
        self.episodes[index].id
    }

    /// Adds the episodes that were planned since.
    fn place(&mut self, run: &Run, plan: &Plan) {
        self.placed.resize(plan.tasks.len(), 0);
        self.by_id.reserve(plan.tasks.len());
        for (index, (task, placed)) in plan.tasks.iter().zip(&mut self.placed).enumerate() {
            for sample in *placed..task.samples {
                let id = ids::episode(&run.generation_id(), &task.task, task.iteration, i64::from(sample));
                self.by_id.insert(id, self.episodes.len());
                self.episodes.push(Planned { id, task: index as u32, sample });
            }
            *placed = task.samples.max(*placed);
        }
    }

    /// The first bytes of the episodes' ids.
    fn shards(&self) -> BTreeSet<u8> {
        self.episodes.iter().map(|planned| planned.id.0[0]).collect()
    }

    /// Lists claims and bases. Their folders are named by the first two digits of the episodes in them.
    fn names(&self, disk: &dyn Disk) -> Result<Vec<Named>> {
        let mut named = vec![Named::default(); self.episodes.len()];
        for shard in self.shards() {
            let folder = format!("claims/{shard:02x}");
            for entry in disk.list(&folder).doing("list", &folder)? {
                let Some((id, number, what)) = parse_name(&entry.name) else { continue };
                let Some(&index) = self.by_id.get(&id) else { continue };
                let of = &mut named[index];
                match what {
                    NamedCard::Base => {
                        (of.in_force, of.bases) = (of.in_force.max(number), of.bases + 1);
                    }
                    NamedCard::Claim => {
                        (of.claims, of.claimed) = (of.claims.max(number.saturating_add(1)), of.claimed + 1);
                    }
                    NamedCard::Scoring => of.scorings = of.scorings.max(number.saturating_add(1)),
                }
            }
        }
        Ok(named)
    }
}

/// The kinds of names in the folder of claims.
enum NamedCard {
    Claim,
    Base,
    Scoring,
}

/// The episode and the attempt of a claim or a base; or the number of a claim to score the episode.
fn parse_name(name: &str) -> Option<(Id, u32, NamedCard)> {
    let mut parts = name.splitn(3, '.');
    let id = parts.next()?.parse().ok()?;
    let number = u32::try_from(parse_number(parts.next()?)?).ok()?;
    let what = match parts.next()? {
        "claim" => NamedCard::Claim,
        "base" => NamedCard::Base,
        "scoring" => NamedCard::Scoring,
        _ => return None,
    };
    Some((id, number, what))
}

/// The state of all planned episodes.
#[derive(Default)]
pub(in crate::store) struct Survey {
    pub(in crate::store) interrupted: Vec<Candidate>,
    pub(in crate::store) new: Vec<usize>,
    unscored: Vec<Candidate>,
    pub(in crate::store) errored: Vec<Candidate>,
    truncated: Vec<Candidate>,
    pub(in crate::store) own: Vec<Candidate>,
    pub(in crate::store) troubles: Vec<(usize, Error)>,
    /// How many a process has now.
    pub(in crate::store) running: u64,
    pub(in crate::store) pruned: u64,
    /// Those whose groups are sealed without them.
    pub(in crate::store) absent: Vec<usize>,
    /// How many ended, by ending.
    pub(in crate::store) ended: BTreeMap<Arc<str>, u64>,
    /// How many of them lack a note, including those that a process is scoring.
    pub(in crate::store) lacking: u64,
}

impl Survey {
    fn add(&mut self, index: usize, verdict: Verdict) {
        match verdict {
            Verdict::Running => self.running += 1,
            Verdict::Pruned => self.pruned += 1,
            Verdict::Absent => self.absent.push(index),
            Verdict::New => self.new.push(index),
            Verdict::Interrupted(candidate) => self.interrupted.push(candidate),
            Verdict::Own(candidate) => self.own.push(candidate),
            Verdict::Errored(candidate) => self.errored.push(candidate),
            Verdict::Over(Over { why, is_lacking, unscored, truncated }) => {
                *self.ended.entry(why).or_default() += 1;
                self.lacking += u64::from(is_lacking);
                self.unscored.extend(unscored);
                self.truncated.extend(truncated);
            }
        }
    }
}

/// Decides the state of episodes.
pub(in crate::store) struct Judge<'r> {
    pub(in crate::store) run: &'r Run,
    plan: &'r Plan,
    pub(in crate::store) outcomes: &'r Outcomes,
    /// Attempts whose end another process found. What their owners recorded after that was refused.
    ends: HashSet<(Id, u32)>,
    /// The groups that are sealed.
    sealed: HashSet<Id>,
    notes: Option<&'r NoteIndex>,
    /// Whether an owner is gone; each is checked once.
    gone_owners: HashMap<Id, bool>,
    /// True if the caller acts on the result.
    acts: bool,
}

impl Judge<'_> {
    /// What needs work is absent if its group is sealed: members have ended. What a process has is left alone.
    fn unless_absent(&self, at: &Planned, verdict: Verdict) -> Verdict {
        let is_sealed = || {
            let task = &self.plan.tasks[at.task as usize];
            let group = ids::group(&self.run.generation_id(), &task.task, task.iteration);
            self.sealed.contains(&group)
        };
        match verdict {
            Verdict::New | Verdict::Interrupted(_) | Verdict::Own(_) | Verdict::Errored(_)
                if !self.sealed.is_empty() && is_sealed() =>
            {
                Verdict::Absent
            }
            verdict => verdict,
        }
    }

    fn verdict(&mut self, index: usize, at: &Planned, named: Named, cards: &mut Cards) -> Result<Verdict> {
        if self.outcomes.is_pruned(&at.id) {
            return Ok(Verdict::Pruned);
        }
        if let Some(error) = self.outcomes.trouble(&at.id) {
            return Err(error.clone());
        }
        self.refuse_lost_claims(&at.id, named)?;
        let named = self.without_void(&at.id, named, cards)?;
        let Some(newest) = named.claims.checked_sub(1) else { return Ok(Verdict::New) };
        for attempt in named.in_force + 1..=newest {
            if self.outcomes.said(&at.id, attempt).is_some() && self.based(&at.id, attempt, cards)?.is_none()
            {
                return Err(lost_base(&at.id, attempt));
            }
        }
        let said = self.outcomes.said(&at.id, named.in_force);
        let said = said.filter(|_| !self.ends.contains(&(at.id, named.in_force)));
        let why = match said {
            Some(said) => Some(Arc::clone(&said.why)),
            None => self.adopted(&at.id, named.in_force, cards)?.map(Arc::from),
        };
        let is_ours = |owner: &Id| self.run.store().writer_id() == Some(*owner);
        if why.as_deref() == Some(WHY_IS_LOST) {
            return Err(lost_end(&at.id, named.in_force));
        }
        let by_us = said.is_some_and(|said| is_ours(&said.writer));
        // A claim that was passed over owns nothing.
        let is_void =
            newest > named.in_force && matches!(self.based(&at.id, newest, cards)?, Some(Known::Void));
        let holding = if is_void { named.in_force } else { newest };
        let is_left = why.is_some() && holding == named.in_force;
        if !is_left {
            // A process has it, or had it. It can be taken only if that process is dead.
            let owner = self.owner(&at.id, holding, cards)?;
            if is_ours(&owner) {
                return Ok(Verdict::Running);
            }
            // An end may be in a log that cannot be read. The episode must not be run again as if it had none.
            let counts = why.is_none().then(|| self.owner(&at.id, named.in_force, cards)).transpose()?;
            let unread = [Some(owner), counts].iter().flatten().find_map(|it| self.outcomes.unreadable(it));
            if let Some(error) = unread.filter(|_| !self.run.store().is_live(&owner)) {
                return Err(error);
            }
            if !self.is_left(&owner, &at.id, holding)? {
                return Ok(Verdict::Running);
            }
        }
        let in_a_row = match why.as_deref() {
            Some(why) if why == Why::Errored.name() => self.errors_in_a_row(&at.id, newest, cards)?,
            Some(_) if by_us => self.left_in_a_row(&at.id, newest, cards)?,
            _ => 0,
        };
        let candidate = |why: Arc<str>| {
            let (attempt, attempts) = (newest.saturating_add(1), named.bases + 1);
            Candidate { index, episode: at.id, attempt, attempts, in_a_row, seen_us: None, why }
        };
        Ok(match why.as_deref() {
            Some(why) if is_final(why) => {
                if self.acts && !self.stays_over(&at.id, named.in_force, newest, cards)? {
                    return Ok(Verdict::Running);
                }
                let is_lacking = !self.is_scored(at, named.in_force, said.is_some(), cards)?;
                let is_free = is_lacking && !self.run.is_scored_elsewhere(&at.id, named.scorings)?;
                Verdict::Over(Over {
                    why: Arc::from(why),
                    is_lacking,
                    unscored: is_free.then(|| candidate(Arc::from("unscored"))),
                    truncated: (why == Why::Truncated.name()).then(|| candidate(Arc::from(why))),
                })
            }
            Some(why) if why == Why::Errored.name() => Verdict::Errored(candidate(Arc::from(why))),
            Some(why) if by_us => Verdict::Own(candidate(Arc::from(why))),
            Some(why) => Verdict::Interrupted(candidate(Arc::from(why))),
            None => Verdict::Interrupted(candidate(Arc::from(Why::Crashed.name()))),
        })
    }

    /// An error if a claim is missing although something depends on it: a later claim, a base, or records.
    fn refuse_lost_claims(&self, episode: &Id, named: Named) -> Result<()> {
        let storage = self.run.store().cards();
        let exists = |path: &str| storage.disk().exists(path).doing("look for", path);
        let claims = named.claims.max(if named.bases > 0 { named.in_force + 1 } else { 0 });
        if claims > named.claimed {
            for attempt in 0..claims {
                // It may have been made after the names were listed.
                if !exists(&claim_path(episode, attempt))? {
                    return Err(lost_claim(episode, attempt));
                }
            }
        }
        let recorder = self.outcomes.recorder(episode).filter(|_| claims == 0);
        match recorder {
            // The logs were read first. Writers of versions without claims have no mailbox.
            Some(writer) if exists(&mailbox_dir(writer))? => Err(lost_claim(episode, 0)),
            _ => Ok(()),
        }
    }

    /// How the previous attempt ended, if this one's base adopted an end.
    fn adopted(&self, episode: &Id, attempt: u32, cards: &mut Cards) -> Result<Option<String>> {
        if attempt == 0 {
            return Ok(None);
        }
        Ok(match self.based(episode, attempt, cards)? {
            Some(Known::Began { adopted, .. }) => adopted,
            Some(Known::Void) | None => None,
        })
    }

    pub(in crate::store) fn based(
        &self,
        episode: &Id,
        attempt: u32,
        cards: &mut Cards,
    ) -> Result<Option<Known>> {
        if let Some(known) = cards.based.get(&(*episode, attempt)) {
            return Ok(Some(known.clone()));
        }
        let known = match read_based(self.run.store().cards(), episode, attempt)? {
            None => return Ok(None),
            Some(Based::Void) => Known::Void,
            Some(Based::Base(base)) => {
                Known::Began { adopted: base.adopted, inherited: base.inherited, time: base.time }
            }
        };
        cards.based.insert((*episode, attempt), known.clone());
        Ok(Some(known))
    }

    /// The attempt in force, skipping void bases: no attempt follows from those.
    fn without_void(&self, episode: &Id, mut named: Named, cards: &mut Cards) -> Result<Named> {
        while named.in_force > 0 {
            match self.based(episode, named.in_force, cards)? {
                Some(Known::Began { .. }) => break,
                Some(Known::Void) => named.bases -= 1,
                None => {}
            }
            named.in_force -= 1;
        }
        Ok(named)
    }

    /// Keeps takers that seem gone from overruling an end. False if one has published its base.
    fn stays_over(&self, episode: &Id, in_force: u32, newest: u32, cards: &mut Cards) -> Result<bool> {
        for attempt in in_force + 1..=newest {
            let is_void = matches!(self.based(episode, attempt, cards)?, Some(Known::Void));
            if !is_void && !self.run.store().pass_over(episode, attempt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn owner(&self, episode: &Id, attempt: u32, cards: &mut Cards) -> Result<Id> {
        if let Some(owner) = cards.owners.get(&(*episode, attempt)) {
            return Ok(*owner);
        }
        let claim = read_claim(self.run.store().cards(), episode, attempt)?;
        let owner = claim.ok_or_else(|| lost_claim(episode, attempt))?.writer;
        cards.owners.insert((*episode, attempt), owner);
        Ok(owner)
    }

    /// True if no process has the attempt any more: its owner is gone, or was told that it lost the attempt.
    fn is_left(&mut self, owner: &Id, episode: &Id, attempt: u32) -> Result<bool> {
        let store = self.run.store();
        // The owner may have ended the attempt and exited since its log was read. Then nothing is left to do.
        let ask = || self.outcomes.is_complete(owner) && store.is_gone(owner);
        if *self.gone_owners.entry(*owner).or_insert_with(ask) {
            return Ok(true);
        }
        // Another process may have waited for the lease, and fenced the owner. That counts even if its card cannot be
        // read now.
        let (end, unread) = or_told(store.found_end(episode, attempt))?;
        Ok(end.flatten().is_some() || unread.is_some())
    }

    /// Whether an episode that is over has all notes that its plan needs. A note on another attempt does not count,
    /// nor does one from before the episode was resumed after its end. If the attempt only adopted an end, any note
    /// counts.
    fn is_scored(&self, at: &Planned, in_force: u32, has_said: bool, cards: &mut Cards) -> Result<bool> {
        let needs = &self.plan.tasks[at.task as usize].needs;
        let attempt = has_said.then_some(in_force);
        if needs.is_empty() || cards.scored.contains(&(at.id, in_force, needs.len())) {
            return Ok(true);
        }
        // Only what was over could be scored. If it was resumed after that, the result must be scored again.
        let began = match attempt {
            Some(attempt) if self.was_over_before(&at.id, attempt)? => {
                match self.based(&at.id, attempt, cards)? {
                    Some(Known::Began { time, .. }) => time,
                    Some(Known::Void) | None => i64::MIN,
                }
            }
            _ => i64::MIN,
        };
        let of_the_run = self.notes.into_iter().flat_map(|notes| notes.notes().of(&at.id));
        let counts = |target: &NoteTarget, time: i64| {
            target.step.is_none()
                && match target.attempt {
                    None => time >= began,
                    of => attempt.is_none() || of == attempt,
                }
        };
        let newest = |said: &[NoteSaid]| said.iter().map(|said| said.time).max().unwrap_or(i64::MIN);
        let names = of_the_run.filter(|(key, said)| counts(&key.target, newest(said)));
        let names = names.map(|(key, _)| key.name.clone());
        let mut names: BTreeSet<String> = names.collect();
        if !needs.is_subset(&names) {
            names.extend(noted_by_itself(self.run, &at.id)?);
        }
        let is_scored = needs.is_subset(&names);
        if is_scored {
            cards.scored.insert((at.id, in_force, needs.len()));
        }
        Ok(is_scored)
    }

    /// True if an earlier attempt had a final end that counts: its owner may also have written one after it had lost
    /// the attempt.
    fn was_over_before(&self, episode: &Id, attempt: u32) -> Result<bool> {
        for earlier in 0..attempt {
            let said = self.outcomes.said(episode, earlier);
            if !said.is_some_and(|said| is_final(&said.why)) {
                continue;
            }
            let view = self.run.store().view(episode).and_then(|view| view.attempt(earlier));
            let view = match view {
                // It was pruned since it was listed, or the claim was passed over.
                Err(Error::Pruned { .. } | Error::NotFound { .. }) => continue,
                view => view?,
            };
            if view.ending()?.and_then(|end| end.why).is_some_and(|why| is_final(&why)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The names of the notes that the counting attempt recorded on itself.
fn noted_by_itself(run: &Run, episode: &Id) -> Result<BTreeSet<String>> {
    let store = run.store();
    let chain = Chain::read_counted(store.cards(), episode)?;
    let Some(force) = chain.in_force() else { return Ok(BTreeSet::new()) };
    let mut catalog = store.looking();
    catalog.refresh_of(&writers_of(force))?;
    let mut lineage = match catalog.lineage(episode, &chain, force.claim.attempt) {
        // It was pruned since it was listed.
        Err(Error::Pruned { .. }) => return Ok(BTreeSet::new()),
        lineage => lineage?,
    };
    drop(catalog);
    let is_note = |at: &usize| lineage.lines()[*at].kind == Kind::Note as u8;
    let notes: Vec<usize> = (0..lineage.lines().len()).filter(is_note).collect();
    let mut names = BTreeSet::new();
    for at in notes {
        match lineage.item(at)? {
            Item::Record(record) if record.get(fields::INDEX).is_none() => {
                names.extend(record.get(fields::NAME).and_then(|name| name.as_str()).map(str::to_owned));
            }
            _ => {}
        }
    }
    Ok(names)
}
