//! Which keys of two configs differ.

use keepstep_format::value::Value;

use crate::error::{Error, MADE_WITHOUT};

/// How much of a value a message shows.
const CHARS_MAX: usize = 60;
/// How many keys a message shows.
const KEYS_MAX: usize = 12;

/// Each key that differs, by its path, with both values. The order of keys does not count.
pub(in crate::store) fn differences(before: &Value, now: &Value) -> Vec<String> {
    let mut said = Vec::new();
    // No config and an empty one are the same.
    if says_nothing(before) && says_nothing(now) {
        return said;
    }
    if says_nothing(before) {
        return vec![format!("{MADE_WITHOUT} and has episodes, and now it is {}", short(now, CHARS_MAX))];
    }
    if says_nothing(now) {
        return vec![format!("it was {}, and now none is given", short(before, CHARS_MAX))];
    }
    compare("", Some(before), Some(now), &mut said);
    if said.len() > KEYS_MAX {
        let more = said.len() - KEYS_MAX;
        said.truncate(KEYS_MAX);
        said.push(format!("and {more} more"));
    }
    said
}

/// True if no config was given, or an empty one.
pub(super) fn says_nothing(config: &Value) -> bool {
    match config.plain() {
        Value::Null => true,
        Value::Map(entries) => entries.is_empty(),
        _ => false,
    }
}

/// The error for a config that no card can say.
pub(super) fn unfit() -> Error {
    Error::BadInput {
        field: "config".to_owned(),
        value: "is deeper than 127 levels, longer than 64 MiB, or partly lost".to_owned(),
        fix: "record large values in an episode, and put its name into the config".to_owned(),
    }
}

fn compare(path: &str, before: Option<&Value>, now: Option<&Value>, said: &mut Vec<String>) {
    if let (Some(Value::Map(was)), Some(Value::Map(is))) = (before.map(Value::plain), now.map(Value::plain)) {
        let find = |entries: &[(Value, Value)], key: &Value| {
            entries.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone())
        };
        for (key, value) in was.iter() {
            compare(&inside(path, key), Some(value), find(is, key).as_ref(), said);
        }
        for (key, value) in is.iter().filter(|(key, _)| find(was, key).is_none()) {
            compare(&inside(path, key), None, Some(value), said);
        }
        return;
    }
    if before != now {
        let path = if path.is_empty() { "config" } else { path };
        said.push(format!("{path} was {}, is {}", show(before), show(now)));
    }
}

fn inside(path: &str, key: &Value) -> String {
    let key = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "not there".to_owned(), |value| short(value, CHARS_MAX))
}

/// A value, shortened for a message.
pub(in crate::store) fn short(value: &Value, chars_max: usize) -> String {
    let text = format!("{value:?}");
    if text.chars().count() <= chars_max {
        return text;
    }
    text.chars().take(chars_max).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(model: &str, temperature: f64) -> Value {
        let model = Value::map([("name", Value::from(model)), ("temperature", Value::Float(temperature))]);
        Value::map([("model", model), ("seed", Value::Int(1))])
    }

    /// If one number deep inside changed, the error names its path and both values.
    #[test]
    fn nested_keys_are_named_by_their_path() {
        assert_eq!(differences(&config("a", 0.5), &config("a", 0.5)), Vec::<String>::new());
        let said = differences(&config("a", 0.5), &config("a", 0.7));
        assert_eq!(said, ["model.temperature was 0.5, is 0.7"]);
        let said = differences(&config("a", 0.5), &Value::map([("seed", Value::Int(1))]));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("model was {") && said[0].ends_with("is not there"), "{said:?}");
    }

    /// Whoever gave a config, or none, reads which side gave none: "was None" said it of neither.
    #[test]
    fn a_config_that_was_not_given_is_said_to_be_missing() {
        let given = Value::map([("seed", Value::Int(1))]);
        let said = differences(&Value::Null, &given);
        assert_eq!(said, [r#"it was made without one and has episodes, and now it is {"seed": 1}"#]);
        assert_eq!(
            differences(&given, &Value::map::<&str>([])),
            [r#"it was {"seed": 1}, and now none is given"#]
        );
    }

    /// A dict has no order to its user; a list does.
    #[test]
    fn the_order_of_keys_does_not_count() {
        let (one, two) = (("a", Value::Int(1)), ("b", Value::Float(f64::NAN)));
        let (ab, ba) = (Value::map([one.clone(), two.clone()]), Value::map([two, one]));
        assert!(differences(&ab, &ba).is_empty());
        let list = |numbers: [i64; 2]| Value::list(numbers.map(Value::Int));
        assert_eq!(differences(&list([1, 2]), &list([2, 1])), ["config was [1, 2], is [2, 1]"]);
    }

    /// A prompt of a megabyte in a config does not fill the screen; nor do a thousand keys.
    #[test]
    fn what_is_long_is_shortened() {
        let long = Value::map([("prompt", Value::from("x".repeat(1 << 20)))]);
        assert!(differences(&long, &Value::Null)[0].len() < 200);
        let many = |by: i64| Value::map((0..1000).map(|it| (format!("k{it}"), Value::Int(it + by))));
        let said = differences(&many(0), &many(1));
        assert_eq!((said.len(), said[12].as_str()), (13, "and 988 more"));
    }
}
