//! rayon itself on this package, through the patch in our own manifest.

use rayon::prelude::*;

#[test]
fn iterators_run_on_jobtrees_workers() {
    let outside = (0..10_000)
        .into_par_iter()
        .filter(|_| jobtree_pool::current_worker_index().is_none())
        .count();
    assert_eq!(outside, 0);
}

#[test]
fn iterators_compute_what_their_sequential_forms_do() {
    let numbers: Vec<u64> = (0..100_000).map(|n| n * 7919 % 100_003).collect();
    let sum: u64 = numbers.par_iter().map(|n| n * n).sum();
    assert_eq!(sum, numbers.iter().map(|n| n * n).sum());

    let mut sorted = numbers.clone();
    sorted.par_sort_unstable();
    assert!(sorted.is_sorted());

    let mut bridged: Vec<u64> = numbers.iter().copied().par_bridge().collect();
    bridged.sort_unstable();
    assert_eq!(bridged, sorted);
}

#[test]
fn a_pool_of_its_own_runs_the_iterators_installed_in_it() {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(3)
        .build()
        .unwrap();
    let mut indices: Vec<usize> = pool.install(|| {
        assert_eq!(rayon::current_num_threads(), 3);
        (0..10_000)
            .into_par_iter()
            .filter_map(|_| rayon::current_thread_index())
            .collect()
    });
    assert_eq!(indices.len(), 10_000);
    indices.sort_unstable();
    indices.dedup();
    assert!(indices.iter().all(|index| *index < 3));
}
