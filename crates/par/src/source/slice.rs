//! Slices, shared and exclusive, and what can be seen as one.

use super::{IntoSource, Source};

impl<'a, T: Sync> Source for &'a [T] {
    type Item = &'a T;

    #[inline(always)]
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[inline(always)]
    fn split_at(self, index: usize) -> (Self, Self) {
        <[T]>::split_at(self, index)
    }

    #[inline(always)]
    fn items(self) -> impl Iterator<Item = &'a T> {
        self.iter()
    }

    #[inline(always)]
    fn items_from_back(self) -> impl Iterator<Item = &'a T> {
        self.iter().rev()
    }
}

impl<'a, T: Send> Source for &'a mut [T] {
    type Item = &'a mut T;

    #[inline(always)]
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[inline(always)]
    fn split_at(self, index: usize) -> (Self, Self) {
        self.split_at_mut(index)
    }

    #[inline(always)]
    fn items(self) -> impl Iterator<Item = &'a mut T> {
        self.iter_mut()
    }

    #[inline(always)]
    fn items_from_back(self) -> impl Iterator<Item = &'a mut T> {
        self.iter_mut().rev()
    }
}

impl<'a, T: Sync> IntoSource for &'a Vec<T> {
    type Source = &'a [T];
    type Item = &'a T;

    fn into_source(self) -> &'a [T] {
        self
    }
}

impl<'a, T: Send> IntoSource for &'a mut Vec<T> {
    type Source = &'a mut [T];
    type Item = &'a mut T;

    fn into_source(self) -> &'a mut [T] {
        self
    }
}

impl<'a, T: Sync, const N: usize> IntoSource for &'a [T; N] {
    type Source = &'a [T];
    type Item = &'a T;

    fn into_source(self) -> &'a [T] {
        self
    }
}

impl<'a, T: Send, const N: usize> IntoSource for &'a mut [T; N] {
    type Source = &'a mut [T];
    type Item = &'a mut T;

    fn into_source(self) -> &'a mut [T] {
        self
    }
}
