//! Putting the items into vectors.
//!
//! If every item of the source gives one result, the place of each is known beforehand, and the workers write into the
//! one vector ([`Slots`]). Otherwise every piece has a vector of its own ([`Pieces`]), and they are moved together at
//! the end.

use std::ops::ControlFlow;

use jobtree_pool::Worker;
use jobtree_pool::raw::{Filled, OwnedItems, Slots, UserOwned, UserVec, fill_vec};

use super::search::FirstEnd;
use super::write::Beside;
use super::{Consume, first_of};
use crate::drive::{Body, Splittable, drive};
use crate::looping::Loop;
use crate::source::Source;
use crate::transform::Transform;

impl<T: Send> Splittable for Slots<'_, T> {
    #[inline(always)]
    fn item_count(&self) -> usize {
        Slots::len(self)
    }

    #[inline(always)]
    fn cut_at(self, index: usize) -> (Self, Self) {
        Slots::split_at(self, index)
    }
}

/// Writes each result to its place.
struct Fill<'a, T> {
    transform: &'a T,
}

impl<'a, S, T> Body<Beside<S, Slots<'a, T::Out>>> for Fill<'_, T>
where
    S: Source,
    T: Transform<S::Item>,
    T::Out: Send,
{
    type State = Filled<'a, T::Out>;

    #[inline(always)]
    fn start(&self) -> Self::State {
        Filled::nothing()
    }

    #[inline(always)]
    fn feed(
        &self,
        state: Self::State,
        _: usize,
        block: Beside<S, Slots<'a, T::Out>>,
    ) -> Self::State {
        let Beside {
            source,
            beside: slots,
        } = block;
        state.append(slots.fill(self.transform.apply(source.items())))
    }

    #[inline(always)]
    fn combine(&self, left: Self::State, right: Self::State) -> Self::State {
        left.append(right)
    }
}

/// Vectors whose items follow one another.
struct Pieces<T>(Vec<UserVec<T>>);

impl<T: Send> Pieces<T> {
    fn new() -> Pieces<T> {
        Pieces(Vec::new())
    }

    /// The vector that the next items go into.
    #[inline]
    fn last(&mut self) -> &mut Vec<T> {
        if self.0.is_empty() {
            self.0.push(UserVec::new(Vec::new()));
        }
        self.0.last_mut().expect("there is one now")
    }

    fn append(mut self, mut next: Pieces<T>) -> Pieces<T> {
        if self.0.is_empty() {
            return next;
        }
        self.0.append(&mut next.0);
        self
    }

    /// Moves all items to the end of `vec`.
    fn move_to(mut self, vec: &mut Vec<T>) {
        self.0.retain(|piece| !piece.is_empty());
        if self.0.len() == 1 && vec.is_empty() && vec.capacity() < self.0[0].len() {
            let old = std::mem::replace(vec, self.0.remove(0).into_inner());
            debug_assert!(old.is_empty(), "looked at above");
            return;
        }
        let len = self.0.iter().map(|piece| piece.len()).sum();
        let pieces = &mut self.0[..];
        fill_vec(vec, len, |slots| {
            jobtree_pool::with_worker(|worker| move_all(worker, pieces, slots))
        });
    }
}

/// Makes a vector of each half.
fn both<A: Send, B: Send>((left, right): (Pieces<A>, Pieces<B>)) -> (Vec<A>, Vec<B>) {
    // Moving the second half forks, and so may unwind.
    let mut first = UserVec::new(Vec::new());
    left.move_to(&mut first);
    let mut second = Vec::new();
    right.move_to(&mut second);
    (first.into_inner(), second)
}

/// Moves the items of all `pieces` into `slots`, which are just as many.
fn move_all<'a, T: Send>(
    worker: &Worker,
    pieces: &mut [UserVec<T>],
    slots: Slots<'a, T>,
) -> Filled<'a, T> {
    if let [piece] = pieces {
        return slots.fill(piece.drain(..));
    }
    let (left, right) = pieces.split_at_mut(pieces.len() / 2);
    if right.is_empty() {
        return Filled::nothing();
    }
    let (left_slots, right_slots) = slots.split_at(left.iter().map(|piece| piece.len()).sum());
    let (left, right) = worker.join(
        |worker| move_all(worker, left, left_slots),
        |worker| move_all(worker, right, right_slots),
    );
    left.append(right)
}

