//! A closure on a stack of its own, that is resumed from one place: for tests and measurements of the switch.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use super::{Hub, StackInUse};
use crate::stack::Stack;

/// See the module's head. It is to be resumed until it has returned: a stack on which something is suspended cannot be
/// given back.
pub(crate) struct Routine<R> {
    inner: Box<Inner<R>>,
}

struct Inner<R> {
    way: Way,
    body: Cell<Option<Body<R>>>,
    has_returned: Cell<bool>,
    result: Cell<Option<thread::Result<R>>>,
}

type Body<R> = Box<dyn FnOnce(&Way) -> R>;

/// The way back, for the body.
pub(crate) struct Way {
    hub: Hub,
    in_use: StackInUse,
}

impl Way {
    /// Goes back to the thread that has resumed the body. Returns when it is resumed again.
    #[inline(always)]
    pub(crate) fn suspend(&self) {
        // SAFETY: only lent to the body, so the caller is on its stack, and the code that resumed it waits for that.
        unsafe { self.in_use.leave(&self.hub) };
    }
}

impl<R: 'static> Routine<R> {
    pub(crate) fn new(stack: Stack, body: impl FnOnce(&Way) -> R + 'static) -> Routine<R> {
        let inner = Box::new(Inner {
            way: Way {
                hub: Hub::new(),
                in_use: StackInUse::none(),
            },
            body: Cell::new(Some(Box::new(body))),
            has_returned: Cell::new(false),
            result: Cell::new(None),
        });
        let arguments = [std::ptr::from_ref(&*inner).cast(), std::ptr::null()];
        // SAFETY: none is in use; `run` catches unwinding; the box stays where it is until the body has returned.
        unsafe {
            let in_use = &inner.way.in_use;
            in_use.prepare(stack, Self::run, arguments, &inner.way.hub);
        }
        Routine { inner }
    }

    unsafe extern "C" fn run(inner: *const (), _: *const ()) {
        // SAFETY: the routine's own, which is there until its body has returned.
        let inner = unsafe { &*inner.cast::<Inner<R>>() };
        let body = inner.body.take().expect("a stack is begun once");
        let result = panic::catch_unwind(AssertUnwindSafe(|| body(&inner.way)));
        inner.result.set(Some(result));
        inner.has_returned.set(true);
    }

    /// Lets the body go on until it suspends itself: `None`; or returns. Passes its panic on.
    #[inline(always)]
    pub(crate) fn resume(&mut self) -> Option<R> {
        // SAFETY: a `&mut` is not to be had by the body itself, so the caller is on another stack; it is suspended.
        unsafe { self.inner.way.in_use.resume(&self.inner.way.hub) };
        if !self.inner.has_returned.get() {
            return None;
        }
        let result = self.inner.result.take()?;
        Some(result.unwrap_or_else(|payload| panic::resume_unwind(payload)))
    }

    /// The stack of a body that has returned.
    pub(crate) fn into_stack(self) -> Stack {
        assert!(
            self.inner.has_returned.get(),
            "something is suspended there"
        );
        // SAFETY: it has returned, and its last switch was back to its resumer.
        let stack = unsafe { self.inner.way.in_use.take_stack() };
        stack.expect("a routine has a stack until here")
    }
}
