//! A waker whose clone is user code. What clones a waker made by `std::task::Wake` runs no code of the program, so this one is
//! made of functions.
#![allow(unsafe_code, reason = "there is no other way to make such a waker")]

use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::stage::Stage;

/// Pointers are those of an `Arc<Stage>` that the waker owns.
const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, drop_waker, |_| (), drop_waker);

/// Makes a waker whose clone is the user code. To wake it does nothing.
pub fn cloning_waker(stage: &Arc<Stage>) -> Waker {
    let raw = RawWaker::new(Arc::into_raw(Arc::clone(stage)).cast(), &VTABLE);
    // SAFETY: the functions keep the contract: clones own a reference each, and the stage may be used by any thread.
    unsafe { Waker::from_raw(raw) }
}

unsafe fn clone(pointer: *const ()) -> RawWaker {
    let stage: *const Stage = pointer.cast();
    // SAFETY: it is that of an `Arc`, which the waker that is cloned owns for as long as this runs.
    unsafe { Arc::increment_strong_count(stage) };
    // SAFETY: the reference that was added is this one's.
    let stage = unsafe { Arc::from_raw(stage) };
    // If it panics, there is no clone, and the reference goes.
    stage.act();
    RawWaker::new(Arc::into_raw(stage).cast(), &VTABLE)
}

/// Wakes by value, which does nothing, or drops.
unsafe fn drop_waker(pointer: *const ()) {
    let stage: *const Stage = pointer.cast();
    // SAFETY: it is the reference of a waker that is gone after this.
    drop(unsafe { Arc::from_raw(stage) });
}
