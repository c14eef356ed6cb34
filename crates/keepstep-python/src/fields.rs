//! From keyword arguments to a step: which fields there are, and which must be numbers.

use keepstep::format::kind::Kind;
use keepstep::format::step_fields::{self, Holds, Part, StepField};
use keepstep::{Step, Tokens, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyMapping, PyString};

use crate::errors::{OrRaise, bad_input};
use crate::values::{Walk, or_forgotten_await};

/// Which arguments a call takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The first observation.
    First,
    /// What was said, before the action is taken.
    Said,
    /// What came of it.
    Result,
    /// Both at once.
    Both,
}

impl Call {
    fn kind(self) -> Kind {
        match self {
            Self::First => Kind::First,
            Self::Said => Kind::Intent,
            Self::Result => Kind::Result,
            Self::Both => Kind::Step,
        }
    }

    fn takes(self, field: &StepField) -> bool {
        // What was raised instead of a result stands in the result.
        let is_failure = self == Self::Result && field.part == Part::Failure;
        is_failure || self.kind().step_fields().contains(&field.number)
    }

    /// The fields that it is documented to take.
    fn names(self) -> String {
        let is_of_it = |field: &&StepField| self.kind().step_fields().contains(&field.number);
        let names: Vec<&str> = step_fields::ALL.iter().filter(is_of_it).map(|field| field.name).collect();
        names.join(", ")
    }
}

/// The names of the fields that calls take, for the test that compares the stub with them.
#[pyfunction]
pub(crate) fn _step_fields(of: &str) -> Vec<&'static str> {
    let is_wanted = |field: &&StepField| match of {
        "said" => field.part == Part::Said,
        "result" => field.part == Part::Result,
        "first" => Call::First.takes(field),
        _ => true,
    };
    step_fields::ALL.iter().filter(is_wanted).map(|field| field.name).collect()
}

/// The step that these arguments say.
pub(crate) fn step_of(call: Call, given: &Bound<'_, PyDict>, walk: &mut Walk<'_>) -> PyResult<Step> {
    let py = given.py();
    let mut step = Step::new();
    for (name, value) in given.iter() {
        let name = name.cast_into::<PyString>()?;
        let Ok(name) = name.to_str() else {
            let (shown, fix) = (name.repr()?.to_string(), format!("give some of {}", call.names()));
            return Err(crate::errors::raise(py, &bad_input(&shown, "is not a field of this call", &fix)));
        };
        let Some(field) = step_fields::named(name).filter(|field| call.takes(field)) else {
            let error =
                bad_input(name, "is not a field of this call", &format!("give some of {}", call.names()));
            return Err(crate::errors::raise(py, &error));
        };
        if walk.skips(name) {
            continue;
        }
        let held = held(field, &value, walk);
        let held = held.map_err(|error| or_forgotten_await(walk, field.name, &value, error));
        if let Some(value) = held? {
            step = step.field(field.number, value);
        }
    }
    Ok(step)
}

/// What is recorded of an argument; nothing if it is None and that says nothing.
fn held(field: &StepField, given: &Bound<'_, PyAny>, walk: &mut Walk<'_>) -> PyResult<Option<Value>> {
    let name = field.name;
    let says_nothing = !matches!(field.holds, Holds::Any | Holds::Number) && given.is_none();
    if says_nothing {
        return Ok(None);
    }
    Ok(Some(match field.holds {
        Holds::Any => walk.value(given, name)?,
        Holds::Number => number_warned(name, given, walk, Absent::None)?.map_or(Value::Null, Value::Float),
        Holds::Text => Value::from(walk.text(given.py(), &text(name, given)?, name)?),
        Holds::Terms => {
            let terms = terms(name, given, walk)?;
            Value::map(terms.into_iter().map(|(term, number)| (term, Value::Float(number))))
        }
        Holds::Tokens => tokens(name, given, walk)?.into(),
        Holds::Version => version(name, given, walk)?,
        Holds::Named => Value::map(named(name, given, |value, path| walk.state(value, path))?),
    }))
}

/// The version of a policy. One that does not fit 64 bits would fit no column and no filter.
fn version(name: &str, given: &Bound<'_, PyAny>, walk: &mut Walk<'_>) -> PyResult<Value> {
    let value = walk.value(given, name)?;
    if matches!(value, Value::Big { .. }) {
        let error =
            bad_input(name, &format!("is {}", kind_of(given)), "give an integer of 64 bits, or a string");
        return Err(crate::errors::raise(given.py(), &error));
    }
    Ok(value)
}

