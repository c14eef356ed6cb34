//! Compares what was found in the store with what the witness heard.
//!
//! Lost: acknowledged and not there. Torn: there, but not as it was recorded, or behind a hole. Invented: never handed over.

use std::collections::HashMap;

use super::content::{Key, Story};
use super::witness::{Seen, Witness};

/// One episode as it was read back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReadEpisode {
    /// Index and digest of each step, in the order of the log; no digest for one that could not be read whole.
    pub(crate) steps: Vec<(u64, Option<u64>)>,
    pub(crate) why: Option<String>,
}

/// What a comparison showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) episodes: u64,
    pub(crate) steps_read: u64,
    pub(crate) lost: u64,
    pub(crate) torn: u64,
    pub(crate) invented: u64,
    /// The first few, in words.
    pub(crate) told: Vec<String>,
}

const TOLD_MAX: usize = 20;

impl Findings {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.torn + self.invented == 0
    }

    /// Takes in another look at the same episodes: what is wrong in both is one fault.
    pub(crate) fn take_in(&mut self, other: Findings) {
        self.episodes = self.episodes.max(other.episodes);
        self.steps_read = self.steps_read.max(other.steps_read);
        self.lost = self.lost.max(other.lost);
        self.torn = self.torn.max(other.torn);
        self.invented = self.invented.max(other.invented);
        for line in other.told {
            if !self.told.contains(&line) {
                self.tell(line);
            }
        }
    }

    fn tell(&mut self, line: String) {
        if self.told.len() < TOLD_MAX {
            self.told.push(line);
        }
    }

    fn lost(&mut self, line: String) {
        self.lost += 1;
        self.tell(format!("lost: {line}"));
    }

    fn torn(&mut self, line: String) {
        self.torn += 1;
        self.tell(format!("torn: {line}"));
    }

    fn invented(&mut self, line: String) {
        self.invented += 1;
        self.tell(format!("invented: {line}"));
    }
}

/// Compares all that was found, and all that should have been.
pub(crate) fn compare(seed: u64, witness: &Witness, found: &HashMap<Key, ReadEpisode>) -> Findings {
    let mut findings = Findings::default();
    let nothing = Seen::default();
    let nowhere = ReadEpisode::default();
    for (key, found) in found {
        let seen = witness.episodes.get(key).unwrap_or(&nothing);
        compare_episode(&mut findings, seed, *key, seen, found);
    }
    for (key, seen) in witness.episodes.iter().filter(|(key, _)| !found.contains_key(key)) {
        compare_episode(&mut findings, seed, *key, seen, &nowhere);
    }
    findings
}

/// Compares while recorders live: those that are gone in full; of the others, that what is there is right.
///
/// What was acknowledged to a live one may lie behind what its log has said to be synced, so it is not missed yet.
pub(crate) fn compare_while_live(
    seed: u64,
    witness: &Witness,
    found: &HashMap<Key, ReadEpisode>,
    is_gone: impl Fn(u32, u32) -> bool,
) -> Findings {
    let (gone, live): (HashMap<_, _>, HashMap<_, _>) = found
        .iter()
        .map(|(key, found)| (*key, found.clone()))
        .partition(|(key, _)| is_gone(key.worker, key.life));
    let mut findings = compare(seed, witness, &gone);
    let anything = Seen { submitted: u64::MAX, end_submitted: true, ..Seen::default() };
    for (key, found) in &live {
        compare_episode(&mut findings, seed, *key, &anything, found);
    }
    findings
}

fn compare_episode(findings: &mut Findings, seed: u64, key: Key, seen: &Seen, found: &ReadEpisode) {
    findings.episodes += 1;
    findings.steps_read += found.steps.len() as u64;
    let acknowledged = seen.acknowledged.len() as u64;
    let mut story = Story::new(seed, key);
    let mut next = 0;
    for &(index, digest) in &found.steps {
        if index >= seen.submitted || index < next {
            findings
                .invented(format!("step {index} of {key:?}, of which {} were handed over", seen.submitted));
            continue;
        }
        // Steps that are missing before one that is there.
        for missing in next..index {
            story.next_step(missing);
            match missing < acknowledged {
                true => findings.lost(format!("step {missing} of {key:?}, though {index} is there")),
                false => findings.torn(format!("step {missing} of {key:?} is missing before {index}")),
            }
        }
        let recorded = story.next_step(index).digest();
        let told = seen.acknowledged.get(index as usize).copied().unwrap_or(recorded);
        if digest != Some(recorded) || told != recorded {
            findings.torn(format!(
                "step {index} of {key:?} is {digest:x?}, was {recorded:x}, acknowledged as {told:x}"
            ));
        }
        next = index + 1;
    }
    for missing in next..acknowledged {
        findings.lost(format!("step {missing} of {key:?}: {acknowledged} acknowledged, {next} there"));
    }
    compare_ending(findings, key, seen, found, &story);
}

