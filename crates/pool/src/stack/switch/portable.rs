//! corosensei's switch, between a stack and the hub that resumed it.

use std::cell::{Cell, UnsafeCell};

use corosensei::{Coroutine, Yielder};

use super::Bottom;
use crate::stack::Stack;

/// `true` if [`StackInUse::pass`] can be called.
pub(crate) const PASSES_DIRECTLY: bool = false;

/// A thread's own stack, of which corosensei knows where it is suspended.
pub(crate) struct Hub;

impl Hub {
    pub(crate) fn new() -> Hub {
        Hub
    }
}

/// A stack with something on it that can be suspended and resumed; or none.
pub(crate) struct StackInUse {
    coroutine: UnsafeCell<Option<Coroutine<(), (), (), Stack>>>,
    /// Lies at the stack's base.
    yielder: Cell<*const Yielder<(), ()>>,
}

impl StackInUse {
    pub(crate) fn none() -> StackInUse {
        StackInUse {
            coroutine: UnsafeCell::new(None),
            yielder: Cell::new(std::ptr::null()),
        }
    }

    /// Puts `bottom` on `stack`, to begin when it is first resumed.
    ///
    /// # Safety
    /// There is no stack in use here, and this value stays where it is. `bottom` may be called with these arguments and
    /// does not unwind.
    pub(crate) unsafe fn prepare(
        &self,
        stack: Stack,
        bottom: Bottom,
        arguments: [*const (); 2],
        _hub: &Hub,
    ) {
        let here: *const StackInUse = self;
        let [first, second] = arguments;
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: by contract.
            unsafe {
                (*here).yielder.set(yielder);
                bottom(first, second);
            }
        });
        // SAFETY: there was none, so it is not in use.
        unsafe { *self.coroutine.get() = Some(coroutine) };
    }

    /// Returns the address at which the stack begins, about: its highest one. 0 if nothing has begun on it.
    pub(crate) fn base(&self) -> usize {
        self.yielder.get().addr()
    }

    /// Takes the stack out.
    ///
    /// # Safety
    /// What ran on it has ended.
    pub(crate) unsafe fn take_stack(&self) -> Option<Stack> {
        self.yielder.set(std::ptr::null());
        // SAFETY: nothing runs on it.
        let ended = unsafe { (*self.coroutine.get()).take() };
        ended.map(Coroutine::into_stack)
    }

    /// Goes from the hub to the stack. Returns when it goes back to the hub.
    ///
    /// # Safety
    /// The caller is on the hub's stack. The stack is prepared, or suspended, on this thread.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self, _hub: &Hub) {
        // SAFETY: suspended by contract, so no other thread uses it; only this thread does at all.
        let coroutine = unsafe { &mut *self.coroutine.get() };
        let running = coroutine.as_mut();
        running
            .expect("a stack is prepared before it is resumed")
            .resume(());
    }

    /// Goes from this stack to the hub. Returns when another stack resumes the stack.
    ///
    /// # Safety
    /// The caller is on this stack, and the hub is suspended.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self, _hub: &Hub) {
        // SAFETY: set when the stack was first resumed; we are running on it.
        unsafe { (*self.yielder.get()).suspend(()) };
    }

    /// There is no direct way.
    ///
    /// # Safety
    /// Never called.
    pub(crate) unsafe fn pass(&self, _next: &StackInUse) {
        unreachable!("the thread is passed on by the hub");
    }
}
