//! From Python objects to values: all classes but the plain ones. How a class is recorded is decided once, by `keepstep/_values.py`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use keepstep::Value;
use pyo3::exceptions::{PyAttributeError, PyException};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use super::encode::{int_value, open_value, sequence, str_value, typed, value as walked};
use super::place::{Part, Place};
use super::redact::REDACTED;
use super::{ComesBack, Walk, arrays, encode, python_half};
use crate::errors::{OrRaise, bad_input};

/// Decisions are forgotten together when there are more: programs that make classes without end exist.
const PLANS_MAX: usize = 2048;
/// Of a longer text only the beginning is recorded.
const REPR_CHARS_MAX: usize = 64 << 10;

/// How objects of one class are recorded.
enum Plan {
    /// As what a function gives for them.
    Call {
        name: Arc<str>,
        encode: Py<PyAny>,
        registered: bool,
    },
    /// As media, if the function gives that.
    Image {
        name: Arc<str>,
        encode: Py<PyAny>,
    },
    /// As a map of these attributes.
    Fields {
        name: Arc<str>,
        fields: Vec<(Arc<str>, Py<PyString>)>,
    },
    /// As the builtin that they derive from.
    Derived {
        name: Arc<str>,
        from: From,
    },
    Array {
        name: Option<Arc<str>>,
        odd: Py<PyAny>,
    },
    Tensor {
        name: Arc<str>,
    },
    /// What was read back from a store, and is recorded again.
    Media,
    RawArray,
    Marked,
    /// Not at all: its value comes later, and nobody waited for it. What to do about that.
    Later {
        name: Arc<str>,
        advice: String,
    },
    /// As a marked text: the last resort.
    Repr {
        name: Arc<str>,
    },
}

#[derive(Clone, Copy)]
enum From {
    Str,
    Int,
    Float,
    Bytes,
    Dict,
    List,
}

type Plans = HashMap<usize, (Py<PyType>, Arc<Plan>)>;
/// By the address of the class, which is held so that no other takes it.
///
/// Locked only by threads that hold the interpreter, which run no code of Python's meanwhile: so a fork, which needs the
/// interpreter too, never leaves it locked in the child.
static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(Mutex::default);

/// Forgets all decisions.
pub(super) fn forget_all(_: Python<'_>) {
    let forgotten = std::mem::take(&mut *PLANS.lock().unwrap_or_else(PoisonError::into_inner));
    drop(forgotten);
}

fn plan_of(class: &Bound<'_, PyType>) -> Arc<Plan> {
    let key = class.as_ptr() as usize;
    if let Some((_, plan)) = PLANS.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Arc::clone(plan);
    }
    // A class that cannot even be asked what it is has its text.
    let plan = decide(class).unwrap_or_else(|_| Plan::Repr { name: Arc::from("?") });
    let plan = Arc::new(plan);
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let forgotten = if plans.len() < PLANS_MAX { None } else { Some(std::mem::take(&mut *plans)) };
    let replaced = plans.insert(key, (class.clone().unbind(), Arc::clone(&plan)));
    drop(plans);
    drop((forgotten, replaced));
    plan
}

fn decide(class: &Bound<'_, PyType>) -> PyResult<Plan> {
    let decided = python_half(class.py())?.getattr("plan_of")?.call1((class,))?;
    let (kind, name, needs): (String, Option<String>, Bound<'_, PyAny>) = decided.extract()?;
    let given_name = name.as_deref().map(Arc::from);
    let name: Arc<str> = Arc::from(name.unwrap_or_default());
    let derived = |from| Plan::Derived { name: Arc::clone(&name), from };
    Ok(match kind.as_str() {
        "call" | "registered" => {
            Plan::Call { name, encode: needs.unbind(), registered: kind == "registered" }
        }
        "image" => Plan::Image { name, encode: needs.unbind() },
        "fields" => {
            let fields = needs.cast_into::<PyTuple>()?;
            let field = |field: Bound<'_, PyAny>| {
                let field = field.cast_into::<PyString>()?;
                Ok((Arc::from(field.to_str()?), field.unbind()))
            };
            let fields: PyResult<_> = fields.iter().map(field).collect();
            Plan::Fields { name, fields: fields? }
        }
        "str" => derived(From::Str),
        "int" => derived(From::Int),
        "float" => derived(From::Float),
        "bytes" => derived(From::Bytes),
        "dict" => derived(From::Dict),
        "list" => derived(From::List),
        "array" => Plan::Array { name: given_name, odd: needs.unbind() },
        "tensor" => Plan::Tensor { name },
        "media" => Plan::Media,
        "raw" => Plan::RawArray,
        "marked" => Plan::Marked,
        "later" => Plan::Later { name, advice: needs.extract()? },
        _ => Plan::Repr { name },
    })
}

