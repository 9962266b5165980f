//! Sorting pieces and merging them, in parallel, for values that can only be moved.
//!
//! The slice is halved a few times; the pieces are sorted by whatever the caller sorts with; then runs are
//! merged to and fro between the slice and a buffer of the same length.
//!
//! # Panics
//!
//! A comparison may panic at any time, and then the slice must hold each value exactly once, in any order. The
//! rule for that: **whenever the frame of a node unwinds, its part of the slice holds all its values**.
//!
//! - A node whose result goes into the buffer reads the slice and never writes it: its children leave their
//!   results in the slice. Nothing has to be done.
//! - A node whose result goes into the slice reads the buffer, where its children left theirs, and overwrites the
//!   slice. Should it unwind, [`Restore`] copies the buffer over the slice. Until it begins to write, the slice
//!   still has all values by the first case.
//!
//! The buffer never owns anything: it holds bits, which no code drops.

use std::mem::MaybeUninit;
use std::{ptr, slice};

use super::merge::{copy_bits, merge};
use crate::woken::let_woken_run;
use crate::worker::Worker;

/// Sorts `values` by sorting pieces of it with `sort_piece` and merging them. It is halved `halvings` times.
///
/// Stable if `sort_piece` is. `sort_piece` must sort by the same order as `is_less`, or else the result has all
/// values, but in no particular order.
///
/// # Panics
/// If one of the functions panics. Then `values` holds the same values as before, in any order.
pub fn merge_sort<T, L, S>(
    worker: &Worker,
    values: &mut [T],
    halvings: u32,
    is_less: &L,
    sort_piece: &S,
) where
    T: Send,
    L: Fn(&T, &T) -> bool + Sync,
    S: Fn(&mut [T]) + Sync,
{
    if halvings == 0 || values.len() < 2 || size_of::<T>() == 0 {
        return sort_piece(values);
    }
    let mut buffer: Vec<T> = Vec::with_capacity(values.len());
    let buffer = &mut buffer.spare_capacity_mut()[..values.len()];
    let node = Node {
        is_less,
        sort_piece,
    };
    node.sort_in_place(worker, values, buffer, halvings);
}

/// The data that all nodes of the tree of merges need.
struct Node<'a, L, S> {
    is_less: &'a L,
    sort_piece: &'a S,
}

impl<L, S> Node<'_, L, S> {
    /// Sorts a piece that is not halved. Two pieces may follow each other without a fork in between.
    fn sort_one_piece<T>(&self, worker: &Worker, values: &mut [T])
    where
        S: Fn(&mut [T]) + Sync,
    {
        if worker.wants_work() {
            let_woken_run();
        }
        (self.sort_piece)(values);
    }

    /// Sorts `values`; the result is in `values`.
    fn sort_in_place<T>(
        &self,
        worker: &Worker,
        values: &mut [T],
        buffer: &mut [MaybeUninit<T>],
        halvings: u32,
    ) where
        T: Send,
        L: Fn(&T, &T) -> bool + Sync,
        S: Fn(&mut [T]) + Sync,
    {
        if halvings == 0 || values.len() < 2 {
            return self.sort_one_piece(worker, values);
        }
        let middle = values.len() / 2;
        {
            let (left, right) = values.split_at_mut(middle);
            let (left_buffer, right_buffer) = buffer.split_at_mut(middle);
            worker.join(
                |worker| self.sort_into_buffer(worker, left, left_buffer, halvings - 1),
                |worker| self.sort_into_buffer(worker, right, right_buffer, halvings - 1),
            );
        }
        let sorted: *mut T = buffer.as_mut_ptr().cast();
        let restore = Restore {
            sorted_halves: sorted,
            values: values.as_mut_ptr(),
            len: values.len(),
        };
        // SAFETY: both children have filled their part of the buffer with the bits of all their values, so it is
        // initialised. From here until the merge has ended or `restore` has been dropped, the values are those in the
        // buffer, and the slice is mere memory: no code looks at it.
        let (left, right, output) = unsafe {
            let sorted = slice::from_raw_parts_mut(sorted, restore.len);
            let (left, right) = sorted.split_at_mut(middle);
            let output = restore.values.cast::<MaybeUninit<T>>();
            (left, right, slice::from_raw_parts_mut(output, restore.len))
        };
        merge(worker, left, right, output, self.is_less);
        std::mem::forget(restore);
    }

    /// Sorts `values`; the result is in `buffer`, and `values` still has all values, in any order.
    fn sort_into_buffer<T>(
        &self,
        worker: &Worker,
        values: &mut [T],
        buffer: &mut [MaybeUninit<T>],
        halvings: u32,
    ) where
        T: Send,
        L: Fn(&T, &T) -> bool + Sync,
        S: Fn(&mut [T]) + Sync,
    {
        if halvings == 0 || values.len() < 2 {
            self.sort_one_piece(worker, values);
            return copy_bits(values, buffer);
        }
        let (left, right) = values.split_at_mut(values.len() / 2);
        let (left_buffer, right_buffer) = buffer.split_at_mut(left.len());
        worker.join(
            |worker| self.sort_in_place(worker, left, left_buffer, halvings - 1),
            |worker| self.sort_in_place(worker, right, right_buffer, halvings - 1),
        );
        merge(worker, left, right, buffer, self.is_less);
    }
}

/// Puts the values back into the slice when a merge into it unwinds.
struct Restore<T> {
    sorted_halves: *const T,
    values: *mut T,
    len: usize,
}

impl<T> Drop for Restore<T> {
    fn drop(&mut self) {
        // SAFETY: the buffer holds the bits of all values and has not been written since; the slice is writable, of
        // the same length, and elsewhere. No other thread uses either: the workers that merged have ended.
        unsafe { ptr::copy_nonoverlapping(self.sorted_halves, self.values, self.len) };
    }
}
