//! A copy of the file, taken while it is in use, is whole and has all that was acknowledged before.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_store::{SqliteOptions, Store, StoreError};
use support::ledger::{self, Entry};
use support::{Folder, stamp, submission};
use watchdog::Watchdog;

fn whole(path: &std::path::Path) -> String {
    let db = rusqlite::Connection::open(path).expect("the copy");
    db.query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("an answer")
}

#[test]
fn a_backup_under_load_has_all_that_was_acknowledged_before() {
    let _watchdog = Watchdog::watching("backup under load");
    let folder = Folder::new("backup");
    let options = SqliteOptions::new(folder.file("jobs.db")).checkpoint_pages(50);
    let store = Store::open(&options).expect("a new file");
    let ledger = Mutex::new(Vec::new());
    let tell = |entry| ledger.lock().expect("nobody panics").push(entry);
    ledger::submit_on(&store, 200, &tell);
    let enough = AtomicBool::new(false);
    let backups = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    ledger::submit_on(&store, 4, &tell);
                }
            });
        }
        scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                ledger::work_on(&store, 1, &tell);
            }
        });
        let backups: Vec<_> = (0..3)
            .map(|number| {
                // Not before there is something new.
                let known = ledger.lock().expect("nobody panics").len();
                while ledger.lock().expect("nobody panics").len() < known + 50 {
                    std::thread::yield_now();
                }
                let before: Vec<Entry> = ledger.lock().expect("nobody panics").clone();
                let path = folder.file(&format!("backup-{number}.db"));
                let done = store.backup(&path).wait().expect("a backup");
                (path, before, done)
            })
            .collect();
        enough.store(true, Ordering::Relaxed);
        backups
    });
    drop(store);
    let mut last = 0;
    for (path, before, done) in backups {
        assert_eq!(whole(&path), "ok");
        assert_eq!((&done.path, done.bytes > 10_000), (&path, true));
        assert!(done.last_event > last, "each has more");
        last = done.last_event;
        let copy = Store::open(&SqliteOptions::new(&path)).expect("a store");
        assert_eq!(ledger::compare(&copy, &before), Ok(()));
        let found = copy.read(|tables| tables.last_event()).wait();
        assert_eq!(found, Ok(done.last_event));
        // It works like any other.
        copy.submit(stamp(), submission()).wait().expect("taken");
    }
    let left = std::fs::read_dir(folder.path()).expect("the folder");
    let left: Vec<_> = left
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name.to_string_lossy().contains("partial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_a_backup() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("backup-mode");
    let store = Store::open(&SqliteOptions::new(folder.file("jobs.db"))).expect("a new file");
    let path = folder.file("copy.db");
    store.backup(&path).wait().expect("a backup");
    let mode = std::fs::metadata(&path).expect("it").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_there_is_not_replaced_and_what_cannot_be_is_said() {
    let folder = Folder::new("backup-refused");
    let store = Store::open(&SqliteOptions::new(folder.file("jobs.db"))).expect("a new file");
    let path = folder.file("precious");
    std::fs::write(&path, "mine").expect("a file");
    let refused = store.backup(&path).wait().expect_err("it exists");
    assert!(refused.to_string().contains("exists already"), "{refused}");
    assert_eq!(std::fs::read(&path).expect("it is there"), b"mine");
    let nowhere = store.backup(folder.file("no/such/folder.db")).wait();
    assert!(matches!(nowhere, Err(StoreError::NoBackup { .. })));
    store
        .submit(stamp(), submission())
        .wait()
        .expect("the store goes on");
    let memory = Store::in_memory().backup(folder.file("memory.db")).wait();
    let told = memory.expect_err("there is no file").to_string();
    assert!(told.contains("SQLite"), "{told}");
}
