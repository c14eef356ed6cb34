//! Reads an episode: the attempt that counts, with its inherited steps.

pub(in crate::store) mod claimed;
pub(in crate::store) mod counting;
pub(in crate::store) mod cursor;
pub(in crate::store) mod events;
pub(in crate::store) mod following;
pub(in crate::store) mod listing;
pub(in crate::store) mod own_records;
pub(in crate::store) mod query;
pub(in crate::store) mod reading;
mod settling;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use keepstep_format::decode::Wanted;
use keepstep_format::{Id, fields};

use crate::error::{Error, Result};
use crate::read::{
    Attempt, AttemptKey, Begin, Call, Catalog, End, EpisodeEvent, Events, Gap, Item, Lineage, LineageCursor,
    LineagePart, NoteKey, NoteSaid, Notes, RecordedStep,
};
use crate::recover::Recovery;
use crate::segment::chain::{Chain, Link, lost_base, lost_claim, read_based};
use crate::store::Store;
use crate::store::episode::opening::writers_of;
use crate::store::name::EpisodeName;
use crate::store::run::Run;
use crate::write::OUR_NAMES;

/// An episode: the attempt that counts, with its inherited steps.
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
    /// The attempt of an episode that counts now.
    ///
    /// ```
    /// use keepstep::EpisodeName;
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-view-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// # let episode = run.episode(keepstep::EpisodeName::task("shop-17"))?;
    /// # episode.step(keepstep::Step::new().action("buy").reward(1.0))?;
    /// # episode.end(keepstep::Why::Finished, keepstep::Ending::default())?.wait()?;
    /// let view = run.view(&EpisodeName::task("shop-17"))?;
    /// let last = view.step(view.steps() - 1)?;
    /// assert_eq!((last.reward, view.attempts()), (Some(1.0), vec![0]));
    /// let rewards: Vec<_> = view.each_step().map(|step| Ok(step?.reward)).collect::<keepstep::Result<_>>()?;
    /// assert_eq!(rewards, [Some(1.0)]);
    /// # drop((view, episode, run));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn view(&self, name: &EpisodeName) -> Result<View> {
        self.store().view(&self.episode_id(name))
    }
}

impl Store {
    /// The attempt of an episode that counts now.
    pub fn view(&self, episode: &Id) -> Result<View> {
        self.check_process()?;
        self.show();
        let chain = Chain::read_counted(self.cards(), episode)?;
        self.refuse_lost_bases(episode, &chain)?;
        let (attempt, lineage) = match chain.in_force() {
            Some(link) => (link.claim.attempt, self.lineage_of(episode, &chain, link)?),
            // It has no claim: an episode without a name has one attempt, in any log.
            None => {
                let catalog = self.catalog()?;
                let what = || Error::NotFound { what: format!("episode {episode}") };
                let key = catalog.attempts_at(episode)?.last().copied().ok_or_else(what)?;
                refuse_unclaimed(episode, &chain, key.attempt)?;
                (key.attempt, catalog.alone(episode, &key.writer, key.attempt)?)
            }
        };
        if lineage.lines().iter().all(|line| line.is_lost) && lineage.may_have_lost_its_end() {
            let found = "nothing of it can be read: its log is damaged".to_owned();
            return Err(Error::Damaged { path: format!("episode {episode}"), offset: 0, found });
        }
        Ok(View::new(self, *episode, chain, lineage, attempt))
    }

