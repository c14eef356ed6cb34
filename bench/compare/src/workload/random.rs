//! Random bytes from a seed: fast enough not to be what is measured, and never twice the same.
//!
//! Fresh bytes for every record keep dedupe, compression and dictionaries from helping anyone.

/// SplitMix64: one addition and three mixes per eight bytes.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds would give streams that overlap after one step.
        Random(mix(seed ^ 0x6b65_6570_7374_6570))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut words = bytes.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        let rest = words.into_remainder();
        let last = self.next().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Fills a buffer with the bytes that belong to this step of this task, whoever asks and whenever.
pub fn fill_step(task: u64, step: u64, bytes: &mut [u8]) {
    Random::new(mix(task).wrapping_add(step)).fill(bytes);
}

fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_same_bytes_whenever_asked_and_no_other_step_has_them() {
        let mut seen = std::collections::HashSet::new();
        for (task, step) in (0..50).flat_map(|task| (0..50).map(move |step| (task, step))) {
            let (mut once, mut again) = ([0; 21], [1; 21]);
            fill_step(task, step, &mut once);
            fill_step(task, step, &mut again);
            assert_eq!(once, again, "task {task}, step {step}");
            assert!(seen.insert(once), "task {task}, step {step} repeats another");
        }
    }
}
