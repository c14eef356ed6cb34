//! Encodes the end of a list: as a reference, as a longer version of a known one, or in full.

use std::ops::Range;

use super::{
    DEPTH_OF_LINKS_MAX, EXTENDED_ITEMS_MAX, Encoded, Encoder, Fresh, Growth, InLog, ItemEnd, Link, Mark,
    Open, PREFIXES_MAX, Slides, Span, Stored, UNDECIDED_BYTES,
};
use crate::bytes::put_varint;
use crate::frame::Reference;
use crate::hash::Hash;
use crate::value::tag;

/// The beginning of a list that need not be written again.
enum Prefix {
    Stored(Box<Stored>),
    /// Another record that is not placed yet has it: the committer decides.
    Pending,
}

impl Encoder<'_> {
    /// Decides how a list is written, after all its items.
    pub(super) fn end_list(&mut self, open: &Open) -> Hash {
        let chain = self.chain(open);
        let hash = chain.last().copied().unwrap_or_else(|| self.key.list_begin());
        if self.is_key() {
            return hash;
        }
        let mut growth = Growth { units: chain.len() as u64, ..Growth::default() };
        // The whole list first: `known_or_fresh` looks it up once more, which costs less than a second path.
        if chain.len() <= EXTENDED_ITEMS_MAX && matches!(self.look_up(&hash), InLog::No) {
            let prefix = self.longest_prefix(open, &chain);
            let covered = prefix.as_ref().map_or(0, |(count, _)| *count);
            let items = self.slidable(open, chain.len(), covered);
            if let Some(slid) = items.as_ref().and_then(|items| self.end_slid_list(open, &chain, items)) {
                growth = slid;
            } else {
                if let Some((count, prefix)) = prefix {
                    growth = self.end_grown_list(open, &chain, count, prefix);
                }
                growth.slides = items.map(|items| Slides { items, from: None });
            }
        }
        self.known_or_fresh(open.at, hash, Some(growth));
        hash
    }

    /// Writes the list as a longer version of one that the log has, or is about to have.
    fn end_grown_list(&mut self, open: &Open, chain: &[Hash], count: usize, prefix: Prefix) -> Growth {
        let prefix_hash = chain[count - 1];
        let prefix_units = Some((prefix_hash, count as u64));
        let mut growth = Growth { units: chain.len() as u64, prefix: prefix_units, ..Growth::default() };
        match prefix {
            Prefix::Stored(stored) => {
                growth.depth = stored.depth;
                growth.flat = !stored.spans.is_empty();
                let spans = spans_of(&stored, count as u64, &prefix_hash);
                let links = spans.iter().map(|span| Link::Placed(span.reference)).collect();
                let skips = spans.iter().map(|span| span.skip).collect::<Vec<_>>();
                self.keep_only_the_rest(open, count, &skips, links);
            }
            Prefix::Pending => {
                self.note_if_twice(prefix_hash);
                let piece = Box::new(self.copy_items(open, 0..count, prefix_hash));
                let link = Link::Undecided { hash: prefix_hash, take: count as u64, piece };
                self.keep_only_the_rest(open, count, &[0], vec![link]);
            }
        }
        growth
    }

    /// The hashes of all prefixes, the whole list last.
    fn chain(&self, open: &Open) -> Vec<Hash> {
        self.chain_of(open, 0..self.items.len() - open.items)
    }

    /// The same, of a part of the list.
    pub(super) fn chain_of(&self, open: &Open, range: Range<usize>) -> Vec<Hash> {
        let mut chain = Vec::with_capacity(range.len());
        let mut before = self.key.list_begin();
        let items = &self.items[open.items..];
        let mut from = range.start.checked_sub(1).map_or(open.parts, |last| items[last].parts);
        for end in &items[range] {
            before = self.key.item(&before, &self.parts[from..end.parts]);
            chain.push(before);
            from = end.parts;
        }
        chain
    }

    /// The longest proper prefix that the log has, or is about to have: how many items, and where.
    fn longest_prefix(&self, open: &Open, chain: &[Hash]) -> Option<(usize, Prefix)> {
        let prefixes = chain[..chain.len().saturating_sub(1)].iter().enumerate();
        prefixes.rev().take(PREFIXES_MAX).find_map(|(index, hash)| match self.look_up(hash) {
            InLog::At(stored) if can_be_extended(&stored) => Some((index + 1, Prefix::Stored(stored))),
            InLog::Pending if self.items[open.items + index].mark.body - open.at.body >= UNDECIDED_BYTES => {
                Some((index + 1, Prefix::Pending))
            }
            _ => None,
        })
    }

    /// Some items of a list as a piece of its own; their links are removed from the output.
    pub(super) fn copy_items(&mut self, open: &Open, range: Range<usize>, hash: Hash) -> Encoded {
        let begin = match range.start.checked_sub(1) {
            Some(last) => self.items[open.items + last].mark,
            None => Mark { body: open.content, ..open.at },
        };
        let end = self.items[open.items + range.end - 1].mark;
        let mut body = vec![tag::LIST];
        put_varint(&mut body, range.len() as u64);
        let head = body.len();
        body.extend_from_slice(&self.out.body[begin.body..end.body]);
        let growth = Some(Growth { units: range.len() as u64, ..Growth::default() });
        let mut fresh: Vec<Fresh> = self.out.fresh[begin.fresh..end.fresh]
            .iter()
            .map(|fresh| Fresh {
                inner: fresh.inner - begin.body as u64 + head as u64,
                base: fresh.base - begin.links as u32,
                ..fresh.clone()
            })
            .collect();
        fresh.push(Fresh { hash, inner: 0, base: 0, take: 0, heavy: true, growth });
        // The links move into the piece; `keep_only_the_rest` drops what takes their place here.
        let links: Vec<Link> = self.out.links.drain(begin.links..end.links).collect();
        self.out.links.splice(begin.links..begin.links, links.iter().map(|_| Link::GONE));
        Encoded { body, links, fresh, full_bytes: end.full - begin.full }
    }

    /// Replaces the list's first `count` items by spans of the targets of `links`; the rest moves up.
    pub(super) fn keep_only_the_rest(&mut self, open: &Open, count: usize, skips: &[u64], links: Vec<Link>) {
        let ItemEnd { mark: cut, .. } = self.items[open.items + count - 1];
        let mut head = vec![tag::LIST_MORE];
        put_skips(&mut head, skips.iter().copied());
        put_varint(&mut head, open.count - count as u64);

        let body_shift = head.len() as i64 - (cut.body - open.at.body) as i64;
        let links_shift = links.len() as i64 - (cut.links - open.at.links) as i64;
        self.out.body.splice(open.at.body..cut.body, head);
        self.out.links.splice(open.at.links..cut.links, links);
        self.out.fresh.drain(open.at.fresh..cut.fresh);
        for fresh in &mut self.out.fresh[open.at.fresh..] {
            fresh.inner = fresh.inner.wrapping_add_signed(body_shift);
            fresh.base = fresh.base.wrapping_add_signed(links_shift as i32);
        }
    }
}

/// True if one more link may be added to it.
pub(super) fn can_be_extended(stored: &Stored) -> bool {
    stored.depth < DEPTH_OF_LINKS_MAX || !stored.spans.is_empty()
}

/// The spans for the first `units` of a stored value: one, unless the whole chain is to be stored.
pub(super) fn spans_of(stored: &Stored, units: u64, hash: &Hash) -> Vec<Span> {
    if stored.spans.is_empty() {
        let reference = Reference { place: stored.place, take: units, hash: *hash };
        return vec![Span { skip: 0, reference }];
    }
    stored.spans.clone()
}

pub(super) fn put_spans(out: &mut Vec<u8>, spans: &[Span]) {
    put_skips(out, spans.iter().map(|span| span.skip));
}

fn put_skips(out: &mut Vec<u8>, skips: impl ExactSizeIterator<Item = u64>) {
    put_varint(out, skips.len() as u64);
    skips.for_each(|skip| put_varint(out, skip));
}
