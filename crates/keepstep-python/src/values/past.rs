//! Knows the messages of a history again without reading them: what makes a step with a long history cheap.
//!
//! Only leaves that cannot change are trusted, by identity, and they are held so that no other object takes their address.
//! Containers are never trusted: they are gone through every time, so a change is always seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use keepstep::Value;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Shorter items are not worth a reference in the log either.
const ITEM_BYTES_MIN: usize = 256;
/// An item of more parts is walked every time.
const PARTS_MAX: usize = 4096;
/// What one episode may hold.
const EPISODE_BYTES_MAX: usize = 8 << 20;
/// What all episodes of the process may hold: beyond it, histories are walked every time.
const ALL_BYTES_MAX: usize = 64 << 20;
/// Items that so many calls did not meet are let go: a turn and its result are two calls.
const CALLS_KEPT: u32 = 4;

static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

// Marks of containers among addresses: no object has an address so low.
const DICT: usize = 1;
const LIST: usize = 2;
const TUPLE: usize = 3;

/// What the last calls of an episode met.
pub(super) struct Past {
    is_kept: bool,
    /// By the address of the item, which is only a hint.
    entries: HashMap<usize, Remembered>,
    call: u32,
    bytes: usize,
}

struct Remembered {
    /// Marks and counts of containers, addresses of leaves and keys, in the order of the walk.
    shape: Vec<usize>,
    /// Keeps the addresses in `shape` taken.
    _leaves: Vec<Py<PyAny>>,
    value: Value,
    bytes: usize,
    call: u32,
}

/// The past of one episode; a walk takes it along, so that what it calls can record, too.
#[derive(Default)]
pub(crate) struct PastCell(Mutex<Option<Past>>);

impl PastCell {
    pub(super) fn take(&self) -> Past {
        let past = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        past.unwrap_or_else(|| Past::new(true))
    }

    pub(super) fn put_back(&self, mut past: Past) {
        if past.is_kept {
            past.end_call();
            let replaced = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(past);
            // Letting objects go may run code of theirs: not under the lock.
            drop(replaced);
        }
    }
}

impl Past {
    /// One that keeps nothing.
    pub(super) fn forgetful() -> Self {
        Self::new(false)
    }

    fn new(is_kept: bool) -> Self {
        Self { is_kept, entries: HashMap::new(), call: 0, bytes: 0 }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The value of an item that was met before, if nothing in it has changed.
    pub(super) fn recall(&mut self, item: &Bound<'_, PyAny>) -> Option<Value> {
        let entry = self.entries.get_mut(&(item.as_ptr() as usize))?;
        let mut shape = entry.shape.iter().copied();
        if !matches(item, &mut shape) || shape.next().is_some() {
            return None;
        }
        entry.call = self.call;
        Some(entry.value.clone())
    }

    /// Remembers an item's value, if it is long enough and made of what can be known again.
    pub(super) fn keep(&mut self, item: &Bound<'_, PyAny>, value: Value, bytes: usize) -> Value {
        let (mut shape, mut leaves) = (Vec::new(), Vec::new());
        if bytes < ITEM_BYTES_MIN || !self.has_room(bytes) || !trace(item, &mut shape, &mut leaves) {
            return value;
        }
        let bytes = bytes + 16 * shape.len() + size_of::<Remembered>();
        let value = value.shared();
        let entry = Remembered { shape, _leaves: leaves, value: value.clone(), bytes, call: self.call };
        self.bytes += bytes;
        ALL_BYTES.fetch_add(bytes, Ordering::Relaxed);
        if let Some(replaced) = self.entries.insert(item.as_ptr() as usize, entry) {
            self.release(replaced.bytes);
        }
        value
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= EPISODE_BYTES_MAX && ALL_BYTES.load(Ordering::Relaxed) + bytes <= ALL_BYTES_MAX
    }

    fn release(&mut self, bytes: usize) {
        self.bytes -= bytes;
        ALL_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Lets go what was not met for some calls.
    fn end_call(&mut self) {
        self.call += 1;
        if !self.call.is_multiple_of(CALLS_KEPT) {
            return;
        }
        let oldest = self.call - CALLS_KEPT;
        let mut released = 0;
        self.entries.retain(|_, entry| {
            let stays = entry.call >= oldest;
            released += if stays { 0 } else { entry.bytes };
            stays
        });
        self.release(released);
    }
}

impl Drop for Past {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// True for what can never change: exactly these classes, since what derives from them may have attributes.
fn is_leaf(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyBytes>()
}

/// Writes down what an item is made of. False if part of it cannot be known again.
fn trace(object: &Bound<'_, PyAny>, shape: &mut Vec<usize>, leaves: &mut Vec<Py<PyAny>>) -> bool {
    if shape.len() > PARTS_MAX {
        return false;
    }
    if let Ok(map) = object.cast_exact::<PyDict>() {
        shape.extend([DICT, map.len()]);
        return map
            .iter()
            .all(|(key, item)| is_leaf(&key) && trace(&key, shape, leaves) && trace(&item, shape, leaves));
    }
    if let Ok(list) = object.cast_exact::<PyList>() {
        shape.extend([LIST, list.len()]);
        return list.iter().all(|item| trace(&item, shape, leaves));
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        shape.extend([TUPLE, tuple.len()]);
        return tuple.iter().all(|item| trace(&item, shape, leaves));
    }
    shape.push(object.as_ptr() as usize);
    leaves.push(object.clone().unbind());
    is_leaf(object)
}

/// True if an object is made of exactly what was written down.
fn matches(object: &Bound<'_, PyAny>, shape: &mut impl Iterator<Item = usize>) -> bool {
    match shape.next() {
        Some(DICT) => object.cast_exact::<PyDict>().is_ok_and(|map| {
            shape.next() == Some(map.len())
                && map.iter().all(|(key, item)| matches(&key, shape) && matches(&item, shape))
        }),
        Some(LIST) => object.cast_exact::<PyList>().is_ok_and(|list| {
            shape.next() == Some(list.len()) && list.iter().all(|item| matches(&item, shape))
        }),
        Some(TUPLE) => object.cast_exact::<PyTuple>().is_ok_and(|tuple| {
            shape.next() == Some(tuple.len()) && tuple.iter().all(|item| matches(&item, shape))
        }),
        leaf => leaf == Some(object.as_ptr() as usize),
    }
}
