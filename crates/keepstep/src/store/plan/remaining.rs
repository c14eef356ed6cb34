//! Hands out the remaining episodes of a plan, job by job. Each is claimed when it is yielded, so many workers can
//! share a plan.
//!
//! A claim is for the attempt after the newest one that was seen. If another process acted since, that number is
//! taken, and the job is skipped. So no job takes an episode from a live owner, and no two workers get the same one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Doing, Error, Result, or_told};
use crate::own::NewClaim;
use crate::segment::chain::claim_path;
use crate::store::episode::Episode;
use crate::store::episode::open_episodes::Reservation;
use crate::store::episode::opening::Opener;
use crate::store::episode::options::Opening;
use crate::store::episode::retry::{check_retry, goes_on_behind};
use crate::store::name::EpisodeName;
use crate::store::plan::scoring::Scoring;
use crate::store::planned::Held;
use crate::store::planned::queue::{Candidate, Queue};
use crate::store::planned::repeats::rests;
use crate::store::run::Run;
use keepstep_format::{Id, Why};

/// Which of the remaining episodes to yield.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct RemainingOptions {
    /// Final endings after which to resume an episode: `truncated`. Endings that are resumed anyway may be named too.
    pub retry: Vec<String>,
    /// An episode that errored this often in a row is given up. An episode that this process left this often, without
    /// an end and without progress, is not yielded again by this process.
    pub max_attempts: u32,
    /// How long an errored episode rests before it is yielded again. Each further error in a row doubles this time.
    pub pause: Duration,
    /// Which kind of work to yield.
    pub jobs: Jobs,
}

impl Default for RemainingOptions {
    fn default() -> Self {
        Self { retry: Vec::new(), max_attempts: 3, pause: Duration::from_secs(1), jobs: Jobs::All }
    }
}

/// Which kind of work to yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jobs {
    /// All kinds; the caller looks at what each job is.
    #[default]
    All,
    /// Episodes to record.
    ToRun,
    /// Episodes that are over and lack a note.
    ToScore,
}

impl RemainingOptions {
    /// Sets the final endings after which to resume an episode.
    pub fn retry(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.retry = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Sets after how many errors in a row an episode is given up.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets how long an errored episode rests before it is yielded again.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets which kind of work to yield.
    pub fn jobs(mut self, jobs: Jobs) -> Self {
        self.jobs = jobs;
        self
    }

    pub(in crate::store) fn check(&self) -> Result<()> {
        check_retry(&self.retry)
    }

    /// Whether an episode that errored, or that this process left, is tried again.
    pub(in crate::store) fn wants(&self, it: &Candidate) -> bool {
        it.in_a_row < self.max_attempts
    }

    /// How long a failed episode still rests; `None` if it may be tried again now.
    fn rests(&self, failed: &Candidate, now_us: i64) -> Option<Duration> {
        rests(self.pause, failed.in_a_row, failed.seen_us, now_us)
    }

    fn wants_to_run(&self) -> bool {
        self.jobs != Jobs::ToScore
    }

    fn wants_to_score(&self) -> bool {
        self.jobs != Jobs::ToRun
    }

    /// Whether an unused claim of this process may be yielded.
    fn wants_held(&self, held: &Held) -> bool {
        let is_more = &*held.why == Why::Truncated.name();
        self.wants_to_run() && !self.is_enough(held) && (!is_more || goes_on_behind(&self.retry, &held.why))
    }

    /// Whether a claim was returned unused as often as an episode may fail. What fails before it begins would fail
    /// for ever.
    fn is_enough(&self, held: &Held) -> bool {
        held.returned >= self.max_attempts.max(1)
    }
}

/// A remaining episode, claimed for this process.
///
/// A job that is dropped unopened stays claimed. The next caller of this process gets it first, until that happened
/// as often as an episode may fail. Other processes get it when this process is gone. The same holds for an unscored
/// episode, which is claimed for scoring.
#[derive(Debug)]
pub struct Job {
    run: Run,
    held: Option<Held>,
    reservation: Option<Reservation>,
    /// Which episode.
    pub name: EpisodeName,
    /// How many attempts at it began before.
    pub attempts: u32,
    /// How the last attempt ended; or `new`, or `unscored`.
    pub why: Arc<str>,
}

impl Job {
    /// The episode's id.
    pub fn id(&self) -> Id {
        self.run.episode_id(&self.name)
    }

