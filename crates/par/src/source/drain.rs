//! The values of a vector, by value.

use jobtree_pool::raw::Filled;

use super::Source;

/// All items of a vector, taken out of it; see [`drain`](crate::drain).
#[derive(Debug)]
pub struct Drain<'a, T> {
    items: Filled<'a, T>,
}

impl<'a, T> Drain<'a, T> {
    pub(crate) fn new(vec: &'a mut Vec<T>) -> Drain<'a, T> {
        Drain {
            items: Filled::drain(vec),
        }
    }
}

impl<T: Send> Source for Drain<'_, T> {
    type Item = T;

    #[inline]
    fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let (left, right) = self.items.split_at(index);
        (Drain { items: left }, Drain { items: right })
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = T> {
        self.items.into_iter()
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = T> {
        self.items.into_iter().rev()
    }
}