struct Gather;

impl<Item: Send> Consume<Item> for Gather {
    type State = Pieces<Item>;

    fn start(&self) -> Pieces<Item> {
        Pieces::new()
    }

    #[inline(always)]
    fn feed(
        &self,
        mut state: Pieces<Item>,
        _: usize,
        items: impl Iterator<Item = Item>,
    ) -> Pieces<Item> {
        state.last().extend(items);
        state
    }

    fn combine(&self, left: Pieces<Item>, right: Pieces<Item>) -> Pieces<Item> {
        left.append(right)
    }
}

struct TryGather {
    first_error: FirstEnd,
}

impl<R: Send, E: Send> Consume<Result<R, E>> for TryGather {
    type State = (Pieces<R>, Option<E>);

    const LONGEST_BLOCK: usize = 64;

    fn start(&self) -> Self::State {
        (Pieces::new(), None)
    }

    #[inline(always)]
    fn feed(
        &self,
        (mut pieces, error): Self::State,
        position: usize,
        mut items: impl Iterator<Item = Result<R, E>>,
    ) -> Self::State {
        let values = pieces.last();
        let outcome = items.try_for_each(|result| match result {
            Ok(value) => {
                values.push(value);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        match outcome {
            ControlFlow::Continue(()) => (pieces, error),
            ControlFlow::Break(error) => {
                self.first_error.ends_in_block_at(position);
                (pieces, Some(error))
            }
        }
    }

    fn combine(&self, left: Self::State, right: Self::State) -> Self::State {
        (left.0.append(right.0), first_of(left.1, right.1))
    }

    #[inline(always)]
    fn can_skip(&self, position: usize) -> bool {
        self.first_error.is_before(position)
    }
}

struct Partition<F> {
    predicate: F,
}

impl<Item, F> Consume<Item> for Partition<F>
where
    Item: Send,
    F: Fn(&Item) -> bool + Sync,
{
    type State = (Pieces<Item>, Pieces<Item>);

    fn start(&self) -> Self::State {
        (Pieces::new(), Pieces::new())
    }

    #[inline(always)]
    fn feed(
        &self,
        (mut yes, mut no): Self::State,
        _: usize,
        items: impl Iterator<Item = Item>,
    ) -> Self::State {
        let (yes_items, no_items) = (yes.last(), no.last());
        items.for_each(|item| {
            let item = UserOwned::value(item);
            if (self.predicate)(&item) {
                yes_items.push(item.into_inner());
            } else {
                no_items.push(item.into_inner());
            }
        });
        (yes, no)
    }

    fn combine(&self, left: Self::State, right: Self::State) -> Self::State {
        (left.0.append(right.0), left.1.append(right.1))
    }
}

struct Unzip;

impl<A: Send, B: Send> Consume<(A, B)> for Unzip {
    type State = (Pieces<A>, Pieces<B>);

    fn start(&self) -> Self::State {
        (Pieces::new(), Pieces::new())
    }

    #[inline(always)]
    fn feed(
        &self,
        (mut left, mut right): Self::State,
        _: usize,
        items: impl Iterator<Item = (A, B)>,
    ) -> Self::State {
        let (lefts, rights) = (left.last(), right.last());
        items.for_each(|(a, b)| {
            lefts.push(a);
            rights.push(b);
        });
        (left, right)
    }

    fn combine(&self, left: Self::State, right: Self::State) -> Self::State {
        (left.0.append(right.0), left.1.append(right.1))
    }
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
    T::Out: Send,
{
    /// A vector of all items, in order.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..5).map(|n| n * n).collect(), [0, 1, 4, 9, 16]);
    /// ```
    pub fn collect(self) -> Vec<T::Out> {
        let mut vec = Vec::new();
        self.collect_into(&mut vec);
        vec
    }

    /// Appends all items to a vector, in order.
    ///
    /// ```
    /// let mut numbers = vec![7];
    /// jobtree_par::over(0..3).collect_into(&mut numbers);
    /// assert_eq!(numbers, [7, 0, 1, 2]);
    /// ```
    ///
    /// # Panics
    /// If a closure of the loop panics. Then the vector is as it was.
    pub fn collect_into(self, vec: &mut Vec<T::Out>) {
        if !T::ONE_TO_ONE {
            return self.consume(Gather).move_to(vec);
        }
        let transform = UserOwned::captured(self.transform);
        let fill = Fill {
            transform: &*transform,
        };
        fill_vec(vec, self.source.len(), |slots| {
            let items = Beside {
                source: self.source,
                beside: slots,
            };
            drive(items, self.grain, &fill)
        });
    }

    /// Any collection of all items, in order: a map, a set, a `String`, or a `Result` or `Option` of one. What the items
    /// become is computed in parallel; one worker then puts them into the collection.
    ///
    /// A loop that shall end with the first error is [`try_collect`](Loop::try_collect).
    ///
    /// ```
    /// use jobtree_par as par;
    /// use std::collections::BTreeMap;
    ///
    /// let words = ["job", "tree"];
    /// let lengths: BTreeMap<_, _> = par::over(&words).map(|word| (*word, word.len())).collect_as();
    /// assert_eq!(lengths["tree"], 4);
    ///
    /// let numbers: Result<Vec<u8>, _> = par::over(["1", "two"]).map(str::parse).collect_as();
    /// assert!(numbers.is_err());
    /// ```
    pub fn collect_as<C>(self) -> C
    where
        C: FromIterator<T::Out>,
    {
        // The collection may panic with any number of values left.
        OwnedItems::new(self.collect()).collect()
    }

    /// Two vectors: the first halves of all pairs, and the second ones, both in order.
    ///
    /// ```
    /// let (numbers, squares) = jobtree_par::over(0..4).map(|n| (n, n * n)).unzip();
    /// assert_eq!((numbers, squares), (vec![0, 1, 2, 3], vec![0, 1, 4, 9]));
    /// ```
    pub fn unzip<A, B>(self) -> (Vec<A>, Vec<B>)
    where
        T: Transform<S::Item, Out = (A, B)>,
        A: Send,
        B: Send,
    {
        both(self.consume(Unzip))
    }

    /// Two vectors: the items for which `predicate` holds, and the others, both in order.
    ///
    /// ```
    /// let (even, odd) = jobtree_par::over(0..6).partition(|n| n % 2 == 0);
    /// assert_eq!((even, odd), (vec![0, 2, 4], vec![1, 3, 5]));
    /// ```
    pub fn partition<F>(self, predicate: F) -> (Vec<T::Out>, Vec<T::Out>)
    where
        F: Fn(&T::Out) -> bool + Sync,
    {
        both(self.consume(Partition { predicate }))
    }

    /// A vector of all values if every item is `Ok`; otherwise the error that a sequential loop would give.
    ///
    /// Everything that was begun has ended when it returns.
    ///
    /// ```
    /// let parse = |words: &[&str]| jobtree_par::over(words).map(|word| word.parse::<u8>()).try_collect();
    /// assert_eq!(parse(&["1", "2"]), Ok(vec![1, 2]));
    /// assert!(parse(&["1", "256"]).is_err());
    /// ```
    ///
    /// # Errors
    /// The first error by position.
    pub fn try_collect<R, E>(self) -> Result<Vec<R>, E>
    where
        T: Transform<S::Item, Out = Result<R, E>>,
        R: Send,
        E: Send,
    {
        let (pieces, error) = self.consume(TryGather {
            first_error: FirstEnd::none(),
        });
        if let Some(error) = error {
            return Err(error);
        }
        let mut values = Vec::new();
        pieces.move_to(&mut values);
        Ok(values)
    }
}
