//! Values under typed keys, such as a trace id, that a job inherits from the jobs above it.
//!
//! The values of a job are a list that begins with its own and goes on with its parent's. Nothing is ever
//! changed in it, so children share it.

use std::any::Any;
use std::sync::Arc;

use jobtree_base::user_code::{Place, drop_user};

use crate::job::Job;
use crate::outermost::outermost;

/// A key under which jobs inherit a value of type `T`. Its address is its identity: make it a `static`.
///
/// The value is set where a job is made ([`JobOptions::local`](crate::JobOptions::local)), and is there for it and all
/// jobs below it.
pub struct JobLocal<T: 'static> {
    /// Not zero-sized, so that two keys never have the same address.
    _identity: u8,
    _value: std::marker::PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> JobLocal<T> {
    /// A new key.
    pub const fn new() -> JobLocal<T> {
        JobLocal {
            _identity: 0,
            _value: std::marker::PhantomData,
        }
    }

    /// The value that the current job inherits or was made with.
    pub fn get(&'static self) -> Option<Arc<T>> {
        Job::current()?.local(self)
    }

    fn identity(&'static self) -> usize {
        (&raw const self._identity).addr()
    }
}

impl<T: Send + Sync + 'static> Default for JobLocal<T> {
    fn default() -> JobLocal<T> {
        JobLocal::new()
    }
}

impl<T> std::fmt::Debug for JobLocal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobLocal").finish_non_exhaustive()
    }
}

/// The values of one job.
#[derive(Clone, Default)]
pub(crate) struct Locals(Option<Arc<Entry>>);

struct Entry {
    key: usize,
    value: Arc<dyn Any + Send + Sync>,
    outer: Locals,
}

impl Locals {
    /// Returns these values and one more, which hides an older one of the same key.
    pub(crate) fn with<T: Send + Sync + 'static>(
        &self,
        key: &'static JobLocal<T>,
        value: T,
    ) -> Locals {
        // In the outermost context, in which the list is freed: an account that counts memory sees both or none.
        let entry = outermost(|| {
            Arc::new(Entry {
                key: key.identity(),
                value: Arc::new(value),
                outer: self.clone(),
            })
        });
        Locals(Some(entry))
    }

    pub(crate) fn get<T: Send + Sync + 'static>(
        &self,
        key: &'static JobLocal<T>,
    ) -> Option<Arc<T>> {
        let mut entry = self.0.as_ref();
        while let Some(current) = entry {
            if current.key == key.identity() {
                return Arc::clone(&current.value).downcast().ok();
            }
            entry = current.outer.0.as_ref();
        }
        None
    }
}

impl Locals {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for Locals {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.drop_list();
        }
    }
}

impl Locals {
    #[cold]
    fn drop_list(&mut self) {
        // One after the other: a long list must not be freed by as deep a recursion.
        let mut next = self.0.take();
        while let Some(Entry {
            value, mut outer, ..
        }) = next.and_then(Arc::into_inner)
        {
            drop_user(Place::Value, value);
            next = outer.0.take();
        }
    }
}
