//! Something of the program's that the manager keeps: a callback, a transport, a payload.

use std::ops::Deref;

use jobtree_base::user_code::{Place, drop_user};

/// Holds a value of the program's, and stops a panic of its destructor: it is dropped where the manager frees its own
/// structures, on whatever thread that happens.
pub(crate) struct UserOwned<T> {
    /// There until it is dropped.
    value: Option<T>,
    place: Place,
}

impl<T> UserOwned<T> {
    pub(crate) fn new(place: Place, value: T) -> UserOwned<T> {
        UserOwned {
            value: Some(value),
            place,
        }
    }
}

impl<T> Deref for UserOwned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("only the destructor takes it out"),
        }
    }
}

impl<T> Drop for UserOwned<T> {
    fn drop(&mut self) {
        drop_user(self.place, self.value.take());
    }
}
