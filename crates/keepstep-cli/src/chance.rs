//! Random numbers that can be repeated: the same seed gives the same numbers on every machine.

/// A stream of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The stream that belongs to these numbers.
    pub(crate) fn new(seeds: &[u64]) -> Self {
        let mut chance = Self(0x6b65_6570_7374_6570);
        for seed in seeds {
            chance.0 ^= seed;
            chance.0 = chance.next();
        }
        chance
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // By multiplication: the bias is far below anything that matters here.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut out: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        out.truncate(count);
        out
    }
}

/// A new seed, for callers without one. Small enough to be typed again.
pub(crate) fn new_seed() -> u64 {
    let mut random = [0; 4];
    // Without randomness the clock is used: the seed is printed, and can be given again.
    if getrandom::fill(&mut random).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return now.map_or(1, |time| u64::from(time.subsec_nanos()));
    }
    u64::from(u32::from_le_bytes(random))
}
