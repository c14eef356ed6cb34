//! A group: the samples of one task and iteration, sealed all at once with their rewards.
//!
//! One card is the seal: it is there whole or not at all, and never changes. Trainers see sealed groups only.

pub(in crate::store) mod seals;
pub(in crate::store) mod sizes;
pub(in crate::store) mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keepstep_format::card::kind;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;
use keepstep_format::{Id, fields, ids};

use crate::counted;
use crate::disk;
use crate::error::{Doing, Error, Result};
use crate::segment::Storage;
use crate::segment::cards::{CardFound, Fields, Published, as_id, publish_card, read_card};
use crate::segment::names::{GROUPS, SEAL_NOTE, seal_path};
use crate::store::episode::state::{EpisodeState, episode_state};
use crate::store::group::slots::Given;
use crate::store::name::EpisodeName;
use crate::store::run::Run;

/// The samples of one task and iteration.
#[derive(Debug, Clone)]
pub struct Group {
    pub(in crate::store) run: Run,
    id: Id,
    task: String,
    iteration: i64,
    pub(in crate::store) size: usize,
    pub(in crate::store) given: Arc<Given>,
}

/// A member of a sealed group.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// The episode.
    pub episode: Id,
    /// The attempt that counts.
    pub attempt: u32,
    /// Which sample it is.
    pub sample: i64,
    /// Its reward, if rewards were given.
    pub reward: Option<f64>,
}

/// A group that was sealed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GroupView {
    /// Its id. Every machine computes the same one.
    pub group: Id,
    /// The task.
    pub task: String,
    /// The iteration.
    pub iteration: i64,
    /// Its members, by sample.
    pub members: Vec<Member>,
    /// Samples that are not members, with the reason.
    pub missing: BTreeMap<i64, String>,
    /// Who sealed it.
    pub source: String,
    /// When, in microseconds since 1970.
    pub time: i64,
}

/// The sealed groups of a run, and seals that cannot be read.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SealedGroups {
    /// In the order in which they were sealed.
    pub groups: Vec<GroupView>,
    /// Seals that cannot be read, of this run or of another.
    pub damaged: Vec<String>,
}

impl Run {
    /// The group of samples 0 to `size` - 1 of a task and iteration. Writes nothing.
    pub fn group(&self, task: &str, iteration: i64, size: usize) -> Group {
        let id = ids::group(&self.generation_id(), task, iteration);
        Group { run: self.clone(), id, task: task.to_owned(), iteration, size, given: Arc::default() }
    }

    /// Whether the seal of a group is the one that a writer announced at this time; `None` if there is no seal yet.
    pub(in crate::store) fn was_sealed_by(&self, group: &Id, writer: &Id, time: i64) -> Result<Option<bool>> {
        let path = seal_path(group);
        match read_card(self.store().cards(), &path, kind::SEAL)? {
            CardFound::Nothing => Ok(None),
            CardFound::Damaged => Err(damaged(&path)),
            CardFound::Card(card) => {
                let said = card.get(fields::TIME).and_then(Value::as_int);
                Ok(Some(card.id(fields::WRITER) == Some(*writer) && said == Some(time)))
            }
        }
    }

    /// A group by its id, if it was sealed.
    pub fn sealed_group(&self, group: &Id) -> Result<Option<GroupView>> {
        self.store().check_process()?;
        let path = seal_path(group);
        match read_seal(self.store().cards(), &path)? {
            Some((generation_id, view)) if generation_id == self.generation_id() && view.group == *group => {
                Ok(Some(view))
            }
            Some(_) => Err(damaged(&path)),
            None => Ok(None),
        }
    }

    /// All groups of this run that were sealed.
    pub fn groups(&self) -> Result<SealedGroups> {
        self.store().check_process()?;
        let store = self.store();
        let list = |dir: &str| store.disk().list(dir).doing("list", dir);
        let mut found = SealedGroups::default();
        for shard in list(GROUPS)?.iter().filter(|entry| entry.is_dir) {
            let dir = disk::join(GROUPS, &shard.name);
            for entry in list(&dir)?.iter().filter(|entry| entry.name.ends_with(".seal")) {
                let path = disk::join(&dir, &entry.name);
                match read_seal(store.cards(), &path) {
                    Ok(Some((generation_id, view))) if generation_id == self.generation_id() => {
                        found.groups.push(view)
                    }
                    Ok(_) => {}
                    Err(Error::Damaged { path, .. }) => found.damaged.push(path),
                    Err(error) => return Err(error),
                }
            }
        }
        found.groups.sort_by_key(|view| (view.time, view.group));
        Ok(found)
    }

