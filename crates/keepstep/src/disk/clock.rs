//! A wall clock that never goes back, and never says the same twice.
//!
//! What one process says later has a later time, whoever sets the machine's clock meanwhile: so the order of what it recorded
//! can be told by time alone. While the machine's clock is behind what was said, time goes on by a microsecond for each look.

use std::sync::atomic::{AtomicI64, Ordering};

/// What a process has said of the time. No lock: a forked child goes on with it.
pub(super) struct LastSaid(AtomicI64);

impl LastSaid {
    pub(super) const fn nothing() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }

    /// The time to say now, by the machine's clock.
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
