//! [`Loop`]: what to go over, what to do on the way, how finely to cut.
//!
//! Here are the ways to build one; the ways to run one are in `ops`.

use crate::grain::Grain;
use crate::source::{
    Chain, Chunks, ChunksMut, Drain, Enumerate, IntoSource, Reversed, Source, Windows, Zip,
};
use crate::transform::{
    AsIs, Cloned, Filter, FilterMap, FlatMap, Flatten, Map, MapInit, OneToOne, Transform,
};

/// A loop that has not run yet.
///
/// [`over`] begins one. What cuts or joins sources ([`zip`](Loop::zip), [`chain`](Loop::chain),
/// [`enumerate`](Loop::enumerate), [`chunks`](Loop::chunks), [`rev`](Loop::rev)) comes first, then what changes items
/// ([`map`](Loop::map), [`filter`](Loop::filter), …), and last what runs it and gives a result.
///
/// Items must not wait for one another: which of them are handled at the same time is up to the workers.
///
/// In a job that is cancelled a loop ends by unwinding; see [the crate's page](crate#cancellation).
#[derive(Clone, Copy, Debug)]
#[must_use = "a loop does nothing until it is run, for example by `for_each` or `collect`"]
pub struct Loop<S, T = AsIs> {
    pub(crate) source: S,
    pub(crate) transform: T,
    pub(crate) grain: Grain,
}

/// A loop over a range of integers, a slice, a vector, a map or set, or anything else that is a [`Source`].
///
/// ```
/// use jobtree_par as par;
///
/// let squares = par::over(0..1000_u64).map(|n| n * n).sum::<u64>();
/// assert_eq!(squares, 332_833_500);
///
/// let mut numbers = vec![1, 2, 3];
/// par::over(&mut numbers).for_each(|n| *n *= 10);
/// assert_eq!(par::over(&numbers).max(), Some(&30));
/// assert_eq!(par::over(numbers).map(|n| n.to_string()).collect(), ["10", "20", "30"]);
/// ```
pub fn over<I: IntoSource>(items: I) -> Loop<I::Source> {
    Loop {
        source: items.into_source(),
        transform: AsIs,
        grain: Grain::AUTO,
    }
}

/// A loop over all items of a vector, by value. The vector is empty afterwards and keeps its memory.
///
/// ```
/// use jobtree_par as par;
///
/// let mut words = vec![String::from("left"), String::from("right")];
/// let loud = par::drain(&mut words).map(|word| word + "!").collect();
/// assert_eq!(loud, ["left!", "right!"]);
/// assert!(words.is_empty());
/// ```
pub fn drain<T: Send>(vec: &mut Vec<T>) -> Loop<Drain<'_, T>> {
    over(Drain::new(vec))
}

impl<S: Source> IntoSource for Loop<S, AsIs> {
    type Source = S;
    type Item = S::Item;

    fn into_source(self) -> S {
        self.source
    }
}

/// Methods that work on the source.
impl<S: Source> Loop<S> {
    fn with_source<R: Source>(self, change: impl FnOnce(S) -> R) -> Loop<R> {
        Loop {
            source: change(self.source),
            transform: AsIs,
            grain: self.grain,
        }
    }

    /// Goes over both in step, and ends with the shorter one.
    ///
    /// ```
    /// let prices = [3, 4, 5];
    /// let amounts = [10, 0, 2];
    /// let total: i32 = jobtree_par::over(&prices).zip(&amounts).map(|(p, a)| p * a).sum();
    /// assert_eq!(total, 40);
    /// ```
    pub fn zip<I: IntoSource>(self, other: I) -> Loop<Zip<S, I::Source>> {
        self.with_source(|source| Zip::new(source, other.into_source()))
    }

