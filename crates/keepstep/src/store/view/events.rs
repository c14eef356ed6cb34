//! What happens in a run, for a trainer that eats it as it comes: episodes that ended, groups that were sealed.
//!
//! An END that stands in a log may not count: its writer may have been fenced before it was acknowledged. Whether it
//! counts is what the next attempt's base says; while somebody has claimed that attempt and published none, nobody knows.
//! Of a taker that seems gone the base is taken first, so that it cannot say otherwise later.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keepstep_format::commit::What;
use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::{Id, commit::Bind};

use crate::error::{Error, Result, or_told};
use crate::read::{Follow, FollowFrom, Followed, Item, Stopper, is_final};
use crate::segment::cards::as_id;
use crate::segment::chain::Chain;
use crate::segment::names::{SEAL_NOTE, segment_path};
use crate::segment::summary::WHY_IS_LOST;
use crate::store::run::Run;
use crate::store::view::cursor::{Announced, Cursor, Held};

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// An attempt at an episode ended.
    Ended {
        /// The episode.
        episode: Id,
        /// Which attempt at it.
        attempt: u32,
        /// How.
        why: String,
    },
    /// A group was sealed: [`Run::sealed_group`] has it.
    Sealed {
        /// The group.
        group: Id,
    },
    /// Whether something happened cannot be told, since a card cannot be read: of one episode, or a seal. It is told once by
    /// each who follows; what the card is about stays undecided, in the cursor too, until it can be read.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

/// Follows a run. Nothing is told twice, and nothing is left out, also across restarts.
pub struct RunFollow {
    run: Run,
    follow: Follow,
    held: Vec<Held>,
    announced: Vec<Announced>,
    /// What cannot be read, and was told.
    told: BTreeSet<String>,
    untold: Vec<String>,
}

/// How often what could not be decided is looked at again.
const DECIDE_AGAIN: Duration = Duration::from_millis(200);

impl Run {
    /// Follows what happens in the run, from the beginning or from a cursor that [`RunFollow::next`] gave.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use keepstep::RunEvent;
    ///
    /// # let dir = std::env::temp_dir().join(format!("keepstep-doc-follow-{}", std::process::id()));
    /// # let run = keepstep::Store::open(&dir, keepstep::Options::default())?.run("shop-agent", keepstep::Value::Null)?;
    /// # let episode = run.episode(keepstep::EpisodeName::task("shop-17"))?;
    /// # episode.step(keepstep::Step::new().action("buy").reward(1.0))?;
    /// # episode.end(keepstep::Why::Finished, keepstep::Ending::default())?.wait()?;
    /// let mut follow = run.follow(None)?;
    /// while let Some((event, _cursor)) = follow.next(Duration::from_secs(10))? {
    ///     if let RunEvent::Ended { why, .. } = event {
    ///         assert_eq!(why, "finished");
    ///         break;
    ///     }
    /// }
    /// # drop((follow, episode, run));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), keepstep::Error>(())
    /// ```
    pub fn follow(&self, after: Option<&str>) -> Result<RunFollow> {
        self.store().check_process()?;
        let store = self.store();
        let (from, Cursor { held, announced, .. }) = match after {
            None => (FollowFrom::Start, Cursor::default()),
            Some(text) => {
                let cursor = Cursor::parse(text)?;
                (FollowFrom::Behind(cursor.position.clone()), cursor)
            }
        };
        let follow = Follow::kinds(store.storage(), store.recovery(), from, &[Kind::End, Kind::Note])?;
        let (told, untold) = (BTreeSet::new(), Vec::new());
        Ok(RunFollow { run: self.clone(), follow, held, announced, told, untold })
    }
}

impl std::fmt::Debug for RunFollow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let undecided = self.held.len() + self.announced.len();
        write!(f, "<RunFollow of {:?}, {undecided} undecided>", self.run.name())
    }
}

