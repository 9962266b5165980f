//! The global pool, in a process of its own: it can be made once only, and lives until the process ends.

use jobtree_pool::{BuildError, Pool, current_workers, join};

#[test]
#[cfg_attr(
    any(miri, feature = "sanitizer"),
    ignore = "its workers own things at the end, which are taken for leaks"
)]
fn a_second_global_pool_is_refused_and_the_first_one_stays() {
    Pool::builder().workers(3).build_global().unwrap();
    let second = Pool::builder().workers(2).build_global();
    assert!(matches!(second, Err(BuildError::GlobalPoolExists)));
    assert_eq!((Pool::global().workers(), current_workers()), (3, 3));
    // What is called without a pool uses it.
    assert_eq!(join(current_workers, current_workers), (3, 3));
}
