//! Values: a superset of JSON that keeps bytes, typed arrays, big integers, media and type names.
//!
//! A value is cheap to clone. Parts that steps share are shared in memory too.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::hash::Hash;

/// Tags of the encoding, as in the spec.
pub mod tag {
    #![allow(missing_docs)]
    pub const NULL: u8 = 0x00;
    pub const FALSE: u8 = 0x01;
    pub const TRUE: u8 = 0x02;
    pub const INT: u8 = 0x03;
    pub const BIG: u8 = 0x04;
    pub const FLOAT: u8 = 0x05;
    pub const STR: u8 = 0x06;
    pub const BYTES: u8 = 0x07;
    pub const LIST: u8 = 0x08;
    pub const MAP: u8 = 0x09;
    pub const ARRAY: u8 = 0x0a;
    pub const MEDIA: u8 = 0x0b;
    pub const TYPED: u8 = 0x0c;
    pub const REPR: u8 = 0x0d;
    pub const REF: u8 = 0x20;
    pub const LIST_MORE: u8 = 0x21;
    pub const STR_MORE: u8 = 0x22;
    pub const BYTES_MORE: u8 = 0x23;
    pub const ARRAY_MORE: u8 = 0x24;
}

/// How deep values may be nested.
pub const DEPTH_MAX: usize = 128;
/// How many dimensions an array may have.
pub const DIMENSIONS_MAX: usize = 32;

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool = 1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    Bf16,
    C64,
    C128,
    F8E4M3,
    F8E5M2,
}

impl Dtype {
    /// All of them, in the order of their numbers.
    pub const ALL: [Dtype; 17] = [
        Dtype::Bool,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::I64,
        Dtype::U8,
        Dtype::U16,
        Dtype::U32,
        Dtype::U64,
        Dtype::F16,
        Dtype::F32,
        Dtype::F64,
        Dtype::Bf16,
        Dtype::C64,
        Dtype::C128,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
    ];

    /// The dtype with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Bytes of one element.
    pub fn item_bytes(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        [
            "bool",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "complex64",
            "complex128",
            "float8_e4m3",
            "float8_e5m2",
        ][self as usize - 1]
    }
}

/// A typed array: elements in C order, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape; empty for a single element.
    pub shape: Vec<u64>,
    /// The elements.
    pub data: Vec<u8>,
}

impl Array {
    /// An array, if the data has the length that type and shape require.
    pub fn new(dtype: Dtype, shape: Vec<u64>, data: Vec<u8>) -> Option<Self> {
        let fits = shape.len() <= DIMENSIONS_MAX
            && elements(&shape)?.checked_mul(dtype.item_bytes() as u64)? == data.len() as u64;
        fits.then_some(Self { dtype, shape, data })
    }
}

/// How many elements a shape has, if that fits 64 bits.
pub fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
}

/// A value whose hash is remembered, so that recording it again costs nothing.
pub struct Shared {
    /// The value itself.
    pub value: Value,
    pub(crate) memo: OnceLock<Memo>,
}

/// What is remembered of a shared value, for one store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memo {
    pub(crate) key_tag: u64,
    pub(crate) hash: Hash,
    pub(crate) full_bytes: u64,
}

/// Anything that can be recorded.
#[derive(Clone)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A larger integer: sign and little-endian magnitude.
    Big {
        /// True if it is below zero.
        negative: bool,
        /// Without leading zero bytes.
        magnitude: Arc<[u8]>,
    },
    /// A float, bit by bit.
    Float(f64),
    /// A text.
    Str(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map, in the caller's order.
    Map(Arc<Vec<(Value, Value)>>),
    /// A typed array.
    Array(Arc<Array>),
    /// An image, a sound, …: its media type and its bytes, which are compressed already.
    Media(Arc<str>, Arc<[u8]>),
    /// A structure with the name of its type.
    Typed(Arc<str>, Arc<Value>),
    /// A value that could not be recorded: the name of its type, and its `repr`.
    Repr(Arc<str>, Arc<str>),
    /// A value whose hash is remembered. It equals the value in it; reading never returns it.
    Shared(Arc<Shared>),
    /// A value that was lost to damage in storage; it had this hash. It cannot be recorded.
    Lost(Hash),
}