    /// An error if an attempt has records and its base is missing: otherwise an earlier attempt would count, as if
    /// this one had never begun. Checked only if there are claims after the attempt that counts.
    pub(in crate::store) fn refuse_lost_bases(&self, episode: &Id, chain: &Chain) -> Result<()> {
        let counts = chain.in_force().map_or(0, |link| link.claim.attempt);
        let without: Vec<&Link> = chain.behind(counts).iter().filter(|link| !link.is_void).collect();
        if without.is_empty() {
            return Ok(());
        }
        let mut catalog = self.looking_at_all();
        catalog.refresh_of(&without.iter().map(|link| link.claim.writer).collect::<Vec<_>>())?;
        for Link { claim, .. } in without {
            let own = catalog.own_part(episode, chain, claim.attempt)?;
            // The base may have been published since the chain was read.
            if !own.lines().is_empty() && read_based(self.cards(), episode, claim.attempt)?.is_none() {
                return Err(lost_base(episode, claim.attempt));
            }
        }
        Ok(())
    }

    /// The lineage of an attempt. Its own records count only as far as they are known to be synced; or, once a base
    /// or an END card says how many count, all of these, whatever their log says.
    fn lineage_of(&self, episode: &Id, chain: &Chain, link: &Link) -> Result<Lineage> {
        let (writers, attempt) = (writers_of(link), link.claim.attempt);
        let mut catalog = Catalog::unread(self.storage(), self.recovery());
        catalog.refresh_of(&writers)?;
        let lineage = catalog.lineage(episode, chain, attempt)?;
        if !misses_records(&lineage, link) {
            return Ok(lineage);
        }
        let mut all = Catalog::unread(self.storage(), Arc::new(Recovery::dirty()));
        all.refresh_of(&writers)?;
        let own_in = if link.records.is_some() { &all } else { &catalog };
        own_in.lineage_resting_on(&all, episode, chain, attempt)
    }
}

impl Store {
    /// An attempt of an episode, with its inherited steps, as a catalog knows it. Many can be read with one catalog.
    pub fn view_of(&self, catalog: &Catalog, key: &AttemptKey) -> Result<View> {
        self.check_process()?;
        let AttemptKey { episode, attempt, writer } = *key;
        let chain = Chain::read_counted(self.cards(), &episode)?;
        if let Some(link) = chain.link(attempt).filter(|link| link.claim.writer == writer)
            && !link.is_in_force()
            && !link.is_void
        {
            return Err(lost_base(&episode, attempt));
        }
        refuse_unclaimed(&episode, &chain, attempt)?;
        let counts =
            chain.link(attempt).is_some_and(|link| link.is_in_force() && link.claim.writer == writer);
        let link = chain.link(attempt).filter(|_| counts);
        let lineage = match link {
            Some(link) => match catalog.lineage(&episode, &chain, attempt)? {
                // They may be in a log that does not say yet how far it is synced.
                lineage if misses_records(&lineage, link) => self.lineage_of(&episode, &chain, link)?,
                lineage => lineage,
            },
            None => catalog.alone(&episode, &writer, attempt)?,
        };
        Ok(View::new(self, episode, chain, lineage, attempt))
    }

    /// The attempts of an episode that began, in order; the last one counts. Empty if the episode was never claimed.
    pub fn began(&self, episode: &Id) -> Result<Vec<Began>> {
        self.check_process()?;
        let chain = Chain::read(self.cards(), episode)?;
        let began = chain.links.iter().filter(|link| link.is_in_force()).map(|link| Began {
            key: AttemptKey { episode: *episode, attempt: link.claim.attempt, writer: link.claim.writer },
            resumed: link.base.as_ref().map(|base| base.resumed),
            inherited: link.base.as_ref().map_or(0, |base| base.inherited),
            was_over: link.base.as_ref().is_some_and(|base| base.adopted.is_some()),
        });
        Ok(began.collect())
    }

    /// The attempt that lists show for an end: the one that ended, or a later one that took over its end and recorded
    /// nothing. `None` if the episode was resumed since. Looks at the next attempts only, however many there are.
    pub fn last_with_end_of(&self, episode: &Id, attempt: u32) -> Result<Option<u32>> {
        self.check_process()?;
        let mut last = attempt;
        loop {
            let chain = Chain::read_from(self.cards(), episode, last)?;
            let next = chain.behind(last).iter().find(|link| link.is_in_force());
            let Some(next) = next else { return Ok(Some(last)) };
            let is_heir = next.is_over() && next.base.as_ref().is_some_and(|base| base.resumed == last);
            if !is_heir {
                return Ok(None);
            }
            last = next.claim.attempt;
        }
    }

