//! What recorders, pruners and followers said, and what is wrong with what is read afterwards.
//!
//! What a step holds follows from seed, episode and index; beside it stands a mark of whoever recorded it, another for each
//! try, so that a step that was lost and recorded again is told from the one that was acknowledged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::str::FromStr;

use keepstep::Id;

use super::super::content::Key;

/// The run whose episodes stay, and the one whose episodes are pruned once they have finished.
pub(super) const RUNS: [&str; 2] = ["keep", "waste"];
const WASTE: u32 = 1;
/// How each kind of fault is called, in the order in which they are told.
pub(super) const KINDS: [&str; 7] =
    ["lost", "torn", "doubled", "told_twice", "never_told", "not_pruned", "damaged"];
const FIRST_MAX: usize = 20;
/// Stands behind each line: a kill may cut it, and then it was not said.
const STOP: &str = " .";

/// The key of an episode that all recorders share: its run, its task, and which one of that task.
pub(super) fn key(run: u32, task: u32, number: u32) -> Key {
    Key { worker: task, life: run, thread: 0, number }
}

/// A line for the pipe.
pub(super) fn line(what: &str, of: Key, more: impl Display) -> String {
    format!("{what} {} {} {} {more}{STOP}\n", of.life, of.worker, of.number)
}

/// A line that is about no episode.
pub(super) fn word(what: &str, more: impl Display) -> String {
    format!("{what} {more}{STOP}\n")
}

/// An event as it was told, with the cursor behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FollowedEnd {
    pub(super) episode: Id,
    pub(super) attempt: u32,
    pub(super) why: String,
    pub(super) cursor: String,
}

/// What was said of one episode.
#[derive(Debug, Default)]
struct Known {
    /// The mark of each step that was acknowledged.
    acknowledged: BTreeMap<u64, String>,
    /// The ends that were acknowledged, by attempt.
    ended: BTreeMap<u32, String>,
    /// Somebody was about to say that it finished: from here on it may be pruned, if it is waste.
    may_finish: bool,
    is_pruned: bool,
}

/// A step as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundStep {
    pub(super) index: u64,
    pub(super) mark: String,
    /// True if it has what it was recorded with.
    pub(super) is_right: bool,
    /// True if it was said that a part of it cannot be read.
    pub(super) is_damaged: bool,
}

/// An episode as it was read back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReadBack {
    pub(super) id: Id,
    pub(super) steps: Vec<FoundStep>,
    pub(super) why: Option<String>,
}

/// All that was read back.
pub(super) type AllFound = HashMap<Key, ReadBack>;

/// Hears what was promised, and compares it with what is there.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    known: HashMap<Key, Known>,
    /// Each fault once, by the number of its kind.
    faults: BTreeSet<(usize, String)>,
    /// What the followers of the runs were told.
    pub(super) told: [Vec<FollowedEnd>; 2],
    pub(super) acknowledged: u64,
    pub(super) ends: u64,
    pub(super) fenced: u64,
    pub(super) pruned: u64,
    /// How often each thing was done to the end.
    pub(super) done: BTreeMap<String, u64>,
    /// Lines that made no sense.
    pub(super) garbled: u64,
}

impl Oracle {
    pub(super) fn fault(&mut self, kind: &str, what: String) {
        let kind = KINDS.iter().position(|it| *it == kind).unwrap_or(0);
        self.faults.insert((kind, what));
    }

    pub(super) fn faults(&self, kind: &str) -> u64 {
        self.faults.iter().filter(|(of, _)| KINDS[*of] == kind).count() as u64
    }

    pub(super) fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The first faults, in words.
    pub(super) fn first(&self) -> impl Iterator<Item = String> {
        self.faults.iter().take(FIRST_MAX).map(|(kind, what)| format!("{}: {what}", KINDS[*kind]))
    }

    pub(super) fn episodes(&self) -> u64 {
        self.known.len() as u64
    }

    /// Takes a line down, in the order in which its process said it. `run` is the one that a follower followed.
    pub(super) fn hear(&mut self, line: &str, run: usize) {
        // What was cut was not said.
        let Some(said) = line.strip_suffix(STOP) else { return };
        if self.take_down(said, run).is_none() {
            self.garbled += 1;
        }
    }

