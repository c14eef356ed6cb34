//! Encodes a list that slid: it dropped its oldest items, or some in the middle, and got new ones.
//!
//! Such a list begins like no list of the log, but it shares two runs with an earlier one: its first items, and those
//! that the earlier one ended with. Both become spans of that one; what is between them is stored on its own, and what
//! is behind them follows. So a window over a long chat costs its new messages, not a reference for each one it keeps.

use std::sync::Arc;

use super::{EXTENDED_ITEMS_MAX, Encoder, Growth, InLog, Link, Open};
use crate::frame::Reference;
use crate::hash::Hash;

/// Shorter lists are not worth it.
const ITEMS_MIN: usize = 8;
/// Items are this long on average, or the list is no list of messages (numbers, say): it is not looked for.
const ITEM_BYTES_MIN: u64 = 48;
/// So many new items at the end are looked past for the end of an earlier list.
const NEW_ITEMS_MAX: usize = 64;
/// A run that is shorter saves nothing.
const RUN_ITEMS_MIN: usize = 4;
/// After so many lists that rest on one another, the next one names its items itself: damage in one costs no more than
/// these, and a reader follows no more links.
const SLIDES_MAX: u16 = 32;

/// A list that later ones may have slid from: its hash, and what its items are known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlideList {
    /// The hash of the whole list.
    pub hash: Hash,
    /// What each item is known by; at least two.
    pub items: Arc<[Hash]>,
}

impl SlideList {
    /// What it is found by: its last two items.
    pub fn ending(&self) -> Option<[Hash; 2]> {
        let last = self.items.len().checked_sub(1)?;
        Some([*self.items.get(last.checked_sub(1)?)?, self.items[last]])
    }
}

/// How a list slid from an earlier one. Items are numbered from 0 in the new list.
struct Slide {
    from: Arc<SlideList>,
    stored: Reference,
    /// Links that a reader follows from the earlier list on.
    depth: u16,
    /// Items before this are those of the earlier list.
    prefix: usize,
    /// Items from here up to `to` are what the earlier list ends with.
    tail: usize,
    to: usize,
}

impl Encoder<'_> {
    /// What the items of a list are known by, if it may have slid or others may slide from it. `covered` of them are the
    /// beginning of a known list: if these are most of it, it has grown, not slid.
    pub(super) fn slidable(&self, open: &Open, count: usize, covered: usize) -> Option<Arc<[Hash]>> {
        let full_bytes = self.out.full_bytes - open.at.full;
        let may_slide = (ITEMS_MIN..=EXTENDED_ITEMS_MAX).contains(&count)
            && covered * 2 < count
            && full_bytes / count as u64 >= ITEM_BYTES_MIN
            && self.known.decides();
        may_slide.then(|| self.item_keys(open).into())
    }

    /// Writes the list as spans of one that it slid from, if there is one.
    pub(super) fn end_slid_list(
        &mut self,
        open: &Open,
        chain: &[Hash],
        items: &Arc<[Hash]>,
    ) -> Option<Growth> {
        let slide = self.find_slide(items)?;
        self.write_slid(open, chain, &slide);
        let slides = Some(Slides { items: Arc::clone(items), from: slide.from.ending() });
        let (units, depth) = (chain.len() as u64, slide.depth + 1);
        Some(Growth { units, prefix: None, depth, flat: false, slides })
    }

    /// What each item is known by, whatever stands before it.
    fn item_keys(&self, open: &Open) -> Vec<Hash> {
        let begin = self.key.list_begin();
        let mut from = open.parts;
        let ends = self.items[open.items..].iter();
        ends.map(|end| {
            let part = &self.parts[from..end.parts];
            from = end.parts;
            self.key.item(&begin, part)
        })
        .collect()
    }

    fn find_slide(&self, items: &[Hash]) -> Option<Slide> {
        let mut ends = (1..items.len()).rev().take(NEW_ITEMS_MAX);
        ends.find_map(|last| {
            let from = self.known.list_that_ends_with(&[items[last - 1], items[last]])?;
            let old = &from.items;
            let is_same = |(a, b): &(&Hash, &Hash)| a == b;
            let run = items[..=last].iter().rev().zip(old.iter().rev()).take_while(is_same).count();
            let prefix = items[..last + 1 - run].iter().zip(old.iter()).take_while(is_same).count();
            if run < RUN_ITEMS_MIN {
                return None;
            }
            let InLog::At(stored) = self.look_up(&from.hash) else { return None };
            if stored.depth >= SLIDES_MAX || !stored.spans.is_empty() {
                return None;
            }
            let stored_at = Reference { place: stored.place, take: old.len() as u64, hash: from.hash };
            let (tail, to) = (last + 1 - run, last + 1);
            Some(Slide { from, stored: stored_at, depth: stored.depth, prefix, tail, to })
        })
    }

    fn write_slid(&mut self, open: &Open, chain: &[Hash], slide: &Slide) {
        let Slide { from, stored, prefix, tail, to, .. } = slide;
        let (mut skips, mut links) = (Vec::new(), Vec::new());
        if *prefix > 0 {
            let reference = Reference { take: *prefix as u64, hash: chain[prefix - 1], ..*stored };
            skips.push(0);
            links.push(Link::Placed(reference));
        }
        if prefix < tail {
            let hash = self.chain_of(open, *prefix..*tail).last().copied().unwrap_or(chain[0]);
            self.note_if_twice(hash);
            let piece = Box::new(self.copy_items(open, *prefix..*tail, hash));
            skips.push(0);
            links.push(Link::Undecided { hash, take: (tail - prefix) as u64, piece });
        }
        skips.push((from.items.len() - (to - tail)) as u64);
        links.push(Link::Placed(*stored));
        self.keep_only_the_rest(open, *to, &skips, links);
    }
}

/// What a list that slid, or may, leaves for those that slide from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slides {
    /// What each of its items is known by.
    pub items: Arc<[Hash]>,
    /// What the list that it slid from is found by: nothing slides from that one any more.
    pub from: Option<[Hash; 2]>,
}
