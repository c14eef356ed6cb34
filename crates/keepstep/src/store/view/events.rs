//! Follows a run, for example for a trainer: episodes that ended, and groups that were sealed.
//!
//! What is reported stays true, so nothing is reported that can still be undone:
//!
//! - An END in a log may be given up by its writer, until the log says that it is synced, or is closed. If its writer
//!   seems gone, the follower closes the log first.
//! - Its writer may have been fenced before it was acknowledged. The next attempt's base says whether it counts. While
//!   that attempt is claimed and has no base, this is open. If the taker seems gone, a void base is published first,
//!   so that it cannot decide otherwise later.
//! - A taker may have copied it. The copy is reported only if the original did not stay in its log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keepstep_format::commit::What;
use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::{Id, commit::Bind};

use crate::error::{Error, Result, or_told};
use crate::read::{Follow, FollowFrom, Followed, Item, Kept, Stopper, is_final};
use crate::segment::cards::as_id;
use crate::segment::chain::{Chain, Span, read_claim};
use crate::segment::names::{SEAL_NOTE, segment_path};
use crate::segment::summary::WHY_IS_LOST;
use crate::store::run::Run;
use crate::store::view::cursor::{Announced, Cursor, Held};
use crate::store::view::settling::Closing;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// An attempt at an episode ended.
    Ended {
        /// The episode.
        episode: Id,
        /// Which attempt of the episode.
        attempt: u32,
        /// How it ended.
        why: String,
    },
    /// A group was sealed; [`Run::sealed_group`] reads it.
    Sealed {
        /// The group.
        group: Id,
    },
    /// A card cannot be read, so it is unknown whether something happened: the end of an episode, or a seal. Each
    /// follower reports it once. It stays undecided, in the cursor too, until the card can be read.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
}

/// Follows a run. Every event is reported exactly once, also across restarts.
pub struct RunFollow {
    run: Run,
    follow: Follow,
    held: Vec<Held>,
    announced: Vec<Announced>,
    /// Unreadable cards that were reported.
    told: BTreeSet<String>,
    untold: Vec<String>,
    closing: Closing,
}

/// How often undecided ends and seals are checked again.
const DECIDE_AGAIN: Duration = Duration::from_millis(200);
/// How often to look for records that a writer left that is gone.
const LOOK_FOR_LEFT: Duration = Duration::from_secs(2);

impl Run {
    /// Follows the events of the run, from the beginning or from a cursor of [`RunFollow::next`].
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
                let cursor = Cursor::parse(text, &self.generation_id())?;
                (FollowFrom::Behind(cursor.position.clone()), cursor)
            }
        };
        let only_settled = !store.options().is_broken_tell_what_is_seen();
        let kinds = [Kind::End, Kind::Note];
        let follow = Follow::kinds(store.storage(), store.recovery(), from, &kinds, only_settled)?;
        let (told, untold, closing) = (BTreeSet::new(), Vec::new(), Closing::default());
        Ok(RunFollow { run: self.clone(), follow, held, announced, told, untold, closing })
    }
}

impl std::fmt::Debug for RunFollow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let undecided = self.held.len() + self.announced.len();
        write!(f, "<RunFollow of {:?}, {undecided} undecided>", self.run.name())
    }
}

