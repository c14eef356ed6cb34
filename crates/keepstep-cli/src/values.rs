//! Recorded values as people read them: on one line, or in full.
//!
//! Everything that was recorded passes through here or through JSON on its way to a screen, so it is escaped here.

use keepstep::Value;
use keepstep::export::json::big_digits;

use crate::columns::cut;
use crate::numbers::{bytes, count};
use crate::screen::shown;

/// Integers of more bytes are shown by their length.
const DIGITS_OF_BYTES_MAX: usize = 64;

/// A value on one line, at most so many characters of it.
pub(crate) fn brief(value: &Value, chars_max: usize) -> String {
    let mut out = String::new();
    write_brief(&mut out, value, chars_max, true);
    cut(&out, chars_max).into_owned()
}

fn write_brief(out: &mut String, value: &Value, chars_max: usize, is_outermost: bool) {
    // What would be cut off need not be made; a character has four bytes at most.
    if out.len() > chars_max * 4 {
        return;
    }
    match value.plain() {
        Value::Str(text) if is_outermost => out.push_str(&shown(cut(text, chars_max + 1).as_ref())),
        Value::Str(text) => *out += &format!("\"{}\"", shown(cut(text, chars_max + 1).as_ref())),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_brief(out, item, chars_max, false);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (at, (key, item)) in entries.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_brief(out, key, chars_max, true);
                out.push_str(": ");
                write_brief(out, item, chars_max, false);
            }
            out.push('}');
        }
        Value::Typed(name, inner) => {
            *out += &format!("{}(", shown(name));
            write_brief(out, inner, chars_max, false);
            out.push(')');
        }
        other => out.push_str(&leaf(other)),
    }
}

fn bits_of(magnitude: &[u8]) -> u64 {
    let top = magnitude.iter().rposition(|&byte| byte != 0);
    top.map_or(0, |top| top as u64 * 8 + u64::from(8 - magnitude[top].leading_zeros()))
}

/// A value without parts.
fn leaf(value: &Value) -> String {
    match value.plain() {
        Value::Null | Value::Shared(_) => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        // Thousands of digits tell nobody anything; `export` and --json have them all.
        Value::Big { magnitude, .. } if magnitude.len() > DIGITS_OF_BYTES_MAX => {
            format!("<an integer of {} bits>", count(bits_of(magnitude)))
        }
        Value::Big { negative, magnitude } => big_digits(*negative, magnitude),
        Value::Float(number) => format!("{number:?}"),
        Value::Str(text) => shown(text).into_owned(),
        Value::Bytes(data) => format!("<{} of bytes>", bytes(data.len() as u64)),
        Value::Array(array) => format!("<{} {:?}>", array.dtype.name(), array.shape),
        Value::Media(kind, data) => format!("<{}, {}>", shown(kind), bytes(data.len() as u64)),
        Value::Repr(name, text) => format!("<{}: {}>", shown(name), shown(text)),
        Value::Lost(_) => "<lost to damage>".to_owned(),
        Value::List(_) | Value::Map(_) | Value::Typed(..) => "…".to_owned(),
    }
}

/// A value in full, on as many lines as it takes, none of them indented less than `indent`.
pub(crate) fn lines(value: &Value, indent: usize) -> Vec<String> {
    let mut out = Vec::new();
    add_lines(&mut out, "", value, indent);
    out
}

/// `label` stands before the first line.
fn add_lines(out: &mut Vec<String>, label: &str, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    let mut head = |rest: &str| out.push(format!("{pad}{label}{rest}").trim_end().to_owned());
    match value.plain() {
        // The line breaks of a text are kept; they are what makes it readable. All else is escaped.
        Value::Str(text) if text.contains('\n') => {
            head("");
            let inner = " ".repeat(indent + if label.is_empty() { 0 } else { 2 });
            out.extend(text.lines().map(|line| format!("{inner}{}", shown(line)).trim_end().to_owned()));
        }
        Value::List(items) if items.is_empty() => head("[]"),
        Value::Map(entries) if entries.is_empty() => head("{}"),
        Value::List(items) => {
            let step = if label.is_empty() { 0 } else { 2 };
            if step > 0 {
                head("");
            }
            for item in items.iter() {
                let inner = lines(item, indent + step + 2);
                for (at, line) in inner.iter().enumerate() {
                    let dash = format!("{}- {}", " ".repeat(indent + step), line.trim_start());
                    out.push(if at == 0 { dash } else { line.clone() });
                }
            }
        }
        Value::Map(entries) => {
            let step = if label.is_empty() { 0 } else { 2 };
            if step > 0 {
                head("");
            }
            for (key, item) in entries.iter() {
                add_lines(out, &format!("{}: ", brief(key, 200)), item, indent + step);
            }
        }
        Value::Typed(name, inner) => {
            head(&format!("<{}>", shown(name)));
            add_lines(out, "", inner, indent + 2);
        }
        other => head(&leaf(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Value {
        let message = |role: &str, content: &str| {
            Value::map([("role", Value::from(role)), ("content", content.into())])
        };
        Value::list([message("system", "Be brief."), message("user", "one\ntwo\u{1b}[2J")])
    }

    #[test]
    fn a_brief_value_is_one_line_that_cannot_hurt() {
        assert_eq!(
            brief(&messages(), 200),
            r#"[{role: "system", content: "Be brief."}, {role: "user", content: "one\ntwo\u{1b}[2J"}]"#
        );
        assert_eq!(brief(&messages(), 10), "[{role: \"…");
        assert_eq!(brief(&Value::from("a\rb"), 10), "a\\rb");
        assert_eq!(brief(&Value::Lost([0; 16]), 20), "<lost to damage>");
    }

    /// `show` of an integer of 128 KB took 15 s, and filled the screen.
    #[test]
    fn a_huge_integer_is_shown_by_its_length() {
        let big = |bytes: usize| {
            let mut magnitude = vec![0xa5; bytes];
            magnitude[bytes - 1] = 0x10;
            Value::Big { negative: false, magnitude: magnitude.into() }
        };
        assert_eq!(brief(&big(128 << 10), 80), "<an integer of 1,048,573 bits>");
        assert_eq!(lines(&Value::map([("n", big(128 << 10))]), 0), ["n: <an integer of 1,048,573 bits>"]);
        let shown = brief(&big(12), 80);
        assert!(shown.len() > 20 && shown.chars().all(|c| c.is_ascii_digit()), "{shown}");
    }

    #[test]
    fn a_value_in_full_keeps_the_line_breaks_of_texts() {
        let known = [
            "- role: system",
            "  content: Be brief.",
            "- role: user",
            "  content:",
            "    one",
            "    two\\u{1b}[2J",
        ];
        assert_eq!(lines(&messages(), 0), known);
        let nested =
            Value::map([("list", Value::list([Value::list([Value::Int(1)]), Value::map::<&str>([])]))]);
        assert_eq!(lines(&nested, 2), ["  list:", "    - - 1", "    - {}"]);
    }
}
