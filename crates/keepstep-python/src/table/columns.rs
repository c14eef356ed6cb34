//! Which columns the tables have, and what is in them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use keepstep::format::step_fields::{self, Holds, StepField};

/// What a table is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Episodes,
    Steps,
    Tokens,
    Notes,
}

/// What is in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// A recorded value as JSON, of any length.
    Json,
    Int,
    Float,
    Truth,
    Time,
    Texts,
    Ints,
    Floats,
    /// Names and numbers.
    Terms,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) form: Form,
}

const fn column(name: &'static str, form: Form) -> Column {
    Column { name, form }
}

const EPISODES: [Column; 18] = [
    column("ref", Form::Text),
    column("id", Form::Text),
    column("run", Form::Text),
    column("task", Form::Text),
    column("iteration", Form::Int),
    column("sample", Form::Int),
    column("attempt", Form::Int),
    column("state", Form::Text),
    column("why", Form::Text),
    column("limit", Form::Text),
    column("error", Form::Text),
    column("said_by", Form::Text),
    column("steps", Form::Int),
    column("reward", Form::Float),
    column("policies", Form::Texts),
    column("first_time", Form::Time),
    column("last_time", Form::Time),
    column("parent", Form::Text),
];

const STEPS: [Column; 23] = [
    column("ref", Form::Text),
    column("task", Form::Text),
    column("iteration", Form::Int),
    column("sample", Form::Int),
    column("attempt", Form::Int),
    column("index", Form::Int),
    column("kind", Form::Text),
    column("time", Form::Time),
    column("observation", Form::Json),
    column("action", Form::Json),
    column("prompt", Form::Json),
    column("response", Form::Json),
    column("info", Form::Json),
    column("state", Form::Json),
    column("value", Form::Json),
    column("reward", Form::Float),
    column("reward_terms", Form::Terms),
    column("discount", Form::Float),
    column("policy", Form::Text),
    column("policy_number", Form::Int),
    column("agent", Form::Text),
    column("error", Form::Text),
    column("damaged", Form::Texts),
];

const TOKENS: [Column; 14] = [
    column("ref", Form::Text),
    column("task", Form::Text),
    column("iteration", Form::Int),
    column("sample", Form::Int),
    column("attempt", Form::Int),
    column("index", Form::Int),
    column("policy", Form::Text),
    column("policy_number", Form::Int),
    column("prompt", Form::Ints),
    column("ids", Form::Ints),
    column("logprobs", Form::Floats),
    column("mask", Form::Floats),
    column("arrays", Form::Json),
    column("damaged", Form::Texts),
];

const NOTES: [Column; 11] = [
    column("ref", Form::Text),
    column("task", Form::Text),
    column("iteration", Form::Int),
    column("sample", Form::Int),
    column("attempt", Form::Int),
    column("step", Form::Int),
    column("name", Form::Text),
    column("source", Form::Text),
    column("time", Form::Time),
    column("counts", Form::Truth),
    column("value", Form::Json),
];

/// The columns of a step, and one for each field that has none yet. Tokens have a table of their own.
fn steps() -> Vec<Column> {
    let is_new = |field: &&StepField| {
        field.holds != Holds::Tokens && STEPS.iter().all(|column| column.name != field.name)
    };
    let new = step_fields::ALL.iter().filter(is_new).map(|field| column(field.name, form_of(field.holds)));
    STEPS.into_iter().chain(new).collect()
}

fn form_of(holds: Holds) -> Form {
    match holds {
        Holds::Any | Holds::Named | Holds::Tokens => Form::Json,
        Holds::Number => Form::Float,
        Holds::Text | Holds::Version => Form::Text,
        Holds::Terms => Form::Terms,
    }
}

impl Of {
    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Episodes, Self::Steps, Self::Tokens, Self::Notes].into_iter().find(|of| of.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Episodes => "episodes",
            Self::Steps => "steps",
            Self::Tokens => "tokens",
            Self::Notes => "notes",
        }
    }

    pub(super) fn columns(self) -> Vec<Column> {
        match self {
            Self::Episodes => EPISODES.to_vec(),
            Self::Steps => steps(),
            Self::Tokens => TOKENS.to_vec(),
            Self::Notes => NOTES.to_vec(),
        }
    }
}

impl Column {
    pub(super) fn field(&self) -> Field {
        Field::new(self.name, self.form.data_type(), true)
    }
}

impl Form {
    pub(super) fn data_type(self) -> DataType {
        let list = |of: DataType| DataType::List(Arc::new(Field::new("item", of, true)));
        match self {
            Self::Text => DataType::Utf8,
            Self::Json => DataType::LargeUtf8,
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Truth => DataType::Boolean,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Texts => list(DataType::Utf8),
            Self::Ints => list(DataType::Int64),
            Self::Floats => list(DataType::Float64),
            Self::Terms => {
                let key = Field::new("key", DataType::Utf8, false);
                let value = Field::new("value", DataType::Float64, true);
                let entry = DataType::Struct(vec![key, value].into());
                DataType::Map(Arc::new(Field::new("entries", entry, false)), false)
            }
        }
    }
}
