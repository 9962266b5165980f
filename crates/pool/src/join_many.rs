//! Forks of more than two.

use jobtree_base::user_code::{Place, drop_user};
use jobtree_base::user_owned::UserOwned;

/// Runs several closures, possibly in parallel, and returns their results as a tuple.
///
/// The first one runs on the calling worker, as with [`join`](crate::join()).
///
/// ```
/// let (a, b, c) = jobtree_pool::join!(|| 1, || "two", || 3.0);
/// assert_eq!((a, b, c), (1, "two", 3.0));
/// ```
///
/// # Panics
/// As [`join`](crate::join()): after all have ended, with the first panic by position.
#[macro_export]
macro_rules! join {
    ($a:expr, $b:expr $(,)?) => {
        $crate::join($a, $b)
    };
    ($a:expr, $b:expr, $c:expr $(,)?) => {{
        let a = $crate::raw::held($a);
        let b = $crate::raw::held($b);
        let c = $crate::raw::held($c);
        let (a, (b, c)) = $crate::join(a, move || $crate::join(b, c));
        (a.into_inner(), b.into_inner(), c.into_inner())
    }};
    ($a:expr, $b:expr, $c:expr, $d:expr $(,)?) => {{
        let a = $crate::raw::held($a);
        let b = $crate::raw::held($b);
        let c = $crate::raw::held($c);
        let d = $crate::raw::held($d);
        let ((a, b), (c, d)) = $crate::join(move || $crate::join(a, b), move || $crate::join(c, d));
        (
            a.into_inner(),
            b.into_inner(),
            c.into_inner(),
            d.into_inner(),
        )
    }};
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr $(,)?) => {{
        let a = $crate::raw::held($a);
        let b = $crate::raw::held($b);
        let c = $crate::raw::held($c);
        let d = $crate::raw::held($d);
        let e = $crate::raw::held($e);
        let ((a, b), (c, (d, e))) = $crate::join(
            move || $crate::join(a, b),
            move || $crate::join(c, move || $crate::join(d, e)),
        );
        (
            a.into_inner(),
            b.into_inner(),
            c.into_inner(),
            d.into_inner(),
            e.into_inner(),
        )
    }};
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(,)?) => {{
        let a = $crate::raw::held($a);
        let b = $crate::raw::held($b);
        let c = $crate::raw::held($c);
        let d = $crate::raw::held($d);
        let e = $crate::raw::held($e);
        let f = $crate::raw::held($f);
        let ((a, (b, c)), (d, (e, f))) = $crate::join(
            move || $crate::join(a, move || $crate::join(b, c)),
            move || $crate::join(d, move || $crate::join(e, f)),
        );
        (
            a.into_inner(),
            b.into_inner(),
            c.into_inner(),
            d.into_inner(),
            e.into_inner(),
            f.into_inner(),
        )
    }};
}

/// Returns `body` as part of a larger fork: when another part panics, the closure and its result are dropped each for itself, and
/// the panic of a destructor is recorded.
pub fn held<R>(body: impl FnOnce() -> R) -> impl FnOnce() -> UserOwned<R> {
    let body = UserOwned::captured(body);
    move || UserOwned::value(body.into_inner()())
}

/// Runs closures of one type, possibly in parallel, and returns their results in order.
///
/// ```
/// let squares = jobtree_pool::join_each([1, 2, 3, 4, 5].map(|n| move || n * n));
/// assert_eq!(squares, [1, 4, 9, 16, 25]);
/// ```
///
/// # Panics
/// As [`join`](crate::join()): after all have ended, with the first panic by position.
pub fn join_each<F, R, const N: usize>(bodies: [F; N]) -> [R; N]
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let mut bodies = Each(Place::Captured, bodies.map(Some));
    let mut slots = Each(Place::Value, std::array::from_fn(|_| None));
    run_each(&mut bodies.1, &mut slots.1);
    let results = slots.1.each_mut().map(Option::take);
    results.map(|slot| slot.expect("every closure has run"))
}

/// Closures that have not begun, or results. When one closure panics, the rest of them is dropped here, one by one.
struct Each<T, const N: usize>(Place, [Option<T>; N]);

impl<T, const N: usize> Drop for Each<T, N> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            for slot in &mut self.1 {
                drop_user(self.0, slot.take());
            }
        }
    }
}

fn run_each<F, R>(bodies: &mut [Option<F>], results: &mut [Option<R>])
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    match bodies.len() {
        0 => {}
        1 => results[0] = bodies[0].take().map(|body| body()),
        len => {
            let (left, right) = bodies.split_at_mut(len / 2);
            let (left_results, right_results) = results.split_at_mut(len / 2);
            crate::join(
                || run_each(left, left_results),
                || run_each(right, right_results),
            );
        }
    }
}
