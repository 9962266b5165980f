//! The backend in memory does what every backend must.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use jobtree_store::{Store, conformance};
use watchdog::Watchdog;

#[test]
fn conforms() {
    let _watchdog = Watchdog::watching("conformance of memory");
    conformance::run(Store::in_memory);
}
