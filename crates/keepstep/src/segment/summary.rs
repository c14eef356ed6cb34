//! The summary of an attempt, for lists: made from its records.
//!
//! The records are the truth; a summary is a convenience. There is one rule to make it, for the writer that records,
//! for scans, for `compact`, and for readers. The count of steps continues from segment to segment; rewards and times
//! are those of one segment, so that the summaries of all segments add up.

use keepstep_format::Id;
use keepstep_format::commit::What;
use keepstep_format::encode::{Encoder, NothingKnown};
use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::hash::ContentKey;
use keepstep_format::value::Value;

use super::cards::{Fields, as_id, decode_fields};

/// The rule by which summaries are made here. A summary that does not name it is from 0.1, which had several rules:
/// its writer recorded a return of 0.0 if no reward was given, and its scans skipped long names and the times of
/// notes.
const RULE: i64 = 1;

/// Marks an end whose reason cannot be read any more. No attempt ends with this reason.
pub(crate) const WHY_IS_LOST: &str = "unknown";

/// What is known of an attempt without reading its records.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The name of its run.
    pub run: Option<String>,
    /// The id of its run's generation.
    pub generation_id: Option<Id>,
    /// The task.
    pub task: Option<String>,
    /// The iteration.
    pub iteration: Option<i64>,
    /// The sample.
    pub sample: Option<i64>,
    /// How it ended, if it has an end.
    pub why: Option<String>,
    /// How many steps were completed so far, FIRST included.
    pub steps: u64,
    /// The sum of rewards; `None` if there is no reward.
    pub total_reward: Option<f64>,
    /// What rounding took away from that sum. With it, sums of parts add up to the sum of the whole, wherever the
    /// attempt was interrupted or its log was cut into segments.
    pub(crate) reward_rest: f64,
    /// The time of its first record.
    pub first_time: Option<i64>,
    /// The time of its newest record.
    pub last_time: Option<i64>,
}

/// What one record adds to the summary of its attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SummaryPart {
    /// When it was recorded.
    pub time: Option<i64>,
    /// The index of the step that it completes.
    pub step: Option<u64>,
    /// The reward of that step.
    pub reward: Option<f64>,
    /// Why the attempt ended, if it is an END.
    pub why: Option<Box<str>>,
    /// The name of the attempt, if it is a BEGIN.
    pub name: Option<Box<Summary>>,
}

/// A summary as it was stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stored {
    /// What it says.
    pub summary: Summary,
    /// True if it was made by the rule above. Summaries of 0.1 may have to be made again from the records.
    pub is_by_rule: bool,
}

/// True for the records of a turn or a list that complete a step.
pub(crate) fn completes_a_step(kind: u8) -> bool {
    Kind::from_u8(kind).is_some_and(Kind::completes_a_step)
}

/// True for subjects that have a summary: an attempt, and a copy of one.
pub(crate) fn has_summary(what: What) -> bool {
    matches!(what, What::Attempt | What::Copied { .. })
}

impl SummaryPart {
    /// What a record of this kind adds, by its fields.
    pub(crate) fn of<'v>(kind: u8, record: impl IntoIterator<Item = &'v (u8, Value)>) -> Self {
        let mut said = Self::default();
        record.into_iter().for_each(|(number, value)| said.field(kind, *number, value));
        said
    }

    /// Adds one field of a record of this kind.
    pub(crate) fn field(&mut self, kind: u8, number: u8, value: &Value) {
        let is = |it: Kind| kind == it as u8;
        match number {
            fields::TIME => self.time = value.as_int(),
            fields::INDEX if completes_a_step(kind) => {
                self.step = value.as_int().and_then(|index| u64::try_from(index).ok());
            }
            fields::REWARD if completes_a_step(kind) => self.reward = value.as_float(),
            fields::WHY if is(Kind::End) => self.why = value.as_str().map(Box::from),
            fields::RUN | fields::GENERATION_ID | fields::TASK | fields::ITERATION | fields::SAMPLE
                if is(Kind::Begin) =>
            {
                self.name.get_or_insert_default().name(number, value);
            }
            _ => {}
        }
    }

    /// True for kinds that add more than their time. Of the others, only the first and the last of an attempt matter.
    pub(crate) fn is_more_than_a_time(kind: u8) -> bool {
        completes_a_step(kind) || Self::has_text(kind)
    }

    /// True for kinds whose summary has a text: it may be long, and then be stored elsewhere in the log.
    pub(crate) fn has_text(kind: u8) -> bool {
        kind == Kind::Begin as u8 || kind == Kind::End as u8
    }
}

