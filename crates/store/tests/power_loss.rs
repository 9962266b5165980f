//! The store on a machine that loses power, runs out of space, and whose disk fails: what was acknowledged is there
//! afterwards. Without syncs it is not, so the test can tell.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::Mutex;

use jobtree_store::{OpenError, SqliteOptions, Store, StoreError};
use jobtree_store_faults::{Fault, Machine};
use support::ledger::{self, Entry};
use support::{stamp, submission};
use watchdog::Watchdog;

fn options(machine: &Machine) -> SqliteOptions {
    // A short log, so that cuts also come in the middle of copying it.
    SqliteOptions::new("jobs.db")
        .vfs(machine.vfs_name())
        .checkpoint_pages(40)
}

/// Works until the machine stops it, and gives the ledger.
fn work(options: &SqliteOptions) -> Vec<Entry> {
    work_and_then(options, || {})
}

/// Does something before the store is closed.
fn work_and_then(options: &SqliteOptions, then: impl FnOnce()) -> Vec<Entry> {
    let ledger = Mutex::new(Vec::new());
    if let Ok(store) = Store::open(options) {
        let tell = |entry| ledger.lock().expect("nobody panics").push(entry);
        std::thread::scope(|scope| {
            scope.spawn(|| ledger::submit_on(&store, 40, &tell));
            scope.spawn(|| ledger::submit_on(&store, 40, &tell));
            scope.spawn(|| ledger::work_on(&store, 30, &tell));
        });
        then();
    }
    ledger.into_inner().expect("nobody panics")
}

fn check(machine: &Machine, ledger: &[Entry]) -> Result<(), String> {
    let db = machine
        .connect("jobs.db")
        .map_err(|error| error.to_string())?;
    let integrity: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(|error| error.to_string())?;
    drop(db);
    if integrity != "ok" {
        return Err(integrity);
    }
    let store = Store::open(&options(machine)).map_err(|error| error.to_string())?;
    ledger::compare(&store, ledger)?;
    ledger::recover(&store);
    ledger::compare(&store, ledger)
}

/// How much was acknowledged, and what is wrong after a cut at a point that the seed chooses.
fn cut(seed: u64, sync: bool) -> (usize, Result<(), String>) {
    let machine = Machine::new();
    machine.power_cut_after(seed.wrapping_mul(0x9e37_79b9) % 900, seed);
    let options = options(&machine);
    let ledger = work(&if sync {
        options
    } else {
        options.without_sync()
    });
    if machine.is_on() {
        machine.power_cut(seed);
    }
    machine.power_on();
    (ledger.len(), check(&machine, &ledger))
}

#[test]
fn nothing_acknowledged_is_lost() {
    let _watchdog = Watchdog::watching("power cuts");
    let mut acknowledged = 0;
    for seed in 0..60 {
        let (count, outcome) = cut(seed, true);
        assert_eq!(outcome, Ok(()), "seed {seed}");
        acknowledged += count;
    }
    assert!(
        acknowledged > 60 * 20,
        "the cuts came too early: {acknowledged}"
    );
}

#[test]
fn without_syncs_the_ledger_is_betrayed() {
    let _watchdog = Watchdog::watching("power cuts without syncs");
    let betrayed = (0..40).filter(|seed| cut(*seed, false).1.is_err()).count();
    assert!(betrayed > 4, "only {betrayed} of 40 cuts did damage");
}

