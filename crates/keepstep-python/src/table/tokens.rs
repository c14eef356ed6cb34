//! Token ids, log-probabilities and masks as lists of numbers, exactly as they were recorded.
//!
//! What is no plain list of numbers is not forced into one: it stands as JSON in the column `arrays`.

use half::{bf16, f16};
use keepstep::Value;
use keepstep::format::value::{Array, Dtype};

use super::cells::Cell;

/// The names of the lists that have columns of their own.
const LISTS: [&str; 4] = ["prompt", "ids", "logprobs", "mask"];

/// One of the lists of a step's tokens.
pub(super) fn list(tokens: &Value, name: &str) -> Cell {
    let Some(value) = tokens.get(name) else { return Cell::Null };
    let cell = match name {
        "prompt" | "ids" => ints(value).map(Cell::Ints),
        _ => floats(value).map(Cell::Floats),
    };
    cell.unwrap_or(Cell::Null)
}

/// What has no column: the other arrays by name, and lists that do not fit theirs.
pub(super) fn others(tokens: &Value) -> Cell {
    let mut others: Vec<(Value, Value)> = Vec::new();
    if let Some(Value::Map(arrays)) = tokens.get("arrays").map(Value::plain) {
        others.extend(arrays.iter().cloned());
    }
    for name in LISTS {
        if let (Some(value), Cell::Null) = (tokens.get(name), list(tokens, name)) {
            others.push((Value::from(name), value.clone()));
        }
    }
    if others.is_empty() { Cell::Null } else { Cell::json(Some(&Value::Map(others.into()))) }
}

/// Integers, if it is a list of them.
fn ints(value: &Value) -> Option<Vec<i64>> {
    match value.plain() {
        Value::List(items) => items.iter().map(int).collect(),
        Value::Array(array) if array.shape.len() == 1 => array_ints(array),
        _ => None,
    }
}

/// Floats, if it is a list of numbers, each of which a float of 64 bits holds exactly.
fn floats(value: &Value) -> Option<Vec<f64>> {
    match value.plain() {
        Value::List(items) => items.iter().map(float).collect(),
        Value::Array(array) if array.shape.len() == 1 => array_floats(array),
        _ => None,
    }
}

fn int(value: &Value) -> Option<i64> {
    match value.plain() {
        Value::Bool(truth) => Some(i64::from(*truth)),
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value.plain() {
        Value::Float(number) => Some(*number),
        value => exact(int(value)?),
    }
}

/// Above 2^53 not every integer is a float.
fn exact(number: i64) -> Option<f64> {
    (number.unsigned_abs() <= 1 << 53).then_some(number as f64)
}

fn each<const N: usize, T>(data: &[u8], of: impl Fn([u8; N]) -> Option<T>) -> Option<Vec<T>> {
    data.chunks_exact(N).map(|bytes| of(bytes.try_into().ok()?)).collect()
}

fn array_ints(array: &Array) -> Option<Vec<i64>> {
    let data = &array.data[..];
    match array.dtype {
        Dtype::Bool => each(data, |it: [u8; 1]| Some(i64::from(it[0] != 0))),
        Dtype::I8 => each(data, |it| Some(i64::from(i8::from_le_bytes(it)))),
        Dtype::I16 => each(data, |it| Some(i64::from(i16::from_le_bytes(it)))),
        Dtype::I32 => each(data, |it| Some(i64::from(i32::from_le_bytes(it)))),
        Dtype::I64 => each(data, |it| Some(i64::from_le_bytes(it))),
        Dtype::U8 => each(data, |it| Some(i64::from(u8::from_le_bytes(it)))),
        Dtype::U16 => each(data, |it| Some(i64::from(u16::from_le_bytes(it)))),
        Dtype::U32 => each(data, |it| Some(i64::from(u32::from_le_bytes(it)))),
        Dtype::U64 => each(data, |it| i64::try_from(u64::from_le_bytes(it)).ok()),
        _ => None,
    }
}

fn array_floats(array: &Array) -> Option<Vec<f64>> {
    let data = &array.data[..];
    match array.dtype {
        Dtype::F16 => each(data, |it| Some(f16::from_le_bytes(it).to_f64())),
        Dtype::Bf16 => each(data, |it| Some(bf16::from_le_bytes(it).to_f64())),
        Dtype::F32 => each(data, |it| Some(f64::from(f32::from_le_bytes(it)))),
        Dtype::F64 => each(data, |it| Some(f64::from_le_bytes(it))),
        _ => array_ints(array)?.into_iter().map(exact).collect(),
    }
}