    /// Announces that a group is about to be sealed, for followers. Durable when it returns.
    ///
    /// Several processes may announce the same group; the seal names the one that counts, by writer and time. Returns
    /// the writer.
    fn announce_seal(&self, group: &Id, source: &str, time: i64) -> Result<Id> {
        let note = [
            (fields::TIME, Value::Int(time)),
            (fields::NAME, Value::from(SEAL_NOTE)),
            (fields::VALUE, Value::bytes(group.0)),
            (fields::SOURCE, Value::from(source)),
        ];
        let putter = self.note_putter()?;
        putter.append_waiting(Kind::Note, &note)?.wait_synced()?;
        Ok(putter.writer())
    }
}

impl Group {
    /// Its id. Every machine computes the same one.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The ids of its episodes, by sample.
    pub fn members(&self) -> Vec<Id> {
        self.samples().map(|(_, episode)| episode).collect()
    }

    fn samples(&self) -> impl Iterator<Item = (i64, Id)> {
        (0..self.size as i64).map(|sample| (sample, self.run.episode_id(&self.name(sample))))
    }

    pub(in crate::store) fn name(&self, sample: i64) -> EpisodeName {
        EpisodeName { task: self.task.clone(), iteration: self.iteration, sample }
    }

    /// The seal, if there is one.
    pub fn sealed(&self) -> Result<Option<GroupView>> {
        self.run.sealed_group(&self.id)
    }

    /// Seals the group: all of it, or nothing.
    ///
    /// Rewards are keyed by episode. If any are given, every member that has ended needs one, and other episodes must
    /// not have one. Members without a final end are listed as missing, with the reason. If fewer than `least`
    /// members have ended (the default is all), it is an error that lists them. Sealing again with the same rewards
    /// returns the same seal; with others it is `Ended`.
    pub fn seal(
        &self,
        rewards: Option<&[(Id, f64)]>,
        source: &str,
        least: Option<usize>,
    ) -> Result<GroupView> {
        self.run.store().check_open()?;
        let rewards = rewards.map(|rewards| self.by_episode(rewards)).transpose()?;
        if let Some(sealed) = self.sealed()? {
            return self.same_or_ended(sealed, rewards.as_ref(), source);
        }
        self.check_size(&[])?;
        let view = self.propose(rewards.as_ref(), source, least)?;
        let writer = self.run.announce_seal(&self.id, source, view.time)?;
        if self.publish(&view, &writer)? {
            return Ok(view);
        }
        let what = || Error::NotFound { what: format!("the seal of {}", self.shown()) };
        self.same_or_ended(self.sealed()?.ok_or_else(what)?, rewards.as_ref(), source)
    }

    /// Rewards by episode. An error if one does not belong to a member, or a member has two.
    fn by_episode(&self, rewards: &[(Id, f64)]) -> Result<BTreeMap<Id, f64>> {
        let members: BTreeSet<Id> = self.members().into_iter().collect();
        let bad = |episode: &Id, value: &str, fix: String| Error::BadInput {
            field: format!("reward of episode {episode}"),
            value: value.to_owned(),
            fix,
        };
        let mut by_episode = BTreeMap::new();
        for (episode, reward) in rewards {
            if !members.contains(episode) {
                let fix = format!(
                    "give rewards for the {} of {} only",
                    counted(self.size as u64, "episode"),
                    self.shown()
                );
                return Err(bad(episode, "is not of this group", fix));
            }
            if by_episode.insert(*episode, *reward).is_some() {
                return Err(bad(episode, "is given twice", "give one".to_owned()));
            }
        }
        Ok(by_episode)
    }