    /// A writer as a text for people: its process and host.
    pub fn describe(&self, writer: &Id) -> String {
        self.leases().describe(writer)
    }
}

/// The ending of an attempt that was taken over by a process that died before it recorded that, or has not recorded it
/// yet: the base of the next attempt proves it.
fn superseded(chain: &Chain, attempt: u32) -> Option<End> {
    let next = chain.behind(attempt).iter().find(|link| link.is_in_force())?;
    let time = next.base.as_ref().map(|base| base.time);
    let why = chain.found_by_the_next(attempt).name().to_owned();
    let said_by = format!("attempt {}, which resumed it", next.claim.attempt);
    Some(End { time, why: Some(why), said_by: Some(said_by), ..End::default() })
}

/// True if records that count cannot be found: inherited ones, or own ones that a base or an END card counts.
fn misses_records(lineage: &Lineage, link: &Link) -> bool {
    lineage.misses_what_it_inherited() || link.records.is_some_and(|records| lineage.own_records() < records)
}

/// An error for an attempt that resumed another one and whose claim is missing: its inherited steps are unknown, and
/// its own part alone would be taken for all of it. Attempt 0 inherits nothing.
fn refuse_unclaimed(episode: &Id, chain: &Chain, attempt: u32) -> Result<()> {
    match chain.link(attempt) {
        None if attempt > 0 => Err(lost_claim(episode, attempt)),
        _ => Ok(()),
    }
}

/// An attempt that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Began {
    /// Which attempt, and its writer.
    pub key: AttemptKey,
    /// The attempt that it resumed, if it did.
    pub resumed: Option<u32>,
    /// How many steps it inherited, FIRST counted.
    pub inherited: u64,
    /// True if its taker found that the previous attempt had ended. Then nothing is recorded in this one.
    pub was_over: bool,
}

/// The events of an episode, in order.
pub type EpisodeEvents<'v> = Events<Items<'v>>;

/// The records of an episode that count, in order. If one cannot be read, it is the last.
#[derive(Debug)]
pub struct Items<'v> {
    view: &'v View,
    cursor: LineageCursor,
    has_failed: bool,
}

impl Iterator for Items<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        if self.has_failed {
            return None;
        }
        let mut next = || self.cursor.next(&mut self.view.lineage.borrow_mut());
        let item = self.view.store.check_process().and_then(|()| next());
        self.has_failed = item.is_err();
        item.transpose()
    }
}

impl View {
    fn new(store: &Store, episode: Id, chain: Chain, lineage: Lineage, attempt: u32) -> Self {
        let (store, parts) = (store.clone(), lineage.parts().to_vec());
        Self { store, episode, chain, lineage: RefCell::new(lineage), parts, attempt }
    }

    /// Its id.
    pub fn id(&self) -> Id {
        self.episode
    }

    /// The number of the attempt that is read: the one that counts, unless another was asked for
    /// ([`View::attempt`], [`Store::view_of`]).
    pub fn number(&self) -> u32 {
        self.attempt
    }

    /// All attempts that began, in order.
    pub fn attempts(&self) -> Vec<u32> {
        if self.chain.links.is_empty() {
            return vec![self.attempt];
        }
        self.chain.links.iter().filter(|link| link.is_in_force()).map(|link| link.claim.attempt).collect()
    }

    /// Which steps come from which attempt and writer.
    pub fn parts(&self) -> &[LineagePart] {
        &self.parts
    }

