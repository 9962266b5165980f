//! Merging two sorted runs into one, in order, by as many workers as want to.
//!
//! A merge is cut where its output is to be cut: [`split_for_prefix`] finds how much of either run goes into the
//! first half. The two halves have nothing in common, so they can go to two workers, or to one: a single worker
//! runs several of them in lockstep (lanes), because one merge alone spends its time waiting for its own last
//! comparison.
//!
//! Values are copied bit by bit into the output, the input stays as it is. It is up to the caller which of the
//! two are the values and which are just bits. Each value is compared only before it is copied, so a value that
//! changes when it is compared (by interior mutability) arrives in its last state.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use crate::worker::Worker;

/// The number of merges that one worker runs in lockstep. Picked by measuring: four is as fast as eight, two is slower.
const LANES: usize = 4;

/// The number of values below which the search for the lanes' borders costs more than the lanes save.
const WORTH_LANES: usize = if cfg!(miri) { 32 } else { 256 };

/// A merge of fewer values is not given to another worker: some ten microseconds' work.
const WORTH_SHARING: usize = if cfg!(miri) { 128 } else { 8 * 1024 };

/// Merges two sorted runs into `output`. Of equal values, those of `left` come first.
///
/// Afterwards `output` is initialised with the bits of all values of both runs. If `is_less` panics, nothing is
/// known about it. The runs keep their bits.
pub(super) fn merge<T, L>(
    worker: &Worker,
    left: &mut [T],
    right: &mut [T],
    output: &mut [MaybeUninit<T>],
    is_less: &L,
) where
    T: Send,
    L: Fn(&T, &T) -> bool + Sync,
{
    assert_eq!(left.len() + right.len(), output.len());
    let (Some(left_end), Some(right_start)) = (left.last(), right.first()) else {
        return copy_both(left, right, output);
    };
    if !is_less(right_start, left_end) {
        return copy_both(left, right, output);
    }
    if is_less(&right[right.len() - 1], &left[0]) {
        return copy_both(right, left, output);
    }
    if output.len() < WORTH_SHARING {
        return merge_alone(left, right, output, is_less);
    }
    let half = output.len() / 2;
    let from_left = split_for_prefix(left, right, half, is_less);
    let (left_1, left_2) = left.split_at_mut(from_left);
    let (right_1, right_2) = right.split_at_mut(half - from_left);
    let (output_1, output_2) = output.split_at_mut(half);
    worker.join(
        |worker| merge(worker, left_1, right_1, output_1, is_less),
        |worker| merge(worker, left_2, right_2, output_2, is_less),
    );
}

