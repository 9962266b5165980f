//! Forks of more than two.

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
        let (a, (b, c)) = $crate::join($a, || $crate::join($b, $c));
        (a, b, c)
    }};
    ($a:expr, $b:expr, $c:expr, $d:expr $(,)?) => {{
        let ((a, b), (c, d)) = $crate::join(|| $crate::join($a, $b), || $crate::join($c, $d));
        (a, b, c, d)
    }};
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr $(,)?) => {{
        let ((a, b), (c, d, e)) =
            $crate::join(|| $crate::join($a, $b), || $crate::join!($c, $d, $e));
        (a, b, c, d, e)
    }};
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(,)?) => {{
        let ((a, b, c), (d, e, f)) =
            $crate::join(|| $crate::join!($a, $b, $c), || $crate::join!($d, $e, $f));
        (a, b, c, d, e, f)
    }};
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
    let mut bodies = bodies.map(Some);
    let mut slots: [Option<R>; N] = std::array::from_fn(|_| None);
    run_each(&mut bodies, &mut slots);
    slots.map(|slot| slot.expect("every closure has run"))
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
