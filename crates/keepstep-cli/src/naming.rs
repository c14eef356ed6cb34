//! The names of episodes, groups and runs that are known by their ids, as far as the store still has them.
//!
//! A log has the names of its episodes, unless that record is damaged or the log is gone. Then another attempt may
//! have the name, or the plan of a run: its names make the same ids.

use std::collections::{BTreeSet, HashMap};

use keepstep::format::ids;
use keepstep::refs::{self, Name, Ref, run_reference};
use keepstep::{EpisodeName, Id, Store};

use crate::reading;

/// The names of some ids.
#[derive(Default)]
pub(crate) struct Names {
    episodes: HashMap<Id, Ref>,
    /// The attempt that counts, of each episode that is listed.
    in_force: HashMap<Id, u32>,
    groups: HashMap<Id, Ref>,
    runs: HashMap<Id, String>,
}

impl Names {
    /// Finds the names of these ids. An id whose name is not found stays without one: that is no reason to fail.
    pub(crate) fn of(store: &Store, mut wanted: BTreeSet<Id>) -> Self {
        let mut names = Self::default();
        for run in store.runs().unwrap_or_default().into_iter().flatten() {
            let generation = (!run.is_newest).then_some(run.generation);
            names.runs.insert(run.generation_id, run_reference(&run.name, generation));
            wanted.remove(&run.generation_id);
        }
        if !wanted.is_empty() {
            names.find_listed(store, &mut wanted);
            names.find_planned(store, &mut wanted);
        }
        names
    }

    fn find_listed(&mut self, store: &Store, wanted: &mut BTreeSet<Id>) {
        let episodes = reading::open(store).map(|(_, episodes)| episodes).unwrap_or_default();
        let is_asked = |it: &&reading::Episode| it.is_in_force && wanted.contains(&it.key.episode);
        self.in_force.extend(episodes.iter().filter(is_asked).map(|it| (it.key.episode, it.key.attempt)));
        for episode in &episodes {
            let (id, name) = (episode.key.episode, episode.name());
            let Name::Episode { run, task, .. } = &name.name else { continue };
            let of_group = ids::group(&episode.generation_id, task, episode.iteration);
            if wanted.remove(&of_group) {
                let name = Name::Episode {
                    run: run.clone(),
                    task: task.clone(),
                    iteration: Some(episode.iteration),
                    sample: None,
                };
                let mut group = episode.name();
                group.name = name;
                self.groups.insert(of_group, group);
            }
            if wanted.remove(&id) {
                self.episodes.insert(id, name);
            }
        }
    }

    fn find_planned(&mut self, store: &Store, wanted: &mut BTreeSet<Id>) {
        for info in store.runs().unwrap_or_default().into_iter().flatten() {
            if wanted.is_empty() {
                return;
            }
            let run = store.run_of(info);
            for (task, iteration, samples) in run.planned().unwrap_or_default() {
                let group = ids::group(&run.generation_id(), &task, iteration);
                if wanted.remove(&group) {
                    self.groups.insert(group, refs::group_reference(&run, &task, iteration));
                }
                for sample in 0..i64::from(samples) {
                    let id = ids::episode(&run.generation_id(), &task, iteration, sample);
                    if wanted.remove(&id) {
                        let name = EpisodeName::task(task.clone()).iteration(iteration).sample(sample);
                        self.episodes.insert(id, refs::reference(&run, &name));
                    }
                }
            }
        }
    }

    /// An episode, without the attempt; `None` if its name is unknown.
    pub(crate) fn episode(&self, id: &Id) -> Option<&Ref> {
        self.episodes.get(id)
    }

    /// An attempt: with its number, unless it is the one that counts.
    pub(crate) fn attempt(&self, id: &Id, attempt: u32, step: Option<u64>) -> String {
        let is_in_force = self.in_force.get(id) == Some(&attempt);
        let attempt = (!is_in_force).then_some(attempt);
        let by_id = || Ref::of(Name::Bare(id.to_string()));
        self.episodes.get(id).cloned().unwrap_or_else(by_id).attempt(attempt).step(step).to_string()
    }

    /// A group.
    pub(crate) fn group(&self, id: &Id) -> String {
        self.groups.get(id).map_or_else(|| id.to_string(), Ref::to_string)
    }

    /// A run, by its generation id.
    pub(crate) fn run(&self, generation_id: &Id) -> String {
        self.runs.get(generation_id).cloned().unwrap_or_else(|| generation_id.to_string())
    }
}