/// Returns how many of the first `prefix` values of the merged runs come from `left`.
fn split_for_prefix<T>(
    left: &[T],
    right: &[T],
    prefix: usize,
    is_less: &impl Fn(&T, &T) -> bool,
) -> usize {
    let mut low = prefix.saturating_sub(right.len());
    let mut high = prefix.min(left.len());
    while low < high {
        let middle = low + (high - low) / 2;
        // Were `middle` the answer, this value of the right run would be the last one in the prefix. A value of the
        // left run that is not greater than it has to be in there too.
        if is_less(&right[prefix - 1 - middle], &left[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// `first`, then `second`.
fn copy_both<T>(first: &[T], second: &[T], output: &mut [MaybeUninit<T>]) {
    let (output_1, output_2) = output.split_at_mut(first.len());
    copy_bits(first, output_1);
    copy_bits(second, output_2);
}

/// Copies the bits of `values`.
pub(super) fn copy_bits<T>(values: &[T], output: &mut [MaybeUninit<T>]) {
    assert_eq!(values.len(), output.len());
    // SAFETY: both are slices of that length, and an exclusive one overlaps with no other. Bits of a `T` may go into
    // a `MaybeUninit<T>`.
    unsafe {
        ptr::copy_nonoverlapping(
            values.as_ptr(),
            output.as_mut_ptr().cast::<T>(),
            values.len(),
        );
    }
}

/// [`merge`] by the calling worker alone.
fn merge_alone<T>(
    left: &[T],
    right: &[T],
    output: &mut [MaybeUninit<T>],
    is_less: &impl Fn(&T, &T) -> bool,
) {
    if output.len() < WORTH_LANES {
        Lane::new(left, right, output).finish(is_less);
        return;
    }
    // Cut from the back, so that what is left to cut always begins at the beginning.
    let (mut left, mut right, mut output) = (left, right, output);
    let mut lanes: [Option<Lane<'_, T>>; LANES] = [const { None }; LANES];
    for (index, lane) in lanes.iter_mut().enumerate().skip(1).rev() {
        let prefix = output.len() / (index + 1) * index;
        let from_left = split_for_prefix(left, right, prefix, is_less);
        let (left_1, left_2) = left.split_at(from_left);
        let (right_1, right_2) = right.split_at(prefix - from_left);
        let (output_1, output_2) = output.split_at_mut(prefix);
        *lane = Some(Lane::new(left_2, right_2, output_2));
        (left, right, output) = (left_1, right_1, output_1);
    }
    lanes[0] = Some(Lane::new(left, right, output));
    let mut lanes = lanes.map(|lane| lane.expect("each has been given its part"));
    loop {
        // As long as that, no lane can come to the end of a run, so there is nothing to check within.
        let steps = lanes.iter().map(Lane::safe_steps).min().unwrap_or(0);
        if steps == 0 {
            break;
        }
        for _ in 0..steps {
            for lane in &mut lanes {
                // SAFETY: no more than `safe_steps` of each lane.
                unsafe { lane.step(is_less) };
            }
        }
    }
    for lane in lanes {
        lane.finish(is_less);
    }
}

/// One merge under way.
///
/// Invariant: `left..left_end` and `right..right_end` are the values still to be merged, and the output has
/// exactly as many places from `output` on.
struct Lane<'a, T> {
    left: *const T,
    left_end: *const T,
    right: *const T,
    right_end: *const T,
    output: *mut T,
    borrows: PhantomData<(&'a [T], &'a mut [MaybeUninit<T>])>,
}

impl<'a, T> Lane<'a, T> {
    fn new(left: &'a [T], right: &'a [T], output: &'a mut [MaybeUninit<T>]) -> Lane<'a, T> {
        assert_eq!(left.len() + right.len(), output.len());
        assert_ne!(size_of::<T>(), 0, "the ends of a run must differ");
        let (left, right) = (left.as_ptr_range(), right.as_ptr_range());
        Lane {
            left: left.start,
            left_end: left.end,
            right: right.start,
            right_end: right.end,
            output: output.as_mut_ptr().cast(),
            borrows: PhantomData,
        }
    }

    /// Returns the number of values of the two runs that are left.
    #[inline(always)]
    fn remaining(&self) -> (usize, usize) {
        // SAFETY: both ends of a run point into one slice, and the first is not behind the second.
        unsafe {
            (
                self.left_end.offset_from_unsigned(self.left),
                self.right_end.offset_from_unsigned(self.right),
            )
        }
    }

    /// So many steps end in neither run's end, whichever run they take from.
    #[inline(always)]
    fn safe_steps(&self) -> usize {
        let (left, right) = self.remaining();
        left.min(right)
    }

    /// Moves one value to the output.
    ///
    /// # Safety
    /// Neither run is at its end.
    #[inline(always)]
    unsafe fn step(&mut self, is_less: &impl Fn(&T, &T) -> bool) {
        // SAFETY: both runs have a value, so both pointers are readable; the output has a place for each value that
        // is left, and overlaps with neither. One of the runs gets shorter by one, and so does the output.
        unsafe {
            let take_right = is_less(&*self.right, &*self.left);
            let next = if take_right { self.right } else { self.left };
            ptr::copy_nonoverlapping(next, self.output, 1);
            self.right = self.right.add(usize::from(take_right));
            self.left = self.left.add(usize::from(!take_right));
            self.output = self.output.add(1);
        }
    }

    /// Merges all that is left.
    fn finish(mut self, is_less: &impl Fn(&T, &T) -> bool) {
        loop {
            let steps = self.safe_steps();
            if steps == 0 {
                break;
            }
            for _ in 0..steps {
                // SAFETY: no more than `safe_steps`.
                unsafe { self.step(is_less) };
            }
        }
        let (left, right) = self.remaining();
        // SAFETY: what is left of the runs is readable, has its places in the output, and does not overlap with them.
        unsafe {
            ptr::copy_nonoverlapping(self.left, self.output, left);
            ptr::copy_nonoverlapping(self.right, self.output.add(left), right);
        }
    }
}
