//! Shared memory for SQLite's write-ahead log index: plain main memory, as all connections are in this process.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;

/// One page of shared memory. SQLite writes to it through pointers while others read: a handle that was given the
/// pointer keeps a clone for as long as SQLite may use it, so it outlives even a power cut.
#[derive(Clone)]
pub(crate) struct Region(Arc<Words>);

struct Words(Box<[UnsafeCell<u64>]>);

// SAFETY: nothing here reads or writes the words; they are only handed out as a raw pointer. What SQLite does through
// that pointer it orders by its own locks and barriers, as it must for memory shared between processes.
unsafe impl Send for Words {}
// SAFETY: as above: `&Words` gives nothing but a raw pointer.
unsafe impl Sync for Words {}

impl Region {
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let words = bytes.div_ceil(size_of::<u64>());
        Self(Arc::new(Words(
            (0..words).map(|_| UnsafeCell::new(0)).collect(),
        )))
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        // A pointer of the whole slice, not of its first cell: SQLite uses all of it.
        UnsafeCell::raw_get(self.0.0.as_ptr()).cast()
    }
}
