//! Encodes the end of a list: as a reference, as a longer version of a known one, or in full.

use super::{
    DEPTH_OF_LINKS_MAX, EXTENDED_ITEMS_MAX, Encoded, Encoder, Fresh, Growth, InLog, ItemEnd, Link, Mark,
    Open, PREFIXES_MAX, Span, Stored, UNDECIDED_BYTES,
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
        let mut growth = Growth { units: chain.len() as u64, prefix: None, depth: 0, flat: false };
        // The whole list first: `known_or_fresh` looks it up once more, which costs less than a second path.
        if chain.len() <= EXTENDED_ITEMS_MAX
            && matches!(self.look_up(&hash), InLog::No)
            && let Some((count, prefix)) = self.longest_prefix(open, &chain)
        {
            let prefix_hash = &chain[count - 1];
            growth.prefix = Some((*prefix_hash, count as u64));
            match prefix {
                Prefix::Stored(stored) => {
                    growth.depth = stored.depth;
                    growth.flat = !stored.spans.is_empty();
                    let spans = spans_of(&stored, count as u64, prefix_hash);
                    let links = spans.iter().map(|span| Link::Placed(span.reference)).collect();
                    let skips = spans.iter().map(|span| span.skip).collect::<Vec<_>>();
                    self.keep_only_the_rest(open, count, &skips, links);
                }
                Prefix::Pending => {
                    self.note_if_twice(*prefix_hash);
                    let piece = Box::new(self.copy_items(open, count, *prefix_hash));
                    let link = Link::Undecided { hash: *prefix_hash, take: count as u64, piece };
                    self.keep_only_the_rest(open, count, &[0], vec![link]);
                }
            }
        }
        self.known_or_fresh(open.at, hash, Some(growth));
        hash
    }

    /// The hashes of all prefixes, the whole list last.
    fn chain(&self, open: &Open) -> Vec<Hash> {
        let mut chain = Vec::with_capacity(open.count as usize);
        let mut before = self.key.list_begin();
        let mut from = open.parts;
        for end in &self.items[open.items..] {
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

    /// The first `count` items of a list as a piece of its own; they are removed from the output.
    fn copy_items(&mut self, open: &Open, count: usize, hash: Hash) -> Encoded {
        let Mark { body: body_end, links: links_end, fresh: fresh_end, full } =
            self.items[open.items + count - 1].mark;
        let mut body = vec![tag::LIST];
        put_varint(&mut body, count as u64);
        let head = body.len();
        body.extend_from_slice(&self.out.body[open.content..body_end]);
        let growth = Some(Growth { units: count as u64, prefix: None, depth: 0, flat: false });
        let mut fresh: Vec<Fresh> = self.out.fresh[open.at.fresh..fresh_end]
            .iter()
            .map(|fresh| Fresh {
                inner: fresh.inner - open.content as u64 + head as u64,
                base: fresh.base - open.at.links as u32,
                ..fresh.clone()
            })
            .collect();
        fresh.push(Fresh { hash, inner: 0, base: 0, take: 0, heavy: true, growth });
        // The links move into the piece; `keep_only_the_rest` drops what takes their place here.
        let links: Vec<Link> = self.out.links.drain(open.at.links..links_end).collect();
        self.out.links.splice(open.at.links..open.at.links, links.iter().map(|_| Link::GONE));
        Encoded { body, links, fresh, full_bytes: full - open.at.full }
    }

    /// Replaces the list's first `count` items by spans of the targets of `links`; the rest moves up.
    fn keep_only_the_rest(&mut self, open: &Open, count: usize, skips: &[u64], links: Vec<Link>) {
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
