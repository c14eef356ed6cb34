//! Where two values differ: the path to each place, and what stands there on either side.

use keepstep::Value;
use keepstep_format::value::{Array, Dtype};

use crate::columns::cut;
use crate::screen::shown;
use crate::values::brief;

/// So much of a text is shown before and behind what changed in it.
const CONTEXT_CHARS: usize = 24;
/// So much of a changed value is shown.
const CHANGED_CHARS: usize = 160;

/// A place where two values differ.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// Where, such as `prompt[3].content`.
    pub(crate) path: String,
    /// What is there in the first; none if it has no such place.
    pub(crate) a: Option<Value>,
    /// What is there in the second.
    pub(crate) b: Option<Value>,
}

/// Adds all places where two values differ.
pub(crate) fn compare(path: &str, a: Option<&Value>, b: Option<&Value>, out: &mut Vec<Difference>) {
    if a == b {
        return;
    }
    match (a.map(Value::plain), b.map(Value::plain)) {
        (Some(Value::Map(a)), Some(Value::Map(b))) => compare_maps(path, a, b, out),
        (Some(Value::List(a)), Some(Value::List(b))) => compare_lists(path, a, b, out),
        (Some(Value::Typed(name, a)), Some(Value::Typed(other, b))) if name == other => {
            compare(path, Some(a), Some(b), out);
        }
        _ => out.push(Difference { path: path.to_owned(), a: a.cloned(), b: b.cloned() }),
    }
}

fn compare_maps(path: &str, a: &[(Value, Value)], b: &[(Value, Value)], out: &mut Vec<Difference>) {
    let before = out.len();
    let find = |entries: &[(Value, Value)], key: &Value| {
        entries.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone())
    };
    for (key, value) in a {
        compare(&inside(path, key), Some(value), find(b, key).as_ref(), out);
    }
    for (key, value) in b.iter().filter(|(key, _)| find(a, key).is_none()) {
        compare(&inside(path, key), None, Some(value), out);
    }
    // The same entries in another order: a difference, since the order is kept.
    if out.len() == before {
        let keys = |entries: &[(Value, Value)]| Value::list(entries.iter().map(|(key, _)| key.clone()));
        out.push(Difference { path: format!("{path} (order)"), a: Some(keys(a)), b: Some(keys(b)) });
    }
}

fn inside(path: &str, key: &Value) -> String {
    match key.as_str() {
        Some(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') => {
            format!("{path}.{name}")
        }
        Some(name) => format!("{path}[{name:?}]"),
        None => format!("{path}[{}]", brief(key, 40)),
    }
}

