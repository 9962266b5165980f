//! The SQLite backend does what every backend must, on a real file.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::cell::Cell;

use jobtree_store::{SqliteOptions, Store, conformance};
use support::Folder;
use watchdog::Watchdog;

fn conforms_with(options: impl Fn(SqliteOptions) -> SqliteOptions) {
    let folder = Folder::new("conformance");
    let count = Cell::new(0);
    conformance::run(|| {
        count.set(count.get() + 1);
        let path = folder.file(&format!("{}.db", count.get()));
        Store::open(&options(SqliteOptions::new(path))).expect("a new file")
    });
}

#[test]
fn conforms() {
    let _watchdog = Watchdog::watching("conformance of SQLite");
    conforms_with(|options| options);
}

/// Each command reads its records from the file, as after a restart.
#[test]
fn conforms_without_memory() {
    let _watchdog = Watchdog::watching("conformance of SQLite without memory");
    conforms_with(|options| options.remembered(0));
}

/// The log is copied into the file after nearly each commit.
#[test]
fn conforms_with_a_short_log() {
    let _watchdog = Watchdog::watching("conformance of SQLite with a short log");
    conforms_with(|options| options.checkpoint_pages(4).max_group(1));
}
