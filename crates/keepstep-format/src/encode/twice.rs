//! Stores a value once that occurs twice in a record.
//!
//! A record cannot refer to itself, only to earlier places in the log. So both places become references, and the
//! value becomes a record of its own before it. The second occurrence is set aside when it is met, the first one when
//! everything is written.

use super::{Encoded, Encoder, Link, NOWHERE};
use crate::decode::{Body, part_of_value};
use crate::frame::Reference;
use crate::hash::Hash;
use crate::value::tag;

impl Encoder<'_> {
    /// Removes values from the body that are also set aside.
    pub(super) fn store_once(&mut self) {
        for hash in std::mem::take(&mut self.twice) {
            let first = self.out.fresh.iter().find(|fresh| fresh.hash == hash && fresh.take == 0);
            if let Some((inner, base)) = first.map(|fresh| (fresh.inner, fresh.base)) {
                self.take_out(hash, inner, base);
            }
        }
    }

    fn take_out(&mut self, hash: Hash, inner: u64, base: u32) {
        let references = self.out.links.iter().map(Link::as_reference).collect();
        let body = Body { raw: std::mem::take(&mut self.out.body), references };
        let part = part_of_value(&body, inner, base);
        self.out.body = body.raw;
        let Ok(part) = part else {
            debug_assert!(false, "what was just written can be measured");
            return;
        };
        let (bytes, links) = (part.bytes, part.references);
        // Tag and reference stay in its place.
        let body_shift = 1 - bytes.len() as i64;
        let links_shift = 1 - links.len() as i32;
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for mut fresh in self.out.fresh.drain(..) {
            let at = fresh.inner as usize;
            if bytes.contains(&at) {
                fresh.inner -= bytes.start as u64;
                fresh.base -= links.start as u32;
                inside.push(fresh);
                continue;
            }
            if at >= bytes.end {
                fresh.inner = fresh.inner.wrapping_add_signed(body_shift);
                fresh.base = fresh.base.wrapping_add_signed(links_shift);
            }
            outside.push(fresh);
        }
        self.out.fresh = outside;
        let full_bytes = bytes.len() as u64;
        let body = self.out.body.splice(bytes, [tag::REF]).collect();
        let at = links.start;
        let links = self.out.links.drain(links).collect();
        let piece = Box::new(Encoded { body, links, fresh: inside, full_bytes });
        self.out.links.insert(at, Link::Undecided { hash, take: 0, piece });
    }
}

impl Link {
    /// As a reader would see it; its place does not matter for measuring.
    fn as_reference(&self) -> Reference {
        match self {
            Self::Placed(reference) => *reference,
            Self::Undecided { hash, take, .. } => Reference { take: *take, hash: *hash, ..NOWHERE },
        }
    }
}
