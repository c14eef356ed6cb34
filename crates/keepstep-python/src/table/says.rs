//! How recorded values are told in the columns of a table.

use keepstep::{Listed, Value};

use super::cells::{Cell, json};

/// What every table says of an episode.
pub(super) fn name_cell(name: &str, listed: &Listed) -> Cell {
    let summary = &listed.summary;
    match name {
        "ref" => Cell::Text(keepstep::refs::reference_of(listed).to_string()),
        "task" => Cell::text(summary.task.as_deref()),
        "iteration" => Cell::int(summary.iteration),
        "sample" => Cell::int(summary.sample),
        "attempt" => Cell::Int(listed.key.attempt.into()),
        _ => Cell::Null,
    }
}

pub(super) fn policy_text(policy: &Value) -> String {
    policy.as_str().map_or_else(|| json(policy), str::to_owned)
}

pub(super) fn terms(value: Option<&Value>) -> Cell {
    let Some(Value::Map(entries)) = value.map(Value::plain) else { return Cell::Null };
    let term = |(name, number): &(Value, Value)| Some((name.as_str()?.to_owned(), number.as_float()?));
    entries.iter().map(term).collect::<Option<_>>().map_or(Cell::Null, Cell::Terms)
}

/// An error for people: its type and message, then where it came from; or whatever text was recorded.
pub(super) fn error_text(error: &Value) -> String {
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    match (error.as_str(), part("type"), part("message")) {
        (Some(text), ..) => text.to_owned(),
        (None, Some(kind), Some(message)) => {
            let trace = part("traceback").filter(|trace| !trace.is_empty());
            let trace = trace.map(|trace| format!("\n{trace}")).unwrap_or_default();
            format!("{kind}: {message}{trace}")
        }
        _ => json(error),
    }
}
