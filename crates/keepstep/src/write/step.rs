//! A step to be recorded: any of its fields, each at most once.

use keepstep_format::fields;
use keepstep_format::step_fields::{self, Holds};
use keepstep_format::value::Value;

use crate::error::{Error, Result};

/// A step to be recorded. Fields that are not set are not recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    pub(super) fields: Vec<(u8, Value)>,
}

/// The tokens of a turn.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Tokens {
    /// Token ids of the prompt.
    pub prompt: Option<Value>,
    /// Token ids of the response.
    pub ids: Option<Value>,
    /// Their log-probabilities.
    pub logprobs: Option<Value>,
    /// Which of the response's tokens count.
    pub mask: Option<Value>,
    /// Other arrays, by name.
    pub arrays: Vec<(String, Value)>,
}

impl Tokens {
    /// Sets the token ids of the prompt.
    pub fn prompt(mut self, ids: impl Into<Value>) -> Self {
        self.prompt = Some(ids.into());
        self
    }

    /// Sets the token ids of the response.
    pub fn ids(mut self, ids: impl Into<Value>) -> Self {
        self.ids = Some(ids.into());
        self
    }

    /// Sets the log-probabilities of the response's tokens.
    pub fn logprobs(mut self, logprobs: impl Into<Value>) -> Self {
        self.logprobs = Some(logprobs.into());
        self
    }

    /// Sets which of the response's tokens count.
    pub fn mask(mut self, mask: impl Into<Value>) -> Self {
        self.mask = Some(mask.into());
        self
    }

    /// Sets other arrays, by name.
    pub fn arrays<K: Into<String>>(mut self, arrays: impl IntoIterator<Item = (K, Value)>) -> Self {
        self.arrays = arrays.into_iter().map(|(name, array)| (name.into(), array)).collect();
        self
    }
}

impl Step {
    /// A step without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field by its number, as in [`keepstep_format::fields`].
    pub fn field(self, number: u8, value: Value) -> Self {
        self.with(number, value)
    }

    pub(crate) fn with(mut self, number: u8, value: Value) -> Self {
        self.set(number, value);
        self
    }

    pub(crate) fn set(&mut self, number: u8, value: Value) {
        match self.fields.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.fields[at].1 = value,
            Err(at) => self.fields.insert(at, (number, value)),
        }
    }

    pub(crate) fn get(&self, number: u8) -> Option<&Value> {
        let at = self.fields.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.fields[at].1)
    }

    /// The fields that are set, by number.
    pub fn fields(&self) -> &[(u8, Value)] {
        &self.fields
    }

    /// An error if a field has a wrong value, before anything is recorded.
    pub(super) fn check(&self) -> Result<()> {
        for (number, value) in &self.fields {
            let field = step_fields::ALL.iter().find(|field| field.number == *number);
            let Some(fix) = field.and_then(|field| wrong(field.holds, value)) else { continue };
            return Err(Error::BadInput {
                field: fields::name(*number).unwrap_or("field").to_owned(),
                value: format!("cannot be {value:?}"),
                fix: fix.to_owned(),
            });
        }
        Ok(())
    }
}

/// What to give instead, if the value does not fit the field.
fn wrong(holds: Holds, value: &Value) -> Option<&'static str> {
    match holds {
        Holds::Number => {
            let is_number = matches!(value.plain(), Value::Float(_) | Value::Null);
            (!is_number).then_some("give a float, or nothing")
        }
        Holds::Version => {
            let is_version = value.as_int().is_some() || value.as_str().is_some();
            (!is_version).then_some("give an integer or a string")
        }
        Holds::Any | Holds::Text | Holds::Terms | Holds::Tokens | Holds::Named => None,
    }
}

/// A setter for each type of field.
macro_rules! setter {
    ($constant:ident $name:ident Number $doc:literal) => {
        #[doc = $doc]
        pub fn $name(self, number: impl Into<Option<f64>>) -> Self {
            self.with(fields::$constant, number.into().map_or(Value::Null, Value::Float))
        }
    };
    ($constant:ident $name:ident Text $doc:literal) => {
        #[doc = $doc]
        pub fn $name(self, text: impl Into<String>) -> Self {
            self.with(fields::$constant, Value::from(text.into()))
        }
    };
    ($constant:ident $name:ident Terms $doc:literal) => {
        #[doc = $doc]
        pub fn $name<K: Into<String>>(self, terms: impl IntoIterator<Item = (K, f64)>) -> Self {
            let terms = terms.into_iter().map(|(name, term)| (Value::from(name.into()), Value::Float(term)));
            self.with(fields::$constant, Value::map(terms))
        }
    };
    ($constant:ident $name:ident Tokens $doc:literal) => {
        #[doc = $doc]
        pub fn $name(self, tokens: Tokens) -> Self {
            self.with(fields::$constant, tokens.into())
        }
    };
    ($constant:ident $name:ident Named $doc:literal) => {
        #[doc = $doc]
        pub fn $name<K: Into<String>, V: Into<Value>>(self, named: impl IntoIterator<Item = (K, V)>) -> Self {
            let named = named.into_iter().map(|(name, value)| (Value::from(name.into()), value.into()));
            self.with(fields::$constant, Value::map(named))
        }
    };
    ($constant:ident $name:ident $any:ident $doc:literal) => {
        #[doc = $doc]
        pub fn $name(self, value: impl Into<Value>) -> Self {
            self.with(fields::$constant, value.into())
        }
    };
}

macro_rules! setters {
    ($($constant:ident $name:ident $part:ident $holds:ident $doc:literal;)*) => {
        /// One setter for each field.
        impl Step {
            $(setter!($constant $name $holds $doc);)*
        }
    };
}
keepstep_format::step_fields!(setters);

impl From<Tokens> for Value {
    fn from(tokens: Tokens) -> Self {
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
        Value::map(map)
    }
}