impl Value {
    /// A list.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Self {
        Self::List(Arc::new(items.into_iter().collect()))
    }

    /// A map with text keys.
    pub fn map<K: Into<Value>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Map(Arc::new(entries.into_iter().map(|(key, value)| (key.into(), value)).collect()))
    }

    /// Bytes.
    pub fn bytes(data: impl AsRef<[u8]>) -> Self {
        Self::Bytes(Arc::from(data.as_ref()))
    }

    /// The same value; its hash is remembered after it was recorded.
    pub fn shared(self) -> Self {
        Self::Shared(Arc::new(Shared { value: self, memo: OnceLock::new() }))
    }

    /// The value inside, if it is shared.
    pub fn plain(&self) -> &Value {
        match self {
            Self::Shared(shared) => shared.value.plain(),
            other => other,
        }
    }

    /// The value under a text key of a map.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self.plain() {
            Self::Map(entries) => entries.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self.plain() {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one of 64 bits.
    pub fn as_int(&self) -> Option<i64> {
        match self.plain() {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The float, if it is one.
    pub fn as_float(&self) -> Option<f64> {
        match self.plain() {
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The bytes, if it is bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self.plain() {
            Self::Bytes(data) => Some(data),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self.plain() {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// True if some part of it was lost to damage.
    pub fn has_lost(&self) -> bool {
        match self.plain() {
            Self::Lost(_) => true,
            Self::List(items) => items.iter().any(Value::has_lost),
            Self::Map(entries) => entries.iter().any(|(_, value)| value.has_lost()),
            Self::Typed(_, value) => value.has_lost(),
            _ => false,
        }
    }
}

impl PartialEq for Value {
    /// Floats are compared bit by bit: NaN equals itself, as a recorded value must.
    fn eq(&self, other: &Self) -> bool {
        match (self.plain(), other.plain()) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Big { negative: n, magnitude: a }, Self::Big { negative: m, magnitude: b }) => {
                n == m && a == b
            }
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Media(k, a), Self::Media(l, b)) => k == l && a == b,
            (Self::Typed(k, a), Self::Typed(l, b)) => k == l && a == b,
            (Self::Repr(k, a), Self::Repr(l, b)) => k == l && a == b,
            (Self::Lost(a), Self::Lost(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plain() {
            Self::Null => f.write_str("null"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Big { negative, magnitude } => {
                write!(f, "{}big({} bytes)", if *negative { "-" } else { "" }, magnitude.len())
            }
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Str(text) => write!(f, "{text:?}"),
            Self::Bytes(data) => write!(f, "bytes({})", data.len()),
            Self::List(items) => f.debug_list().entries(items.iter()).finish(),
            Self::Map(entries) => f.debug_map().entries(entries.iter().map(|(k, v)| (k, v))).finish(),
            Self::Array(array) => write!(f, "{}{:?}", array.dtype.name(), array.shape),
            Self::Media(kind, data) => write!(f, "{kind}({} bytes)", data.len()),
            Self::Typed(name, value) => write!(f, "{name}({value:?})"),
            Self::Repr(name, text) => write!(f, "repr {name}({text:?})"),
            Self::Lost(_) => f.write_str("<lost>"),
            Self::Shared(_) => Ok(()), // plain() looked through it
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(Arc::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(Arc::from(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

/// Puts the lowest bytes of all elements first, then the next: similar bytes come together, and compress better.
pub fn shuffle(out: &mut Vec<u8>, data: &[u8], item_bytes: usize) {
    if item_bytes <= 1 || data.is_empty() {
        out.extend_from_slice(data);
        return;
    }
    out.reserve(data.len());
    match item_bytes {
        2 => put_planes::<2>(out, data),
        4 => put_planes::<4>(out, data),
        8 => put_planes::<8>(out, data),
        _ => (0..item_bytes).for_each(|plane| out.extend(data[plane..].iter().step_by(item_bytes))),
    }
}

/// If the compiler knows the size, it handles many elements at once.
fn put_planes<const ITEM_BYTES: usize>(out: &mut Vec<u8>, data: &[u8]) {
    for plane in 0..ITEM_BYTES {
        out.extend(data.chunks_exact(ITEM_BYTES).map(|item| item[plane]));
    }
}

/// Undoes [`shuffle`].
pub fn unshuffle(data: &[u8], item_bytes: usize) -> Vec<u8> {
    if item_bytes <= 1 || data.is_empty() {
        return data.to_vec();
    }
    let count = data.len() / item_bytes;
    let mut out = vec![0; data.len()];
    for (plane, bytes) in data.chunks_exact(count.max(1)).enumerate().take(item_bytes) {
        for (element, byte) in bytes.iter().enumerate() {
            out[element * item_bytes + plane] = *byte;
        }
    }
    out
}