    fn take_down(&mut self, said: &str, run: usize) -> Option<()> {
        fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
            word?.parse().ok()
        }
        let (what, rest) = said.split_once(' ')?;
        let mut words = rest.split(' ');
        match what {
            "fenced" => {
                self.fenced += 1;
                return Some(());
            }
            "did" => {
                *self.done.entry(rest.to_owned()).or_default() += 1;
                return Some(());
            }
            "wrong" => {
                let (kind, what) = rest.split_once(' ')?;
                self.fault(kind, what.to_owned());
                return Some(());
            }
            "told" => {
                let (episode, attempt) = (number(words.next())?, number(words.next())?);
                let (why, cursor) = (words.next()?.to_owned(), words.next()?.to_owned());
                self.told[run].push(FollowedEnd { episode, attempt, why, cursor });
                return Some(());
            }
            _ => {}
        }
        let of = key(number(words.next())?, number(words.next())?, number(words.next())?);
        let known = self.known.entry(of).or_default();
        match what {
            "step" => {
                known.acknowledged.insert(number(words.next())?, words.next()?.to_owned());
                self.acknowledged += 1;
            }
            "ends" => known.may_finish |= words.nth(1)? == "finished",
            "ended" => {
                known.ended.insert(number(words.next())?, words.next()?.to_owned());
                self.ends += 1;
            }
            "pruned" => {
                known.is_pruned = true;
                self.pruned += 1;
                if of.life != WASTE {
                    self.fault("lost", format!("{of:?} was pruned, and nobody asked for it"));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Compares all that was found, and all that should have been.
    pub(super) fn compare(&mut self, found: &AllFound) {
        for (kind, what) in found.iter().flat_map(|(key, found)| wrong_steps(*key, found)) {
            self.fault(kind, what);
        }
        let nothing = ReadBack::default();
        let mut faults = Vec::new();
        for (key, known) in &self.known {
            compare_episode(*key, known, found.get(key).unwrap_or(&nothing), &mut faults);
        }
        faults.into_iter().for_each(|(kind, what)| self.fault(kind, what));
    }

    /// Compares what a follower of a run was told with what there is: nothing twice, and of a run that nobody prunes,
    /// everything.
    pub(super) fn compare_told(&mut self, run: usize, told: &[FollowedEnd], found: &AllFound) {
        let mut faults = Vec::new();
        let mut events = HashMap::new();
        for it in told {
            if let Some(before) = events.insert((it.episode, it.attempt), &*it.why) {
                let what = format!("{}~{}: {before}, {}", it.episode, it.attempt, it.why);
                faults.push(("told_twice", what));
            }
        }
        for (key, found) in found.iter().filter(|(key, _)| key.life as usize == run) {
            let finished: Vec<u32> = (events.iter())
                .filter(|((episode, _), why)| *episode == found.id && **why == "finished")
                .map(|((_, attempt), _)| *attempt)
                .collect();
            let is_finished = found.why.as_deref() == Some("finished");
            match finished.len() {
                0 if is_finished => faults.push(("never_told", format!("{key:?} finished"))),
                1 if !is_finished => {
                    faults.push(("lost", format!("{key:?} was told as finished, and is not")))
                }
                0 | 1 => {}
                _ => faults.push(("told_twice", format!("{key:?} finished in attempts {finished:?}"))),
            }
            let ended = self.known.get(key).into_iter().flat_map(|known| &known.ended);
            for (attempt, why) in ended.filter(|(attempt, _)| !events.contains_key(&(found.id, **attempt))) {
                faults.push(("never_told", format!("{key:?}~{attempt}: {why}, which was acknowledged")));
            }
        }
        faults.into_iter().for_each(|(kind, what)| self.fault(kind, what));
    }
}

/// What is wrong with the steps that are there, whatever was said of them.
pub(super) fn wrong_steps(key: Key, found: &ReadBack) -> Vec<(&'static str, String)> {
    let wrong = |(place, step): (usize, &FoundStep)| {
        let FoundStep { index, mark, is_right, .. } = step;
        if *index != place as u64 {
            return Some(("doubled", format!("step {index} of {key:?} stands at {place}")));
        }
        (!is_right).then(|| ("torn", format!("step {index} of {key:?}, recorded by {mark}")))
    };
    found.steps.iter().enumerate().filter_map(wrong).collect()
}

fn compare_episode(key: Key, known: &Known, found: &ReadBack, faults: &mut Vec<(&'static str, String)>) {
    if known.is_pruned {
        if !found.steps.is_empty() {
            faults.push(("not_pruned", format!("{key:?} still has {} steps", found.steps.len())));
        }
        return;
    }
    if found.steps.is_empty() && key.life == WASTE && known.may_finish {
        // Pruned by somebody who was killed before it could say so.
        return;
    }
    for (index, mark) in &known.acknowledged {
        let there = found.steps.iter().find(|step| step.index == *index).map(|step| &step.mark);
        if there != Some(mark) {
            faults.push((
                "lost",
                format!("step {index} of {key:?}: acknowledged to {mark}, there is {there:?}"),
            ));
        }
    }
    if known.ended.values().any(|why| why == "finished") && found.why.as_deref() != Some("finished") {
        faults.push(("lost", format!("the end of {key:?}, which is {:?}", found.why)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Key = Key { worker: 3, life: 0, thread: 0, number: 7 };
    const CURSOR: &str = "2~x";

    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        for said in [
            line("step", OF, "0 a.1"),
            line("step", OF, "1 a.2"),
            line("ends", OF, "2 finished"),
            line("ended", OF, "2 finished"),
        ] {
            oracle.hear(said.trim_end_matches('\n'), 0);
        }
        oracle
    }

    fn found() -> ReadBack {
        let step =
            |index, mark: &str| FoundStep { index, mark: mark.to_owned(), is_right: true, is_damaged: false };
        ReadBack {
            id: Id([5; 16]),
            steps: vec![step(0, "a.1"), step(1, "a.2")],
            why: Some("finished".to_owned()),
        }
    }

    fn told() -> Vec<FollowedEnd> {
        let (why, cursor) = ("finished".to_owned(), CURSOR.to_owned());
        vec![FollowedEnd { episode: Id([5; 16]), attempt: 2, why, cursor }]
    }

    /// What the oracle says of such an episode, and of what was told of it.
    fn faults(change: impl FnOnce(&mut Oracle, &mut ReadBack, &mut Vec<FollowedEnd>)) -> Vec<&'static str> {
        let (mut oracle, mut found, mut told) = (oracle(), found(), told());
        change(&mut oracle, &mut found, &mut told);
        let found = AllFound::from([(OF, found)]);
        oracle.compare(&found);
        oracle.compare_told(0, &told, &found);
        assert_eq!(oracle.garbled, 0);
        KINDS.into_iter().filter(|kind| oracle.faults(kind) > 0).collect()
    }

    /// The negative controls: a store that breaks any of these promises must be caught.
    #[test]
    fn every_broken_promise_is_noticed() {
        assert_eq!(faults(|_, _, _| {}), [""; 0]);
        assert_eq!(faults(|_, found, _| _ = found.steps.pop()), ["lost"], "a step is gone");
        assert_eq!(
            faults(|_, found, _| "b.9".clone_into(&mut found.steps[1].mark)),
            ["lost"],
            "it was lost, and somebody recorded it again"
        );
        assert_eq!(faults(|_, found, _| found.steps[1].is_right = false), ["torn"]);
        assert_eq!(faults(|_, found, _| found.steps.push(found.steps[1].clone())), ["doubled"]);
        assert_eq!(faults(|_, found, told| (found.why, *told) = (None, Vec::new())), ["lost", "never_told"]);
        assert_eq!(faults(|_, _, told| told.clear()), ["never_told"]);
        assert_eq!(faults(|_, _, told| told.push(told[0].clone())), ["told_twice"]);
        assert_eq!(
            faults(|_, _, told| told.push(FollowedEnd { attempt: 3, ..told[0].clone() })),
            ["told_twice"]
        );
        let pruned = line("pruned", OF, "");
        assert_eq!(
            faults(|oracle, _, _| oracle.hear(pruned.trim_end_matches('\n'), 0)),
            ["lost", "not_pruned"],
            "nobody asked for it, and it is still there"
        );
    }

    /// A line that was cut by a kill was not said, wherever it was cut.
    #[test]
    fn half_a_line_says_nothing() {
        let said = format!("told {} 2 finished {CURSOR}{STOP}", Id([5; 16]));
        for cut in 0..said.len() {
            let mut oracle = Oracle::default();
            oracle.hear(&said[..cut], 1);
            assert!(oracle.told[1].is_empty() && oracle.garbled == 0, "{:?}", &said[..cut]);
        }
        let mut oracle = Oracle::default();
        oracle.hear(&said, 1);
        assert_eq!(oracle.told[1], told());
    }
}
