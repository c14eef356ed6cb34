//! The tokens of a turn, looked at before they are recorded: numbers, and as many of each as there are tokens.
//!
//! What is longer or shorter than the ids cannot be trained on, and nobody finds that out before.

use keepstep::{Error, Tokens, Value};

use crate::errors::bad_input;

/// Refuses what is no list of numbers, and lengths that do not belong together. What `redact` may have put there is taken.
pub(crate) fn check(tokens: &Tokens, may_be_hidden: bool) -> Result<(), Error> {
    let length = |name: &str, value: Option<&Value>| match value {
        Some(value) => length(&format!("tokens.{name}"), value, may_be_hidden),
        None => Ok(None),
    };
    let prompt = length("prompt", tokens.prompt.as_ref())?;
    let ids = length("ids", tokens.ids.as_ref())?;
    for (name, value) in [("logprobs", &tokens.logprobs), ("mask", &tokens.mask)] {
        let (Some(count), Some(ids)) = (length(name, value.as_ref())?, ids) else { continue };
        // Some have one for each token of the prompt too.
        let with_prompt = prompt.map(|prompt| prompt + ids);
        if count != ids && Some(count) != with_prompt {
            let value = format!("has {count}, and tokens.ids has {ids}");
            let fix = "give one for each token, or leave it out";
            return Err(bad_input(&format!("tokens.{name}"), &value, fix));
        }
    }
    Ok(())
}

/// How many there are of a part; nothing if that was hidden.
fn length(field: &str, value: &Value, may_be_hidden: bool) -> Result<Option<usize>, Error> {
    let wrong =
        |field: &str, found: &Value| bad_input(field, &kind_of(found), "give an array or a list of numbers");
    match value.plain() {
        Value::List(items) => match items.iter().position(|item| !is_number(item)) {
            Some(at) if !may_be_hidden => Err(wrong(&format!("{field}[{at}]"), &items[at])),
            _ => Ok(Some(items.len())),
        },
        Value::Array(array) if !array.shape.is_empty() => {
            Ok(array.shape.first().map(|count| *count as usize))
        }
        Value::Typed(_, inner) => length(field, inner, may_be_hidden),
        _ if may_be_hidden => Ok(None),
        other => Err(wrong(field, other)),
    }
}

/// Also nothing, as of the first token, which has no logprob; and several, as of the likeliest tokens at a place.
fn is_number(item: &Value) -> bool {
    match item.plain() {
        Value::Typed(_, inner) => is_number(inner),
        Value::Str(_) | Value::Bytes(_) | Value::Media(..) | Value::Repr(..) => false,
        _ => true,
    }
}

fn kind_of(value: &Value) -> String {
    match value.plain() {
        Value::Str(text) => format!("is {:?}", text.chars().take(60).collect::<String>()),
        Value::Bytes(_) | Value::Media(..) => "is bytes".to_owned(),
        Value::Map(_) => "is a mapping".to_owned(),
        Value::Int(_) | Value::Big { .. } | Value::Float(_) | Value::Bool(_) | Value::Array(_) => {
            "is a single number".to_owned()
        }
        Value::Repr(class, _) => format!("is an object of {class}"),
        _ => "is no list".to_owned(),
    }
}