    /// Opens the episode with the claim of the job. An unscored episode is over: annotate it instead.
    pub fn episode(mut self, mut how: Opening) -> Result<Episode> {
        self.run.store().check_process()?;
        how.check()?;
        if &*self.why == Why::Truncated.name() {
            // The caller of `remaining` asked for truncated episodes.
            how.retry.push(Why::Truncated.to_string());
        }
        let (run, name) = (self.run.clone(), self.name.clone());
        let opener = Opener::new(&run, self.id(), name, how)?;
        let Some(reservation) = self.reservation.take() else { return Err(Error::Closed) };
        let Some(held) = self.held.take() else {
            let why = "unscored: it lacks a note that the plan needs".to_owned();
            return Err(Error::Ended { what: opener.what(), why });
        };
        let is_anothers = held.writer != Some(opener.writer.id());
        let opened = if held.is_tried || is_anothers || is_overtaken(&run, &held)? {
            opener.open(reservation)
        } else {
            opener.open_claimed(reservation, held.attempt)
        };
        let is_left = |error: &Error| {
            matches!(error, Error::Ended { .. } | Error::ResumeRefused { .. } | Error::Busy { .. })
        };
        if opened.as_ref().is_err_and(|error| !is_left(error)) {
            run.store().plan_caches().give_back(Held { is_tried: true, returned: held.returned + 1, ..held });
        }
        opened
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The reservation is dropped first: the caller that gets the claim reserves the episode at once.
        drop(self.reservation.take());
        if let Some(held) = self.held.take() {
            self.run.store().plan_caches().give_back(Held { returned: held.returned + 1, ..held });
        }
    }
}

/// Takes the first candidate that is wanted.
fn take_first(queue: &mut VecDeque<Candidate>, is_wanted: impl Fn(&Candidate) -> bool) -> Option<Candidate> {
    let at = queue.iter().position(is_wanted)?;
    queue.remove(at)
}

/// True if another process claimed the attempt after this one.
fn is_overtaken(run: &Run, held: &Held) -> Result<bool> {
    let path = claim_path(&held.episode, held.attempt.saturating_add(1));
    run.store().disk().exists(&path).doing("look for", &path)
}

/// How long a wait lasts before it checks again: a process may have died meanwhile.
const REST_AT_ONCE: Duration = Duration::from_secs(1);

/// Yields jobs until nothing remains that this process could do now.
#[derive(Debug)]
pub struct Remaining {
    run: Run,
    options: RemainingOptions,
    /// The episodes that were yielded, and as which attempt: an attempt is not yielded twice.
    given: HashMap<Id, u32>,
    /// The round of the survey in which the last job was yielded.
    round: u64,
    /// The last round before this iterator was made.
    began: u64,
    troubles_told: usize,
    /// Unscored episodes that another caller of this process has.
    held_here: Vec<EpisodeName>,
    /// Errors of episodes that could not be claimed. They are returned after all jobs.
    untold: Vec<Error>,
}

impl Run {
    /// The remaining episodes of the plan, each claimed when it is yielded. Interrupted ones come first, then new
    /// ones, then those that lack a note, then those that this process itself left, then truncated ones (on request),
    /// then failed ones. Many threads and processes may iterate at once.
    ///
    /// Each group is in the order of the plan: tasks as they were planned, and of each task its samples by number. Only
    /// the new ones begin elsewhere in each process, and go round: so processes rarely want the same episode. What others
    /// record meanwhile changes the order of what is left.
    ///
    /// One iterator yields no attempt twice. An episode that was left without an end, or truncated again, comes again
    /// in a new iterator. A failed one comes again until it failed as often as it may.
    ///
    /// ```
    /// use keepstep::{Ending, Opening, PlanOptions, RemainingOptions, Step, Why};
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-remaining-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// run.plan(["shop-17", "shop-18"], PlanOptions::default())?;
    /// for job in run.remaining(RemainingOptions::default())? {
    ///     let episode = job?.episode(Opening::default())?;
    ///     episode.step(Step::new().action("buy"))?;
    ///     episode.end(Why::Finished, Ending::default())?.wait()?;
    /// }
    /// assert_eq!(run.progress(&RemainingOptions::default())?.done(), 2);
    /// # drop(run);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn remaining(&self, options: RemainingOptions) -> Result<Remaining> {
        self.store().check_process()?;
        options.check()?;
        let round = self.plan_cache().queue().round;
        Ok(Remaining {
            run: self.clone(),
            options,
            given: HashMap::new(),
            round,
            began: round,
            troubles_told: 0,
            held_here: Vec::new(),
            untold: Vec::new(),
        })
    }

