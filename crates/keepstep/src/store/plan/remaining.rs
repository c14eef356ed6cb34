//! What remains of a plan, handed out job by job: claimed as it is given, so that many workers share it.
//!
//! A claim is for the attempt behind the newest that was seen; if anything happened since, it is taken, and the job is
//! passed over. So nobody takes from a live owner, and no two get the same.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Doing, Error, Result, or_told};
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

/// What is wanted of what remains.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct RemainingOptions {
    /// Endings after which an episode is gone on with although they are final: `truncated`. What can be resumed comes anyway,
    /// and may be named here too.
    pub retry: Vec<String>,
    /// An episode that errored so often in a row is given up; one that this process left so often without an end, and
    /// without anything new, is not given again by it.
    pub max_attempts: u32,
    /// How long what errored rests before it is given again; doubled with each error in a row.
    pub pause: Duration,
    /// Which kind of work is wanted.
    pub jobs: Jobs,
}

impl Default for RemainingOptions {
    fn default() -> Self {
        Self { retry: Vec::new(), max_attempts: 3, pause: Duration::from_secs(1), jobs: Jobs::All }
    }
}

/// Which kind of work is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jobs {
    /// All that there is: whoever asks looks at what each job is.
    #[default]
    All,
    /// Episodes to be recorded.
    ToRun,
    /// Episodes that are over and lack a note.
    ToScore,
}

impl RemainingOptions {
    /// Sets after which endings an episode is gone on with although they are final.
    pub fn retry(mut self, endings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.retry = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Sets after how many errors in a row an episode is given up.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets how long what errored rests before it is given again.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets which kind of work is wanted.
    pub fn jobs(mut self, jobs: Jobs) -> Self {
        self.jobs = jobs;
        self
    }

    pub(in crate::store) fn check(&self) -> Result<()> {
        check_retry(&self.retry)
    }

    /// Whether what errored, or was left by this process, is tried again.
    pub(in crate::store) fn wants(&self, it: &Candidate) -> bool {
        it.in_a_row < self.max_attempts
    }

    /// How long what failed rests still; nothing if it may be tried again now.
    fn rests(&self, failed: &Candidate, now_us: i64) -> Option<Duration> {
        rests(self.pause, failed.in_a_row, failed.seen_us, now_us)
    }

    fn wants_to_run(&self) -> bool {
        self.jobs != Jobs::ToScore
    }

    fn wants_to_score(&self) -> bool {
        self.jobs != Jobs::ToRun
    }

    /// Whether a claim that nobody uses is given to whoever asks so.
    fn wants_held(&self, held: &Held) -> bool {
        let is_more = &*held.why == Why::Truncated.name();
        self.wants_to_run() && !self.is_enough(held) && (!is_more || goes_on_behind(&self.retry, &held.why))
    }

    /// Whether a claim was let go unused as often as an episode may fail: what fails before it begins would fail for ever.
    fn is_enough(&self, held: &Held) -> bool {
        held.returned >= self.max_attempts.max(1)
    }
}

/// An episode that remains, claimed for this process.
///
/// Dropped unopened it stays claimed, and whoever of this process asks next gets it first, until that happened as often as an
/// episode may fail; other processes get it when this one is gone. So does one that is unscored, which is claimed for scoring.
#[derive(Debug)]
pub struct Job {
    run: Run,
    held: Option<Held>,
    reservation: Option<Reservation>,
    /// Which episode.
    pub name: EpisodeName,
    /// How many attempts at it really began before.
    pub attempts: u32,
    /// How the last one ended; or `new`, or `unscored`.
    pub why: Arc<str>,
}

impl Job {
    /// The episode's id.
    pub fn id(&self) -> Id {
        self.run.episode_id(&self.name)
    }

