//! From keyword arguments to a step: which fields there are, and which must be numbers.

use keepstep::{Step, Tokens, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyMapping, PyString};

use crate::errors::{OrRaise, bad_input};
use crate::values::Walk;

/// Which arguments a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The first observation.
    First,
    /// What was said, before the action is taken.
    Said,
    /// What came of it.
    Result,
    /// Both at once.
    Both,
}

const SAID: [&str; 6] = ["action", "prompt", "response", "tokens", "policy", "agent"];
const RESULT: [&str; 6] = ["observation", "reward", "reward_terms", "discount", "info", "state"];
const FIRST: [&str; 3] = ["observation", "info", "state"];

impl Part {
    fn takes(self, name: &str) -> bool {
        match self {
            Self::First => FIRST.contains(&name),
            Self::Said => SAID.contains(&name),
            // What was raised instead of a result stands in the result.
            Self::Result => RESULT.contains(&name) || name == "error",
            Self::Both => SAID.contains(&name) || RESULT.contains(&name),
        }
    }

    fn names(self) -> String {
        match self {
            Self::First => FIRST.join(", "),
            Self::Said => SAID.join(", "),
            Self::Result => RESULT.join(", "),
            Self::Both => [SAID.join(", "), RESULT.join(", ")].join(", "),
        }
    }
}

/// The step that these arguments say.
pub(crate) fn step_of(part: Part, given: &Bound<'_, PyDict>, walk: &mut Walk<'_>) -> PyResult<Step> {
    let py = given.py();
    let mut step = Step::new();
    for (name, value) in given.iter() {
        let name = name.cast_into::<PyString>()?;
        let Ok(name) = name.to_str() else {
            let (shown, fix) = (name.repr()?.to_string(), format!("give some of {}", part.names()));
            return Err(crate::errors::raise(py, &bad_input(&shown, "is not a field of this call", &fix)));
        };
        if !part.takes(name) {
            let error =
                bad_input(name, "is not a field of this call", &format!("give some of {}", part.names()));
            return Err(crate::errors::raise(py, &error));
        }
        if walk.skips(name) {
            continue;
        }
        step = add(step, name, &value, walk)?;
    }
    Ok(step)
}

fn add(step: Step, name: &str, given: &Bound<'_, PyAny>, walk: &mut Walk<'_>) -> PyResult<Step> {
    Ok(match name {
        "observation" => step.observation(walk.value(given, name)?),
        "action" => step.action(walk.value(given, name)?),
        "prompt" => step.prompt(walk.value(given, name)?),
        "response" => step.response(walk.value(given, name)?),
        "info" => step.info(walk.value(given, name)?),
        "error" => step.error(walk.value(given, name)?),
        "policy" if given.is_none() => step,
        "policy" => step.policy(policy(given, walk)?),
        "agent" if given.is_none() => step,
        "agent" => step.agent(walk.text(given.py(), &text(name, given)?, name)?),
        "reward" => step.reward(number_warned(name, given, walk)?),
        "discount" => step.discount(number_warned(name, given, walk)?),
        "reward_terms" if given.is_none() => step,
        "reward_terms" => step.reward_terms(terms(given, walk)?),
        "tokens" if given.is_none() => step,
        "tokens" => step.tokens(tokens(given, walk)?),
        "state" if given.is_none() => step,
        "state" => step.state(named(name, given, |value, path| walk.state(value, path))?),
        _ => step,
    })
}

/// The version of a policy. One that does not fit 64 bits would fit no column and no filter.
fn policy(given: &Bound<'_, PyAny>, walk: &mut Walk<'_>) -> PyResult<Value> {
    let value = walk.value(given, "policy")?;
    if matches!(value, Value::Big { .. }) {
        let error =
            bad_input("policy", &format!("is {}", kind_of(given)), "give an integer of 64 bits, or a text");
        return Err(crate::errors::raise(given.py(), &error));
    }
    Ok(value)
}

fn text(name: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let wrong = || bad_input(name, &format!("is {}", kind_of(given)), "give a text that UTF-8 has");
    given.extract::<String>().map_err(|_| crate::errors::raise(given.py(), &wrong()))
}

