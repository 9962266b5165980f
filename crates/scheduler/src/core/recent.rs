//! News from while something was being read: the reading may show how it was before.
//!
//! An entry is needed as long as a reading is under way that began before it was made. Readings may overlap without end, so
//! entries go with the oldest reading under way, not with the last one.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::operations::OpId;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    /// Each with the first operation that begins after it was learnt.
    entries: HashMap<K, (OpId, V)>,
    /// The keys by that operation. A key that was noted more than once stands here more than once.
    order: VecDeque<(OpId, K)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// Notes what is known of `key` now. Operations from `next` on begin after this.
    pub(super) fn note(&mut self, key: K, value: V, next: OpId) {
        let before = self.entries.insert(key, (next, value));
        if before.is_none_or(|(since, _)| since != next) {
            self.order.push_back((next, key));
        }
    }

    /// Returns what was noted of `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Forgets what every reading shows that is under way: `oldest` is the first of them, or the next operation.
    pub(super) fn forget(&mut self, oldest: OpId) {
        while let Some((since, key)) = self.order.front().copied() {
            if since > oldest {
                return;
            }
            self.order.pop_front();
            if self.entries.get(&key).is_some_and(|(at, _)| *at == since) {
                self.entries.remove(&key);
            }
        }
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len().max(self.order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_until_the_last_reading_that_began_before_it_ends() {
        let mut recent = Recent::default();
        // Operations 3 and 5 read; what comes between them is newer than 3 shows, and what comes later than both show.
        recent.note('a', 1, 4);
        recent.note('b', 2, 6);
        recent.forget(3);
        assert_eq!((recent.get(&'a'), recent.get(&'b')), (Some(&1), Some(&2)));
        recent.forget(5);
        assert_eq!((recent.get(&'a'), recent.get(&'b')), (None, Some(&2)));
        recent.forget(6);
        assert_eq!(recent.len(), 0);
    }

    #[test]
    fn a_key_that_is_noted_again_stays_for_the_later_note() {
        let mut recent = Recent::default();
        recent.note('a', 1, 4);
        recent.note('a', 2, 4);
        recent.note('a', 3, 6);
        assert_eq!(recent.len(), 2);
        recent.forget(4);
        assert_eq!((recent.get(&'a'), recent.len()), (Some(&3), 1));
    }
}
