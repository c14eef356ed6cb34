//! `keepstep dump`, hidden: every record in the canonical form of `tests/second_reader/README.md`.
//!
//! The second reader prints the same bytes; any difference is a mistake in one of the two, or in the spec.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use keepstep::export::json::big_digits;
use keepstep::format::commit::{Bind, What};
use keepstep::format::frame::KIND_SKIPPABLE;
use keepstep::format::kind::Kind;
use keepstep::read::{Catalog, Item, Record};
use keepstep::{Id, Value};

use crate::failure::{Exit, Outcome};
use crate::numbers::hex;
use crate::place::open_to_read;
use crate::reading;
use crate::screen::Screen;

/// Integers up to here are exact in every reader of JSON.
const EXACT_MAX: u64 = 1 << 53;

/// Arguments of `keepstep dump`. Hidden.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The store
    store: PathBuf,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let store = open_to_read(&args.store)?;
    let catalog = store.catalog()?;
    let mut has_damage = false;
    for group in groups(&catalog) {
        let mut records: Vec<(u8, Record)> = Vec::new();
        for bind in &group.binds {
            for item in catalog.bind_reader(&group.writer, bind)?.records() {
                match item? {
                    // What belongs to an episode, and must be known: not what may be skipped.
                    Item::Record(record) if (Kind::FIRST_RECORD..KIND_SKIPPABLE).contains(&record.kind) => {
                        has_damage |= !record.lost.is_empty();
                        records.push((bind.what.number(), *record));
                    }
                    Item::Record(_) => {}
                    // Copies keep their sequences, and begin with the first that was copied.
                    Item::Gap(gap) if gap.from == 0 && matches!(bind.what, What::Copied { .. }) => {}
                    Item::Damaged(_) | Item::Gap(_) => has_damage = true,
                }
            }
        }
        records.sort_by_key(|(what, record)| (record.seq, *what));
        for (what, record) in &records {
            write_record(screen.out(), *what, &group, record)?;
        }
    }
    let troubles = reading::tell_troubles(&catalog, screen)?;
    Ok(if has_damage { Exit::Lost } else { troubles })
}

/// What has the same id, attempt and writer: sorted together by sequence.
struct Group {
    id: Id,
    attempt: u32,
    writer: Id,
    binds: Vec<Bind>,
}

fn groups(catalog: &Catalog) -> Vec<Group> {
    let mut groups: BTreeMap<(Id, u32, Id), Group> = BTreeMap::new();
    for (writer, bind) in catalog.subjects() {
        let Bind { id, attempt, .. } = bind;
        let group =
            groups.entry((id, attempt, writer)).or_insert(Group { id, attempt, writer, binds: Vec::new() });
        group.binds.push(bind);
    }
    groups.into_values().collect()
}

fn write_record(out: &mut impl Write, what: u8, group: &Group, record: &Record) -> io::Result<()> {
    let Group { id, attempt, writer, .. } = group;
    let (seq, kind) = (record.seq, record.kind);
    write!(
        out,
        r#"{{"what":{what},"id":"{id}","attempt":{attempt},"writer":"{writer}","seq":{seq},"kind":{kind},"fields":{{"#
    )?;
    for (at, (number, value)) in record.fields.iter().enumerate() {
        write!(out, r#"{}"{number}":"#, if at > 0 { "," } else { "" })?;
        write_value(out, value)?;
    }
    out.write_all(b"}}\n")
}

fn write_value(out: &mut impl Write, value: &Value) -> io::Result<()> {
    match value.plain() {
        Value::Null | Value::Shared(_) => out.write_all(b"null"),
        Value::Bool(truth) => write!(out, "{truth}"),
        Value::Int(number) if number.unsigned_abs() <= EXACT_MAX => write!(out, "{number}"),
        Value::Int(number) => write!(out, r#""{number}""#),
        Value::Big { negative, magnitude } => write!(out, r#""{}""#, big_digits(*negative, magnitude)),
        Value::Float(number) => write!(out, r#"{{"$float":"{}"}}"#, hex(&number.to_le_bytes())),
        Value::Str(text) => write_text(out, text),
        Value::Bytes(data) => write!(out, r#"{{"$bytes":"{}"}}"#, hex(data)),
        Value::List(items) => {
            out.write_all(b"[")?;
            for (at, item) in items.iter().enumerate() {
                out.write_all(if at > 0 { b"," } else { b"" })?;
                write_value(out, item)?;
            }
            out.write_all(b"]")
        }
        Value::Map(entries) => {
            out.write_all(br#"{"$map":["#)?;
            for (at, (key, item)) in entries.iter().enumerate() {
                out.write_all(if at > 0 { b",[" } else { b"[" })?;
                write_value(out, key)?;
                out.write_all(b",")?;
                write_value(out, item)?;
                out.write_all(b"]")?;
            }
            out.write_all(b"]}")
        }
        Value::Array(array) => {
            let shape: Vec<String> = array.shape.iter().map(u64::to_string).collect();
            write!(
                out,
                r#"{{"$array":[{},[{}],"{}"]}}"#,
                array.dtype as u8,
                shape.join(","),
                hex(&array.data)
            )
        }
        Value::Media(kind, data) => {
            out.write_all(br#"{"$media":["#)?;
            write_text(out, kind)?;
            write!(out, r#","{}"]}}"#, hex(data))
        }
        Value::Typed(name, inner) => {
            out.write_all(br#"{"$typed":["#)?;
            write_text(out, name)?;
            out.write_all(b",")?;
            write_value(out, inner)?;
            out.write_all(b"]}")
        }
        Value::Repr(name, text) => {
            out.write_all(br#"{"$repr":["#)?;
            write_text(out, name)?;
            out.write_all(b",")?;
            write_text(out, text)?;
            out.write_all(b"]}")
        }
        Value::Lost(hash) => write!(out, r#"{{"$lost":"{}"}}"#, hex(hash)),
    }
}

/// Escapes what JSON must have escaped, and nothing else.
fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            0x08 => "\\b",
            b'\t' => "\\t",
            b'\n' => "\\n",
            0x0c => "\\f",
            b'\r' => "\\r",
            0x00..0x20 => "",
            _ => continue,
        };
        out.write_all(&text.as_bytes()[from..at])?;
        from = at + 1;
        match escape {
            "" => write!(out, "\\u{byte:04x}")?,
            escape => out.write_all(escape.as_bytes())?,
        }
    }
    out.write_all(&text.as_bytes()[from..])?;
    out.write_all(b"\"")
}
