//! What a note may contain.

use keepstep_format::fields;
use keepstep_format::value::Value;

use crate::error::{Error, Result};

/// Names with this prefix are reserved for keepstep.
pub(crate) const OUR_NAMES: &str = "keepstep.";

/// The fields of a note: name, value and source, in the order of their numbers.
pub(crate) fn note_fields(name: &str, value: Value, source: &str) -> Result<[(u8, Value); 3]> {
    if name.is_empty() || name.starts_with(OUR_NAMES) {
        return Err(Error::BadInput {
            field: "name".to_owned(),
            value: format!("cannot be {name:?}"),
            fix: format!("give the note a name that does not begin with {OUR_NAMES:?}"),
        });
    }
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