/// Items are paired from the first that differs; those that are alike at the end are paired with one another.
fn compare_lists(path: &str, a: &[Value], b: &[Value], out: &mut Vec<Difference>) {
    let same_before = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (mid_a, mid_b) = (&a[same_before..], &b[same_before..]);
    let same_behind = mid_a.iter().rev().zip(mid_b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (mid_a, mid_b) = (&mid_a[..mid_a.len() - same_behind], &mid_b[..mid_b.len() - same_behind]);
    for at in 0..mid_a.len().max(mid_b.len()) {
        compare(&format!("{path}[{}]", same_before + at), mid_a.get(at), mid_b.get(at), out);
    }
}

impl Difference {
    /// Both sides, each on one line: of long texts the part that changed, with a little around it.
    pub(crate) fn sides(&self) -> (String, String) {
        let texts = |it: &Option<Value>| it.as_ref().and_then(|it| it.as_str().map(str::to_owned));
        if let (Some(a), Some(b)) = (texts(&self.a), texts(&self.b)) {
            return changed(&a, &b);
        }
        if let (Some(Value::Array(a)), Some(Value::Array(b))) =
            (self.a.as_ref().map(Value::plain), self.b.as_ref().map(Value::plain))
            && let Some(sides) = changed_elements(a, b)
        {
            return sides;
        }
        let side = |it: &Option<Value>| match it {
            None => "(nothing)".to_owned(),
            Some(value) => brief(value, CHANGED_CHARS),
        };
        (side(&self.a), side(&self.b))
    }
}

/// What differs between two texts, in the middle of what does not.
fn changed(a: &str, b: &str) -> (String, String) {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let before = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let behind = a[before..].iter().rev().zip(b[before..].iter().rev()).take_while(|(a, b)| a == b).count();
    let side = |text: &[char]| {
        let (from, to) = (before.saturating_sub(CONTEXT_CHARS), text.len() - behind);
        let until = (to + CONTEXT_CHARS).min(text.len());
        let middle: String = text[before..to].iter().collect();
        let around = |part: &[char]| part.iter().collect::<String>();
        let (start, end) = (if from > 0 { "…" } else { "" }, if until < text.len() { "…" } else { "" });
        let seen =
            [&around(&text[from..before]), &*cut(&middle, CHANGED_CHARS), &around(&text[to..until])].concat();
        format!("\"{start}{}{end}\"", shown(&seen))
    };
    (side(&a), side(&b))
}

/// The first element that differs, and how many do; nothing if the arrays are of different kinds.
fn changed_elements(a: &Array, b: &Array) -> Option<(String, String)> {
    if (a.dtype, &a.shape) != (b.dtype, &b.shape) {
        return None;
    }
    let size = a.dtype.item_bytes();
    let differ = |at: &usize| a.data[at * size..][..size] != b.data[at * size..][..size];
    let mut differing = (0..a.data.len() / size).filter(differ);
    let first = differing.next()?;
    let many = differing.count() + 1;
    let differ = if many == 1 { "differs" } else { "differ" };
    let side = |array: &Array| {
        let name = brief(&Value::Array(std::sync::Arc::new(array.clone())), CHANGED_CHARS);
        let element = element(array.dtype, &array.data[first * size..][..size]);
        format!(
            "{name} element {first} is {}, {many} of {} {differ}",
            brief(&element, 40),
            array.data.len() / size
        )
    };
    Some((side(a), side(b)))
}

/// One element of an array, as a value.
fn element(dtype: Dtype, bytes: &[u8]) -> Value {
    let mut wide = [0; 8];
    let length = bytes.len().min(8);
    wide[..length].copy_from_slice(&bytes[..length]);
    let unsigned = u64::from_le_bytes(wide);
    // Shifted up and down again, the sign fills what was not there.
    let empty_bits = 64 - 8 * length as u32;
    let signed = ((unsigned << empty_bits) as i64) >> empty_bits;
    match dtype {
        Dtype::Bool => Value::Bool(unsigned != 0),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Value::Int(signed),
        Dtype::U8 | Dtype::U16 | Dtype::U32 => Value::Int(unsigned as i64),
        Dtype::U64 => Value::from(unsigned.to_string()),
        Dtype::F32 => Value::Float(f64::from(f32::from_bits(unsigned as u32))),
        Dtype::F64 => Value::Float(f64::from_bits(unsigned)),
        Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::F8E4M3 | Dtype::F8E5M2 => {
            Value::from(crate::numbers::hex(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn found(a: &Value, b: &Value) -> Vec<(String, String, String)> {
        let mut out = Vec::new();
        compare("x", Some(a), Some(b), &mut out);
        out.iter().map(|it| (it.path.clone(), it.sides().0, it.sides().1)).collect()
    }

    fn one(a: impl Into<Value>, b: impl Into<Value>) -> (String, String, String) {
        let found = found(&a.into(), &b.into());
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    fn told(path: &str, a: &str, b: &str) -> (String, String, String) {
        (path.to_owned(), a.to_owned(), b.to_owned())
    }

    fn ints(numbers: &[i64]) -> Value {
        Value::list(numbers.iter().map(|number| Value::Int(*number)).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_the_same_has_no_difference() {
        for value in [Value::Null, Value::Float(f64::NAN), ints(&[1, 2]), Value::map([("a", ints(&[1]))])] {
            assert_eq!(found(&value, &value), []);
        }
    }

    #[test]
    fn the_path_leads_to_the_place() {
        let message = |text: &str| Value::map([("role", Value::from("user")), ("content", text.into())]);
        let (a, b) =
            (Value::list([message("hi"), message("one")]), Value::list([message("hi"), message("two")]));
        assert_eq!(found(&a, &b), [told("x[1].content", "\"one\"", "\"two\"")]);
        let (a, b) = (Value::map([("odd key", Value::Int(1))]), Value::map([("b", Value::Int(1))]));
        assert_eq!(found(&a, &b), [told("x[\"odd key\"]", "1", "(nothing)"), told("x.b", "(nothing)", "1")]);
        let (a, b) = (
            Value::map([("a", Value::Null), ("b", Value::Null)]),
            Value::map([("b", Value::Null), ("a", Value::Null)]),
        );
        assert_eq!(found(&a, &b), [told("x (order)", "[\"a\", \"b\"]", "[\"b\", \"a\"]")]);
        assert_eq!(one(1i64, 1.0), told("x", "1", "1.0"));
    }

    /// Something put into the middle of a list does not make all that follows look changed.
    #[test]
    fn what_is_inserted_is_told_alone() {
        assert_eq!(found(&ints(&[1, 2, 3]), &ints(&[1, 9, 2, 3])), [told("x[1]", "(nothing)", "9")]);
        assert_eq!(found(&ints(&[1, 2, 2]), &ints(&[1, 2])), [told("x[2]", "2", "(nothing)")]);
        assert_eq!(found(&ints(&[]), &ints(&[4])), [told("x[0]", "(nothing)", "4")]);
    }

    #[test]
    fn of_a_long_text_the_changed_part_is_shown() {
        let around = "a long way round the shop and back again ".repeat(20);
        let (a, b) = (format!("{around}aisle 3{around}"), format!("{around}aisle 14{around}"));
        assert_eq!(
            one(a.as_str(), b.as_str()),
            told(
                "x",
                "\"…op and back again aisle 3a long way round the sho…\"",
                "\"…op and back again aisle 14a long way round the sho…\""
            )
        );
        assert_eq!(one("aaa", "aa"), told("x", "\"aaa\"", "\"aa\""));
        assert_eq!(one("Käse", "Kuse"), told("x", "\"Käse\"", "\"Kuse\""));
        let (_, long, hostile) = one("x".repeat(5000).as_str(), "y\u{1b}[2J");
        assert_eq!((long.chars().count(), &*hostile), (CHANGED_CHARS + 2, "\"y\\u{1b}[2J\""));
    }

    #[test]
    fn of_arrays_the_first_element_that_differs() {
        let array = |numbers: &[i32]| {
            let data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            Value::Array(Arc::new(Array::new(Dtype::I32, vec![numbers.len() as u64], data).unwrap()))
        };
        assert_eq!(
            one(array(&[1, -2, 3, 4]), array(&[1, -3, 3, 5])),
            told(
                "x",
                "<int32 [4]> element 1 is -2, 2 of 4 differ",
                "<int32 [4]> element 1 is -3, 2 of 4 differ"
            )
        );
        assert_eq!(one(array(&[1]), array(&[1, 2])), told("x", "<int32 [1]>", "<int32 [2]>"));
        assert_eq!(element(Dtype::I8, &[255]), Value::Int(-1));
        assert_eq!(element(Dtype::U16, &[255, 255]), Value::Int(65535));
        assert_eq!(element(Dtype::F32, &0.5f32.to_le_bytes()), Value::Float(0.5));
    }
}
