//! Items that the loop owns.

use jobtree_pool::raw::OwnedItems;

use super::{IntoSource, Source};

/// The items of a vector or another collection, by value; [`over`](crate::over) makes it of one.
#[derive(Debug)]
pub struct Items<T> {
    items: OwnedItems<T>,
}

impl<T> Items<T> {
    pub(crate) fn new(vec: Vec<T>) -> Items<T> {
        Items {
            items: OwnedItems::new(vec),
        }
    }
}

impl<T: Send> Source for Items<T> {
    type Item = T;

    #[inline]
    fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let (left, right) = self.items.split_at(index);
        (Items { items: left }, Items { items: right })
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = T> {
        self.items
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = T> {
        self.items.rev()
    }
}

impl<T: Send> IntoSource for Vec<T> {
    type Source = Items<T>;
    type Item = T;

    fn into_source(self) -> Items<T> {
        Items::new(self)
    }
}

impl<T: Send> IntoSource for Box<[T]> {
    type Source = Items<T>;
    type Item = T;

    fn into_source(self) -> Items<T> {
        Items::new(self.into_vec())
    }
}

impl<T: Send, const N: usize> IntoSource for [T; N] {
    type Source = Items<T>;
    type Item = T;

    fn into_source(self) -> Items<T> {
        Items::new(Vec::from(self))
    }
}

impl<T: Send> IntoSource for Option<T> {
    type Source = Items<T>;
    type Item = T;

    fn into_source(self) -> Items<T> {
        Items::new(self.into_iter().collect())
    }
}