fn text(name: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let wrong = || bad_input(name, &format!("is {}", kind_of(given)), "give a string that UTF-8 can encode");
    given.extract::<String>().map_err(|_| crate::errors::raise(given.py(), &wrong()))
}

/// How a caller says that there is no number. Every message about one gives this advice, so that it can be followed.
#[derive(Clone, Copy)]
enum Absent {
    /// By None.
    None,
    /// By leaving it out: None is refused.
    LeftOut,
}

impl Absent {
    fn instead_of_a_float(self) -> &'static str {
        match self {
            Self::None => "None if there is none",
            Self::LeftOut => "leave out a term that is not there",
        }
    }

    fn instead_of_nan(self, name: &str) -> String {
        match self {
            Self::None => format!("give None if there is no {name}"),
            Self::LeftOut => self.instead_of_a_float().to_owned(),
        }
    }
}

/// A float, or None. A text such as "0.100" is refused: what is recorded as a number can be trained on.
fn number(name: &str, given: &Bound<'_, PyAny>, absent: Absent) -> PyResult<Option<f64>> {
    if given.is_none() {
        return Ok(None);
    }
    // Those of NumPy are floats too.
    if let Ok(float) = given.cast::<PyFloat>() {
        return Ok(Some(float.value()));
    }
    let is_text = given.hasattr("encode")? || given.hasattr("decode")?;
    let is_array = given.getattr("ndim").is_ok_and(|ndim| ndim.gt(0).unwrap_or(true));
    let found = if is_text || is_array { None } else { given.extract::<f64>().ok() };
    match found {
        Some(number) if is_rounded(given, number) => {
            let (value, fix) = (
                format!("is {}", kind_of(given)),
                "a float cannot hold it exactly: give a float, such as float(…) of it",
            );
            Err(bad_input(name, &value, fix)).or_raise(given.py())
        }
        Some(number) => Ok(Some(number)),
        None => {
            let value = format!("is {}", kind_of(given));
            let fix = format!("give a float, or {}", absent.instead_of_a_float());
            Err(bad_input(name, &value, &fix)).or_raise(given.py())
        }
    }
}

/// Whether a number is another one than the float that it became: an integer, a fraction, a decimal.
fn is_rounded(given: &Bound<'_, PyAny>, number: f64) -> bool {
    if number.is_nan() {
        return false;
    }
    // Arrays have the method, and raise where they are no integer. Comparing their integers would round them first.
    match given.call_method0("__index__") {
        Ok(whole) => whole.ne(number).unwrap_or(true),
        Err(_) => given.ne(number).unwrap_or(false),
    }
}

/// As [`number`], with a warning if it is NaN.
fn number_warned(
    name: &str,
    given: &Bound<'_, PyAny>,
    walk: &Walk<'_>,
    absent: Absent,
) -> PyResult<Option<f64>> {
    let number = number(name, given, absent)?;
    walk.warn_of_nan(given.py(), name, number, &absent.instead_of_nan(name))?;
    Ok(number)
}

fn terms(name: &str, given: &Bound<'_, PyAny>, walk: &Walk<'_>) -> PyResult<Vec<(String, f64)>> {
    let mut terms = Vec::new();
    for (term, value) in entries(name, given)? {
        let field = format!("{name}[{term:?}]");
        match number_warned(&field, &value, walk, Absent::LeftOut)? {
            Some(number) => terms.push((term, number)),
            None => {
                let fix = format!("give a float, or {}", Absent::LeftOut.instead_of_a_float());
                return Err(bad_input(&field, "is None", &fix)).or_raise(given.py());
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
fn tokens(field: &str, given: &Bound<'_, PyAny>, walk: &mut Walk<'_>) -> PyResult<Tokens> {
    let mut tokens = Tokens::default();
    let given = if given.hasattr("_asdict")? { given.call_method0("_asdict")? } else { given.clone() };
    for (name, value) in entries(field, &given)? {
        if value.is_none() {
            continue;
        }
        let path = format!("{field}.{name}");
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
    // The quotes of a string say what it is.
    let class = if given.is_none() || class == "str" { String::new() } else { format!("the {class} ") };
    format!("{class}{short}{dots}")
}
