//! The ways to run a loop, one file for each kind.
//!
//! Each is a [`Consume`]: what it keeps while it goes through items, and how two such states become one. [`Through`]
//! lays the loop's transform in between, and [`drive`](crate::drive) does the rest.

mod collect;
mod extremes;
mod fold;
mod for_each;
mod scatter;
mod search;
mod write;

pub use scatter::ScatterError;
pub use write::map_in_place;

use std::mem::needs_drop;

use jobtree_pool::raw::UserOwned;

use crate::drive::{Body, drive};
use crate::looping::Loop;
use crate::source::Source;
use crate::transform::Transform;

/// A consumer of items from any source. The methods are those of [`Body`].
pub(crate) trait Consume<Item>: Sync {
    type State: Send;

    const LONGEST_BLOCK: usize = 4096;
    const MAY_END_SOON: bool = false;

    fn start(&self) -> Self::State;

    fn feed(
        &self,
        state: Self::State,
        position: usize,
        items: impl Iterator<Item = Item>,
    ) -> Self::State;

    fn combine(&self, left: Self::State, right: Self::State) -> Self::State;

    #[inline(always)]
    fn can_skip(&self, position: usize) -> bool {
        let _ = position;
        false
    }
}

/// A [`Consume`] behind a [`Transform`].
struct Through<'a, T, C> {
    transform: &'a T,
    consumer: &'a C,
}

impl<S, T, C> Body<S> for Through<'_, T, C>
where
    S: Source,
    T: Transform<S::Item>,
    C: Consume<T::Out>,
{
    type State = C::State;

    const LONGEST_BLOCK: usize = C::LONGEST_BLOCK;
    const MAY_END_SOON: bool = C::MAY_END_SOON;

    #[inline(always)]
    fn start(&self) -> C::State {
        self.consumer.start()
    }

    #[inline(always)]
    fn feed(&self, state: C::State, position: usize, block: S) -> C::State {
        let items = self.transform.apply(block.items());
        self.consumer.feed(state, position, items)
    }

    #[inline(always)]
    fn combine(&self, left: C::State, right: C::State) -> C::State {
        self.consumer.combine(left, right)
    }

    #[inline(always)]
    fn can_skip(&self, position: usize) -> bool {
        self.consumer.can_skip(position)
    }
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
{
    pub(crate) fn consume<C>(self, consumer: C) -> C::State
    where
        C: Consume<T::Out>,
    {
        // The closures in them are dropped when the loop has ended, or because it panics.
        let transform = UserOwned::captured(self.transform);
        let consumer = UserOwned::captured(consumer);
        let body = Through {
            transform: &*transform,
            consumer: &*consumer,
        };
        drive(self.source, self.grain, &body)
    }
}

/// Returns the first value of two. The other one is dropped here, where no caller could take a panic of its destructor without
/// losing what the loop has found.
#[inline(always)]
fn first_of<T>(left: Option<T>, right: Option<T>) -> Option<T> {
    let right = UserOwned::value(right);
    match left {
        Some(left) => Some(left),
        None => right.into_inner(),
    }
}

/// Calls `look`, a closure of the program's, with an item that is the library's: if both that and the item's destructor panic, the
/// process goes on. Items without a destructor take the plain way.
#[inline(always)]
fn examine<T, R>(item: T, look: impl FnOnce(&T) -> R) -> (T, R) {
    if !needs_drop::<T>() {
        let seen = look(&item);
        return (item, seen);
    }
    let item = UserOwned::value(item);
    let seen = look(&item);
    (item.into_inner(), seen)
}

/// Returns `left` or `right`, as `takes_right` says, and drops the other one; neither that nor a panic of `takes_right` ends the
/// process, whatever their destructors do.
#[inline(always)]
fn choose<T>(left: T, right: T, takes_right: impl FnOnce(&T, &T) -> bool) -> T {
    if !needs_drop::<T>() {
        return if takes_right(&left, &right) {
            right
        } else {
            left
        };
    }
    let (left, right) = (UserOwned::value(left), UserOwned::value(right));
    if takes_right(&left, &right) {
        drop(left);
        right.into_inner()
    } else {
        drop(right);
        left.into_inner()
    }
}
