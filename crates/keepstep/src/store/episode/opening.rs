//! Opens an episode: finds who owns it, whether it is over, and where to resume.

use std::sync::Arc;
use std::time::Duration;

use keepstep_format::value::Value;
use keepstep_format::{Id, fields, ids};

use crate::error::{Doing, Error, Result};
use crate::own::{NewClaim, OwnerState};
use crate::read::{End, Lineage, is_final};
use crate::segment::chain::{Chain, Link, lost_end, read_claim};
use crate::store::episode::Episode;
use crate::store::episode::open_episodes::Reservation;
use crate::store::episode::options::{NewPolicy, Opening, Resume, WhenBusy};
use crate::store::name::EpisodeName;
use crate::store::run::Run;
use crate::write::{Start, SubjectName, Writer};

/// How often a waiting caller checks the owner.
pub(in crate::store) const WAIT_STEP: Duration = Duration::from_millis(20);

/// How long to wait until a written end is known to be synced, and how often to check.
pub(in crate::store) const SOON_MAX: Duration = Duration::from_secs(2);
pub(in crate::store) const SOON_STEP: Duration = Duration::from_millis(1);

/// What opening an episode has to do.
enum Move {
    /// Begin: no process had it, or this process claimed its first attempt and recorded nothing.
    Begin { is_claimed: bool },
    /// Take over an interrupted attempt.
    Take(Take),
    /// Refuse: it is over.
    Over(String),
    /// Wait: its owner has written an end, and the log does not say yet that it is synced.
    Soon,
    /// Refuse or wait: another process has it.
    Busy { owner: Id, attempt: u32, why: String },
}

/// The next attempt, and what is known of the previous owner.
struct Take {
    attempt: u32,
    is_claimed: bool,
    was_alive: bool,
    evidence: Value,
}

/// The result of a try to open an episode. The reservation is returned if another process was faster.
type Tried = std::result::Result<Episode, Reservation>;

/// Whether an episode can be opened.
pub(in crate::store) enum Free {
    New,
    /// It was interrupted; this attempt would be the next.
    Interrupted {
        attempt: u32,
    },
    Over,
    Soon,
    Busy,
}

/// An episode that is being opened.
pub(in crate::store) struct Opener<'r> {
    pub(in crate::store) run: &'r Run,
    pub(in crate::store) id: Id,
    pub(in crate::store) name: EpisodeName,
    pub(in crate::store) how: Opening,
    /// The writer that claims and records it. It stays the same, even if its log is closed meanwhile.
    pub(in crate::store) writer: Arc<Writer>,
    /// How many samples its group has, if it is opened as a slot of one.
    group_size: Option<u64>,
}

impl Run {
    /// Opens an episode: begins it, or resumes where an interrupted attempt stopped.
    ///
    /// ```
    /// use keepstep::{Ending, EpisodeName, Step, Why};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-episode-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// let episode = run.episode(EpisodeName::task("shop-17").sample(2))?;
    /// while episode.steps() < 3 {
    ///     episode.step(Step::new().action("buy").reward(1.0))?; // durable from here on
    /// }
    /// episode.end(Why::Finished, Ending::default())?.wait()?;
    /// # drop((episode, run));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn episode(&self, name: EpisodeName) -> Result<Episode> {
        self.open(name, Opening::default())
    }

    /// As [`Run::episode`], with options.
    pub fn open(&self, name: EpisodeName, how: Opening) -> Result<Episode> {
        how.check()?;
        name.check()?;
        let id = self.episode_id(&name);
        let opener = Opener::new(self, id, name, how)?;
        self.store().refuse_pruned(&id).map_err(|error| error.of(&opener.what()))?;
        let reservation = self.store().open_episodes().take(id, &opener.what())?;
        opener.open(reservation)
    }

    /// Begins an episode without a name. It is unique, so no other process can own it, and it cannot be opened again.
    pub fn unnamed(&self, how: Opening) -> Result<Episode> {
        how.check()?;
        let mut random = [0; 16];
        self.store().disk().random(&mut random).doing("find an id for", "an episode")?;
        let id = ids::unnamed_episode(&self.generation_id(), &random);
        let name = EpisodeName { task: String::new(), iteration: 0, sample: 0 };
        let opener = Opener::new(self, id, name, how)?;
        let reservation = self.store().open_episodes().take(id, &opener.what())?;
        opener.begin(reservation, vec![(fields::UNNAMED, Value::bytes(random))])
    }
}

impl<'r> Opener<'r> {
    pub(in crate::store) fn new(run: &'r Run, id: Id, name: EpisodeName, how: Opening) -> Result<Self> {
        // A claim names its writer, so there must be one. By it, the chain can also tell which claims are ours.
        Ok(Self { run, id, name, how, writer: run.store().writer()?, group_size: None })
    }