    /// Goes over the other after this one.
    ///
    /// ```
    /// let chained = jobtree_par::over(0..3).chain(7..9).collect();
    /// assert_eq!(chained, [0, 1, 2, 7, 8]);
    /// ```
    ///
    /// # Panics
    /// If both together have more than [`usize::MAX`] items.
    pub fn chain<I>(self, other: I) -> Loop<Chain<S, I::Source>>
    where
        I: IntoSource<Item = S::Item>,
    {
        self.with_source(|source| Chain::new(source, other.into_source()))
    }

    /// Goes over the items from the last to the first.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..4).rev().collect(), [3, 2, 1, 0]);
    /// ```
    pub fn rev(self) -> Loop<Reversed<S>> {
        self.with_source(Reversed::new)
    }
}

impl<'a, T: Sync> Loop<&'a [T]> {
    /// Goes over the slice in pieces of `size` items; the last one may be shorter.
    ///
    /// ```
    /// let sums = jobtree_par::over(&[1, 2, 3, 4, 5]).chunks(2).map(|c| c.iter().sum::<i32>()).collect();
    /// assert_eq!(sums, [3, 7, 5]);
    /// ```
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn chunks(self, size: usize) -> Loop<Chunks<'a, T>> {
        self.with_source(|slice| Chunks::new(slice, size))
    }

    /// Goes over all runs of `size` neighbours.
    ///
    /// ```
    /// let rises = jobtree_par::over(&[1, 4, 2, 8]).windows(2).filter(|w| w[0] < w[1]).count();
    /// assert_eq!(rises, 2);
    /// ```
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn windows(self, size: usize) -> Loop<Windows<'a, T>> {
        self.with_source(|slice| Windows::new(slice, size))
    }
}

impl<'a, T: Send> Loop<&'a mut [T]> {
    /// Goes over the slice in pieces of `size` items; the last one may be shorter.
    ///
    /// ```
    /// let mut rows = [3, 1, 2, 9, 7, 8];
    /// jobtree_par::over(&mut rows).chunks(3).for_each(|row| row.sort());
    /// assert_eq!(rows, [1, 2, 3, 7, 8, 9]);
    /// ```
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn chunks(self, size: usize) -> Loop<ChunksMut<'a, T>> {
        self.with_source(|slice| ChunksMut::new(slice, size))
    }
}

