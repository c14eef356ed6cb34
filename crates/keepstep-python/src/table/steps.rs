//! What a step says in each column.

use keepstep::format::fields;
use keepstep::format::step_fields::{self, Holds, Part, StepField};
use keepstep::read::{Held, RecordedStep};
use keepstep::{Listed, Value};

use super::cells::{Builder, Cell};
use super::columns::{Column, Form, Of};
use super::says::{error_text, name_cell, policy_text, terms};
use super::tokens;

/// What a column has of a step: looked up once, not for each row.
#[derive(Debug, Clone, Copy)]
enum Says {
    Ref,
    /// What the name of the episode says.
    Name(&'static str),
    Index,
    Kind,
    Time,
    PolicyNumber,
    Damaged,
    /// A list of its tokens.
    List(&'static str),
    /// The other arrays of its tokens.
    Arrays,
    Field(&'static StepField),
}

/// What the columns of a table have of a step.
#[derive(Debug)]
pub(super) struct StepColumns {
    says: Vec<Says>,
    /// The fields that must be read for it.
    pub(super) fields: Vec<u8>,
    only_with_tokens: bool,
}

/// An episode whose steps are rows.
pub(super) struct Rowed<'e> {
    pub(super) listed: &'e Listed,
    pub(super) reference: &'e str,
}

impl StepColumns {
    pub(super) fn new(of: Of, columns: &[Column]) -> Self {
        let says: Vec<Says> = columns.iter().map(Says::of).collect();
        let only_with_tokens = of == Of::Tokens;
        let mut fields: Vec<u8> = says.iter().flat_map(|it| it.fields()).collect();
        fields.extend(only_with_tokens.then_some(fields::TOKENS));
        Self { says, fields, only_with_tokens }
    }

    /// True if a step is a row of the table.
    pub(super) fn wants(&self, step: &RecordedStep) -> bool {
        !self.only_with_tokens || step.tokens.is_some() || step.damaged.contains(&"tokens")
    }

    /// Adds to a column, by its number, what a step says there. How many bytes that takes.
    pub(super) fn fill(&self, at: usize, into: &mut Builder, of: &Rowed<'_>, step: &RecordedStep) -> usize {
        let tokens = step.tokens.as_ref();
        match self.says[at] {
            Says::Ref => into.text(Some(of.reference)),
            Says::Name("task") => into.text(of.listed.summary.task.as_deref()),
            Says::Name(name) => into.push(name_cell(name, of.listed)),
            Says::Index => into.int(Some(step.index)),
            Says::Kind => into.text(Some(step.kind.name())),
            Says::Time => into.int(step.time),
            Says::PolicyNumber => into.int(step.policy.as_ref().and_then(Value::as_int)),
            Says::Damaged => into.names(&step.damaged),
            Says::List(name) => into.push(tokens.map_or(Cell::Null, |found| tokens::list(found, name))),
            Says::Arrays => into.push(tokens.map_or(Cell::Null, tokens::others)),
            Says::Field(field) => match step.held(field.number) {
                None => into.push_null(),
                Some(Held::Number(number)) => into.float(Some(number)),
                Some(Held::Text(text)) => into.text(Some(text)),
                Some(Held::Value(value)) => fill_value(into, field, value),
            },
        }
    }
}

fn fill_value(into: &mut Builder, field: &StepField, value: &Value) -> usize {
    match field.holds {
        Holds::Any if field.part == Part::Failure => into.text(Some(&error_text(value))),
        Holds::Any | Holds::Named | Holds::Tokens => into.json(value),
        Holds::Number => into.float(value.as_float()),
        Holds::Text => into.text(value.as_str()),
        Holds::Terms => into.push(terms(Some(value))),
        Holds::Version => into.text(Some(&policy_text(value))),
    }
}

impl Says {
    fn of(column: &Column) -> Self {
        match column.name {
            "ref" => Self::Ref,
            "index" => Self::Index,
            "kind" => Self::Kind,
            "time" => Self::Time,
            "policy_number" => Self::PolicyNumber,
            "damaged" => Self::Damaged,
            "arrays" => Self::Arrays,
            // The prompt of a step is what was asked; that of its tokens is a list of ids.
            name @ ("prompt" | "ids" | "logprobs" | "mask") if column.form != Form::Json => Self::List(name),
            name => step_fields::named(name).map_or(Self::Name(name), Self::Field),
        }
    }

    /// The fields that must be read for it. What is lost can only be told of what was read.
    fn fields(self) -> Vec<u8> {
        match self {
            Self::Damaged => (0..=u8::MAX).collect(),
            Self::PolicyNumber => vec![fields::POLICY],
            Self::List(_) | Self::Arrays => vec![fields::TOKENS],
            Self::Field(field) => vec![field.number],
            Self::Ref | Self::Name(_) | Self::Index | Self::Kind | Self::Time => Vec::new(),
        }
    }
}
