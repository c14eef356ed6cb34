//! Wakers: called when something was acknowledged, for callers that cannot wait for an event, such as event loops.
//!
//! The committing thread rings a waker after the acknowledgement. So `ring` must be quick, and must not wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// Called when receipts may have changed.
pub trait Waker: Send + Sync {
    /// Some receipts may have reached their level, or failed.
    fn ring(&self);
}

/// All registered wakers.
#[derive(Default)]
pub(crate) struct Wakers {
    /// True if there is any: most programs have none, and pay for one load.
    any: AtomicBool,
    list: RwLock<Vec<Weak<dyn Waker>>>,
}

impl Wakers {
    /// Adds a waker, unless it is registered already.
    pub(crate) fn add(&self, waker: &Arc<dyn Waker>) {
        let is_known = |known: &Weak<dyn Waker>| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(waker));
        if self.list.read().unwrap_or_else(PoisonError::into_inner).iter().any(is_known) {
            return;
        }
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(waker));
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn ring(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter_map(Weak::upgrade).for_each(|waker| waker.ring());
    }
}