    /// One job, if there is one. If all that is left has just errored and rests, it waits.
    pub fn claim(&self, options: RemainingOptions) -> Result<Option<Job>> {
        self.remaining(options)?.next().transpose()
    }

    /// The remaining episodes, in the order in which this process would get them. Claims nothing. Those that cannot
    /// be read are listed as `damaged`.
    pub fn remaining_list(&self, options: &RemainingOptions) -> Result<Vec<(EpisodeName, Arc<str>)>> {
        self.store().check_process()?;
        options.check()?;
        let mut queue = self.plan_cache().queue();
        queue.refresh(self)?;
        let plan = self.plan_cache().plan();
        let idle = self.store().plan_caches().idle(&self.generation_id());
        let mut list = Vec::new();
        let named = |it: &Candidate| (queue.name(&plan, it.index), Arc::clone(&it.why));
        let mut more = Vec::new();
        for it in queue.truncated.iter().filter(|it| goes_on_behind(&options.retry, &it.why)) {
            let (name, why) = named(it);
            // If the seal cannot be read, the episode is not resumed; `remaining` reports why.
            if or_told(self.is_sealed_with(&name))?.0 == Some(false) {
                more.push((name, why));
            }
        }
        let new: Arc<str> = Arc::from("new");
        let damaged: Arc<str> = Arc::from("damaged");
        if options.wants_to_run() {
            let idle = idle.into_iter().filter(|held| options.wants_held(held));
            list.extend(idle.map(|held| (held.name, held.why)));
            list.extend(queue.interrupted.iter().map(named));
            list.extend(queue.new.iter().map(|&index| (queue.name(&plan, index), Arc::clone(&new))));
        }
        if options.wants_to_score() {
            let scorings = &self.plan_cache().scorings;
            list.extend(
                queue.unscored.iter().filter(|it| scorings.wants(&it.episode, it.attempt)).map(named),
            );
        }
        if options.wants_to_run() {
            list.extend(queue.own.iter().filter(|it| options.wants(it)).map(named));
            list.extend(more);
            list.extend(queue.errored.iter().filter(|it| options.wants(it)).map(named));
        }
        let troubles = queue.troubles.iter();
        list.extend(troubles.map(|(index, _)| (queue.name(&plan, *index), Arc::clone(&damaged))));
        Ok(list)
    }
}

/// What to try next.
enum Pick {
    /// An unused claim of this process.
    Idle(Held),
    Work(Held),
    /// An episode that is over and lacks a note, to be claimed for scoring.
    Unscored(Held),
}

/// The result of asking for a job.
#[derive(Debug)]
pub enum Next {
    /// A job.
    Job(Box<Job>),
    /// No job yet: an errored episode rests for this long.
    Rest(Duration),
    /// Nothing remains that this process could do now.
    Nothing,
}

impl Iterator for Remaining {
    type Item = Result<Job>;