impl Stored {
    /// Reads what [`Summary::encode`] wrote, now or in 0.1. `None` if the bytes are not a summary, or if there are
    /// none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let found = decode_fields(bytes).filter(|_| !bytes.is_empty())?;
        let is_by_rule = found.get(fields::SUMMARY_RULE).and_then(Value::as_int) == Some(RULE);
        Some(Self { summary: Summary::from_fields(&found), is_by_rule })
    }
}

impl Summary {
    /// From the fields of a footer's entry.
    fn from_fields(found: &Fields) -> Self {
        let text = |number| found.text(number).map(str::to_owned);
        let int = |number| found.get(number).and_then(Value::as_int);
        Self {
            run: text(fields::RUN),
            generation_id: found.id(fields::GENERATION_ID),
            task: text(fields::TASK),
            iteration: int(fields::ITERATION),
            sample: int(fields::SAMPLE),
            why: text(fields::WHY),
            steps: found.number(fields::STEPS).unwrap_or(0),
            total_reward: found.get(fields::RETURN).and_then(Value::as_float),
            reward_rest: found.get(fields::RETURN_REST).and_then(Value::as_float).unwrap_or(0.0),
            first_time: int(fields::FIRST_TIME),
            last_time: int(fields::LAST_TIME),
        }
    }

    /// The fields of a footer's entry.
    pub(crate) fn to_fields(&self) -> Vec<(u8, Value)> {
        let mut out = Vec::new();
        let mut put = |number: u8, value: Option<Value>| out.extend(value.map(|value| (number, value)));
        put(fields::RUN, self.run.as_deref().map(Value::from));
        put(fields::GENERATION_ID, self.generation_id.map(|generation_id| Value::bytes(generation_id.0)));
        put(fields::TASK, self.task.as_deref().map(Value::from));
        put(fields::ITERATION, self.iteration.map(Value::Int));
        put(fields::SAMPLE, self.sample.map(Value::Int));
        put(fields::WHY, self.why.as_deref().map(Value::from));
        put(fields::STEPS, i64::try_from(self.steps).ok().map(Value::Int));
        put(fields::RETURN, self.total_reward.map(Value::Float));
        put(fields::FIRST_TIME, self.first_time.map(Value::Int));
        put(fields::LAST_TIME, self.last_time.map(Value::Int));
        put(fields::SUMMARY_RULE, Some(Value::Int(RULE)));
        put(fields::RETURN_REST, (self.reward_rest != 0.0).then_some(Value::Float(self.reward_rest)));
        out
    }

    /// The bytes in a footer.
    pub(crate) fn encode(&self, key: &ContentKey) -> Vec<u8> {
        let mut encoder = Encoder::fields(key, &NothingKnown);
        for (number, value) in self.to_fields() {
            encoder.field(number);
            // No value here is nested or lost.
            let _ = encoder.put(&value);
        }
        encoder.finish().body
    }

    /// Adds the next record.
    pub(crate) fn add(&mut self, said: &SummaryPart) {
        self.first_time = self.first_time.or(said.time);
        self.last_time = said.time.or(self.last_time);
        self.steps = self.steps.max(said.step.map_or(0, |index| index.saturating_add(1)));
        self.add_reward(said.reward, 0.0);
        if let Some(why) = &said.why {
            self.why = Some(why.to_string());
        }
        if let Some(name) = &said.name {
            self.add_name(name);
        }
    }

