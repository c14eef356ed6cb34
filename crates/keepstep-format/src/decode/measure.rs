//! Finds where a value ends without decoding it, so that it can be moved as it is.

use super::{Body, Part};
use crate::bytes::{Cursor, Malformed};
use crate::value::{DEPTH_MAX, DIMENSIONS_MAX, Dtype, elements, tag};

/// The bytes and references of the value that starts at `inner`, with reference `base`.
pub fn part_of_value(body: &Body, inner: u64, base: u32) -> Result<Part, Malformed> {
    let outside = Malformed { what: "a value starts behind its body", at: body.raw.len() };
    let start = usize::try_from(inner).ok().filter(|&at| at < body.raw.len()).ok_or(outside)?;
    let beyond = Malformed { what: "a value has references behind those of its body", at: start };
    let base = usize::try_from(base).ok().filter(|&at| at <= body.references.len()).ok_or(beyond)?;
    let mut pass = Pass { body, cursor: Cursor::at(&body.raw, start), next: base };
    pass.value(0)?;
    Ok(Part { bytes: start..pass.cursor.position(), references: base..pass.next })
}

/// Where the next value starts, if one starts here: the reader's place in the bytes and in the references.
pub(super) fn behind_value<'a>(
    body: &'a Body,
    cursor: Cursor<'a>,
    next: usize,
) -> Result<(Cursor<'a>, usize), Malformed> {
    let mut pass = Pass { body, cursor, next };
    pass.value(0)?;
    Ok((pass.cursor, pass.next))
}

/// The progress through a value.
struct Pass<'a> {
    body: &'a Body,
    cursor: Cursor<'a>,
    next: usize,
}

impl Pass<'_> {
    fn value(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth >= DEPTH_MAX {
            return Err(self.cursor.malformed("values are nested too deep"));
        }
        match self.cursor.u8()? {
            tag::NULL | tag::FALSE | tag::TRUE => {}
            tag::INT => drop(self.cursor.varint()?),
            tag::FLOAT => drop(self.cursor.take(8)?),
            tag::BIG => {
                self.cursor.u8()?;
                self.cursor.blob()?;
            }
            tag::STR | tag::BYTES => drop(self.cursor.blob()?),
            tag::MEDIA | tag::REPR => {
                self.cursor.blob()?;
                self.cursor.blob()?;
            }
            tag::TYPED => {
                self.cursor.blob()?;
                self.value(depth + 1)?;
            }
            tag::LIST => self.values(1, depth)?,
            tag::MAP => self.values(2, depth)?,
            tag::ARRAY => self.array(false)?,
            tag::ARRAY_MORE => self.array(true)?,
            tag::REF => drop(self.references(1)?),
            tag::LIST_MORE => {
                self.spans()?;
                self.values(1, depth)?;
            }
            tag::STR_MORE | tag::BYTES_MORE => {
                self.spans()?;
                self.cursor.blob()?;
            }
            _ => return Err(self.cursor.malformed("an unknown tag")),
        }
        Ok(())
    }

    fn values(&mut self, each: usize, depth: usize) -> Result<(), Malformed> {
        let count = self.cursor.count(each)?;
        (0..count * each).try_for_each(|_| self.value(depth + 1))
    }

    /// Skips some references, and returns how many units they take.
    fn references(&mut self, count: usize) -> Result<u64, Malformed> {
        let found = self.body.references.get(self.next..).and_then(|rest| rest.get(..count));
        let found = found.ok_or_else(|| self.cursor.malformed("more references than the table has"))?;
        self.next += count;
        Ok(found.iter().fold(0, |sum, reference| reference.take.saturating_add(sum)))
    }

    /// Skips spans, and returns how many units they are.
    fn spans(&mut self) -> Result<u64, Malformed> {
        let count = self.cursor.count(1)?;
        let mut skipped = 0u64;
        for _ in 0..count {
            skipped = skipped.saturating_add(self.cursor.varint()?);
        }
        let taken = self.references(count)?;
        taken.checked_sub(skipped).ok_or_else(|| self.cursor.malformed("an empty span"))
    }

    fn array(&mut self, is_more: bool) -> Result<(), Malformed> {
        let wrong = Malformed { what: "an array has the wrong size", at: self.cursor.position() };
        let dtype = Dtype::from_u8(self.cursor.u8()?).ok_or_else(|| wrong.clone())?;
        let dimensions = self.cursor.varint()?;
        if dimensions > DIMENSIONS_MAX as u64 {
            return Err(wrong);
        }
        let shape = (0..dimensions).map(|_| self.cursor.varint()).collect::<Result<Vec<_>, _>>()?;
        let elsewhere = if is_more { self.spans()? } else { 0 };
        let here = elements(&shape).and_then(|all| all.checked_sub(elsewhere));
        let bytes = here.and_then(|here| usize::try_from(here).ok()?.checked_mul(dtype.item_bytes()));
        self.cursor.take(bytes.ok_or(wrong)?)?;
        Ok(())
    }
}
