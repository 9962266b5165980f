//! Loops that may end early.
//!
//! Two kinds of end: any item that breaks ends the whole loop ([`UntilAny`]), or only what comes after it, so that in
//! the end the first one by position wins ([`UntilFirst`]). Workers look at block borders whether there is still
//! something to do, so after the end each of them handles at most a block more.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Consume, examine, first_of};
use crate::looping::Loop;
use crate::source::Source;
use crate::transform::{AsIs, AtMostOne, Transform};

/// The most items that a worker handles after another one has ended the loop.
const SEARCH_BLOCK: usize = 64;

struct UntilAny<F> {
    step: F,
    ended: AtomicBool,
}

impl<F> UntilAny<F> {
    fn new(step: F) -> UntilAny<F> {
        UntilAny {
            step,
            ended: AtomicBool::new(false),
        }
    }
}

impl<Item, B, F> Consume<Item> for UntilAny<F>
where
    B: Send,
    F: Fn(Item) -> ControlFlow<B> + Sync,
{
    type State = Option<B>;

    const LONGEST_BLOCK: usize = SEARCH_BLOCK;
    const MAY_END_SOON: bool = true;

    #[inline(always)]
    fn start(&self) -> Option<B> {
        None
    }

    #[inline(always)]
    fn feed(&self, state: Option<B>, _: usize, mut items: impl Iterator<Item = Item>) -> Option<B> {
        match items.try_for_each(&self.step) {
            ControlFlow::Continue(()) => state,
            ControlFlow::Break(value) => {
                // Relaxed: it only says that looking on is useless. The value goes by the join.
                self.ended.store(true, Ordering::Relaxed);
                Some(value)
            }
        }
    }

    #[inline(always)]
    fn combine(&self, left: Option<B>, right: Option<B>) -> Option<B> {
        first_of(left, right)
    }

    #[inline(always)]
    fn can_skip(&self, _: usize) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

struct UntilFirst<F> {
    step: F,
    first: FirstEnd,
}

impl<F> UntilFirst<F> {
    fn new(step: F) -> UntilFirst<F> {
        UntilFirst {
            step,
            first: FirstEnd::none(),
        }
    }
}

impl<Item, B, F> Consume<Item> for UntilFirst<F>
where
    B: Send,
    F: Fn(Item) -> ControlFlow<B> + Sync,
{
    type State = Option<B>;

    const LONGEST_BLOCK: usize = SEARCH_BLOCK;
    const MAY_END_SOON: bool = true;

    #[inline(always)]
    fn start(&self) -> Option<B> {
        None
    }

    #[inline(always)]
    fn feed(
        &self,
        state: Option<B>,
        position: usize,
        mut items: impl Iterator<Item = Item>,
    ) -> Option<B> {
        match items.try_for_each(&self.step) {
            ControlFlow::Continue(()) => state,
            ControlFlow::Break(value) => {
                self.first.ends_in_block_at(position);
                Some(value)
            }
        }
    }

    #[inline(always)]
    fn combine(&self, left: Option<B>, right: Option<B>) -> Option<B> {
        first_of(left, right)
    }

    #[inline(always)]
    fn can_skip(&self, position: usize) -> bool {
        self.first.is_before(position)
    }
}

/// The beginning of the first block in which an item has ended the loop.
pub(super) struct FirstEnd(AtomicUsize);

impl FirstEnd {
    pub(super) const fn none() -> FirstEnd {
        FirstEnd(AtomicUsize::new(usize::MAX))
    }

    pub(super) fn ends_in_block_at(&self, position: usize) {
        // Relaxed, here and below: it only says what is useless to look at. The values go by the join.
        self.0.fetch_min(position, Ordering::Relaxed);
    }

    /// Returns `true` if a block that begins at `position` comes after the end.
    #[inline(always)]
    pub(super) fn is_before(&self, position: usize) -> bool {
        self.0.load(Ordering::Relaxed) < position
    }
}

#[inline(always)]
fn breaks_if<T>(item: T, found: bool) -> ControlFlow<T> {
    if found {
        ControlFlow::Break(item)
    } else {
        ControlFlow::Continue(())
    }
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
{
    /// Calls `action` with each item until one call breaks; gives the value of one that did.
    ///
    /// Which one that is, is open if several break. Items that have not been begun by then are left out, except that
    /// each worker ends its block of at most 64.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// let outcome = jobtree_par::over(1..1_000_000_u64).for_each_until(|n| {
    ///     if n * n % 1_000_003 == 9 { ControlFlow::Break(n) } else { ControlFlow::Continue(()) }
    /// });
    /// assert!(matches!(outcome, ControlFlow::Break(3 | 1_000_000)));
    /// ```
    pub fn for_each_until<B, F>(self, action: F) -> ControlFlow<B>
    where
        B: Send,
        F: Fn(T::Out) -> ControlFlow<B> + Sync,
    {
        match self.consume(UntilAny::new(action)) {
            Some(value) => ControlFlow::Break(value),
            None => ControlFlow::Continue(()),
        }
    }

    /// Calls `action` with each item until one call fails; gives the error that a sequential loop would give.
    ///
    /// Everything that was begun has ended when it returns. Items before the failed one have all been handled; of
    /// those after it, some may have been.
    ///
    /// ```
    /// let result = jobtree_par::over(&["1", "2", "x", "y"]).try_for_each(|word| {
    ///     word.parse::<u32>().map(|_| ()).map_err(|_| format!("{word} is no number"))
    /// });
    /// assert_eq!(result, Err("x is no number".to_string()));
    /// ```
    ///
    /// # Errors
    /// The error of the first item, by position, for which `action` failed.
    pub fn try_for_each<E, F>(self, action: F) -> Result<(), E>
    where
        E: Send,
        F: Fn(T::Out) -> Result<(), E> + Sync,
    {
        let step = |item| match action(item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        };
        self.consume(UntilFirst::new(step)).map_or(Ok(()), Err)
    }

    /// Any item for which `predicate` holds: the first one that some worker comes across.
    ///
    /// ```
    /// let found = jobtree_par::over(0..1000).find_any(|n| n % 100 == 99).unwrap();
    /// assert_eq!(found % 100, 99);
    /// ```
    pub fn find_any<F>(self, predicate: F) -> Option<T::Out>
    where
        T::Out: Send,
        F: Fn(&T::Out) -> bool + Sync,
    {
        self.consume(UntilAny::new(|item| {
            let (item, found) = examine(item, &predicate);
            breaks_if(item, found)
        }))
    }

    /// The first item, by position, for which `predicate` holds.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..1000).find_first(|n| n % 100 == 99), Some(99));
    /// ```
    pub fn find_first<F>(self, predicate: F) -> Option<T::Out>
    where
        T::Out: Send,
        F: Fn(&T::Out) -> bool + Sync,
    {
        self.consume(UntilFirst::new(|item| {
            let (item, found) = examine(item, &predicate);
            breaks_if(item, found)
        }))
    }

    /// The last item, by position, for which `predicate` holds. Goes through the items from the last to the first.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..1000).find_last(|n| n % 100 == 98), Some(998));
    /// ```
    pub fn find_last<F>(self, predicate: F) -> Option<T::Out>
    where
        T: AtMostOne,
        T::Out: Send,
        F: Fn(&T::Out) -> bool + Sync,
    {
        let backwards = Loop {
            source: crate::source::Reversed::new(self.source),
            transform: self.transform,
            grain: self.grain,
        };
        backwards.find_first(predicate)
    }

    /// The first item.
    ///
    /// ```
    /// let number = jobtree_par::over(&["-", "7", "8"]).filter_map(|word| word.parse().ok()).first();
    /// assert_eq!(number, Some(7));
    /// ```
    pub fn first(self) -> Option<T::Out>
    where
        T::Out: Send,
    {
        self.find_first(|_| true)
    }

    /// The last item.
    ///
    /// ```
    /// let number = jobtree_par::over(&["7", "8", "-"]).filter_map(|word| word.parse().ok()).last();
    /// assert_eq!(number, Some(8));
    /// ```
    pub fn last(self) -> Option<T::Out>
    where
        T: AtMostOne,
        T::Out: Send,
    {
        self.find_last(|_| true)
    }

    /// Returns `true` if `predicate` holds for some item.
    ///
    /// ```
    /// assert!(jobtree_par::over(&[1, 5, 9]).any(|n| n % 5 == 0));
    /// ```
    pub fn any<F>(self, predicate: F) -> bool
    where
        F: Fn(T::Out) -> bool + Sync,
    {
        self.consume(UntilAny::new(|item| breaks_if((), predicate(item))))
            .is_some()
    }

    /// Returns `true` if `predicate` holds for every item.
    ///
    /// ```
    /// assert!(jobtree_par::over(&[1, 5, 9]).all(|n| n % 2 == 1));
    /// ```
    pub fn all<F>(self, predicate: F) -> bool
    where
        F: Fn(T::Out) -> bool + Sync,
    {
        !self.any(|item| !predicate(item))
    }
}

impl<S: Source> Loop<S, AsIs> {
    /// The position of the first item for which `predicate` holds.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(&[4, 8, 15, 16]).position(|n| n % 2 == 1), Some(2));
    /// ```
    pub fn position<F>(self, predicate: F) -> Option<usize>
    where
        F: Fn(S::Item) -> bool + Sync,
    {
        let step = |(position, item)| breaks_if(position, predicate(item));
        self.enumerate().consume(UntilFirst::new(step))
    }
}