    /// The notes on the episode that count for this attempt, sorted by target.
    pub fn counting(&self, notes: &Notes) -> Vec<(NoteKey, NoteSaid)> {
        let mut found = Vec::new();
        for (key, said) in notes.iter() {
            // The newest that this attempt knows of: an inherited note may have been replaced in another attempt.
            let newest = said.iter().rev().find(|said| self.knows(key, said));
            found.extend(newest.map(|said| (key.clone(), said.clone())));
        }
        found
    }

    /// True if a note is on the episode, on this attempt, or was recorded in the inherited part. This is the one rule
    /// for whoever reads an attempt with its notes.
    fn knows(&self, key: &NoteKey, said: &NoteSaid) -> bool {
        let attempt = match (key.target.attempt, key.target.step) {
            (None, None) => return true,
            // Another attempt may have the step.
            (None, Some(step)) => return self.may_have_step(step),
            (Some(attempt), _) if attempt == self.attempt => return true,
            (Some(attempt), _) => attempt,
        };
        if self.has_adopted(attempt) {
            return true;
        }
        let is_inherited = |part: &LineagePart| {
            part.span.attempt == attempt && (part.span.from..part.span.to).contains(&said.seq)
        };
        said.is_own && self.parts.iter().any(is_inherited)
    }

    /// True if it has this step or a turn of this number without a result, or if the step may be among missing records.
    fn may_have_step(&self, step: u64) -> bool {
        let (steps, is_pending) = (self.steps(), self.lineage.borrow().has_pending());
        step < steps || (is_pending && step == steps) || !self.missing().is_empty()
    }

    /// True if this attempt only adopted the end of that one. Whoever annotated that one could not know that another
    /// process, such as one that seals the group, would copy it.
    fn has_adopted(&self, other: u32) -> bool {
        let mut attempt = self.attempt;
        while attempt > other {
            let base = self.chain.link(attempt).and_then(|link| link.base.as_ref());
            let Some(base) = base.filter(|base| base.adopted.is_some()) else { return false };
            if base.resumed >= attempt {
                return false;
            }
            attempt = base.resumed;
        }
        attempt == other
    }

    /// How many steps it has, FIRST included.
    pub fn steps(&self) -> u64 {
        self.lineage.borrow().steps()
    }

    /// Reads one step.
    pub fn step(&self, index: u64) -> Result<RecordedStep> {
        self.store.check_process()?;
        self.lineage.borrow_mut().step(index)
    }

    /// Reads steps in order, of each only the fields with these numbers, until `give` returns false. The other fields
    /// are not looked at: they are not there, and nobody knows whether they are lost.
    pub fn read_steps(
        &self,
        steps: Range<u64>,
        fields: impl IntoIterator<Item = u8>,
        give: &mut dyn FnMut(RecordedStep) -> bool,
    ) -> Result<()> {
        self.store.check_process()?;
        // These say which step it is.
        let of_itself = [fields::TIME, fields::INDEX, fields::STEP_KIND];
        let wanted = Wanted::of(fields.into_iter().chain(of_itself));
        for index in steps.start..steps.end.min(self.steps()) {
            let step = self.lineage.borrow_mut().wanted_step(index, &wanted)?;
            if !give(step) {
                break;
            }
        }
        Ok(())
    }

