//! Making one value of all items.

use std::iter::{Product, Sum};
use std::marker::PhantomData;

use jobtree_pool::raw::UserOwned;

use super::Consume;
use crate::looping::Loop;
use crate::source::Source;
use crate::transform::Transform;

struct Fold<I, F, C> {
    identity: I,
    fold: F,
    combine: C,
}

impl<Item, A, I, F, C> Consume<Item> for Fold<I, F, C>
where
    A: Send,
    I: Fn() -> A + Sync,
    F: Fn(A, Item) -> A + Sync,
    C: Fn(A, A) -> A + Sync,
{
    type State = A;

    #[inline(always)]
    fn start(&self) -> A {
        (self.identity)()
    }

    #[inline(always)]
    fn feed(&self, state: A, _: usize, items: impl Iterator<Item = Item>) -> A {
        items.fold(state, &self.fold)
    }

    #[inline(always)]
    fn combine(&self, left: A, right: A) -> A {
        (self.combine)(left, right)
    }
}

struct Reduce<F> {
    operation: F,
}

impl<Item, F> Consume<Item> for Reduce<F>
where
    Item: Send,
    F: Fn(Item, Item) -> Item + Sync,
{
    type State = Option<Item>;

    #[inline(always)]
    fn start(&self) -> Option<Item> {
        None
    }

    #[inline(always)]
    fn feed(
        &self,
        state: Option<Item>,
        _: usize,
        items: impl Iterator<Item = Item>,
    ) -> Option<Item> {
        // The block for itself first: a loop that begins with a value out of nowhere is harder to make fast.
        let state = UserOwned::value(state);
        let block = items.reduce(&self.operation);
        self.combine(state.into_inner(), block)
    }

    #[inline(always)]
    fn combine(&self, left: Option<Item>, right: Option<Item>) -> Option<Item> {
        match (left, right) {
            (Some(left), Some(right)) => Some((self.operation)(left, right)),
            (left, right) => left.or(right),
        }
    }
}

struct Total<R>(PhantomData<fn() -> R>);

impl<Item, R> Consume<Item> for Total<R>
where
    R: Sum<Item> + Sum<R> + Send,
{
    type State = R;

    #[inline(always)]
    fn start(&self) -> R {
        std::iter::empty::<R>().sum()
    }

    #[inline(always)]
    fn feed(&self, state: R, _: usize, items: impl Iterator<Item = Item>) -> R {
        let state = UserOwned::value(state);
        let block: R = items.sum();
        <Self as Consume<Item>>::combine(self, state.into_inner(), block)
    }

    #[inline(always)]
    fn combine(&self, left: R, right: R) -> R {
        [left, right].into_iter().sum()
    }
}

struct Multiplied<R>(PhantomData<fn() -> R>);

impl<Item, R> Consume<Item> for Multiplied<R>
where
    R: Product<Item> + Product<R> + Send,
{
    type State = R;

    #[inline(always)]
    fn start(&self) -> R {
        std::iter::empty::<R>().product()
    }

    #[inline(always)]
    fn feed(&self, state: R, _: usize, items: impl Iterator<Item = Item>) -> R {
        let state = UserOwned::value(state);
        let block: R = items.product();
        <Self as Consume<Item>>::combine(self, state.into_inner(), block)
    }

    #[inline(always)]
    fn combine(&self, left: R, right: R) -> R {
        [left, right].into_iter().product()
    }
}

struct Count;

impl<Item> Consume<Item> for Count {
    type State = usize;

    #[inline(always)]
    fn start(&self) -> usize {
        0
    }

    #[inline(always)]
    fn feed(&self, state: usize, _: usize, items: impl Iterator<Item = Item>) -> usize {
        state + items.count()
    }

    #[inline(always)]
    fn combine(&self, left: usize, right: usize) -> usize {
        left + right
    }
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
{
    /// Folds the items of each piece with `fold`, starting from an `identity`, and the pieces with `combine`, in order.
    ///
    /// The result is that of a sequential fold if `identity` changes nothing and it makes no difference where the row
    /// is cut.
    ///
    /// ```
    /// // The longest run of rising numbers would not do; the letters of all words in order will.
    /// let words = ["job", "tree"];
    /// let all = jobtree_par::over(&words).fold(
    ///     String::new,
    ///     |text, word| text + word,
    ///     |left, right| left + &right,
    /// );
    /// assert_eq!(all, "jobtree");
    /// ```
    pub fn fold<A, I, F, C>(self, identity: I, fold: F, combine: C) -> A
    where
        A: Send,
        I: Fn() -> A + Sync,
        F: Fn(A, T::Out) -> A + Sync,
        C: Fn(A, A) -> A + Sync,
    {
        self.consume(Fold {
            identity,
            fold,
            combine,
        })
    }

    /// Makes one of all items, in order; `None` if there are none. `operation` must be associative.
    ///
    /// ```
    /// let longest = jobtree_par::over(&["a", "abc", "ab"]).reduce(|a, b| if b.len() > a.len() { b } else { a });
    /// assert_eq!(longest, Some(&"abc"));
    /// ```
    pub fn reduce<F>(self, operation: F) -> Option<T::Out>
    where
        T::Out: Send,
        F: Fn(T::Out, T::Out) -> T::Out + Sync,
    {
        self.consume(Reduce { operation })
    }

    /// The sum of all items.
    ///
    /// Floating-point numbers are added piece by piece, so the last digits may differ from run to run.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(1..101).sum::<i32>(), 5050);
    /// ```
    pub fn sum<R>(self) -> R
    where
        R: Sum<T::Out> + Sum<R> + Send,
    {
        self.consume(Total(PhantomData))
    }

    /// The product of all items.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(1..11_u64).product::<u64>(), 3_628_800);
    /// ```
    pub fn product<R>(self) -> R
    where
        R: Product<T::Out> + Product<R> + Send,
    {
        self.consume(Multiplied(PhantomData))
    }

    /// Returns the number of items.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..1000).filter(|n| n % 7 == 0).count(), 143);
    /// ```
    pub fn count(self) -> usize {
        self.consume(Count)
    }
}
