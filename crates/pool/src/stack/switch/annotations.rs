//! Tells AddressSanitizer of each switch of stacks, with the feature `sanitizer`; without it, this is nothing.
//!
//! The sanitizer has to know which stack a thread runs on: what it reports about an address depends on it, and so does
//! what it forgets when frames are left by a panic (`__asan_handle_no_return`, which the unwinder calls through it: it
//! clears its notes from the frame that panics up to the end of the *current* stack). And it keeps local variables on
//! a fake stack of its own, one for each stack, to notice their use after the function has returned.
//!
//! Before a switch the sanitizer is given the bounds of the next stack, and a place for the fake stack of the one that is
//! left; after it, the fake stack of the one that runs now. A stack that ends gives no place: its fake stack is freed.

#[cfg(feature = "sanitizer")]
mod told {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr;

    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(
            fake_stack: *mut *mut c_void,
            bottom: *const c_void,
            size: usize,
        );
        fn __sanitizer_finish_switch_fiber(
            fake_stack: *mut c_void,
            previous_bottom: *mut *const c_void,
            previous_size: *mut usize,
        );
        fn __asan_unpoison_memory_region(address: *const c_void, size: usize);
    }

    thread_local! {
        /// The stack that the thread has just left, if it will be used again. Its bounds are told on the next one.
        static LEFT: Cell<*const Annotations> = const { Cell::new(ptr::null()) };
    }

    /// More than the first frame of a stack takes.
    const FIRST_FRAME: usize = 4096;

    /// The data that the sanitizer has to be told of one stack.
    pub(crate) struct Annotations {
        fake_stack: Cell<*mut c_void>,
        /// The lowest address of the stack.
        bottom: Cell<*const c_void>,
        size: Cell<usize>,
    }

    impl Annotations {
        /// Makes the annotations of a thread's own stack, or of none yet.
        pub(crate) fn new() -> Annotations {
            Annotations {
                fake_stack: Cell::new(ptr::null_mut()),
                bottom: Cell::new(ptr::null()),
                size: Cell::new(0),
            }
        }

        /// Sets the bounds of a stack that nothing runs on yet.
        pub(crate) fn describe(&self, limit: usize, base: usize) {
            self.fake_stack.set(ptr::null_mut());
            self.bottom.set(ptr::with_exposed_provenance(limit));
            self.size.set(base - limit);
        }

        /// Must be called on this stack, directly before it is left for `next`.
        #[inline(always)]
        pub(crate) fn leave_for(&self, next: &Annotations) {
            LEFT.set(self);
            // SAFETY: the bounds are those of the next stack, which the thread is on when it is next told something; the
            // place is read there, when this one goes on.
            unsafe {
                __sanitizer_start_switch_fiber(
                    self.fake_stack.as_ptr(),
                    next.bottom.get(),
                    next.size.get(),
                );
            }
        }

        /// Must be called on this stack, directly after it goes on.
        #[inline(always)]
        pub(crate) fn go_on(&self) {
            // SAFETY: saved by `leave_for`, and used once.
            unsafe { arrive(self.fake_stack.replace(ptr::null_mut())) };
        }

        /// Must be called on a stack that begins, before anything else.
        #[inline(always)]
        pub(crate) fn begin() {
            // SAFETY: a new stack has no fake stack.
            unsafe { arrive(ptr::null_mut()) };
        }

        /// Must be called on a stack that ends, directly before its last switch, to `next`.
        #[inline(always)]
        pub(crate) fn end_for(next: &Annotations) {
            LEFT.set(ptr::null());
            // SAFETY: as in `leave_for`; without a place, the fake stack of the one that ends is freed.
            unsafe {
                __sanitizer_start_switch_fiber(ptr::null_mut(), next.bottom.get(), next.size.get());
            }
        }

        /// Must be called when a stack has ended, before anything else is put there.
        pub(crate) fn forget_first_frame(&self) {
            let size = self.size.get().min(FIRST_FRAME);
            let base = self.bottom.get().addr() + self.size.get();
            // SAFETY: nothing runs on the stack. Its first frame was left and not returned from, so the sanitizer still has
            // its notes about it; those of all others went when they were returned from or unwound.
            unsafe {
                __asan_unpoison_memory_region(ptr::with_exposed_provenance(base - size), size)
            };
        }
    }

    /// # Safety
    /// The thread has just come to the running stack, by a switch that was announced, and `fake_stack` is that stack's.
    #[inline(always)]
    unsafe fn arrive(fake_stack: *mut c_void) {
        let (mut bottom, mut size) = (ptr::null(), 0);
        // SAFETY: by contract.
        unsafe { __sanitizer_finish_switch_fiber(fake_stack, &raw mut bottom, &raw mut size) };
        // SAFETY: the stack that was left is suspended, and lives until it has ended; then it is not noted here.
        if let Some(left) = unsafe { LEFT.replace(ptr::null()).as_ref() } {
            // This is how the bounds of a thread's own stack become known.
            left.bottom.set(bottom);
            left.size.set(size);
        }
    }
}

#[cfg(not(feature = "sanitizer"))]
mod told {
    /// An empty value, as there is no sanitizer.
    pub(crate) struct Annotations;

    impl Annotations {
        pub(crate) fn new() -> Annotations {
            Annotations
        }

        #[inline(always)]
        pub(crate) fn describe(&self, _limit: usize, _base: usize) {}

        #[inline(always)]
        pub(crate) fn leave_for(&self, _next: &Annotations) {}

        #[inline(always)]
        pub(crate) fn go_on(&self) {}

        #[inline(always)]
        pub(crate) fn begin() {}

        #[inline(always)]
        pub(crate) fn end_for(_next: &Annotations) {}

        #[inline(always)]
        pub(crate) fn forget_first_frame(&self) {}
    }
}

pub(super) use told::Annotations;