    /// Opens the episode with the claim that the job holds. One that is unscored is over: annotate it instead.
    pub fn episode(mut self, mut how: Opening) -> Result<Episode> {
        self.run.store().check_process()?;
        how.check()?;
        if &*self.why == Why::Truncated.name() {
            // Whoever asked for the job asked for more.
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
        if opened.as_ref().is_err_and(|error| !matches!(error, Error::Ended { .. } | Error::Busy { .. })) {
            run.store().plan_caches().give_back(Held { is_tried: true, returned: held.returned + 1, ..held });
        }
        opened
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The reservation first: whoever takes the claim reserves the episode at once.
        drop(self.reservation.take());
        if let Some(held) = self.held.take() {
            self.run.store().plan_caches().give_back(Held { returned: held.returned + 1, ..held });
        }
    }
}

/// Takes the first of those that are wanted.
fn take_first(queue: &mut VecDeque<Candidate>, is_wanted: impl Fn(&Candidate) -> bool) -> Option<Candidate> {
    let at = queue.iter().position(is_wanted)?;
    queue.remove(at)
}

/// True if somebody claimed the attempt behind this one.
fn is_overtaken(run: &Run, held: &Held) -> Result<bool> {
    let path = claim_path(&held.episode, held.attempt.saturating_add(1));
    run.store().disk().exists(&path).doing("look for", &path)
}

/// Whoever waits looks again after this time: somebody may have died meanwhile.
const REST_AT_ONCE: Duration = Duration::from_secs(1);

/// Gives jobs until nothing remains that this process could do now.
#[derive(Debug)]
pub struct Remaining {
    run: Run,
    options: RemainingOptions,
    /// What was given, and as which attempt: the same is not given again.
    given: HashMap<Id, u32>,
    /// The round of looking in which the last job was given.
    round: u64,
    /// The last round of looking before this iterator was made.
    began: u64,
    troubles_told: usize,
    /// What is to be scored, and somebody of this process has.
    held_here: Vec<EpisodeName>,
    /// What could not be claimed, told when all else is given.
    untold: Vec<Error>,
}

impl Run {
    /// What remains of the plan, claimed as it is given: what was interrupted, then what is new, then what lacks a note,
    /// then what was truncated if more of that is wanted, then what failed and is to be tried again. Many workers may ask at
    /// once, in threads and processes.
    ///
    /// One iterator gives no attempt twice: an episode that was left without an end comes again when somebody asks anew, and
    /// so does one that was truncated again. What failed comes again until it failed as often as it may.
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

    /// One job, if there is one. Waits if all that there is has just errored, and rests.
    pub fn claim(&self, options: RemainingOptions) -> Result<Option<Job>> {
        self.remaining(options)?.next().transpose()
    }

    /// What remains, without claiming anything, in the order in which this process would get it. What cannot be read is
    /// listed as `damaged`.
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
            // Behind a seal that cannot be read nobody goes on; `remaining` tells why.
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
    /// A claim that this process has, and does not use.
    Idle(Held),
    Work(Held),
    /// It is over, and lacks a note: to be claimed for scoring.
    Unscored(Held),
}

/// What came of asking for a job.
#[derive(Debug)]
pub enum Next {
    /// Here is one.
    Job(Box<Job>),
    /// There is none yet: what errored rests for so long.
    Rest(Duration),
    /// Nothing remains that this process could do now.
    Nothing,
}

impl Iterator for Remaining {
    type Item = Result<Job>;

    /// Waits while what errored rests; [`Remaining::try_next`] does not.
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

    /// What lacks a note, and was not given since somebody of this process has it.
    pub fn held_here(&self) -> &[EpisodeName] {
        &self.held_here
    }

    /// What this process claimed, and let go before it was begun as often as an episode may fail, with how often that was. It is
    /// not given again here; other processes get it when this one is gone.
    pub fn returned(&self) -> Vec<(EpisodeName, u32)> {
        let idle = self.run.store().plan_caches().idle(&self.run.generation_id());
        let enough = idle.into_iter().filter(|held| self.options.is_enough(held));
        enough.map(|held| (held.name, held.returned)).collect()
    }