#[test]
fn a_failed_sync_stops_the_store_until_it_is_opened_again() {
    let _watchdog = Watchdog::watching("failed syncs");
    let mut stopped = 0;
    for seed in 0..25 {
        let machine = Machine::new();
        // A long log: copying it into the file would repair by chance what opening must repair on purpose.
        let options = options(&machine).checkpoint_pages(100_000);
        // Made in peace: the first syncs are those of opening.
        drop(Store::open(&options).expect("a new file"));
        machine.inject(Fault::SyncError, 4 + seed % 13, 1);
        // Killed, so that closing in good order cannot repair anything.
        let mut ledger = work_and_then(&options, || machine.kill());
        if machine.struck(Fault::SyncError) == 0 {
            continue;
        }
        // The same kernel, which believes that all is written: opened again, the store must not build on that.
        let store = Store::open(&options).expect("the disk works again");
        assert_eq!(ledger::compare(&store, &ledger), Ok(()), "seed {seed}");
        ledger::recover(&store);
        let more = Mutex::new(Vec::new());
        let tell = |entry| more.lock().expect("nobody panics").push(entry);
        ledger::submit_on(&store, 5, &tell);
        ledger::work_on(&store, 5, &tell);
        ledger.extend(more.into_inner().expect("nobody panics"));
        machine.power_cut(seed);
        drop(store);
        machine.power_on();
        assert_eq!(
            check(&machine, &ledger),
            Ok(()),
            "seed {seed}, after the cut"
        );
        stopped += 1;
    }
    assert!(stopped > 10, "only {stopped} syncs failed");
}

#[test]
fn a_stopped_store_says_so() {
    let machine = Machine::new();
    let store = Store::open(&options(&machine)).expect("a new file");
    store.submit(stamp(), submission()).wait().expect("taken");
    machine.inject(Fault::SyncError, 0, 1);
    let failed = store.submit(stamp(), submission()).wait();
    assert!(
        matches!(failed, Err(StoreError::Stopped { .. })),
        "{failed:?}"
    );
    assert!(store.stopped().is_some());
    // The disk is fine again; what the store knows is not.
    let later = store.submit(stamp(), submission()).wait();
    assert!(
        matches!(later, Err(StoreError::Stopped { .. })),
        "{later:?}"
    );
    let reading = store.queued(None, 10).wait();
    assert!(
        matches!(reading, Err(StoreError::Stopped { .. })),
        "{reading:?}"
    );
    let told = later.expect_err("it stopped").to_string();
    assert!(told.contains("open it again"), "{told}");
}

#[test]
fn a_full_disk_loses_nothing_and_can_be_emptied() {
    let _watchdog = Watchdog::watching("a full disk");
    let mut full = 0;
    for after in 0..30 {
        let machine = Machine::new();
        let store = Store::open(&options(&machine)).expect("a new file");
        let ledger = Mutex::new(Vec::new());
        let tell = |entry| ledger.lock().expect("nobody panics").push(entry);
        ledger::submit_on(&store, 3, &tell);
        machine.inject(Fault::NoSpace, after, u64::MAX);
        ledger::submit_on(&store, 20, &tell);
        ledger::work_on(&store, 3, &tell);
        let refused = store.submit(stamp(), submission()).wait();
        if machine.struck(Fault::NoSpace) > 0 {
            full += 1;
            assert!(
                matches!(refused, Err(StoreError::NoSpace)) || refused.is_ok(),
                "{refused:?}"
            );
        }
        machine.heal();
        ledger::submit_on(&store, 3, &tell);
        let ledger = ledger.into_inner().expect("nobody panics");
        assert_eq!(
            ledger::compare(&store, &ledger),
            Ok(()),
            "full after {after}"
        );
        drop(store);
        machine.power_cut(after);
        machine.power_on();
        assert_eq!(
            check(&machine, &ledger),
            Ok(()),
            "full after {after}, then a cut"
        );
    }
    assert!(full > 10, "the disk was full only {full} times");
}

#[test]
fn opening_on_a_broken_disk_is_an_error() {
    for after in 0..12 {
        let machine = Machine::new();
        machine.inject(Fault::SyncError, after, 1);
        let opened = Store::open(&options(&machine));
        if machine.struck(Fault::SyncError) > 0 {
            assert!(
                matches!(
                    opened,
                    Err(OpenError::Database(_) | OpenError::NoLog { .. })
                ),
                "sync {after}: {opened:?}"
            );
        }
    }
}
