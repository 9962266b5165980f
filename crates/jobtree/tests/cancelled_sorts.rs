//! A sort in a job that is cancelled stops soon, even in the middle of a piece with a slow comparison.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use jobtree::{Job, JobError, nursery, par};

/// After this many comparisons the job is cancelled.
const CANCELLED_AT: usize = 10_000;

type Compare<'a> = dyn Fn(&u64, &u64) -> Ordering + Sync + 'a;

/// Sorts in a job that cancels itself, and returns how often it compared.
fn comparisons_of(sort: for<'a> fn(&mut [u64], &Compare<'a>)) -> usize {
    let comparisons = AtomicUsize::new(0);
    let compare = |a: &u64, b: &u64| {
        if comparisons.fetch_add(1, Relaxed) == CANCELLED_AT {
            Job::current().unwrap().cancel("enough");
        }
        a.cmp(b)
    };
    // In no order that a sort would recognise.
    let mut items: Vec<u64> = (0..400_000_u64)
        .map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .collect();
    let outcome = nursery(|_| {
        sort(&mut items, &compare);
        Ok(())
    });
    assert!(
        matches!(outcome, Err(JobError::Cancelled(_))),
        "{outcome:?}"
    );
    comparisons.load(Relaxed)
}

#[test]
fn a_cancelled_sort_stops_in_the_middle_of_a_piece() {
    let sorts: [for<'a> fn(&mut [u64], &Compare<'a>); 2] = [
        |items, compare| par::sort_by(items, compare),
        |items, compare| par::sort_unstable_by(items, compare),
    ];
    for sort in sorts {
        let comparisons = comparisons_of(sort);
        // A piece alone takes more than a million; each worker may do some thousand more.
        assert!(comparisons < CANCELLED_AT + 200_000, "{comparisons}");
    }
}
