//! What a note may contain, and which names notes and calls may have.

use keepstep_format::fields;
use keepstep_format::value::Value;

use crate::error::{Error, Result};

/// Names with this prefix are reserved for keepstep.
pub(crate) const OUR_NAMES: &str = "keepstep.";

/// An error if a name is empty or reserved for keepstep: what has such a name is not listed. For names of notes and
/// calls; `field` is what the caller calls it.
pub fn check_name(field: &str, name: &str) -> Result<()> {
    if !name.is_empty() && !name.starts_with(OUR_NAMES) {
        return Ok(());
    }
    Err(Error::BadInput {
        field: field.to_owned(),
        value: format!("cannot be {name:?}"),
        fix: format!("give a name that is not empty and does not begin with {OUR_NAMES:?}"),
    })
}

/// The fields of a note: name, value and source, in the order of their numbers.
pub(crate) fn note_fields(name: &str, value: Value, source: &str) -> Result<[(u8, Value); 3]> {
    check_name("name", name)?;
    let value = if name == "reward" { as_reward(value)? } else { value };
    Ok([(fields::NAME, Value::from(name)), (fields::VALUE, value), (fields::SOURCE, Value::from(source))])
}

/// A reward must be a float, or nothing; integers become floats.
fn as_reward(value: Value) -> Result<Value> {
    /// Every integer up to this one is exact as a float.
    const EXACT: i64 = 1 << 53;
    match value.plain() {
        Value::Float(_) | Value::Null => Ok(value),
        Value::Int(number) if (-EXACT..=EXACT).contains(number) => Ok(Value::Float(*number as f64)),
        other => Err(Error::BadInput {
            field: "reward".to_owned(),
            value: format!("cannot be {other:?}"),
            fix: "give a float, or nothing".to_owned(),
        }),
    }
}
