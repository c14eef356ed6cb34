//! Trains a dictionary from the first steps, so that later short ones compress better.
//!
//! It is trained on this writer's own log, tested on samples that it has not seen, and used only if it helps.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use keepstep_format::record::{Dictionary, compress};

use super::encoded_record::PlacedDictionary;

/// How many bytes of samples are enough.
const SAMPLE_BYTES: usize = 1 << 20;
/// The longest sample: long bodies compress well on their own.
const SAMPLE_BYTES_MAX: usize = 64 << 10;
const SAMPLES_MIN: usize = 64;
const DICTIONARY_BYTES: usize = 32 << 10;
/// A dictionary must save at least one byte in this many, on samples that it has not seen.
const SAVES_ONE_IN: usize = 10;

pub(crate) struct Trainer {
    /// False once the samples were taken, or if no dictionary is wanted.
    is_collecting: AtomicBool,
    bytes: AtomicUsize,
    samples: Mutex<Vec<Vec<u8>>>,
    current: RwLock<Option<Arc<PlacedDictionary>>>,
    /// True if there is a dictionary: most writers have none, and need no lock to know it.
    is_there: AtomicBool,
}

impl Trainer {
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self {
            is_collecting: AtomicBool::new(is_wanted),
            bytes: AtomicUsize::new(0),
            samples: Mutex::new(Vec::new()),
            current: RwLock::new(None),
            is_there: AtomicBool::new(false),
        }
    }

    /// Keeps a copy of a body as a sample.
    pub(crate) fn sample(&self, body: &[u8]) {
        if !self.is_collecting.load(Ordering::Relaxed) || body.len() > SAMPLE_BYTES_MAX || body.len() < 64 {
            return;
        }
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(body.to_vec());
        self.bytes.fetch_add(body.len(), Ordering::Relaxed);
    }

    /// All samples, once there are enough.
    pub(crate) fn take_samples(&self) -> Option<Vec<Vec<u8>>> {
        // Checked before the swap: every step passes here, and a swap is expensive for the other processors.
        if self.bytes.load(Ordering::Relaxed) < SAMPLE_BYTES
            || !self.is_collecting.load(Ordering::Relaxed)
            || !self.is_collecting.swap(false, Ordering::AcqRel)
        {
            return None;
        }
        Some(std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn current(&self) -> Option<Arc<PlacedDictionary>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn use_dictionary(&self, bytes: Vec<u8>, segment: u64, offset: u64) {
        let placed = PlacedDictionary { dictionary: Dictionary::new(bytes), segment, offset };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(placed));
        self.is_there.store(true, Ordering::Release);
    }
}

/// A dictionary, if it helps on samples that it was not trained with.
pub(crate) fn train(samples: &[Vec<u8>]) -> Option<Vec<u8>> {
    // Samples that do not compress at all teach nothing.
    let samples: Vec<&Vec<u8>> = samples.iter().filter(|sample| compress(sample, None).is_some()).collect();
    if samples.len() < SAMPLES_MIN {
        return None;
    }
    let (unseen, seen): (Vec<_>, Vec<_>) = samples.iter().enumerate().partition(|(index, _)| index % 5 == 0);
    let seen: Vec<&[u8]> = seen.into_iter().map(|(_, sample)| sample.as_slice()).collect();
    let bytes = keepstep_format::record::train_dictionary(&seen, DICTIONARY_BYTES)?;
    let dictionary = Dictionary::new(bytes.clone());
    let total = |dictionary: Option<&Dictionary>| -> usize {
        let sizes = unseen
            .iter()
            .map(|(_, sample)| compress(sample, dictionary).map_or(sample.len(), |out| out.len()));
        sizes.sum()
    };
    let (without, with) = (total(None), total(Some(&dictionary)));
    (with + without / SAVES_ONE_IN < without).then_some(bytes)
}