/// The value of an object that is not of a plain class.
pub(super) fn value(walk: &mut Walk<'_>, given: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<Value> {
    let py = given.py();
    place.check_depth().or_raise(py)?;
    let inside = place.itself();
    match &*plan_of(&given.get_type()) {
        Plan::Call { name, encode, registered } => match encode.bind(py).call1((given,)) {
            Ok(data) => Ok(typed(name, open_value(walk, &data, &inside)?)),
            Err(error) if *registered => Err(cannot_encode(given, error, place)),
            Err(error) => unless_fatal(py, error).and_then(|()| marked(walk, given, name, place)),
        },
        Plan::Image { name, encode } => match encode.bind(py).call1((given,)) {
            Ok(data) if data.is_instance_of::<PyDict>() => Ok(typed(name, open_value(walk, &data, &inside)?)),
            Ok(media) => media_value(walk, &media),
            Err(error) => unless_fatal(py, error).and_then(|()| marked(walk, given, name, place)),
        },
        Plan::Fields { name, fields } => match fields_value(walk, given, fields, &inside)? {
            Some(fields) => Ok(typed(name, fields)),
            None => marked(walk, given, name, place),
        },
        Plan::Derived { name, from } => Ok(typed(name, derived_value(walk, given, *from, &inside)?)),
        Plan::Array { name, odd } => match arrays::array_value(walk, given, odd.bind(py), &inside) {
            Ok(Some(array)) => Ok(name.iter().fold(array, |array, name| typed(name, array))),
            Ok(None) => marked(walk, given, &class_name(given), place),
            Err(error) => Err(error),
        },
        Plan::Tensor { name } => match arrays::tensor_value(walk, given)? {
            Some(array) => Ok(typed(name, array)),
            None => marked(walk, given, name, place),
        },
        Plan::Media => media_value(walk, given),
        Plan::RawArray => match arrays::raw_value(walk, given)? {
            Some(array) => Ok(array),
            None => marked(walk, given, &class_name(given), place),
        },
        Plan::Marked => {
            let (class, text): (String, String) = (given.getattr("type")?.extract()?, given.extract()?);
            Ok(Value::Repr(Arc::from(class), Arc::from(text)))
        }
        // An error is recorded, whatever is in it.
        Plan::Later { name, .. } if walk.in_error => marked(walk, given, name, place),
        Plan::Later { name, advice } => Err(came_too_early(walk, given, name, advice, place)),
        Plan::Repr { name } => marked(walk, given, name, place),
    }
}

/// The error for an object that gives its value later. A coroutine is closed, or Python would warn of it too.
fn came_too_early(
    walk: &Walk<'_>,
    given: &Bound<'_, PyAny>,
    class: &str,
    advice: &str,
    place: &Place<'_>,
) -> PyErr {
    let py = given.py();
    let closed = python_half(py)
        .and_then(|half| half.getattr("close_unstarted")?.call1((given,)))
        .map_or_else(|error| unless_fatal(py, error), |_| Ok(()));
    if let Err(fatal) = closed {
        return fatal;
    }
    let at = match walk.comes_back {
        Some(ComesBack::Result) => format!("call {:?}: {}", place.field(), place.written_from("result")),
        _ => place.to_string(),
    };
    let value = format!("is of class {class}, which gives its value later");
    crate::errors::raise(py, &bad_input(&at, &value, advice))
}

/// The error for an argument of another kind, where it was given something that gives its value later.
pub(crate) fn or_forgotten_await(
    walk: &Walk<'_>,
    name: &str,
    given: &Bound<'_, PyAny>,
    error: PyErr,
) -> PyErr {
    match &*plan_of(&given.get_type()) {
        Plan::Later { name: class, advice } => {
            came_too_early(walk, given, class, advice, &Place::root(name, given))
        }
        _ => error,
    }
}

/// The attributes of a structure. Nothing if one of them cannot be had.
fn fields_value(
    walk: &mut Walk<'_>,
    given: &Bound<'_, PyAny>,
    fields: &[(Arc<str>, Py<PyString>)],
    place: &Place<'_>,
) -> PyResult<Option<Value>> {
    let py = given.py();
    place.check_depth().or_raise(py)?;
    let mut entries = Vec::with_capacity(fields.len());
    for (name, attribute) in fields {
        let value = match given.getattr(attribute.bind(py)) {
            _ if walk.context.redact.hides(name) => Value::from(REDACTED),
            Ok(item) => walked(walk, &item, &place.inside(Part::Field(name), &item))?,
            // A field that was never set is not there.
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => continue,
            Err(error) => {
                unless_fatal(py, error)?;
                return Ok(None);
            }
        };
        entries.push((Value::Str(Arc::clone(name)), value));
    }
    Ok(Some(Value::Map(Arc::new(entries))))
}