    /// Its steps, in order. Holds at most one in memory. A turn without a result is not among them
    /// ([`View::pending`]).
    pub fn each_step(&self) -> impl Iterator<Item = Result<RecordedStep>> {
        self.events().filter_map(|event| match event {
            Ok(EpisodeEvent::Step(step)) => Some(Ok(*step)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// The calls that were made, in order.
    pub fn calls(&self) -> Result<Vec<Call>> {
        self.store.check_process()?;
        let mut calls = self.lineage.borrow_mut().calls()?;
        // keepstep's own calls record failed tries of a turn.
        calls.retain(|call| call.name.as_deref().is_none_or(|name| !name.starts_with(OUR_NAMES)));
        Ok(calls)
    }

    /// Reads all of it.
    pub fn read(&self) -> Result<Attempt> {
        self.store.check_process()?;
        self.lineage.borrow_mut().read()
    }

    /// How it ended: as its owner recorded, or as another process found. `None` while it runs, or if no process has
    /// looked yet.
    pub fn ending(&self) -> Result<Option<End>> {
        self.store.check_process()?;
        // The process that found the end had fenced the owner, and then saw no end. An end that came later was
        // refused.
        let found = self.store.found_ending(&self.episode, self.attempt)?;
        if found.is_some() {
            return Ok(found);
        }
        let said = self.lineage.borrow_mut().end()?;
        if said.is_some() {
            return Ok(said);
        }
        let adopted = self.chain.link(self.attempt).and_then(|link| link.base.as_ref()?.adopted.clone());
        let Some(why) = adopted else { return Ok(superseded(&self.chain, self.attempt)) };
        // As the attempt that ended recorded it.
        let said = self.lineage.borrow_mut().inherited_end()?;
        Ok(Some(End { why: Some(why), ..said.unwrap_or_default() }))
    }

    /// How the attempt began. If it has no records of its own, how the previous one began.
    pub fn begin(&self) -> Result<Option<Begin>> {
        self.store.check_process()?;
        self.lineage.borrow_mut().begin()
    }

    /// What is missing in it, as text for people: records that were there and are in no log.
    pub fn missing(&self) -> Vec<String> {
        let missing = |(part, gap): &(usize, Gap)| {
            let attempt = self.parts.get(*part).map_or(self.attempt, |part| part.span.attempt);
            format!("records {} to {} of attempt {attempt} are missing", gap.from, gap.to.saturating_sub(1))
        };
        let lineage = self.lineage.borrow();
        let mut told: Vec<String> = lineage.gaps().iter().map(missing).collect();
        if lineage.own_end().is_none() && lineage.may_have_lost_its_end() {
            let attempt = self.attempt;
            told.push(format!("records at the end of attempt {attempt} may be missing: its log is damaged"));
        }
        told
    }

    /// The store that it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The writer of the attempt, even if it recorded nothing.
    pub fn writer(&self) -> Id {
        let claimed = self.chain.link(self.attempt).map(|link| link.claim.writer);
        claimed.or(self.parts.last().map(|part| part.span.writer)).unwrap_or(Id::NONE)
    }

    /// How many of its records were inherited; the next one is its own.
    pub(in crate::store) fn inherited_lines(&self) -> usize {
        self.lineage.borrow().own_lines(usize::MAX).start
    }

    /// A record of it, by its number.
    pub(in crate::store) fn line(&self, at: usize) -> Result<Item> {
        self.store.check_process()?;
        self.lineage.borrow_mut().item(at)
    }

    /// A turn that has an intent and no result.
    pub fn pending(&self) -> Result<Option<RecordedStep>> {
        self.store.check_process()?;
        self.lineage.borrow_mut().pending()
    }

    /// Its events, in order. Holds at most one step in memory.
    pub fn events(&self) -> EpisodeEvents<'_> {
        let cursor = LineageCursor::new(&self.lineage.borrow());
        Events::new(Items { view: self, cursor, has_failed: false })
    }

    /// The attempt that recorded a step.
    pub fn attempt_of(&self, step: u64) -> u32 {
        let part = self.parts.iter().find(|part| part.steps.contains(&step));
        part.map_or(self.attempt, |part| part.span.attempt)
    }

    /// Another attempt of the episode, with its inherited steps.
    pub fn attempt(&self, attempt: u32) -> Result<View> {
        self.store.check_process()?;
        let what = || Error::NotFound { what: format!("attempt {attempt} at episode {}", self.episode) };
        let chain = self.chain.clone();
        let link = chain.link(attempt).filter(|link| link.is_in_force()).ok_or_else(what)?;
        let lineage = self.store.lineage_of(&self.episode, &chain, link)?;
        Ok(Self::new(&self.store, self.episode, chain, lineage, attempt))
    }
}
