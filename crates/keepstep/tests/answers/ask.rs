//! All ways of asking what a store holds; each says where it differs from what is on paper.

use std::collections::BTreeMap;
use std::time::Duration;

use keepstep::export::{Jsonl, JsonlOptions};
use keepstep::format::commit::What;
use keepstep::format::fields;
use keepstep::read::{FollowFrom, Item, NoteTarget};
use keepstep::{EpisodeFilter, Id, Listed, Run, RunEvent, Value, View};

use super::paper::{Attempt, Episode, Paper, shown};

/// What was told, and should have been.
pub struct Asking<'p> {
    pub run: &'p Run,
    pub paper: &'p Paper,
    differences: Vec<String>,
}

/// All that is told otherwise than it stands on paper.
pub fn differences(run: &Run, paper: &Paper) -> Vec<String> {
    let mut asking = Asking { run, paper, differences: Vec::new() };
    asking.listing();
    asking.views();
    asking.filters();
    asking.groups();
    asking.events();
    asking.records();
    asking.exports();
    asking.scores();
    asking.differences
}

impl Paper {
    fn attempts(&self) -> impl Iterator<Item = (&Episode, u32, &Attempt)> {
        self.episodes.iter().flat_map(|episode| {
            (0..).zip(&episode.attempts).map(move |(number, attempt)| (episode, number, attempt))
        })
    }
}

/// What is told of an attempt: run, task, iteration, sample, steps, return, end.
type Row = (Option<String>, Option<String>, Option<i64>, Option<i64>, u64, Option<String>, Option<String>);

/// The rewards of steps, by their index.
type Rewards = Vec<(i64, Option<String>)>;

fn row(listed: &Listed) -> Row {
    let it = listed.summary.clone();
    (it.run, it.task, it.iteration, it.sample, it.steps, shown(it.total_reward), it.why)
}

