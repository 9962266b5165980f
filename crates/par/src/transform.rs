//! The steps that items take between the source and the end of a loop.
//!
//! A source is cut and sent around; a transform is not: all workers share one by reference, and each lays it over the
//! items of the block it is at. So closures need not be `Clone`.

use std::cell::Cell;
use std::rc::Rc;

use jobtree_pool::raw::UserOwned;

/// A step that a loop applies to its items, made by [`map`](crate::Loop::map), [`filter`](crate::Loop::filter) and similar
/// methods.
pub trait Transform<In>: Sync {
    /// The type of the resulting items.
    type Out;

    /// `true` if exactly one item comes out for each that goes in.
    const ONE_TO_ONE: bool;

    /// Lays it over some items.
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = Self::Out>;
}

/// Transforms that give at most one item for each, so that the last one out comes from the last one in.
#[diagnostic::on_unimplemented(
    message = "this needs a loop whose steps make at most one item of each",
    label = "`flat_map` and `flatten` make more",
    note = "collect the items first, and go over the vector"
)]
pub trait AtMostOne {}

/// Transforms that give exactly one item for each.
///
/// After a step that drops items, positions are unknown before the loop has run:
///
/// ```compile_fail,E0599
/// let even = jobtree_par::over(0..10).filter(|n| n % 2 == 0).enumerate().collect();
/// ```
///
/// ```compile_fail,E0277
/// let three = jobtree_par::over(0..10).filter(|n| n % 2 == 0).take(3).collect();
/// ```
///
/// ```
/// let even = jobtree_par::over(0..10).enumerate().filter(|(_, n)| n % 2 == 0).collect();
/// assert_eq!(even[1], (2, 2));
/// ```
#[diagnostic::on_unimplemented(
    message = "the positions of items are not known after a step that drops items or makes more of them",
    label = "`enumerate`, `take` and `skip` must come before `filter`, `filter_map`, `flat_map` and `flatten`",
    note = "call it before that step, or collect the items first and go over the vector"
)]
pub trait OneToOne: AtMostOne {
    /// The type of the same transform over items that have their positions beside them.
    type Indexed;

    /// Makes it one over items that have their positions beside them.
    fn indexed(self) -> Self::Indexed;
}

/// See [`Loop::enumerate`](crate::Loop::enumerate).
#[derive(Clone, Copy, Debug)]
pub struct Indexed<T> {
    transform: T,
}

impl<T: OneToOne> OneToOne for Indexed<T> {
    type Indexed = Indexed<Self>;

    fn indexed(self) -> Indexed<Self> {
        Indexed { transform: self }
    }
}

impl<T: OneToOne> AtMostOne for Indexed<T> {}

impl<In, T> Transform<(usize, In)> for Indexed<T>
where
    T: OneToOne + Transform<In>,
{
    type Out = (usize, T::Out);
    const ONE_TO_ONE: bool = true;

    #[inline(always)]
    fn apply(
        &self,
        items: impl Iterator<Item = (usize, In)>,
    ) -> impl Iterator<Item = (usize, T::Out)> {
        // One goes in and one comes out, so the position is that of the item that went in last.
        let position = Rc::new(Cell::new(0));
        let entered = position.clone();
        let items = items.map(move |(at, item)| {
            entered.set(at);
            item
        });
        let out = self.transform.apply(items);
        out.map(move |item| (position.get(), item))
    }
}

/// Items as they come from the source.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsIs;

impl OneToOne for AsIs {
    type Indexed = AsIs;

    fn indexed(self) -> AsIs {
        self
    }
}

impl AtMostOne for AsIs {}

impl<In> Transform<In> for AsIs {
    type Out = In;
    const ONE_TO_ONE: bool = true;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = In> {
        items
    }
}

/// See [`Loop::map`](crate::Loop::map).
#[derive(Clone, Copy, Debug)]
pub struct Map<T, F> {
    pub(crate) before: T,
    pub(crate) function: F,
}

impl<T: OneToOne, F> OneToOne for Map<T, F> {
    type Indexed = Indexed<Self>;

    fn indexed(self) -> Indexed<Self> {
        Indexed { transform: self }
    }
}

impl<T: AtMostOne, F> AtMostOne for Map<T, F> {}

impl<In, T, F, R> Transform<In> for Map<T, F>
where
    T: Transform<In>,
    F: Fn(T::Out) -> R + Sync,
{
    type Out = R;
    const ONE_TO_ONE: bool = T::ONE_TO_ONE;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = R> {
        self.before.apply(items).map(&self.function)
    }
}

