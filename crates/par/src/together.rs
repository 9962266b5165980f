//! Forks that can fail.

use jobtree_pool::raw::{Place, drop_user};

/// Runs `a` and `b`, possibly in parallel. Both end before an error is returned.
///
/// ```
/// use jobtree_par::try_join;
///
/// let both = try_join(|| "4".parse::<i32>(), || "2".parse::<i32>());
/// assert_eq!(both, Ok((4, 2)));
/// assert!(try_join(|| "4".parse::<i32>(), || "x".parse::<i32>()).is_err());
/// ```
///
/// # Errors
/// The error of `a`, or else that of `b`.
///
/// # Panics
/// As [`join`](jobtree_pool::join()), after both have ended.
pub fn try_join<A, B, RA, RB, E>(a: A, b: B) -> Result<(RA, RB), E>
where
    A: FnOnce() -> Result<RA, E> + Send,
    B: FnOnce() -> Result<RB, E> + Send,
    RA: Send,
    RB: Send,
    E: Send,
{
    match jobtree_pool::join(a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(error), other) => {
            drop_user(Place::Value, other);
            Err(error)
        }
        (Ok(other), Err(error)) => {
            drop_user(Place::Value, other);
            Err(error)
        }
    }
}

/// Runs closures of one type, possibly in parallel. All end before an error is returned.
///
/// ```
/// let words = ["1", "2", "3"];
/// let numbers = jobtree_par::try_join_each(words.map(|word| move || word.parse::<u8>()));
/// assert_eq!(numbers, Ok([1, 2, 3]));
/// ```
///
/// # Errors
/// The first error by position.
///
/// # Panics
/// As [`join_each`](jobtree_pool::join_each), after all have ended.
pub fn try_join_each<F, R, E, const N: usize>(bodies: [F; N]) -> Result<[R; N], E>
where
    F: FnOnce() -> Result<R, E> + Send,
    R: Send,
    E: Send,
{
    let mut first_error = None;
    let values = jobtree_pool::join_each(bodies).map(|result| match result {
        Ok(value) => Some(value),
        Err(error) if first_error.is_none() => {
            first_error = Some(error);
            None
        }
        Err(later) => {
            drop_user(Place::Error, later);
            None
        }
    });
    match first_error {
        Some(error) => {
            for value in values {
                drop_user(Place::Value, value);
            }
            Err(error)
        }
        None => Ok(values.map(|value| value.expect("there was no error"))),
    }
}