    /// Waits while errored episodes rest; [`Remaining::try_next`] does not wait.
    fn next(&mut self) -> Option<Result<Job>> {
        loop {
            match self.try_next() {
                Ok(Next::Job(job)) => return Some(Ok(*job)),
                Ok(Next::Rest(time)) => self.run.store().disk().sleep(time.min(REST_AT_ONCE)),
                Ok(Next::Nothing) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Remaining {
    pub(in crate::store) fn run(&self) -> &Run {
        &self.run
    }

    /// Episodes that lack a note and were not yielded, because another caller of this process has them.
    pub fn held_here(&self) -> &[EpisodeName] {
        &self.held_here
    }

    /// Episodes that this process claimed and returned unopened as often as an episode may fail, with the count. This
    /// process does not yield them again; other processes get them when it is gone.
    pub fn returned(&self) -> Vec<(EpisodeName, u32)> {
        let idle = self.run.store().plan_caches().idle(&self.run.generation_id());
        let enough = idle.into_iter().filter(|held| self.options.is_enough(held));
        enough.map(|held| (held.name, held.returned)).collect()
    }

    /// Episodes that this process left without an end and without progress as often as it may, with the count. This
    /// process does not yield them again; other processes get them when it is gone.
    pub fn left(&self) -> Vec<(EpisodeName, u32)> {
        let (queue, plan) = (self.run.plan_cache().queue(), self.run.plan_cache().plan());
        let left = queue.own.iter().filter(|it| !self.options.wants(it));
        left.map(|it| (queue.name(&plan, it.index), it.in_a_row)).collect()
    }

    /// Episodes that this process scored several times and that still lack a note of the plan, with the notes that
    /// they need.
    pub fn scored_in_vain(&self) -> Vec<(EpisodeName, Vec<String>)> {
        let (queue, plan) = (self.run.plan_cache().queue(), self.run.plan_cache().plan());
        let scorings = &self.run.plan_cache().scorings;
        let in_vain = queue.unscored.iter().filter(|it| !scorings.wants(&it.episode, it.attempt));
        in_vain.map(|it| (queue.name(&plan, it.index), queue.needs(&plan, it.index))).collect()
    }

    /// Places where notes could not be read: an episode that seems to lack a note may have one there.
    pub fn unread_notes(&self) -> Vec<String> {
        self.run.plan_cache().queue().unread_notes()
    }

    pub(in crate::store) fn options(&self) -> &RemainingOptions {
        &self.options
    }

    /// The next job, or how long to wait for one.
    pub fn try_next(&mut self) -> Result<Next> {
        loop {
            let Some(pick) = self.pick()? else {
                return match (self.trouble(), self.rests()) {
                    (Some(error), _) => Err(error),
                    (None, Some(time)) => Ok(Next::Rest(time)),
                    (None, None) => Ok(Next::Nothing),
                };
            };
            if let Some(job) = self.take_or_tell(pick)? {
                return Ok(Next::Job(Box::new(job)));
            }
        }
    }

    /// How long until an errored episode may be tried again.
    fn rests(&self) -> Option<Duration> {
        let queue = self.run.plan_cache().queue();
        let now_us = self.run.store().disk().uptime_us();
        let wanted = queue.errored.iter().filter(|it| self.options.wants_to_run() && self.options.wants(it));
        wanted.filter_map(|it| self.options.rests(it, now_us)).min()
    }

    fn pick(&mut self) -> Result<Option<Pick>> {
        let (run, generation_id) = (self.run.clone(), self.run.generation_id());
        // A claim names its writer, so there must be one. The writer id also decides where to begin.
        run.store().writer()?;
        let is_wanted =
            |held: &Held| self.options.wants_held(held) && !self.gave(&held.episode, held.attempt);
        if let Some(held) = run.store().plan_caches().take(&generation_id, is_wanted) {
            return Ok(Some(Pick::Idle(held)));
        }
        let mut queue = run.plan_cache().queue();
        queue.refresh_if_old(&run)?;
        if let Some(pick) = self.pick_from(&mut queue) {
            return Ok(Some(pick));
        }
        if queue.round > self.round {
            // Everything was looked at since the last job, and nothing is left.
            return Ok(None);
        }
        queue.refresh(&run)?;
        Ok(self.pick_from(&mut queue))
    }

    fn pick_from(&mut self, queue: &mut Queue) -> Option<Pick> {
        let held = |queue: &Queue, it: Candidate| Held {
            generation_id: self.run.generation_id(),
            episode: it.episode,
            name: queue.name(&self.run.plan_cache().plan(), it.index),
            attempt: it.attempt,
            attempts: it.attempts,
            why: it.why,
            is_tried: false,
            returned: 0,
            writer: None,
        };
        // Without this, an episode that this iterator yielded and that was left again would come back for ever.
        let is_anew = |it: &Candidate| !self.gave(&it.episode, it.attempt.saturating_sub(1));
        let is_untouched = |it: &Candidate| !self.given.contains_key(&it.episode);
        let scorings = &self.run.plan_cache().scorings;
        let is_lacking = |it: &Candidate| is_untouched(it) && scorings.wants(&it.episode, it.attempt);
        let now_us = self.run.store().disk().uptime_us();
        let is_rested = |it: &Candidate| self.options.wants(it) && self.options.rests(it, now_us).is_none();
        let is_more = |it: &Candidate| goes_on_behind(&self.options.retry, &it.why) && is_untouched(it);
        let (runs, scores) = (self.options.wants_to_run(), self.options.wants_to_score());
        let work = |queue: &Queue, it: Candidate| Pick::Work(held(queue, it));
        let picked = if let Some(it) = take_first(&mut queue.interrupted, |it| runs && is_anew(it)) {
            Some(work(queue, it))
        } else if let Some(index) = runs.then(|| queue.new.pop_front()).flatten() {
            let (episode, why) = (queue.id(index), Arc::from("new"));
            let it = Candidate { index, episode, attempt: 0, attempts: 0, in_a_row: 0, seen_us: None, why };
            Some(work(queue, it))
        } else if let Some(it) = take_first(&mut queue.unscored, |it| scores && is_lacking(it)) {
            Some(Pick::Unscored(held(queue, it)))
        } else if let Some(it) =
            take_first(&mut queue.own, |it| runs && is_anew(it) && self.options.wants(it))
        {
            Some(work(queue, it))
        } else if let Some(it) = take_first(&mut queue.truncated, |it| runs && is_more(it)) {
            Some(work(queue, it))
        } else {
            take_first(&mut queue.errored, |it| runs && is_rested(it) && !self.gave(&it.episode, it.attempt))
                .map(|it| work(queue, it))
        };
        if picked.is_some() {
            self.round = queue.round;
        }
        picked
    }

    fn gave(&self, episode: &Id, attempt: u32) -> bool {
        self.given.get(episode).is_some_and(|given| *given >= attempt)
    }

    /// As [`Remaining::take`]. If the episode cannot be read, it is skipped, and the error is returned after all
    /// jobs.
    fn take_or_tell(&mut self, pick: Pick) -> Result<Option<Job>> {
        let (Pick::Idle(held) | Pick::Work(held) | Pick::Unscored(held)) = &pick;
        let (episode, attempt) = (held.episode, held.attempt);
        let (job, trouble) = or_told(self.take(pick))?;
        if let Some(trouble) = trouble {
            // So that it is not looked at again and again.
            self.given.insert(episode, attempt);
            self.untold.push(trouble);
        }
        Ok(job.flatten())
    }

    /// `None` if another process has it by now.
    fn take(&mut self, pick: Pick) -> Result<Option<Job>> {
        let (mut held, is_claimed, is_unscored) = match pick {
            Pick::Idle(held) => (held, true, false),
            Pick::Work(held) => (held, false, false),
            Pick::Unscored(held) => (held, false, true),
        };
        let store = self.run.store();
        // Another caller of this process has it open by its name.
        let reservation = match store.open_episodes().take(held.episode, &held.name.task) {
            Err(Error::Busy { .. }) => {
                // It would be picked again and again until that caller is done, which may be the caller of this very
                // iterator.
                self.given.insert(held.episode, held.attempt);
                if is_unscored {
                    self.held_here.push(held.name);
                }
                return Ok(None);
            }
            reservation => reservation?,
        };
        if is_claimed && is_overtaken(&self.run, &held)? {
            return Ok(None);
        }
        // It could not join its group any more. The group may have been sealed since the survey.
        if !is_unscored && self.run.is_sealed_with(&held.name)? {
            // So that it is not looked at again and again.
            self.given.insert(held.episode, held.attempt);
            return Ok(None);
        }
        let is_ours = match (is_claimed, is_unscored) {
            (true, _) => true,
            // It may have been scored since the survey, since scoring needs no claim. If it still lacks its note, the
            // next round yields it.
            (_, true) => match self.run.claim_scoring(&held.episode)? {
                Scoring::New | Scoring::Ours => self.round > self.began,
                Scoring::Inherited | Scoring::Taken => false,
            },
            _ => self.claim(&mut held)?,
        };
        if !is_ours {
            return Ok(None);
        }
        self.given.insert(held.episode, held.attempt);
        let (name, attempts, why) = (held.name.clone(), held.attempts, Arc::clone(&held.why));
        if is_unscored {
            self.run.plan_cache().scorings.give(held.episode, held.attempt);
        }
        let held = (!is_unscored).then_some(held);
        Ok(Some(Job { run: self.run.clone(), held, reservation: Some(reservation), name, attempts, why }))
    }

    fn claim(&self, held: &mut Held) -> Result<bool> {
        let store = self.run.store();
        let path = claim_path(&held.episode, held.attempt);
        // A look-up is cheaper than a claim that is lost.
        if store.disk().exists(&path).doing("look for", &path)? {
            return Ok(false);
        }
        let writer = store.writer()?.id();
        held.writer = Some(writer);
        let (episode, attempt) = (&held.episode, held.attempt);
        let (writer, generation_id, group_size) = (&writer, &self.run.generation_id(), None);
        store.claim(&NewClaim { episode, attempt, writer, generation_id, group_size })
    }

    /// The next error of an episode that could not be read. Each is returned once, after all jobs.
    fn trouble(&mut self) -> Option<Error> {
        if let Some(error) = self.untold.pop() {
            return Some(error);
        }
        let queue = self.run.plan_cache().queue();
        let error = queue.troubles.get(self.troubles_told).map(|(_, error)| error.clone());
        self.troubles_told += usize::from(error.is_some());
        error
    }
}
