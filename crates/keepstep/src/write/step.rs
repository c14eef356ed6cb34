//! What a step says: any of its fields, each at most once.

use keepstep_format::fields;
use keepstep_format::value::Value;

use crate::error::{Error, Result};

/// A step in the making. Fields that are not given are not recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    pub(super) fields: Vec<(u8, Value)>,
}

/// The tokens of a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tokens {
    /// Ids of the prompt.
    pub prompt: Option<Value>,
    /// Ids of what was generated.
    pub ids: Option<Value>,
    /// Their log-probabilities.
    pub logprobs: Option<Value>,
    /// Which of them count.
    pub mask: Option<Value>,
    /// Other arrays, by name.
    pub arrays: Vec<(String, Value)>,
}

impl Step {
    /// A step that says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(mut self, number: u8, value: Value) -> Self {
        self.set(number, value);
        self
    }

    pub(super) fn set(&mut self, number: u8, value: Value) {
        match self.fields.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.fields[at].1 = value,
            Err(at) => self.fields.insert(at, (number, value)),
        }
    }

    pub(crate) fn get(&self, number: u8) -> Option<&Value> {
        let at = self.fields.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.fields[at].1)
    }

    /// What the environment showed.
    pub fn observation(self, value: impl Into<Value>) -> Self {
        self.with(fields::OBSERVATION, value.into())
    }

    /// What was done.
    pub fn action(self, value: impl Into<Value>) -> Self {
        self.with(fields::ACTION, value.into())
    }

    /// The reward, if there is one.
    pub fn reward(self, reward: impl Into<Option<f64>>) -> Self {
        let value = reward.into().map_or(Value::Null, Value::Float);
        self.with(fields::REWARD, value)
    }

    /// What the reward is made of.
    pub fn reward_terms<K: Into<String>>(self, terms: impl IntoIterator<Item = (K, f64)>) -> Self {
        let terms = terms.into_iter().map(|(name, term)| (Value::from(name.into()), Value::Float(term)));
        self.with(fields::REWARD_TERMS, Value::map(terms))
    }

    /// The discount, if there is one.
    pub fn discount(self, discount: impl Into<Option<f64>>) -> Self {
        let value = discount.into().map_or(Value::Null, Value::Float);
        self.with(fields::DISCOUNT, value)
    }

    /// What the policy was asked.
    pub fn prompt(self, value: impl Into<Value>) -> Self {
        self.with(fields::PROMPT, value.into())
    }

    /// What it answered.
    pub fn response(self, value: impl Into<Value>) -> Self {
        self.with(fields::RESPONSE, value.into())
    }

    /// Its tokens.
    pub fn tokens(self, tokens: Tokens) -> Self {
        let mut map = Vec::new();
        let mut add =
            |name: &str, value: Option<Value>| map.extend(value.map(|value| (name.to_owned(), value)));
        add("prompt", tokens.prompt);
        add("ids", tokens.ids);
        add("logprobs", tokens.logprobs);
        add("mask", tokens.mask);
        if !tokens.arrays.is_empty() {
            add("arrays", Some(Value::map(tokens.arrays)));
        }
        self.with(fields::TOKENS, Value::map(map))
    }

    /// The version of the policy: a number or a name.
    pub fn policy(self, value: impl Into<Value>) -> Self {
        self.with(fields::POLICY, value.into())
    }

    /// Who acted.
    pub fn agent(self, name: impl Into<String>) -> Self {
        self.with(fields::AGENT, Value::from(name.into()))
    }

    /// Anything else.
    pub fn info(self, value: impl Into<Value>) -> Self {
        self.with(fields::INFO, value.into())
    }

    /// Named values as of this step, to go on from.
    pub fn state<K: Into<String>>(self, state: impl IntoIterator<Item = (K, Value)>) -> Self {
        let state = state.into_iter().map(|(name, value)| (Value::from(name.into()), value));
        self.with(fields::STATE, Value::map(state))
    }

    /// What went wrong, instead of a result: its type, message and traceback.
    pub fn error(self, error: impl Into<Value>) -> Self {
        self.with(fields::ERROR, error.into())
    }

    /// What it says so far, by the numbers of the fields.
    pub fn fields(&self) -> &[(u8, Value)] {
        &self.fields
    }

    /// Finds what cannot be right, before anything is recorded.
    pub(super) fn check(&self) -> Result<()> {
        for (number, value) in &self.fields {
            let is_number = matches!(value.plain(), Value::Float(_) | Value::Null);
            if matches!(*number, fields::REWARD | fields::DISCOUNT) && !is_number {
                return Err(bad(*number, value, "give a float, or nothing"));
            }
            if *number == fields::POLICY && value.as_int().is_none() && value.as_str().is_none() {
                return Err(bad(*number, value, "give an integer or a text"));
            }
        }
        Ok(())
    }
}

fn bad(number: u8, value: &Value, fix: &str) -> Error {
    Error::BadInput {
        field: fields::name(number).unwrap_or("field").to_owned(),
        value: format!("cannot be {value:?}"),
        fix: fix.to_owned(),
    }
}