fn derived_value(
    walk: &mut Walk<'_>,
    given: &Bound<'_, PyAny>,
    from: From,
    place: &Place<'_>,
) -> PyResult<Value> {
    match from {
        From::Str => str_value(walk, given.cast::<PyString>()?),
        From::Int => int_value(given.cast::<PyInt>()?),
        From::Float => Ok(Value::Float(given.cast::<PyFloat>()?.value())),
        From::Bytes => {
            let data = given.cast::<PyBytes>()?.as_bytes();
            walk.bytes += data.len();
            Ok(Value::bytes(data))
        }
        From::Dict => encode::dict(walk, given.cast::<PyDict>()?, place),
        From::List => {
            let items: PyResult<Vec<_>> = given.try_iter()?.collect();
            let items = items?;
            let count = items.len();
            sequence(walk, items.into_iter(), count, place)
        }
    }
}

fn media_value(walk: &mut Walk<'_>, media: &Bound<'_, PyAny>) -> PyResult<Value> {
    let kind: String = media.getattr("kind")?.extract()?;
    let data = media.getattr("data")?.cast_into::<PyBytes>()?;
    walk.bytes += data.as_bytes().len();
    Ok(Value::Media(Arc::from(kind), Arc::from(data.as_bytes())))
}

/// The last resort: how an object looks. Refused where it must come back; else warned about, once for each class and field, and counted.
fn marked(
    walk: &mut Walk<'_>,
    given: &Bound<'_, PyAny>,
    class: &Arc<str>,
    place: &Place<'_>,
) -> PyResult<Value> {
    let py = given.py();
    if let Some(refused) = refusal(walk, class, place) {
        return Err(refused).or_raise(py);
    }
    walk.reprs += 1;
    if walk.context.count_repr(class, place.field()) {
        let message = format!(
            "{place} is an object of {class}, which cannot be recorded as data: its repr was recorded \
             (keepstep.register can change that; this is said once for each class and field)"
        );
        let category = python_half(py)?.getattr("RecordedAsRepr")?;
        super::warn_caller(py, &message, &category)?;
    }
    let text = match given.repr() {
        Ok(text) => text.to_string_lossy().chars().take(REPR_CHARS_MAX).collect(),
        Err(error) => {
            unless_fatal(py, error)?;
            format!("<{class} whose repr cannot be had>")
        }
    };
    // The text shows what is inside, so it is looked at as well.
    let text = walk.context.redact.text(&text).unwrap_or(text);
    let text = match walk.context.redact.replace(PyString::new(py, &text).as_any(), place)? {
        Some(replaced) => replaced.str()?.to_string_lossy().into_owned(),
        None => text,
    };
    walk.bytes += text.len();
    Ok(Value::Repr(Arc::clone(class), Arc::from(text)))
}

/// Why an object that has nothing but its looks is not taken here, if it is not.
fn refusal(walk: &Walk<'_>, class: &str, place: &Place<'_>) -> Option<keepstep::Error> {
    let value = format!("is an object of {class}, which cannot be recorded as data");
    let (at, value, fix) = match walk.comes_back {
        Some(ComesBack::State) => (
            place.to_string(),
            format!("{value}, so no attempt could resume from it"),
            "give what it is made of as plain data, or register its class with keepstep.register",
        ),
        Some(ComesBack::Result) => (
            format!("call {:?}: {}", place.field(), place.written_from("result")),
            format!("{value}, so a resumed attempt could not be given it"),
            "return plain data, or register its class with keepstep.register",
        ),
        Some(ComesBack::Config) => (
            place.to_string(),
            format!("{value}, so it would be another config when the run is opened again"),
            "give what it is made of as plain data, leave it out, or register its class with keepstep.register",
        ),
        None if walk.context.strict => (
            place.to_string(),
            value,
            "register its class with keepstep.register, leave it out, or open the store without strict=True",
        ),
        None => return None,
    };
    Some(bad_input(&at, &value, fix))
}

/// What a registered function raised is told by its class alone: its message may hold what it should have hidden.
fn cannot_encode(given: &Bound<'_, PyAny>, error: PyErr, place: &Place<'_>) -> PyErr {
    let py = given.py();
    if let Err(fatal) = unless_fatal(py, error.clone_ref(py)) {
        return fatal;
    }
    let raised = error.get_type(py).name().map_or_else(|_| "?".into(), |name| name.to_string());
    let value =
        format!("could not be encoded: what was registered for {} raised {raised}", class_name(given));
    crate::errors::raise(py, &bad_input(&place.to_string(), &value, "mend the function that was registered"))
}

/// Ctrl-C and an exit are never swallowed.
pub(super) fn unless_fatal(py: Python<'_>, error: PyErr) -> PyResult<()> {
    if error.is_instance_of::<PyException>(py) { Ok(()) } else { Err(error) }
}

fn class_name(given: &Bound<'_, PyAny>) -> Arc<str> {
    let name = given.get_type().fully_qualified_name();
    name.map_or_else(|_| Arc::from("?"), |name| Arc::from(&*name.to_string_lossy()))
}
