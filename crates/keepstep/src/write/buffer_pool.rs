//! Keeps the memory of written bodies for reuse, so that encoding a step needs few allocations.
//!
//! Memory that one thread allocates and another frees is slow with the usual allocator, so it goes back to the
//! encoding threads.

use std::sync::{Mutex, PoisonError};

use keepstep_format::encode::Encoded;

use super::open_segment::Placed;

/// How many bodies are kept. More waiting writers are rare.
const COUNT_MAX: usize = 1024;
/// The largest body that is kept: a long step must not hold its memory for ever.
const BYTES_MAX: usize = 16 << 10;
const FRESH_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct BufferPool(Mutex<Vec<Encoded>>);

impl BufferPool {
    /// A body to encode into, perhaps one that was used before.
    pub(crate) fn get(&self) -> Encoded {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes back the bodies of a batch.
    pub(crate) fn take_back(&self, batch: &mut [Placed]) {
        let mut buffer_pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = COUNT_MAX.saturating_sub(buffer_pool.len());
        let short = batch.iter_mut().filter(|placed| {
            placed.encoded.stored.capacity() <= BYTES_MAX && placed.encoded.fresh.capacity() <= FRESH_MAX
        });
        buffer_pool.extend(short.take(room).map(|placed| Encoded {
            body: std::mem::take(&mut placed.encoded.stored),
            fresh: std::mem::take(&mut placed.encoded.fresh),
            ..Encoded::default()
        }));
    }
}
