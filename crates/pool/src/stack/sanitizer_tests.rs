//! That AddressSanitizer follows the switch: it reports errors on a stack of ours as it does on any other, and frames
//! that a panic has left leave nothing behind. Built with the feature `sanitizer` only.

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::panic::catch_unwind;

use super::switch::{Routine, Way, stack_pointer};
use super::testing::in_child_process_with;
use super::{DEFAULT_STACK_SIZE, StackCache, StackClass, StackSupply};

unsafe extern "C" {
    /// The first byte of the region that must not be used, or null.
    fn __asan_region_is_poisoned(begin: *mut c_void, size: usize) -> *mut c_void;
    fn __asan_get_current_fake_stack() -> *mut c_void;
}

/// Too large for the sanitizer's fake stack, so a variable of this size lies on the stack itself.
const LARGE: usize = 80 * 1024;

fn new_cache() -> StackCache {
    StackCache::new(&StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply"))
}

fn new_routine<R: 'static>(
    cache: &StackCache,
    body: impl FnOnce(&Way) -> R + 'static,
) -> Routine<R> {
    Routine::new(cache.take(StackClass::Default).expect("a stack"), body)
}

/// Has two frames with guarded variables on the stack, and panics in the upper one.
#[inline(never)]
fn panic_far_up(frames: usize) {
    let mut large = [0u8; LARGE];
    black_box(&mut large);
    if frames == 0 {
        panic!("far up");
    }
    panic_far_up(frames - 1);
    black_box(&mut large);
}

/// The first forbidden byte of the stack beyond the frame of the caller.
#[inline(never)]
fn first_forbidden_beyond() -> *mut c_void {
    // Some way off: this frame, and that of the function called, have forbidden bytes of their own.
    let end = stack_pointer() - 8 * 1024;
    let size = 2 * LARGE;
    // SAFETY: only looks into the sanitizer's notes about the stack, which is larger.
    unsafe { __asan_region_is_poisoned(std::ptr::with_exposed_provenance_mut(end - size), size) }
}

#[test]
fn frames_that_a_panic_left_are_forgotten() {
    let cache = new_cache();
    let mut routine = new_routine(&cache, |way| {
        for _ in 0..2 {
            let caught = catch_unwind(|| panic_far_up(1));
            assert!(caught.is_err());
            let forbidden = first_forbidden_beyond();
            assert!(forbidden.is_null(), "{forbidden:?} is still forbidden");
            // The next round is on a stack that the thread came back to.
            way.suspend();
        }
    });
    while routine.resume().is_none() {}
    cache.give(routine.into_stack());
}

#[test]
fn every_stack_has_a_fake_stack_of_its_own_and_keeps_it() {
    #[inline(never)]
    fn fake_stack() -> usize {
        // A variable whose address is taken makes sure that there is one.
        let used = Cell::new(0u64);
        black_box(&used);
        // SAFETY: only asks.
        unsafe { __asan_get_current_fake_stack() }.addr()
    }
    let cache = new_cache();
    let of_thread = fake_stack();
    let mut routine = new_routine(&cache, |way| {
        let before = fake_stack();
        way.suspend();
        (before, fake_stack())
    });
    assert!(routine.resume().is_none());
    assert_eq!(fake_stack(), of_thread);
    let (before, after) = routine.resume().expect("the end");
    assert_eq!(before, after);
    assert_ne!(before, of_thread);
    assert_eq!(fake_stack(), of_thread);
    cache.give(routine.into_stack());
}

/// Returns the address of a variable that is gone.
#[inline(never)]
fn address_of_a_local() -> *const Cell<u64> {
    let local = Cell::new(7);
    black_box(std::ptr::from_ref(&local))
}

#[test]
fn a_use_after_return_on_a_stack_is_reported() {
    let name = concat!(
        module_path!(),
        "::a_use_after_return_on_a_stack_is_reported"
    );
    let options = "detect_stack_use_after_return=1:detect_leaks=0:use_sigaltstack=0";
    let output = in_child_process_with(name, &[("ASAN_OPTIONS", options)], || {
        let cache = new_cache();
        let mut routine = new_routine(&cache, |way| {
            let gone = address_of_a_local();
            way.suspend();
            // SAFETY: none: this is the error to be reported.
            black_box(unsafe { (*gone).get() });
        });
        while routine.resume().is_none() {}
    });
    if let Some(output) = output {
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "not noticed");
        assert!(printed.contains("stack-use-after-return"), "{printed}");
    }
}
