//! Collections that cannot be cut anywhere: their items, or references to them, are put into a vector first.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};

use super::{IntoSource, Items};

/// Makes sources of what the iterators over collections give.
macro_rules! through_a_vector {
    ($([$($parameters:tt)*] $collection:ty, $item:ty;)*) => {$(
        impl<$($parameters)*> IntoSource for $collection {
            type Source = Items<$item>;
            type Item = $item;

            fn into_source(self) -> Items<$item> {
                Items::new(self.into_iter().collect())
            }
        }
    )*};
}

through_a_vector! {
    [K: Send, V: Send, H] HashMap<K, V, H>, (K, V);
    ['a, K: Sync, V: Sync, H] &'a HashMap<K, V, H>, (&'a K, &'a V);
    ['a, K: Sync, V: Send, H] &'a mut HashMap<K, V, H>, (&'a K, &'a mut V);
    [K: Send, V: Send] BTreeMap<K, V>, (K, V);
    ['a, K: Sync, V: Sync] &'a BTreeMap<K, V>, (&'a K, &'a V);
    ['a, K: Sync, V: Send] &'a mut BTreeMap<K, V>, (&'a K, &'a mut V);
    [T: Send, H] HashSet<T, H>, T;
    ['a, T: Sync, H] &'a HashSet<T, H>, &'a T;
    [T: Send] BTreeSet<T>, T;
    ['a, T: Sync] &'a BTreeSet<T>, &'a T;
    [T: Send] BinaryHeap<T>, T;
    ['a, T: Sync] &'a BinaryHeap<T>, &'a T;
    [T: Send] LinkedList<T>, T;
    ['a, T: Sync] &'a LinkedList<T>, &'a T;
    [T: Send] VecDeque<T>, T;
    ['a, T: Sync] &'a VecDeque<T>, &'a T;
    ['a, T: Send] &'a mut VecDeque<T>, &'a mut T;
}