    /// The seal that would be published now. An error if too few members have ended, or the rewards do not fit.
    fn propose(
        &self,
        rewards: Option<&BTreeMap<Id, f64>>,
        source: &str,
        least: Option<usize>,
    ) -> Result<GroupView> {
        let (mut members, mut missing) = (Vec::new(), BTreeMap::new());
        for (sample, episode) in self.samples() {
            let reward = rewards.and_then(|rewards| rewards.get(&episode).copied());
            match episode_state(&self.run, &episode)? {
                EpisodeState::Final { attempt } if rewards.is_some() && reward.is_none() => {
                    let value = format!("is missing: attempt {attempt} of it has ended");
                    return Err(self.bad_reward(sample, &episode, value, "give a reward for every member"));
                }
                EpisodeState::Final { attempt } => members.push(Member { episode, attempt, sample, reward }),
                EpisodeState::NotYet(why) if reward.is_some() => {
                    let value = format!("is given, and the episode has not ended for good ({why})");
                    return Err(self.bad_reward(sample, &episode, value, "leave it out, or seal later"));
                }
                EpisodeState::NotYet(why) => drop(missing.insert(sample, why)),
            }
        }
        let least = least.unwrap_or(self.size).max(1);
        if members.len() < least {
            return Err(self.too_few(members.len(), least, &missing));
        }
        let (task, source, time) = (self.task.clone(), source.to_owned(), self.run.store().disk().now_us());
        Ok(GroupView { group: self.id, task, iteration: self.iteration, members, missing, source, time })
    }

    fn bad_reward(&self, sample: i64, episode: &Id, value: String, fix: &str) -> Error {
        let field = format!("reward of sample {sample} of {} (episode {episode})", self.shown());
        Error::BadInput { field, value, fix: fix.to_owned() }
    }

    fn too_few(&self, members: usize, least: usize, missing: &BTreeMap<i64, String>) -> Error {
        let listed: Vec<String> =
            missing.iter().map(|(sample, why)| format!("sample {sample}: {why}")).collect();
        // A caller that gave no `least` should not read that it did.
        let (needed, fix) = if least == self.size {
            (String::new(), "seal it when all have ended, or say with `least` how many are enough")
        } else {
            (format!(", and least is {least}"), "seal it when more have ended, or give a lower `least`")
        };
        let has = if members == 1 { "has" } else { "have" };
        let of = counted(self.size as u64, "member");
        let value =
            format!("cannot be sealed: {members} of {of} {has} ended{needed} ({})", listed.join(", "));
        Error::BadInput { field: self.shown(), value, fix: fix.to_owned() }
    }

    /// Publishes the seal. False if there is one already.
    fn publish(&self, view: &GroupView, writer: &Id) -> Result<bool> {
        let storage = self.run.store().cards();
        let path = seal_path(&self.id);
        let fields = seal_fields(view, &self.run.generation_id(), writer);
        match publish_card(storage, &path, kind::SEAL, &fields)? {
            Published::Done => Ok(true),
            Published::Taken => Ok(false),
            Published::Unfit => Err(Error::BadInput {
                field: "group".to_owned(),
                value: format!("of {} is too large", counted(self.size as u64, "member")),
                fix: "a seal has at most 64 MiB: use smaller groups".to_owned(),
            }),
        }
    }

    /// The existing seal, if it equals the one that would be made now.
    fn same_or_ended(
        &self,
        sealed: GroupView,
        rewards: Option<&BTreeMap<Id, f64>>,
        source: &str,
    ) -> Result<GroupView> {
        let differ = self.differences(&sealed, rewards, source);
        if !differ.is_empty() {
            let why = format!("sealed by {:?}; these differ: {}", sealed.source, differ.join("; "));
            return Err(Error::Ended { what: self.shown(), why });
        }
        // The process that published it may have died before it synced the name.
        let path = seal_path(&self.id);
        let dir = disk::parent(&path);
        self.run.store().disk().settle(dir).doing("sync", dir)?;
        Ok(sealed)
    }

