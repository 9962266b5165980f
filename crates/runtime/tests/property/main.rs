//! Random trees of jobs on the pool, compared step by step with a sequential model of the lifecycle.
//!
//! * `JOBTREE_PROPERTY_TREES`: how many trees; 1 000 unless told otherwise (`scripts/test --long` plays many more).
//! * `JOBTREE_PROPERTY_SEED`: the seed of the first one; the others follow.
//! * `JOBTREE_PROPERTY_PATIENCE`: the seconds that a step may take before it counts as failed; 20 unless told otherwise.
//!
//! A failing tree prints its seed, its program, and what differs from the model. With the feature `planted-bugs` the
//! test also plants bugs one by one, and must find each.

mod bodies;
mod conductor;
mod events;
mod hard_cases;
mod invariants;
mod ledger;
mod model;
#[cfg(feature = "planted-bugs")]
mod planted;
mod program;
mod run;
mod script;
mod told;
mod waiters;
mod world;

#[test]
fn random_trees_match_the_model() {
    run::run();
}