    fn name(&mut self, number: u8, value: &Value) {
        match number {
            fields::RUN => self.run = value.as_str().map(str::to_owned),
            fields::GENERATION_ID => self.generation_id = as_id(value),
            fields::TASK => self.task = value.as_str().map(str::to_owned),
            fields::ITERATION => self.iteration = value.as_int(),
            fields::SAMPLE => self.sample = value.as_int(),
            _ => {}
        }
    }

    fn add_name(&mut self, name: &Summary) {
        self.run = self.run.take().or_else(|| name.run.clone());
        self.generation_id = self.generation_id.or(name.generation_id);
        self.task = self.task.take().or_else(|| name.task.clone());
        self.iteration = self.iteration.or(name.iteration);
        self.sample = self.sample.or(name.sample);
    }

    /// Adds a reward, or the rewards of a later part with what rounding took away there. No reward is not the same
    /// as 0.
    pub(crate) fn add_reward(&mut self, more: Option<f64>, rest: f64) {
        let Some(more) = more else { return };
        // A sum begins with 0.0, which removes the sign of a single -0.0.
        let (sum, lost) = exact_sum(self.total_reward.unwrap_or(0.0), more);
        let lost = lost + self.reward_rest + rest;
        // Of numbers that are none, or too large, there is no rest.
        (self.total_reward, self.reward_rest) = match sum.is_finite() && lost.is_finite() {
            true => {
                let (sum, lost) = exact_sum(sum, lost);
                (Some(sum), lost)
            }
            false => (Some(sum), 0.0),
        };
    }

    /// Puts the rewards of an earlier part before its own.
    pub(crate) fn add_earlier_rewards(&mut self, earlier: &Summary) {
        let (own, rest) = (self.total_reward, self.reward_rest);
        (self.total_reward, self.reward_rest) = (earlier.total_reward, earlier.reward_rest);
        self.add_reward(own, rest);
    }

    /// Says that the sum of rewards is unknown.
    pub(crate) fn lose_rewards(&mut self) {
        (self.total_reward, self.reward_rest) = (None, 0.0);
    }

    /// Adds the summary of a later segment.
    pub(crate) fn merge(&mut self, later: &Summary) {
        self.add_name(later);
        self.why = later.why.clone().or_else(|| self.why.take());
        self.steps = self.steps.max(later.steps);
        self.add_reward(later.total_reward, later.reward_rest);
        self.first_time = self.first_time.or(later.first_time);
        self.last_time = later.last_time.or(self.last_time);
    }
}