/// Methods that work on the items.
impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
{
    fn with_transform<R: Transform<S::Item>>(self, change: impl FnOnce(T) -> R) -> Loop<S, R> {
        Loop {
            source: self.source,
            transform: change(self.transform),
            grain: self.grain,
        }
    }

    /// Gives each item with its position. Comes before what drops items or makes more of them.
    ///
    /// ```
    /// use jobtree_par as par;
    ///
    /// let mut squares = [0; 5];
    /// par::over(&mut squares).enumerate().for_each(|(i, square)| *square = i * i);
    /// assert_eq!(squares, [0, 1, 4, 9, 16]);
    ///
    /// let numbered = par::over(&squares).map(|n| n + 1).enumerate().filter(|(i, _)| i % 2 == 1).collect();
    /// assert_eq!(numbered, [(1, 2), (3, 10)]);
    /// ```
    pub fn enumerate(self) -> Loop<Enumerate<S>, T::Indexed>
    where
        T: OneToOne,
        T::Indexed: Transform<(usize, S::Item)>,
    {
        Loop {
            source: Enumerate::new(self.source),
            transform: self.transform.indexed(),
            grain: self.grain,
        }
    }

    /// Goes over the first `count` items, or all if there are fewer. Comes before what drops items or makes more of them.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..10).map(|n| n * n).take(3).collect(), [0, 1, 4]);
    /// ```
    pub fn take(self, count: usize) -> Loop<S, T>
    where
        T: OneToOne,
    {
        let count = count.min(self.source.len());
        Loop {
            source: self.source.split_at(count).0,
            ..self
        }
    }

    /// Goes over the items after the first `count`. Comes before what drops items or makes more of them.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..5).skip(3).collect(), [3, 4]);
    /// ```
    pub fn skip(self, count: usize) -> Loop<S, T>
    where
        T: OneToOne,
    {
        let count = count.min(self.source.len());
        Loop {
            source: self.source.split_at(count).1,
            ..self
        }
    }

    /// Turns each item into another with the help of a value that `init` makes for each block of items, such as a buffer or
    /// a random number generator. A block has some thousand items, fewer if they take long.
    ///
    /// ```
    /// use std::fmt::Write;
    ///
    /// let widths = jobtree_par::over(&[7, 42, 1000])
    ///     .map_init(String::new, |text, number| {
    ///         text.clear();
    ///         write!(text, "{number}").unwrap();
    ///         text.len()
    ///     })
    ///     .collect();
    /// assert_eq!(widths, [1, 2, 4]);
    /// ```
    pub fn map_init<I, F, State, R>(self, init: I, function: F) -> Loop<S, MapInit<T, I, F>>
    where
        I: Fn() -> State + Sync,
        F: Fn(&mut State, T::Out) -> R + Sync,
    {
        self.with_transform(|before| MapInit {
            before,
            init,
            function,
        })
    }

    /// Sets the granularity of the loop, where [`Grain::AUTO`] is not right. Counts items of the source.
    pub fn grain(self, grain: Grain) -> Loop<S, T> {
        Loop { grain, ..self }
    }

    /// Turns each item into another.
    ///
    /// ```
    /// let halves = jobtree_par::over(&[2, 4, 6]).map(|n| n / 2).collect();
    /// assert_eq!(halves, [1, 2, 3]);
    /// ```
    pub fn map<F, R>(self, function: F) -> Loop<S, Map<T, F>>
    where
        F: Fn(T::Out) -> R + Sync,
    {
        self.with_transform(|before| Map { before, function })
    }

    /// Keeps the items for which `predicate` holds.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(0..10).filter(|n| n % 3 == 0).collect(), [0, 3, 6, 9]);
    /// ```
    pub fn filter<F>(self, predicate: F) -> Loop<S, Filter<T, F>>
    where
        F: Fn(&T::Out) -> bool + Sync,
    {
        self.with_transform(|before| Filter { before, predicate })
    }

    /// Turns each item into another, or drops it.
    ///
    /// ```
    /// let numbers = jobtree_par::over(&["1", "two", "3"]).filter_map(|word| word.parse::<u8>().ok()).collect();
    /// assert_eq!(numbers, [1, 3]);
    /// ```
    pub fn filter_map<F, R>(self, function: F) -> Loop<S, FilterMap<T, F>>
    where
        F: Fn(T::Out) -> Option<R> + Sync,
    {
        self.with_transform(|before| FilterMap { before, function })
    }

    /// Turns each item into any number of others. Those of one item stay with one worker.
    ///
    /// ```
    /// let steps = jobtree_par::over(1..4).flat_map(|n| 0..n).collect();
    /// assert_eq!(steps, [0, 0, 1, 0, 1, 2]);
    /// ```
    pub fn flat_map<F, R>(self, function: F) -> Loop<S, FlatMap<T, F>>
    where
        F: Fn(T::Out) -> R + Sync,
        R: IntoIterator,
    {
        self.with_transform(|before| FlatMap { before, function })
    }

    /// Goes over what is in the items. What is in one item stays with one worker.
    ///
    /// ```
    /// let rows = [vec![1, 2], vec![], vec![3]];
    /// assert_eq!(jobtree_par::over(&rows).flatten().cloned().collect(), [1, 2, 3]);
    /// ```
    pub fn flatten(self) -> Loop<S, Flatten<T>>
    where
        T::Out: IntoIterator,
    {
        self.with_transform(|before| Flatten { before })
    }

    /// Clones what the items refer to.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(&[1, 2, 3]).cloned().max(), Some(3));
    /// ```
    pub fn cloned<'a, R>(self) -> Loop<S, Cloned<T>>
    where
        T: Transform<S::Item, Out = &'a R>,
        R: Clone + 'a,
    {
        self.with_transform(|before| Cloned { before })
    }
}