impl Asking<'_> {
    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, expected: T) {
        if found != expected {
            self.differences.push(format!("{what}: {found:?} instead of {expected:?}"));
        }
    }

    fn id(&self, episode: &Episode) -> Id {
        self.run.episode_id(&episode.name)
    }

    fn row(&self, episode: &Episode, attempt: &Attempt) -> Row {
        let name = &episode.name;
        (
            Some(self.paper.run.clone()),
            Some(name.task.clone()),
            Some(name.iteration),
            Some(name.sample),
            attempt.steps.len() as u64,
            shown(attempt.total()),
            attempt.why.clone(),
        )
    }

    /// The list of all, the list of one, and the times in it.
    fn listing(&mut self) {
        let store = self.run.store();
        let mut catalog = store.catalog().expect("reads");
        let mut all: BTreeMap<(Id, u32), Listed> = BTreeMap::new();
        let listed = store.list(&mut catalog).expect("lists").into_iter();
        for listed in listed.filter(|it| it.summary.generation_id == Some(self.run.generation_id())) {
            all.insert((listed.key.episode, listed.key.attempt), listed);
        }
        self.expect("how many are listed", all.len(), self.paper.attempts().count());
        for (episode, number, attempt) in self.paper.attempts() {
            let what = format!("{:?}, attempt {number}", episode.name);
            let Some(listed) = all.get(&(self.id(episode), number)) else {
                self.differences.push(format!("{what} is not listed"));
                continue;
            };
            self.expect(&what, row(listed), self.row(episode, attempt));
            let is_last = number as usize + 1 == episode.attempts.len();
            let counted = (listed.attempts as usize, listed.is_in_force);
            self.expect(&what, counted, (episode.attempts.len(), is_last));
            let one = store.list_one(&mut catalog, &self.id(episode)).expect("lists");
            let one: Vec<Row> = one.iter().filter(|it| it.key.attempt == number).map(row).collect();
            self.expect(&what, one, vec![self.row(episode, attempt)]);
            let mut times = Vec::new();
            for item in
                catalog.reader(&listed.key).into_iter().flat_map(|mut it| it.records().collect::<Vec<_>>())
            {
                if let Item::Record(record) = item.expect("reads")
                    && u64::from(record.seq) < listed.records
                {
                    times.extend(record.get(fields::TIME).and_then(Value::as_int));
                }
            }
            if !times.is_empty() {
                let told = (listed.summary.first_time, listed.summary.last_time);
                // An attempt that inherits steps began when the one before it did.
                let began = store.began(&self.id(episode)).expect("reads")[number as usize];
                let before = began.resumed.filter(|_| began.inherited > 0);
                let before = before.and_then(|it| all.get(&(self.id(episode), it))?.summary.first_time);
                self.expect(&what, told, (before.or(times.first().copied()), times.last().copied()));
            }
        }
    }

    /// Each attempt, read.
    fn views(&mut self) {
        let catalog = self.run.store().catalog().expect("reads");
        for episode in self.paper.episodes.iter().filter(|it| !it.attempts.is_empty()) {
            let view = self.run.view(&episode.name).expect("reads");
            let numbers: Vec<u32> = (0..episode.attempts.len() as u32).collect();
            self.expect("attempts", view.attempts(), numbers);
            for (number, attempt) in (0..).zip(&episode.attempts) {
                let what = format!("{:?}, attempt {number}, viewed", episode.name);
                let view = view.attempt(number).expect("reads");
                self.view(&what, &view, episode, attempt);
                let key = view.store().began(&view.id()).expect("reads")[number as usize].key;
                let view = view.store().view_of(&catalog, &key).expect("reads");
                self.view(&what, &view, episode, attempt);
            }
        }
    }

    fn view(&mut self, what: &str, view: &View, episode: &Episode, attempt: &Attempt) {
        let read = view.read().expect("reads");
        let told = |action: Option<i64>, reward: Option<f64>| (action, shown(reward));
        let steps: Vec<_> =
            read.steps.iter().map(|it| told(it.action.as_ref().and_then(Value::as_int), it.reward)).collect();
        let expected: Vec<_> = attempt.steps.iter().map(|it| told(Some(it.action), it.reward)).collect();
        self.expect(what, steps, expected);
        self.expect(what, view.steps(), attempt.steps.len() as u64);
        let pending = read.pending.and_then(|step| step.action?.as_int());
        self.expect(what, pending, attempt.pending);
        self.expect(what, view.ending().expect("reads").and_then(|end| end.why), attempt.why.clone());
        let begin = view.begin().expect("reads").unwrap_or_default();
        let named = (begin.run, begin.task);
        self.expect(what, named, (Some(self.paper.run.clone()), Some(episode.name.task.clone())));
    }

    /// What filters find, by task, end, iteration and return.
    fn filters(&mut self) {
        let mut filters = vec![EpisodeFilter::default().all_attempts(true)];
        for (episode, _, attempt) in self.paper.attempts() {
            let name = &episode.name;
            filters.push(EpisodeFilter::default().task(name.task.clone()));
            filters.push(EpisodeFilter::default().iteration(name.iteration));
            let ends = [attempt.why.clone().unwrap_or_default()];
            filters.push(EpisodeFilter::default().ends(ends).all_attempts(true));
        }
        for (least, most) in [(0.0, 0.0), (f64::NEG_INFINITY, f64::INFINITY), (0.5, 3.0)] {
            filters.push(EpisodeFilter::default().reward(least, most));
        }
        for filter in filters {
            let found = self.run.episodes(&filter).expect("lists");
            let mut found: Vec<_> = found.iter().map(|it| (it.key.episode, it.key.attempt)).collect();
            found.sort_unstable();
            let fits = |(episode, number, attempt): &(&Episode, u32, &Attempt)| {
                (filter.all_attempts || *number as usize + 1 == episode.attempts.len())
                    && filter.task.as_ref().is_none_or(|task| *task == episode.name.task)
                    && filter.iteration.is_none_or(|it| it == episode.name.iteration)
                    && filter.ends.as_ref().is_none_or(|ends| attempt.why.as_ref() == ends.first())
                    && filter.reward.is_none_or(|(least, most)| {
                        attempt.total().is_some_and(|total| least <= total && total <= most)
                    })
            };
            let expected = self.paper.attempts().filter(fits);
            let mut expected: Vec<_> = expected.map(|(it, number, _)| (self.id(it), number)).collect();
            expected.sort_unstable();
            self.expect(&format!("{filter:?}"), found, expected);
        }
    }

    fn groups(&mut self) {
        let mut found = BTreeMap::new();
        for group in self.run.groups().expect("lists").groups {
            let members = group.members.iter().map(|it| (it.sample, shown(it.reward))).collect();
            found.insert((group.task, group.iteration), members);
        }
        self.expect("groups", found, self.paper.groups.clone());
    }

    /// Whoever follows the run from its beginning is told every end that its owner said, and every group.
    fn events(&mut self) {
        let mut follow = self.run.follow(None).expect("follows");
        let (mut ended, mut sealed) = (Vec::new(), 0);
        while let Some((event, _)) = follow.next(Duration::ZERO).expect("follows") {
            match event {
                RunEvent::Ended { episode, attempt, .. } => ended.push((episode, attempt)),
                _ => sealed += 1,
            }
        }
        ended.sort_unstable();
        let said = |why: &String| why != "crashed" && why != "superseded";
        let all = self.paper.attempts().filter(|(_, _, attempt)| attempt.why.as_ref().is_some_and(said));
        let mut expected: Vec<_> = all.map(|(episode, number, _)| (self.id(episode), number)).collect();
        expected.sort_unstable();
        self.expect("ends that are told", ended, expected);
        self.expect("groups that are told", sealed, self.paper.groups.len());
    }

    /// Whoever follows all records can sum them up: each attempt has what is its own, once.
    fn records(&mut self) {
        let mut follow = self.run.store().follow(FollowFrom::Start).expect("follows");
        let mut found: BTreeMap<(Id, u32), Rewards> = BTreeMap::new();
        while let Some(next) = follow.next(Duration::ZERO).expect("follows") {
            let Item::Record(record) = next.item else { panic!("lost: {:?}", next.item) };
            if next.bind.what != What::Attempt || !matches!(record.kind, 0x11 | 0x12 | 0x14) {
                continue;
            }
            let index = record.get(fields::INDEX).and_then(Value::as_int).expect("has one");
            let reward = shown(record.get(fields::REWARD).and_then(Value::as_float));
            found.entry((next.bind.id, next.bind.attempt)).or_default().push((index, reward));
        }
        for (episode, number, attempt) in self.paper.attempts() {
            let own = (0..).zip(&attempt.steps).skip(attempt.inherited);
            let own: Vec<_> = own.map(|(index, step)| (index, shown(step.reward))).collect();
            let told = found.remove(&(self.id(episode), number)).unwrap_or_default();
            self.expect(&format!("{:?}, attempt {number}, followed", episode.name), told, own);
        }
    }

    /// One line a step, with its names and its reward or none.
    fn exports(&mut self) {
        let store = self.run.store();
        let catalog = store.catalog().expect("reads");
        let filter = EpisodeFilter::default().all_attempts(true);
        let notes = self.run.notes().expect("reads");
        let mut found = Vec::new();
        for listed in self.run.episodes(&filter).expect("lists") {
            let view = store.view_of(&catalog, &listed.key).expect("reads");
            let mut jsonl = Jsonl::new(Vec::new(), JsonlOptions::default());
            jsonl.notes(&listed, &view, &notes).expect("exports");
            let (counting, _) = notes.episode(&listed.key.episode).expect("reads");
            let exported = jsonl.finish().expect("exports").1.notes;
            self.expect("notes that are exported", exported, view.counting(&counting).len() as u64);
            let mut jsonl = Jsonl::new(Vec::new(), JsonlOptions::default());
            jsonl.episode(&listed, &view, &mut || {}).expect("exports");
            let (lines, _) = jsonl.finish().expect("exports");
            let lines = String::from_utf8(lines).expect("is text");
            found.extend(lines.lines().map(|line| {
                let has_names = [&self.paper.run, listed.summary.task.as_ref().unwrap_or(&self.paper.run)]
                    .iter()
                    .all(|name| line.contains(&format!(":\"{name}\"")));
                let reward = line.split("\"reward\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
                (listed.key.episode, listed.key.attempt, has_names, reward.map(str::to_owned))
            }));
        }
        found.sort();
        let mut expected = Vec::new();
        for (episode, number, attempt) in self.paper.attempts() {
            let id = self.id(episode);
            let reward = |reward: f64| match reward.is_nan() {
                true => "{\"$float\":\"nan\"".to_owned(),
                false => format!("{reward:?}"),
            };
            expected.extend(attempt.steps.iter().map(|step| (id, number, true, step.reward.map(reward))));
        }
        expected.sort();
        self.expect("exported", found, expected);
    }

    fn scores(&mut self) {
        let index = self.run.notes().expect("reads");
        for episode in self.paper.episodes.iter().filter(|it| !it.attempts.is_empty()) {
            let id = self.id(episode);
            let (notes, _) = index.episode(&id).expect("reads");
            let on_it = notes.iter().find(|(key, _)| {
                key.target == NoteTarget::episode(id) && key.name == "score" && key.source == "judge"
            });
            let newest = on_it.and_then(|(_, said)| said.last()?.value.as_float());
            self.expect("score", newest, episode.score);
            let view = self.run.view(&episode.name).expect("reads");
            for (number, attempt) in (0..).zip(&episode.attempts) {
                let found = view.attempt(number).expect("reads").counting(&notes).into_iter();
                let found = found.filter_map(|(key, said)| {
                    Some((key.target.attempt?, key.name, said.value.as_int().unwrap_or_default()))
                });
                let mut found: Vec<_> = found.collect();
                found.sort();
                let what = format!("{:?}, attempt {number}, notes", episode.name);
                self.expect(&what, found, attempt.notes(number));
            }
        }
    }
}