/// A sum, and what rounding took away from it: together they are exact.
fn exact_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    /// What a footer keeps of a summary is all of it.
    #[test]
    fn a_summary_comes_back() {
        let key = ContentKey::new(&[7; 16]);
        let read = |summary: &Summary| Stored::decode(&summary.encode(&key)).expect("decodes");
        let mut summary = Summary::default();
        assert_eq!(read(&summary), Stored { summary: summary.clone(), is_by_rule: true });
        let mut add =
            |kind: Kind, record: Vec<(u8, Value)>| summary.add(&SummaryPart::of(kind as u8, &record));
        add(
            Kind::Begin,
            vec![
                (fields::TIME, Value::Int(7)),
                (fields::RUN, "shop".into()),
                (fields::GENERATION_ID, Value::bytes([1; 16])),
                (fields::TASK, "t".into()),
                (fields::ITERATION, Value::Int(2)),
                (fields::SAMPLE, Value::Int(-1)),
            ],
        );
        add(Kind::Step, vec![(fields::INDEX, Value::Int(4)), (fields::REWARD, Value::Float(0.5))]);
        add(Kind::End, vec![(fields::TIME, Value::Int(9)), (fields::WHY, "finished".into())]);
        assert_eq!(read(&summary).summary, summary);
        assert_eq!((summary.steps, summary.total_reward, summary.last_time), (5, Some(0.5), Some(9)));
    }

    /// An attempt in two segments has the steps of the later one and the rewards of both.
    #[test]
    fn summaries_of_segments_add_up() {
        let part = |steps, reward, time| Summary {
            steps,
            total_reward: reward,
            first_time: Some(time),
            last_time: Some(time + 1),
            ..Summary::default()
        };
        let mut whole = part(3, Some(1.0), 10);
        whole.merge(&part(7, Some(0.5), 20));
        whole.merge(&part(8, None, 30));
        assert_eq!((whole.steps, whole.total_reward), (8, Some(1.5)));
        assert_eq!((whole.first_time, whole.last_time), (Some(10), Some(31)));
    }

    /// Ten steps of 0.1 are 1.0, wherever they are cut into parts, and whatever is kept in a footer in between. (In one
    /// piece they were 0.9999999999999999.) NaN, infinities and sums that are too large stay what they are.
    #[test]
    fn a_sum_does_not_depend_on_its_parts() {
        let key = ContentKey::new(&[7; 16]);
        let stored = |part: &Summary| Stored::decode(&part.encode(&key)).expect("decodes").summary;
        let mut chance = 1u64;
        for round in 0..500u64 {
            let count = 2 + round % 40;
            let rewards: Vec<f64> = (0..count)
                .map(|_| {
                    chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if round == 0 { 0.1 } else { ((chance >> 40) as f64 - 8e6) * 1e-3 }
                })
                .collect();
            let sum = |parts: &[&[f64]]| {
                let mut whole = Summary::default();
                for part in parts {
                    let mut own = Summary::default();
                    part.iter().for_each(|reward| own.add_reward(Some(*reward), 0.0));
                    whole.merge(&stored(&own));
                }
                whole.total_reward.map(f64::to_bits)
            };
            let whole = sum(&[&rewards]);
            for cut in 0..rewards.len() {
                let (before, behind) = rewards.split_at(cut);
                let (middle, last) = behind.split_at(behind.len() / 2);
                assert_eq!(sum(&[before, middle, last]), whole, "{rewards:?} cut at {cut}");
            }
        }
        let sum = |rewards: &[f64]| {
            let mut sum = Summary::default();
            rewards.iter().for_each(|reward| sum.add_reward(Some(*reward), 0.0));
            sum.total_reward
        };
        assert_eq!(sum(&[0.1; 10]), Some(1.0));
        assert_eq!(sum(&[f64::MAX, f64::MAX, 1.0]), Some(f64::INFINITY));
        assert_eq!(sum(&[f64::NEG_INFINITY, 0.5]), Some(f64::NEG_INFINITY));
        assert!(sum(&[f64::NAN, 1.0]).is_some_and(f64::is_nan));
        assert_eq!(sum(&[-0.0]).map(f64::to_bits), Some(0.0f64.to_bits()));
    }

    /// Only a record that completes a step gives a reward, and a step without one gives none.
    #[test]
    fn no_reward_is_not_zero() {
        let said = |kind: Kind, reward: Value| {
            SummaryPart::of(kind as u8, &[(fields::INDEX, Value::Int(0)), (fields::REWARD, reward)]).reward
        };
        assert_eq!(said(Kind::Step, Value::Null), None);
        assert_eq!(said(Kind::Intent, Value::Float(1.0)), None);
        assert_eq!(said(Kind::Result, Value::Float(-0.0)), Some(-0.0));
        let mut summary = Summary::default();
        summary.add(&SummaryPart { step: Some(0), ..SummaryPart::default() });
        assert_eq!(summary.total_reward, None);
        summary.add_reward(Some(f64::NAN), 0.0);
        assert!(summary.total_reward.is_some_and(f64::is_nan));
    }
}