    fn differences(
        &self,
        sealed: &GroupView,
        rewards: Option<&BTreeMap<Id, f64>>,
        source: &str,
    ) -> Vec<String> {
        let mut differ = Vec::new();
        if sealed.source != source {
            differ.push(format!("source was {:?}, is {source:?}", sealed.source));
        }
        let size = sealed.members.len() + sealed.missing.len();
        if size != self.size {
            differ.push(format!("size was {size}, is {}", self.size));
        }
        let shown = |reward: Option<f64>| reward.map_or("none".to_owned(), |reward| format!("{reward:?}"));
        let mut left = rewards.cloned().unwrap_or_default();
        for member in &sealed.members {
            let now = left.remove(&member.episode);
            // Compared bit by bit: NaN is a valid reward.
            if member.reward.map(f64::to_bits) != now.map(f64::to_bits) {
                let (was, is) = (shown(member.reward), shown(now));
                differ.push(format!("reward of sample {} was {was}, is {is}", member.sample));
            }
        }
        differ.extend(left.iter().map(|(episode, reward)| {
            format!("episode {episode} was missing, and has a reward of {reward:?} now")
        }));
        differ
    }

    pub(in crate::store) fn shown(&self) -> String {
        format!("group {}#{}", self.task, self.iteration)
    }
}

fn seal_fields(view: &GroupView, generation_id: &Id, writer: &Id) -> Vec<(u8, Value)> {
    let member = |member: &Member| {
        Value::map([
            ("episode", Value::bytes(member.episode.0)),
            ("attempt", Value::Int(i64::from(member.attempt))),
            ("sample", Value::Int(member.sample)),
            ("reward", member.reward.map_or(Value::Null, Value::Float)),
        ])
    };
    let missing = view.missing.iter().map(|(sample, why)| (Value::Int(*sample), Value::from(why.as_str())));
    vec![
        (fields::TIME, Value::Int(view.time)),
        (fields::GENERATION_ID, Value::bytes(generation_id.0)),
        (fields::TASK, Value::from(view.task.as_str())),
        (fields::ITERATION, Value::Int(view.iteration)),
        (fields::SOURCE, Value::from(view.source.as_str())),
        (fields::WRITER, Value::bytes(writer.0)),
        (fields::GROUP, Value::bytes(view.group.0)),
        (fields::MEMBERS, Value::list(view.members.iter().map(member))),
        (fields::MISSING, Value::map(missing)),
    ]
}

fn damaged(path: &str) -> Error {
    let found = "it does not validate: it is unknown what was sealed".to_owned();
    Error::Damaged { path: path.to_owned(), offset: 0, found }
}

/// A seal, and the id of its run's generation.
fn read_seal(storage: &Storage, path: &str) -> Result<Option<(Id, GroupView)>> {
    match read_card(storage, path, kind::SEAL)? {
        CardFound::Nothing => Ok(None),
        CardFound::Damaged => Err(damaged(path)),
        CardFound::Card(card) => seal_of(&card).map(Some).ok_or_else(|| damaged(path)),
    }
}

fn seal_of(card: &Fields) -> Option<(Id, GroupView)> {
    let int = |number: u8| card.get(number)?.as_int();
    let Value::Map(missing) = card.get(fields::MISSING)?.plain() else { return None };
    let missing = missing.iter().map(|(sample, why)| Some((sample.as_int()?, why.as_str()?.to_owned())));
    let view = GroupView {
        group: card.id(fields::GROUP)?,
        task: card.text(fields::TASK)?.to_owned(),
        iteration: int(fields::ITERATION)?,
        members: card.get(fields::MEMBERS)?.as_list()?.iter().map(member_of).collect::<Option<_>>()?,
        missing: missing.collect::<Option<_>>()?,
        source: card.text(fields::SOURCE)?.to_owned(),
        time: int(fields::TIME)?,
    };
    Some((card.id(fields::GENERATION_ID)?, view))
}

fn member_of(value: &Value) -> Option<Member> {
    Some(Member {
        episode: as_id(value.get("episode")?)?,
        attempt: u32::try_from(value.get("attempt")?.as_int()?).ok()?,
        sample: value.get("sample")?.as_int()?,
        reward: value.get("reward")?.as_float(),
    })
}
