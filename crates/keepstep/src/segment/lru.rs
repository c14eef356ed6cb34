//! A cache of the values that were used last, up to a number of bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key. When there are too many bytes, the one that was unused for the longest time is dropped.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    held: HashMap<K, Held<V>>,
    order: BTreeMap<u64, K>,
    tick: u64,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Held<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Lru<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { held: HashMap::new(), order: BTreeMap::new(), tick: 0, bytes: 0, bytes_max }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        let held = self.held.get_mut(key)?;
        self.tick += 1;
        if let Some(key) = self.order.remove(&held.used) {
            self.order.insert(self.tick, key);
        }
        held.used = self.tick;
        Some(held.value.clone())
    }

    /// Keeps a value, unless it alone is larger than the whole cache.
    pub(crate) fn put(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        if bytes > self.bytes_max {
            return;
        }
        while self.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.bytes -= self.held.remove(&oldest).map_or(0, |held| held.bytes);
        }
        self.tick += 1;
        self.bytes += bytes;
        self.order.insert(self.tick, key.clone());
        self.held.insert(key, Held { value, bytes, used: self.tick });
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(held) = self.held.remove(key) {
            self.order.remove(&held.used);
            self.bytes -= held.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However much is put in, only so many bytes stay, and they are those that were used last.
    #[test]
    fn what_was_not_used_goes_first() {
        let mut lru = Lru::new(30);
        for key in 0..3 {
            lru.put(key, key, 10);
        }
        assert_eq!(lru.get(&0), Some(0));
        lru.put(3, 3, 10);
        assert_eq!((lru.get(&0), lru.get(&1), lru.get(&2), lru.get(&3)), (Some(0), None, Some(2), Some(3)));
        lru.put(4, 4, 31);
        assert_eq!(lru.get(&4), None);
        lru.put(0, 7, 30);
        assert_eq!((lru.get(&0), lru.get(&2), lru.bytes), (Some(7), None, 30));
    }
}
