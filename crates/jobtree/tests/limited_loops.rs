//! Parallel loops in jobs with limits: they are computation of the job that runs them, so they run everywhere, and what they call
//! has the job's limits. The rows of loops in the table of `jobtree::budget`.

use jobtree::budget::{self, Budget};
use jobtree::{BoxError, Profile, Runtime, par};

const COUNT: usize = 500;

/// Panics, and so fails the loop, if the calling code has no limits.
fn limited<T>(item: T) -> T {
    assert_ne!(budget::remaining().spawns, u64::MAX, "it left the limits");
    item
}

/// Runs every kind of loop that starts something or keeps what is the program's.
fn run_loops() -> Result<(), BoxError> {
    let bridged = par::bridge((0..COUNT).map(limited)).map(limited);
    assert!(bridged.into_iter().eq(0..COUNT));
    par::bridge(0..COUNT).for_each(|item| drop(limited(vec![item])));
    let grained = || par::over(0..COUNT).grain(par::Grain::of(1));
    let counted = grained().map_init(|| limited(0), |sum, item| *sum += limited(item));
    assert_eq!(counted.count(), COUNT);
    let (all, doubled): (Vec<_>, Vec<_>) = grained().map(|n| limited((n, 2 * n))).unzip();
    assert_eq!((all.len(), doubled.len()), (COUNT, COUNT));
    let set: std::collections::HashSet<_> = grained().map(limited).collect_as();
    assert_eq!(set.len(), COUNT);
    let owned = par::over(Vec::from_iter(0..COUNT)).skip(1).map(limited);
    assert_eq!(owned.min(), Some(1));
    Ok(())
}

#[test]
fn loops_run_in_every_profile_and_keep_its_limits() {
    for workers in [1, 2] {
        for profile in [
            Profile::Core,
            Profile::Sovereign,
            Profile::Service,
            Profile::Cluster,
        ] {
            let builder = Runtime::builder().workers(workers).profile(profile);
            let runtime = builder.build().unwrap();
            let outcome = runtime.nursery(|_| run_loops());
            outcome.unwrap_or_else(|error| panic!("{profile}: {}", error.report()));
        }
    }
}

/// A bridge hands its items to tasks, which are parts of the loop and no spawns.
#[test]
fn a_bridge_takes_no_spawns() {
    let builder = Runtime::builder().workers(2).profile(Profile::Service);
    let runtime = builder.build().unwrap();
    let outcome = runtime.nursery(|n| {
        let none = n.job_options().budget(Budget {
            spawns: 0,
            ..Budget::CHILD
        });
        Ok(none.spawn(run_loops).join()?)
    });
    outcome.unwrap();
}