impl RunFollow {
    /// A handle that ends the wait, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.follow.stopper()
    }

    /// The cursor after everything that was reported so far.
    pub fn cursor(&self) -> String {
        let (held, announced) = (self.held.clone(), self.announced.clone());
        Cursor { position: self.follow.position().clone(), held, announced }
            .to_text(&self.run.generation_id())
    }

    /// The next event, and the cursor after it. Waits up to `timeout`; `None` if nothing happened.
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
            if self.follow.stopper().is_stopped() {
                return Ok(None);
            }
            let left = timeout.saturating_sub(started.elapsed());
            let is_clear = self.held.is_empty() && self.announced.is_empty();
            let patience = left.min(if is_clear { LOOK_FOR_LEFT } else { DECIDE_AGAIN });
            match self.follow.next(patience)? {
                Some(followed) => match followed.bind.what {
                    What::Run => {
                        let announced = self.announcement(&followed);
                        let announced = self.or_tell(announced)?.flatten();
                        self.announced.extend(announced);
                    }
                    _ => {
                        // If the record cannot be checked, it is delivered again, so that the cursor does not skip
                        // it.
                        let seen = self.seen(&followed).inspect_err(|_| self.follow.take_back())?;
                        self.held.extend(seen);
                    }
                },
                None if self.close_what_is_left()? => {}
                None if left <= patience => return Ok(None),
                None => {}
            }
        }
    }

    /// The answer; `None` if the card that it is in cannot be read, which is reported once.
    fn or_tell<T>(&mut self, asked: Result<T>) -> Result<Option<T>> {
        let (said, trouble) = or_told(asked)?;
        trouble.iter().for_each(|trouble| self.tell_once(trouble));
        Ok(said)
    }

    fn tell_once(&mut self, trouble: &Error) {
        let why = trouble.to_string();
        if self.told.insert(why.clone()) {
            self.untold.push(why);
        }
    }

    /// The announcement that a group of this run is about to be sealed.
    fn announcement(&self, followed: &Followed) -> Result<Option<Announced>> {
        if followed.bind.id != self.run.generation_id() {
            return Ok(None);
        }
        let note = match &followed.item {
            Item::Record(note) => note,
            // The damaged record may have announced a seal, and nothing else announces it.
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
                // The seal names another announcement.
                Some(false) => drop(self.announced.remove(index)),
                // Wait, however long: the process that announced it may still seal the group.
                None => index += 1,
            }
        }
        Ok(None)
    }

    /// An END of this run; `None` for all other records.
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
        let chain = Chain::read_from(self.run.store().cards(), &bind.id, bind.attempt);
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
            // Records of an attempt count only if its claim names their writer.
            Some(link) => {
                link.claim.writer == copied.unwrap_or(*writer)
                    && link
                        .claim
                        .generation_id
                        .is_none_or(|generation_id| generation_id == self.run.generation_id())
            }
            // If the cards cannot be read now, this is decided when they can.
            None => chain.is_none_or(|chain| chain.links.is_empty()) && self.began_here(writer, bind)?,
        };
        let (episode, attempt) = (bind.id, bind.attempt);
        Ok(is_ours.then_some(Held { writer: *writer, episode, attempt, seq, why }))
    }

    /// An episode without a name has no claim. Its first record says which run it is in.
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

    /// Whether an END counts, and is reported from this place; `None` if this is open.
    fn counts(&self, held: &Held) -> Result<Option<bool>> {
        let store = self.run.store();
        let chain = Chain::read_from(store.cards(), &held.episode, held.attempt)?;
        let chain = chain.with_found_ends(store.cards(), &held.episode)?;
        match chain.link(held.attempt).map(|link| link.claim.writer) {
            Some(owner) if owner != held.writer => self.copy_counts(held, &chain, &owner),
            _ => self.original_counts(held, &chain),
        }
    }

    /// The END that the owner itself recorded.
    fn original_counts(&self, held: &Held, chain: &Chain) -> Result<Option<bool>> {
        let counted = chain.link(held.attempt).and_then(|link| link.records);
        let base = chain.behind(held.attempt).iter().find_map(|link| link.base.as_ref());
        if let Some(base) = base.filter(|_| counted.is_none_or(|counted| held.seq < counted)) {
            // A resumable end counts although the attempt was taken over after it. A final end is taken over only on
            // request, and then the base says how much counts; a base of version 0.1 never says so.
            let is_behind = base.adopted.is_none() && (counted.is_some() || !is_final(&held.why));
            let is_adopted = base.adopted.is_some() && base.names(held.attempt, held.seq);
            return Ok(Some(is_behind || is_adopted));
        }
        self.run.store().own_record_counts(&held.episode, chain, held.attempt, held.seq)
    }

    /// A copy that a taker made. The base of the taker must rest on it, and the original must not have stayed in its
    /// log: otherwise that is reported.
    fn copy_counts(&self, held: &Held, chain: &Chain, owner: &Id) -> Result<Option<bool>> {
        let is_kept = self.follow.is_kept(owner, &held.bind(), held.seq)?;
        let base = chain.behind(held.attempt).iter().find_map(|link| link.base.as_ref());
        let is_named = base.map(|base| {
            let is_it = |span: &&Span| span.writer == held.writer && span.copied.is_some();
            let mut spans = base.spans.iter().filter(is_it);
            base.adopted.is_some() && spans.any(|span| span.names(held.attempt, held.seq))
        });
        Ok(match (is_kept, is_named) {
            (Kept::Yes, _) | (_, Some(false)) => Some(false),
            (Kept::No, Some(true)) => Some(true),
            // Its taker may try again with the same copy.
            (Kept::Open, Some(true)) | (_, None) => None,
        })
    }

    /// Closes logs of writers that seem gone, if something that they left has to be settled. True if a log was closed.
    fn close_what_is_left(&mut self) -> Result<bool> {
        let mut left = self.follow.left_by_the_gone()?;
        for held in &self.held {
            let claim = read_claim(self.run.store().cards(), &held.episode, held.attempt);
            let Some(owner) = or_told(claim)?.0.flatten().map(|claim| claim.writer) else { continue };
            if owner != held.writer && self.follow.is_kept(&owner, &held.bind(), held.seq)? == Kept::Open {
                left.push(owner);
            }
        }
        let closed = self.closing.close(self.run.store(), left, &mut self.follow);
        // An answer that cannot be read is reported, and everything else goes on.
        self.closing.take_troubles().iter().for_each(|trouble| self.tell_once(trouble));
        Ok(self.or_tell(closed)?.unwrap_or(false))
    }
}