impl RunFollow {
    /// Ends the waiting, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.follow.stopper()
    }

    /// Behind everything that was told so far.
    pub fn cursor(&self) -> String {
        let (held, announced) = (self.held.clone(), self.announced.clone());
        Cursor { position: self.follow.position().clone(), held, announced }.to_text()
    }

    /// What happened next, and a cursor to go on behind it. Waits up to `timeout`; nothing if nothing happened.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<(RunEvent, String)>> {
        self.run.store().check_process()?;
        let started = Instant::now();
        loop {
            let decided = match self.decide_held()? {
                None => self.decide_announced()?,
                decided => decided,
            };
            let unreadable = || self.untold.pop().map(|why| RunEvent::Unreadable { why });
            if let Some(event) = decided.or_else(unreadable) {
                return Ok(Some((event, self.cursor())));
            }
            let left = timeout.saturating_sub(started.elapsed());
            let is_clear = self.held.is_empty() && self.announced.is_empty();
            let patience = if is_clear { left } else { left.min(DECIDE_AGAIN) };
            match self.follow.next(patience)? {
                Some(followed) => match followed.bind.what {
                    What::Run => {
                        let announced = self.announcement(&followed);
                        let announced = self.or_tell(announced)?.flatten();
                        self.announced.extend(announced);
                    }
                    _ => {
                        // What could not be looked into is told again: the cursor must not stand behind it.
                        let seen = self.seen(&followed).inspect_err(|_| self.follow.take_back())?;
                        self.held.extend(seen);
                    }
                },
                None if left <= patience => return Ok(None),
                None => {}
            }
        }
    }

    /// What was asked for; nothing if one card cannot be read that would say it, which is told once.
    fn or_tell<T>(&mut self, asked: Result<T>) -> Result<Option<T>> {
        let (said, trouble) = or_told(asked)?;
        if let Some(why) = trouble.map(|trouble| trouble.to_string())
            && self.told.insert(why.clone())
        {
            self.untold.push(why);
        }
        Ok(said)
    }

    /// Somebody's word that a group of this run is about to be sealed.
    fn announcement(&self, followed: &Followed) -> Result<Option<Announced>> {
        if followed.bind.id != self.run.generation_id() {
            return Ok(None);
        }
        let note = match &followed.item {
            Item::Record(note) => note,
            // It may have been the word that a group was sealed, which is all that tells of it.
            Item::Damaged(lost) => {
                let path = segment_path(&followed.writer, lost.place.segment);
                let found = "a note of the run cannot be read: a seal may be missed".to_owned();
                return Err(Error::Damaged { path, offset: lost.place.offset, found });
            }
            Item::Gap(_) => return Ok(None),
        };
        let text = |number: u8| note.get(number).and_then(|value| value.as_str());
        if text(fields::NAME) != Some(SEAL_NOTE) {
            return Ok(None);
        }
        let group = note.get(fields::VALUE).and_then(as_id);
        let time = note.get(fields::TIME).and_then(|time| time.as_int());
        Ok(group.zip(time).map(|(group, time)| Announced { writer: followed.writer, group, time }))
    }

    fn decide_announced(&mut self) -> Result<Option<RunEvent>> {
        let mut index = 0;
        while index < self.announced.len() {
            let Announced { writer, group, time } = self.announced[index];
            let sealed = self.run.was_sealed_by(&group, &writer, time);
            match self.or_tell(sealed)?.flatten() {
                Some(true) => {
                    self.announced.remove(index);
                    return Ok(Some(RunEvent::Sealed { group }));
                }
                // Somebody else's word counts for this group.
                Some(false) => drop(self.announced.remove(index)),
                // However long nothing is heard of whoever announced it: it may still seal the group.
                None => index += 1,
            }
        }
        Ok(None)
    }

    /// An END of this run, or nothing of interest.
    fn seen(&mut self, followed: &Followed) -> Result<Option<Held>> {
        let Followed { writer, bind, item } = followed;
        if matches!(item, Item::Record(record) if record.kind() != Some(Kind::End)) {
            return Ok(None);
        }
        let copied = match bind.what {
            What::Attempt => None,
            What::Copied { from } => Some(from),
            _ => return Ok(None),
        };
        let chain = Chain::read(self.run.store().cards(), &bind.id);
        let chain = self.or_tell(chain)?;
        let (seq, why) = match item {
            Item::Record(record) => {
                let why = record.get(fields::WHY).and_then(|why| why.as_str()).unwrap_or(WHY_IS_LOST);
                (record.seq, why.to_owned())
            }
            Item::Damaged(lost) if lost.kind != Kind::End as u8 => return Ok(None),
            Item::Damaged(lost) => (lost.seq, WHY_IS_LOST.to_owned()),
            Item::Gap(_) => return Ok(None),
        };
        let is_ours = match chain.as_ref().and_then(|chain| chain.link(bind.attempt)) {
            // Frames of an attempt count only from the writer that its claim names.
            Some(link) => {
                link.claim.writer == copied.unwrap_or(*writer)
                    && link
                        .claim
                        .generation_id
                        .is_none_or(|generation_id| generation_id == self.run.generation_id())
            }
            // Where the cards cannot be read, it is decided when they can.
            None => chain.is_none_or(|chain| chain.links.is_empty()) && self.began_here(writer, bind)?,
        };
        let (episode, attempt) = (bind.id, bind.attempt);
        Ok(is_ours.then_some(Held { writer: *writer, episode, attempt, seq, why }))
    }

    /// Nobody claims an episode without a name: its own beginning says which run it is in.
    fn began_here(&mut self, writer: &Id, bind: &Bind) -> Result<bool> {
        let begin = self.follow.first_of(writer, bind)?;
        let Some(Item::Record(begin)) = begin else { return Ok(false) };
        let generation_id =
            begin.get(fields::GENERATION_ID).and_then(|generation_id| generation_id.as_bytes());
        Ok(generation_id == Some(&self.run.generation_id().0[..]))
    }

    fn decide_held(&mut self) -> Result<Option<RunEvent>> {
        let mut index = 0;
        while index < self.held.len() {
            let counts = self.counts(&self.held[index]);
            let Some(counts) = self.or_tell(counts)?.flatten() else {
                index += 1;
                continue;
            };
            let counts = counts && self.run.store().pruned(&self.held[index].episode)?.is_none();
            let Held { episode, attempt, why, .. } = self.held.remove(index);
            if counts {
                return Ok(Some(RunEvent::Ended { episode, attempt, why }));
            }
        }
        Ok(None)
    }

    /// Whether an END counts; nothing if nobody can tell yet.
    fn counts(&self, held: &Held) -> Result<Option<bool>> {
        let store = self.run.store();
        let chain = Chain::read(store.cards(), &held.episode)?;
        let chain = store.with_found_end(chain, &held.episode, held.attempt)?;
        let later = chain.behind(held.attempt);
        let link = chain.link(held.attempt);
        let owner = link.map_or(held.writer, |link| link.claim.writer);
        let is_copy = owner != held.writer;
        let counted = link.and_then(|link| link.records).filter(|_| !is_copy);
        if counted.is_some_and(|counted| held.seq >= counted) {
            // It was refused.
            return Ok(Some(false));
        }
        if let Some(base) = later.iter().find_map(|link| link.base.as_ref()) {
            if base.adopted.is_none() {
                // It was taken over all the same: what ended so can be gone on from, and its own owner said it. After a
                // final end only when somebody asked for it, and then the base says that the end counts; one of version
                // 0.1 never does so.
                return Ok(Some(!is_copy && (counted.is_some() || !is_final(&held.why))));
            }
            let is_in = base.spans.iter().any(|span| {
                span.writer == held.writer
                    && span.attempt == held.attempt
                    && span.copied.is_some() == is_copy
                    && (span.from..span.to).contains(&held.seq)
            });
            return Ok(Some(is_in));
        }
        // A copy counts once there is a base that rests on it; what its owner said counts once nobody can publish one
        // without it.
        let in_question =
            later.iter().filter(|link| !link.is_void && (!is_copy || link.claim.writer == held.writer));
        for link in in_question {
            if !store.is_gone(&link.claim.writer) || !store.pass_over(&held.episode, link.claim.attempt)? {
                return Ok(None);
            }
        }
        Ok(Some(!is_copy))
    }
}