fn compare_ending(findings: &mut Findings, key: Key, seen: &Seen, found: &ReadEpisode, story: &Story) {
    match &found.why {
        None if seen.end_acknowledged => findings.lost(format!("the end of {key:?}")),
        // An episode that was left without a word says so itself.
        Some(why) if why == "aborted" && !seen.end_acknowledged => {}
        Some(why) if !seen.end_submitted => findings.invented(format!("an end of {key:?}: {why}")),
        Some(why) if Some(&**why) != story.ending => {
            findings.torn(format!("the end of {key:?}: {why}, was {:?}", story.ending))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 5;

    /// An episode of at least four steps that has an end, with its digests.
    fn some_episode() -> (Key, Vec<u64>, &'static str) {
        let keys = (0..100).map(|number| Key { worker: 0, life: 0, thread: 0, number });
        let fits = |key: &Key| {
            let story = Story::new(SEED, *key);
            story.steps >= 4 && story.ending.is_some()
        };
        let key = keys.into_iter().find(fits).unwrap();
        let mut story = Story::new(SEED, key);
        let digests = (0..4).map(|index| story.next_step(index).digest()).collect();
        (key, digests, story.ending.unwrap())
    }

    fn findings(change: impl FnOnce(&mut Seen, &mut ReadEpisode)) -> (u64, u64, u64) {
        let (key, digests, why) = some_episode();
        let steps = digests.iter().enumerate().map(|(index, digest)| (index as u64, Some(*digest))).collect();
        let mut seen =
            Seen { submitted: 4, acknowledged: digests, end_submitted: true, end_acknowledged: true };
        let mut found = ReadEpisode { steps, why: Some(why.to_owned()) };
        change(&mut seen, &mut found);
        let mut witness = Witness::default();
        witness.episodes.insert(key, seen);
        let found = HashMap::from([(key, found)]);
        let findings = compare(SEED, &witness, &found);
        assert_eq!(findings.told.len() as u64, findings.lost + findings.torn + findings.invented);
        (findings.lost, findings.torn, findings.invented)
    }

    /// The negative controls of the torture: a store that lies in any of these ways must be caught.
    #[test]
    fn every_way_to_break_the_promise_is_found() {
        assert_eq!(findings(|_, _| {}), (0, 0, 0));
        assert_eq!(
            findings(|_, found| _ = found.steps.pop()),
            (1, 0, 0),
            "the last acknowledged step is gone"
        );
        assert_eq!(findings(|_, found| found.steps.clear()), (4, 0, 0), "all are gone");
        assert_eq!(findings(|_, found| _ = found.steps.remove(1)), (1, 0, 0), "one in the middle is gone");
        assert_eq!(findings(|_, found| found.steps[2].1 = Some(1)), (0, 1, 0), "one has other bytes");
        assert_eq!(findings(|_, found| found.steps[2].1 = None), (0, 1, 0), "one is half there");
        assert_eq!(
            findings(|_, found| found.steps.push((4, Some(1)))),
            (0, 0, 1),
            "one was never handed over"
        );
        assert_eq!(findings(|_, found| found.steps.push((3, Some(1)))), (0, 0, 1), "one is there twice");
        assert_eq!(findings(|_, found| found.why = None), (1, 0, 0), "the end is gone");
        assert_eq!(findings(|_, found| found.why = Some("aborted".into())), (0, 1, 0), "the end is another");
        assert_eq!(
            findings(|seen, _| seen.acknowledged[0] = 1),
            (0, 1, 0),
            "the recorder had recorded something else"
        );
        let unasked = |seen: &mut Seen| (seen.end_submitted, seen.end_acknowledged) = (false, false);
        assert_eq!(findings(|seen, _| unasked(seen)), (0, 0, 1), "the end was never handed over");
    }

    /// What was handed over and not acknowledged may be there, whole and in order, or not.
    #[test]
    fn steps_in_flight_may_be_there_or_not() {
        let in_flight = |seen: &mut Seen| seen.acknowledged.truncate(2);
        assert_eq!(findings(|seen, _| in_flight(seen)), (0, 0, 0));
        assert_eq!(
            findings(|seen, found| {
                in_flight(seen);
                found.steps.truncate(3)
            }),
            (0, 0, 0)
        );
        assert_eq!(
            findings(|seen, found| {
                in_flight(seen);
                found.steps.remove(2);
            }),
            (0, 1, 0),
            "a hole"
        );
        assert_eq!(
            findings(|seen, found| {
                in_flight(seen);
                seen.end_acknowledged = false;
                found.why = None
            }),
            (0, 0, 0)
        );
    }
}
