//! Reads and writes the basic parts of all other structures: integers, varints, texts.
//!
//! No length is trusted before the bytes are there, so no input can cause an unlimited allocation.

use thiserror::Error;

/// Bytes that do not follow the format, with the place inside the piece that was being read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} at byte {at}")]
pub struct Malformed {
    /// What is wrong, in a few words.
    pub what: &'static str,
    /// Where, counted from the start of the piece (a body, a head, a card).
    pub at: usize,
}

/// Reads forward through a piece of bytes; every step is checked.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the beginning of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    /// Starts in the middle of `data`; places in errors are counted from its beginning.
    pub fn at(data: &'a [u8], at: usize) -> Self {
        Self { data, at: at.min(data.len()) }
    }

    /// How far it has read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.data.len() - self.at
    }

    /// True when nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.left() == 0
    }

    /// An error at this place.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        if count > self.left() {
            return Err(self.malformed("bytes end too early"));
        }
        let taken = &self.data[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian u16.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A little-endian u32.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian u64.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A little-endian i64.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A minimal LEB128 varint.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in (0..).step_by(7).take(10) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.malformed("a varint does not fit 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.malformed("a varint is longer than needed"));
                }
                return Ok(number);
            }
        }
        Err(self.malformed("a varint does not end"))
    }

    /// A varint that counts things of at least `unit_bytes` bytes each, checked against what is left.
    pub fn count(&mut self, unit_bytes: usize) -> Result<usize, Malformed> {
        let count = self.varint()?;
        let fits = usize::try_from(count)
            .ok()
            .and_then(|n| n.checked_mul(unit_bytes))
            .is_some_and(|n| n <= self.left());
        if fits {
            Ok(count as usize)
        } else {
            Err(self.malformed("a count is larger than the bytes that are left"))
        }
    }

    /// A varint length and that many bytes.
    pub fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count(1)?;
        self.take(length)
    }

    /// A varint length and that much UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let at = self.at;
        std::str::from_utf8(self.blob()?).map_err(|_| Malformed { what: "a text is not UTF-8", at })
    }
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes [`put_varint`] appends.
pub fn varint_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Maps signed to unsigned so that small numbers of either sign stay small.
pub fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Undoes [`zigzag`].
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a varint length and the bytes.
pub fn put_blob(out: &mut Vec<u8>, blob: &[u8]) {
    put_varint(out, blob.len() as u64);
    out.extend_from_slice(blob);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is written as a varint is read back, in the length that was promised.
        #[test]
        fn varints_come_back(number: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(out.len(), varint_bytes(number));
            prop_assert_eq!(Cursor::new(&out).varint(), Ok(number));
        }

        /// Small numbers of either sign survive.
        #[test]
        fn zigzag_comes_back(number: i64) {
            prop_assert_eq!(unzigzag(zigzag(number)), number);
        }
    }

    /// There is one way to write a number, so equal values have equal bytes and equal hashes.
    #[test]
    fn a_varint_that_is_longer_than_needed_is_refused() {
        assert!(Cursor::new(&[0x80, 0x00]).varint().is_err());
        assert!(Cursor::new(&[0xff; 11]).varint().is_err());
        assert_eq!(Cursor::new(&[0x00]).varint(), Ok(0));
    }

    /// A length of a terabyte in a file of ten bytes is an error, not an allocation.
    #[test]
    fn a_count_is_checked_against_what_is_left() {
        let mut out = Vec::new();
        put_varint(&mut out, 1 << 40);
        assert!(Cursor::new(&out).count(1).is_err());
        assert!(Cursor::new(&out).blob().is_err());
    }
}
