//! Values of the program that the library holds for a while.

use std::ops::{Deref, DerefMut};

use crate::user_code::{Place, drop_user};

/// Holds a value of the program, and stops a panic of its destructor: the library drops the value where it frees its own
/// structures, or where it unwinds because other code of the program has panicked. A second panic that left a destructor
/// there would end the process.
///
/// On the way without a panic it costs nothing: [`into_inner`](UserOwned::into_inner) moves the value out.
#[derive(Debug)]
pub struct UserOwned<T> {
    /// There until it is moved out or dropped.
    value: Option<T>,
    place: Place,
}

impl<T> UserOwned<T> {
    /// Holds `value`; `place` is where a panic of its destructor is recorded.
    #[inline(always)]
    pub fn new(place: Place, value: T) -> UserOwned<T> {
        UserOwned {
            value: Some(value),
            place,
        }
    }

    /// Holds a result that another part of the program takes later.
    #[inline(always)]
    pub fn value(value: T) -> UserOwned<T> {
        UserOwned::new(Place::Value, value)
    }

    /// Holds a closure that is called later, with what it captured.
    #[inline(always)]
    pub fn captured(closure: T) -> UserOwned<T> {
        UserOwned::new(Place::Captured, closure)
    }

    /// Returns the value, whose destructor is the caller's affair from now on.
    #[inline(always)]
    pub fn into_inner(mut self) -> T {
        match self.value.take() {
            Some(value) => value,
            None => unreachable!("only this and the destructor take it out"),
        }
    }
}

impl<T> Deref for UserOwned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("it is there until it is moved out or dropped"),
        }
    }
}

impl<T> DerefMut for UserOwned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("it is there until it is moved out or dropped"),
        }
    }
}

impl<T> Drop for UserOwned<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() && self.value.is_some() {
            drop_now(self.place, &mut self.value);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_now<T>(place: Place, value: &mut Option<T>) {
    drop_user(place, value.take());
}

/// A vector of the library with values of the program. Those that are left are dropped one by one, so that the panic of one
/// destructor, which is recorded, does not meet that of another.
#[derive(Debug)]
pub struct UserVec<T>(Vec<T>);

impl<T> UserVec<T> {
    /// Holds the values of `values`.
    pub fn new(values: Vec<T>) -> UserVec<T> {
        UserVec(values)
    }

    /// Returns the values, whose destructors are the caller's affair from now on.
    pub fn into_inner(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }
}

impl<T> Deref for UserVec<T> {
    type Target = Vec<T>;

    #[inline(always)]
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for UserVec<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> Drop for UserVec<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            for value in self.0.drain(..) {
                drop_user(Place::Value, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }

    #[test]
    fn values_that_are_held_while_the_thread_unwinds_do_not_end_the_process() {
        let unwound = catch_unwind(|| {
            let _held = UserOwned::value(Bomb);
            let _several = UserVec::new(vec![Bomb, Bomb, Bomb]);
            panic!("the first panic");
        });
        let payload = unwound.expect_err("the closure panics");
        assert_eq!(payload.downcast_ref(), Some(&"the first panic"));
    }

    #[test]
    fn a_value_that_is_moved_out_is_the_callers() {
        let held = UserOwned::captured(String::from("text"));
        assert_eq!(held.len(), 4);
        assert_eq!(held.into_inner(), "text");
        let bomb = UserOwned::value(Bomb).into_inner();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(bomb))).is_err());
        let several = UserVec::new(vec![1, 2]).into_inner();
        assert_eq!(several, [1, 2]);
    }
}
