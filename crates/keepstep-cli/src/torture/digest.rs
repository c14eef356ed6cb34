//! A digest of values that is not the format's own: the witness must not share the store's mistakes.

use keepstep::Value;

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// 64 bits that differ when any bit of a value does, its type included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Of the fields of a step, in the order of their numbers.
    pub(crate) fn of_fields<'a>(fields: impl IntoIterator<Item = (u8, &'a Value)>) -> u64 {
        let mut digest = Self(START);
        for (number, value) in fields {
            digest.word(u64::from(number));
            digest.value(value);
        }
        digest.0
    }

    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn bytes(&mut self, data: &[u8]) {
        self.word(data.len() as u64);
        let (words, rest) = data.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    fn tagged(&mut self, tag: u64, data: &[u8]) {
        self.word(tag);
        self.bytes(data);
    }

    fn value(&mut self, value: &Value) {
        match value.plain() {
            Value::Null | Value::Shared(_) => self.word(1),
            Value::Bool(truth) => self.word(2 + u64::from(*truth)),
            Value::Int(number) => self.tagged(4, &number.to_le_bytes()),
            Value::Big { negative, magnitude } => self.tagged(5 + u64::from(*negative), magnitude),
            Value::Float(number) => self.tagged(7, &number.to_bits().to_le_bytes()),
            Value::Str(text) => self.tagged(8, text.as_bytes()),
            Value::Bytes(data) => self.tagged(9, data),
            Value::List(items) => {
                self.tagged(10, &(items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Map(entries) => {
                self.tagged(11, &(entries.len() as u64).to_le_bytes());
                entries.iter().flat_map(|(key, inner)| [key, inner]).for_each(|part| self.value(part));
            }
            Value::Array(array) => {
                self.tagged(12, array.dtype.name().as_bytes());
                self.word(array.shape.len() as u64);
                array.shape.iter().for_each(|&n| self.word(n));
                self.bytes(&array.data);
            }
            Value::Media(kind, data) => {
                self.tagged(13, kind.as_bytes());
                self.bytes(data);
            }
            Value::Typed(name, inner) => {
                self.tagged(14, name.as_bytes());
                self.value(inner);
            }
            Value::Repr(name, text) => {
                self.tagged(15, name.as_bytes());
                self.bytes(text.as_bytes());
            }
            Value::Lost(hash) => self.tagged(16, hash),
        }
    }
}
