//! Recorded values as JSON, always a valid document, one line each.
//!
//! Texts, numbers, lists and maps are written as usual. A value that JSON does not have is an object with one `$`
//! key; a map that could be mistaken for that is written as pairs. Characters that could move a cursor are escaped,
//! so that the result can be shown on a terminal.

use std::borrow::Cow;
use std::fmt::{self, Write};

use keepstep_format::value::{Array, Dtype, Value};

pub use super::digits::big_digits;

/// Writes a value.
pub fn write_value(out: &mut impl Write, value: &Value) -> fmt::Result {
    match value.plain() {
        Value::Null | Value::Shared(_) => out.write_str("null"),
        Value::Bool(truth) => out.write_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => write!(out, "{number}"),
        Value::Big { negative, magnitude } => out.write_str(&big_digits(*negative, magnitude)),
        Value::Float(number) => write_float(out, *number),
        Value::Str(text) => write_text(out, text),
        Value::Bytes(data) => {
            out.write_str(r#"{"$bytes":"#)?;
            write_base64(out, data)?;
            out.write_str("}")
        }
        Value::List(items) => write_list(out, items),
        Value::Map(entries) => write_map(out, entries),
        Value::Array(array) => write_array(out, array),
        Value::Media(kind, data) => {
            out.write_str(r#"{"$media":"#)?;
            write_text(out, kind)?;
            out.write_str(r#","bytes":"#)?;
            write_base64(out, data)?;
            out.write_str("}")
        }
        Value::Typed(name, inner) => {
            out.write_str(r#"{"$type":"#)?;
            write_text(out, name)?;
            out.write_str(r#","value":"#)?;
            write_value(out, inner)?;
            out.write_str("}")
        }
        Value::Repr(name, text) => {
            out.write_str(r#"{"$repr":"#)?;
            write_text(out, text)?;
            out.write_str(r#","type":"#)?;
            write_text(out, name)?;
            out.write_str("}")
        }
        Value::Lost(hash) => {
            out.write_str(r#"{"$lost":""#)?;
            hash.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
            out.write_str("\"}")
        }
    }
}

fn write_list(out: &mut impl Write, items: &[Value]) -> fmt::Result {
    out.write_str("[")?;
    for (at, item) in items.iter().enumerate() {
        out.write_str(if at > 0 { "," } else { "" })?;
        write_value(out, item)?;
    }
    out.write_str("]")
}

fn write_map(out: &mut impl Write, entries: &[(Value, Value)]) -> fmt::Result {
    let is_plain = |key: &Value| key.as_str().is_some_and(|key| !key.starts_with('$'));
    if !entries.iter().all(|(key, _)| is_plain(key)) {
        return write_pairs(out, entries);
    }
    out.write_str("{")?;
    for (at, (key, value)) in entries.iter().enumerate() {
        out.write_str(if at > 0 { "," } else { "" })?;
        write_text(out, key.as_str().unwrap_or_default())?;
        out.write_str(":")?;
        write_value(out, value)?;
    }
    out.write_str("}")
}

fn write_pairs(out: &mut impl Write, entries: &[(Value, Value)]) -> fmt::Result {
    out.write_str(r#"{"$map":["#)?;
    for (at, (key, value)) in entries.iter().enumerate() {
        out.write_str(if at > 0 { ",[" } else { "[" })?;
        write_value(out, key)?;
        out.write_str(",")?;
        write_value(out, value)?;
        out.write_str("]")?;
    }
    out.write_str("]}")
}

fn write_array(out: &mut impl Write, array: &Array) -> fmt::Result {
    write!(out, r#"{{"$array":"{}","shape":["#, array.dtype.name())?;
    for (at, length) in array.shape.iter().enumerate() {
        write!(out, "{}{length}", if at > 0 { "," } else { "" })?;
    }
    out.write_str("],")?;
    if has_numbers(array.dtype) {
        out.write_str(r#""data":["#)?;
        write_elements(out, array)?;
        out.write_str("]}")
    } else {
        out.write_str(r#""bytes":"#)?;
        write_base64(out, &array.data)?;
        out.write_str("}")
    }
}

/// True if JSON has numbers for the elements.
fn has_numbers(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::F8E4M3 | Dtype::F8E5M2)
}

fn write_elements(out: &mut impl Write, array: &Array) -> fmt::Result {
    fn each<const N: usize, W: Write>(
        out: &mut W,
        data: &[u8],
        one: impl Fn(&mut W, [u8; N]) -> fmt::Result,
    ) -> fmt::Result {
        for (at, bytes) in data.as_chunks::<N>().0.iter().enumerate() {
            out.write_str(if at > 0 { "," } else { "" })?;
            one(out, *bytes)?;
        }
        Ok(())
    }
    let data = &array.data;
    match array.dtype {
        Dtype::Bool => each(out, data, |out, [byte]| write!(out, "{}", byte != 0)),
        Dtype::I8 => each(out, data, |out, bytes| write!(out, "{}", i8::from_le_bytes(bytes))),
        Dtype::I16 => each(out, data, |out, bytes| write!(out, "{}", i16::from_le_bytes(bytes))),
        Dtype::I32 => each(out, data, |out, bytes| write!(out, "{}", i32::from_le_bytes(bytes))),
        Dtype::I64 => each(out, data, |out, bytes| write!(out, "{}", i64::from_le_bytes(bytes))),
        Dtype::U8 => each(out, data, |out, bytes| write!(out, "{}", u8::from_le_bytes(bytes))),
        Dtype::U16 => each(out, data, |out, bytes| write!(out, "{}", u16::from_le_bytes(bytes))),
        Dtype::U32 => each(out, data, |out, bytes| write!(out, "{}", u32::from_le_bytes(bytes))),
        Dtype::U64 => each(out, data, |out, bytes| write!(out, "{}", u64::from_le_bytes(bytes))),
        Dtype::F32 => each(out, data, |out, bytes| write_f32(out, f32::from_le_bytes(bytes))),
        Dtype::F64 => each(out, data, |out, bytes| write_float(out, f64::from_le_bytes(bytes))),
        Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::F8E4M3 | Dtype::F8E5M2 => Ok(()),
    }
}

/// Writes the shortest digits of a 32-bit float: 0.1 is shown as 0.1, and reads back the same.
fn write_f32(out: &mut impl Write, number: f32) -> fmt::Result {
    if number.is_finite() { write!(out, "{number:?}") } else { write_float(out, f64::from(number)) }
}

/// Writes the shortest digits that read back as the same float. NaN and the infinities, which JSON lacks, are written
/// by name.
pub fn write_float(out: &mut impl Write, number: f64) -> fmt::Result {
    match number {
        _ if number.is_nan() => out.write_str(r#"{"$float":"nan"}"#),
        _ if number.is_infinite() => write!(out, r#"{{"$float":"{number}"}}"#),
        _ => write!(out, "{number:?}"),
    }
}

/// Writes a text. Characters that JSON requires to be escaped are escaped, and so are those that a terminal must not
/// see.
pub fn write_text(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_str("\"")?;
    let (bytes, mut from, mut at) = (text.as_bytes(), 0, 0);
    loop {
        at += plain_bytes(&bytes[at..]);
        let Some(c) = text[at..].chars().next() else { break };
        let behind = at + c.len_utf8();
        if c == '"' || c == '\\' || is_hostile(c) {
            out.write_str(&text[from..at])?;
            write_escaped(out, c)?;
            from = behind;
        }
        at = behind;
    }
    out.write_str(&text[from..])?;
    out.write_str("\"")
}

/// How many bytes at the beginning are ASCII that stands for itself. Most texts are nothing else, so many are looked at
/// at once.
fn plain_bytes(bytes: &[u8]) -> usize {
    const AT_ONCE: usize = 32;
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\');
    if !bytes.first().is_some_and(|byte| is_plain(*byte)) {
        return 0;
    }
    // Without a branch for each byte, so that the compiler takes many in one instruction.
    let are_plain = |bytes: &&[u8; AT_ONCE]| bytes.iter().fold(true, |all, byte| all & is_plain(*byte));
    let at = bytes.as_chunks::<AT_ONCE>().0.iter().take_while(are_plain).count() * AT_ONCE;
    at + bytes[at..].iter().take_while(|byte| is_plain(**byte)).count()
}

fn write_escaped(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        c => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}")),
    }
}

/// A text as it may be shown, on one line.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_hostile(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// True for characters that must not reach a terminal unescaped: controls, characters that change the direction of
/// text, and invisible ones that can hide a text in another. `_HOSTILE` in python/keepstep/_log.py has the same, and
/// a test compares them.
///
/// Variation selectors are not among them: emoji and some scripts need them.
pub fn is_hostile(c: char) -> bool {
    let is_unseen = || {
        matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
    };
    c.is_control() || is_unseen()
}

/// Writes bytes as base64.
fn write_base64(out: &mut impl Write, data: &[u8]) -> fmt::Result {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.write_str("\"")?;
    for three in data.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for letter in 0..4 {
            let six = (bits >> (18 - 6 * letter)) & 63;
            out.write_char(if letter <= three.len() { char::from(LETTERS[six as usize]) } else { '=' })?;
        }
    }
    out.write_str("\"")
}