/// See [`Loop::map_init`](crate::Loop::map_init).
#[derive(Clone, Copy, Debug)]
pub struct MapInit<T, I, F> {
    pub(crate) before: T,
    pub(crate) init: I,
    pub(crate) function: F,
}

impl<T: OneToOne, I, F> OneToOne for MapInit<T, I, F> {
    type Indexed = Indexed<Self>;

    fn indexed(self) -> Indexed<Self> {
        Indexed { transform: self }
    }
}

impl<T: AtMostOne, I, F> AtMostOne for MapInit<T, I, F> {}

impl<In, T, I, F, State, R> Transform<In> for MapInit<T, I, F>
where
    T: Transform<In>,
    I: Fn() -> State + Sync,
    F: Fn(&mut State, T::Out) -> R + Sync,
{
    type Out = R;
    const ONE_TO_ONE: bool = T::ONE_TO_ONE;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = R> {
        // It is dropped with the items, or because something of the program's panics.
        let mut state = UserOwned::value((self.init)());
        let items = self.before.apply(items);
        items.map(move |item| (self.function)(&mut state, item))
    }
}

/// See [`Loop::filter`](crate::Loop::filter).
#[derive(Clone, Copy, Debug)]
pub struct Filter<T, F> {
    pub(crate) before: T,
    pub(crate) predicate: F,
}

impl<T: AtMostOne, F> AtMostOne for Filter<T, F> {}

impl<In, T, F> Transform<In> for Filter<T, F>
where
    T: Transform<In>,
    F: Fn(&T::Out) -> bool + Sync,
{
    type Out = T::Out;
    const ONE_TO_ONE: bool = false;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = T::Out> {
        self.before.apply(items).filter(&self.predicate)
    }
}

/// See [`Loop::filter_map`](crate::Loop::filter_map).
#[derive(Clone, Copy, Debug)]
pub struct FilterMap<T, F> {
    pub(crate) before: T,
    pub(crate) function: F,
}

impl<T: AtMostOne, F> AtMostOne for FilterMap<T, F> {}

impl<In, T, F, R> Transform<In> for FilterMap<T, F>
where
    T: Transform<In>,
    F: Fn(T::Out) -> Option<R> + Sync,
{
    type Out = R;
    const ONE_TO_ONE: bool = false;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = R> {
        self.before.apply(items).filter_map(&self.function)
    }
}

/// See [`Loop::flat_map`](crate::Loop::flat_map).
#[derive(Clone, Copy, Debug)]
pub struct FlatMap<T, F> {
    pub(crate) before: T,
    pub(crate) function: F,
}

impl<In, T, F, R> Transform<In> for FlatMap<T, F>
where
    T: Transform<In>,
    F: Fn(T::Out) -> R + Sync,
    R: IntoIterator,
{
    type Out = R::Item;
    const ONE_TO_ONE: bool = false;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = R::Item> {
        self.before.apply(items).flat_map(&self.function)
    }
}

/// See [`Loop::flatten`](crate::Loop::flatten).
#[derive(Clone, Copy, Debug)]
pub struct Flatten<T> {
    pub(crate) before: T,
}

impl<In, T> Transform<In> for Flatten<T>
where
    T: Transform<In>,
    T::Out: IntoIterator,
{
    type Out = <T::Out as IntoIterator>::Item;
    const ONE_TO_ONE: bool = false;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = Self::Out> {
        self.before.apply(items).flatten()
    }
}

/// See [`Loop::cloned`](crate::Loop::cloned).
#[derive(Clone, Copy, Debug)]
pub struct Cloned<T> {
    pub(crate) before: T,
}

impl<T: OneToOne> OneToOne for Cloned<T> {
    type Indexed = Indexed<Self>;

    fn indexed(self) -> Indexed<Self> {
        Indexed { transform: self }
    }
}

impl<T: AtMostOne> AtMostOne for Cloned<T> {}

impl<'a, In, T, R> Transform<In> for Cloned<T>
where
    T: Transform<In, Out = &'a R>,
    R: Clone + 'a,
{
    type Out = R;
    const ONE_TO_ONE: bool = T::ONE_TO_ONE;

    #[inline(always)]
    fn apply(&self, items: impl Iterator<Item = In>) -> impl Iterator<Item = R> {
        self.before.apply(items).cloned()
    }
}
