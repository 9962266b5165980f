//! Bringing a slice into an order that was found elsewhere.

use std::mem::MaybeUninit;
use std::ptr;

use super::claims::Claims;
use super::merge::copy_bits;
use crate::worker::Worker;

/// A part of fewer values is not given to another worker.
const WORTH_SHARING: usize = if cfg!(miri) { 128 } else { 8 * 1024 };

/// Moves values so that place `i` gets what was at place `order[i]`.
///
/// # Panics
/// If `order` is not a permutation of all places. Then nothing has been moved.
pub fn permute<T: Send>(worker: &Worker, values: &mut [T], order: &[usize]) {
    assert_is_permutation(order, values.len());
    let len = values.len();
    let mut buffer: Vec<T> = Vec::with_capacity(len);
    let buffer = &mut buffer.spare_capacity_mut()[..len];
    gather(worker, &Values(values), order, buffer);
    // SAFETY: `gather` has put the bits of every value into the buffer, each once, because `order` is a permutation.
    // They take the place of the same values in another order, so none is lost and none is there twice; and since this
    // cannot panic, no thread sees anything in between. The two do not overlap.
    unsafe { ptr::copy_nonoverlapping(buffer.as_ptr().cast::<T>(), values.as_mut_ptr(), len) };
}

/// Values that several workers move out of, each value once.
struct Values<'a, T>(&'a [T]);

// SAFETY: used only by `gather`, which copies bits and gives no thread a reference to a value: that is sending.
unsafe impl<T: Send> Sync for Values<'_, T> {}

fn assert_is_permutation(order: &[usize], len: usize) {
    assert_eq!(order.len(), len, "there must be one index for each place");
    let mut places = vec![(); len];
    let places = Claims::new(&mut places);
    for &index in order {
        let claimed = places.claim(index);
        assert!(claimed.is_ok(), "index {index} is {:?}", claimed.err());
    }
}

/// Copies `values[order[i]]` to `buffer[i]`.
fn gather<T: Send>(
    worker: &Worker,
    values: &Values<'_, T>,
    order: &[usize],
    buffer: &mut [MaybeUninit<T>],
) {
    if buffer.len() <= WORTH_SHARING {
        for (place, &index) in buffer.iter_mut().zip(order) {
            copy_bits(&values.0[index..=index], std::slice::from_mut(place));
        }
        return;
    }
    let half = buffer.len() / 2;
    let (order_1, order_2) = order.split_at(half);
    let (buffer_1, buffer_2) = buffer.split_at_mut(half);
    worker.join(
        |worker| gather(worker, values, order_1, buffer_1),
        |worker| gather(worker, values, order_2, buffer_2),
    );
}
