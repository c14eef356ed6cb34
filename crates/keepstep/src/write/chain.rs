//! How a growing list was built, link by link, and when to store the whole chain.
//!
//! Each version of a list refers to the one before it. After [`LINKS_MAX`] links the next version names all parts
//! itself, so that damage in one link costs only that link. Runs of parts that were named together then become one
//! part, so that the list of parts stays short however long the list grows.

use std::sync::Arc;

use keepstep_format::encode::{Growth, Span};
use keepstep_format::frame::{Place, Reference};
use keepstep_format::hash::Hash;

/// After this many links the whole chain is stored.
pub(crate) const LINKS_MAX: u16 = 32;

/// The newest part of a chain, and the parts before it.
#[derive(Debug)]
pub(crate) struct ListChain {
    span: Span,
    /// 0 for a part that was written in one step, 1 for a run of those, and so on.
    level: u8,
    /// How many parts of this level end here.
    run: u16,
    /// Links since the chain was stored last.
    links: u16,
    /// Links that a reader follows inside a part whose own chain is not known here.
    hidden: u16,
    parent: Option<Arc<ListChain>>,
}

impl ListChain {
    /// The chain after one more version was stored at `place`. `before` is the chain of what it extends, if known.
    pub(crate) fn extended(
        growth: &Growth,
        hash: &Hash,
        place: Place,
        before: Option<&Arc<ListChain>>,
    ) -> Arc<Self> {
        let reference = Reference { place, take: growth.units, hash: *hash };
        let own = |skip| Span { skip, reference };
        let (Some((_, prefix_units)), Some(before)) = (growth.prefix, before) else {
            // It is whole here, or slid from another value, or extends a forgotten one: the links of these stay hidden
            // inside.
            let hidden = growth.depth + u16::from(growth.prefix.is_some());
            return Arc::new(Self { span: own(0), level: 0, run: 1, links: 0, hidden, parent: None });
        };
        let run = if before.level == 0 { before.run + 1 } else { 1 };
        let chain = Self {
            span: own(prefix_units),
            level: 0,
            run,
            links: before.links + 1,
            hidden: before.hidden,
            parent: Some(Arc::clone(before)),
        };
        if growth.flat { Arc::new(chain.merged(place, hash, growth.units)) } else { Arc::new(chain) }
    }

    /// The version at `place` names all its parts: full runs of them become one part of the next level.
    fn merged(mut self, place: Place, hash: &Hash, units: u64) -> Self {
        self.links = 0;
        while self.run >= LINKS_MAX {
            let run = self.run;
            let mut skip = self.span.skip;
            let mut before = self.parent.take();
            for _ in 1..run {
                let Some(part) = before else { break };
                skip = part.span.skip;
                before = part.parent.clone();
            }
            let level = self.level + 1;
            let run = before.as_ref().filter(|part| part.level == level).map_or(1, |part| part.run + 1);
            let reference = Reference { place, take: units, hash: *hash };
            self = Self { span: Span { skip, reference }, level, run, parent: before, ..self };
        }
        self
    }

    /// How many links a reader follows from here.
    pub(crate) fn depth(&self) -> u16 {
        self.links + self.hidden + u16::from(self.level)
    }

    /// All parts, first to last, if it is time to store them.
    pub(crate) fn spans_when_due(self: &Arc<Self>) -> Vec<Span> {
        if self.links < LINKS_MAX - 1 {
            return Vec::new();
        }
        let mut spans = Vec::new();
        let mut part = Some(self);
        while let Some(chain) = part {
            spans.push(chain.span);
            part = chain.parent.as_ref();
        }
        spans.reverse();
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(step: u64) -> Place {
        Place { segment: 0, offset: 128 + step * 8, inner: 0, base: 0 }
    }

    /// However long a list grows, its parts cover it exactly, a reader follows few links, and few parts are written.
    #[test]
    fn the_parts_of_a_chain_cover_the_list_and_stay_few() {
        let mut chain =
            ListChain::extended(&Growth { units: 1, ..Growth::default() }, &[0; 16], place(0), None);
        let mut written = 0;
        for step in 1..40_000u64 {
            let spans = chain.spans_when_due();
            let covered = spans.iter().fold(0, |at, span| {
                assert_eq!(span.skip, at, "step {step}: spans follow one another");
                span.reference.take
            });
            assert!(spans.is_empty() || covered == step, "step {step}: {covered}");
            written += spans.len();
            let growth = Growth {
                units: step + 1,
                prefix: Some(([0; 16], step)),
                depth: chain.depth(),
                flat: !spans.is_empty(),
                slides: None,
            };
            chain = ListChain::extended(&growth, &[0; 16], place(step), Some(&chain));
            assert!(chain.depth() < 48, "step {step}: depth {}", chain.depth());
        }
        assert!(written < 40_000 * 4, "{written} references for 40000 steps");
    }
}
