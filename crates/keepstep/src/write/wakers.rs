//! Wakers: told that something was acknowledged, so that whoever cannot wait for an event can look.
//!
//! A waker is rung after what it tells of is true, by the thread that commits: it must be quick, and must not wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// Something that is told when receipts may have come.
pub trait Waker: Send + Sync {
    /// Some receipts may have reached their level, or failed.
    fn ring(&self);
}

/// All who want to be told.
#[derive(Default)]
pub(crate) struct Wakers {
    /// Most programs have none: they pay for one load.
    any: AtomicBool,
    list: RwLock<Vec<Weak<dyn Waker>>>,
}

impl Wakers {
    /// Adds a waker, unless it is there: callers need not remember.
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
