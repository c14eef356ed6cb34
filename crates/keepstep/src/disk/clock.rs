//! A wall clock that never goes back, and never returns the same time twice.
//!
//! Within one process, a later answer is a later time, even if the machine's clock is set back meanwhile. So time
//! alone gives the order of what the process recorded. While the machine's clock is behind, each answer adds a
//! microsecond.

use std::sync::atomic::{AtomicI64, Ordering};

/// The last time that this process returned. It has no lock, so a forked child can use it.
pub(super) struct LastSaid(AtomicI64);

impl LastSaid {
    pub(super) const fn nothing() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }

    /// The time to return now, given the machine's clock.
    pub(super) fn say(&self, now_us: i64) -> i64 {
        let later = |last: i64| now_us.max(last.saturating_add(1));
        let mut last = self.0.load(Ordering::Acquire);
        while let Err(other) =
            self.0.compare_exchange_weak(last, later(last), Ordering::AcqRel, Ordering::Acquire)
        {
            last = other;
        }
        later(last)
    }
}