/// A float, or None. A text such as "0.100" is refused: what is recorded as a number can be trained on.
pub(crate) fn number(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_none() {
        return Ok(None);
    }
    if let Ok(float) = given.cast_exact::<PyFloat>() {
        return Ok(Some(float.value()));
    }
    let is_text = given.hasattr("encode")? || given.hasattr("decode")?;
    let is_array = given.getattr("ndim").is_ok_and(|ndim| ndim.gt(0).unwrap_or(true));
    let found = if is_text || is_array { None } else { given.extract::<f64>().ok() };
    match found {
        Some(number) if is_rounded(given, number) => {
            let (value, fix) =
                (format!("is {}", kind_of(given)), "a float cannot hold it exactly: give a float");
            Err(bad_input(name, &value, fix)).or_raise(given.py())
        }
        Some(number) => Ok(Some(number)),
        None => {
            let value = format!("is {}", kind_of(given));
            Err(bad_input(name, &value, "give a float, or None if there is none")).or_raise(given.py())
        }
    }
}

/// Whether an integer is another number than the float that it became. Of what is no integer that is for its owner to know.
fn is_rounded(given: &Bound<'_, PyAny>, number: f64) -> bool {
    /// Below, every integer is a float.
    const SAFE: f64 = 9_007_199_254_740_992.0;
    if number.abs() < SAFE {
        return false;
    }
    // Arrays have the method, and raise where they are no integer.
    given.call_method0("__index__").is_ok_and(|whole| whole.ne(number).unwrap_or(true))
}

/// As [`number`], with a warning if it is NaN.
fn number_warned(name: &str, given: &Bound<'_, PyAny>, walk: &Walk<'_>) -> PyResult<Option<f64>> {
    let number = number(name, given)?;
    walk.warn_of_nan(given.py(), name, number)?;
    Ok(number)
}

fn terms(given: &Bound<'_, PyAny>, walk: &Walk<'_>) -> PyResult<Vec<(String, f64)>> {
    let mut terms = Vec::new();
    for (term, value) in entries("reward_terms", given)? {
        let field = format!("reward_terms[{term:?}]");
        match number_warned(&field, &value, walk)? {
            Some(number) => terms.push((term, number)),
            None => {
                return Err(bad_input(&field, "is None", "leave out a term that is not there"))
                    .or_raise(given.py());
            }
        }
    }
    Ok(terms)
}

fn named<'py>(
    name: &str,
    given: &Bound<'py, PyAny>,
    mut walk: impl FnMut(&Bound<'py, PyAny>, &str) -> PyResult<Value>,
) -> PyResult<Vec<(String, Value)>> {
    let mut out = Vec::new();
    for (key, value) in entries(name, given)? {
        let path = format!("{name}.{key}");
        let value = walk(&value, &path)?;
        out.push((key, value));
    }
    Ok(out)
}

/// `keepstep.Tokens`, or a mapping with the same names.
fn tokens(given: &Bound<'_, PyAny>, walk: &mut Walk<'_>) -> PyResult<Tokens> {
    let mut tokens = Tokens::default();
    let given = if given.hasattr("_asdict")? { given.call_method0("_asdict")? } else { given.clone() };
    for (name, value) in entries("tokens", &given)? {
        if value.is_none() {
            continue;
        }
        let path = format!("tokens.{name}");
        match name.as_str() {
            "prompt" => tokens.prompt = Some(walk.value(&value, &path)?),
            "ids" => tokens.ids = Some(walk.value(&value, &path)?),
            "logprobs" => tokens.logprobs = Some(walk.value(&value, &path)?),
            "mask" => tokens.mask = Some(walk.value(&value, &path)?),
            "arrays" => tokens.arrays = named(&path, &value, |value, path| walk.value(value, path))?,
            _ => {
                let fix = "give prompt, ids, logprobs, mask, or put it into arrays by name";
                return Err(bad_input(&path, "is not known", fix)).or_raise(given.py());
            }
        }
    }
    crate::tokens::check(&tokens, walk.may_hide()).or_raise(given.py())?;
    Ok(tokens)
}

/// The entries of a mapping whose keys are texts.
pub(crate) fn entries<'py>(
    name: &str,
    given: &Bound<'py, PyAny>,
) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let wrong = |what: String| {
        crate::errors::raise(given.py(), &bad_input(name, &what, "give a mapping from names to values"))
    };
    let mapping = given.cast::<PyMapping>().map_err(|_| wrong(format!("is {}", kind_of(given))))?;
    let mut out = Vec::new();
    for item in mapping.items()?.iter() {
        let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = item.extract()?;
        let key = key.extract::<String>().map_err(|_| wrong(format!("has the key {}", kind_of(&key))))?;
        out.push((key, value));
    }
    Ok(out)
}

/// How a value looks in a message: its type, and its text as far as there is room.
pub(crate) fn kind_of(given: &Bound<'_, PyAny>) -> String {
    let class = given.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let text = given.repr().map_or_else(|_| String::new(), |text| text.to_string());
    let short: String = text.chars().take(60).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("the {class} {short}{dots}")
}
