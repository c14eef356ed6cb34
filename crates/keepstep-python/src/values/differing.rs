//! Whether an object that was made of a recording is the one that was recorded: the same data, and the same classes in it.
//!
//! Outside of any class plain data stands for an object (that is what the caller asked for), and a class that was asked for
//! may be made of plain data. Inside of a class everything has to be as it was.

use keepstep::Value;

/// Where they differ first, and how.
pub(crate) fn difference(recorded: &Value, made: &Value) -> Option<(String, String)> {
    let mut path = String::new();
    let how = differs(recorded, made, false, &mut path)?;
    Some((path, how))
}

fn differs(recorded: &Value, made: &Value, in_class: bool, path: &mut String) -> Option<String> {
    match (recorded.plain(), made.plain()) {
        (Value::Typed(name, a), Value::Typed(other, b)) if name == other => differs(a, b, true, path),
        (Value::Typed(name, _), Value::Typed(other, _)) => {
            Some(format!("was an object of {name}, and would come back as one of {other}"))
        }
        (Value::Typed(name, _), _) if in_class => {
            Some(format!("was an object of {name}, and would come back as plain data"))
        }
        (Value::Typed(_, a), _) => differs(a, made, false, path),
        (_, Value::Typed(..)) if !in_class => None,
        (Value::List(a), Value::List(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b.iter()).enumerate();
            pairs.find_map(|(at, (a, b))| {
                inside(path, format!("[{at}]"), |path| differs(a, b, in_class, path))
            })
        }
        (Value::Map(a), Value::Map(b)) => {
            let found = a.iter().find_map(|(key, a)| {
                let b = b.iter().find(|(other, _)| other == key).map(|(_, b)| b);
                inside(path, named(key), |path| match b {
                    Some(b) => differs(a, b, in_class, path),
                    None => Some("would not be there again".to_owned()),
                })
            });
            found.or_else(|| (a.len() < b.len()).then(|| "would come back with more in it".to_owned()))
        }
        (a, b) if a == b => None,
        _ => Some("would come back as something else".to_owned()),
    }
}

/// Goes one step deeper; the path stays there only if something was found.
fn inside(
    path: &mut String,
    part: String,
    look: impl FnOnce(&mut String) -> Option<String>,
) -> Option<String> {
    let length = path.len();
    path.push_str(&part);
    let found = look(path);
    if found.is_none() {
        path.truncate(length);
    }
    found
}

fn named(key: &Value) -> String {
    match key.as_str() {
        Some(name) => format!(".{name}"),
        None => format!("[{key:?}]"),
    }
}
