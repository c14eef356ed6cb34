//! What torture records: episodes whose every byte follows from the seed and their name.
//!
//! They are made to meet the parts of the engine that could go wrong: prompts that repeat a growing history, texts that
//! many episodes share, arrays with NaN, steps of several frames.

use std::sync::Arc;

use keepstep::{EpisodeName, Step, Tokens, Value};
use keepstep_format::fields;
use keepstep_format::value::{Array, Dtype};

use super::digest::Digest;
use crate::chance::Chance;

/// Names an episode: which process, which life of it, which thread, and how many that thread had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) worker: u32,
    pub(crate) life: u32,
    pub(crate) thread: u32,
    pub(crate) number: u32,
}

impl Key {
    /// Its name in the store.
    pub(crate) fn name(self) -> EpisodeName {
        EpisodeName::task(format!("w{}-l{}", self.worker, self.life))
            .iteration(i64::from(self.number))
            .sample(i64::from(self.thread))
    }

    /// The key of such a name.
    pub(crate) fn from_name(task: &str, iteration: i64, sample: i64) -> Option<Self> {
        let (worker, life) = task.strip_prefix('w')?.split_once("-l")?;
        let worker = worker.parse().ok()?;
        let life = life.parse().ok()?;
        Some(Self { worker, life, thread: sample.try_into().ok()?, number: iteration.try_into().ok()? })
    }

    fn seeds(self, seed: u64) -> [u64; 5] {
        [seed, self.worker.into(), self.life.into(), self.thread.into(), self.number.into()]
    }
}

/// How the steps of an episode are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// One by one, each durable before the next.
    Step,
    /// So many in flight at once.
    Submit(usize),
    /// At `kill`; raised to the store's level at the end.
    Kill,
}

/// One episode, made of its key.
pub(crate) struct Story {
    seed: u64,
    key: Key,
    pub(crate) manner: Manner,
    pub(crate) steps: u64,
    /// Whether index 0 is a first observation, as an environment gives it on reset.
    pub(crate) has_first: bool,
    /// None for an episode that is left open.
    pub(crate) ending: Option<&'static str>,
    messages: Vec<Value>,
}

impl Story {
    pub(crate) fn new(seed: u64, key: Key) -> Self {
        let mut chance = Chance::new(&key.seeds(seed));
        let manner = match chance.below(4) {
            0 => Manner::Submit(2 + chance.below(6) as usize),
            1 => Manner::Kill,
            _ => Manner::Step,
        };
        // Most are short, so that a life sees whole ones; a few are long, so that histories outlive segments.
        let steps = if chance.one_in(8) { 20 + chance.below(60) } else { 1 + chance.below(16) };
        let has_first = chance.one_in(2);
        let ending = [Some("finished"), Some("truncated"), Some("finished"), None][chance.below(4) as usize];
        let system = text(&mut Chance::new(&[seed, 1]), 3000);
        let task = text(&mut Chance::new(&[seed, 2, key.number.into()]), 1200);
        let messages = vec![message("system", Value::from(system)), message("user", Value::from(task))];
        Self { seed, key, manner, steps, has_first, ending, messages }
    }

    /// The next step. They must be taken one after the other: each prompt is the one before, and more.
    pub(crate) fn next_step(&mut self, index: u64) -> Content {
        let mut seeds = self.key.seeds(self.seed).to_vec();
        seeds.push(index + 1000);
        let mut chance = Chance::new(&seeds);
        let observation = observation(&mut chance, self.seed);
        if index == 0 && self.has_first {
            self.messages.push(message("user", observation.clone()));
            return Content { fields: vec![(fields::OBSERVATION, observation)] };
        }
        let prompt = Value::list(self.messages.iter().cloned());
        let length = 20 + chance.below(1500) as usize;
        let response = Value::from(text(&mut chance, length));
        self.messages.push(message("assistant", response.clone()));
        self.messages.push(message("user", observation.clone()));
        let reward = match chance.below(8) {
            0 => Value::Null,
            1 => Value::Float(f64::NAN),
            _ => Value::Float(chance.below(1000) as f64 / 8.0 - 20.0),
        };
        let count = chance.below(400);
        let tokens = [("ids", ids(&mut chance, count)), ("logprobs", logprobs(&mut chance, count))];
        Content {
            fields: vec![
                (fields::OBSERVATION, observation),
                (fields::REWARD, reward),
                (fields::PROMPT, prompt),
                (fields::RESPONSE, response),
                (fields::TOKENS, Value::map(tokens)),
            ],
        }
    }
}

