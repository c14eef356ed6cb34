//! A recorded value as JSON, for people and their scripts.
//!
//! Texts, numbers, lists and maps look as one expects. The rest has a `$` key; a map that could be mistaken for that is
//! written out as pairs. (`dump` has a form of its own, which keeps every bit.)

use keepstep::Value;
use keepstep_format::value::{Array, Dtype};

use super::Json;
use crate::numbers::{big_digits, hex};

/// A recorded value as JSON.
pub(crate) fn value(value: &Value) -> Json {
    match value.plain() {
        Value::Null | Value::Shared(_) => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int(number) => Json::from(*number),
        Value::Big { negative, magnitude } => Json::Digits(big_digits(*negative, magnitude)),
        Value::Float(number) => Json::Float(*number),
        Value::Str(text) => Json::from(&**text),
        Value::Bytes(data) => tagged("$bytes", Json::Text(hex(data))),
        Value::List(items) => Json::list(items.iter().map(self::value)),
        Value::Map(entries) => map(entries),
        Value::Array(array) => self::array(array),
        Value::Media(kind, data) => {
            Json::map([("$media", Json::from(&**kind)), ("bytes", Json::Text(hex(data)))])
        }
        Value::Typed(name, inner) => {
            Json::map([("$type", Json::from(&**name)), ("value", self::value(inner))])
        }
        Value::Repr(name, text) => Json::map([("$repr", Json::from(&**text)), ("type", Json::from(&**name))]),
        Value::Lost(hash) => tagged("$lost", Json::Text(hex(hash))),
    }
}

fn tagged(tag: &str, json: Json) -> Json {
    Json::map([(tag, json)])
}

fn map(entries: &[(Value, Value)]) -> Json {
    let plain = |key: &Value| key.as_str().is_some_and(|key| !key.starts_with('$'));
    if entries.iter().all(|(key, _)| plain(key)) {
        return Json::map(
            entries.iter().map(|(key, inner)| (key.as_str().unwrap_or_default(), value(inner))),
        );
    }
    let pairs = entries.iter().map(|(key, inner)| Json::list([value(key), value(inner)]));
    tagged("$map", Json::list(pairs))
}

fn array(array: &Array) -> Json {
    let shape = Json::list(array.shape.iter().map(|&n| Json::from(n)));
    let data = match elements(array) {
        Some(elements) => ("data", Json::List(elements)),
        None => ("hex", Json::Text(hex(&array.data))),
    };
    Json::map([("$array", Json::from(array.dtype.name())), ("shape", shape), data])
}

/// The elements, where JSON has numbers for them.
fn elements(array: &Array) -> Option<Vec<Json>> {
    fn read<const N: usize>(data: &[u8], one: impl Fn([u8; N]) -> Json) -> Vec<Json> {
        data.as_chunks::<N>().0.iter().map(|bytes| one(*bytes)).collect()
    }
    let data = &array.data;
    Some(match array.dtype {
        Dtype::Bool => read(data, |[byte]| Json::Bool(byte != 0)),
        Dtype::I8 => read(data, |bytes| Json::from(i32::from(i8::from_le_bytes(bytes)))),
        Dtype::I16 => read(data, |bytes| Json::from(i32::from(i16::from_le_bytes(bytes)))),
        Dtype::I32 => read(data, |bytes| Json::from(i32::from_le_bytes(bytes))),
        Dtype::I64 => read(data, |bytes| Json::from(i64::from_le_bytes(bytes))),
        Dtype::U8 => read(data, |bytes| Json::from(u8::from_le_bytes(bytes))),
        Dtype::U16 => read(data, |bytes| Json::from(u32::from(u16::from_le_bytes(bytes)))),
        Dtype::U32 => read(data, |bytes| Json::from(u32::from_le_bytes(bytes))),
        Dtype::U64 => read(data, |bytes| Json::from(u64::from_le_bytes(bytes))),
        // Through its own shortest digits: 0.1f32 is shown as 0.1, and comes back the same.
        Dtype::F32 => read(data, |bytes| short_f32(f32::from_le_bytes(bytes))),
        Dtype::F64 => read(data, |bytes| Json::Float(f64::from_le_bytes(bytes))),
        Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::F8E4M3 | Dtype::F8E5M2 => return None,
    })
}

fn short_f32(number: f32) -> Json {
    let float = if number.is_finite() { format!("{number:?}").parse() } else { Ok(f64::from(number)) };
    Json::Float(float.unwrap_or(f64::from(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_looks_as_one_expects_and_the_rest_is_marked() {
        let floats: Vec<u8> = [0.1f32, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        let array = Array::new(Dtype::F32, vec![2], floats).unwrap();
        let cases = [
            (Value::map([("role", Value::from("user")), ("n", Value::Int(7))]), r#"{"role":"user","n":7}"#),
            (Value::map([("$float", Value::from("nan"))]), r#"{"$map":[["$float","nan"]]}"#),
            (Value::map([(Value::Int(1), Value::Null)]), r#"{"$map":[[1,null]]}"#),
            (Value::bytes([0, 255]), r#"{"$bytes":"00ff"}"#),
            (
                Value::Array(Arc::new(array)),
                r#"{"$array":"float32","shape":[2],"data":[0.1,{"$float":"nan"}]}"#,
            ),
            (
                Value::Big { negative: true, magnitude: Arc::from([0u8, 0, 0, 0, 0, 0, 0, 0, 1].as_slice()) },
                "-18446744073709551616",
            ),
            (Value::Repr(Arc::from("socket"), Arc::from("<s>")), r#"{"$repr":"<s>","type":"socket"}"#),
            (Value::Lost([0xab; 16]), r#"{"$lost":"abababababababababababababababab"}"#),
        ];
        for (recorded, json) in cases {
            assert_eq!(value(&recorded).to_string(), json, "{recorded:?}");
        }
    }
}
