//! Buffers that were written and can be used again: a step's body costs no allocation then.

use std::sync::{Mutex, PoisonError};

use super::draft::Placed;

/// More than this many waiting writers are rare.
const COUNT_MAX: usize = 1024;
/// A long step must not keep its memory for ever.
const BYTES_MAX: usize = 16 << 10;

#[derive(Default)]
pub(crate) struct Spares(Mutex<Vec<Vec<u8>>>);

impl Spares {
    /// A buffer, perhaps one that was used before.
    pub(crate) fn get(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes back the buffers of a batch.
    pub(crate) fn take_back(&self, batch: &mut [Placed]) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = COUNT_MAX.saturating_sub(spares.len());
        let short = batch.iter_mut().filter(|placed| placed.ready.stored.capacity() <= BYTES_MAX);
        spares.extend(short.take(room).map(|placed| std::mem::take(&mut placed.ready.stored)));
    }
}
