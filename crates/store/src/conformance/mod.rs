//! What every backend must do, as a suite that a backend's tests run: the same for memory, SQLite, PostgreSQL, and
//! whatever else implements [`Backend`](crate::Backend).
//!
//! [`run`] calls each case with a new, empty store, and panics with the case's name if one fails. Most cases look at one
//! promise; [`walk`] compares long random runs with the same run in memory, answer by answer and record by record.
//!
//! ```
//! use jobtree_store::{Store, conformance};
//! conformance::run(Store::in_memory);
//! ```

mod asking;
mod beginning;
mod editing;
mod keeping;
mod leasing;
mod logging;
pub mod sameness;
mod submitting;
pub mod walk;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::store::Store;
use world::World;

type Case = (&'static str, fn(&World));

/// Runs the whole suite. `make` gives a new, empty store each time. Backends that have a time of their own must take the
/// callers' instead: the cases let days pass.
pub fn run(make: impl Fn() -> Store) {
    let cases = submitting::CASES
        .iter()
        .chain(leasing::CASES)
        .chain(beginning::CASES)
        .chain(logging::CASES)
        .chain(editing::CASES)
        .chain(keeping::CASES)
        .chain(asking::CASES);
    for (name, case) in cases {
        let world = World::new(make());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(&world))) {
            eprintln!("conformance: the case '{name}' failed");
            resume_unwind(panic);
        }
        world.audit(name);
    }
    for seed in 0..6 {
        walk::compare(seed, 120, &make());
    }
}
