//! Records as they were last read or written, so that a job that is submitted, claimed and completed is not read three
//! times. The writer of a SQLite file is the only one who changes it, so what it wrote is what is there, as long as its
//! transaction is not undone: then everything is forgotten and read again. On PostgreSQL a record is used if the row has
//! the same revision.
//!
//! It is bounded: new entries go into a young half; when that is full it becomes the old half, and the old one is
//! dropped. An entry that is used moves to the young half again. The halves are exchanged between operations only, so
//! what an operation has read stays until its end.

use std::hash::Hash;

use crate::ids::IdMap as Map;

/// A bounded map that forgets what was not used for the longest time, roughly.
pub(crate) struct Cache<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
    half: usize,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            young: Map::default(),
            old: Map::default(),
            half: entries.div_ceil(2),
        }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        if !self.old.is_empty()
            && let Some(value) = self.old.remove(&key)
        {
            self.young.insert(key, value);
        }
        self.young.get_mut(&key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if !self.old.is_empty() {
            self.old.remove(&key);
        }
        self.young.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Between operations: makes room.
    pub(crate) fn settle(&mut self) {
        if self.half == 0 {
            self.clear();
        } else if self.young.len() >= self.half {
            // The old half's memory is used again.
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_size_is_bounded() {
        let mut cache = Cache::new(100);
        cache.insert(0, 0);
        for key in 1..10_000 {
            cache.settle();
            cache.insert(key, key);
            assert_eq!(cache.get_mut(0), Some(&mut 0));
            assert!(cache.young.len() + cache.old.len() <= 101);
        }
        assert_eq!(cache.get_mut(1), None);
        assert_eq!(cache.remove(0), Some(0));
        assert_eq!(cache.get_mut(0), None);
    }
}
