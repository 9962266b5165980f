//! The SQLite backend does what every backend must, on a real file.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::cell::Cell;

use jobtree_store::{SqliteOptions, Store, conformance};
use support::Folder;
use watchdog::Watchdog;

#[test]
fn conforms() {
    let _watchdog = Watchdog::watching("conformance of SQLite");
    let folder = Folder::new("conformance");
    let count = Cell::new(0);
    conformance::run(|| {
        count.set(count.get() + 1);
        let path = folder.file(&format!("{}.db", count.get()));
        Store::open(&SqliteOptions::new(path)).expect("a new file")
    });
}
