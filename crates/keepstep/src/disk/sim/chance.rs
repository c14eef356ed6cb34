//! Random numbers that are the same for the same seed.

/// Splitmix64: small, fast, and every seed is a good one.
#[derive(Clone)]
pub(super) struct Chance {
    state: u64,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A seed made of several numbers, so that each of them matters.
    pub(super) fn of(parts: &[u64]) -> Self {
        let mut chance = Self::new(0);
        for &part in parts {
            chance.state = chance.next() ^ part;
        }
        Self::new(chance.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        // The bias of a remainder is far below what a crash test could notice.
        self.next() % end
    }

    /// An index into a list of this length, which is not empty.
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True once in `times` on average.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(super) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