    /// What this process left without an end as often as it may, and without anything new, with how often that was. It is
    /// not given again here; other processes get it when this one is gone.
    pub fn left(&self) -> Vec<(EpisodeName, u32)> {
        let (queue, plan) = (self.run.plan_cache().queue(), self.run.plan_cache().plan());
        let left = queue.own.iter().filter(|it| !self.options.wants(it));
        left.map(|it| (queue.name(&plan, it.index), it.in_a_row)).collect()
    }

    /// What this process scored again and again, and still lacks a note that the plan needs, with the notes that it needs.
    pub fn scored_in_vain(&self) -> Vec<(EpisodeName, Vec<String>)> {
        let (queue, plan) = (self.run.plan_cache().queue(), self.run.plan_cache().plan());
        let scorings = &self.run.plan_cache().scorings;
        let in_vain = queue.unscored.iter().filter(|it| !scorings.wants(&it.episode, it.attempt));
        in_vain.map(|it| (queue.name(&plan, it.index), queue.needs(&plan, it.index))).collect()
    }

    /// Where notes may have been that cannot be read: what lacks one may have had it.
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

    /// How long it takes until something that errored may be tried again.
    fn rests(&self) -> Option<Duration> {
        let queue = self.run.plan_cache().queue();
        let now_us = self.run.store().disk().uptime_us();
        let wanted = queue.errored.iter().filter(|it| self.options.wants_to_run() && self.options.wants(it));
        wanted.filter_map(|it| self.options.rests(it, now_us)).min()
    }

    fn pick(&mut self) -> Result<Option<Pick>> {
        let (run, generation_id) = (self.run.clone(), self.run.generation_id());
        // Claims name their writer, so there must be one; and it says where to begin.
        run.store().writer()?;
        run.store().check_open()?;
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
            // It was looked at everything since the last job, and there is nothing.
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
        // What this iterator gave, and was left again, would go round in circles.
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

    /// As [`Remaining::take`]; what cannot be read costs this one only, and is told when all else is given.
    fn take_or_tell(&mut self, pick: Pick) -> Result<Option<Job>> {
        let (Pick::Idle(held) | Pick::Work(held) | Pick::Unscored(held)) = &pick;
        let (episode, attempt) = (held.episode, held.attempt);
        let (job, trouble) = or_told(self.take(pick))?;
        if let Some(trouble) = trouble {
            // Not to be looked at again and again.
            self.given.insert(episode, attempt);
            self.untold.push(trouble);
        }
        Ok(job.flatten())
    }

    /// Nothing if somebody else has it by now.
    fn take(&mut self, pick: Pick) -> Result<Option<Job>> {
        let (mut held, is_claimed, is_unscored) = match pick {
            Pick::Idle(held) => (held, true, false),
            Pick::Work(held) => (held, false, false),
            Pick::Unscored(held) => (held, false, true),
        };
        let store = self.run.store();
        // Somebody in this process has it open, by its name.
        let reservation = match store.open_episodes().take(held.episode, &held.name.task) {
            Err(Error::Busy { .. }) => {
                // It would be picked again and again, until whoever has it is done: which may be the caller.
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
        if &*held.why == Why::Truncated.name() && self.run.is_sealed_with(&held.name)? {
            // Not to be looked at again and again.
            self.given.insert(held.episode, held.attempt);
            return Ok(None);
        }
        let is_ours = match (is_claimed, is_unscored) {
            (true, _) => true,
            // What may have been scored since the look comes again behind the next one, if it still lacks its note: whoever
            // scores needs no claim.
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
        // A look costs less than a claim that is lost.
        if store.disk().exists(&path).doing("look for", &path)? {
            return Ok(false);
        }
        let writer = store.writer()?.id();
        held.writer = Some(writer);
        store.claim(&held.episode, held.attempt, &writer, &self.run.generation_id())
    }

    /// What could not be read is told when all else is given, each once.
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