    /// The same, as a slot of a group of this size.
    pub(in crate::store) fn in_a_group_of(self, size: usize) -> Self {
        Self { group_size: Some(size as u64), ..self }
    }
}

impl Opener<'_> {
    pub(in crate::store) fn what(&self) -> String {
        let EpisodeName { task, iteration, sample } = &self.name;
        format!("episode {}/{task}#{iteration}.{sample}", self.run.name())
    }

    pub(in crate::store) fn open(&self, mut reservation: Reservation) -> Result<Episode> {
        let disk = self.run.store().disk();
        let started_us = disk.uptime_us();
        let writer = self.writer.id();
        let mut is_shown = false;
        loop {
            let waited = Duration::from_micros((disk.uptime_us() - started_us).max(0) as u64);
            let chain = Chain::read_newest(self.run.store().cards(), &self.id)?;
            if !chain.links.is_empty() && !std::mem::replace(&mut is_shown, true) {
                self.run.store().show();
            }
            match self.next_move(&chain, &writer, waited < SOON_MAX)? {
                Move::Soon => disk.sleep(SOON_STEP),
                Move::Over(why) => return Err(Error::Ended { what: self.what(), why }),
                Move::Begin { is_claimed } => match self.try_to_begin(reservation, is_claimed, &writer)? {
                    Ok(episode) => return Ok(episode),
                    Err(free) => reservation = free,
                },
                Move::Take(take) => match self.try_to_take(reservation, &chain, take, &writer)? {
                    Ok(episode) => return Ok(episode),
                    Err(free) => reservation = free,
                },
                Move::Busy { owner, attempt, why } => match self.how.busy {
                    WhenBusy::Wait(patience) if waited < patience => disk.sleep(WAIT_STEP),
                    _ => return Err(self.busy(&owner, attempt, &why)),
                },
            }
        }
    }

    /// Whether the episode can be opened now. [`Opener::open_if_free`], which follows, checks again.
    pub(in crate::store) fn look(&self) -> Result<Free> {
        let writer = self.writer.id();
        let chain = Chain::read_newest(self.run.store().cards(), &self.id)?;
        Ok(match self.next_move(&chain, &writer, true)? {
            Move::Begin { .. } => Free::New,
            Move::Take(Take { attempt, .. }) => Free::Interrupted { attempt },
            Move::Over(_) => Free::Over,
            Move::Soon => Free::Soon,
            Move::Busy { .. } => Free::Busy,
        })
    }

    /// Opens the episode if nobody has it. `None` if another process has it, or was faster.
    pub(in crate::store) fn open_if_free(&self, reservation: Reservation) -> Result<Option<Episode>> {
        let writer = self.writer.id();
        let chain = Chain::read_newest(self.run.store().cards(), &self.id)?;
        let tried = match self.next_move(&chain, &writer, false)? {
            Move::Begin { is_claimed } => self.try_to_begin(reservation, is_claimed, &writer)?,
            Move::Take(take) => self.try_to_take(reservation, &chain, take, &writer)?,
            Move::Over(_) | Move::Soon | Move::Busy { .. } => return Ok(None),
        };
        Ok(tried.ok())
    }

    fn try_to_begin(&self, reservation: Reservation, is_claimed: bool, writer: &Id) -> Result<Tried> {
        if let Some(at) = self.how.at.filter(|at| *at > 0) {
            return Err(Error::BadInput {
                field: "at".to_owned(),
                value: format!("is {at}, and {} is new: there is no step to inherit", self.what()),
                fix: "leave it out".to_owned(),
            });
        }
        if !is_claimed && !self.claim(0, writer)? {
            return Ok(Err(reservation));
        }
        self.begin(reservation, Vec::new()).map(Ok)
    }

    fn try_to_take(&self, reservation: Reservation, chain: &Chain, take: Take, writer: &Id) -> Result<Tried> {
        let Take { attempt, is_claimed, was_alive, evidence } = take;
        self.check_resume(chain)?;
        if self.how.at.is_some() || self.how.new_policy == NewPolicy::Refuse {
            // Checked first: a refused opening must not take the episode away from its owner.
            self.inherit(attempt)?;
        }
        let options = self.run.store().options();
        let reads_first = options.is_broken_read_before_claim();
        let mut early = if reads_first { Some(self.inherit(attempt)?) } else { None };
        if !is_claimed && !self.claim(attempt, writer)? {
            return Ok(Err(reservation));
        }
        if options.is_broken_post_after_read() {
            early = Some(self.inherit(attempt)?);
        }
        self.take_over(reservation, attempt, was_alive, evidence, early).map(Ok)
    }

    /// Opens an attempt that this process has claimed and not used yet.
    pub(in crate::store) fn open_claimed(&self, reservation: Reservation, attempt: u32) -> Result<Episode> {
        let store = self.run.store();
        if attempt == 0 {
            return self.begin(reservation, Vec::new());
        }
        let chain = Chain::read_newest(store.cards(), &self.id)?;
        let is_unused =
            |newest: &Link| newest.claim.attempt == attempt && !newest.is_void && newest.base.is_none();
        if !chain.newest().is_some_and(is_unused) {
            // Another process took it in the meantime, or another caller of this process opened it by its name.
            return self.open(reservation);
        }
        self.check_resume(&chain)?;
        let before = chain.in_force().map(|link| link.claim.writer);
        let (was_alive, evidence) = match before.map(|owner| store.leases().state(&owner)) {
            Some(OwnerState::Dead(evidence)) => (false, evidence),
            _ => (true, Value::Null),
        };
        self.take_over(reservation, attempt, was_alive, evidence, None)
    }

    pub(in crate::store) fn claim(&self, attempt: u32, writer: &Id) -> Result<bool> {
        let (episode, generation_id) = (&self.id, &self.run.generation_id());
        let group_size = self.group_size.filter(|_| attempt == 0);
        self.run.store().claim(&NewClaim { episode, attempt, writer, generation_id, group_size })
    }

    /// Decides by the last owner, and by how its attempt ended.
    fn next_move(&self, chain: &Chain, ours: &Id, may_wait: bool) -> Result<Move> {
        let (Some(newest), Some(force)) = (chain.newest_open(), chain.in_force()) else {
            return Ok(Move::Begin { is_claimed: false });
        };
        let adopted = force.base.as_ref().and_then(|base| base.adopted.as_deref());
        if let Some(over) = adopted.map(|why| self.stays_over(why)).transpose()?.flatten() {
            return Ok(Move::Over(over));
        }
        let next = chain.newest().map_or(0, |newest| newest.claim.attempt) + 1;
        if newest.claim.writer == *ours && !newest.is_in_force() {
            // An earlier try of this process got no further than its claim.
            let attempt = newest.claim.attempt;
            let (was_alive, evidence) = match self.run.store().leases().state(&force.claim.writer) {
                OwnerState::Dead(evidence) => (false, evidence),
                _ => (true, Value::Null),
            };
            return Ok(Move::Take(Take { attempt, is_claimed: true, was_alive, evidence }));
        }
        // An end that its owner wrote after another process had found the attempt dead does not count.
        let chain = &chain.clone().with_found_ends(self.run.store().cards(), &self.id)?;
        let mut own = self.own_part(chain, force)?;
        let is_ours = newest.claim.writer == *ours;
        if is_ours
            && next == 1
            && own.lines().is_empty()
            && self.all_of_own_part(chain, force)?.lines().is_empty()
        {
            return Ok(Move::Begin { is_claimed: true });
        }
        let end = own.end()?;
        if end.as_ref().is_some_and(|end| end.why.is_none()) && self.inherits_all() {
            return Err(lost_end(&self.id, force.claim.attempt));
        }
        let over = end.as_ref().and_then(final_why);
        if let Some(over) = over.map(|why| self.stays_over(&why)).transpose()?.flatten() {
            return Ok(Move::Over(over));
        }
        let has_ended = end.is_some() || adopted.is_some();
        let is_left = has_ended && newest.claim.attempt == force.claim.attempt;
        if is_left || is_ours {
            // Its owner ended it; or the owner is this process, and does not have it open any more.
            let evidence = Value::Null;
            let take = Take { attempt: next, is_claimed: false, was_alive: true, evidence };
            return Ok(Move::Take(take));
        }
        let next = self.ask_for(newest, next);
        // An acknowledged end may not be visible to other processes yet: do not answer "busy" because of that.
        let is_busy = matches!(next, Move::Busy { .. });
        let is_ending = is_busy && may_wait && self.all_of_own_part(chain, force)?.own_end().is_some();
        Ok(if is_ending { Move::Soon } else { next })
    }

    /// True if everything would be inherited. Then lost records matter.
    fn inherits_all(&self) -> bool {
        self.how.at.is_none()
            && self.how.resume != Resume::Restart
            && self.how.new_policy != NewPolicy::Restart
    }

    /// Whether the episode can be taken from an owner that did not end its attempt.
    fn ask_for(&self, newest: &Link, attempt: u32) -> Move {
        let owner = newest.claim.writer;
        let take = |was_alive: bool, evidence: Value| {
            Move::Take(Take { attempt, is_claimed: false, was_alive, evidence })
        };
        match self.run.store().leases().state(&owner) {
            OwnerState::Dead(evidence) => take(false, evidence),
            _ if self.how.busy == WhenBusy::Take => take(true, Value::Null),
            OwnerState::Live => {
                Move::Busy { owner, attempt: newest.claim.attempt, why: "is recording it".to_owned() }
            }
            OwnerState::Silent { heard, left } => Move::Busy {
                owner,
                attempt: newest.claim.attempt,
                why: format!(
                    "has it and was silent for {} s; it counts as dead after {} s more",
                    heard.as_secs(),
                    left.as_secs().max(1)
                ),
            },
        }
    }

    fn busy(&self, owner: &Id, attempt: u32, why: &str) -> Error {
        let store = self.run.store();
        let claimed = read_claim(store.cards(), &self.id, attempt).ok().flatten();
        let since_s = claimed.map_or(0, |claim| (store.disk().now_us() - claim.time).max(0) / 1_000_000);
        let why = format!("{why} (claimed {since_s} s ago)");
        let owner = self.run.store().leases().describe(owner);
        Error::Busy { what: format!("{}, attempt {attempt}", self.what()), why: format!("{owner} {why}") }
    }

    /// True if an interrupted episode must not be opened.
    pub(in crate::store) fn leaves_the_interrupted(&self) -> bool {
        self.how.resume == Resume::Refuse
    }

    fn check_resume(&self, chain: &Chain) -> Result<()> {
        if self.how.resume != Resume::Refuse {
            return Ok(());
        }
        let newest = chain.in_force().map_or(0, |link| link.claim.attempt);
        let why = match self.how.retry.is_empty() {
            true => format!("attempt {newest} would be resumed, and resuming is refused"),
            false => format!(
                "attempt {newest} would be resumed, and resuming is refused: leave out `retry` or `resume`"
            ),
        };
        Err(Error::ResumeRefused { what: self.what(), why })
    }

    /// What the newest attempt recorded itself, as far as it is known to be synced.
    fn own_part(&self, chain: &Chain, force: &Link) -> Result<Lineage> {
        let mut catalog = self.run.store().looking();
        catalog.refresh_of(&[force.claim.writer])?;
        catalog.own_part(&self.id, chain, force.claim.attempt)
    }

    /// As [`Opener::own_part`], plus what is not known to be synced: acknowledged at `kill`, or a moment ago.
    fn all_of_own_part(&self, chain: &Chain, force: &Link) -> Result<Lineage> {
        let mut catalog = self.run.store().looking_at_all();
        catalog.refresh_of(&[force.claim.writer])?;
        catalog.own_part(&self.id, chain, force.claim.attempt)
    }

    /// Records the first attempt.
    pub(in crate::store) fn begin(
        &self,
        reservation: Reservation,
        more: Vec<(u8, Value)>,
    ) -> Result<Episode> {
        let recorder = self.recorder(0, Start::default(), more)?;
        Ok(Episode::new(self.run, Arc::new(recorder), None, None, reservation))
    }

    /// Makes the recorder of an attempt that begins like this.
    pub(in crate::store) fn recorder(
        &self,
        attempt: u32,
        start: Start,
        more: Vec<(u8, Value)>,
    ) -> Result<crate::write::Recorder> {
        let run = self.run;
        let name = SubjectName {
            run: run.name().to_owned(),
            generation_id: run.generation_id(),
            task: self.name.task.clone(),
            iteration: self.name.iteration,
            sample: self.name.sample,
        };
        let mut begin = vec![
            (fields::RUN, Value::from(run.name())),
            (fields::GENERATION_ID, Value::bytes(run.generation_id().0)),
            (fields::TASK, Value::from(name.task.as_str())),
            (fields::ITERATION, Value::Int(name.iteration)),
            (fields::SAMPLE, Value::Int(name.sample)),
            (fields::GENERATION, Value::Int(run.generation())),
        ];
        begin.extend(self.how.parent.as_deref().map(|parent| (fields::PARENT, Value::from(parent))));
        begin.extend(self.how.meta.clone().map(|meta| (fields::META, meta)));
        begin.extend(more);
        begin.sort_by_key(|(number, _)| *number);
        run.store().recorder(&self.writer, self.id, attempt, name, begin, start)
    }
}

/// All writers whose logs hold a part of the attempt's lineage.
pub(in crate::store) fn writers_of(link: &Link) -> Vec<Id> {
    let spans = link.base.iter().flat_map(|base| &base.spans).map(|span| span.writer);
    let mut writers: Vec<Id> = spans.chain([link.claim.writer]).collect();
    writers.sort_unstable();
    writers.dedup();
    writers
}

/// How the attempt ended, if the episode is over by that.
pub(in crate::store) fn final_why(end: &End) -> Option<String> {
    end.why.clone().filter(|why| is_final(why))
}
