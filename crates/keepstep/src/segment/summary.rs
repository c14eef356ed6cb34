//! What a list of episodes shows of an attempt, gathered from its records.
//!
//! A convenience: the records are the truth. The count of steps goes on from segment to segment; rewards and times are
//! those of one segment, so that the summaries of all segments add up.

use keepstep_format::Id;
use keepstep_format::fields;
use keepstep_format::frame::Kind;
use keepstep_format::value::Value;

use super::cards::{Fields, as_id};

/// What is known of an attempt without reading its records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The name of its run.
    pub run: Option<String>,
    /// The birth of its run.
    pub birth: Option<Id>,
    /// The task.
    pub task: Option<String>,
    /// The iteration.
    pub iteration: Option<i64>,
    /// The sample.
    pub sample: Option<i64>,
    /// How it ended, if somebody said so.
    pub why: Option<String>,
    /// Steps that were completed so far, the first observation counted.
    pub steps: u64,
    /// The sum of rewards; none if there was none.
    pub total_reward: Option<f64>,
    /// The time of its first record.
    pub first_time: Option<i64>,
    /// The time of its newest record.
    pub last_time: Option<i64>,
}

impl Summary {
    /// From the fields of a footer's entry.
    pub fn from_fields(found: &Fields) -> Self {
        let text = |number| found.text(number).map(str::to_owned);
        let int = |number| found.get(number).and_then(Value::as_int);
        Self {
            run: text(fields::RUN),
            birth: found.id(fields::BIRTH),
            task: text(fields::TASK),
            iteration: int(fields::ITERATION),
            sample: int(fields::SAMPLE),
            why: text(fields::WHY),
            steps: found.number(fields::STEPS).unwrap_or(0),
            total_reward: found.get(fields::RETURN).and_then(Value::as_float),
            first_time: int(fields::FIRST_TIME),
            last_time: int(fields::LAST_TIME),
        }
    }

    /// The fields of a footer's entry.
    pub fn to_fields(&self) -> Vec<(u8, Value)> {
        let mut out = Vec::new();
        let mut put = |number: u8, value: Option<Value>| out.extend(value.map(|value| (number, value)));
        put(fields::RUN, self.run.as_deref().map(Value::from));
        put(fields::BIRTH, self.birth.map(|birth| Value::bytes(birth.0)));
        put(fields::TASK, self.task.as_deref().map(Value::from));
        put(fields::ITERATION, self.iteration.map(Value::Int));
        put(fields::SAMPLE, self.sample.map(Value::Int));
        put(fields::WHY, self.why.as_deref().map(Value::from));
        put(fields::STEPS, i64::try_from(self.steps).ok().map(Value::Int));
        put(fields::RETURN, self.total_reward.map(Value::Float));
        put(fields::FIRST_TIME, self.first_time.map(Value::Int));
        put(fields::LAST_TIME, self.last_time.map(Value::Int));
        out
    }

    /// True for records that say something that is shown.
    pub fn counts(kind: u8) -> bool {
        const KINDS: [Kind; 7] =
            [Kind::Begin, Kind::First, Kind::Step, Kind::Intent, Kind::Result, Kind::End, Kind::Item];
        KINDS.iter().any(|&it| it as u8 == kind)
    }

    /// Adds the next record.
    pub fn add(&mut self, kind: u8, record: Vec<(u8, Value)>) {
        let is = |it: Kind| kind == it as u8;
        let completes_a_step = is(Kind::First) || is(Kind::Step) || is(Kind::Result) || is(Kind::Item);
        for (number, value) in record {
            match number {
                fields::TIME => {
                    let time = value.as_int();
                    self.first_time = self.first_time.or(time);
                    self.last_time = time.or(self.last_time);
                }
                fields::INDEX if completes_a_step => {
                    let index = value.as_int().and_then(|index| u64::try_from(index).ok());
                    self.steps = self.steps.max(index.map_or(0, |index| index.saturating_add(1)));
                }
                fields::REWARD if completes_a_step => {
                    if let Some(reward) = value.as_float() {
                        *self.total_reward.get_or_insert(0.0) += reward;
                    }
                }
                fields::WHY if is(Kind::End) => self.why = value.as_str().map(str::to_owned),
                _ if is(Kind::Begin) => self.name(number, &value),
                _ => {}
            }
        }
    }

    fn name(&mut self, number: u8, value: &Value) {
        match number {
            fields::RUN => self.run = value.as_str().map(str::to_owned),
            fields::BIRTH => self.birth = as_id(value),
            fields::TASK => self.task = value.as_str().map(str::to_owned),
            fields::ITERATION => self.iteration = value.as_int(),
            fields::SAMPLE => self.sample = value.as_int(),
            _ => {}
        }
    }

    /// Adds what a later segment knows.
    pub fn merge(&mut self, later: &Summary) {
        self.run = self.run.take().or_else(|| later.run.clone());
        self.birth = self.birth.or(later.birth);
        self.task = self.task.take().or_else(|| later.task.clone());
        self.iteration = self.iteration.or(later.iteration);
        self.sample = self.sample.or(later.sample);
        self.why = later.why.clone().or_else(|| self.why.take());
        self.steps = self.steps.max(later.steps);
        self.total_reward = match (self.total_reward, later.total_reward) {
            (Some(before), Some(more)) => Some(before + more),
            (before, more) => before.or(more),
        };
        self.first_time = self.first_time.or(later.first_time);
        self.last_time = later.last_time.or(self.last_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a footer keeps of a summary is all of it.
    #[test]
    fn a_summary_comes_back() {
        let mut summary = Summary::default();
        assert_eq!(Summary::from_fields(&Fields(summary.to_fields())), summary);
        summary.add(
            Kind::Begin as u8,
            vec![
                (fields::TIME, Value::Int(7)),
                (fields::RUN, "shop".into()),
                (fields::BIRTH, Value::bytes([1; 16])),
                (fields::TASK, "t".into()),
                (fields::ITERATION, Value::Int(2)),
                (fields::SAMPLE, Value::Int(-1)),
            ],
        );
        summary
            .add(Kind::Step as u8, vec![(fields::INDEX, Value::Int(4)), (fields::REWARD, Value::Float(0.5))]);
        summary.add(Kind::End as u8, vec![(fields::TIME, Value::Int(9)), (fields::WHY, "finished".into())]);
        assert_eq!(Summary::from_fields(&Fields(summary.to_fields())), summary);
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
}