fn observation(chance: &mut Chance, seed: u64) -> Value {
    let frames = (1 << 20) + chance.below(2 << 20) as usize;
    match chance.below(400) {
        // Several frames long: once of noise, once of something that compresses well.
        0 => Value::bytes(chance.bytes(frames)),
        1 => Value::from(text(chance, frames)),
        // What many episodes see, word for word.
        2..=60 => Value::from(text(&mut Chance::new(&[seed, 3, chance.below(12)]), 6000)),
        61..=90 => Value::Null,
        _ => {
            let length = chance.below(3000) as usize;
            Value::from(text(chance, length))
        }
    }
}

/// One step: its fields, in the order of their numbers.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    fields: Vec<(u8, Value)>,
}

impl Content {
    /// The step to be recorded.
    pub(crate) fn step(&self) -> Step {
        self.fields.iter().fold(Step::new(), |step, (number, value)| {
            let value = value.clone();
            match *number {
                fields::OBSERVATION => step.observation(value),
                fields::REWARD => step.reward(value.as_float()),
                fields::PROMPT => step.prompt(value),
                fields::RESPONSE => step.response(value),
                fields::TOKENS => {
                    let mut tokens = Tokens::default();
                    tokens.ids = value.get("ids").cloned();
                    tokens.logprobs = value.get("logprobs").cloned();
                    step.tokens(tokens)
                }
                _ => step,
            }
        })
    }

    /// What is in it, in the order of the numbers.
    pub(crate) fn fields(&self) -> &[(u8, Value)] {
        &self.fields
    }

    /// What the witness is told of it.
    pub(crate) fn digest(&self) -> u64 {
        digest_of_read(&self.fields)
    }
}

/// The digest of a step as it was read back; what the store adds by itself is not part of it.
pub(crate) fn digest_of_read(read: &[(u8, Value)]) -> u64 {
    let by_store = [fields::TIME, fields::INDEX, fields::STEP_KIND];
    Digest::of_fields(
        read.iter().filter(|(number, _)| !by_store.contains(number)).map(|(number, value)| (*number, value)),
    )
}

fn message(role: &str, content: Value) -> Value {
    Value::map([("role", Value::from(role)), ("content", content)])
}

/// Words, about so many bytes of them.
fn text(chance: &mut Chance, bytes: usize) -> String {
    const WORDS: [&str; 24] = [
        "click", "the", "cart", "[12]", "page", "price", "$4.99", "search", "button", "Käse", "add", "to",
        "checkout", "scroll", "{\"id\":", "}", "\n", "think", "result", "of", "item", "日本", "next", "stop",
    ];
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        let random = chance.next();
        out.push_str(WORDS[(random % 24) as usize]);
        out.push(' ');
        // Now and then something that no dictionary has seen.
        if random >> 60 == 0 {
            out.push_str(&(random >> 20).to_string());
        }
    }
    out
}

fn ids(chance: &mut Chance, count: u64) -> Value {
    let data = (0..count).flat_map(|_| (chance.below(128_000) as u32).to_le_bytes()).collect();
    array(Dtype::U32, count, data)
}

fn logprobs(chance: &mut Chance, count: u64) -> Value {
    let mut one = || match chance.below(64) {
        0 => f32::NAN,
        1 => f32::NEG_INFINITY,
        _ => -(chance.below(4096) as f32) / 512.0,
    };
    let data = (0..count).flat_map(|_| one().to_le_bytes()).collect();
    array(Dtype::F32, count, data)
}

fn array(dtype: Dtype, count: u64, data: Vec<u8>) -> Value {
    // The data was made for this shape.
    Array::new(dtype, vec![count], data).map_or(Value::Null, |array| Value::Array(Arc::new(array)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { worker: 3, life: 12, thread: 1, number: 4 };

    /// The comparison makes every step anew: it must be the same to the last bit, in another process too.
    #[test]
    fn an_episode_follows_from_its_key() {
        let digests = |seed| {
            let mut story = Story::new(seed, KEY);
            (0..10).map(|index| story.next_step(index).digest()).collect::<Vec<u64>>()
        };
        assert_eq!(digests(7), digests(7));
        assert_ne!(digests(7), digests(8));
        let distinct: std::collections::HashSet<u64> = digests(7).into_iter().collect();
        assert_eq!(distinct.len(), 10);
    }

    #[test]
    fn a_key_is_found_again_in_its_name() {
        let name = KEY.name();
        assert_eq!(Key::from_name(&name.task, name.iteration, name.sample), Some(KEY));
        assert_eq!(Key::from_name("shop", 0, 0), None);
        assert_eq!(Key::from_name(&name.task, -1, 0), None);
    }
}
